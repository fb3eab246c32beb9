//! Day 20: serve it. The loop between many clients and one scheduler. It makes clients wait or
//! refuses them, and sends each token to the right one. HTTP and JSON are given, outside this file.

use candecode::kit::error::plain;
use candecode::kit::{FinishReason, Request, SamplingParams, SchedulerInterface, Token};
use candle_core::Result;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError};

/// One token of one choice, on its way to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The choice: choice `i` continues prompt `i / n`.
    pub index: usize,
    /// The number of tokens of this choice so far, this one included. OpenAI's `usage` counts every
    /// token: half a character, and the EOS.
    pub tokens: usize,
    /// The token. Its text is certain: no half characters, and no start of a stop string.
    pub token: Token,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobError {
    /// The queue is full. The client should come back later.
    Busy,
    /// The server is shutting down.
    Closing,
    /// The job can't be started as it is, for this reason.
    Invalid(String),
    /// The model, or a rule of the job's own, failed while it ran.
    Failed(String),
}

/// An event for a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// One token of one choice.
    Token(Piece),
    /// The job has failed, and no more events follow.
    Failed(JobError),
}

/// The way back to a client. Neither method ever waits.
pub trait Connection: Send {
    /// Leaves an event for the client to take when it can. If the client has gone, nothing happens.
    /// A job has no more events than tokens, so the backlog of a slow reader is bounded.
    fn send(&self, event: Event);

    /// True if the client has gone.
    fn is_closed(&self) -> bool;
}

/// A request on its way to the loop: plain data, which may go from thread to thread.
pub struct Job {
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// The number of choices per prompt.
    pub n: usize,
    /// How each of them is continued.
    pub params: SamplingParams,
    /// The number of likeliest tokens to send with each token; None sends no logprobs.
    pub logprobs: Option<usize>,
    /// Whether it is a chat: its text also ends where the model's turn does.
    pub is_chat: bool,
    /// The client.
    pub connection: Box<dyn Connection>,
}

impl Job {
    /// The number of rows that it needs.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.n
    }

    /// The prompt of choice `index`.
    pub fn prompt(&self, index: usize) -> &[u32] {
        &self.prompts[index / self.n]
    }
}

/// A job in the queue: some of its choices haven't started.
pub struct WaitingJob {
    /// The job.
    pub job: Rc<Job>,
    /// Its next choice to start; earlier ones have started.
    pub next: usize,
}

/// A choice that the scheduler has: it waits for its prefill, or runs.
pub struct ActiveRow {
    /// The job that it belongs to.
    pub job: Rc<Job>,
    /// Its number among the job's choices.
    pub index: usize,
    /// The number of tokens sent to the client so far.
    pub tokens: usize,
}

/// Makes the [`Request`] of choice `index` of a job: its prompt, its processors, and a sampler that
/// draws from stream `index` of its seed.
pub type MakeRequest<'a> = Box<dyn Fn(&Job, usize) -> Result<Request<'a>> + 'a>;

/// Returns OpenAI's word for why a text ended: `stop` (an EOS id, too) or `length`. For a row that
/// failed, vLLM's word `error`; no client sees it, because the row's job fails.
pub fn finish_reason(finish: FinishReason) -> &'static str {
    // task 20.1: four reasons, three words
    // <solution>
    match finish {
        FinishReason::Eos | FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Failed => "error",
    }
    // </solution>
}

/// The loop between the clients and the scheduler (vLLM's `EngineCore`). It lives on one thread,
/// with the model.
pub struct ServingLoop<'a> {
    /// Day 15's scheduler, or another one.
    pub scheduler: Box<dyn SchedulerInterface<'a> + 'a>,
    /// Jobs in the order of their turns. Some may have started in part.
    pub queue: VecDeque<WaitingJob>,
    /// Every choice that the scheduler has, by the id of its request.
    pub rows: BTreeMap<usize, ActiveRow>,
    make_request: MakeRequest<'a>,
    /// The maximum number of rows in the scheduler.
    max_batch: usize,
    /// The maximum number of jobs in the queue.
    max_queue: usize,
    /// The id of the next request.
    next_id: usize,
}

