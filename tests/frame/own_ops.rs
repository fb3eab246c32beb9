//! Operations for the checks of days 3, 4 and 21, where the code being checked calls other
//! functions of the same day through [`Ops`].

use candecode::day01_attention::causal_mask;
use candecode::kit::ops::{Ops, SharedOps};
use candecode::kit::{Pages, View};
use candecode_engine::operations::plain;
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Day 3's `silu`.
pub type Silu = fn(&Tensor) -> Result<Tensor>;
/// Day 4's `grouped_attention`.
pub type GroupedAttention = fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>;

/// Day 21's `attend_pages`.
pub type AttendPages = fn(&Tensor, &View, &Pages) -> Result<Tensor>;

/// Returns the plain operations, with `silu` replaced by the one being checked.
pub fn with_silu(silu: Silu) -> SharedOps {
    Arc::new(OwnOps { silu: Some(silu), ..OwnOps::plain() })
}

/// Returns `ops`. If they are the plain ones, `grouped_attention` is replaced by the one being
/// checked.
pub fn with_attention(ops: &SharedOps, attention: GroupedAttention) -> SharedOps {
    if ops.describe(true) != plain().describe(true) {
        return ops.clone(); // the run requested a kernel
    }
    Arc::new(OwnOps { attention: Some(attention), ..OwnOps::plain() })
}

/// Returns the plain operations, with `attend_pages` replaced by the one being checked.
pub fn with_pages(pages: AttendPages) -> SharedOps {
    Arc::new(OwnOps { pages: Some(pages), ..OwnOps::plain() })
}

#[derive(Debug)]
struct OwnOps {
    plain: SharedOps,
    silu: Option<Silu>,
    attention: Option<GroupedAttention>,
    pages: Option<AttendPages>,
}

impl OwnOps {
    fn plain() -> Self {
        Self { plain: plain(), silu: None, attention: None, pages: None }
    }
}

impl Ops for OwnOps {
    fn rest(&self) -> &dyn Ops {
        &*self.plain
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        if let (Some(attend), Some(pages)) = (self.pages, &kv.pages) {
            return attend(q, kv, pages);
        }
        let Some(attention) = self.attention else { return self.rest().attend(q, kv, mask) };
        let (new, all) = (q.dim(2)?, kv.k.dim(2)?);
        let causal = match mask {
            None if new > 1 => Some(causal_mask(new, all - new, q.device())?),
            _ => None,
        };
        attention(q, &kv.k, &kv.v, mask.or(causal.as_ref()))
    }

    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match self.silu {
            Some(silu) => silu(gate)? * up,
            None => self.rest().silu_and_mul(gate, up),
        }
    }

    fn describe(&self, _cpu: bool) -> String {
        "plain, with the code being checked".to_string()
    }
}
