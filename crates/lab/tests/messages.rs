//! Tests the book's page of error messages: runs every command on it, and compares the output and
//! the exit code with what the page shows.
//!
//! `cargo xtask book --refresh` updates the page. This file creates the models, files and servers that
//! the commands name, each with one thing wrong. `messages/` has more cases, which wouldn't help a
//! reader. The test runs only on Linux, because some messages quote the operating system.
#![cfg(target_os = "linux")]

#[path = "page/gguf_writer.rs"]
mod gguf_writer;

use candecode_course::Repo;
use candecode_remote::test_servers::hub::{Fault, Hub, Large};
use candecode_remote::test_servers::openai::{Manner, OpenAiServer};
use candle_core::{Device, Tensor};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// NaN, infinity and the largest finite number in bf16.
const NAN: u16 = 0x7fc0;
const INFINITY: u16 = 0x7f80;
const HUGE: u16 = 0x7f7f;

/// Configurations with one thing wrong: the folder's name, the model to copy, and the keys to set.
/// A null value stands in for a missing key.
const CONFIGS: &[(&str, &str, &str)] = &[
    ("no-heads", "story-230k", r#"{"num_attention_heads": 0}"#),
    ("three-heads", "story-230k", r#"{"num_attention_heads": 3}"#),
    ("no-key-value-heads", "story-230k", r#"{"num_key_value_heads": 0}"#),
    ("no-width", "story-230k", r#"{"hidden_size": 0}"#),
    ("no-layers", "story-230k", r#"{"num_hidden_layers": 0}"#),
    ("too-wide", "story-230k", r#"{"hidden_size": 1152921504606846976}"#),
    ("too-many-words", "story-230k", r#"{"vocab_size": 18446744073709551615}"#),
    ("width-in-quotes", "story-230k", r#"{"hidden_size": "64"}"#),
    ("negative-width", "story-230k", r#"{"hidden_size": -64}"#),
    ("width-left-out", "story-230k", r#"{"hidden_size": null}"#),
    ("no-epsilon", "story-230k", r#"{"rms_norm_eps": 0.0}"#),
    ("negative-theta", "story-230k", r#"{"rope_parameters": {"rope_theta": -1.0}}"#),
    ("yarn", "story-230k", r#"{"rope_parameters": {"rope_type": "yarn"}}"#),
    ("end-in-words", "story-230k", r#"{"eos_token_id": "end"}"#),
    ("relu", "story-230k", r#"{"hidden_act": "relu"}"#),
    (
        "sliding-window",
        "story-230k",
        r#"{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1, "layer_types": null}"#,
    ),
    ("mamba", "story-230k", r#"{"model_type": "mamba"}"#),
    ("no-type", "story-230k", r#"{"model_type": null}"#),
    ("type-7", "story-230k", r#"{"model_type": 7}"#),
    ("unscaled", "story-gpt2-1m", r#"{"scale_attn_weights": false}"#),
    ("scaled-by-layer", "story-gpt2-1m", r#"{"scale_attn_by_inverse_layer_idx": true}"#),
    ("gpt2-relu", "story-gpt2-1m", r#"{"activation_function": "relu"}"#),
    ("sliding-layers", "story-230k", r#"{"layer_types": ["full_attention", "sliding_attention"]}"#),
    ("linear-rope", "story-230k", r#"{"rope_scaling": {"type": "linear", "factor": 2.0}}"#),
    (
        "rope-by-layer",
        "story-230k",
        r#"{"rope_parameters": {"full_attention": {"rope_theta": 5}}}"#,
    ),
    ("partial-rope", "story-230k", r#"{"partial_rotary_factor": 0.25}"#),
    ("rope-8", "story-230k", r#"{"rope_scaling": 8.0}"#),
    (
        "llama3-rope",
        "story-230k",
        r#"{"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 1.0,
            "factor": 8.0, "original_max_position_embeddings": 16}}"#,
    ),
    ("gptq", "story-230k", r#"{"quantization_config": {"quant_method": "gptq"}}"#),
    ("other-shape", "story-230k", r#"{"intermediate_size": 200}"#),
];

/// A tensor's name, the indices to change, and the bits to store there.
type Numbers = (&'static str, std::ops::Range<usize>, u16);
/// Weights with some wrong numbers: the folder's name, the model to copy, and the changes.
const NUMBERS: &[(&str, &str, &[Numbers])] = &[
    ("nan-in-mlp", "story-3m", &[("model.layers.2.mlp.down_proj.weight", 5..6, NAN)]),
    ("nan-in-attention", "story-230k", &[("model.layers.1.self_attn.k_proj.weight", 5..6, NAN)]),
    ("nan-in-gpt2", "story-gpt2-1m", &[("transformer.h.3.mlp.c_fc.weight", 5..6, NAN)]),
    ("nan-in-norm", "story-230k", &[("model.norm.weight", 5..6, NAN)]),
    ("nan-in-draft", "story-230k", &[("model.layers.0.mlp.up_proj.weight", 5..6, NAN)]),
    // The embedding of position 6, 128 wide. Only the step that reaches this position reads it.
    ("nan-at-position-6", "story-gpt2-1m", &[("transformer.wpe.weight", 771..772, NAN)]),
    ("infinity-at-position-6", "story-gpt2-1m", &[("transformer.wpe.weight", 771..772, INFINITY)]),
    (
        "huge-weights",
        "story-230k",
        &[
            ("model.layers.1.mlp.down_proj.weight", 0..64, HUGE),
            ("model.layers.1.mlp.up_proj.weight", 0..64, HUGE),
        ],
    ),
];

/// Hubs with one fault each: the repository's name on the page, the request method, the file, and
/// the fault.
const HUBS: &[(&str, &str, &str, Fault)] = &[
    ("login", "PROBE", "config.json", Fault::Login),
    ("teapot", "PROBE", "config.json", Fault::Status(418, "x: y")),
    ("nowhere", "PROBE", "config.json", Fault::Status(302, "x: y")),
    (
        "odd-commit",
        "PROBE",
        "config.json",
        Fault::Status(206, "x-repo-commit: ../../etc\r\netag: abc\r\ncontent-range: bytes 0-0/9"),
    ),
    ("gated", "PROBE", "config.json", Fault::Status(401, "x-error-code: GatedRepo")),
    (
        "old-token",
        "PROBE",
        "config.json",
        Fault::Status(401, "x-error-message: Invalid credentials"),
    ),
    ("private", "PROBE", "config.json", Fault::Status(403, "x: y")),
    ("busy", "PROBE", "config.json", Fault::Status(429, "retry-after: 0")),
    ("troubled", "GET", "model.safetensors", Fault::Status(503, "retry-after: 0")),
    ("damaged", "GET", "model.safetensors", Fault::OtherBytes),
    ("longer", "GET", "model.safetensors", Fault::OtherLength),
    ("without-config", "PROBE", "config.json", Fault::Status(404, "x-error-code: EntryNotFound")),
    (
        "without-tokenizer",
        "PROBE",
        "tokenizer.json",
        Fault::Status(404, "x-error-code: EntryNotFound"),
    ),
    (
        "without-weights",
        "PROBE",
        "model.safetensors",
        Fault::Status(404, "x-error-code: EntryNotFound"),
    ),
];

/// Servers for `--endpoint`: their name on the page, and how they answer. Most have one fault.
const ENDPOINTS: &[(&str, Manner)] = &[
    ("vllm", Manner::Well("vllm")),
    ("llama-server", Manner::Well("llamacpp")),
    ("locked", Manner::Key),
    ("two-models", Manner::TwoModels),
    ("nameless", Manner::NoList),
    ("router", Manner::Page),
    ("breaks", Manner::Breaks),
    ("dies", Manner::ErrorInside),
    (
        "strict",
        Manner::Status(
            400,
            "",
            r#"{"error":{"message":"max_tokens: 99999 is more than the context of 2048"}}"#,
        ),
    ),
    (
        "busy",
        Manner::Status(
            429,
            "retry-after: 2\r\n",
            r#"{"error":{"message":"the queue of 128 requests is full"}}"#,
        ),
    ),
    ("chats-only", Manner::Status(404, "", r#"{"detail":"Not Found"}"#)),
];

/// The repository's root, and the folder for the page's models, files and caches.
struct Page {
    root: PathBuf,
    folder: PathBuf,
}

impl Page {
    /// Copies an embedded model and returns the copy's folder.
    fn copy(&self, name: &str, model: &str) -> PathBuf {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        for file in fs::read_dir(self.root.join("models").join(model)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        folder
    }

    fn without(&self, name: &str, file: &str) {
        fs::remove_file(self.copy(name, "story-230k").join(file)).unwrap();
    }

    fn with_file(&self, name: &str, file: &str, text: impl AsRef<[u8]>) {
        fs::write(self.copy(name, "story-230k").join(file), text).unwrap();
    }

    fn with_weights(&self, name: &str, model: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.copy(name, model).join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    /// Copies a model and sets keys in its config.json. A null value stands in for a missing key.
    fn with_config(&self, name: &str, model: &str, changes: &str) {
        let path = self.copy(name, model).join("config.json");
        let mut config = read_json(&path);
        let changes: Value = serde_json::from_str(changes).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        fs::write(path, config.to_string()).unwrap();
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Stores the bits at the given indices of a bf16 tensor.
fn set_numbers(bytes: &mut [u8], (tensor, places, bits): &Numbers) {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    assert_eq!(json[tensor]["dtype"], "BF16", "{tensor}");
    let begin = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    for place in places.clone() {
        let at = 8 + header + begin + 2 * place;
        bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
}

fn make_models(page: &Page) {
    for (name, model, changes) in CONFIGS {
        page.with_config(name, model, changes);
    }
    for (name, model, numbers) in NUMBERS {
        let set = |bytes: &mut Vec<u8>| numbers.iter().for_each(|n| set_numbers(bytes, n));
        page.with_weights(name, model, set);
    }
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        page.without(&format!("without-{file}"), file);
    }
    const POINTER: &str =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 587120\n";
    page.with_file("lfs-pointer", "model.safetensors", POINTER);
    page.with_file("login-page", "tokenizer.json", "<!DOCTYPE html><title>Sign in</title>");
    page.with_file("config-of-another-kind", "config.json", "hidden_size = 64");
    page.with_file(
        "end-in-generation-config",
        "generation_config.json",
        r#"{"eos_token_id": "end"}"#,
    );
    page.with_file("cut-generation-config", "generation_config.json", "{");
    page.with_file("tokenizer-of-another-kind", "tokenizer.json", "{}");
    page.with_weights("half-the-weights", "story-230k", |bytes| bytes.truncate(bytes.len() / 2));
    page.with_weights("empty-weights", "story-230k", Vec::clear);
    page.with_weights("damaged-length", "story-230k", |bytes| bytes[..8].fill(0xff));
    page.with_weights("damaged-header", "story-230k", |bytes| bytes[8..40].fill(b'x'));
    page.with_weights("another-name", "story-230k", |bytes| {
        let at = bytes.windows(17).position(|w| w == b"model.norm.weight").unwrap();
        bytes[at..at + 17].copy_from_slice(b"model.warm.weight");
    });
    make_index(page, "missing-shard", &json!({"weight_map": {"a": "model-2.safetensors"}}));
    make_index(page, "empty-index", &json!({"weight_map": {}}));
    make_index(page, "index-of-numbers", &json!({"weight_map": {"a": 7}}));
    make_index(page, "index-to-elsewhere", &json!({"weight_map": {"a": "../b.safetensors"}}));
    make_drafts(page);
    for (name, text) in [
        ("long.txt", "once upon a time ".repeat(400)),
        ("empty.gguf", String::new()),
        ("words.txt", "cat\n\ndog\n".into()),
        ("no-folder", String::new()),
    ] {
        fs::write(page.folder.join(name), text).unwrap();
    }
    gguf_writer::write_all(&page.copy("my-model", "story-230k"), &page.folder);
    let two = page.folder.join("two-files");
    std::fs::create_dir_all(&two).unwrap();
    for name in ["model-f16.gguf", "model-q8_0.gguf"] {
        std::fs::copy(page.folder.join("experts.gguf"), two.join(name)).unwrap();
    }
    page.with_weights("integers", "story-230k", |bytes| {
        let at = bytes.windows(6).position(|w| w == b"\"BF16\"").unwrap();
        bytes[at..at + 6].copy_from_slice(b"\"I16\" ");
    });
}

/// Makes a model whose weights are sharded according to this index.
fn make_index(page: &Page, name: &str, index: &Value) {
    page.without(name, "model.safetensors");
    let path = page.folder.join(name).join("model.safetensors.index.json");
    fs::write(path, index.to_string()).unwrap();
}

/// Makes draft models, tables and heads that don't match the target. The models' weights are
/// damaged, which shows that the mismatch is reported before any weights are read.
fn make_drafts(page: &Page) {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(100);
    page.with_weights("target", "story-230k", cut);
    page.with_weights("another-tokenizer", "story-230k", cut);
    let path = page.folder.join("another-tokenizer/tokenizer.json");
    let mut tokenizer = read_json(&path);
    // Swap two tokens, which the message must name.
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let piece = |id: u64| vocab.iter().find(|(_, v)| **v == id).unwrap().0.clone();
    let (a, b) = (piece(1000), piece(1001));
    vocab[&a] = 1001.into();
    vocab[&b] = 1000.into();
    fs::write(&path, tokenizer.to_string()).unwrap();
    let table = |tokenizer: &str| {
        let format = "candecode n-grams, version 1";
        json!({"format": format, "tokenizer": tokenizer, "rows": [[5, 9]]}).to_string()
    };
    fs::write(page.folder.join("other.ngrams.json"), table("0123456789abcdef")).unwrap();
    fs::write(page.folder.join("damaged.ngrams.json"), &table("")[..40]).unwrap();
    fs::write(page.folder.join("empty.txt"), "\n").unwrap();
    make_heads(page, "other-heads", 50_257, 0.0);
    make_heads(page, "nan-heads", 2048, f32::NAN);
}

/// Makes one Medusa head with story-230k's width, for a vocabulary of this size.
fn make_heads(page: &Page, name: &str, vocab_size: i64, bias: f32) {
    let full = |x: f32, shape: &[usize]| Tensor::full(x, shape, &Device::Cpu).unwrap();
    let tensors = HashMap::from([
        ("heads.0.weight", full(0.0, &[64, 64])),
        ("heads.0.bias", full(bias, &[64])),
        ("norm.weight", full(1.0, &[64])),
        ("vocab_size", Tensor::new(&[vocab_size], &Device::Cpu).unwrap()),
    ]);
    let file = page.folder.join(format!("{name}.safetensors"));
    candle_core::safetensors::save(&tensors, file).unwrap();
}

/// Starts the hubs and returns their addresses, by the model's name on the page.
fn start_hubs(root: &Path) -> HashMap<String, String> {
    let story = root.join("models/story-230k");
    let start = |(name, method, file, fault): &(&str, &'static str, &'static str, Fault)| {
        let hub = Hub::serve(&story, Large::Here).fault(method, file, usize::MAX, *fault);
        (format!("some/{name}"), hub.address)
    };
    let mut hubs: HashMap<_, _> = HUBS.iter().map(start).collect();
    let whole = Hub::serve(&story, Large::Here).address;
    hubs.extend(["some/half", "some/cache", "other/name"].map(|name| (name.into(), whole.clone())));
    hubs
}

/// A shell function in place of cargo for the page's commands.
const CARGO: &str = r#"
cargo() {
  case "$2" in
    run) "$CANDECODE" "${@:3}" ;;
    chat) "$CANDECODE" --chat "${@:3}" ;;
    *) cd "$ROOT" && "$XTASK" "${@:2}" ;;
  esac
}
"#;

/// An address where no server listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Everything that the page's commands need.
struct Stage {
    page: Page,
    candecode: PathBuf,
    xtask: PathBuf,
    hubs: HashMap<String, String>,
    endpoints: HashMap<String, String>,
}

impl Stage {
    fn set_up() -> Stage {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf();
        let repo = Repo::open(&root).unwrap();
        let candecode =
            built(&repo, &["--package", "candecode-cli", "--features", "ref"], "candecode");
        let xtask = built(&repo, &["--package", "xtask"], "xtask");
        let folder = std::env::temp_dir().join(format!("candecode-page-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("homes")).unwrap();
        let hubs = start_hubs(&root);
        let server = |(name, manner): &(&str, Manner)| {
            (name.to_string(), OpenAiServer::start(*manner).address)
        };
        let endpoints = ENDPOINTS.iter().map(server).collect();
        let page = Page { root, folder };
        make_models(&page);
        let stage = Stage { page, candecode, xtask, hubs, endpoints };
        // A cache with a file missing.
        let mut fetch = Command::new(&stage.candecode);
        fetch.args(["--model", "some/name", "--where"]).env("HF_HOME", stage.home("some/half"));
        let fetched = fetch.env("HF_ENDPOINT", &stage.hubs["some/half"]).output().unwrap();
        let fetched = PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim());
        fs::remove_file(fetched.join("tokenizer.json")).unwrap();
        stage
    }

    fn home(&self, model: &str) -> PathBuf {
        self.page.folder.join("homes").join(model.replace('/', "-") + "-home")
    }

    /// Runs a command. Returns the lines that the page shows below it: the exit code unless it's 0,
    /// and the output, with paths and addresses replaced by those on the page.
    fn shown(&self, typed: &str) -> Vec<String> {
        let after = |flag: &str| {
            let mut words = typed.split_whitespace().skip_while(|word| *word != flag);
            words.nth(1).unwrap_or_default().to_string()
        };
        let (model, server) = (after("--model"), after("--endpoint"));
        let hub = self.hubs.get(&model).map_or(NOWHERE, String::as_str);
        // The page refers to the test's servers by names such as `http://busy:8000`.
        let name = server.strip_prefix("http://").and_then(|rest| rest.strip_suffix(":8000"));
        let address = name.map(|name| self.endpoints.get(name).map_or(NOWHERE, String::as_str));
        let mut here = typed.to_string();
        if let Some(address) = address {
            here = here.replace(&server, address);
        }
        if model.starts_with("some/") {
            // Every test hub serves its repository under this name.
            here = here.replace(&model, "some/name");
        }
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("{CARGO}{here}")]).current_dir(&self.page.folder);
        bash.env("CANDECODE", &self.candecode).env("XTASK", &self.xtask);
        bash.env("ROOT", &self.page.root).env("NO_COLOR", "1").env_remove("OPENAI_API_KEY");
        bash.env("HF_HOME", self.home(&model)).env("HF_ENDPOINT", hub).stdin(Stdio::null());
        let output = bash.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut out, err) = (text(&output.stdout), text(&output.stderr));
        if !["run", "chat"].iter().any(|command| typed.contains(&format!("xtask {command} "))) {
            out = only_bad(&out);
        }
        let mut said = format!("{out}{}", from_error(&err));
        for (real, shown) in [
            (self.home(&model).display().to_string(), "~/.cache/huggingface"),
            (format!("{}/", self.page.folder.display()), ""),
            (format!("{}/", self.page.root.display()), ""),
            (address.unwrap_or("\0").to_string(), &server),
            (hub.to_string(), "https://huggingface.co"),
            ("some/name".to_string(), &model),
            ("models--some--name".to_string(), &format!("models--{}", model.replace('/', "--"))),
        ] {
            said = said.replace(&real, shown);
        }
        let code = output.status.code().unwrap_or(-1);
        let mut lines: Vec<String> =
            said.trim_end().lines().flat_map(|line| fold(line.trim_end())).collect();
        lines.splice(..0, (code != 0).then(|| format!("? {code}")));
        lines
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.page.folder);
    }
}

/// Builds one of the course's programs and returns its path.
fn built(repo: &Repo, args: &[&str], name: &str) -> PathBuf {
    let status = xtask::cargo::command(repo).arg("build").arg("--quiet").args(args).status();
    assert!(status.unwrap().success(), "cargo build {args:?}");
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    xtask::cargo::target_dir(repo).join("debug").join(name)
}

/// Returns a message from `error:` on, without the notes before it or the usage after it.
fn from_error(text: &str) -> String {
    let at = text.find("error:").filter(|at| *at == 0 || text[..*at].ends_with('\n'));
    let is_usage = |line: &&str| line.starts_with("Usage: ") || line.starts_with("For more info");
    let lines: Vec<&str> = text[at.unwrap_or(0)..].lines().take_while(|l| !is_usage(l)).collect();
    lines.join("\n")
}

/// Returns the doctor's lines about problems, each with the line about its fix.
fn only_bad(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let bad = lines.windows(2).filter(|pair| pair[0].starts_with("✗ bad:"));
    bad.map(|pair| format!("{}\n{}\n", pair[0], pair[1])).collect()
}

/// Wraps a line at 84 characters, the most that fits in the book without scrolling. All lines but
/// the first are indented.
fn fold(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, word) in line.split(' ').enumerate() {
        let last = lines.last_mut().unwrap();
        if last.trim().is_empty() || last.chars().count() + 1 + word.chars().count() <= 84 {
            *last += if at > 0 { " " } else { "" };
            *last += word;
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// Returns a page's commands, each with the range of lines below it.
fn cases(lines: &[String]) -> Vec<(String, Range<usize>)> {
    let (mut cases, mut inside) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(typed) = line.strip_prefix("$ ").filter(|_| inside) {
            let ends = |at: &usize| lines[*at].starts_with("$ ") || lines[*at].starts_with("```");
            let end = (at + 1..lines.len()).find(ends).unwrap();
            cases.push((typed.to_string(), at + 1..end));
        }
    }
    cases
}

#[test]
fn commands_print_what_the_page_shows() {
    let stage = Stage::set_up();
    let refresh = std::env::var_os("CANDECODE_REFRESH").is_some();
    let mut differ = Vec::new();
    let more = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/every_loop.md");
    for path in [stage.page.root.join("book/src/when_something_goes_wrong.md"), more] {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        let cases = cases(&lines);
        assert!(cases.len() > 10, "{}: {} commands", path.display(), cases.len());
        let stage = &stage;
        let said: Vec<Vec<String>> = std::thread::scope(|scope| {
            let run = |part| scope.spawn(move || shown_all(stage, part));
            let parts: Vec<_> = cases.chunks(cases.len().div_ceil(4)).map(run).collect();
            parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
        });
        for ((typed, body), said) in cases.into_iter().zip(said).rev() {
            if lines[body.clone()] != said {
                let shown = lines[body.clone()].join("\n");
                differ
                    .push(format!("$ {typed}\n{}\nbut the page shows\n{shown}\n", said.join("\n")));
                lines.splice(body, said);
            }
        }
        if refresh {
            fs::write(path, lines.join("\n") + "\n").unwrap();
        }
    }
    let all = differ.join("\n");
    assert!(refresh || differ.is_empty(), "{all}\n`cargo xtask book --refresh` rewrites the pages");
}

fn shown_all(stage: &Stage, cases: &[(String, Range<usize>)]) -> Vec<Vec<String>> {
    cases.iter().map(|(typed, _)| stage.shown(typed)).collect()
}
