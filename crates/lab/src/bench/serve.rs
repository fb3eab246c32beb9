//! Puts loads of limited length on our server and on llama.cpp's `llama-server`, in turn.
//!
//! There are four kinds of load. *Closed*: a fixed number of clients each send their next request
//! as soon as they have an answer. This shows a server that is never idle. *Open*: requests arrive
//! as a Poisson process at a fixed rate, whether or not earlier ones have finished. A server that
//! is too slow falls behind, which shows in the time to the first token. *Shared*: a closed load in
//! which all prompts start with the same tokens, and both servers may cache them. *Long*: a long
//! prompt arrives every few seconds while short texts are generated. This shows the gaps between
//! tokens of the short texts.
//!
//! Except in the shared load, every request has its own prompt of random ids, so prompt caching
//! doesn't help. All requests want the same number of tokens, so both servers do the same work.

use crate::args::Args;
use crate::shared::{locate, machine};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode::kit::rng::RequestRng;
use candecode_formats::read_config;
use serde_json::{json, Value};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of clients in the closed loads.
const CLIENTS: [usize; 2] = [8, 32];
/// Requests per second in the open load.
const RATE: f64 = 5.0;
/// Tokens in a prompt, the largest id in it, and tokens to generate per request.
const PROMPT: usize = 32;
const IDS: f32 = 2000.0;
const NEW: usize = 24;
/// Number of rows that each server has room for.
const ROWS: usize = 32;
/// Number of clients with short prompts in the long load.
const SHORT: usize = 8;
/// Seconds between the arrivals of long prompts.
const EVERY: f64 = 5.0;

/// Sizes that depend on the model's context.
#[derive(Clone, Copy)]
struct Sizes {
    /// Tokens at the start of all prompts in the shared load: 1,000, or half the context if that's
    /// less.
    shared: usize,
    /// Tokens in a long prompt: 1,000, or fewer if the context is shorter.
    long: usize,
}

impl Sizes {
    /// Returns the sizes for a model.
    ///
    /// # Errors
    /// If the model's config can't be read.
    fn of(model: &str) -> Result<Self> {
        let context = read_config(&locate(model)?)?.max_position_embeddings;
        Ok(Self { shared: 1000.min(context / 2), long: 1000.min(context - NEW - 16) })
    }

    /// Returns the number of positions that a row may need.
    fn longest(self) -> usize {
        NEW + self.long.max(self.shared + PROMPT)
    }
}

/// A running server. Stopped on drop.
struct Server {
    name: String,
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The timing of one request.
struct Took {
    /// Seconds from the time it was due until its first token.
    first: f64,
    /// Seconds between its tokens.
    gaps: Vec<f64>,
}

/// The results of a load: tokens per second over all requests, and the median, the 90th and the
/// 99th percentile of the time to the first token, and of the gaps between two tokens, in
/// milliseconds. Only the throughput includes requests with long prompts.
struct Figures {
    requests: usize,
    throughput: f64,
    first: [f64; 3],
    gap: [f64; 3],
}

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Closed(usize),
    Open(f64),
    /// This many clients, whose prompts start with the same tokens.
    Shared(usize),
    /// Long prompts amid short texts.
    Long,
}

/// Puts the loads on the servers and prints the table.
pub fn measure(args: &Args) -> Result<()> {
    let sizes = Sizes::of(args.model())?;
    println!(
        "{}. {}, prompts of {PROMPT} tokens, {NEW} new tokens each. The shared prompt has {} \
         tokens more, a long one has {}, and one comes every {EVERY} seconds. Times are in ms: to \
         the first token, and between two tokens.\n\n\
         | load | server | requests | tokens/s | first: p50 | p90 | p99 | gap: p50 | p90 | p99 |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        machine(),
        Path::new(args.model()).file_name().unwrap_or_default().display(),
        sizes.shared,
        sizes.long,
    );
    let show = |server: &Server, load: Load, seed: u64| -> Result<()> {
        let figures = run(server, load, args.requests, seed, sizes)?;
        let times = figures.first.iter().chain(&figures.gap);
        let times: Vec<String> = times.map(|ms| format!("{ms:.0}")).collect();
        println!(
            "| {} | {} | {} | {:.0} | {} |",
            load.words(),
            server.name,
            figures.requests,
            figures.throughput,
            times.join(" | ")
        );
        Ok(())
    };
    // Warm up, so that a server has read its weights, started its threads, and touched its memory
    // before anything counts.
    let warm_up = |server: &Server| run(server, Load::Closed(ROWS), ROWS, 1, sizes).map(drop);
    if !args.max_num_batched_tokens.is_empty() {
        for budget in &args.max_num_batched_tokens {
            let server = ours(args, Some(*budget))?;
            warm_up(&server)?;
            show(&server, Load::Long, 2)?;
        }
        return Ok(());
    }
    let mut servers = vec![ours(args, None)?];
    if let (Some(program), Some(gguf)) = (&args.llama_server, &args.gguf) {
        servers.push(llama(program, gguf, sizes)?);
    }
    servers.iter().try_for_each(warm_up)?;
    let closed = CLIENTS.iter().map(|clients| Load::Closed(*clients));
    let loads = closed.chain([Load::Open(RATE), Load::Shared(ROWS), Load::Long]);
    for (load, seed) in loads.zip(2..) {
        servers.iter().try_for_each(|server| show(server, load, seed))?;
        servers.reverse(); // they take turns going first
    }
    Ok(())
}

