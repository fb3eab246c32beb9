//! The likeliest tokens of every step, by the model itself: what `--top-logprobs` shows.

use crate::day07_greedy::log_softmax;
use crate::kit::processor::named;
use crate::kit::LogitsProcessor;
use std::cell::RefCell;
use std::rc::Rc;

/// The likeliest tokens of each step so far, the best first: ids and log-probabilities.
pub type TopLogprobs = Rc<RefCell<Vec<Vec<(u32, f32)>>>>;

/// A processor that changes nothing. It notes the `n` likeliest tokens of each step, by the logits
/// that it is given: before all other processors these are the model's own (vLLM's `logprobs`). They come
/// from the log-softmax that `Sequence::choose` uses, so a token has one log-probability in an answer.
///
/// It is for one text at a time, because the notes do not say whose step it was.
pub fn watch(n: usize, notes: &TopLogprobs) -> Rc<dyn LogitsProcessor> {
    let notes = Rc::clone(notes);
    named(format!("top_logprobs({n})"), move |_, logits| {
        notes.borrow_mut().push(likeliest(&log_softmax(logits)?, n));
        Ok(())
    })
}

/// The `n` largest with their ids, largest first; ties go to the smaller id. Doesn't sort the rest.
pub fn likeliest(logprobs: &[f32], n: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(logprobs.iter().copied()).collect();
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if n < all.len() {
        all.select_nth_unstable_by(n, order);
        all.truncate(n);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::likeliest;

    #[test]
    fn the_best_come_first_and_of_equals_the_first() {
        let logprobs = [-3.0, -1.0, f32::NEG_INFINITY, -1.0, -2.0];
        assert_eq!(likeliest(&logprobs, 3), [(1, -1.0), (3, -1.0), (4, -2.0)]);
        assert_eq!(likeliest(&logprobs[..1], 3), [(0, -3.0)]);
    }
}
