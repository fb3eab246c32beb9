//! The tasks of a day, and how their ids are written.

/// A task of a day, from its line `// task 6.1: title`, `// task 6.5 (optional): title` or
/// `// task 6.9 (challenge): title`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Day and number: `"6.1"`.
    pub id: String,
    /// Whether the task is beyond the day's core. True for a challenge.
    pub further: bool,
    /// Whether it is the day's challenge: a contract and a check, without an outline.
    pub challenge: bool,
    /// The part the task belongs to, if the day has parts.
    pub part: Option<u32>,
    /// A short description of the task.
    pub title: String,
    /// The task's line in the source, from 1.
    pub line: usize,
}

/// The tasks beyond their day's core that a later day's engine needs, and that day.
const NEEDED: [(&str, u32); 2] = [("12.9", 15), ("12.10", 15)];

/// Returns the tasks of other days, beyond their core, that a day's engine needs.
pub fn needed_by(day: u32) -> impl Iterator<Item = &'static str> {
    NEEDED.iter().filter(move |(_, by)| *by == day).map(|(id, _)| *id)
}

impl Task {
    /// Returns the day whose engine needs this task, although it's beyond the core of its own.
    pub fn needed_by(&self) -> Option<u32> {
        NEEDED.iter().find(|(id, _)| *id == self.id).map(|(_, by)| *by)
    }
}

/// Returns whether the text has the form of a task's id, such as `6.1`.
pub fn is_task_id(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    text.split_once('.').is_some_and(|(day, number)| is_number(day) && is_number(number))
}

/// Returns the task in a check's name: `6.1` for `task_6_1_the_last_position_is_kept`. Returns
/// `None` for other tests, such as those that test the checks.
pub fn task_of_check(check: &str) -> Option<String> {
    let mut parts = check.strip_prefix("task_")?.splitn(3, '_');
    let (day, number) = (parts.next()?, parts.next()?);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(day) && is_number(number)).then(|| format!("{day}.{number}"))
}

/// Returns what a check claims: `the last position is kept` for
/// `task_6_1_the_last_position_is_kept`.
pub fn claim_of_check(check: &str) -> String {
    check.splitn(4, '_').last().unwrap_or_default().replace('_', " ")
}

/// Returns the names of a day's checks, in the order of the table in their source, `checks! { … }`.
pub fn checks(source: &str) -> Vec<String> {
    let table = source.split_once("checks! {\n").map_or("", |(_, table)| table);
    let table = table.split("\n}").next().unwrap_or_default();
    let code: String =
        table.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut names = Vec::new();
    for list in code.split(';') {
        let mut parts = list.split(':').map(str::trim).skip_while(|part| !is_task_id(part));
        let (Some(task), Some(claims)) = (parts.next(), parts.next()) else { continue };
        let claims = claims.split(',').filter_map(|claim| claim.split_whitespace().next());
        names.extend(claims.map(|claim| checks_of_task(task) + claim));
    }
    names
}

/// Returns what the names of a task's checks start with: `task_6_1_` for `6.1`.
pub fn checks_of_task(id: &str) -> String {
    format!("task_{}_", id.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_named_after_its_task() {
        assert_eq!(task_of_check("task_6_12_a").as_deref(), Some("6.12"));
        assert_eq!(task_of_check(&checks_of_task("6.12")).as_deref(), Some("6.12"));
        assert_eq!(task_of_check("task_6_x"), None);
        assert_eq!(task_of_check("proof_all"), None);
        assert_eq!(claim_of_check("task_6_12_tokens_are_kept"), "tokens are kept");
    }

    #[test]
    fn checks_are_listed_by_task() {
        let table = "frame::checks! {\n    day06_x:\n    6.1: a, // e\n        b_c;\n    \
                     6.10:\n d = e_f;\n    also: g;\n    measure: h::i;\n}\n\nfn j() { 6.2: k; }\n";
        assert_eq!(checks(table), ["task_6_1_a", "task_6_1_b_c", "task_6_10_d"]);
    }

    #[test]
    fn an_id_has_two_numbers() {
        assert!(is_task_id("6.1") && is_task_id("10.12"));
        assert!(!is_task_id("6") && !is_task_id("day6.1") && !is_task_id("6.x"));
    }
}
