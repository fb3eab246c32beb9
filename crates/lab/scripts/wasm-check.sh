#!/usr/bin/env bash
# Type-checks the engine for WebAssembly. Needs no browser, and
# nothing is linked.
# Usage, from the repository's root:  crates/lab/scripts/wasm-check.sh --package candecode-engine [--features ref] [cargo check's arguments]
set -euo pipefail
if rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown; then
  cargo check --lib --target wasm32-unknown-unknown --target-dir target/wasm-check "$@"
  exit
fi
source crates/lab/scripts/rust-src.sh "wasm type-check"
RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$src cargo check -Zbuild-std=std,panic_abort \
  --lib --target wasm32-unknown-unknown --target-dir target/wasm-check "$@"
