//! Tests of GGUF files. Most are written here from the embedded models and must yield the same
//! weights, configuration and tokenizer. Others are damaged. The engine's `tests/families.rs` reads
//! files of every family that were written by llama.cpp's own Python package. What makes a file
//! unsupported is on the book's page of messages.

use crate::message;
use candecode_testing::{refused, story, Folder, GgufParts, Random};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};

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

/// Returns the offset in the header just after the name of blk.0.attn_q.weight. The number of
/// dimensions (4 bytes), the dimensions (8 each) and the type (4) follow.
fn after_the_name(bytes: &[u8]) -> usize {
    bytes.windows(19).rposition(|w| w == b"blk.0.attn_q.weight").unwrap() + 19
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
        ("rope.scale_linear", Value::F32(1.0)),
        ("rope.scaling.alpha", Value::F32(1.0)),
        ("rope.scaling.attn_factor", Value::F32(1.0)),
        ("rope.scaling.factor", Value::F32(0.0)),
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
fn tokens_end_a_sequence_by_key_or_by_name() {
    let folder = Folder::new("gguf-ends");
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
    let (ids, tokenizer) = ends(&[(1500, "<|im_end|>"), (1501, "</s>")], &[]);
    assert_eq!(ids, [0, 1500, 1501]);
    assert_eq!(tokenizer.encode("<|im_end|>").unwrap(), [1500], "it is one token");
    assert_eq!(tokenizer.decode(&[1500]).unwrap(), "", "it isn't shown");
    // The three keys, then ids outside the vocabulary. Id 0, <|endoftext|>, is recognized by its
    // name without any key.
    let keys = [("eos_token_id", 5), ("eot_token_id", 6), ("eom_token_id", 7)];
    assert_eq!(ends(&[], &keys).0, [5, 6, 7, 0]);
    assert_eq!(ends(&[], &[("eot_token_id", 99_999), ("eos_token_id", u32::MAX)]).0, [0]);
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
