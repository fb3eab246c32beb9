//! Turns jobs into requests for the scheduler, on the model's thread.

use crate::openai::NO_SEED;
use crate::prompt_report::PromptReport;
use crate::rail_cache::RailCache;
use crate::util::random;
use anyhow::Result;
use candecode::day20_serve::Job;
use candecode::kit::{ModelConfig, Prepared, Request};
use candecode_engine::requests;
use candecode_engine::{token_rules, Engine};
use std::sync::Arc;

/// Makes the requests of all jobs.
pub struct RequestMaker<'a> {
    config: &'a ModelConfig,
    engine: &'a Engine,
    /// Strings that end a chat answer, according to its template.
    stops: Vec<String>,
    end_of_turn: Option<u32>,
    /// The guard rails of recent patterns.
    rails: RailCache,
}

impl<'a> RequestMaker<'a> {
    /// Creates a maker for this model, whose chats also end at these strings and this id.
    pub fn new(
        config: &'a ModelConfig,
        engine: &'a Engine,
        stops: Vec<String>,
        end_of_turn: Option<u32>,
    ) -> Self {
        Self { config, engine, stops, end_of_turn, rails: RailCache::default() }
    }

    /// Builds the scheduler's request for one choice of a job.
    ///
    /// # Errors
    /// If the job's parameters are out of range, or a guard rail can't get the bytes of the
    /// tokenizer's tokens.
    pub fn request(&self, job: &Job, index: usize) -> Result<Request<'static>> {
        let (tokenizer, config) = (self.engine.tokenizer(), self.config);
        let prompt = job.prompt(index);
        let mut params = job.params.clone();
        if job.is_chat && !params.has_form() {
            // With a pattern, the whole answer has to match it, even where the template would stop.
            params.stop.extend(self.stops.iter().cloned());
        }
        requests::special_stops(&mut params, tokenizer, config.vocab_size);
        let room = (config.max_position_embeddings + 1).saturating_sub(prompt.len());
        params.max_new_tokens = params.max_new_tokens.min(room);
        // The job has brought its automata along.
        let processors =
            requests::processors_with(&params, tokenizer, config, |name, automaton| {
                self.rails.rail(name, automaton, tokenizer, config.vocab_size)
            })?;
        if params.seed == NO_SEED {
            params.seed = random(); // so that equal prompts in a list get different texts
        }
        // With a seed, all prompts of a list use it, so each gets the text it would get on its own.
        let ops = self.engine.ops();
        let sampler = requests::sampler(&params, index % job.n, ops);
        let mut request = requests::request(config, prompt, &params, &processors, sampler, ops);
        let reports = params.reports.get::<Vec<Arc<PromptReport>>>();
        if let Some(report) = reports.as_ref().and_then(|reports| reports.get(index)) {
            request.report = Prepared::new(report.clone());
        }
        if job.is_chat && !token_rules::ends_ignored(&params) {
            request.eos_token_ids.extend(self.end_of_turn);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candecode::day20_serve::{Connection, Event};
    use candecode::kit::SamplingParams;
    use candecode_engine::requests::Automata;
    use candecode_engine::{load, operations};
    use candecode_formats::{hub, ModelFiles};
    use candle_core::Device;
    use std::rc::Rc;

    struct Nobody;

    impl Connection for Nobody {
        fn send(&self, _: Event) {}

        fn is_closed(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_pattern_is_judged_once_for_all_its_rows_and_requests() {
        let files = ModelFiles::at(&hub::locate("story-230k", None).unwrap()).unwrap();
        let (device, format) = (Device::Cpu, load::own_format(&files, &Device::Cpu));
        let ops = operations::choose(None, &device);
        let model = load::load_files(&files, format, &device, &ops).unwrap();
        let engine = Engine::new(model, files.tokenizer().unwrap());
        let maker = RequestMaker::new(files.config(), &engine, Vec::new(), None);
        let mut params =
            SamplingParams { allow_regex: Some("a+".into()), ..SamplingParams::default() };
        let automata = Arc::new(Automata::compile(&params).unwrap());
        params.prepared = Prepared::new(automata.clone());
        let job = |params: SamplingParams| {
            let (n, connection) = (3, Box::new(Nobody));
            Job { prompts: vec![vec![5]], n, params, logprobs: None, is_chat: false, connection }
        };
        let warm = SamplingParams { temperature: 0.5, ..params.clone() };
        let (cold, warm) = (job(params), job(warm));
        let first = maker.request(&cold, 0).unwrap();
        let second = maker.request(&cold, 1).unwrap();
        assert_eq!(first.processors.len(), 1);
        assert!(Rc::ptr_eq(&first.processors[0], &second.processors[0]));
        let rail = Rc::downgrade(&first.processors[0]);
        drop((first, second));
        let third = maker.request(&warm, 0).unwrap();
        let same = third.processors.iter().any(|one| Rc::downgrade(one).ptr_eq(&rail));
        assert!(same, "the rail has the masks of the earlier rows");
        drop((cold, warm, third));
        assert_eq!(Arc::strong_count(&automata), 1, "the automata were the jobs'");
        // Rails of other patterns take its place.
        let mut n = 1;
        while rail.strong_count() > 0 {
            n += 1;
            let allow_regex = Some(format!("a{{2000}}b{{{n}}}"));
            let mut params = SamplingParams { allow_regex, ..SamplingParams::default() };
            params.prepared = Prepared::new(Arc::new(Automata::compile(&params).unwrap()));
            drop(maker.request(&job(params), 0).unwrap());
            assert!(n < 20, "rails must not add up");
        }
    }
}
