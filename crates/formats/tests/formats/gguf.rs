//! Tests of GGUF files. Most are written here from the embedded models and must yield the same
//! weights, configuration and tokenizer. Others are damaged. The engine's `tests/families.rs` reads
//! files of every family that were written by llama.cpp's own Python package.

use crate::message;
use candecode_kit::WeightFormat;
use candecode_testing::{golden_json, refused, story, Folder, GgufParts, Random};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use std::path::Path;

const CPU: Device = Device::Cpu;

#[test]
fn quantized_weights_are_widened_while_loading() {
    // Q8_0: 32 numbers share an f16 scale, and each is an integer from -127 to 127 times that
    // scale.
    let (folder, parts) = (Folder::new("gguf-q8"), GgufParts::of("story-230k"));
    let file = parts.write(&folder, GgmlDType::Q8_0);
    let weights = candecode_formats::open_weights(&file, DType::F32, &CPU).unwrap();
    let name = "model.layers.1.mlp.down_proj.weight";
    let got = weights.matrix(name, 64, 192).unwrap();
    let got = got.tensor().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let folder = candecode_formats::open_weights(&story("story-230k"), DType::F32, &CPU).unwrap();
    let exact = folder.matrix(name, 64, 192).unwrap();
    let exact = exact.tensor().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (got, exact) in got.chunks(32).zip(exact.chunks(32)) {
        let largest = exact.iter().fold(0f32, |max, x| max.max(x.abs()));
        let scale = largest / 127.0; // rounded to f16: 127 of them are off by at most 0.06
        for (got, exact) in got.iter().zip(exact) {
            assert!((got - exact).abs() <= 0.57 * scale, "{got} for {exact}, scale {scale}");
            let steps = got / scale;
            assert!((steps - steps.round()).abs() < 0.1, "{got} is no multiple of {scale}");
        }
    }
    let narrow = candecode_formats::open_weights(&file, DType::F16, &CPU)
        .unwrap()
        .matrix(name, 64, 192)
        .unwrap();
    assert_eq!(narrow.tensor().unwrap().dtype(), DType::F16);
}

#[test]
fn the_gguf_tokenizer_gives_the_same_ids() {
    let folder = Folder::new("gguf-ids");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::BF16);
    let (here, there) = (
        candecode_formats::read_tokenizer(&file).unwrap(),
        candecode_formats::read_tokenizer(&story("story-230k")).unwrap(),
    );
    assert_eq!(here.difference(&there), None);
    let letters: Vec<char> = "abc XYZ 09 ,.!?'\n\té日🦙½".chars().collect();
    let mut random = Random::new(61);
    for _ in 0..500 {
        let n = random.below(30);
        let mut text: String = (0..n).map(|_| letters[random.below(letters.len())]).collect();
        text.push_str(if random.below(3) == 0 { "<|endoftext|> he'll" } else { "" });
        let ids = there.encode(&text).unwrap();
        assert_eq!(here.encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(here.decode(&ids).unwrap(), there.decode(&ids).unwrap());
    }
}

#[test]
fn a_file_that_is_not_gguf_is_refused() {
    let open = |path: &Path| candecode_formats::open_weights(path, DType::F32, &CPU);
    let safetensors = story("story-230k").join("model.safetensors");
    let says = ["model.safetensors: not a GGUF file", "or the folder of a model"];
    refused(open(&safetensors), &says);
    refused(candecode_formats::read_tokenizer(&safetensors), &says);
    refused(candecode_formats::read_config(&safetensors), &says);
    let folder = Folder::new("gguf-none");
    refused(open(&folder.write("empty.gguf", "")), &["empty.gguf: not a GGUF file"]);
    let says = ["nowhere.gguf: there is no such file; give the path of a GGUF file"];
    refused(candecode_formats::hub::locate("some/where/nowhere.gguf", None), &says);
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let folder = Folder::new("gguf-cut");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::BF16);
    let bytes = std::fs::read(&file).unwrap();
    let mut random = Random::new(62);
    let edges = [4, 5, 8, 24, 100, bytes.len() - 40];
    for length in edges.into_iter().chain((0..40).map(|_| 4 + random.below(bytes.len() - 50))) {
        folder.write("model.gguf", &bytes[..length]);
        refused(
            candecode_formats::open_weights(&file, DType::F32, &CPU),
            &["cut short", "fetch the file again"],
        );
    }
    folder.write("model.gguf", &bytes[..bytes.len() - 40]);
    refused(candecode_formats::read_config(&file), &["cut short: tensor", "ends at byte"]);
}

