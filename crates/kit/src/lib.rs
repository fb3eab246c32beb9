//! Shared types and supporting code that the daily exercises build on.

#![warn(missing_docs)]

pub mod beams;
pub mod cache;
pub mod config;
pub mod device;
pub mod dfa;
pub mod draft;
pub mod error;
pub mod free_list;
pub mod model;
pub mod note;
pub mod ops;
pub mod pages;
pub mod panics;
pub mod processor;
pub mod python_json;
pub mod quantized;
pub mod request;
pub mod rng;
pub mod scheduler_interface;
pub mod schema;
pub mod step;
pub mod token;
pub mod token_bytes;
pub mod token_iter;
pub mod tokenizer;
pub mod tokenizer_json;
pub mod units;
pub mod weights;

pub use beams::{BeamParams, EarlyStopping, Hypothesis};
pub use cache::{Batch, Cache, NoCache, View};
pub use config::{Family, ModelConfig};
pub use free_list::{FreeBlocks, FreeList};
pub use model::Model;
pub use ops::{Ops, SharedOps};
pub use pages::{write_slots, PagedSequence, Pages};
pub use processor::{named, LogitsProcessor, ProcessorInput, TextFormat};
pub use quantized::{QuantType, QuantizedMatrix};
pub use request::{check_prompt, PastContext, Prepared, Request, Sampler, SamplingParams};
pub use scheduler_interface::{CacheLoad, SchedulerInterface, SchedulerLoad};
pub use schema::Schema;
pub use step::{Chunk, Logits, Step};
pub use token::{top_logprobs, FinishReason, Token};
pub use token_iter::TokenIter;
pub use tokenizer::Tokenizer;
pub use weights::{Weight, WeightFormat, Weights};
