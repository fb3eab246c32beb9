//! Puts loads of limited length on our server and on llama.cpp's `llama-server`, in turn.
//!
//! There are four kinds of load. *Closed*: a fixed number of clients each send their next request
//! as soon as they have an answer. This shows a server that is never idle. *Open*: requests arrive
//! as a Poisson process at a fixed rate, whether or not earlier ones have finished. A server that
//! is too slow falls behind, which shows in the time to the first token. *Shared*: a closed load in
//! which all prompts start with the same tokens, and both servers may cache them. *Long*: a few
//! long prompts arrive while short texts are generated. This shows the gaps between tokens of the
//! short texts.
//!
//! Except in the shared load, every request has its own prompt of random ids, so prompt caching
//! doesn't help. All requests want the same number of tokens, so both servers do the same work.

use crate::args::Args;
use crate::plot::{self, tens, Axis, Plot};
use crate::shared::{commit, locate, machine, results};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode::kit::rng::RequestRng;
use candecode::kit::ModelConfig;
use serde_json::{json, Value};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of clients in the closed loads, and the minimum number of requests from each.
const CLIENTS: [usize; 2] = [8, 32];
const REQUESTS: usize = 2;
/// Requests per second in the open loads, and the minimum time over which they arrive, in seconds.
const RATES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const SECONDS: f64 = 10.0;
/// Tokens in a prompt, the largest id in it, and tokens to generate per request.
const PROMPT: usize = 64;
const IDS: f32 = 2000.0;
const NEW: usize = 48;
/// Number of rows that each server has room for.
const ROWS: usize = 32;
/// Numbers of clients in the long load with short prompts and with long ones.
const SHORT: usize = 16;
const LONG: usize = 4;
/// Seconds from the start of the long load until the long prompts arrive.
const HEAD_START: f64 = 0.2;

/// Sizes that depend on the model's context.
#[derive(Clone, Copy)]
struct Sizes {
    /// Tokens at the start of all prompts in the shared load: 1,000, or half the context if that's
    /// less.
    shared: usize,
    /// Tokens in a long prompt: 1,500, or fewer if the context is shorter.
    long: usize,
}

impl Sizes {
    /// Returns the sizes for a model.
    ///
    /// # Errors
    /// If the model's config can't be read.
    fn of(model: &str) -> Result<Self> {
        let config = locate(model)?.join("config.json");
        let config = ModelConfig::from_json(&std::fs::read_to_string(config)?)?;
        let context = config.max_position_embeddings;
        Ok(Self { shared: 1000.min(context / 2), long: 1500.min(context - NEW - 16) })
    }

    /// Returns the number of positions that a row may need.
    fn longest(self) -> usize {
        NEW + self.long.max(self.shared + PROMPT)
    }
}

