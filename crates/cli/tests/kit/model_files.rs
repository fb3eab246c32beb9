//! Tests of a model's files as one handle: each file is read once, and errors say why a file can't
//! be read.

use crate::{logits, message, refused, story, Folder};
use candecode::kit::{Model, NoCache, Step, Weights};
use candecode_engine::load::{build, load_files};
use candecode_engine::load_model;
use candecode_engine::operations::plain;
use candecode_formats::{chat_template, hub, ModelFiles, SafetensorsSource};
use candle_core::{DType, Device, Tensor};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const CPU: Device = Device::Cpu;

/// Returns a copy of an embedded model.
fn copy(model: &str, test: &str) -> Folder {
    let folder = Folder::new(test);
    for file in std::fs::read_dir(story(model)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.0.join(file.file_name())).unwrap();
    }
    folder
}

/// Changes one key in `config.json`.
fn configure(folder: &Folder, key: &str, value: Value) {
    let text = std::fs::read(folder.0.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    config[key] = value;
    folder.write("config.json", config.to_string());
}

fn tensors(model: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(story(model).join("model.safetensors"), &CPU).unwrap()
}

/// Writes `model.safetensors` with this `__metadata__`.
fn save(folder: &Folder, tensors: &HashMap<String, Tensor>, metadata: &[(&str, &str)]) {
    let pair = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    let metadata: HashMap<String, String> = metadata.iter().map(pair).collect();
    let path = folder.0.join("model.safetensors");
    safetensors::serialize_to_file(tensors, Some(metadata), &path).unwrap();
}

#[test]
fn one_handle_opens_every_part_of_a_model() {
    let files = ModelFiles::open("story-230k").unwrap();
    assert_eq!(files.path(), story("story-230k"));
    assert_eq!(files.config(), &candecode_formats::read_config(&story("story-230k")).unwrap());
    assert_eq!(files.tokenizer().unwrap().vocab_size(), 2048);
    assert_eq!(files.generation_config().unwrap()["eos_token_id"], 0);
    assert!(files.chat_template().unwrap().source.unwrap().is_none());
    let model = load_files(&files, DType::F32, &CPU, &plain()).unwrap();
    assert_eq!(model.config(), files.config());
}

#[test]
fn the_configuration_is_read_once() {
    let folder = copy("story-230k", "files-once");
    let files = ModelFiles::at(&folder.0).unwrap();
    for file in ["config.json", "generation_config.json"] {
        std::fs::remove_file(folder.0.join(file)).unwrap();
    }
    assert_eq!(files.config().num_hidden_layers, 2);
    assert_eq!(files.generation_config().unwrap()["eos_token_id"], 0);
    assert!(load_files(&files, DType::F32, &CPU, &plain()).is_ok());
}

#[test]
fn a_model_is_built_from_memory() {
    let config = || candecode_formats::read_config(&story("story-230k")).unwrap();
    let bytes = std::fs::read(story("story-230k").join("model.safetensors")).unwrap();
    let named = Weights::new(Arc::new(tensors("story-230k")), DType::F32, &CPU);
    let in_bytes = SafetensorsSource::from_bytes("the model", bytes.clone()).unwrap();
    let in_bytes = Weights::new(Arc::new(in_bytes), DType::F32, &CPU);
    for weights in [named, in_bytes] {
        let model = build(config(), &weights, &plain()).unwrap();
        let step = Step::new(&model, &[5, 6, 7], 0).unwrap();
        let got = model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap();
        assert_eq!(got.to_vec1::<f32>().unwrap(), logits(&story("story-230k")));
    }
    let cut = SafetensorsSource::from_bytes("the model", bytes[..1000].to_vec());
    refused(cut, &["the model: the weights are cut short or damaged: it ends inside its header"]);
}

#[test]
fn a_nonexistent_path_is_not_taken_for_a_hub_name() {
    for path in ["/nowhere/model", "../nowhere", "owner/repo/more", r"C:\models\x"] {
        let says = format!("{path}: there is no such folder or file");
        refused(hub::locate(path, true), &[&says]);
    }
}

#[test]
fn offline_is_an_argument() {
    let missing = hub::locate("candecode-tests/not-there", true);
    refused(missing, &["candecode-tests/not-there is not in the cache", "--offline"]);
}

#[test]
fn a_tokenizer_from_another_model_is_refused_on_loading() {
    let folder = copy("story-230k", "files-tokenizer");
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

#[test]
fn layers_missing_from_the_config_are_named_in_the_error() {
    let folder = copy("story-230k", "files-layers");
    configure(&folder, "num_hidden_layers", 1.into());
    let says = [
        "tensors would not be used, model.layers.1.input_layernorm.weight the first",
        "is config.json of another model, or has it fewer layers?",
    ];
    refused(load_model(&folder.0, DType::F32, &CPU), &says);
    let folder = copy("story-gpt2-1m", "files-layers-gpt2");
    configure(&folder, "n_layer", 1.into());
    refused(load_model(&folder.0, DType::F32, &CPU), &["transformer.h.1.attn.c_attn.bias"]);
}

/// Old files contain constants that aren't weights, and a tied model's file may contain its head as
/// well.
#[test]
fn tensors_that_transformers_ignores_are_ignored() {
    let folder = copy("story-gpt2-1m", "files-constants");
    let want = logits(&folder.0);
    let mut all = tensors("story-gpt2-1m");
    let mask = Tensor::ones((1, 1, 4, 4), DType::F32, &CPU).unwrap();
    all.insert("transformer.h.0.attn.bias".into(), mask.clone());
    all.insert("transformer.h.0.attn.masked_bias".into(), mask.clone());
    all.insert("score.weight".into(), mask);
    all.insert("lm_head.weight".into(), all["transformer.wte.weight"].clone());
    save(&folder, &all, &[]);
    assert_eq!(logits(&folder.0), want);
}

#[test]
fn a_tied_matrix_may_be_stored_under_one_name() {
    for (model, embeddings) in
        [("story-230k", "model.embed_tokens.weight"), ("story-gpt2-1m", "transformer.wte.weight")]
    {
        let folder = copy(model, "files-tied");
        let want = logits(&folder.0);
        let mut all = tensors(model);
        let shared = all.remove(embeddings).unwrap();
        all.insert("lm_head.weight".into(), shared.clone());
        save(&folder, &all, &[]);
        assert_eq!(logits(&folder.0), want, "under the head's name");
        // As safetensors.torch.save_model writes it: the alphabetically first name keeps the
        // matrix.
        save(&folder, &all, &[("format", "pt"), (embeddings, "lm_head.weight")]);
        assert_eq!(logits(&folder.0), want, "with an alias");
        // An alias is honored under any name, even if the configuration doesn't tie the two.
        all.remove("lm_head.weight").unwrap();
        all.insert("shared".into(), shared);
        let aliases = [(embeddings, "shared"), ("lm_head.weight", "shared")];
        save(&folder, &all, &aliases);
        configure(&folder, "tie_word_embeddings", false.into());
        assert_eq!(logits(&folder.0), want, "with two aliases");
        save(&folder, &all, &[(embeddings, "nowhere")]);
        refused(load_model(&folder.0, DType::F32, &CPU), &[embeddings, "is missing"]);
    }
}

/// Returns the functions that read each file of a folder.
fn readers() -> [(&'static str, fn(&Path) -> anyhow::Result<()>); 5] {
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
        let folder = copy("story-230k", "files-none");
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
        let folder = copy("story-230k", "files-pipe");
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
        let folder = copy("story-230k", "files-unreadable");
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

/// transformers ties the two only if they are equal, or if one is missing (`tie_weights`).
#[test]
fn a_separate_lm_head_is_used_even_if_config_ties_embeddings() {
    for (model, untied) in [("story-230k", "qwen2"), ("story-gpt2-1m", "gpt2")] {
        let folder = copy(model, "files-untied");
        let mut all = tensors(model);
        let table = match untied {
            "gpt2" => &all["transformer.wte.weight"],
            _ => &all["model.embed_tokens.weight"],
        };
        let head = (table * 2.0).unwrap();
        all.insert("lm_head.weight".into(), head);
        save(&folder, &all, &[]);
        let twice: Vec<f32> = logits(&story(model)).iter().map(|logit| 2.0 * logit).collect();
        assert_eq!(logits(&folder.0), twice, "{model}");
        configure(&folder, "tie_word_embeddings", false.into());
        assert_eq!(logits(&folder.0), twice, "{model}, untied");
    }
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
            let folder = copy("story-230k", "files-instead");
            folder.write(file, text);
            refused(read(&folder.0), &[file, what, way]);
        }
        for file in ["special_tokens_map.json", "added_tokens.json"] {
            let folder = copy("story-230k", "files-instead");
            folder.write(file, text);
            refused(candecode_formats::read_tokenizer(&folder.0), &[file, what, way]);
        }
        let folder = Folder::new("files-instead-gguf");
        let file = folder.write("model.gguf", text);
        refused(ModelFiles::at(&file), &["model.gguf", what, way]);
        let folder = copy("story-230k", "files-instead-index");
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
fn a_folder_with_one_gguf_file_opens_that_file() {
    let folder = Folder::new("files-one-gguf");
    let file = crate::gguf::Parts::of("story-230k")
        .write(&folder, candle_core::quantized::GgmlDType::BF16);
    let open = || ModelFiles::at(&folder.0);
    assert_eq!(open().unwrap().config(), ModelFiles::at(&file).unwrap().config());
    assert!(open().unwrap().has_tokenizer());
    assert_eq!(logits(&folder.0), logits(&story("story-230k")));
    // The configuration of the model it was converted from, and the part that reads images, make no
    // difference.
    folder.write("config.json", r#"{"model_type": "gemma3"}"#);
    folder.write("mmproj-model.gguf", "GGUF");
    folder.write("README.md", "# A model");
    assert!(open().is_ok());
    std::fs::copy(&file, folder.0.join("Model-Q8.GGUF")).unwrap();
    refused(open(), &["a folder with 2 GGUF files; name one of them: Model-Q8.GGUF, model.gguf"]);
    // A folder with its own weights is treated as Hugging Face format.
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(story("story-230k").join(file), folder.0.join(file)).unwrap();
    }
    assert!(matches!(open().unwrap().config().family, candecode::kit::Family::Qwen2));
    let empty = Folder::new("files-no-gguf");
    refused(ModelFiles::at(&empty.0), &["no config.json"]);
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
fn errors_escape_tensor_names_and_truncate_long_values() {
    let bad = format!("model.layers.9.\u{1b}[2J{}", "x".repeat(100_000));
    let folder = copy("story-230k", "files-strangers");
    let mut all = tensors("story-230k");
    all.insert(bad, Tensor::ones(4, DType::F32, &CPU).unwrap());
    save(&folder, &all, &[]);
    let text = message(load_model(&folder.0, DType::F32, &CPU));
    assert!(text.len() < 700 && text.contains("layers.9.\\u{1b}[2Jxxx"), "{text}");
    // A shape with 100,000 dimensions.
    let mut all = tensors("story-230k");
    let name = "model.norm.weight";
    all.insert(name.into(), Tensor::ones(vec![1; 100_000], DType::F32, &CPU).unwrap());
    save(&folder, &all, &[]);
    let text = message(load_model(&folder.0, DType::F32, &CPU));
    assert!(text.len() < 700 && text.contains("model.norm.weight has shape [1, 1, 1"), "{text}");
}

#[test]
fn an_unmerged_adapter_is_refused() {
    let folder = copy("story-230k", "files-adapter");
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
