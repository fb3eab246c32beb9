//! What a day changes, counted: each number before the day's code, and with it.

/// The table of a day's counts.
#[derive(Default)]
pub struct Tally {
    rows: Vec<[String; 3]>,
}

impl Tally {
    /// Adds a line: what is counted, the number before the day, and the number with its code.
    pub fn add(&mut self, what: &str, before: impl ToString, after: impl ToString) {
        self.rows.push([what.to_string(), before.to_string(), after.to_string()]);
    }

    /// Prints the table, if there are any counts.
    pub fn print(&self, day: usize) {
        if self.rows.is_empty() {
            return;
        }
        println!("{:<58}{:>12}{:>12}", format!("day {day}"), "before", "after");
        for [what, before, after] in &self.rows {
            println!("{what:<58}{before:>12}{after:>12}");
        }
    }
}
