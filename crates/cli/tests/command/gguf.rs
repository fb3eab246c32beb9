//! Runs the command on GGUF files.

use candecode_testing::{story, Folder, GgufParts};
use candle_core::quantized::GgmlDType;
use std::path::Path;
use std::process::Command;

#[test]
fn the_command_writes_the_same_text_from_gguf() {
    let folder = Folder::new("gguf-text");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::F32);
    let text = |model: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
        command.arg("--model").arg(model).args(["-p", "Once upon a time"]).args(more);
        let output = command.args(["--max-new-tokens", "60"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for more in [&[][..], &["--dtype", "bf16"], &["--draft-ngram"], &["--num-beams", "3"]] {
        assert_eq!(text(&file, more), text(&story("story-230k"), more), "{more:?}");
    }
    let draft = ["--draft-model", file.to_str().unwrap()];
    assert_eq!(text(&story("story-3m"), &draft), text(&story("story-3m"), &[]));
}
