#!/usr/bin/env bash
# Type-checks the CUDA path without NVIDIA's toolkit: candle's build scripts get an `nvcc` that writes empty files, and
# nothing is linked.
# Usage, from the repository's root:  crates/lab/scripts/cuda-check.sh --package candecode-cli --features cuda,ref [cargo check's arguments]
set -euo pipefail
mkdir -p target/cuda-check/bin
nvcc=$PWD/target/cuda-check/bin/nvcc
cat >"$nvcc" <<'NVCC'
#!/bin/sh
[ "$1" = --version ] && { printf 'nvcc\n\n\nCuda compilation tools, release 13.0, V13.0.88\n'; exit 0; }
folder=
while [ $# -gt 0 ]; do
  case $1 in
    -o) : >"$2" ;;
    --output-directory) folder=$2 ;;
    *.cu) [ -z "$folder" ] || : >"$folder/$(basename "$1" .cu).ptx" ;;
  esac
  shift
done
NVCC
chmod +x "$nvcc"
export NVCC=$nvcc PATH=$PWD/target/cuda-check/bin:$PATH CUDA_COMPUTE_CAP=80
cargo check --target-dir target/cuda-check "$@"
