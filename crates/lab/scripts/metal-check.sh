#!/usr/bin/env bash
# Type-checks the Metal path for macOS on Linux. Needs no Mac and no SDK, because nothing is linked.
# Usage, from the repository's root:  crates/lab/scripts/metal-check.sh --package candecode-cli --features metal [cargo check's arguments]
set -euo pipefail
source crates/lab/scripts/rust-src.sh "metal type-check"

# Build scripts that compile C code (ring's) get a compiler that writes empty files, because nothing
# is linked and there is no SDK.
mkdir -p target/metal-check
cc=$PWD/target/metal-check/cc
printf '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : >"$2"; shift; done; exit 0\n' >"$cc"
chmod +x "$cc"
export CC_aarch64_apple_darwin=$cc AR_aarch64_apple_darwin=true
RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$src cargo check -Zbuild-std=std,panic_abort \
  --target aarch64-apple-darwin --target-dir target/metal-check "$@"
