#!/usr/bin/env bash
# Type-check the Metal path for macOS from Linux: no Mac, no SDK, nothing linked.
# usage, in the crate's root:  crates/maintain/scripts/metal-check.sh --features metal [more arguments of cargo check]
set -euo pipefail
source crates/maintain/scripts/rust-src.sh "metal type-check"

# Build scripts of C code (ring) get a compiler that writes empty files: nothing is linked, and
# there is no SDK here.
mkdir -p target/metal-check
cc=$PWD/target/metal-check/cc
printf '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : >"$2"; shift; done; exit 0\n' >"$cc"
chmod +x "$cc"
export CC_aarch64_apple_darwin=$cc AR_aarch64_apple_darwin=true
RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$src cargo check -Zbuild-std=std,panic_abort \
  --target aarch64-apple-darwin --target-dir target/metal-check "$@"
