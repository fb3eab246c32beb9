//! Given code that no day teaches: what a model is read from, what it runs on, and the traits between the days.

pub mod args;
pub mod cache;
pub mod command;
pub mod config;
pub mod days;
pub mod device;
pub mod dfa;
pub mod doors;
pub mod draft;
pub mod hub;
pub mod load;
pub mod model;
pub mod options;
pub mod output;
pub mod plan;
pub mod processor;
pub mod report;
pub mod rng;
pub mod step;
pub mod token;
pub mod tokenizer;
pub mod tokens;
pub mod weights;

pub use cache::{Cache, CacheKind, NoCache};
pub use config::{Family, ModelConfig};
pub use doors::{attend, linear, linear_many, Attend};
pub use load::load_model;
pub use model::Model;
pub use options::{check_prompt, Choose, GenerationOptions};
pub use processor::{named, Context, LogitsProcessor};
pub use step::{Logits, Step};
pub use token::{FinishReason, Token};
pub use tokenizer::Tokenizer;
pub use tokens::Tokens;
pub use weights::{Weight, Weights};
