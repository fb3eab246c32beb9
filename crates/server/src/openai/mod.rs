//! OpenAI's protocol: requests in, replies out. vLLM's extensions and llama.cpp's names are read, too.

mod api_error;
mod api_request;
mod json_fields;
mod known_fields;
mod reply;
mod request_body;
#[cfg(test)]
mod tests;

pub use api_error::{cut, ApiError};
pub use api_request::{prompt_ids, ApiRequest, ChatMessage, Endpoint, PromptInput};
pub use reply::{sse, ChoiceDelta, Reply};
pub use request_body::Extras;
