//! `cargo xtask bench serve`: a bounded load on a server of ours, and beside it on llama.cpp's `llama-server`, in turn.
//!
//! Two kinds of load. *Closed*: so many clients, each of which asks again as soon as it has its answer; what a server does
//! when it is never idle. *Open*: requests that come when they come, by a Poisson process of some rate, whether the ones
//! before are done or not; there a server that is too slow falls behind, and the time to the first token shows it.
//!
//! Every request has a prompt of its own, of random ids, and wants exactly as many tokens as all others: both servers do the
//! same work, and no cache of prompts helps.

use anyhow::{bail, ensure, Context as _, Result};
use benches::machine;
use benches::plot::Plot;
use candecode::kit::rng::RequestRng;
use clap::Parser;
use serde_json::{json, Value};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A load on servers.
#[derive(Parser)]
struct Args {
    /// Our server's program
    #[arg(long)]
    server: PathBuf,
    /// Where our server runs
    #[arg(long, default_value = "cpu")]
    device: String,
    /// The model
    #[arg(long, default_value = "story-3m")]
    model: String,
    /// llama.cpp's server, to run beside ours
    #[arg(long, requires = "gguf")]
    llama_server: Option<PathBuf>,
    /// The same model as a GGUF file, of f32
    #[arg(long)]
    gguf: Option<PathBuf>,
    /// Clients of the closed loads
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    clients: Vec<usize>,
    /// Requests a second of the open loads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    rates: Vec<f64>,
    /// Seconds in which the requests of an open load come
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Requests of each client of a closed load
    #[arg(long, default_value_t = 2)]
    requests: usize,
    /// Tokens of a prompt
    #[arg(long, default_value_t = 64)]
    prompt: usize,
    /// Tokens that each request wants
    #[arg(long, default_value_t = 48)]
    new: usize,
    /// Ids below this are drawn for prompts
    #[arg(long, default_value_t = 2000)]
    ids: u32,
    /// Write tables and plots into this folder of the book
    #[arg(long)]
    save: Option<PathBuf>,
}

/// A server that runs, and ends with this program.
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

/// What one request took.
#[derive(Clone, Copy)]
struct Took {
    /// Seconds from when it should have been sent to its first token.
    first: f64,
    /// Seconds between its tokens, on average.
    next: f64,
    tokens: usize,
}

/// What a load came to.
struct Figures {
    server: &'static str,
    load: Load,
    /// Tokens a second, all requests together.
    throughput: f64,
    first: [f64; 2], // median and 99th percentile, as the next
    next: [f64; 2],
    requests: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Closed(usize),
    Open(f64),
}

