//! Tests of a folder's tensors: whole, sharded, truncated, of other types, and missing.

use candecode_formats::folder::shard_names;
use candecode_testing::{refused, save, sharded, story, Folder, Random};
use candle_core::{DType, Device, Tensor};

const CPU: Device = Device::Cpu;

fn tensor(numbers: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_vec(numbers.to_vec(), shape, &CPU).unwrap()
}

#[test]
fn a_missing_truncated_or_out_of_folder_shard_is_reported() {
    let folder = Folder::new("bad-shards");
    sharded(&folder, 2);
    let open = || candecode_formats::open_weights(&folder.0, DType::F32, &CPU);
    let second = folder.0.join("model-00002-of-00002.safetensors");
    let bytes = std::fs::read(&second).unwrap();
    std::fs::write(&second, &bytes[..bytes.len() / 2]).unwrap();
    refused(open(), &["cut short or damaged"]);
    std::fs::remove_file(&second).unwrap();
    refused(
        open(),
        &["model-00002-of-00002.safetensors", "no such file, though the index lists it"],
    );
    for (index, says) in [
        ("{", "not an index of shards"),
        ("{}", "no weight_map"),
        (r#"{"weight_map": {}}"#, "weight_map is empty"),
        (r#"{"weight_map": {"a": 7}}"#, "must name files"),
        (r#"{"weight_map": {"a": "../b.safetensors"}}"#, "not a plain file name"),
        (r#"{"weight_map": {"a": "c\\b.safetensors"}}"#, "not a plain file name"),
    ] {
        folder.write("model.safetensors.index.json", index);
        refused(open(), &["model.safetensors.index.json", says]);
    }
}

#[test]
fn the_index_lists_each_file_once() {
    let names = shard_names(r#"{"weight_map": {"a": "2", "b": "1", "c": "2"}}"#).unwrap();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let folder = Folder::new("cut");
    let bytes = std::fs::read(story("story-230k").join("model.safetensors")).unwrap();
    let mut random = Random::new(31);
    let edges = [0, 1, 7, 8, 9, bytes.len() - 1];
    let lengths = edges.into_iter().chain((0..30).map(|_| random.below(bytes.len())));
    for length in lengths {
        folder.write("model.safetensors", &bytes[..length]);
        refused(
            candecode_formats::open_weights(&folder.0, DType::F32, &CPU),
            &["cut short or damaged"],
        );
    }
    folder.write("model.safetensors", &bytes);
    assert!(candecode_formats::open_weights(&folder.0, DType::F32, &CPU).is_ok());
}

#[test]
fn narrow_types_are_widened_exactly() {
    let folder = Folder::new("widen");
    let numbers = tensor(&[1.0, 0.1, -3.0, 65_504.0], &[2, 2]);
    let (bf16, f16) =
        (numbers.to_dtype(DType::BF16).unwrap(), numbers.to_dtype(DType::F16).unwrap());
    save(&folder, "model.safetensors", &[("f.32", &numbers), ("b.16", &bf16), ("f.16", &f16)]);
    let weights = candecode_formats::open_weights(&folder.0, DType::F32, &CPU).unwrap();
    let read = |name: &str| {
        let matrix = weights.matrix(name, 2, 2).unwrap();
        assert_eq!(matrix.tensor().unwrap().dtype(), DType::F32);
        matrix.tensor().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(read("f.32"), [1.0, 0.1, -3.0, 65_504.0]);
    // bf16 has 8 bits: 0.1 is 205 / 2048, and 65,504 rounds to 65,536. f16 has 11: 1638 / 16,384.
    assert_eq!(read("b.16"), [1.0, 205.0 / 2048.0, -3.0, 65_536.0]);
    assert_eq!(read("f.16"), [1.0, 1638.0 / 16_384.0, -3.0, 65_504.0]);
}

#[test]
fn quantized_numbers_are_refused() {
    let folder = Folder::new("quantized");
    let codes = Tensor::from_vec(vec![1u8, 2, 3, 4], (2, 2), &CPU).unwrap();
    save(&folder, "model.safetensors", &[("a.matrix", &codes)]);
    let weights = candecode_formats::open_weights(&folder.0, DType::F32, &CPU).unwrap();
    let got = weights.matrix("a.matrix", 2, 2).map_err(Into::into);
    refused(got, &["tensor a.matrix is stored as U8", "no quantized types"]);
}

#[test]
fn a_missing_or_wrongly_shaped_tensor_is_named() {
    let folder = Folder::new("missing");
    let numbers = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    save(&folder, "model.safetensors", &[("transformer.a", &numbers), ("b.weight", &numbers)]);
    let weights = candecode_formats::open_weights(&folder.0, DType::F32, &CPU).unwrap();
    refused(weights.matrix("x.c", 2, 3).map_err(Into::into), &["tensor x.c is missing"]);
    let says = "tensor transformer.a has shape [2, 3], config.json asks for [3, 2]";
    refused(weights.matrix("transformer.a", 3, 2).map_err(Into::into), &[says]);
    refused(weights.tensor("transformer.a", &[6]).map_err(Into::into), &["asks for [6]"]);
    // GPT-2 stores (in, out), and files of the bare model omit the first part of the name.
    let turned = weights.transposed("transformer.b.weight", 3, 2).unwrap();
    assert_eq!(
        turned.tensor().unwrap().to_vec2::<f32>().unwrap(),
        [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    );
    assert!(
        weights.has("transformer.b.weight") && weights.has("b.weight") && !weights.has("c.weight")
    );
}
