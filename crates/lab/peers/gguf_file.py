"""Converts a model folder's weights to a GGUF file, once, in the system's folder for temporary files.

usage: python gguf_file.py MODEL_DIR f32|bf16|q8_0|q4_0       prints the file's path
Quantized files are made from the f32 file by llama.cpp's own function. A tied head becomes Q8_0, because llama.cpp's
first choice, Q6_K, has blocks of 256, which don't divide SmolLM2's rows of 576.
"""

import ctypes
import hashlib
import os
import pathlib
import sys
import tempfile


def quantize(source, out, dtype):
    """Writes a GGUF file quantized by llama.cpp (`llama_model_quantize`)."""
    import llama_cpp as ll

    @ll.llama_log_callback
    def silent(level, text, user_data):
        pass

    ll.llama_log_set(silent, ctypes.c_void_p(0))
    ll.llama_backend_init()
    params = ll.llama_model_quantize_default_params()
    params.ftype = {"q8_0": ll.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": ll.LLAMA_FTYPE_MOSTLY_Q4_0}[dtype]
    params.allow_requantize = True
    failed = ll.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(params))
    if failed:
        sys.exit(f"llama_model_quantize failed for {source}")


def path_of(folder, dtype):
    """Returns the path of the GGUF file, after writing the file if it doesn't exist."""
    folder = pathlib.Path(folder).resolve()
    mark = hashlib.sha256(f"{folder} {(folder / 'config.json').stat().st_mtime}".encode()).hexdigest()[:12]
    path = pathlib.Path(tempfile.gettempdir()) / f"candecode-peer-{mark}-{dtype}.gguf"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        if dtype in ("q8_0", "q4_0"):
            quantize(path_of(folder, "f32"), part, dtype)
        else:
            from to_gguf import write

            write(folder, part, dtype)
        part.rename(path)
    return path


if __name__ == "__main__":
    print(path_of(*sys.argv[1:3]))
