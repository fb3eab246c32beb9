//! Day 20: what the server computes for clients that have gone.

use crate::shared::{counted, model, request, scheduler, tokenizer};
use crate::tally::Tally;
use anyhow::{anyhow, Result};
use candecode::day20_serve::{Connection, Event, Job, ServingLoop};
use candecode::kit::{Model, SamplingParams};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Tokens that each of the clients asks for.
const ASKED: usize = 100;
/// Number of clients.
const CLIENTS: usize = 4;

/// A client that hangs up after some tokens. Counts what it is sent.
struct Client {
    sent: Arc<AtomicUsize>,
    patience: usize,
}

impl Connection for Client {
    fn send(&self, event: Event) {
        if matches!(event, Event::Token(_)) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_closed(&self) -> bool {
        self.sent.load(Ordering::Relaxed) >= self.patience
    }
}

/// Serves clients that hang up after `patience` tokens. Returns the positions computed.
fn computed(model: &dyn Model, patience: usize) -> Result<usize> {
    let tokenizer = tokenizer()?;
    let (_, [_, positions]) = counted(model, |model| {
        let scheduler = Box::new(scheduler(model, &tokenizer, usize::MAX));
        let make = Box::new(|job: &Job, index: usize| Ok(request(model, job.prompt(index), ASKED)));
        let mut serving = ServingLoop::new(scheduler, make, CLIENTS, CLIENTS);
        let (sender, jobs) = std::sync::mpsc::channel();
        for client in 0..CLIENTS as u32 {
            let connection = Box::new(Client { sent: Arc::default(), patience });
            let job = Job {
                prompts: vec![vec![300 + client, 400]],
                n: 1,
                params: SamplingParams::default(),
                logprobs: None,
                is_chat: false,
                connection,
            };
            sender.send(job).map_err(|_| anyhow!("the loop has ended"))?;
        }
        drop(sender);
        // The last sender is gone, but jobs that were accepted run to their end.
        for job in jobs.iter() {
            serving.accept(job);
            serving.feed();
        }
        serving.run(&jobs, |_| ());
        Ok(())
    })?;
    Ok(positions)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let name = "positions for 4 clients; before: they stay, now they go";
    tally.add(name, computed(&*model, usize::MAX)?, computed(&*model, 2)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sooner_a_client_goes_the_less_is_computed() {
        let model = model("story-230k").unwrap();
        let [two, ten, all] = [2, 10, usize::MAX].map(|n| computed(&*model, n).unwrap());
        assert!(two < ten && ten < all, "{two} {ten} {all}");
        assert!(all >= CLIENTS * (ASKED - 1));
    }
}
