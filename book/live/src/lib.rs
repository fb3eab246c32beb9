//! The book's live figures, on the side of Rust: the days, compiled to WebAssembly.
//!
//! A page calls three functions. [`reserve`] gives it memory to write bytes into, [`open_model`] takes the
//! three files of a model, and [`call`] takes a question and gives an answer, both as JSON. What
//! computes the answer is the days' code, and a file in `figures/` for each figure, which asks them.
//!
//! There is no unwinding here: a panic, such as an unwritten day's `todo!`, ends this instance. Its
//! words go to the page first, through the one function that is imported.

#![warn(missing_docs)]

mod answer;
pub mod figures;
pub mod model;

use std::cell::RefCell;

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[link(wasm_import_module = "page")]
extern "C" {
    /// Takes the words of a panic, UTF-8, before the instance ends.
    fn panicked(text: *const u8, len: usize);
}

thread_local! {
    /// The bytes that the page has reserved, and the answer that it reads.
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

/// Opens the model whose `config.json`, `tokenizer.json` and `model.safetensors` were written into the last
/// three reserved buffers. The answer's address; [`answer_len`] is its length.
#[no_mangle]
pub extern "C" fn open_model() -> *const u8 {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    std::panic::set_hook(Box::new(|info| {
        let text = answer::of_panic(info);
        // SAFETY: the page reads `len` bytes from the address before it returns.
        unsafe { panicked(text.as_ptr(), text.len()) }
    }));
    let buffers = BUFFERS.take();
    keep(match <[Vec<u8>; 3]>::try_from(buffers) {
        Ok([config, tokenizer, weights]) => model::open(&config, &tokenizer, weights),
        Err(buffers) => Err(format!("{} files of a model, and it has three", buffers.len())),
    })
}

/// Answers the question in the last reserved buffer. The answer's address; [`answer_len`] is its
/// length.
#[no_mangle]
pub extern "C" fn call() -> *const u8 {
    let question = BUFFERS.take().pop().unwrap_or_default();
    keep(figures::answer(&question))
}

/// The length of the last answer, in bytes.
#[no_mangle]
pub extern "C" fn answer_len() -> usize {
    ANSWER.with_borrow(String::len)
}

fn keep(result: Result<serde_json::Value, String>) -> *const u8 {
    ANSWER.set(answer::written(result));
    ANSWER.with_borrow(|answer| answer.as_ptr())
}