#[test]
fn unsupported_or_incomplete_gguf_models_are_refused() {
    let text = |text: &str| Some(Value::String(text.into()));
    for (key, value, says) in [
        (
            "general.architecture",
            text("gemma3"),
            "general.architecture is \"gemma3\"; candecode runs gpt2, llama, qwen2, qwen3",
        ),
        ("general.architecture", None, "general.architecture is not there"),
        ("split.count", Some(Value::U16(3)), "one of 3 parts of a model; make one file of them"),
        ("qwen2.block_count", None, "the metadata: no num_hidden_layers"),
        ("qwen2.context_length", None, "the metadata: no qwen2.context_length"),
        ("qwen2.attention.head_count", text("two"), "qwen2.attention.head_count is not a number"),
        (
            "qwen2.attention.head_count",
            Some(Value::U32(3)),
            "not a multiple of num_attention_heads, 3",
        ),
        (
            "qwen2.attention.sliding_window",
            Some(Value::U32(64)),
            "qwen2.attention.sliding_window is 64",
        ),
        ("qwen2.expert_count", Some(Value::U32(8)), "qwen2.expert_count is 8"),
        (
            "qwen2.rope.dimension_count",
            Some(Value::U32(16)),
            "qwen2.rope.dimension_count is 16, and a head is 32 wide",
        ),
        ("qwen2.rope.scaling.type", text("yarn"), "qwen2.rope.scaling.type is \"yarn\""),
        ("qwen2.rope.freq_base", Some(Value::F32(-1.0)), "rope_theta is -1"),
    ] {
        let folder = Folder::new("gguf-config");
        let file = GgufParts::of("story-230k").set(key, value).write(&folder, GgmlDType::F32);
        refused(candecode_formats::read_config(&file), &["model.gguf", says]);
    }
    let folder = Folder::new("gguf-tensors");
    let mut parts = GgufParts::of("story-230k");
    parts.tensors.retain(|(name, _)| name != "token_embd.weight");
    let file = parts.write(&folder, GgmlDType::F32);
    refused(candecode_formats::read_config(&file), &["tensor token_embd.weight is missing"]);
    parts.tensors.clear();
    let file = parts.write(&folder, GgmlDType::F32);
    refused(candecode_formats::read_config(&file), &["no tensors: the file has a vocabulary only"]);
    let mut parts = GgufParts::of("story-230k");
    parts.tensors.retain(|(name, _)| name != "blk.1.ffn_up.weight");
    let file = parts.write(&folder, GgmlDType::F32);
    let weights = candecode_formats::open_weights(&file, DType::F32, &CPU).unwrap();
    let missing = weights.matrix("model.layers.1.mlp.up_proj.weight", 192, 64);
    let says = ["tensor model.layers.1.mlp.up_proj.weight is missing"];
    refused(missing.map_err(Into::into), &says);
}

/// Returns the offset in the header just after the name of blk.0.attn_q.weight. The number of
/// dimensions (4 bytes), the dimensions (8 each) and the type (4) follow.
fn after_the_name(bytes: &[u8]) -> usize {
    bytes.windows(19).rposition(|w| w == b"blk.0.attn_q.weight").unwrap() + 19
}

