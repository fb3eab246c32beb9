#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 20: serve it. The loop between many clients and one scheduler: it queues requests or refuses
//! them, and sends each token to the right client. HTTP and JSON are given, outside this file.

use candecode::kit::error::plain;
use candecode::kit::{FinishReason, Request, SamplingParams, SchedulerInterface, Token};
use candle_core::Result;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError};

/// One token of one choice, on its way to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceToken {
    /// The number of the choice within its job. Choice `i` continues prompt `i / n`.
    pub index: usize,
    /// Tokens of this choice so far, including this one. OpenAI's `usage` counts every
    /// token, half a character and the EOS too.
    pub tokens: usize,
    /// The token. Its text is final: no half characters, and no start of a stop string.
    pub token: Token,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobError {
    /// The queue is full. The client should try again later.
    Busy,
    /// The server is shutting down.
    Closing,
    /// The job can't be started, for this reason.
    Invalid(String),
    /// The model failed while the job ran, or the job's own constraints left no token.
    Failed(String),
}

/// An event for a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// One token of one choice.
    Token(ChoiceToken),
    /// The job has failed. No more events follow.
    Failed(JobError),
}

/// The way back to a client. Neither method blocks.
pub trait Connection: Send {
    /// Queues an event for the client. Does nothing if the client has disconnected.
    fn send(&self, event: Event);

    /// Returns whether the client has disconnected.
    fn is_closed(&self) -> bool;
}

/// A parsed request. Plain data, so that it can cross threads.
pub struct Job {
    /// The token ids of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// Choices per prompt.
    pub n: usize,
    /// Sampling parameters for all choices.
    pub params: SamplingParams,
    /// Number of top alternatives to report with each token. None: no logprobs.
    pub logprobs: Option<usize>,
    /// Whether this is a chat. If so, the text also ends where the model's turn does.
    pub is_chat: bool,
    /// The client's connection.
    pub connection: Box<dyn Connection>,
}

impl Job {
    /// Returns the number of choices, each of which takes a row.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.n
    }

    /// Returns the prompt of choice `index`.
    pub fn prompt(&self, index: usize) -> &[u32] {
        &self.prompts[index / self.n]
    }
}

/// A job in the queue, with at least one choice that hasn't started.
pub struct WaitingJob {
    /// The job.
    pub job: Rc<Job>,
    /// The next choice to start. All earlier ones have started.
    pub next: usize,
}

/// A choice that the scheduler has taken. It is waiting for its prefill, or running.
pub struct ActiveRow {
    /// The job this choice belongs to.
    pub job: Rc<Job>,
    /// The number of the choice within its job.
    pub index: usize,
    /// Tokens sent to the client so far.
    pub tokens: usize,
}

/// Builds the [`Request`] of choice `index` of a job: its prompt, its processors, and a
/// sampler that draws from that choice's own stream of the job's seed.
pub type MakeRequest<'a> = Box<dyn Fn(&Job, usize) -> Result<Request<'a>> + 'a>;

/// Returns the API's name for a finish reason. OpenAI has only `stop` and `length`. A
/// failed row gets vLLM's `error`, which no client sees, because the whole job fails.
pub fn finish_reason(finish: FinishReason) -> &'static str {
    // task 20.1: Map the four finish reasons to OpenAI's names
    todo!("day 20, task 1: Map the four finish reasons to OpenAI's names")
}

/// The loop between the clients and the scheduler (vLLM's `EngineCore`). It lives on
/// one thread, with the model.
pub struct ServingLoop<'a> {
    /// The scheduler: day 15's, day 23's, or a script in the checks.
    pub scheduler: Box<dyn SchedulerInterface<'a> + 'a>,
    /// Waiting jobs, in the order of their turns. Some of their choices may have
    /// started.
    pub queue: VecDeque<WaitingJob>,
    /// The choices that the scheduler has, by request id. A canceled row isn't here
    /// anymore.
    pub rows: BTreeMap<usize, ActiveRow>,
    make_request: MakeRequest<'a>,
    /// Maximum number of rows in the scheduler.
    max_batch: usize,
    /// Maximum number of jobs in the queue.
    max_queue: usize,
    /// The next unused request id.
    next_id: usize,
}

