//! Tests of a model's files as one handle: each file is read once, and errors say why a file can't
//! be read.

use crate::message;
use candecode_formats::{chat_template, hub, ModelFiles, SafetensorsSource};
use candecode_testing::{configure, copy_of, refused, story, Folder};
use candle_core::{DType, Device};
use serde_json::{json, Value};
use std::path::Path;

const CPU: Device = Device::Cpu;

#[test]
fn a_nonexistent_path_is_not_taken_for_a_hub_name() {
    for path in ["/nowhere/model", "../nowhere", "owner/repo/more", r"C:\models\x"] {
        let says = format!("{path}: there is no such folder or file");
        refused(hub::locate(path, None), &[&says]);
    }
}

#[test]
fn a_tokenizer_from_another_model_is_refused_on_loading() {
    let folder = copy_of("story-230k", "files-tokenizer");
    configure(&folder, "vocab_size", 2000.into());
    let says = ["the tokenizer has 2048 tokens, and the model knows 2000", "of another model?"];
    refused(ModelFiles::at(&folder.0).unwrap().tokenizer(), &says);
    // Rows that belong to no token are padding. A token added by name may have an id past the last
    // row.
    configure(&folder, "vocab_size", 2112.into());
    assert!(ModelFiles::at(&folder.0).unwrap().tokenizer().is_ok());
    let tokenizer = std::fs::read(folder.0.join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    let mut added = tokenizer["added_tokens"][0].clone();
    added["id"] = 2048.into();
    added["content"] = "<pad>".into();
    tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    folder.write("tokenizer.json", tokenizer.to_string());
    configure(&folder, "vocab_size", 2048.into());
    assert_eq!(ModelFiles::at(&folder.0).unwrap().tokenizer().unwrap().vocab_size(), 2049);
}

/// Reads one of a folder's files.
type Read = fn(&Path) -> anyhow::Result<()>;

/// Returns the functions that read each file of a folder.
fn readers() -> [(&'static str, Read); 5] {
    [
        ("config.json", |dir| candecode_formats::read_config(dir).map(drop)),
        ("generation_config.json", |dir| candecode_formats::read_config(dir).map(drop)),
        ("tokenizer.json", |dir| candecode_formats::read_tokenizer(dir).map(drop)),
        ("tokenizer_config.json", |dir| chat_template(dir).map(drop)),
        ("model.safetensors", |dir| {
            candecode_formats::open_weights(dir, DType::F32, &CPU).map(drop)
        }),
    ]
}

#[test]
fn a_folder_in_place_of_a_file_is_reported() {
    for (file, read) in readers() {
        let folder = copy_of("story-230k", "files-none");
        let _ = std::fs::remove_file(folder.0.join(file));
        std::fs::create_dir(folder.0.join(file)).unwrap();
        refused(read(&folder.0), &[file, "this is a folder, and should be a file"]);
    }
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_refused_without_blocking() {
    let pipe = |path: &Path| {
        let _ = std::fs::remove_file(path);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    for (file, read) in readers() {
        let folder = copy_of("story-230k", "files-pipe");
        pipe(&folder.0.join(file));
        refused(read(&folder.0), &[file, "not a regular file"]);
    }
    let folder = Folder::new("files-pipe-gguf");
    pipe(&folder.0.join("model.gguf"));
    refused(ModelFiles::at(&folder.0.join("model.gguf")), &["model.gguf: not a regular file"]);
}

/// An unreadable file has a different message than a missing or damaged one.
#[cfg(unix)]
#[test]
fn an_unreadable_file_is_not_reported_as_missing_or_damaged() {
    use std::fs::Permissions;
    use std::os::unix::fs::{symlink, PermissionsExt as _};
    let others =
        ["no config.json", "no tokenizer.json", "no model.safetensors", "damaged", "not a "];
    let told = |text: String, says: &str| {
        assert!(text.contains(says) && others.iter().all(|other| !text.contains(other)), "{text}");
    };
    for (file, read) in readers() {
        let folder = copy_of("story-230k", "files-unreadable");
        let path = folder.0.join(file);
        let _ = std::fs::remove_file(&path);
        symlink(&path, &path).unwrap(); // a link to itself
        told(message(read(&folder.0)), "could not be read");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "{}").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        if std::fs::read(&path).is_ok() {
            continue; // root may read everything
        }
        told(message(read(&folder.0)), "no permission");
        std::fs::set_permissions(&folder.0, Permissions::from_mode(0o000)).unwrap();
        told(message(read(&folder.0)), "no permission");
        std::fs::set_permissions(&folder.0, Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_damaged_header_is_described_in_the_error() {
    let header = |text: &str, data: usize| {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        SafetensorsSource::from_bytes("model.safetensors", bytes)
    };
    let tensor = |shape: Value, end: usize| {
        json!({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).to_string()
    };
    for (text, data, says) in [
        (
            tensor(json!([1u64 << 40, 1u64 << 40]), 4),
            4,
            "a tensor's shape is too large for any file",
        ),
        (tensor(json!([2]), 4), 4, "a tensor's size in bytes doesn't match its shape"),
        (tensor(json!([2]), 8), 4, "it is not as long as its header says"),
        ("not JSON".to_string(), 4, "its header is not a list of tensors in JSON"),
    ] {
        refused(header(&text, data), &["model.safetensors", "cut short or damaged", says]);
    }
    assert!(header(&tensor(json!([2]), 8), 8).is_ok());
}

/// The placeholders that a clone without Git LFS, or a download that needs a login, leaves instead
/// of a file.
#[test]
fn an_lfs_pointer_or_web_page_is_identified_in_the_error() {
    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid \
        sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 587120\n";
    let bom = format!("\u{feff}{POINTER}");
    let pages = [
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>",
        "\n  <HTML>",
        "<head>",
        "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
    ];
    let pointers = [POINTER, &bom].map(|text| (text, "a Git LFS pointer", "run git lfs pull"));
    let pages = pages.map(|text| (text, "a web page", "fetch the file again"));
    for (text, what, way) in pointers.into_iter().chain(pages) {
        for (file, read) in readers() {
            let folder = copy_of("story-230k", "files-instead");
            folder.write(file, text);
            refused(read(&folder.0), &[file, what, way]);
        }
        for file in ["special_tokens_map.json", "added_tokens.json"] {
            let folder = copy_of("story-230k", "files-instead");
            folder.write(file, text);
            refused(candecode_formats::read_tokenizer(&folder.0), &[file, what, way]);
        }
        let folder = Folder::new("files-instead-gguf");
        let file = folder.write("model.gguf", text);
        refused(ModelFiles::at(&file), &["model.gguf", what, way]);
        let folder = copy_of("story-230k", "files-instead-index");
        std::fs::remove_file(folder.0.join("model.safetensors")).unwrap();
        folder.write("model.safetensors.index.json", text);
        let weights = candecode_formats::open_weights(&folder.0, DType::F32, &CPU);
        refused(weights, &["model.safetensors.index.json", what, way]);
        let index = json!({"weight_map": {"a": "part.safetensors"}});
        folder.write("model.safetensors.index.json", index.to_string());
        folder.write("part.safetensors", text);
        let weights = candecode_formats::open_weights(&folder.0, DType::F32, &CPU);
        refused(weights, &["part.safetensors", what, way]);
    }
}

#[test]
fn a_shard_index_may_name_only_plain_files() {
    use candecode_formats::folder::shard_names;
    let index = |name: &str| json!({"weight_map": {"a": name}}).to_string();
    for name in [
        "",
        ".",
        "..",
        "/",
        "a/b",
        "../a",
        "a/..",
        "/etc/passwd",
        "a\\b",
        "..\\a",
        "C:x",
        "C:",
        "a:b",
        "a/",
        "./a",
        "a\0b",
        "\u{1b}[2J",
        "a\nb",
    ] {
        refused(shard_names(&index(name)), &["which is not a plain file name"]);
    }
    for name in ["model-00001-of-00002.safetensors", "a b", "é.safetensors", "..a", "a.."] {
        assert_eq!(shard_names(&index(name)).unwrap().into_iter().collect::<Vec<_>>(), [name]);
    }
    let text = message(shard_names(&index(&format!("../\u{1b}{}", "x".repeat(100_000)))));
    assert!(text.len() < 500 && text.contains("\\u{1b}xxx"), "{text}");
}

#[test]
fn an_unmerged_adapter_is_refused() {
    let folder = copy_of("story-230k", "files-adapter");
    folder.write("adapter_config.json", "{}");
    refused(ModelFiles::at(&folder.0), &["adapter_config.json: an adapter (LoRA)", "merge it"]);
}

#[test]
fn instruct_models_are_recognized_by_name() {
    use candecode_formats::hub::is_instruct;
    for name in [
        "qwen2-0.5b-instruct",
        "qwen3-0.6b",
        "tinyllama-1.1b",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "google/gemma-2-2b-it",
        "meta-llama/Llama-2-7b-chat",
        "models/SmolLM2-135M-Instruct/",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ] {
        assert!(is_instruct(name), "{name}");
    }
    for name in ["story-3m", "gpt2", "qwen2-0.5b", "Qwen/Qwen3-0.6B-Base", "it", "me/chatter", ""] {
        assert!(!is_instruct(name), "{name}");
    }
}

#[test]
fn a_pytorch_checkpoint_is_refused_with_a_way_to_convert_it() {
    for file in ["ckpt.pt", "pytorch_model.bin", "model.PTH"] {
        let says = [file, "a PyTorch checkpoint, which isn't read", "models/nanogpt.py"];
        let folder = Folder::new("files-checkpoint");
        std::fs::write(folder.0.join(file), "PK").unwrap();
        refused(ModelFiles::at(&folder.0.join(file)), &says);
        refused(ModelFiles::at(&folder.0), &says);
        // With a configuration, as in older repositories, the message reports missing weights.
        std::fs::copy(story("story-230k").join("config.json"), folder.0.join("config.json"))
            .unwrap();
        let files = ModelFiles::at(&folder.0).unwrap();
        refused(files.weights(DType::F32, &CPU), &says);
    }
}