#[test]
fn an_unsupported_type_error_lists_the_supported_types() {
    let folder = Folder::new("gguf-type");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::F32);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = after_the_name(&bytes) + 4 + 16;
    // 20 is IQ4_NL, which candle doesn't know. It knows 9 and 15, but can't widen them.
    for (number, found) in [(20, "type 20"), (99, "type 99"), (9, "Q8_1"), (15, "Q8K")] {
        bytes[at] = number;
        folder.write("model.gguf", &bytes);
        let says = format!(
            "stored in a type that candecode does not read ({found}); it reads F32, \
            F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K"
        );
        let text = message(candecode_formats::read_config(&file));
        assert!(text.ends_with(&says), "{text}");
    }
}

#[test]
fn an_empty_tensor_is_refused() {
    let folder = Folder::new("gguf-nothing");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::F32);
    let whole = std::fs::read(&file).unwrap();
    for dimension in 0..2 {
        let mut bytes = whole.clone();
        let at = after_the_name(&bytes) + 4 + 8 * dimension;
        bytes[at..at + 8].fill(0);
        folder.write("model.gguf", &bytes);
        let says = ["damaged: tensor blk.0.attn_q.weight has the shape [", "which holds nothing"];
        refused(candecode_formats::open_weights(&file, DType::F32, &CPU), &says);
    }
}

#[test]
fn an_unknown_tokenizer_is_refused() {
    let text = |text: &str| Some(Value::String(text.into()));
    for (key, value, says) in [
        (
            "model",
            text("bert"),
            "tokenizer.ggml.model is \"bert\"; candecode has \"gpt2\" and \"llama\"",
        ),
        ("model", None, "tokenizer.ggml.model is not there"),
        ("model", text("llama"), "no tokenizer.ggml.scores"),
        (
            "pre",
            text("tekken"),
            "tokenizer.ggml.pre is \"tekken\"; candecode has \"gpt-2\", \"smollm\"",
        ),
        ("pre", None, "tokenizer.ggml.pre is not there"),
        ("tokens", None, "no tokenizer.ggml.tokens"),
        ("tokens", Some(Value::Array(vec![Value::U32(1)])), "is not a list of texts"),
        ("merges", None, "no tokenizer.ggml.merges"),
        ("merges", Some(Value::Array(vec![Value::String("ab".into())])), "has one without a space"),
        ("add_bos_token", Some(Value::Bool(true)), "no tokenizer.ggml.bos_token_id"),
    ] {
        let folder = Folder::new("gguf-tokenizer");
        let key = format!("tokenizer.ggml.{key}");
        let file = GgufParts::of("story-230k").set(&key, value).write(&folder, GgmlDType::F32);
        refused(candecode_formats::read_tokenizer(&file), &["model.gguf: the tokenizer", says]);
    }
}

#[test]
fn the_pre_tokenizer_name_sets_digit_space_and_bos_handling() {
    let folder = Folder::new("gguf-pre");
    let parts = |pre: &str| {
        GgufParts::of("story-230k").set("tokenizer.ggml.pre", Some(Value::String(pre.into())))
    };
    let pieces = |parts: &GgufParts, text: &str| -> Vec<String> {
        let tokenizer =
            candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::F32)).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        ids.into_iter().map(|id| tokenizer.piece(id).unwrap()).collect()
    };
    assert_eq!(pieces(&parts("gpt-2"), " 10\n\n."), ["Ġ", "1", "0", "Ċ", "Ċ", "."]);
    assert_eq!(pieces(&parts("smollm"), " 10"), ["Ġ", "1", "0"]);
    for pre in ["qwen2", "smollm", "gpt-2"] {
        assert_eq!(pieces(&parts(pre), "Once"), ["Once"], "{pre}");
    }
    // e and an accent become one character under NFC, which qwen2 uses.
    let accent = |pre: &str| pieces(&parts(pre), "e\u{301}");
    assert_eq!(accent("qwen2"), pieces(&parts("gpt-2"), "é"));
    assert_ne!(accent("gpt-2"), accent("qwen2"));
    // Llama 3 starts every text with its BOS token.
    let llama = parts("llama-bpe").set("tokenizer.ggml.bos_token_id", Some(Value::U32(0)));
    assert_eq!(pieces(&llama, "Once"), ["<|endoftext|>", "Once"]);
    let without = llama.set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false)));
    assert_eq!(pieces(&without, "Once"), ["Once"]);
}

