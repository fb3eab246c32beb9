//! What is the whole process's: the switch between the kernels, and the number of threads. These tests
//! have a program of their own, because a test beside them would feel the switch.

#![cfg(feature = "ref")]

use candecode::engine::load_model;
use candecode::kernels::{self, Kernels};
use candecode::kit::{NoCache, Step};
use candle_core::{DType, Device, Tensor};
use std::path::Path;

#[test]
fn a_whole_model_says_the_same_with_both_kernels() {
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
        let model = load_model(&folder, DType::F32, &Device::Cpu).unwrap();
        let ids: Vec<u32> = (0..40).map(|i| 5 + i * 37 % 900).collect();
        let step = Step::new(&*model, &ids, 0).unwrap();
        let logits = |kernels| -> Tensor {
            kernels::choose(kernels);
            model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap()
        };
        let difference = (logits(Kernels::Fast) - logits(Kernels::Plain)).unwrap();
        let largest: f32 = difference.abs().unwrap().max(0).unwrap().to_scalar().unwrap();
        // Through five layers and a head of logits of size 20.
        assert!(largest < 2e-3, "{name}: {largest}");
    }
}

#[test]
fn the_default_with_the_reference_is_the_fast_kernels() {
    assert_eq!(Kernels::default(), Kernels::Fast);
}

/// A container of one core on a larger machine: `taskset` allows one core alone.
#[cfg(target_os = "linux")]
#[test]
fn there_are_no_more_threads_than_allowed_cores() {
    let mut command = std::process::Command::new("taskset");
    command.args(["--cpu-list", "0", env!("CARGO_BIN_EXE_candecode")]);
    command.args(["-p", "Once", "--max-new-tokens", "1", "--kernels", "fast", "--stats"]);
    let output = command.env_remove("RAYON_NUM_THREADS").output().unwrap();
    let stats = String::from_utf8_lossy(&output.stderr);
    assert!(stats.contains(" 1 threads"), "{stats}");
}
