//! OpenAI's protocol: requests and replies, with the vLLM extensions that the course covers.

mod answer_parser;
mod api_error;
mod api_request;
pub mod checks;
mod fields;
mod parse;
mod reply;
#[cfg(test)]
mod tests;
mod tool_fields;
mod tools;

pub use answer_parser::{AnswerForm, CallForm, Thoughts};
pub use api_error::{cut, ApiError};
pub use api_request::{ApiRequest, PromptInput, NO_SEED};
pub use fields::Endpoint;
pub use reply::{Origin, Reply};
pub use tool_fields::ToolChoice;
