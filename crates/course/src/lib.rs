//! The course's files: its days and tasks, the stubs, the known mistakes, the hints, and which
//! tasks a reader has written.
//!
//! Every tool of the course reads these files with this crate: the runner, the checks, the book's
//! preprocessor and the maintainers' commands. It builds and runs nothing, and doesn't use candle.

#![warn(missing_docs)]

mod day;
pub mod hints;
pub mod migration;
pub mod mistakes;
pub mod progress;
mod repo;
pub mod stubs;
mod task;
mod usage;

pub use day::{in_src, Day, SCORED_DAYS};
pub use hints::Hints;
pub use migration::Migration;
pub use mistakes::{Mistake, Mistakes, Variant};
pub use progress::Progress;
pub use repo::Repo;
pub use task::{checks_of_task, claim_of_check, is_task_id, task_of_check, Task};
pub use usage::{usage, Usage};
