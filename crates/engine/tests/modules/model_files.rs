//! Tests of models from folders: each file is read once, and every tensor is used, under the names
//! that transformers reads.

use crate::common::{logits, message};
use candecode::kit::{Model, NoCache, Step, Weights};
use candecode_engine::load::{build, load_files};
use candecode_engine::load_model;
use candecode_engine::operations::plain;
use candecode_formats::{ModelFiles, SafetensorsSource};
use candecode_testing::{configure, copy_of, refused, story, Folder, GgufParts};
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

const CPU: Device = Device::Cpu;

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
    assert_eq!(files.path().canonicalize().unwrap(), story("story-230k").canonicalize().unwrap());
    assert_eq!(files.config(), &candecode_formats::read_config(&story("story-230k")).unwrap());
    assert_eq!(files.tokenizer().unwrap().vocab_size(), 2048);
    assert_eq!(files.generation_config().unwrap()["eos_token_id"], 0);
    assert!(files.chat_template().unwrap().source.unwrap().is_none());
    let model = load_files(&files, DType::F32, &CPU, &plain()).unwrap();
    assert_eq!(model.config(), files.config());
}

#[test]
fn the_configuration_is_read_once() {
    let folder = copy_of("story-230k", "files-once");
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
fn layers_missing_from_the_config_are_named_in_the_error() {
    let folder = copy_of("story-230k", "files-layers");
    configure(&folder, "num_hidden_layers", 1.into());
    let says = [
        "tensors would not be used, model.layers.1.input_layernorm.weight the first",
        "is config.json of another model, or has it fewer layers?",
    ];
    refused(load_model(&folder.0, DType::F32, &CPU), &says);
    let folder = copy_of("story-gpt2-1m", "files-layers-gpt2");
    configure(&folder, "n_layer", 1.into());
    refused(load_model(&folder.0, DType::F32, &CPU), &["transformer.h.1.attn.c_attn.bias"]);
}

/// Old files contain constants that aren't weights, and a tied model's file may contain its head as
/// well.
#[test]
fn tensors_that_transformers_ignores_are_ignored() {
    let folder = copy_of("story-gpt2-1m", "files-constants");
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
        let folder = copy_of(model, "files-tied");
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

/// transformers ties the two only if they are equal, or if one is missing (`tie_weights`).
#[test]
fn a_separate_lm_head_is_used_even_if_config_ties_embeddings() {
    for (model, untied) in [("story-230k", "qwen2"), ("story-gpt2-1m", "gpt2")] {
        let folder = copy_of(model, "files-untied");
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

#[test]
fn a_folder_with_one_gguf_file_opens_that_file() {
    let folder = Folder::new("files-one-gguf");
    let file = GgufParts::of("story-230k").write(&folder, candle_core::quantized::GgmlDType::BF16);
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
fn errors_escape_tensor_names_and_truncate_long_values() {
    let bad = format!("model.layers.9.\u{1b}[2J{}", "x".repeat(100_000));
    let folder = copy_of("story-230k", "files-strangers");
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
