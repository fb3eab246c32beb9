//! The Rust side of the book's live figures: the days' code, compiled to WebAssembly.
//!
//! A page calls three functions. [`reserve`] allocates memory for the page to write to,
//! [`open_model`] takes a model's three files, and [`call`] takes a question. The last two leave a
//! JSON answer, whose address and length [`answer`] and [`answer_len`] return. The days' code
//! computes the answers. It is called from `figures/`, which has one file per figure.
//!
//! There is no unwinding in WebAssembly: a panic, such as an unwritten day's `todo!`, ends this
//! instance. Its message is left as the answer, which the page can still read.

#![warn(missing_docs)]

pub mod figures;
pub mod model;
mod words;

use serde_json::json;
use std::cell::RefCell;

thread_local! {
    /// The buffers reserved by the page, and the answer it reads: JSON, or a panic's message.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reserves `len` bytes for the page to fill, and returns their address. The next call consumes
/// them.
#[no_mangle]
pub extern "C" fn reserve(len: usize) -> *mut u8 {
    // Set here because every question starts with this call, even if no model could be opened.
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|info| ANSWER.set(words::of_panic(info))));
    let mut buffer = vec![0; len];
    let address = buffer.as_mut_ptr();
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
    address
}

/// Opens the model whose `config.json`, `tokenizer.json` and `model.safetensors` are in the last
/// three reserved buffers.
#[no_mangle]
pub extern "C" fn open_model() {
    ANSWER.take();
    let buffers = BUFFERS.take();
    ANSWER.set(words::answer(match <[Vec<u8>; 3]>::try_from(buffers) {
        Ok([config, tokenizer, weights]) => {
            model::open(&config, &tokenizer, weights).map(|()| json!({}))
        }
        Err(buffers) => Err(format!("expected a model's three files, got {}", buffers.len())),
    }));
}

/// Answers the question in the last reserved buffer.
#[no_mangle]
pub extern "C" fn call() {
    ANSWER.take();
    let question = BUFFERS.take().pop().unwrap_or_default();
    ANSWER.set(words::answer(figures::answer(&question)));
}

/// Returns the address of the last answer.
#[no_mangle]
pub extern "C" fn answer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

/// Returns the length of the last answer, in bytes.
#[no_mangle]
pub extern "C" fn answer_len() -> usize {
    ANSWER.with_borrow(String::len)
}