/// A SentencePiece vocabulary has pieces with scores, but no merges.
#[test]
fn scores_become_merges() {
    let folder = Folder::new("gguf-scores");
    let pieces = ["<unk>", "<s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁a", "▁ab", "[PAD10]"];
    // ab scores higher than ▁a, so the text "ab" merges ab first, then ▁ab.
    let scores = [0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0, 0.0];
    let kinds = [2, 3, 6, 6, 1, 1, 1, 1, 1, 1, 5];
    let list = |values: Vec<Value>| Some(Value::Array(values));
    let parts = GgufParts::of("story-230k")
        .set("tokenizer.ggml.model", Some(Value::String("llama".into())))
        .set("tokenizer.ggml.tokens", list(pieces.map(|p| Value::String(p.into())).to_vec()))
        .set("tokenizer.ggml.scores", list(scores.map(Value::F32).to_vec()))
        .set("tokenizer.ggml.token_type", list(kinds.map(Value::I32).to_vec()))
        .set("tokenizer.ggml.bos_token_id", Some(Value::U32(1)))
        .set("tokenizer.ggml.unknown_token_id", Some(Value::U32(0)));
    let read = |parts: &GgufParts| {
        candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::F32)).unwrap()
    };
    let tokenizer = read(&parts);
    assert_eq!(tokenizer.encode("ab a b").unwrap(), [1, 9, 8, 4, 6]);
    assert_eq!(tokenizer.encode("aé").unwrap(), [1, 8, 2, 3], "in bytes");
    assert_eq!(tokenizer.decode(&[1, 9, 8, 2, 3]).unwrap(), "ab aé");
    assert_eq!(tokenizer.vocab_size(), 10, "padding is no token");
    let bare = parts.set("tokenizer.ggml.add_space_prefix", Some(Value::Bool(false)));
    let bare = read(&bare.set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false))));
    assert_eq!(bare.encode("ab a").unwrap(), [7, 8]);
    assert_eq!(bare.decode(&[7, 8]).unwrap(), "ab a");
}

/// Follows llama.cpp (`llama-model.cpp`): a factor without a type means linear, the older key is
/// used if the newer one is missing, and the type "none" turns scaling off.
#[test]
fn linear_rope_scaling_is_refused_in_every_form() {
    let folder = Folder::new("gguf-linear");
    let with = |changes: &[(&str, Value)]| {
        let parts = changes.iter().fold(GgufParts::of("story-230k"), |parts, (key, value)| {
            parts.set(&format!("qwen2.rope.{key}"), Some(value.clone()))
        });
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16))
    };
    let (kind, four) = (|kind: &str| ("scaling.type", Value::String(kind.into())), Value::F32(4.0));
    for changes in [
        vec![("scaling.factor", four.clone())],
        vec![("scale_linear", four.clone())],
        vec![("scaling.factor", four.clone()), ("scale_linear", Value::F32(1.0))],
        vec![("scaling.factor", four.clone()), kind("linear")],
        vec![("scale_linear", four.clone()), kind("linear")],
        vec![("scaling.factor", Value::U32(4))],
        vec![("scaling.factor", Value::F64(0.25))],
    ] {
        refused(
            with(&changes),
            &["qwen2.rope.scal", "positions are divided by it (linear scaling)"],
        );
    }
    for (changes, says) in [
        (vec![kind("yarn"), ("scaling.factor", four.clone())], "scaling.type is \"yarn\""),
        (vec![kind("longrope")], "scaling.type is \"longrope\""),
        (vec![kind("llama3"), ("scaling.factor", four.clone())], "scaling.type is \"llama3\""),
        (vec![kind("\u{1b}[2J")], "scaling.type is \"\\u{1b}[2J\""),
        (vec![("scaling.type", Value::U32(2))], "scaling.type is not a text"),
        (vec![("scaling.factor", Value::String("4".into()))], "scaling.factor is not a number"),
        (vec![("scaling.attn_factor", four.clone())], "scaling.attn_factor is 4"),
        (vec![("scaling.yarn_ext_factor", Value::F32(1.0))], "scaling.yarn_ext_factor is 1"),
        (
            vec![("dimension_sections", Value::Array(vec![Value::I32(0), Value::I32(8)]))],
            "dimension_sections is [0, 8]",
        ),
    ] {
        refused(with(&changes), &["model.gguf: the metadata", says]);
    }
    let plain = candecode_formats::read_config(&story("story-230k")).unwrap();
    for changes in [
        vec![("scaling.factor", Value::F32(1.0))],
        vec![("scaling.factor", Value::F32(0.0))],
        vec![("scaling.factor", Value::F32(1.0)), ("scale_linear", four.clone())],
        vec![("scaling.factor", four.clone()), ("scale_linear", four.clone()), kind("none")],
        vec![("scaling.attn_factor", Value::F32(1.0)), kind("linear")],
        vec![("dimension_sections", Value::Array(vec![Value::I32(0); 4]))],
    ] {
        assert_eq!(with(&changes).unwrap(), plain, "{changes:?}");
    }
}

