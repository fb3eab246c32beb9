//! Bad input: each gets one clear message that says what to do, exit code 2 (usage) or 1, and no panic.
//!
//! Runs the `candecode` command itself, with the reference: `cargo test --features ref --test bad_input`.

#![cfg(feature = "ref")]

#[path = "said/mod.rs"]
mod said;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn story() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/story-230k")
}

/// A copy of a small model in a folder of its own, for a test to damage.
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

    fn remove(self, file: &str) -> Self {
        fs::remove_file(self.0.join(file)).unwrap();
        self
    }

    /// Replaces one `"key": value` of config.json.
    fn config(self, key: &str, value: serde_json::Value) -> Self {
        let path = self.0.join("config.json");
        let mut config: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        config[key] = value;
        fs::write(path, config.to_string()).unwrap();
        self
    }

    /// A copy of another embedded model.
    fn of(model: &str, test: &str) -> Self {
        let folder = Self::new(test);
        for file in fs::read_dir(story().with_file_name(model)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.0.join(file.file_name())).unwrap();
        }
        folder
    }

    /// Makes number `at` of a tensor of model.safetensors, all of bf16, these bits.
    fn number(self, tensor: &str, at: usize, bits: u16) -> Self {
        self.weights(|bytes| {
            let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
            assert_eq!(json[tensor]["dtype"], "BF16", "{tensor}");
            let begin = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
            let place = 8 + header + begin + 2 * at;
            bytes[place..place + 2].copy_from_slice(&bits.to_le_bytes());
        })
    }

    fn weights(self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let path = self.0.join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
        self
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

/// The command must fail with this code, and say every one of these words, on few lines and without a panic.
#[track_caller]
fn fails(output: Output, code: i32, says: &[&str]) {
    fails_with(&[], output, code, says);
}

#[track_caller]
fn fails_with(args: &[&str], output: Output, code: i32, says: &[&str]) {
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for words in says {
        assert!(text.contains(words), "expected \"{words}\" in: {text}");
    }
    for never in ["panicked", "backtrace", "stack", "RUST_BACKTRACE"] {
        assert!(!text.contains(never), "\"{never}\" in: {text}");
    }
    assert!(text.lines().count() < 12, "too long: {text}");
    said::keep(args, code, &text);
}

#[track_caller]
fn refused(args: &[&str], code: i32, says: &[&str]) {
    fails_with(args, command(args).output().unwrap(), code, says);
}

#[track_caller]
fn folder_refused(folder: Folder, says: &[&str]) {
    refused(&["--model", folder.path(), "-p", "Once"], 1, says);
}

#[test]
fn an_unknown_model_lists_the_known_ones() {
    refused(
        &["--model", "story-9b", "-p", "Once"],
        1,
        &["unknown model \"story-9b\"", "story-3m", "owner/repo"],
    );
    refused(&["--model", "../models/nowhere", "-p", "Once"], 1, &["unknown model"]);
}

#[test]
fn a_folder_without_a_file_names_it() {
    folder_refused(
        Folder::new("no-config").remove("config.json"),
        &["no config.json", "as in a Hugging Face repository"],
    );
    folder_refused(Folder::new("no-tokenizer").remove("tokenizer.json"), &["no tokenizer.json"]);
    folder_refused(
        Folder::new("no-weights").remove("model.safetensors"),
        &["no model.safetensors"],
    );
}

/// Who gives ids and wants ids needs no tokenizer; who looks at text does.
#[test]
fn a_folder_without_a_tokenizer_runs_on_ids() {
    let run = |folder: &Folder, more: &[&str]| {
        let ids = ["--prompt-ids", "5,6,7", "--format", "json", "--max-new-tokens", "9"];
        command(&[&["--model", folder.path()], &ids[..], more].concat()).output().unwrap()
    };
    let tokens = |folder: &Folder| {
        let output = run(folder, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["new_ids"].clone()
    };
    let (with, without) = (Folder::new("ids"), Folder::new("ids-only").remove("tokenizer.json"));
    assert_eq!(tokens(&without), tokens(&with));
    assert_eq!(tokens(&without).as_array().unwrap().len(), 9);
    fails(run(&without, &["--stop", "."]), 1, &["no tokenizer.json"]);
    refused(&["--model", without.path(), "--prompt-ids", "5"], 1, &["no tokenizer.json"]);
}

#[test]
fn damaged_weights_are_refused() {
    let half = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    folder_refused(
        Folder::new("half").weights(half),
        &["cut short or damaged", "fetch the file again"],
    );
    folder_refused(Folder::new("empty").weights(Vec::clear), &["cut short or damaged"]);
    let header = |bytes: &mut Vec<u8>| bytes[..8].fill(0xff);
    folder_refused(Folder::new("header").weights(header), &["cut short or damaged"]);
    let json = |bytes: &mut Vec<u8>| bytes[8..40].fill(b'x');
    folder_refused(Folder::new("json").weights(json), &["cut short or damaged"]);
}

#[test]
fn a_damaged_tokenizer_is_refused() {
    let folder = Folder::new("tokenizer");
    fs::write(folder.0.join("tokenizer.json"), "{}").unwrap();
    folder_refused(folder, &["tokenizer.json", "not a tokenizer"]);
}

#[test]
fn a_tensor_that_is_missing_or_of_another_shape_is_named() {
    let rename = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(17).position(|w| w == b"model.norm.weight").unwrap();
        bytes[at..at + 17].copy_from_slice(b"model.warm.weight");
    };
    folder_refused(Folder::new("missing").weights(rename), &["model.norm.weight is missing"]);
    let folder = Folder::new("shape").config("intermediate_size", 200.into());
    folder_refused(folder, &["mlp.gate_proj.weight", "[192, 64]", "[200, 64]"]);
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    for (key, value, says) in [
        ("num_attention_heads", 0.into(), "num_attention_heads is 0"),
        ("num_attention_heads", 3.into(), "num_attention_heads 3 does not divide"),
        ("num_key_value_heads", 0.into(), "num_key_value_heads is 0"),
        ("hidden_size", 0.into(), "hidden_size is 0"),
        ("num_hidden_layers", 0.into(), "num_hidden_layers is 0"),
        ("hidden_size", serde_json::json!(1u64 << 60), "no model has"),
        ("vocab_size", serde_json::json!(u64::MAX), "no model has"),
        ("hidden_size", "64".into(), "expected usize"),
        ("hidden_size", serde_json::json!(-64), "expected usize"),
        ("hidden_size", serde_json::Value::Null, "no hidden_size"),
        ("rms_norm_eps", 0.0.into(), "epsilon"),
        ("rope_parameters", serde_json::json!({"rope_theta": -1.0}), "rope_theta is -1"),
        ("rope_parameters", serde_json::json!({"rope_type": "yarn"}), "rope_type is \"yarn\";"),
        ("eos_token_id", "end".into(), "eos_token_id"),
        ("hidden_act", "relu".into(), "relu"),
        ("use_sliding_window", true.into(), "use_sliding_window"),
        ("model_type", "mamba".into(), "model_type is \"mamba\""),
        ("model_type", serde_json::Value::Null, "no model_type"),
        ("model_type", 7.into(), "expected a string"),
    ] {
        let folder = Folder::new("config").config(key, value);
        folder_refused(folder, &["config.json", says]);
    }
    let folder = Folder::new("not-json");
    fs::write(folder.0.join("config.json"), "hidden_size = 64").unwrap();
    folder_refused(folder, &["config.json", "not a model configuration"]);
}

#[test]
fn a_bad_prompt_is_refused() {
    refused(&[], 2, &["no prompt"]);
    refused(&["-p", ""], 2, &["the prompt is empty"]);
    refused(
        &["--prompt-file", "/nowhere/prompt.txt"],
        1,
        &["/nowhere/prompt.txt", "could not be read"],
    );
    refused(&["-p", "a", "-p", "", "-p", "b"], 2, &["prompt 2 of 3: the prompt is empty"]);
    refused(&["-p", "", "-p", ""], 2, &["prompt 1 of 2: the prompt is empty"]);
    refused(&["--prompt-ids", "5,x"], 2, &["invalid value 'x'"]);
    refused(&["--prompt-ids", "5,99999"], 1, &["token id 99999 is not in the vocabulary of 2048"]);
    let long = "once upon a time ".repeat(400);
    refused(&["-p", &long], 1, &["tokens long", "the context 512", "shorten it"]);
    refused(&["-p", "a", "-p", &long], 1, &["prompt 2 of 2: the prompt is", "the context 512"]);
    refused(&["-p", &long, "--loop", "day6"], 1, &["tokens long", "the context 512"]);
}

#[test]
fn bad_flags_are_usage_errors() {
    refused(&["-p", "Once", "--max-new-tokens", "0"], 2, &["--max-new-tokens is 0"]);
    refused(&["-p", "Once", "--max-new-tokens", "many"], 2, &["many"]);
    refused(
        &["-p", "Once", "--device", "tpu"],
        2,
        &["unknown device \"tpu\"", "cpu, metal or cuda"],
    );
    refused(&["-p", "Once", "--dtype", "f8"], 2, &["unknown dtype \"f8\""]);
    refused(&["-p", "Once", "--format", "yaml"], 2, &["yaml"]);
    refused(&["-p", "Once", "--loop", "day99"], 2, &["--loop day99"]);
    refused(&["-p", "Once", "--nonsense"], 2, &["--nonsense"]);
    refused(&["-p", "Once", "--prompt-ids", "1"], 2, &["cannot be used with"]);
}

#[test]
fn parameters_out_of_range_are_usage_errors() {
    for (flags, says) in [
        (&["--temperature", "-1"][..], "temperature must be a finite number above 0"),
        (&["--temperature", "NaN"], "temperature must be a finite number above 0"),
        (&["--top-p", "0"], "top_p must be in (0, 1]"),
        (&["--top-p", "1.2"], "top_p must be in (0, 1]"),
        (&["--top-k", "-3"], "--top-k must be at least 1"),
        (&["--min-p", "2"], "min_p must be in [0, 1]"),
        (&["--num-beams", "0"], "--num-beams is 0"),
        (&["--num-beams", "2", "--num-return-sequences", "3"], "more than --num-beams"),
        (&["--num-return-sequences", "2"], "would give the same text again"),
        (&["--rng", "torch"], "--rng is for sampling"),
        (&["--draft-ngram", "--num-beams", "2"], "do not go together"),
        (
            &["--draft-model", "story-230k", "--cache", "sliding"],
            "cannot take back rejected drafts",
        ),
        (
            &["--draft-model", "story-230k", "--rng", "torch", "--temperature", "1"],
            "need --rng chacha",
        ),
        (&["--block", ""], "a word is empty"),
        (&["--allow-regex", "("], "is refused"),
    ] {
        refused(&[&["-p", "Once"], flags].concat(), 2, &[says]);
    }
}

/// A NaN in bf16, and the largest number there is.
const NAN: u16 = 0x7fc0;
const HUGE: u16 = 0x7f7f;

#[test]
fn logits_that_are_nan_name_the_step_and_the_layer() {
    for (model, tensor, says) in [
        (
            "story-3m",
            "model.layers.2.mlp.down_proj.weight",
            "layer 2's output is the first with NaN, from its MLP (model.layers.2)",
        ),
        (
            "story-230k",
            "model.layers.1.self_attn.k_proj.weight",
            "layer 1's output is the first with NaN, from its attention (model.layers.1)",
        ),
        (
            "story-gpt2-1m",
            "transformer.h.3.mlp.c_fc.weight",
            "layer 3's output is the first with NaN, from its MLP (transformer.h.3)",
        ),
        ("story-230k", "model.norm.weight", "the last norm's or the head's is not"),
    ] {
        let folder = Folder::of(model, "nan").number(tensor, 5, NAN);
        let path = folder.path().to_string();
        // "Once" is one token, so the first step stands at position 0.
        let says =
            ["logits are NaN at step 1, position 0: ", says, "is the file damaged? fetch it again"];
        refused(&["--model", &path, "-p", "Once"], 1, &[&path, says[0], says[1], says[2]]);
    }
}

#[test]
fn every_loop_finds_where_nan_comes_from() {
    let folder =
        Folder::of("story-3m", "nan-loops").number("model.layers.2.mlp.down_proj.weight", 5, NAN);
    let says = ["logits are NaN at step 1", "layer 2's output is the first with NaN, from its MLP"];
    for flags in [
        &["--loop", "day6"][..],
        &["--no-cache"],
        &["--cache", "static"],
        &["--cache", "sliding"],
        &["--temperature", "1", "--top-k", "5"],
        &["--num-beams", "3"],
        &["-p", "Lily and Tom"],
        &["--draft-ngram"],
        &["--loop", "day15", "-p", "Lily and Tom"],
    ] {
        let args = [&["--model", folder.path(), "-p", "Once upon a time"], flags].concat();
        refused(&args, 1, &says);
    }
}

#[test]
fn nan_of_the_draft_model_is_its_own() {
    let folder = Folder::new("nan-draft").number("model.layers.0.mlp.up_proj.weight", 5, NAN);
    let flags = ["-p", "Once", "--draft-model", folder.path()];
    let says = format!("--draft-model {}: logits are NaN", folder.path());
    refused(&flags, 1, &[&says, "layer 0's output is the first with NaN"]);
}

#[test]
fn nan_that_comes_late_is_found_at_its_step() {
    // The embedding of one position: only the step that comes to it meets it, and the cache holds what was before.
    let folder = Folder::of("story-gpt2-1m", "nan-late");
    let folder = folder.number("transformer.wpe.weight", 6 * 128 + 3, NAN); // position 6, 128 wide
    let late = |flags: &[&str], says: &str| {
        let prompt = ["--model", folder.path(), "-p", "Once upon a", "--max-new-tokens", "9"];
        let says = format!("logits are NaN at step 5, position 6{says}: the embedding of token");
        refused(&[&prompt, flags].concat(), 1, &[&says]);
    };
    late(&["--cache", "dynamic"], "");
    late(&["--cache", "static"], "");
    late(&["--no-cache"], "");
    late(&["--num-beams", "2"], ", row 0 of 2");
    // Two rows: the longer one meets it first.
    let args = [
        "--model",
        folder.path(),
        "-p",
        "Once",
        "-p",
        "Once upon a time, there",
        "--max-new-tokens",
        "9",
    ];
    refused(
        &args,
        1,
        &["logits are NaN at step 2, position 6, row 1 of 2: the embedding of token"],
    );
}

#[test]
fn an_infinity_before_the_nan_is_said() {
    let mut folder = Folder::new("huge");
    for at in 0..64 {
        folder = folder.number("model.layers.1.mlp.down_proj.weight", at, HUGE);
    }
    for at in 0..64 {
        folder = folder.number("model.layers.1.mlp.up_proj.weight", at, HUGE);
    }
    let path = folder.path().to_string();
    let says = "layer 1's output is the first with NaN, from its MLP (model.layers.1)";
    refused(&["--model", &path, "-p", "Once"], 1, &["logits are NaN at step 1", says]);
    refused(&["--model", &path, "-p", "Once", "--dtype", "f16"], 1, &["try --dtype bf16 or f32"]);
}

#[test]
fn what_a_layer_makes_of_an_infinity_is_found_at_a_later_step() {
    let infinity = 0x7f80;
    let folder = Folder::of("story-gpt2-1m", "infinity");
    let folder = folder.number("transformer.wpe.weight", 6 * 128 + 3, infinity);
    let says = "layer 0's output is the first with NaN, from its attention (transformer.h.0), after an infinity in the embedding";
    for flags in [&["--cache", "dynamic"][..], &["--cache", "static"], &["--no-cache"]] {
        let prompt = ["--model", folder.path(), "-p", "Once upon a", "--max-new-tokens", "9"];
        refused(&[&prompt, flags].concat(), 1, &["logits are NaN at step 5, position 6", says]);
    }
}

#[test]
fn what_does_not_fit_the_memory_is_refused_before_it_is_loaded() {
    let run = |flags: &[&str], memory: &str| {
        let mut run =
            command(&[&["-p", "Once upon a time", "--model", "story-230k"], flags].concat());
        run.env("CANDECODE_MEMORY", memory).output().unwrap()
    };
    let many = ["--temperature", "1", "--num-return-sequences", "64", "--max-new-tokens", "300"];
    fails(
        run(&many, "8M"),
        1,
        &[
            "of memory, and 8.0 MB are available",
            "weights",
            "cache",
            "64 rows × 304 tokens",
            "it fits with --num-return-sequences",
        ],
    );
    fails(run(&[], "100k"), 1, &["take a smaller --model"]);
    fails(run(&["--cache", "static", "--num-beams", "9"], "3M"), 1, &["9 rows × 512 tokens"]);
    fails(run(&[], "plenty"), 2, &["CANDECODE_MEMORY is \"plenty\"", "8G or 500M"]);
    // The flags that it names do it.
    let text = String::from_utf8(run(&many, "8M").stderr).unwrap();
    let ways = text.split("it fits with ").nth(1).unwrap().trim().split(", or with ");
    for way in ways.clone() {
        let way: Vec<&str> = way.split(' ').collect();
        let kept = many.chunks(2).filter(|flag| flag[0] != way[0]).flatten().copied();
        let output = run(&kept.chain(way.clone()).collect::<Vec<_>>(), "8M");
        assert!(output.status.success(), "{way:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(ways.count(), 3, "{text}");
}

#[test]
fn what_a_model_wishes_is_noted_and_not_done() {
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
    let says = "note: generation_config.json asks for do_sample=true, temperature=3, top_k=2000; the command does only what its flags say; for the same add --temperature 3 --top-k 2000";
    assert!(err.contains(says), "{err}");
    let [text, err] = run(&["--temperature", "3", "--top-k", "2000"]);
    assert!(text != greedy && !err.contains("note"), "{err}");
}

/// Both weights are damaged: had a model been read, let alone run, the message would be of that.
#[test]
fn a_draft_with_another_tokenizer_is_refused_before_a_model_is_read() {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(100);
    let (target, other) = (Folder::new("target").weights(cut), Folder::new("other").weights(cut));
    let path = other.0.join("tokenizer.json");
    let mut tokenizer: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    // Two tokens change places; which ones is for the message to say.
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let piece = |id: u64| vocab.iter().find(|(_, v)| **v == id).unwrap().0.clone();
    let (a, b) = (piece(1000), piece(1001));
    vocab[&a] = 1001.into();
    vocab[&b] = 1000.into();
    fs::write(&path, tokenizer.to_string()).unwrap();
    let args = ["-p", "Once", "--model", target.path(), "--draft-model", other.path()];
    let output = command(&args).output().unwrap();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("[loop:"));
    let says = ["--draft-model", "must have its target's tokenizer", "token 1000 is"];
    fails(output, 2, &says);

    let fewer = Folder::new("fewer").weights(cut).config("vocab_size", 2050.into());
    let args = ["-p", "Once", "--model", target.path(), "--draft-model", fewer.path()];
    refused(&args, 2, &["--draft-model", "vocab_size is 2050", "the target's 2048"]);
    refused(
        &["-p", "Once", "--draft-model", "story-9b"],
        1,
        &["unknown model \"story-9b\"", "story-230k"],
    );
}

#[test]
fn a_draft_as_large_as_its_target_is_a_warning() {
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

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_this_build_lacks_is_said() {
    refused(&["-p", "Once", "--device", "cuda"], 2, &["this build has no cuda", "--device cpu"]);
}

#[test]
fn the_models_folder_may_be_elsewhere_and_must_exist() {
    let mut run = command(&["-p", "Once"]);
    fails(
        run.env("CANDECODE_MODELS", "/nowhere").output().unwrap(),
        1,
        &["CANDECODE_MODELS is /nowhere"],
    );
}

#[test]
fn the_hub_out_of_reach_names_the_way_on() {
    let home = std::env::temp_dir().join(format!("candecode-hub-{}", std::process::id()));
    let mut run = command(&["--model", "gpt2", "-p", "Once"]);
    run.env("HF_HOME", &home).env("HF_ENDPOINT", "http://127.0.0.1:9");
    fails(
        run.output().unwrap(),
        1,
        &["could not fetch config.json", "--model story-3m needs no network"],
    );
    run.env("HF_HUB_OFFLINE", "1");
    fails(run.output().unwrap(), 1, &["HF_HUB_OFFLINE is set"]);
    let _ = fs::remove_dir_all(home);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_for_the_output_is_said() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(&["-p", "Once", "--max-new-tokens", "4"]).stdout(full).output().unwrap();
    fails(output, 1, &["could not write to standard output"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_text_cleanly() {
    use std::io::Read;
    let mut run =
        command(&["-p", "Once", "--max-new-tokens", "100000", "--model", "story-gpt2-1m"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 8]; // the prompt is out, so the loop is at work
    out.read_exact(&mut first).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.ends_with('\n'), "the line was not ended: {rest:?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut run = command(&["-p", "Once", "--max-new-tokens", "200"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !text.contains("error"), "{text}");
}
