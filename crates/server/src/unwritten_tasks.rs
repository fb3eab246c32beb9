//! Keeps a task that isn't written from ending the server: only the requests that reach it fail.

use candecode::kit::panics::or_unwritten;
use candecode::kit::{CacheLoad, LogitsProcessor, ProcessorInput, Request};
use candecode::kit::{SchedulerInterface, SchedulerLoad, Token};
use candle_core::{bail, Result};
use std::rc::Rc;

/// Returns a request whose processors and sampler return an error where they reach a task that
/// isn't written, so that only its own row fails. Without that, the panic would end the step of all
/// rows.
pub fn contained(mut request: Request) -> Request {
    let processors = std::mem::take(&mut request.processors);
    let wrapped = processors.into_iter().map(|processor| Rc::new(Contained(processor)) as Rc<_>);
    request.processors = wrapped.collect();
    let mut sampler = request.sampler;
    request.sampler = Box::new(move |logits| or_unwritten(|| sampler(logits)));
    request
}

/// A processor that returns an error where it reaches a task that isn't written.
struct Contained<'a>(Rc<dyn LogitsProcessor + 'a>);

impl LogitsProcessor for Contained<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        or_unwritten(|| self.0.process(input, logits))
    }

    fn end_token(&self) -> Option<u32> {
        self.0.end_token()
    }
}

/// A scheduler of one of the days.
pub type Scheduler<'a> = Box<dyn SchedulerInterface<'a> + 'a>;

/// A scheduler that survives a task that isn't written.
///
/// A request that reaches one when it is submitted is refused, and the others don't notice. A step
/// that reaches one fails, and with it every request in the scheduler. A new scheduler then takes
/// its place, because this one was in the middle of a change. (A processor or a sampler that
/// reaches one fails only its own row: see [`contained`].)
pub struct RestartableScheduler<'a> {
    create: Box<dyn Fn() -> Result<Scheduler<'a>> + 'a>,
    /// The scheduler. None if it couldn't be replaced.
    scheduler: Option<Scheduler<'a>>,
}

impl<'a> RestartableScheduler<'a> {
    /// Creates a scheduler with this function, which later also creates those that replace it.
    ///
    /// # Errors
    /// If it can't be created.
    pub fn new(create: impl Fn() -> Result<Scheduler<'a>> + 'a) -> Result<Self> {
        Ok(Self { scheduler: Some(create()?), create: Box::new(create) })
    }

    fn scheduler(&mut self) -> Result<&mut Scheduler<'a>> {
        match &mut self.scheduler {
            Some(scheduler) => Ok(scheduler),
            None => bail!("the scheduler failed and could not be started again"),
        }
    }
}