/// Keys that change the computation need a value that changes nothing. Others have no effect, known
/// or not, as in llama.cpp.
#[test]
fn keys_that_change_the_computation_are_refused() {
    let folder = Folder::new("gguf-keys");
    let parts = GgufParts::of("story-230k").with_tensors(&["token_embd.weight"]);
    let with = |key: &str, value: Value| {
        candecode_formats::read_config(
            &parts.clone().set(key, Some(value)).write(&folder, GgmlDType::BF16),
        )
    };
    let plain = candecode_formats::read_config(&story("story-230k")).unwrap();
    for (key, neutral) in [
        ("attention.causal", Value::Bool(true)),
        ("attention.clamp_kqv", Value::F32(0.0)),
        ("attention.max_alibi_bias", Value::F32(0.0)),
        ("attention.output_scale", Value::F32(1.0)),
        ("attention.temperature_length", Value::U32(0)),
        ("attention.temperature_scale", Value::F32(0.0)),
        ("attention.value_scale", Value::F32(1.0)),
        ("attn_logit_softcapping", Value::F32(0.0)),
        ("final_logit_softcapping", Value::F32(0.0)),
        ("embedding_scale", Value::F32(1.0)),
        ("logit_scale", Value::F32(0.0)),
        ("residual_scale", Value::F32(1.0)),
        ("use_parallel_residual", Value::Bool(false)),
        ("rope.dimension_sections", Value::Array(vec![Value::I32(0); 4])),
        ("rope.scaling.alpha", Value::F32(1.0)),
        ("rope.scaling.attn_factor", Value::F32(1.0)),
        ("rope.scaling.yarn_attn_factor", Value::F32(-1.0)),
        ("rope.scaling.yarn_ext_factor", Value::F32(-1.0)),
    ] {
        let key = format!("qwen2.{key}");
        assert_eq!(with(&key, neutral).unwrap(), plain, "{key}");
        refused(with(&key, Value::F32(7.5)), &[&format!("{key} is 7.5")]);
    }
    for key in ["qwen2.expert_used_count", "qwen2.new_key", "clip.vision.width"] {
        assert_eq!(with(key, Value::U32(7)).unwrap(), plain, "{key}");
    }
}

#[test]
fn frequency_divisors_of_one_change_nothing() {
    let folder = Folder::new("gguf-ones");
    let mut parts = GgufParts::of("story-230k");
    let ones = Tensor::ones(16, DType::F32, &CPU).unwrap();
    parts.tensors.push(("rope_freqs.weight".into(), ones.clone()));
    let read =
        |parts: &GgufParts| candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16));
    assert_eq!(
        read(&parts).unwrap(),
        candecode_formats::read_config(&story("story-230k")).unwrap()
    );
    parts.tensors.last_mut().unwrap().1 = (ones * 0.5).unwrap();
    refused(read(&parts), &["rope_freqs.weight is not Llama 3's scaling"]);
}