impl Load {
    fn words(self) -> String {
        match self {
            Self::Closed(clients) => format!("{clients} clients"),
            Self::Open(rate) => format!("{rate} requests/s"),
            Self::Shared(clients) => format!("{clients} clients, a shared prompt"),
            Self::Long => format!("{SHORT} clients, long prompts"),
        }
    }
}

/// Starts our server on a free port, with a token budget unless it's the default.
fn ours(args: &Args, budget: Option<usize>) -> Result<Server> {
    let program = std::env::current_exe()?.with_file_name("candecode-serve");
    let mut command = Command::new(&program);
    command.args(["--model", args.model(), "--served-model-name", "model", "--port", "0"]);
    command.args(["--device", &args.device]);
    command.args(["--max-batch", &ROWS.to_string(), "--max-queue", "10000"]);
    let mut name = "candecode".to_string();
    if let Some(budget) = budget {
        command.args(["--max-num-batched-tokens", &budget.to_string()]);
        name = format!("{budget} tokens per step");
    }
    let child = command.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| program.display().to_string())?;
    let mut server = Server { name, child, address: String::new() };
    let mut said = String::new();
    BufReader::new(server.child.stdout.take().context("no output")?).read_line(&mut said)?;
    let address = said.trim().strip_prefix("listening on ");
    server.address = address.with_context(|| format!("our server printed {said:?}"))?.to_string();
    Ok(server)
}

