//! Day 20, some steps of the serving loop: whose rows compute, who waits, and who has left.

use super::Answer;
use crate::model;
use candecode::day20_serve::{Connection, Event, Job, ServingLoop};
use candecode::kit::{
    FinishReason, Model, Request, SamplingParams, SchedulerInterface, SchedulerLoad, Token,
};
use serde::Deserialize;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

/// The page's question.
#[derive(Deserialize)]
pub struct Question {
    clients: Vec<ClientPlan>,
    /// Rows that can run at once.
    slots: usize,
    /// Steps to make at most.
    steps: usize,
}

/// What a client asks for, and when. Steps are counted from 0.
#[derive(Deserialize)]
struct ClientPlan {
    choices: usize,
    tokens: usize,
    arrives: usize,
    /// The step before which it hangs up.
    leaves: Option<usize>,
}

/// A client's connection, with the number of tokens that reached it.
#[derive(Default, Clone)]
struct Client {
    closed: Arc<AtomicBool>,
    received: Arc<AtomicUsize>,
}

impl Connection for Client {
    fn send(&self, event: Event) {
        if matches!(event, Event::Token(_)) && !self.is_closed() {
            self.received.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// The rows of each step: a row's id, and the number of its client.
type Log = Rc<RefCell<Vec<Vec<(usize, u32)>>>>;

/// A scheduler without a model: each step generates one token per row.
struct Rows<'a> {
    /// The requests, with the number of their tokens so far.
    requests: Vec<(Request<'a>, usize)>,
    log: Log,
}

impl<'a> SchedulerInterface<'a> for Rows<'a> {
    fn submit(&mut self, request: Request<'a>) -> candle_core::Result<()> {
        self.requests.push((request, 0));
        Ok(())
    }

    fn step(&mut self) -> candle_core::Result<Vec<Token>> {
        let computed = self.requests.iter().map(|(request, _)| (request.id, request.prompt[0]));
        self.log.borrow_mut().push(computed.collect());
        let mut tokens = Vec::new();
        for (request, generated) in &mut self.requests {
            *generated += 1;
            let ends = *generated >= request.max_new_tokens;
            let finish = ends.then_some(FinishReason::Length);
            tokens.push(Token { row: request.id, finish, ..Token::default() });
        }
        self.requests.retain(|(request, generated)| *generated < request.max_new_tokens);
        Ok(tokens)
    }

    fn cancel(&mut self, id: usize) {
        self.requests.retain(|(request, _)| request.id != id);
    }

    fn load(&self) -> SchedulerLoad {
        SchedulerLoad { waiting: 0, running: self.requests.len() }
    }
}

/// Returns the rows of each step, the length of the queue after it, and what each client received.
pub fn answer(q: Question) -> Answer {
    if !(1..=8).contains(&q.slots) || q.steps > 64 || q.clients.iter().any(|c| c.choices > 8) {
        return Err("1 to 8 slots, at most 64 steps, and at most 8 choices per client".into());
    }
    let config = model::transformer()?.config();
    let wanted: Vec<usize> = q.clients.iter().map(|client| client.tokens).collect();
    let log = Log::default();
    let scheduler = Rows { requests: Vec::new(), log: Rc::clone(&log) };
    let make_request = move |job: &Job, index: usize| {
        let prompt = job.prompt(index);
        Ok(Request::new(config, prompt, wanted[prompt[0] as usize], |_: &[f32]| Ok(0)))
    };
    let mut serving = ServingLoop::new(Box::new(scheduler), Box::new(make_request), q.slots, 8);
    let connections: Vec<Client> = q.clients.iter().map(|_| Client::default()).collect();
    let mut queues = Vec::new();
    for step in 0..q.steps {
        for (number, (plan, connection)) in q.clients.iter().zip(&connections).enumerate() {
            if plan.leaves == Some(step) {
                connection.closed.store(true, Ordering::Relaxed);
            }
            if plan.arrives == step {
                serving.accept(Job {
                    prompts: vec![vec![number as u32]],
                    n: plan.choices,
                    params: SamplingParams::default(),
                    logprobs: None,
                    is_chat: false,
                    connection: Box::new(connection.clone()),
                });
            }
        }
        serving.step();
        queues.push(serving.queue.len());
        if serving.is_idle() && q.clients.iter().all(|plan| plan.arrives <= step) {
            break;
        }
    }
    let received: Vec<usize> =
        connections.iter().map(|client| client.received.load(Ordering::Relaxed)).collect();
    let steps = log.borrow().clone();
    Ok(json!({ "steps": steps, "queues": queues, "received": received }))
}