/// A running server. Stopped on drop.
struct Server {
    name: &'static str,
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

impl Took {
    /// Returns the average time between tokens, in seconds.
    fn average(&self) -> f64 {
        self.gaps.iter().sum::<f64>() / (NEW - 1) as f64
    }
}

/// The results of a load: tokens per second over all requests, and the median and 99th percentile
/// of the time to the first token, of each request's average time between tokens, and of all gaps
/// between two tokens, in milliseconds. Only the throughput includes requests with long prompts.
struct Figures {
    server: &'static str,
    load: Load,
    requests: usize,
    throughput: f64,
    first: [f64; 2],
    next: [f64; 2],
    gap: [f64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Closed(usize),
    Open(f64),
    /// This many clients, whose prompts start with the same tokens.
    Shared(usize),
    /// A few long prompts amid short texts.
    Long,
}

/// Puts every load on every server and prints the table.
pub fn measure(args: &Args) -> Result<()> {
    let sizes = Sizes::of(args.model())?;
    let mut servers = vec![ours(args)?];
    if let (Some(program), Some(gguf)) = (&args.llama_server, &args.gguf) {
        servers.push(llama(program, gguf, sizes)?);
    }
    // Warm up, so that both servers have read their weights, started their threads, and touched
    // their memory before anything counts.
    for server in &servers {
        run(server, Load::Closed(ROWS), ROWS, 1, sizes)?;
    }
    let closed = CLIENTS.iter().map(|clients| Load::Closed(*clients));
    let open = RATES.iter().map(|rate| Load::Open(*rate));
    let loads = closed.chain(open).chain([Load::Shared(ROWS), Load::Long]);
    let mut text = format!(
        "{}, commit {}. {}, prompts of {PROMPT} tokens, {NEW} new tokens each. The shared prompt \
         has {} tokens more, a long one has {}. Times are in ms: to the first token, per token, \
         and between two tokens.\n\n\
         | load | server | tokens/s | first: p50 | p99 | token: p50 | p99 | gap: p99 |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
        machine(),
        commit(),
        Path::new(args.model()).file_name().unwrap_or_default().display(),
        sizes.shared,
        sizes.long,
    );
    let mut all = Vec::new();
    for (number, load) in loads.enumerate() {
        // The servers take turns going first.
        servers.reverse();
        let mut pair = Vec::new();
        for server in &servers {
            let figures = run(server, load, args.requests, 2 + number as u64, sizes)?;
            eprintln!("{}, {}: {} requests", server.name, load.words(), figures.requests);
            pair.push(figures);
        }
        pair.sort_by_key(|figures| figures.server);
        for Figures { server, throughput, first, next, gap, .. } in &pair {
            let _ = writeln!(
                text,
                "| {} | {server} | {throughput:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {:.0} |",
                load.words(),
                first[0],
                first[1],
                next[0],
                next[1],
                gap[1]
            );
        }
        all.extend(pair);
    }
    print!("{text}");
    let folder = results(args)?;
    plot::save(&folder, "serve.md", &text)?;
    plots(&all, &folder)
}

impl Load {
    fn words(self) -> String {
        match self {
            Self::Closed(clients) => format!("{clients} clients"),
            Self::Open(rate) => format!("{rate} requests/s"),
            Self::Shared(clients) => format!("{clients}, a shared prompt"),
            Self::Long => format!("{SHORT}, and {LONG} long prompts"),
        }
    }
}

/// Starts our server on a free port.
fn ours(args: &Args) -> Result<Server> {
    let program = std::env::current_exe()?.with_file_name("candecode-serve");
    let mut command = Command::new(&program);
    command.args(["--model", args.model(), "--served-model-name", "model", "--port", "0"]);
    command.args(["--device", &args.device]);
    command.args(["--max-batch", &ROWS.to_string(), "--max-queue", "10000"]);
    let child = command.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| program.display().to_string())?;
    let mut server = Server { name: "candecode", child, address: String::new() };
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
    let mut server = Server { name: "llama-server", child, address };
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
    /// Its number of requests. In the long load, a client with short prompts sends more until all
    /// long prompts are answered.
    requests: usize,
    /// The tokens at the start of its prompts.
    prefix: Vec<u32>,
    /// The number of tokens after the prefix, which differ in each request.
    own: usize,
    is_long: bool,
}

/// Returns the clients of a load. Together they send about `total` requests, but at least the
/// minimum set by the constants.
fn clients(load: Load, total: usize, random: &mut RequestRng, sizes: Sizes) -> Vec<Client> {
    let count = match load {
        Load::Closed(clients) | Load::Shared(clients) => clients,
        Load::Open(_) => total,
        Load::Long => SHORT,
    };
    let requests = total.div_ceil(count).max(REQUESTS);
    let client = |due| Client { due, requests, prefix: Vec::new(), own: PROMPT, is_long: false };
    match load {
        Load::Closed(clients) => (0..clients).map(|_| client(0.0)).collect(),
        Load::Open(rate) => {
            // The times between arrivals are exponentially distributed.
            let mut gap = || -(1.0 - f64::from(random.uniform())).ln() / rate;
            let (mut clients, mut at) = (Vec::new(), gap());
            while at < SECONDS.max(total as f64 / rate) {
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
            let long = (0..LONG).map(|_| Client {
                requests: 1,
                own: sizes.long,
                is_long: true,
                ..client(HEAD_START)
            });
            short.chain(long).collect()
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
    // Number of long prompts without an answer yet.
    let left = Arc::new(AtomicUsize::new(clients.iter().filter(|client| client.is_long).count()));
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
            while took.len() < client.requests || left.load(Ordering::Relaxed) > 0 {
                let prompt = [&client.prefix[..], &ids(&mut random, client.own)].concat();
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                let answer = ask(&agent, &url, &prompt, may_keep, began, due);
                if client.is_long {
                    left.fetch_sub(1, Ordering::Relaxed); // even if it failed
                    return Ok(vec![(true, answer?)]);
                }
                took.push((false, answer?));
                due = began.elapsed();
            }
            Ok(took)
        }));
    }
    let mut took: Vec<(bool, Took)> = Vec::new();
    for thread in threads {
        let answers = thread.join().map_err(|_| anyhow!("a client panicked"))?;
        took.extend(answers.with_context(|| server.name)?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let throughput = (took.len() * NEW) as f64 / seconds;
    took.retain(|(is_long, _)| !is_long);
    Ok(Figures {
        server: server.name,
        load,
        requests: took.len(),
        throughput,
        first: percentiles(took.iter().map(|(_, one)| 1e3 * one.first)),
        next: percentiles(took.iter().map(|(_, one)| 1e3 * one.average())),
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

/// Returns the median and the 99th percentile (the maximum, if there are few values).
fn percentiles(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[(share * values.len() as f64).ceil() as usize - 1];
    [at(0.5), at(0.99)]
}

/// Plots throughput and time to the first token against the rate of the open loads.
fn plots(all: &[Figures], folder: &Path) -> Result<()> {
    let line = |server: &str, of: &dyn Fn(&Figures) -> f64| -> Vec<(f64, f64)> {
        let of_server = all.iter().filter(|figures| figures.server == server);
        let open = of_server.filter_map(|figures| match figures.load {
            Load::Open(rate) => Some((rate, of(figures))),
            _ => None,
        });
        open.collect()
    };
    let rates = Axis::log("requests per second (Poisson arrivals)", (1.0 / 1.2, 8.0 * 1.2), &RATES);
    let most = |of: fn(&Figures) -> f64| all.iter().map(of).fold(1.0, f64::max);
    let top = (most(|figures| figures.throughput) / 50.0).ceil() as usize;
    let fifties: Vec<f64> = (0..=top).map(|n| 50.0 * n as f64).collect();
    let throughput = Plot::new(
        "Tokens per second against requests per second: throughput follows the load until the \
         server is saturated.",
        rates.clone(),
        Axis::linear("tokens/s", (0.0, 50.0 * top as f64), &fifties),
    );
    let least = all.iter().map(|figures| figures.first[1]).fold(f64::INFINITY, f64::min);
    let tens = tens(least, most(|figures| figures.first[1]));
    let bounds = (tens[0], tens[tens.len() - 1]);
    let first = Plot::new(
        "99th percentile of the time to the first token against requests per second: flat while a \
         server keeps up, and steep once it falls behind.",
        rates,
        Axis::log("time to the first token, 99th percentile, ms", bounds, &tens),
    );
    let draw = |mut plot: Plot, name: &str, of: &dyn Fn(&Figures) -> f64| {
        // Put the label above the line that ends higher, and below the other one.
        let ends = ["candecode", "llama-server"].map(|server| line(server, of).last().copied());
        let is_higher = ends[0].map(|end| end.1) > ends[1].map(|end| end.1);
        let (ours, theirs) = if is_higher { (-12.0, 16.0) } else { (16.0, -12.0) };
        for (server, role, below) in
            [("candecode", "kept", ours), ("llama-server", "known", theirs)]
        {
            let points = line(server, of);
            if let Some(last) = points.last() {
                plot.series(role, &points);
                plot.words("right", *last, (-8.0, below), server);
            }
        }
        plot.save(folder, name)
    };
    draw(throughput, "serve_throughput.svg", &|figures| figures.throughput)?;
    draw(first, "serve_first_token.svg", &|figures| figures.first[1])
}