/// Starts llama.cpp's server with the same number of slots and threads as ours.
fn llama(program: &Path, gguf: &Path, sizes: Sizes) -> Result<Server> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let (slots, context) = (ROWS.to_string(), (ROWS * (sizes.longest() + 16)).to_string());
    let threads = std::thread::available_parallelism()?.to_string();
    let mut command = Command::new(program);
    command.arg("--model").arg(gguf).args(["--port", &port, "-np", &slots]);
    command.args(["--ctx-size", &context, "--cont-batching"]);
    command.args(["--threads", &threads, "--threads-batch", &threads]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.with_context(|| program.display().to_string())?;
    let address = format!("http://127.0.0.1:{port}");
    let mut server = Server { name: "llama-server".into(), child, address };
    let began = Instant::now();
    while ureq::get(format!("{}/health", server.address)).call().is_err() {
        if let Some(status) = server.child.try_wait()? {
            bail!("{} exited ({status}); start it yourself to see why", program.display());
        }
        ensure!(began.elapsed() < Duration::from_secs(120), "llama-server isn't getting ready");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(server)
}

/// One client of a load.
struct Client {
    /// The time when its first request is due, in seconds from the start.
    due: f64,
    /// Its number of requests. The client with long prompts sends them until all others are done.
    requests: usize,
    /// The tokens at the start of its prompts.
    prefix: Vec<u32>,
    /// The number of tokens after the prefix, which differ in each request.
    own: usize,
    is_long: bool,
}

/// Returns the clients of a load. Together they send about `total` requests.
fn clients(load: Load, total: usize, random: &mut RequestRng, sizes: Sizes) -> Vec<Client> {
    let count = match load {
        Load::Closed(clients) | Load::Shared(clients) => clients,
        Load::Open(_) => total,
        Load::Long => SHORT,
    };
    let requests = total.div_ceil(count);
    let client = |due| Client { due, requests, prefix: Vec::new(), own: PROMPT, is_long: false };
    match load {
        Load::Closed(clients) => (0..clients).map(|_| client(0.0)).collect(),
        Load::Open(rate) => {
            // The times between arrivals are exponentially distributed.
            let mut gap = || -(1.0 - f64::from(random.uniform())).ln() / rate;
            let (mut clients, mut at) = (Vec::new(), gap());
            while clients.len() < total {
                clients.push(Client { requests: 1, ..client(at) });
                at += gap();
            }
            clients
        }
        Load::Shared(clients) => {
            let prefix = ids(random, sizes.shared);
            (0..clients).map(|_| Client { prefix: prefix.clone(), ..client(0.0) }).collect()
        }
        Load::Long => {
            let short = (0..SHORT).map(|_| client(0.0));
            let long = Client { own: sizes.long, is_long: true, ..client(EVERY) };
            short.chain([long]).collect()
        }
    }
}

/// Returns random tokens.
fn ids(random: &mut RequestRng, len: usize) -> Vec<u32> {
    (0..len).map(|_| 1 + (random.uniform() * IDS) as u32).collect()
}

/// Puts a load of about this many requests on a server.
fn run(server: &Server, load: Load, requests: usize, seed: u64, sizes: Sizes) -> Result<Figures> {
    let mut random = RequestRng::new(seed, 0);
    let config = ureq::Agent::config_builder().proxy(None).max_idle_connections(0);
    let agent = config.timeout_global(Some(Duration::from_secs(600))).build().new_agent();
    let clients = clients(load, requests, &mut random, sizes);
    // Number of clients with short prompts that still send.
    let left = Arc::new(AtomicUsize::new(clients.iter().filter(|client| !client.is_long).count()));
    let may_keep = matches!(load, Load::Shared(_));
    let began = Instant::now();
    let mut threads = Vec::new();
    for (number, client) in (1..).zip(clients) {
        let (agent, left) = (agent.clone(), left.clone());
        let url = format!("{}/v1/completions", server.address);
        let mut random = RequestRng::new(seed, number);
        threads.push(std::thread::spawn(move || -> Result<Vec<(bool, Took)>> {
            let mut due = Duration::from_secs_f64(client.due);
            let mut took = Vec::new();
            let is_more = |sent| match client.is_long {
                true => left.load(Ordering::Relaxed) > 0,
                false => sent < client.requests,
            };
            let pause = Duration::from_secs_f64(if client.is_long { EVERY } else { 0.0 });
            let mut send_all = || {
                while is_more(took.len()) {
                    let prompt = [&client.prefix[..], &ids(&mut random, client.own)].concat();
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                    let answer = ask(&agent, &url, &prompt, may_keep, began, due)?;
                    took.push((client.is_long, answer));
                    due = began.elapsed().max(due + pause);
                }
                Ok(())
            };
            let result = send_all();
            left.fetch_sub(usize::from(!client.is_long), Ordering::Relaxed); // even if it failed
            result.map(|()| took)
        }));
    }
    let mut took: Vec<(bool, Took)> = Vec::new();
    for thread in threads {
        let answers = thread.join().map_err(|_| anyhow!("a client panicked"))?;
        took.extend(answers.with_context(|| server.name.clone())?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let throughput = (took.len() * NEW) as f64 / seconds;
    took.retain(|(is_long, _)| !is_long);
    Ok(Figures {
        requests: took.len(),
        throughput,
        first: percentiles(took.iter().map(|(_, one)| 1e3 * one.first)),
        gap: percentiles(took.iter().flat_map(|(_, one)| &one.gaps).map(|gap| 1e3 * gap)),
    })
}

/// Sends a request and reads the stream to its end. Measures from the time the request was due.
/// `may_keep`: the server may reuse what it computed for earlier prompts.
fn ask(
    agent: &ureq::Agent,
    url: &str,
    prompt: &[u32],
    may_keep: bool,
    began: Instant,
    due: Duration,
) -> Result<Took> {
    // Greedy, with a fixed length.
    let body = json!({
        "model": "model", "prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": true,
        "ignore_eos": true, "stream_options": {"include_usage": true},
        "cache_prompt": may_keep, // for llama.cpp; our server always looks for cached prefixes
    });
    let request = agent.post(url).header("content-type", "application/json");
    let response = request.send(body.to_string())?;
    let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
    let (mut times, mut tokens) = (Vec::new(), 0);
    for line in BufReader::new(reader).lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            continue;
        };
        let event: Value = serde_json::from_str(data)?;
        ensure!(event["error"].is_null(), "{}", event["error"]);
        if event["choices"].as_array().is_some_and(|choices| !choices.is_empty()) {
            times.push(began.elapsed());
        }
        if let Some(count) = event["usage"]["completion_tokens"].as_u64() {
            tokens = count as usize;
        }
    }
    let first = *times.first().context("a stream without a token")?;
    ensure!(tokens == NEW, "got {tokens} tokens instead of {NEW}, so the work differs");
    let gaps = times.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
    Ok(Took { first: first.saturating_sub(due).as_secs_f64(), gaps })
}

/// Returns the median, the 90th and the 99th percentile (the maximum, if there are few values).
fn percentiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[(share * values.len() as f64).ceil() as usize - 1];
    [0.5, 0.9, 0.99].map(at)
}