impl Load {
    fn words(self) -> String {
        match self {
            Self::Closed(clients) => format!("{clients} clients"),
            Self::Open(rate) => format!("{rate} requests/s"),
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(folder) = &args.save {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    }
    let most = args.clients.iter().copied().max().unwrap_or(1).max(32);
    let mut servers = vec![ours(&args, most)?];
    if let Some(program) = &args.llama_server {
        servers.push(llama(&args, program, most)?);
    }
    // Both have read their weights, made their threads, and touched all the memory that they need, before anything counts.
    for server in &servers {
        measure(server, Load::Closed(most), 1, &args, 1)?;
    }
    let closed = args.clients.iter().map(|clients| Load::Closed(*clients));
    let open = args.rates.iter().map(|rate| Load::Open(*rate));
    let mut all = Vec::new();
    for (number, load) in closed.chain(open).enumerate() {
        // In turn, and the first in turn, too.
        let mut order: Vec<&Server> = servers.iter().collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for server in order {
            let figures = measure(server, load, args.requests, &args, 2 + number as u64)?;
            eprintln!("{}", line(&figures));
            all.push(figures);
        }
    }
    all.sort_by_key(|figures| figures.server != "candecode");
    let table = table(&all, &args);
    println!("{table}");
    if let Some(folder) = &args.save {
        std::fs::write(folder.join("serve.md"), &table)?;
        plots(&all, &args)?;
    }
    Ok(())
}

/// Our server, at a free port.
fn ours(args: &Args, most: usize) -> Result<Server> {
    let mut command = Command::new(&args.server);
    command.args(["--model", &args.model, "--served-model-name", "model", "--port", "0"]);
    command.args(["--device", &args.device]);
    command.args(["--max-batch", &most.to_string(), "--max-queue", "10000"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| args.server.display().to_string())?;
    let mut said = String::new();
    let out = child.stdout.take().context("the server has no output")?;
    BufReader::new(out).read_line(&mut said)?;
    let mut server = Server { name: "candecode", child, address: String::new() };
    let address = said.trim().strip_prefix("listening on ");
    server.address = address.with_context(|| format!("our server says {said:?}"))?.to_string();
    Ok(server)
}

/// llama.cpp's server, with as many slots and as many threads as ours has.
fn llama(args: &Args, program: &Path, most: usize) -> Result<Server> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let context = most * (args.prompt + args.new + 16);
    let threads = std::thread::available_parallelism()?.to_string();
    let mut command = Command::new(program);
    command.arg("--model").arg(args.gguf.as_deref().context("--gguf is missing")?);
    command.args(["--port", &port, "-np", &most.to_string(), "--ctx-size", &context.to_string()]);
    command.args(["--threads", &threads, "--threads-batch", &threads, "--cont-batching"]);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let mut server =
        Server { name: "llama-server", child, address: format!("http://127.0.0.1:{port}") };
    let began = Instant::now();
    while ureq::get(format!("{}/health", server.address)).call().is_err() {
        if let Some(status) = server.child.try_wait()? {
            bail!("{} ended ({status}); start it by hand to see why", program.display());
        }
        ensure!(began.elapsed() < Duration::from_secs(120), "llama-server does not get ready");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(server)
}

/// Puts a load on a server; the clients of a closed one have so many requests each.
fn measure(
    server: &Server,
    load: Load,
    requests: usize,
    args: &Args,
    seed: u64,
) -> Result<Figures> {
    let mut random = RequestRng::new(seed, 0);
    let (threads, each, arrivals) = match load {
        Load::Closed(clients) => (clients, requests, vec![0.0; clients]),
        Load::Open(rate) => {
            let mut arrivals = Vec::new();
            let mut at = 0.0;
            loop {
                at -= (1.0 - f64::from(random.uniform())).ln() / rate; // times between arrivals are exponential
                if at > args.seconds || arrivals.len() == 512 {
                    break;
                }
                arrivals.push(at);
            }
            (arrivals.len(), 1, arrivals)
        }
    };
    ensure!(threads > 0, "no request comes in {} s at this rate; raise one", args.seconds);
    let config = ureq::Agent::config_builder().proxy(None).max_idle_connections(0);
    let agent = config.timeout_global(Some(Duration::from_secs(600))).build().new_agent();
    let took: Arc<Mutex<Vec<Took>>> = Arc::default();
    let began = Instant::now();
    let mut running = Vec::new();
    for (i, arrival) in arrivals.into_iter().enumerate() {
        let mut bodies = Vec::new();
        for _ in 0..each {
            let ids: Vec<u32> = (0..args.prompt)
                .map(|_| 1 + (f64::from(random.uniform()) * args.ids as f64) as u32)
                .collect();
            bodies.push(body(&ids, args).to_string());
        }
        let (agent, took) = (agent.clone(), took.clone());
        let url = format!("{}/v1/completions", server.address);
        let name = server.name;
        running.push(std::thread::spawn(move || -> Result<()> {
            let mut due = Duration::from_secs_f64(arrival);
            for body in bodies {
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                let one = ask(&agent, &url, &body, began, due)
                    .with_context(|| format!("{name}, request {i}"))?;
                took.lock().unwrap_or_else(|held| held.into_inner()).push(one);
                due = began.elapsed();
            }
            Ok(())
        }));
    }
    for thread in running {
        thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    let seconds = began.elapsed().as_secs_f64();
    let took = took.lock().unwrap_or_else(|held| held.into_inner());
    let tokens: usize = took.iter().map(|one| one.tokens).sum();
    ensure!(
        tokens == threads * each * args.new,
        "{}: {tokens} tokens came, and {} were asked for: the servers would not do the same work",
        server.name,
        threads * each * args.new
    );
    Ok(Figures {
        server: server.name,
        load,
        throughput: tokens as f64 / seconds,
        first: percentiles(took.iter().map(|one| one.first)),
        next: percentiles(took.iter().map(|one| one.next)),
        requests: took.len(),
    })
}

/// A request of both servers: greedy, and as long as it was asked for.
fn body(ids: &[u32], args: &Args) -> Value {
    json!({
        "model": "model", "prompt": ids, "max_tokens": args.new, "temperature": 0, "stream": true,
        "ignore_eos": true, "stream_options": {"include_usage": true},
        "cache_prompt": false, // llama.cpp's; ours has no cache of prompts
    })
}

/// Asks, and reads the stream to its end. Time counts from when the request was due.
fn ask(agent: &ureq::Agent, url: &str, body: &str, began: Instant, due: Duration) -> Result<Took> {
    let response = agent.post(url).header("content-type", "application/json").send(body)?;
    let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
    let mut first = None;
    let mut last = due;
    let mut tokens = 0;
    for line in BufReader::new(reader).lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            continue;
        };
        let event: Value = serde_json::from_str(data)?;
        ensure!(event["error"].is_null(), "{}", event["error"]);
        if event["choices"].as_array().is_some_and(|choices| !choices.is_empty()) {
            last = began.elapsed();
            first.get_or_insert(last);
        }
        if let Some(count) = event["usage"]["completion_tokens"].as_u64() {
            tokens = count as usize;
        }
    }
    let first = first.context("a stream without a token")?;
    let next = (last - first).as_secs_f64() / tokens.saturating_sub(1).max(1) as f64;
    Ok(Took { first: (first.saturating_sub(due)).as_secs_f64(), next, tokens })
}

/// The median and the 99th percentile (of few, the worst).
fn percentiles(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * values.len() as f64).ceil() as usize;
        values[index.clamp(1, values.len()) - 1]
    };
    [at(0.5), at(0.99)]
}