#[test]
fn a_per_layer_list_is_accepted_if_all_layers_agree() {
    let folder = Folder::new("gguf-lists");
    let heads = |of_each: &[u32]| {
        let list = Value::Array(of_each.iter().map(|n| Value::U32(*n)).collect());
        let parts = GgufParts::of("story-230k").set("qwen2.attention.head_count_kv", Some(list));
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16))
    };
    assert_eq!(
        heads(&[1, 1]).unwrap(),
        candecode_formats::read_config(&story("story-230k")).unwrap()
    );
    refused(heads(&[1, 2]), &["head_count_kv is [1, 2]", "the same in every layer"]);
    refused(heads(&[]), &["head_count_kv is []"]);
    refused(heads(&[1; 3000]), &["head_count_kv is [1, 1, 1, 1, 1, 1, 1, 1, …]"]);
}

/// llama.cpp stores the rows of a Llama's q and k in another order, which depends on the number of
/// heads.
#[test]
fn head_count_lists_order_rows_like_single_numbers() {
    let folder = Folder::new("gguf-list-rows");
    let llama = Some(Value::String("llama".into()));
    let mut parts = GgufParts::of("story-230k").set("general.architecture", llama);
    for (key, _) in &mut parts.metadata {
        *key = key.replace("qwen2.", "llama.");
    }
    let rows = |parts: &GgufParts, format: WeightFormat| {
        let file = parts.write(&folder, GgmlDType::Q8_0);
        let weights = candecode_formats::open_weights(&file, format, &CPU).unwrap();
        [("q", 64), ("k", 32)].map(|(name, rows)| {
            let name = format!("model.layers.1.self_attn.{name}_proj.weight");
            let matrix = weights.matrix(&name, rows, 64).unwrap();
            matrix.tensor().unwrap().to_vec2::<f32>().unwrap()
        })
    };
    let list = |heads: u32| Some(Value::Array(vec![Value::U32(heads); 2]));
    let one_list = parts.clone().set("llama.attention.head_count_kv", list(1));
    let two_lists = one_list.clone().set("llama.attention.head_count", list(2));
    for format in [WeightFormat::Tensors(DType::F32), WeightFormat::AsStored] {
        let want = rows(&parts, format);
        assert_eq!(rows(&one_list, format), want, "{format:?}");
        assert_eq!(rows(&two_lists, format), want, "{format:?}");
    }
}

