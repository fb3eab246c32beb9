//! The contenders, each of which is a command that prints a line of JSON.

use super::Job;
use crate::args::Args;
use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row of the table: one engine, its weights, and its batch size.
pub struct Contender {
    /// The name in the table.
    pub name: String,
    /// Number of rows, all with the same prompt.
    pub batch: usize,
    /// The program and its arguments.
    pub command: Vec<String>,
}

impl Contender {
    /// Returns the type of the weights, which is the second word of the name.
    pub fn weights(&self) -> Option<&str> {
        Some(self.name.split(' ').nth(1)?.trim_end_matches(','))
    }
}

/// Runs a contender's command and parses the last line of its output.
pub fn line<T: DeserializeOwned>(name: &str, command: &[String]) -> Result<T> {
    let out = Command::new(&command[0])
        .args(&command[1..])
        .output()
        .with_context(|| format!("couldn't start {name}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let json = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    json.with_context(|| format!("{name} failed: {}", String::from_utf8_lossy(&out.stderr)))
}

/// Returns all contenders available on this machine. The first is the baseline for the others.
pub fn all(args: &Args, job: &Job) -> Result<Vec<Contender>> {
    let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers");
    let python = args.python.as_deref().unwrap_or("python3");
    let script = |name: &str| vec![python.to_string(), peers.join(name).display().to_string()];
    let quantized = if args.peers { quantized_files(&script("gguf_file.py"), job) } else { vec![] };
    let mut all = vec![];
    let mut add = |name: &str, batch: usize, command: Vec<String>| {
        all.push(Contender { name: name.to_string(), batch, command });
    };
    let job = |weights: &str, batch| Job { weights: weights.into(), batch, ..job.clone() };
    for (weights, batches) in [("f32", &[1, 4, 8, 16][..]), ("bf16", &[1, 8])] {
        for &batch in batches {
            add(&format!("candecode {weights}"), batch, job(weights, batch).command()?);
        }
    }
    for kind in ["q8_0", "q4_0"] {
        for batch in [1, 8] {
            let job = match quantized.iter().find(|(of, _)| *of == kind) {
                Some((_, file)) => Job { model: file.into(), ..job("stored", batch) },
                None => job(kind, batch),
            };
            add(&format!("candecode {kind}"), batch, job.command()?);
        }
    }
    let growing = Job { growing_cache: true, ..job("f32", 1) };
    add("candecode f32, growing cache", 1, growing.command()?);
    let plain = Job { plain_kernels: true, ..job("f32", 1) };
    add("candecode f32, plain kernels", 1, plain.command()?);
    if !args.peers {
        return Ok(all);
    }
    let Job { model, prompt, new, .. } = job("f32", 1);
    let ids: Vec<String> = prompt.iter().map(u32::to_string).collect();
    let words = |batch: usize| -> Vec<String> {
        vec![model.display().to_string(), batch.to_string(), new.to_string(), ids.join(",")]
    };
    let candle = std::env::current_exe()?.with_file_name("peer");
    if !candle.exists() {
        eprintln!("SKIPPED: candle-transformers. {} isn't built", candle.display());
    }
    for batch in [1, 8].into_iter().filter(|_| candle.exists()) {
        let command = [vec![candle.display().to_string()], words(batch)].concat();
        add("candle-transformers f32", batch, command);
    }
    for (name, file, needs) in [
        ("transformers", "transformers_peer.py", "torch, transformers"),
        ("llama.cpp", "llamacpp_peer.py", "torch, transformers, gguf, llama_cpp"),
    ] {
        let probe = Command::new(python).args(["-c", &format!("import {needs}")]).output();
        if !probe.is_ok_and(|out| out.status.success()) {
            eprintln!(
                "SKIPPED: {name}. {python} can't import {needs}: see \
                 crates/lab/peers/requirements.txt"
            );
            continue;
        }
        let of_llama_cpp = quantized.iter().filter(|_| name == "llama.cpp").map(|(kind, _)| *kind);
        for weights in ["f32", "bf16"].into_iter().chain(of_llama_cpp) {
            for batch in [1, 8] {
                let command = [script(file), words(batch), vec![weights.to_string()]].concat();
                add(&format!("{name} {weights}"), batch, command);
            }
        }
    }
    Ok(all)
}

/// Returns the model's files quantized by llama.cpp, which both engines load.
fn quantized_files(script: &[String], job: &Job) -> Vec<(&'static str, String)> {
    let mut files = vec![];
    for kind in ["q8_0", "q4_0"] {
        match quantized_file(script, &job.model, kind) {
            Ok(file) => files.push((kind, file)),
            Err(error) => eprintln!("SKIPPED: llama.cpp {kind}. {error:#}"),
        }
    }
    files
}

/// Quantizes a model with llama.cpp. Returns the path of the file.
fn quantized_file(script: &[String], model: &Path, kind: &str) -> Result<String> {
    let mut command = Command::new(&script[0]);
    let out = command.args(&script[1..]).arg(model).arg(kind).output();
    let out = out.with_context(|| format!("couldn't start {}", script[0]))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let path = text.lines().last().filter(|_| out.status.success());
    let said = || format!("{} failed: {}", script[1], String::from_utf8_lossy(&out.stderr));
    Ok(path.with_context(said)?.to_string())
}