fn line(figures: &Figures) -> String {
    let Figures { server, load, throughput, first, next, requests } = figures;
    format!(
        "{server:<13} {:<15} {requests:>4} requests  {throughput:>7.0} tokens/s  first {:>6.0} / \
         {:>6.0} ms  next {:>5.1} / {:>5.1} ms",
        load.words(),
        1e3 * first[0],
        1e3 * first[1],
        1e3 * next[0],
        1e3 * next[1]
    )
}

/// The table of the book.
fn table(all: &[Figures], args: &Args) -> String {
    let mut text = format!(
        "{}, commit {}. {}, prompts of {} tokens, {} new tokens each.\n\n\
         | load | server | requests | tokens/s | first token, ms: p50 | p99 | a token, ms: p50 | p99 |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
        machine::words(),
        machine::commit(),
        model_name(&args.model),
        args.prompt,
        args.new
    );
    let mut loads: Vec<Load> = Vec::new();
    for figures in all {
        if !loads.contains(&figures.load) {
            loads.push(figures.load);
        }
    }
    for load in loads {
        for figures in all.iter().filter(|figures| figures.load == load) {
            let Figures { server, throughput, first, next, requests, .. } = figures;
            let _ = writeln!(
                text,
                "| {} | {server} | {requests} | {throughput:.0} | {:.0} | {:.0} | {:.1} | {:.1} |",
                load.words(),
                1e3 * first[0],
                1e3 * first[1],
                1e3 * next[0],
                1e3 * next[1]
            );
        }
    }
    text
}

/// The last part of a path.
fn model_name(model: &str) -> String {
    let last = Path::new(model).file_name().map(|name| name.to_string_lossy().into_owned());
    last.unwrap_or_else(|| model.to_string())
}

/// Throughput, and the time to the first token, over the rate of the open loads.
fn plots(all: &[Figures], args: &Args) -> Result<()> {
    let (Some(least), Some(most)) =
        (args.rates.iter().copied().reduce(f64::min), args.rates.iter().copied().reduce(f64::max))
    else {
        return Ok(());
    };
    let points = |server: &str, of: fn(&Figures) -> f64| -> Vec<(f64, f64)> {
        let of_server = all.iter().filter(|figures| figures.server == server);
        let mut points: Vec<(f64, f64)> = of_server
            .filter_map(|figures| match figures.load {
                Load::Open(rate) => Some((rate, of(figures))),
                Load::Closed(_) => None,
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let first = |figures: &Figures| 1e3 * figures.first[1];
    let throughput = |figures: &Figures| figures.throughput;
    for (name, label, y_axis, of) in [
        (
            "serve_first_token.svg",
            "The 99th percentile of the time to the first token over the requests a second: flat while a server keeps up, and steep from where it falls behind.",
            "time to the first token, 99th percentile, ms",
            first as fn(&Figures) -> f64,
        ),
        (
            "serve_throughput.svg",
            "Tokens a second over the requests a second: as many as are asked for, until the server has no more.",
            "tokens/s",
            throughput,
        ),
    ] {
        let values: Vec<f64> = ["candecode", "llama-server"]
            .iter()
            .flat_map(|server| points(server, of))
            .map(|(_, y)| y)
            .collect();
        let top = values.iter().copied().fold(1.0, f64::max);
        let bottom = values.iter().copied().fold(top, f64::min);
        // Times span two orders of magnitude; throughputs are close, and a logarithm would hide it.
        let log = name == "serve_first_token.svg";
        let (low, high) = if log {
            (10f64.powf(bottom.log10().floor()), 10f64.powf(top.log10().ceil()))
        } else {
            (0.0, 50.0 * (top / 50.0).ceil())
        };
        let mut plot = Plot::new(label, (least / 1.2, most * 1.2), (low, high), (true, log));
        for rate in &args.rates {
            plot.tick_x(*rate, &rate.to_string());
        }
        let mut tick = low;
        while tick <= high * 1.001 {
            plot.tick_y(tick, &tick.to_string());
            tick = if log { tick * 10.0 } else { tick + 50.0 };
        }
        plot.axes("requests a second (Poisson arrivals)", y_axis);
        // The name of the line that ends higher stands above it, the other one below.
        let end = |server: &str| points(server, of).last().map_or(0.0, |point| point.1);
        let is_higher = end("candecode") > end("llama-server");
        let (ours, theirs) = if is_higher { (-12.0, 16.0) } else { (16.0, -12.0) };
        for (server, role, below) in [("candecode", "kept", ours), ("llama-server", "known", theirs)] {
            let points = points(server, of);
            plot.line(role, &points);
            plot.dots(role, &points);
            if let Some(last) = points.last() {
                plot.words("right", *last, (-8.0, below), server);
            }
        }
        plot.save(name)?;
    }
    Ok(())
}