/// The names are taken from llama.cpp's own source (`oracle/added_tokens.py`).
#[test]
fn every_end_token_known_to_llama_cpp_ends_a_sequence() {
    let folder = Folder::new("gguf-ends");
    let golden = golden_json("added_tokens");
    let ends = |changes: &[(usize, &str)], keys: &[(&str, u32)]| {
        let mut parts = GgufParts::of("story-230k");
        for (id, name) in changes {
            parts = parts.token(*id, name);
        }
        for (key, id) in keys {
            parts = parts.set(&format!("tokenizer.ggml.{key}"), Some(Value::U32(*id)));
        }
        let file = parts.write(&folder, GgmlDType::BF16);
        (
            candecode_formats::read_config(&file).unwrap().eos_token_ids,
            candecode_formats::read_tokenizer(&file).unwrap(),
        )
    };
    for (kind, names) in golden["end names"].as_object().unwrap() {
        let names: Vec<&str> =
            names.as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
        assert!(!names.is_empty(), "{kind}");
        for name in names.iter().filter(|name| **name != "<|endoftext|>") {
            let (ids, tokenizer) = ends(&[(1500, name)], &[]);
            assert_eq!(ids, [0, 1500], "{name}");
            assert_eq!(tokenizer.encode(name).unwrap(), [1500], "{name} is one token");
            assert_eq!(tokenizer.decode(&[1500]).unwrap(), "", "{name} isn't shown");
        }
    }
    // The three keys, then ids outside the vocabulary. Id 0, <|endoftext|>, is recognized by its
    // name without any key.
    let keys = [("eos_token_id", 5), ("eot_token_id", 6), ("eom_token_id", 7)];
    assert_eq!(ends(&[], &keys).0, [5, 6, 7, 0]);
    assert_eq!(ends(&[], &[("eot_token_id", 99_999), ("eos_token_id", u32::MAX)]).0, [0]);
    assert_eq!(ends(&[], &[("fim_pad_token_id", 8), ("fim_sep_token_id", 9)]).0, [0, 8, 9]);
    // A key takes precedence over a name.
    assert_eq!(ends(&[(1500, "<|fim_pad|>")], &[("fim_pad_token_id", 8)]).0, [0, 8]);
    let list = Value::Array([12, 0, 99_999].map(Value::U32).to_vec());
    let parts = GgufParts::of("story-230k").set("tokenizer.ggml.eos_token_ids", Some(list));
    let file = parts.write(&folder, GgmlDType::BF16);
    assert_eq!(candecode_formats::read_config(&file).unwrap().eos_token_ids, [0, 12]);
    // gpt-oss and Solar Open end their messages differently, and in Gemma 4 </s> is an ordinary
    // word.
    let oss = [(1500, "<|return|>"), (1501, "<|call|>"), (1502, "<|end|>")];
    assert_eq!(ends(&oss, &[]).0, [0, 1500, 1501]);
    let solar = [(1500, "<|flush|>"), (1501, "<|calls|>"), (1502, "<|end|>")];
    assert_eq!(ends(&solar, &[]).0, [0, 1500, 1501]);
    assert_eq!(ends(&oss[1..], &[]).0, [0, 1501, 1502]);
    assert_eq!(ends(&[(1500, "<|tool_response>"), (1501, "</s>")], &[]).0, [0, 1500]);
}

#[test]
fn inconsistent_token_lists_are_refused() {
    let folder = Folder::new("gguf-fit");
    let tokenizer = |parts: GgufParts| {
        candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)).map(drop)
    };
    let list = |value: Value, n: usize| Some(Value::Array(vec![value; n]));
    let parts = || GgufParts::of("story-230k");
    refused(
        tokenizer(parts().token(9, "twice").token(1500, "twice")),
        &["tokenizer.ggml.tokens has \"twice\" twice, as tokens 9 and 1500"],
    );
    assert!(tokenizer(parts().token(1500, "").token(1501, "")).is_ok(), "tokens without a name");
    let kinds = "tokenizer.ggml.token_type";
    refused(
        tokenizer(parts().set(kinds, list(Value::I32(1), 2047))),
        &["token_type has 2047 entries for 2048 tokens"],
    );
    assert!(tokenizer(parts().set(kinds, list(Value::I32(1), 2049))).is_ok());
    let texts = list(Value::String("1".into()), 2048);
    refused(tokenizer(parts().set(kinds, texts)), &["token_type is not a list of numbers"]);
    refused(tokenizer(parts().set(kinds, Some(Value::U32(1)))), &["is not a list of numbers"]);
    let spm = || parts().set("tokenizer.ggml.model", Some(Value::String("llama".into())));
    let scores = "tokenizer.ggml.scores";
    refused(
        tokenizer(spm().set(scores, list(Value::F32(0.0), 2000))),
        &["scores has 2000 entries for 2048 tokens"],
    );
}

