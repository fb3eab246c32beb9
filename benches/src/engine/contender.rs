//! Who runs, and how: every contender is a command that prints one line of JSON.

use crate::Args;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row of the table: one engine, its weights, and how many texts side by side.
pub struct Contender {
    /// As in the table.
    pub name: String,
    /// Rows, all of the same prompt.
    pub batch: usize,
    /// The program and its arguments.
    command: Vec<String>,
}

/// What a contender did in one round.
#[derive(Clone)]
pub struct Run {
    /// Until the first token of each row, in seconds.
    pub prefill_s: f64,
    /// The tokens after it, in seconds.
    pub decode_s: f64,
    /// Greedy tokens of the first row.
    pub tokens: Vec<u32>,
    /// Bytes that each pass of decoding read: ours only.
    pub bytes: Option<f64>,
}

impl Contender {
    /// The type of its weights: the second word of its name.
    pub fn weights(&self) -> Option<&str> {
        Some(self.name.split(' ').nth(1)?.trim_end_matches(','))
    }

    /// Runs it once.
    ///
    /// # Errors
    /// If it fails; with its own words.
    pub fn play(&self) -> Result<Run> {
        let json = line(&self.name, &self.command)?;
        let seconds = |key: &str| json[key].as_f64().with_context(|| format!("no {key}"));
        let tokens = json["tokens"].as_array().context("no tokens")?;
        Ok(Run {
            prefill_s: seconds("prefill_s")?,
            decode_s: seconds("decode_s")?,
            tokens: tokens.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
            bytes: json["bytes"].as_f64(),
        })
    }
}

/// The last line of what a command prints, as JSON.
pub fn line(name: &str, command: &[String]) -> Result<Value> {
    let out = Command::new(&command[0])
        .args(&command[1..])
        .output()
        .with_context(|| format!("{name} could not be started"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let json = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    json.with_context(|| format!("{name} failed: {}", String::from_utf8_lossy(&out.stderr)))
}

/// Our own command for one run.
pub fn ours(args: &Args, what: &str, more: &[&str]) -> Result<Vec<String>> {
    let mut command = vec![std::env::current_exe()?.display().to_string()];
    let (prompt, new) = (args.prompt.to_string(), args.new.to_string());
    let fixed = ["--model", &args.model, "--prompt", &prompt, "--new", &new, "--one", what];
    command.extend(["--device".to_string(), args.device.clone()]);
    command.extend(fixed.iter().chain(more).map(|word| word.to_string()));
    Ok(command)
}

/// All contenders that this machine has. The first is what the others are compared with.
pub fn all(args: &Args, dir: &Path, ids: &[u32]) -> Result<Vec<Contender>> {
    let mut all = vec![];
    let mut add = |name: &str, batch: usize, command: Vec<String>| {
        let label = format!("{name}, batch {batch}");
        // "batch 1" is not "batch 16".
        let named = |part: &String| {
            label.split(part.as_str()).skip(1).any(|rest| !rest.starts_with(char::is_numeric))
        };
        let wanted = args.only.is_empty() || args.only.iter().any(named);
        if wanted || all.is_empty() {
            all.push(Contender { name: name.to_string(), batch, command });
        }
    };
    for batch in ["1", "4", "8", "16"] {
        let command = ours(args, "engine", &["--batch", batch])?;
        add("candecode f32", batch.parse()?, command);
    }
    for batch in ["1", "8"] {
        let command = ours(args, "engine", &["--dtype", "bf16", "--batch", batch])?;
        add("candecode bf16", batch.parse()?, command);
    }
    let quantized = if args.peers { quantized_files(args, dir) } else { vec![] };
    for kind in ["q8_0", "q4_0"] {
        let file = quantized.iter().find(|(of, _)| *of == kind).map(|(_, file)| file);
        let from = match file {
            Some(file) => Args { model: file.clone(), ..args.clone() },
            None => args.clone(),
        };
        let format = if file.is_some() { "stored" } else { kind };
        for batch in ["1", "8"] {
            let command = ours(&from, "engine", &["--dtype", format, "--batch", batch])?;
            add(&format!("candecode {kind}"), batch.parse()?, command);
        }
    }
    add("candecode f32, growing cache", 1, ours(args, "engine", &["--cache", "dynamic"])?);
    add("candecode f32, plain kernels", 1, ours(args, "engine", &["--kernels", "plain"])?);
    if !args.peers {
        return Ok(all);
    }
    let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers");
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let (ids, new, dir) = (ids.join(","), args.new.to_string(), dir.display().to_string());
    let candle = std::env::current_exe()?.with_file_name("peers");
    let python = |script: &str, more: &[&str]| -> Vec<String> {
        let script = peers.join(script).display().to_string();
        let fixed = [args.python.as_str(), &script, &dir];
        fixed.iter().chain(more).map(|word| word.to_string()).collect()
    };
    if !candle.exists() {
        eprintln!("SKIPPED: candle-transformers. {} is not built", candle.display());
    }
    for batch in ["1", "8"].into_iter().filter(|_| candle.exists()) {
        let program = candle.display().to_string();
        let command = [program.as_str(), &dir, batch, &new, &ids].map(str::to_string);
        add("candle-transformers f32", batch.parse()?, command.to_vec());
    }
    for (name, script, needs) in [
        ("transformers", "transformers_peer.py", "torch, transformers"),
        ("llama.cpp", "llamacpp_peer.py", "torch, transformers, gguf, llama_cpp"),
    ] {
        let probe = Command::new(&args.python).args(["-c", &format!("import {needs}")]).output();
        if !probe.is_ok_and(|out| out.status.success()) {
            eprintln!(
                "SKIPPED: {name}. {} cannot import {needs}: see benches/peers/requirements.txt",
                args.python
            );
            continue;
        }
        let mut types = vec!["f32", "bf16"];
        if name == "llama.cpp" {
            types.extend(quantized.iter().map(|(kind, _)| *kind));
        }
        for dtype in types {
            for batch in ["1", "8"] {
                let command = python(script, &[batch, &new, &ids, dtype]);
                add(&format!("{name} {dtype}"), batch.parse()?, command);
            }
        }
    }
    Ok(all)
}

/// The files that llama.cpp made of the model by its own function, for it and for us.
fn quantized_files(args: &Args, dir: &Path) -> Vec<(&'static str, String)> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers/gguf_file.py");
    let mut files = vec![];
    for kind in ["q8_0", "q4_0"] {
        let made = Command::new(&args.python).arg(&script).arg(dir).arg(kind).output();
        match made {
            Ok(out) if out.status.success() => {
                let path = String::from_utf8_lossy(&out.stdout);
                files.push((kind, path.lines().last().unwrap_or_default().to_string()));
            }
            _ => eprintln!("SKIPPED: llama.cpp {kind}. No such file could be made of the model"),
        }
    }
    files
}
