//! Tests everything the command does besides failing with a message: notes, warnings, the
//! workarounds that messages suggest, Ctrl-C, and a closed pipe. The messages themselves are on a
//! page of the book, which is tested in `crates/lab/tests/messages.rs`.
//!
//! Runs the `candecode` command itself, with the reference: `cargo test --features ref --test
//! bad_input`.

#![cfg(feature = "ref")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn story() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models/story-230k")
}

/// A copy of a small model in its own folder, for a test to damage.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("candecode-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        for file in fs::read_dir(story()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), dir.join(file.file_name())).unwrap();
        }
        Self(dir)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(args).env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command
}

/// A run that takes and prints ids needs no tokenizer, but one that needs the text does.
#[test]
fn a_model_without_a_tokenizer_runs_on_token_ids() {
    let folder = Folder::new("ids");
    let run = |more: &[&str]| {
        let ids = ["--model", folder.path(), "--prompt-ids", "5,6,7", "--max-new-tokens", "9"];
        command(&[&ids[..], more].concat()).output().unwrap()
    };
    let tokens = || {
        let output = run(&["--format", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["new_ids"].clone()
    };
    let with = tokens();
    fs::remove_file(folder.0.join("tokenizer.json")).unwrap();
    assert_eq!(tokens(), with);
    assert_eq!(with.as_array().unwrap().len(), 9);
    for text in [&["--format", "json", "--stop", "."][..], &[]] {
        let output = run(text);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no tokenizer.json"));
    }
}

#[test]
fn generation_config_settings_are_noted_but_not_applied() {
    let folder = Folder::new("wishes");
    let run = |flags: &[&str]| {
        let args =
            [&["--model", folder.path(), "-p", "Once", "--max-new-tokens", "12"], flags].concat();
        let output = command(&args).output().unwrap();
        assert!(output.status.success());
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [greedy, err] = run(&[]);
    assert!(!err.contains("note"), "{err}");
    let wishes = r#"{"eos_token_id": 0, "do_sample": true, "temperature": 3.0, "top_k": 2000}"#;
    fs::write(folder.0.join("generation_config.json"), wishes).unwrap();
    let [text, err] = run(&[]);
    assert_eq!(text, greedy);
    let says = "note: generation_config.json asks for do_sample=true, temperature=3, top_k=2000; \
                the command does only what its flags say; for the same add --temperature 3 --top-k \
                2000";
    assert!(err.contains(says), "{err}");
    let [text, err] = run(&["--temperature", "3", "--top-k", "2000"]);
    assert!(text != greedy && !err.contains("note"), "{err}");
}

#[test]
fn a_draft_model_as_large_as_its_target_prints_a_warning() {
    let run = |target: &str, draft: &str| {
        let flags = ["--max-new-tokens", "8", "--model", target, "--draft-model", draft];
        let output = command(&[&["-p", "Once"], &flags[..]].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        (String::from_utf8(output.stdout).unwrap(), said.contains("as large as its target"))
    };
    let (text, warned) = run("story-230k", "story-3m");
    assert!(warned);
    assert_eq!(run("story-230k", "story-230k"), (text, true));
    assert!(!run("story-3m", "story-230k").1);
}

/// A draft may lead where the request's constraints leave no token. That's no error unless the text
/// itself goes there.
#[test]
fn a_dead_end_in_a_draft_is_not_an_error() {
    let run = |prompt: &str, regex: &str, more: &[&str]| {
        let flags = ["-p", prompt, "--allow-regex", regex, "--block", "xq"];
        let output = command(&[&flags[..], more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (prompt, regex) = ("there was a xq and there was a", " (?:big dog|xq)");
    let sampled = ["--temperature", "1", "--seed", "1", "--draft-ngram", "2"];
    assert!(run(prompt, regex, &sampled).contains(" big dog"));
    let (prompt, regex) = ("Once upon a time there was a", " big dog|xq");
    let plain = run(prompt, regex, &[]);
    let draft = ["--draft-model", "story-230k"];
    assert_eq!(run(prompt, regex, &draft), plain);
    assert_eq!(run(prompt, regex, &[&draft[..], &["--draft-tree", "8x1"]].concat()), plain);
}

/// Writes a copy of a safetensors file with some bytes of one tensor replaced, and returns its
/// path.
fn with_bytes(from: &Path, to: PathBuf, tensor: &str, bytes: &[u8]) -> String {
    let mut file = fs::read(from).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let at = 8 + header + json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(&to, file).unwrap();
    to.to_str().unwrap().to_string()
}

/// The model's weights are cut off in every case but the last, so had the model been loaded first,
/// the message would be about them.
#[test]
fn medusa_heads_and_trees_are_checked_before_the_model_is_loaded() {
    let models = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models");
    let heads = models.join("story-3m/medusa.safetensors");
    let folder = Folder::new("medusa");
    for file in fs::read_dir(models.join("story-3m")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.0.join(file.file_name())).unwrap();
    }
    let weights = fs::read(folder.0.join("model.safetensors")).unwrap();
    fs::write(folder.0.join("model.safetensors"), &weights[..100]).unwrap();
    let refused = |flags: &[&str], code: i32, says: &str| {
        let first = ["--model", folder.path(), "-p", "Once", "--max-new-tokens", "4"];
        let output = command(&[&first[..], flags].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(says), "{flags:?}: {said}");
        assert!(output.stdout.is_empty() && !said.contains("[loop"), "{flags:?}: {said}");
    };
    let changed = |name: &str, tensor: &str, bytes: &[u8]| {
        with_bytes(&heads, folder.0.join(name), tensor, bytes)
    };
    let nan = changed("nan", "heads.2.bias", &[0x00, 0x7e]);
    refused(&["--medusa", &nan], 1, "heads.2.bias contains NaN");
    let vocabulary = changed("vocabulary", "vocab_size", &50_257i64.to_le_bytes());
    refused(&["--medusa", &vocabulary], 1, "another model: their vocabulary has 50257 tokens");
    refused(&["--medusa", "nowhere.safetensors"], 1, "no such file");
    let cut = folder.0.join("cut");
    fs::write(&cut, &fs::read(&heads).unwrap()[..1000]).unwrap();
    refused(&["--medusa", cut.to_str().unwrap()], 1, "cut short or damaged");
    refused(&["--medusa", folder.0.to_str().unwrap()], 1, "this is a folder");
    let config = folder.0.join("config.json");
    refused(&["--medusa", config.to_str().unwrap()], 1, "cut short or damaged");
    refused(&["--medusa", "--draft-tree", "1x1x1x1x1"], 2, "4 Medusa heads");
    refused(&["--medusa", "--draft-tree", "9x9x9"], 1, "room for only 511");
    refused(&["--draft-tree", "600"], 1, "room for only 511");
    for shape in ["", "x", "3x", "3x0", "2x-1", "1.5", "99999999999999999999"] {
        refused(&[&format!("--draft-tree={shape}")], 2, "a shape is the number of children");
    }
    refused(&["--medusa", "--num-beams", "2"], 2, "cannot be used with '--num-beams");
    refused(&["--medusa", "--draft-model", "story-230k"], 2, "--draft-model");
    refused(&["--medusa", "--draft-ngram"], 2, "--draft-ngram");
    refused(&["--draft-tree", "2x1", "--num-beams", "2"], 2, "cannot be used with '--num-beams");
    refused(&["--draft-tree", "2x1", "--num-draft-tokens", "3"], 2, "--num-draft-tokens");
    refused(&["--medusa", "--loop", "day13"], 2, "day 24's loop can");
    refused(&["--typical-acceptance"], 2, "--medusa");
    fs::remove_file(folder.0.join("medusa.safetensors")).unwrap();
    refused(&["--medusa"], 1, "no such file");
    // Only the last norm identifies the heads' model. The rest of the weights aren't read.
    fs::write(folder.0.join("model.safetensors"), &weights).unwrap();
    let norm = changed("norm", "norm.weight", &99f32.to_le_bytes());
    refused(&["--medusa", &norm], 1, "trained on another model");
    fs::copy(story().join("config.json"), config).unwrap();
    refused(&["--medusa", heads.to_str().unwrap()], 1, "heads.0.weight is [192, 192]");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_generation_cleanly() {
    use std::io::Read;
    let mut run =
        command(&["-p", "Once", "--max-new-tokens", "100000", "--model", "story-gpt2-1m"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 8]; // the prompt has been printed, so the loop is running
    out.read_exact(&mut first).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.ends_with('\n'), "the line was not ended: {rest:?}");
}

#[test]
fn a_closed_stdout_ends_the_run_quietly() {
    let mut run = command(&["-p", "Once", "--max-new-tokens", "200"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !text.contains("error"), "{text}");
}

/// Beam search returns no tokens until it is done, but it can still be stopped.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_beam_search() {
    use std::io::{BufRead, BufReader};
    let beams = ["--num-beams", "8", "--early-stopping", "never", "--max-new-tokens", "480"];
    let mut run = command(&[&["-p", "Once", "--cache", "dynamic"], &beams[..]].concat());
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap(); // this line is printed right before the loop starts
    assert!(line.starts_with("[loop: day 11, on the CPU; "), "{line}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "Once\n", "the search ran to its end");
}

/// With a single beam, day 11's loop finds the greedy text.
#[test]
fn beam_search_prints_text_for_every_prompt() {
    let run = |flags: &[&str], prompts: &[&str]| {
        let text = ["--model", "story-230k", "--max-new-tokens", "9", "--stats"];
        let out = command(&[&text[..], flags, prompts].concat()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{said}");
        (String::from_utf8(out.stdout).unwrap(), said)
    };
    let one = ["-p", "Once upon"];
    let greedy = run(&[], &one).0;
    for flags in [&["--loop", "day11"][..], &["--loop", "day11", "--cache", "paged"]] {
        let (text, said) = run(flags, &one);
        assert_eq!(text, greedy, "{said}");
        assert!(said.contains("search  ") && !said.contains("decode  "), "{said}");
    }
    let ids = |flags: &[&str]| {
        let (line, _) = run(&[flags, &["--format", "json"]].concat(), &one);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        (json["new_ids"].clone(), json["finish_reason"].clone())
    };
    assert_eq!(ids(&["--loop", "day11"]), ids(&[]));
    let beams = |prompts: &[&str]| run(&["--num-beams", "2"], prompts).0;
    let both = beams(&["-p", "Once upon", "-p", "The dog"]);
    assert_eq!(both, format!("{}\n{}", beams(&one), beams(&["-p", "The dog"])));
}

#[test]
fn a_byte_order_mark_is_stripped_from_the_prompt() {
    let folder = Folder::new("byte-order-mark");
    let said = |name: &str, text: &str| {
        let file = folder.0.join(name);
        fs::write(&file, text).unwrap();
        let flags = ["--max-new-tokens", "2", "--format", "json", "--prompt-file"];
        let out = command(&[&flags[..], &[file.to_str().unwrap()]].concat()).output().unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        line["prompt_ids"].clone()
    };
    assert_eq!(said("with", "\u{feff}Once"), said("without", "Once"));
    let mut run = command(&["--max-new-tokens", "2", "--format", "json", "--prompt-file", "-"]);
    let out = run.stdin(fs::File::open(folder.0.join("with")).unwrap()).output().unwrap();
    let line: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(line["prompt_ids"], said("without", "Once"));
}

/// 40 MB are rejected by size alone: reading them as tokens takes half a minute.
#[test]
fn a_huge_prompt_is_refused_by_size_alone() {
    let folder = Folder::new("long-prompt");
    let file = folder.0.join("long");
    fs::write(&file, "a b ".repeat(10_000_000)).unwrap();
    let out = command(&["--prompt-file", file.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("the prompt is 40000000 bytes long, so at least"), "{text}");
}

#[test]
fn an_error_after_the_prompt_starts_on_a_new_line() {
    let folder = Folder::new("nan-weights");
    let file = folder.0.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.len();
    for weight in bytes[end - 4096..].chunks_exact_mut(2) {
        weight.copy_from_slice(&[0xc0, 0x7f]); // NaN in bf16
    }
    fs::write(&file, bytes).unwrap();
    let out = command(&["-p", "Once", "--model", folder.path()]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("error: ") && text.contains("NaN"), "{text}");
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "Once\n");
}

/// A processor's name may contain NaN even if the model's numbers are fine.
#[test]
fn an_error_that_quotes_nan_is_not_blamed_on_the_model() {
    let flags =
        ["-p", "Once", "--model", "story-230k", "--allow-regex", "NaN\u{4e00}{9999}\u{1F600}"];
    let dead = ["-p", "Once", "--model", "story-230k", "--allow-regex", "NaN NaN", "--block", "N"];
    for flags in [&flags[..], &dead] {
        let out = command(flags).output().unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(!text.contains("without a cache"), "{text}");
    }
    let out = command(&dead).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("NaN") && text.contains("left no token to choose"), "{text}");
}

/// Parameters that pass validation also work at the ends of their ranges, without turning anything
/// into infinity or NaN on the way.
#[test]
fn extreme_parameters_act_like_their_limit_or_are_refused() {
    let run = |flags: &[&str]| {
        let fixed = ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "12"];
        let out = command(&[&fixed, flags].concat()).output().unwrap();
        let (text, error) = (String::from_utf8(out.stdout), String::from_utf8(out.stderr));
        (out.status.code(), text.unwrap(), error.unwrap())
    };
    let greedy = run(&[]).1;
    for tiny in ["1e-5", "1e-30", "2e-38", "1e-38", "1e-40", "1e-45"] {
        let (code, text, error) = run(&["--temperature", tiny, "--seed", "3"]);
        assert_eq!((code, text), (Some(0), greedy.clone()), "{tiny}: {error}");
    }
    for flags in [
        &["--repetition-penalty", "1e-45", "--temperature", "1"][..],
        &["--repetition-penalty", "3e38", "--temperature", "0.5"],
        &["--repetition-penalty", "1e-45", "--temperature", "1e-45"],
        &["--repetition-penalty", "1e-45", "--presence-penalty", "2", "--frequency-penalty", "-2"],
        &["--repetition-penalty", "1e-45", "--num-beams", "2"],
        &["--temperature", "3e38", "--top-p", "1e-300"],
        &["--temperature", "1", "--min-p", "1e-300"],
        &["--num-beams", "2", "--length-penalty", "-20"],
        &["--num-beams", "2", "--length-penalty", "20"],
    ] {
        let (code, text, error) = run(flags);
        assert_eq!(code, Some(0), "{flags:?}: {text} {error}");
    }
    for flags in [["--length-penalty", "1e300"], ["--length-penalty", "-1e300"]] {
        let (code, text, error) = run(&[&["--num-beams", "2"], &flags[..]].concat());
        assert_eq!((code, text.as_str()), (Some(1), ""), "{error}");
        assert!(error.contains("too extreme for texts of 12 tokens"), "{error}");
    }
}

/// As in transformers, a text may start with only BOS.
#[test]
fn an_empty_prompt_becomes_bos_if_the_tokenizer_adds_it() {
    let folder = Folder::new("bos");
    let file = folder.0.join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let bos = "<|endoftext|>";
    let text = serde_json::json!({"Sequence": {"id": "A", "type_id": 0}});
    let add = serde_json::json!({"SpecialToken": {"id": bos, "type_id": 0}});
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [add, text],
        "pair": [add, text],
        "special_tokens": {bos: {"id": bos, "ids": [0], "tokens": [bos]}}
    });
    fs::write(&file, json.to_string()).unwrap();
    let new_ids = |flags: &[&str]| -> Vec<serde_json::Value> {
        let fixed = ["--model", folder.path(), "--format", "json", "--max-new-tokens", "5"];
        let out = command(&[&fixed, flags].concat()).output().unwrap();
        let lines = String::from_utf8(out.stdout).unwrap();
        let error = String::from_utf8(out.stderr).unwrap();
        let json = lines.lines().map(serde_json::from_str::<serde_json::Value>);
        let ids: Vec<_> = json.map(|json| json.unwrap()["new_ids"].clone()).collect();
        assert!(!ids.is_empty(), "{error}");
        ids
    };
    let alone = new_ids(&["--prompt-ids", "0"]);
    assert_eq!(new_ids(&["-p", ""]), alone);
    let batch = new_ids(&["-p", "Once", "-p", ""]);
    assert_eq!(batch[1], alone[0]);
    let out = command(&["-p", "", "--model", "story-230k"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8(out.stderr).unwrap().contains("the prompt is empty"));
}

/// A token's logprob is the same number in the answer and in the list of top tokens.
#[test]
fn a_token_has_the_same_logprob_everywhere_in_an_answer() {
    let flags = ["-p", "Once upon a time", "--max-new-tokens", "40"];
    let json = ["--format", "json", "--top-logprobs", "3"];
    let out = command(&[&flags[..], &json].concat()).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let logprobs = json["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 40);
    // The first token came from the prefill.
    let [rate, seconds] = ["tokens_per_second", "decode_s"].map(|key| json[key].as_f64().unwrap());
    assert!((rate * seconds - 39.0).abs() < 1e-6, "{rate} {seconds}");
    for (logprob, top) in logprobs.iter().zip(json["top_logprobs"].as_array().unwrap()) {
        assert_eq!(*logprob, top[0]["logprob"], "{top}"); // greedy, so the top token is the chosen one
    }
}

/// The pattern allows a different opening for each text, and one of them is blocked.
#[test]
fn a_failing_text_in_a_batch_leaves_the_others_complete() {
    let pattern = " and [A-Z][a-z]+|, there was";
    let fixed = [
        "--model",
        "story-230k",
        "--max-new-tokens",
        "8",
        "--allow-regex",
        pattern,
        "--block",
        "was",
    ];
    let run = |flags: &[&str]| {
        let out = command(&[&fixed, flags].concat()).output().unwrap();
        let (text, error) = (String::from_utf8(out.stdout), String::from_utf8(out.stderr));
        (out.status.code(), text.unwrap(), error.unwrap())
    };
    let prompts = ["-p", "Lily", "-p", "Once upon a time", "-p", "Ben"];
    let (code, whole, _) = run(&["-p", "Lily", "-p", "Ben"]);
    assert_eq!(code, Some(0));
    let [first, last] = whole.split("\n\n").collect::<Vec<_>>()[..] else { panic!("{whole}") };
    for day in ["day12", "day15"] {
        let (code, text, error) = run(&[&prompts[..], &["--loop", day]].concat());
        assert_eq!(code, Some(1), "{day}");
        assert_eq!(text, format!("{first}\n\nOnce upon a time, there wa\n\n{last}"), "{day}");
        let says = format!("error: text 2 of 3: the pattern {pattern} left no token to choose");
        assert!(error.contains(&says) && !error.contains("texts failed"), "{error}");
        let (code, lines, _) = run(&[&prompts[..], &["--loop", day, "--format", "json"]].concat());
        assert_eq!(code, Some(1), "{day}");
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let failed = &lines[1];
        assert_eq!(
            (&failed["finish_reason"], &failed["text"]),
            (&"failed".into(), &", there wa".into())
        );
        assert!(failed["error"].as_str().unwrap().contains("left no token to choose"), "{failed}");
        let new = failed["new_ids"].as_array().unwrap().len();
        assert_eq!(new, failed["logprobs"].as_array().unwrap().len());
        for other in [&lines[0], &lines[2]] {
            assert!(other["error"].is_null() && other["finish_reason"] != "failed", "{other}");
        }
    }
    let (_, _, error) = run(&["-p", "Once upon a time", "-p", "Once upon a time"]);
    assert!(error.contains("error: text 1 of 2: ") && error.contains("(2 texts failed)"));
}

/// Each text in a batch has its own top tokens, the same as when it runs alone.
#[test]
fn top_logprobs_in_a_batch_equal_those_of_each_text_alone() {
    let fixed = ["--model", "story-230k", "--max-new-tokens", "6", "--top-logprobs", "3"];
    let run = |flags: &[&str]| {
        let out = command(&[&fixed, flags].concat()).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let (one, two) = (run(&["-p", "Once upon a time"]), run(&["-p", "Lily"]));
    assert_eq!(one.lines().count(), 8, "{one}"); // the text, an empty line, six steps
    for day in ["day12", "day15"] {
        let both = run(&["-p", "Once upon a time", "-p", "Lily", "--loop", day]);
        assert_eq!(both, format!("{one}\n{two}"), "{day}");
    }
}

/// A stop string ends a text anywhere, even before a format is complete, as in vLLM.
#[test]
fn a_stop_string_may_cut_a_format_short() {
    let flags = ["-p", "Lily had", "--allow-regex", " [0-9] red dogs", "--stop", "dog"];
    let out = command(&flags).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.starts_with("Lily had ") && text.ends_with(" red \n"), "{text}");
}

/// An instruct model answers a prompt: its template wraps the prompt, and the end-of-turn token
/// ends the text.
#[test]
fn an_instruct_models_prompt_is_wrapped_in_its_template() {
    let folder = Folder::new("instruct");
    let model = folder.0.join("tiny-Instruct");
    std::fs::create_dir(&model).unwrap();
    let story = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models/story-230k");
    for file in std::fs::read_dir(story).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
    }
    let template = "{% for m in messages %}Tell me: {{ m.content }}.<|endoftext|>{% endfor %}";
    std::fs::write(model.join("chat_template.jinja"), template).unwrap();
    let model = model.to_str().unwrap();
    let run = |flags: &[&str]| {
        let flags = [&["--model", model, "--max-new-tokens", "8", "-p"], flags].concat();
        let output = command(&flags).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{}", text(output.stderr));
        (text(output.stdout), text(output.stderr))
    };
    let (asked, said) = run(&["a story"]);
    assert!(asked.starts_with("a story\n\n"), "{asked}");
    assert!(said.contains("the prompt goes through the model's chat template; --raw"), "{said}");
    let (same, said) = run(&["Tell me: a story.<|endoftext|>", "--raw"]);
    assert!(!said.contains("template"), "{said}");
    let answer = asked.strip_prefix("a story\n\n").unwrap();
    assert_eq!(same, format!("Tell me: a story.{answer}"));
    // Two prompts after one -p, each with its own answer.
    let (two, _) = run(&["a story", "a song"]);
    assert!(two.starts_with(&asked) && two.contains("\na song\n\n"), "{two}");
    let ids = command(&["--model", model, "--prompt-ids", "428", "--max-new-tokens", "2"]).output();
    assert!(!String::from_utf8(ids.unwrap().stderr).unwrap().contains("template"));
}

#[test]
fn a_failing_template_is_reported_before_weights_are_read() {
    let folder = Folder::new("instruct-fails");
    let model = folder.0.join("tiny-chat");
    std::fs::create_dir(&model).unwrap();
    let story = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models/story-230k");
    for file in ["config.json", "tokenizer.json"] {
        std::fs::copy(story.join(file), model.join(file)).unwrap();
    }
    std::fs::write(model.join("chat_template.jinja"), "{{ raise_exception('no questions') }}")
        .unwrap();
    std::fs::write(model.join("model.safetensors"), "damaged").unwrap();
    let output = command(&["--model", model.to_str().unwrap(), "-p", "a story"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("chat_template.jinja") && said.contains("no questions"), "{said}");
}

#[test]
fn nanogpt_prompt_syntax_points_to_the_prompt_file_flag() {
    let output = command(&["-p", "FILE:prompt.txt"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--prompt-file prompt.txt reads the file"), "{said}");
}

/// A list with commas is one long word that no text contains, so without a warning it would
/// silently block nothing.
#[test]
fn a_block_list_with_commas_prints_a_note() {
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
        command.args(["--model", story().to_str().unwrap(), "-p", "Once", "--max-new-tokens", "1"]);
        let out = command.arg("--block").args(words).output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    for list in ["war, conflict, fight", "war,conflict"] {
        let said = run(&[list]);
        assert!(said.contains("is one text, commas included; to block each word"), "{said}");
    }
    assert!(!run(&["war", "conflict"]).contains("note"));
}