/// Pieces that are prefixes of each other have one merge per character, each as long as the piece.
#[test]
fn costly_sentencepiece_vocabularies_are_refused_quickly() {
    let folder = Folder::new("gguf-pieces");
    let tokenizer = |letter: &str, lengths: &mut dyn Iterator<Item = usize>| {
        let pieces: Vec<Value> = std::iter::once("<unk>".to_string())
            .chain(lengths.map(|n| letter.repeat(n)))
            .map(Value::String)
            .collect();
        let scores = Value::Array(vec![Value::F32(0.0); pieces.len()]);
        let file = GgufParts::of("story-230k")
            .set("tokenizer.ggml.model", Some(Value::String("llama".into())))
            .set("tokenizer.ggml.token_type", None)
            .set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false)))
            .set("tokenizer.ggml.tokens", Some(Value::Array(pieces)))
            .set("tokenizer.ggml.scores", Some(scores))
            .write(&folder, GgmlDType::BF16);
        let began = std::time::Instant::now();
        (candecode_formats::read_tokenizer(&file), began.elapsed().as_secs_f64())
    };
    let (found, seconds) = tokenizer("a", &mut (20..21_000).step_by(20));
    refused(found, &["has 1040 bytes, and no SentencePiece vocabulary more than 1024"]);
    assert!(seconds < 5.0, "{seconds} s");
    let (found, seconds) = tokenizer("é", &mut (1..=512));
    refused(found, &["more ways to put its pieces together than any vocabulary"]);
    assert!(seconds < 5.0, "{seconds} s");
    let (found, _) = tokenizer("a", &mut (1..=64));
    assert_eq!(found.unwrap().encode(&"a".repeat(64)).unwrap().len(), 2); // ▁ is unknown
}

#[test]
fn eos_is_appended_if_the_metadata_asks_for_it() {
    let folder = Folder::new("gguf-eos");
    let flag = |key: &str| (format!("tokenizer.ggml.{key}"), Some(Value::Bool(true)));
    let (bos, eos) = (flag("add_bos_token"), flag("add_eos_token"));
    let parts = GgufParts::of("story-230k").set(&eos.0, eos.1);
    let ids = |parts: &GgufParts| {
        let tokenizer =
            candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)).unwrap();
        tokenizer.encode("Once upon").unwrap()
    };
    assert_eq!(ids(&parts), [428, 437, 0]);
    let parts = parts.set(&bos.0, bos.1).set("tokenizer.ggml.bos_token_id", Some(Value::U32(7)));
    assert_eq!(ids(&parts), [7, 428, 437, 0]);
    let parts = parts.set("tokenizer.ggml.eos_token_id", None);
    let file = parts.write(&folder, GgmlDType::BF16);
    refused(candecode_formats::read_tokenizer(&file), &["no tokenizer.ggml.eos_token_id"]);
}

#[test]
fn an_older_quantization_version_is_refused() {
    let folder = Folder::new("gguf-version");
    let file = |dtype| {
        let version = Some(Value::U32(1));
        let parts = GgufParts::of("story-230k").set("general.quantization_version", version);
        candecode_formats::read_config(&parts.write(&folder, dtype))
    };
    assert!(file(GgmlDType::BF16).is_ok());
    refused(file(GgmlDType::Q8_0), &["general.quantization_version is 1"]);
}

#[test]
fn untrusted_text_in_errors_is_escaped_and_truncated() {
    let folder = Folder::new("gguf-strangers");
    let bad = format!("\u{1b}]0;x\u{7}{}", "y".repeat(100_000));
    for key in
        ["general.architecture", "general.type", "qwen2.rope.scaling.type", "qwen2.logit_scale"]
    {
        let parts = GgufParts::of("story-230k").set(key, Some(Value::String(bad.clone())));
        let text = message(candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16)));
        assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{key}: {text}");
    }
    for key in ["tokenizer.ggml.model", "tokenizer.ggml.pre"] {
        let parts = GgufParts::of("story-230k").set(key, Some(Value::String(bad.clone())));
        let text =
            message(candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)));
        assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{key}: {text}");
    }
    let mut parts = GgufParts::of("story-230k");
    parts.tensors.push((bad, Tensor::ones(4, DType::F32, &CPU).unwrap()));
    let file = parts.write(&folder, GgmlDType::BF16);
    let weights = candecode_formats::open_weights(&file, DType::F32, &CPU).unwrap();
    let text = message(weights.check_all_were_loaded().map_err(Into::into));
    assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{text}");
}