impl<'a> ServingLoop<'a> {
    /// Creates an idle loop. The scheduler gets at most `max_batch` rows at a time, and
    /// at most `max_queue` jobs wait in the queue.
    pub fn new(
        scheduler: Box<dyn SchedulerInterface<'a> + 'a>,
        make_request: MakeRequest<'a>,
        max_batch: usize,
        max_queue: usize,
    ) -> Self {
        Self {
            scheduler,
            queue: VecDeque::new(),
            rows: BTreeMap::new(),
            make_request,
            max_batch,
            max_queue,
            next_id: 0,
        }
    }

    /// Returns whether there is nothing to do: no job waits, and the scheduler has no
    /// rows.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.scheduler.load().rows() == 0
    }

    /// Returns whether the scheduler can take another row: it has fewer than
    /// `max_batch`, waiting and running ones together.
    pub fn has_free_slot(&self) -> bool {
        self.scheduler.load().rows() < self.max_batch
    }

    /// Submits choice `index` of a job to the scheduler and adds it to `rows`.
    /// `make_request` builds the request. It gets an id that no row has ever had, and
    /// the job's `logprobs` as its `top_logprobs`.
    ///
    /// # Errors
    /// If the request can't be built, or the scheduler refuses it. On error nothing
    /// changes.
    pub fn start(&mut self, job: &Rc<Job>, index: usize) -> Result<()> {
        // task 20.2: Build the choice's request, and submit it under a new id
        todo!("day 20, task 2: Build the choice's request, and submit it under a new id")
    }

    /// Sends each token to its row's client, as a [`ChoiceToken`]. Drops tokens whose
    /// row isn't in `rows`: they belong to canceled choices. A token with an `error`
    /// isn't sent; its row has failed, so the whole job fails with
    /// [`JobError::Failed`]. A row is removed from `rows` with its last token.
    pub fn deliver(&mut self, tokens: Vec<Token>) {
        // task 20.3: Count each token, and send it to the client of its row
        todo!("day 20, task 3: Count each token, and send it to the client of its row")
    }

    /// Adds a job to the queue, or sends it [`JobError::Busy`] if `max_queue` jobs are
    /// already waiting. If the queue is empty and a slot is free, a job is never
    /// refused, not even with a `max_queue` of 0.
    pub fn accept(&mut self, job: Job) {
        // task 20.4: Queue the job, or refuse it
        todo!("day 20, task 4: Queue the job, or refuse it")
    }

    /// Removes and returns the next job in the queue: the first that doesn't have its
    /// share of the slots yet. In a large batch no job gets all of them, so that the
    /// next client doesn't have to wait until one of its rows ends. Also drops jobs
    /// from the queue whose clients have disconnected.
    fn take_turn(&mut self) -> Option<WaitingJob> {
        self.queue.retain(|waiting| !waiting.job.connection.is_closed());
        let share = self.max_batch - self.max_batch / 8;
        let has_share = |job: &Rc<Job>| {
            let rows = self.rows.values().filter(|row| Rc::ptr_eq(&row.job, job));
            rows.count() >= share
        };
        let turn = self.queue.iter().position(|waiting| !has_share(&waiting.job))?;
        self.queue.remove(turn)
    }

    /// Starts choices while the scheduler has a slot. The jobs in the queue take turns
    /// (`take_turn`): each starts one choice and goes to the end of the queue, or
    /// leaves it if that was its last. So a job with 128 choices doesn't hold up a job
    /// with one.
    ///
    /// If a choice can't be started, its job fails with [`JobError::Invalid`], and the
    /// slot goes to the next job.
    pub fn feed(&mut self) {
        // task 20.5: Fill the slots, one choice per job in turn
        todo!("day 20, task 5: Fill the slots, one choice per job in turn")
    }

    /// Ends row `id` early. Its client receives no more tokens from it, whatever the
    /// scheduler still returns.
    pub fn cancel(&mut self, id: usize) {
        // task 20.6: End a row before it has ended by itself
        todo!("day 20, task 6: End a row before it has ended by itself")
    }

    /// Cancels a whole job: its choices in the queue, and all its rows.
    pub fn cancel_job(&mut self, job: &Rc<Job>) {
        // task 20.7: Cancel the job everywhere
        todo!("day 20, task 7: Cancel the job everywhere")
    }

    /// Sends an error to the job's client, and cancels the whole job.
    pub fn fail(&mut self, job: &Rc<Job>, error: JobError) {
        job.connection.send(Event::Failed(error));
        self.cancel_job(job);
    }

    /// Cancels every job whose client has disconnected, waiting or running.
    pub fn drop_closed(&mut self) {
        // task 20.8: Cancel jobs after a disconnect
        todo!("day 20, task 8: Cancel jobs after a disconnect")
    }

    /// Fails every job that has rows, after a failed step has emptied the scheduler.
    /// Jobs that haven't started stay in the queue.
    fn fail_all(&mut self, error: &candle_core::Error) {
        let message = plain(error);
        while let Some((_, row)) = self.rows.pop_first() {
            self.fail(&row.job, JobError::Failed(message.clone()));
        }
    }

    /// Makes one step: everything that must happen before the scheduler's step, that
    /// step, and everything that follows from its result. If the scheduler fails, so
    /// does every job that has rows (`fail_all`), and the loop carries on.
    pub fn step(&mut self) {
        // task 20.9: Make one step, and survive a failure of the scheduler's
        todo!("day 20, task 9: Make one step, and survive a failure of the scheduler's")
    }

    /// Runs until every sender of `jobs` has been dropped and the last row has ended.
    ///
    /// Between two steps it accepts all jobs that have arrived, and calls
    /// [`ServingLoop::feed`] after each of them, so that a job counts against the queue
    /// only if no slot is free. While there is nothing to do
    /// ([`ServingLoop::is_idle`]), it blocks until the next job arrives.
    ///
    /// Once the last sender has been dropped, the server is shutting down: jobs that
    /// haven't started are refused (`refuse_waiting`), and all others are finished.
    /// Calls `after_step` after each step.
    pub fn run(&mut self, jobs: &Receiver<Job>, mut after_step: impl FnMut(&Self)) {
        // task 20.10: Accept jobs, make steps, and shut down gracefully
        todo!("day 20, task 10: Accept jobs, make steps, and shut down gracefully")
    }

    /// Removes jobs that haven't started from the queue, and sends them
    /// [`JobError::Closing`].
    pub fn refuse_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.queue) {
            if waiting.next == 0 {
                waiting.job.connection.send(Event::Failed(JobError::Closing));
            } else {
                self.queue.push_back(waiting);
            }
        }
    }
}

/// Returns an upper bound for the number of steps until the next choice to arrive can
/// start: 0 if a slot is free. (Times the length of a step, it would make an honest
/// `Retry-After`.)
///
/// `running` has the tokens that each running row can still generate, and `queued`
/// those of each choice ahead of the newcomer in the queue, in the order in which they
/// start. In every step, each running row generates one token. A row that has generated
/// all of its tokens frees its slot for the next choice, which starts with the next
/// step. `slots` is the number of rows that can run at once. It's at least 1, and
/// never less than the number of rows that are running.
///
/// The work must depend on the number of rows and choices, and not on how many tokens
/// they have.
pub fn steps_until_slot(running: &[usize], queued: &[usize], slots: usize) -> usize {
    // task 20.11 (challenge): Predict when a slot will be free
    todo!("day 20, task 11: Predict when a slot will be free")
}