impl<'a> ServingLoop<'a> {
    /// Creates an idle loop. The scheduler gets at most `max_batch` rows at a time; at most
    /// `max_queue` more jobs may wait.
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

    /// True if there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.scheduler.load().rows() == 0
    }

    /// True while the scheduler has fewer than `max_batch` rows, waiting and running ones together.
    pub fn has_place(&self) -> bool {
        self.scheduler.load().rows() < self.max_batch
    }

    /// Hands choice `index` of a job to the scheduler. `make_request` makes its request, which gets
    /// an id that no row has ever had, and the job's `logprobs` as its `top_logprobs`. The choice
    /// is then in `rows`, under that id.
    ///
    /// # Errors
    /// If the request can't be made, or the scheduler refuses it. On error nothing changes.
    pub fn start(&mut self, job: &Rc<Job>, index: usize) -> Result<()> {
        // task 20.2: make the request of this choice, and hand it over
        // <solution>
        let mut request = (self.make_request)(job, index)?;
        request.id = self.next_id;
        request.top_logprobs = job.logprobs;
        self.scheduler.submit(request)?;
        let row = ActiveRow { job: Rc::clone(job), index, tokens: 0 };
        self.rows.insert(self.next_id, row);
        self.next_id += 1;
        Ok(())
        // </solution>
    }

    /// Sends each token to the client of its row, as a [`Piece`]. A token without a row in `rows`
    /// belongs to a cancelled choice, and is dropped. One with an `error` isn't sent: its row has
    /// failed, and so does the whole job ([`JobError::Failed`]). A row leaves `rows` with its last
    /// token.
    pub fn deliver(&mut self, tokens: Vec<Token>) {
        // task 20.3: find each token's row, count it, send it; end what has ended or failed
        // <solution>
        for token in tokens {
            let id = token.row;
            let Some(row) = self.rows.get_mut(&id) else { continue };
            let job = Rc::clone(&row.job);
            if let Some(error) = &token.error {
                self.fail(&job, JobError::Failed(error.clone()));
                continue;
            }
            row.tokens += 1;
            let has_ended = token.finish.is_some();
            let piece = Piece { index: row.index, tokens: row.tokens, token };
            job.connection.send(Event::Token(piece));
            if has_ended {
                self.rows.remove(&id);
            }
        }
        // </solution>
    }

    /// Adds a job to the queue. If `max_queue` jobs already wait there, it is sent
    /// [`JobError::Busy`] instead. A job that needn't wait is always accepted: the queue is empty,
    /// and the scheduler [has a place](ServingLoop::has_place).
    pub fn accept(&mut self, job: Job) {
        // task 20.4: queue the job, or refuse it
        // <solution>
        let starts_at_once = self.queue.is_empty() && self.has_place();
        if self.queue.len() >= self.max_queue && !starts_at_once {
            job.connection.send(Event::Failed(JobError::Busy));
            return;
        }
        self.queue.push_back(WaitingJob { job: Rc::new(job), next: 0 });
        // </solution>
    }

    /// Takes the next job out of the queue: the first one, unless it already has its
    /// share of the places. In a large batch no job gets all of them, so the next client needn't
    /// wait for its rows to end. Jobs whose clients have gone leave the queue here.
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

    /// Starts choices while the scheduler has a place. The jobs in the queue take turns
    /// (`take_turn`): each starts one choice, then goes to the end of the queue, or leaves it if
    /// that was its last. So a job of 128 choices doesn't hold up a job of one.
    ///
    /// A job whose choice can't be started fails with [`JobError::Invalid`], and the next one gets
    /// the place.
    pub fn feed(&mut self) {
        // task 20.5: fill the places, one choice of one job at a time
        // <solution>
        while self.has_place() {
            let Some(mut turn) = self.take_turn() else { break };
            let (job, index) = (Rc::clone(&turn.job), turn.next);
            turn.next += 1;
            if turn.next < job.choices() {
                self.queue.push_back(turn);
            }
            if let Err(error) = self.start(&job, index) {
                self.fail(&job, JobError::Invalid(plain(&error)));
            }
        }
        // </solution>
    }

    /// Takes row `id` out of `rows`, and cancels it in the scheduler. The client receives
    /// nothing more from it.
    pub fn cancel(&mut self, id: usize) {
        // task 20.6: forget the row here, and end it there
        // <solution>
        self.rows.remove(&id);
        self.scheduler.cancel(id);
        // </solution>
    }

    /// Takes a whole job out: choices that wait in the queue, and every row.
    pub fn cancel_job(&mut self, job: &Rc<Job>) {
        // task 20.7: a job can be in two places at once
        // <solution>
        self.queue.retain(|waiting| !Rc::ptr_eq(&waiting.job, job));
        let of_job = |row: &ActiveRow| Rc::ptr_eq(&row.job, job);
        let ids: Vec<usize> =
            self.rows.iter().filter(|(_, row)| of_job(row)).map(|(id, _)| *id).collect();
        for id in ids {
            self.cancel(id);
        }
        // </solution>
    }

    /// Ends a job with an error: sends it to the client, and takes the whole job out.
    pub fn fail(&mut self, job: &Rc<Job>, error: JobError) {
        job.connection.send(Event::Failed(error));
        self.cancel_job(job);
    }

    /// Takes out every job whose client has gone, waiting or running.
    pub fn drop_closed(&mut self) {
        // task 20.8: ask the connection of every job
        // <solution>
        let mut closed = Vec::new();
        let queued = self.queue.iter().map(|waiting| &waiting.job);
        for job in queued.chain(self.rows.values().map(|row| &row.job)) {
            if job.connection.is_closed() {
                closed.push(Rc::clone(job));
            }
        }
        for job in closed {
            self.cancel_job(&job);
        }
        // </solution>
    }

    /// Fails every job that has rows, after a step that failed and left the scheduler empty. Jobs
    /// that haven't started stay in the queue.
    fn fail_all(&mut self, error: &candle_core::Error) {
        let message = plain(error);
        while let Some((_, row)) = self.rows.pop_first() {
            self.fail(&row.job, JobError::Failed(message.clone()));
        }
    }

    /// Makes one turn: drops jobs whose clients have gone, starts choices, lets the scheduler make
    /// a step, and delivers its tokens. If the step fails, so does every job with a row
    /// (`fail_all`), and the loop goes on.
    pub fn turn(&mut self) {
        // task 20.9: four calls, and an error that must not end the loop
        // <solution>
        self.drop_closed();
        self.feed();
        match self.scheduler.step() {
            Ok(tokens) => self.deliver(tokens),
            Err(error) => self.fail_all(&error),
        }
        // </solution>
    }

    /// Runs until every sender of `jobs` is gone and the last row has ended.
    ///
    /// Between two turns it accepts all jobs that have arrived. After each of them comes a
    /// [`ServingLoop::feed`], so that a job counts against the queue only if there is no place for
    /// it. With nothing to do, it waits for the next job.
    ///
    /// Once the last sender is gone, the server is shutting down: jobs that haven't started are
    /// refused (`refuse_waiting`), the others are finished. `after_turn` is called after each turn.
    pub fn run(&mut self, jobs: &Receiver<Job>, mut after_turn: impl FnMut(&Self)) {
        // task 20.10: accept what has arrived, turn, and end gracefully
        // <solution>
        let mut open = true;
        loop {
            if open && self.is_idle() {
                match jobs.recv() {
                    Ok(job) => self.accept(job),
                    Err(_) => open = false,
                }
            }
            while open {
                self.feed();
                match jobs.try_recv() {
                    Ok(job) => self.accept(job),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => open = false,
                }
            }
            if !open {
                self.refuse_waiting();
                if self.is_idle() {
                    return;
                }
            }
            self.turn();
            after_turn(self);
        }
        // </solution>
    }

    /// Takes jobs that haven't started out of the queue, and sends them [`JobError::Closing`].
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
