//! Compiles the JSON schemas and grammars of requests on a helper thread.

use crate::helper_threads::HelperThreads;
use crate::openai::ApiError;
use candecode::kit::error::describe;
use candecode::kit::TextFormat;
use candecode_engine::Engine;
use candecode_structured::{Compiler, Constraint};
use std::sync::{Arc, OnceLock};

/// The compiler for the model's vocabulary. It is created for the first request that needs it.
#[derive(Default)]
pub struct Formats(OnceLock<Result<Compiler, String>>);

impl Formats {
    /// Compiles a constraint for a model with this engine and `vocab_size`.
    ///
    /// # Errors
    /// 400, naming `param`, if it is rejected; otherwise as
    /// [`Lane::run`](crate::helper_threads::Lane::run).
    pub async fn compile(
        self: &Arc<Self>,
        constraint: Constraint,
        param: &'static str,
        (engine, vocab_size): (Arc<Engine>, usize),
        helpers: &HelperThreads,
    ) -> Result<Arc<dyn TextFormat>, ApiError> {
        let this = self.clone();
        let work = move || {
            let new = || Compiler::new(engine.tokenizer(), vocab_size).map_err(|e| describe(&e));
            let compiler = this.0.get_or_init(new).as_ref();
            let compiler = compiler.map_err(|why| ApiError::invalid(param, why))?;
            compiler.compile(&constraint).map_err(|e| ApiError::invalid(param, describe(&e)))
        };
        helpers.formats.run(work).await
    }
}
