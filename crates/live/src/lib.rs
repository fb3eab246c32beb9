//! The book's live figures, on the side of Rust: the days, compiled to WebAssembly.
//!
//! A page calls three functions. [`reserve`] gives it memory to write bytes into, [`open_model`]
//! takes the three files of a model, and [`call`] takes a question; both leave an answer, as JSON,
//! where [`answer`] and [`answer_len`] say. What computes it is the days' code, and a file in
//! `figures/` for each figure, which asks them.
//!
//! There is no unwinding here: a panic, such as an unwritten day's `todo!`, ends this instance. Its
//! words are left as the answer, which the page can still read.

#![warn(missing_docs)]

pub mod figures;
pub mod model;
mod words;

use std::cell::RefCell;

thread_local! {
    /// The bytes that the page has reserved, and what it reads: an answer in JSON, or a panic's
    /// words.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reserves `len` bytes, which the page fills, and which the next call takes. Gives their address.
#[no_mangle]
pub extern "C" fn reserve(len: usize) -> *mut u8 {
    let mut buffer = vec![0; len];
    let address = buffer.as_mut_ptr();
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
    address
}

/// Opens the model whose `config.json`, `tokenizer.json` and `model.safetensors` were written into
/// the last three reserved buffers.
#[no_mangle]
pub extern "C" fn open_model() {
    ANSWER.take();
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|info| ANSWER.set(words::of_panic(info))));
    let buffers = BUFFERS.take();
    ANSWER.set(words::answer(match <[Vec<u8>; 3]>::try_from(buffers) {
        Ok([config, tokenizer, weights]) => model::open(&config, &tokenizer, weights),
        Err(buffers) => Err(format!("{} files of a model, and it has three", buffers.len())),
    }));
}

/// Answers the question in the last reserved buffer.
#[no_mangle]
pub extern "C" fn call() {
    ANSWER.take();
    let question = BUFFERS.take().pop().unwrap_or_default();
    ANSWER.set(words::answer(figures::answer(&question)));
}

/// Where the last answer begins.
#[no_mangle]
pub extern "C" fn answer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

/// The length of the last answer, in bytes.
#[no_mangle]
pub extern "C" fn answer_len() -> usize {
    ANSWER.with_borrow(String::len)
}
