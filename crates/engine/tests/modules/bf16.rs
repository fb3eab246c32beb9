//! Compares bf16 with torch: the fast kernels round the inputs of products with bf16 weights to
//! bf16, and add up in f32. `oracle/bf16.py` made the logits.

use crate::common::device;
use candecode::kit::{Model as _, NoCache, Step, WeightFormat};
use candecode_engine::load::load_transformer;
use candecode_engine::operations::{choose, Kernels};
use candecode_formats::hub;
use candecode_testing::oracle;
use candle_core::{DType, Tensor};

/// Returns the largest difference of two tensors.
fn apart(a: &Tensor, b: &Tensor) -> f32 {
    (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

#[test]
fn bf16_equals_torch_with_rounded_inputs_and_is_closer_to_f32_than_torch_in_bf16() {
    let json = std::fs::read_to_string(oracle("bf16.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let golden = candle_core::safetensors::load(oracle("bf16.safetensors"), &device().unwrap());
    let golden = golden.unwrap();
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let ids = json[name].as_array().unwrap().iter();
        let ids: Vec<u32> = ids.map(|id| id.as_u64().unwrap() as u32).collect();
        let of = |way: &str| &golden[&format!("{name}.{way}")];
        let torch = apart(of("bf16"), of("f32"));
        let folder = hub::locate(name, None).unwrap();
        let [plain, fast] = [Kernels::Plain, Kernels::Fast].map(|kernels| {
            let ops = choose(Some(kernels), &device().unwrap());
            let format = WeightFormat::Tensors(DType::BF16);
            let model = load_transformer(&folder, format, &device().unwrap(), &ops).unwrap();
            let step = Step::new(&model, &ids, 0).unwrap();
            let logits = model.forward(&step, &mut NoCache).unwrap().squeeze(0).unwrap();
            let last = of("f32").dim(0).unwrap();
            logits.narrow(0, ids.len() - last, last).unwrap()
        });
        // Plain code multiplies bf16 weights with f32 numbers.
        assert!(apart(&plain, of("f32")) < 1e-3, "{name}");
        let [f32, rounded, bf16] = ["f32", "rounded", "bf16"].map(|way| apart(&fast, of(way)));
        let what = format!(
            "{name}: {f32} from f32, {rounded} from rounded inputs, {bf16} from torch in bf16, \
             which is {torch} from f32"
        );
        println!("{what}");
        // A sum in another order may round an input the other way, by 2^-8 of its size.
        assert!(rounded < 0.5 * torch, "{what}");
        assert!(f32 < torch && bf16 < 2.0 * torch, "{what}");
    }
}
