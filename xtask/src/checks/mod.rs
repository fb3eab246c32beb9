//! Running a day's checkers and telling what came of it.

pub mod libtest;
pub mod mine;
pub mod plan;
pub mod report;
pub mod results;
pub mod runner;
pub mod table;