impl<'a> SchedulerInterface<'a> for RestartableScheduler<'a> {
    fn submit(&mut self, request: Request<'a>) -> Result<()> {
        let scheduler = self.scheduler()?;
        or_unwritten(|| scheduler.submit(request))
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        let scheduler = self.scheduler()?;
        let mut has_ended = false;
        let stepped = or_unwritten(|| {
            let stepped = scheduler.step();
            has_ended = true;
            stepped
        });
        if !has_ended {
            self.scheduler = None; // its cache is freed before the next one is allocated
            self.scheduler = or_unwritten(&self.create).ok();
        }
        stepped
    }

    /// Ends a row early. If that isn't written yet, the row runs to its end, and day 20's loop
    /// drops its tokens.
    fn cancel(&mut self, id: usize) {
        if let Some(scheduler) = &mut self.scheduler {
            let _ = or_unwritten(|| {
                scheduler.cancel(id);
                Ok(())
            });
        }
    }

    fn load(&self) -> SchedulerLoad {
        self.scheduler.as_ref().map(|scheduler| scheduler.load()).unwrap_or_default()
    }

    fn cache_load(&self) -> CacheLoad {
        self.scheduler.as_ref().map(|scheduler| scheduler.cache_load()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::ApiError;
    use candecode::day20_serve::{Connection, Event, Job, ServingLoop};
    use candecode::day21_pages::PagedCache;
    use candecode::day23_token_budget::{Limits, TokenScheduler};
    use candecode::kit::{named, Cache, Model, ModelConfig, SamplingParams, Step};
    use candecode_engine::{operations, Engine};
    use candle_core::{Device, Tensor};
    use std::cell::Cell;
    use std::sync::{mpsc, Arc, Mutex};

    /// A client's events.
    #[derive(Clone, Default)]
    struct Client(Arc<Mutex<Vec<Event>>>);

    impl Connection for Client {
        fn send(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }

        fn is_closed(&self) -> bool {
            false
        }
    }

    impl Client {
        /// Returns the tokens received, and the error if there was one.
        fn answer(&self) -> (Vec<u32>, Option<ApiError>) {
            let (mut ids, mut error) = (Vec::new(), None);
            for event in self.0.lock().unwrap().iter().cloned() {
                match event {
                    Event::Token(token) => ids.push(token.token.id),
                    Event::Failed(failed) => error = Some(ApiError::from(failed)),
                }
            }
            (ids, error)
        }
    }

    fn engine() -> Engine {
        Engine::open("story-230k").unwrap()
    }

    /// Serves one job per client, with prompts of different lengths, and returns their answers.
    /// `change` changes the request of each client.
    fn answers(
        model: &dyn Model,
        engine: &Engine,
        clients: std::ops::Range<usize>,
        change: impl Fn(usize, Request<'static>) -> Request<'static>,
    ) -> Vec<(Vec<u32>, Option<ApiError>)> {
        let create = || {
            let cache = PagedCache::new(model.config().num_hidden_layers, 64, 16)?;
            let limits = Limits { max_num_batched_tokens: 64, max_num_seqs: 4 };
            let scheduler = TokenScheduler::new(model, engine.tokenizer(), cache, None, limits)?;
            Ok(Box::new(scheduler) as Scheduler)
        };
        let ops = engine.ops();
        let make_request = |job: &Job, index: usize| {
            let prompt = job.prompt(index);
            let request = Request::new(model.config(), prompt, 12, operations::greedy(ops));
            Ok(contained(change(prompt.len() - 1, request)))
        };
        let scheduler = RestartableScheduler::new(create).unwrap();
        let mut serving = ServingLoop::new(Box::new(scheduler), Box::new(make_request), 4, 8);
        let (sender, jobs) = mpsc::channel();
        let connections: Vec<Client> = clients.clone().map(|_| Client::default()).collect();
        for (client, connection) in clients.zip(&connections) {
            let (prompts, params) = (vec![vec![300; client + 1]], SamplingParams::default());
            let connection = Box::new(connection.clone());
            let job = Job { prompts, n: 1, params, logprobs: None, is_chat: false, connection };
            sender.send(job).unwrap();
        }
        // The loop ends once nobody can send jobs, and refuses those that wait. So it gets all of
        // them first.
        while let Ok(job) = jobs.try_recv() {
            serving.accept(job);
        }
        while !serving.is_idle() {
            serving.step();
        }
        connections.iter().map(Client::answer).collect()
    }

    /// Reaches a task that isn't written, once three tokens have been generated.
    fn unwritten(request: Request<'static>) -> Request<'static> {
        let processor = named("dry", |input: &ProcessorInput, _: &mut [f32]| {
            if input.tokens.len() - input.prompt_len == 3 {
                todo!("day 9, task 6: Penalize only tokens that would continue a repetition")
            }
            Ok(())
        });
        Request { processors: vec![processor], ..request }
    }

    #[test]
    fn one_of_eight_clients_reaches_an_unwritten_task_and_the_others_get_their_texts() {
        let engine = engine();
        let alone: Vec<_> =
            (0..8).flat_map(|n| answers(engine.model(), &engine, n..n + 1, |_, r| r)).collect();
        let together = answers(engine.model(), &engine, 0..8, |client, request| match client {
            5 => unwritten(request),
            _ => request,
        });
        for (client, (got, want)) in together.iter().zip(&alone).enumerate() {
            assert!(!want.0.is_empty() && want.1.is_none());
            if client != 5 {
                assert_eq!(got, want, "client {client}");
                continue;
            }
            let (ids, error) = got;
            assert_eq!(ids[..], want.0[..3], "the text so far is kept");
            let error = error.as_ref().unwrap();
            assert_eq!(error.status, 501);
            assert!(error.message.starts_with("task 9.6 "), "{error}");
        }
    }

    #[test]
    fn a_sampler_that_is_not_written_fails_its_own_row() {
        let engine = engine();
        let got = answers(engine.model(), &engine, 0..3, |client, request| match client {
            1 => Request { sampler: Box::new(|_| todo!("day 8, task 9: x")), ..request },
            _ => request,
        });
        let failed: Vec<bool> = got.iter().map(|(_, error)| error.is_some()).collect();
        assert_eq!(failed, [false, true, false]);
    }

    /// A model whose third pass reaches a task that isn't written.
    struct ThirdPass<'a>(&'a Engine, Cell<usize>);

    impl Model for ThirdPass<'_> {
        fn config(&self) -> &ModelConfig {
            self.0.model().config()
        }

        fn device(&self) -> &Device {
            self.0.model().device()
        }

        fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
            self.1.set(self.1.get() + 1);
            match self.1.get() {
                3 => todo!("day 22, task 4: x"),
                _ => self.0.model().forward(step, cache),
            }
        }
    }

    #[test]
    fn a_step_that_is_not_written_fails_the_rows_in_it_and_a_new_scheduler_serves_the_next() {
        let engine = engine();
        let model = ThirdPass(&engine, Cell::new(0));
        let got = answers(&model, &engine, 0..8, |_, request| request);
        // Four run at a time, so the other four start after the third pass.
        let statuses: Vec<_> =
            got.iter().map(|(_, error)| error.as_ref().map(|e| e.status)).collect();
        assert_eq!(statuses[..4], [Some(501); 4]);
        assert_eq!(statuses[4..], [None; 4]);
        for (client, (ids, _)) in got.iter().enumerate().skip(4) {
            let alone = answers(engine.model(), &engine, client..client + 1, |_, request| request);
            assert_eq!(*ids, alone[0].0);
        }
    }
}
