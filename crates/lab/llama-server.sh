#!/usr/bin/env bash
# Builds llama.cpp's llama-server, for `cargo xtask bench serve` to compare with ours, from the llama.cpp sources in
# llama-cpp-python's source package: the version that the other benchmarks pin. It takes some minutes, and needs a C++ compiler.
# usage, in the repository's root:  crates/lab/llama-server.sh [DIR]      leaves DIR/bin/llama-server (target/llama-server)
# A model for both servers, with the same weights to the last bit:
#   python3 models/smollm2.py target/smollm2 f32
#   target/llama-server/bin/llama-quantize --allow-requantize target/smollm2/*.gguf target/smollm2-f32.gguf F32
set -euo pipefail
dir=$(realpath -m "${1:-target/llama-server}")
version=$(sed -n 's/^llama-cpp-python==//p' crates/lab/peers/requirements.txt)
mkdir -p "$dir"
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet cmake ninja
"$dir/venv/bin/pip" download --quiet --no-deps --no-binary llama-cpp-python --dest "$dir" "llama-cpp-python==$version"
tar -xf "$dir"/llama_cpp_python-*.tar.gz -C "$dir"
PATH="$dir/venv/bin:$PATH" cmake -S "$dir"/llama_cpp_python-*/vendor/llama.cpp -B "$dir" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
PATH="$dir/venv/bin:$PATH" cmake --build "$dir" --target llama-server llama-quantize
echo "$dir/bin/llama-server"
