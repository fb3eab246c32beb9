//! The guard rails of recent patterns, on the model's thread. A rail keeps the masks that it has
//! computed, so a request with a pattern that was seen before doesn't compute them again.

use candecode::day14_guard_rails::{Automaton, GuardRail, MASK_BYTES};
use candecode::kit::Tokenizer;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum memory of all rails with their masks and automata, in bytes. The newest is kept even
/// if it alone exceeds this.
const MOST_BYTES: usize = 128 << 20;

/// Rails, the latest used first.
#[derive(Default)]
pub struct RailCache(RefCell<VecDeque<KeptRail>>);

struct KeptRail {
    automaton: Arc<Automaton>,
    rail: Rc<GuardRail>,
    /// An upper bound of the memory that the rail can take.
    bytes: usize,
}

impl RailCache {
    /// Returns the rail of an automaton, with the masks computed so far, or a new one.
    pub fn rail(
        &self,
        name: String,
        automaton: &Arc<Automaton>,
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Rc<GuardRail> {
        let mut kept = self.0.borrow_mut();
        let known = kept.iter().position(|one| Arc::ptr_eq(&one.automaton, automaton));
        let one = known.and_then(|i| kept.remove(i)).unwrap_or_else(|| {
            let rail = Rc::new(GuardRail::new(name, automaton.clone(), tokenizer, vocab_size));
            let table = automaton.memory_usage();
            // A state takes at least 8 bytes of the table, and has one mask.
            let masks = (table / 8).saturating_mul(vocab_size).min(MASK_BYTES);
            KeptRail { automaton: automaton.clone(), rail, bytes: table + masks }
        });
        let rail = one.rail.clone();
        kept.push_front(one);
        let mut bytes = 0;
        let fit = kept.iter().take_while(|one| {
            bytes += one.bytes;
            bytes <= MOST_BYTES
        });
        let fit = fit.count().max(1);
        kept.truncate(fit);
        rail
    }
}
