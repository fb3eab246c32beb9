//! The game itself: probes, a guess, points. It reads lines and prints lines, and knows nothing of cargo.

use super::bank::{Dice, Mistake};
use std::ops::RangeInclusive;

/// What is to be found.
pub struct Riddle {
    /// The answers to choose from.
    pub choices: Vec<String>,
    /// Which of them is right.
    pub right: usize,
    /// The lines of the reference that the mistake changes, from 1.
    pub lines: Vec<RangeInclusive<usize>>,
    /// The lines of the functions that they are in.
    pub functions: Vec<RangeInclusive<usize>>,
}

/// What a line of the reader's asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    /// A probe of the engine: its words.
    Probe(Vec<String>),
    /// The same probe of the reference.
    Reference(Vec<String>),
    /// To name the mistake.
    Guess,
    /// How to play.
    Help,
    /// The end, and the solution.
    GiveUp,
    /// Nothing.
    Nothing,
}

/// The diagnoses to choose from: the right one and up to `others` of the same day.
pub fn choices(
    right: &Mistake,
    all: &[Mistake],
    others: usize,
    dice: &mut Dice,
) -> (Vec<String>, usize) {
    let mut wrong: Vec<&str> =
        all.iter().map(|m| m.diagnosis.as_str()).filter(|d| *d != right.diagnosis).collect();
    dice.shuffle(&mut wrong);
    wrong.truncate(others);
    let mut choices: Vec<String> = wrong.into_iter().map(str::to_string).collect();
    let at = dice.below(choices.len() + 1);
    choices.insert(at, right.diagnosis.clone());
    (choices, at)
}

/// Reads a line of the reader's.
pub fn ask(line: &str) -> Ask {
    let words = words(line);
    match words.first().map(String::as_str) {
        None => Ask::Nothing,
        Some("guess" | "g") => Ask::Guess,
        Some("help" | "h" | "?") => Ask::Help,
        Some("quit" | "q" | "exit") => Ask::GiveUp,
        Some("ref") => Ask::Reference(words[1..].to_vec()),
        Some("logits") => Ask::Probe(words),
        Some(flag) if flag.starts_with('-') => Ask::Probe(words),
        Some(_) => Ask::Probe(vec!["-p".to_string(), line.trim().to_string()]),
    }
}

/// A line in words, as a shell would have them: quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    words
}

/// The points of a hunt, of 100.
#[derive(Debug, PartialEq, Eq)]
pub struct Score {
    /// For the mistake: 50.
    pub mistake: u32,
    /// For its line: 30, or 15 for its function.
    pub line: u32,
    /// For few probes: 20, less 2 for each, and 4 for each of the reference.
    pub probes: u32,
}

impl Score {
    /// What a guess is worth.
    pub fn of(riddle: &Riddle, choice: usize, line: usize, probes: u32, references: u32) -> Score {
        let near = |range: &RangeInclusive<usize>| {
            (range.start().saturating_sub(1)..=range.end() + 1).contains(&line)
        };
        let line = if riddle.lines.iter().any(near) {
            30
        } else if riddle.functions.iter().any(|range| range.contains(&line)) {
            15
        } else {
            0
        };
        let mistake = if choice == riddle.right { 50 } else { 0 };
        let saved = 20u32.saturating_sub(2 * probes + 4 * references);
        Score { mistake, line, probes: if mistake > 0 { saved } else { 0 } }
    }

    /// All of them.
    pub fn sum(&self) -> u32 {
        self.mistake + self.line + self.probes
    }
}

/// For each range of lines, the lines of the function around it: from a line that opens one to the next that does.
pub fn functions(source: &str, lines: &[RangeInclusive<usize>]) -> Vec<RangeInclusive<usize>> {
    let heads: Vec<usize> = source
        .lines()
        .enumerate()
        .filter(|(_, line)| {
            let line = line.trim_start();
            line.starts_with("pub fn ") || line.starts_with("fn ")
        })
        .map(|(at, _)| at + 1)
        .collect();
    let around = |range: &RangeInclusive<usize>| {
        let from = heads.iter().rev().find(|head| *head <= range.start()).copied().unwrap_or(1);
        let to = heads.iter().find(|head| *head > range.end()).copied();
        from..=to.map_or_else(|| source.lines().count(), |to| to - 1)
    };
    lines.iter().map(around).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn a_line_is_a_probe_unless_it_is_something_else() {
        assert_eq!(ask("-p 'a b' --seed 1"), Ask::Probe(list(&["-p", "a b", "--seed", "1"])));
        assert_eq!(ask("Once upon a time"), Ask::Probe(list(&["-p", "Once upon a time"])));
        assert_eq!(ask("logits a \"b  c\""), Ask::Probe(list(&["logits", "a", "b  c"])));
        assert_eq!(ask("ref -p x"), Ask::Reference(list(&["-p", "x"])));
        assert_eq!((ask("  "), ask("g"), ask("q")), (Ask::Nothing, Ask::Guess, Ask::GiveUp));
        assert_eq!(ask("-p ''"), Ask::Probe(list(&["-p", ""])));
    }

    #[test]
    fn points_are_for_the_mistake_the_line_and_few_probes() {
        let riddle =
            Riddle { choices: vec![], right: 2, lines: vec![10..=11], functions: vec![5..=20] };
        let score = |choice, line, probes, references| {
            let score = Score::of(&riddle, choice, line, probes, references);
            (score.mistake, score.line, score.probes)
        };
        assert_eq!(score(2, 12, 3, 0), (50, 30, 14));
        assert_eq!(score(2, 6, 3, 2), (50, 15, 6));
        assert_eq!(score(2, 1, 40, 0), (50, 0, 0));
        assert_eq!(score(1, 10, 0, 0), (0, 30, 0));
    }

    #[test]
    fn the_function_around_a_line_is_found() {
        let source =
            "use x;\nfn a() {\n    1\n}\n\nimpl B {\n    pub fn b() {\n        2\n    }\n}\n";
        assert_eq!(functions(source, &[3..=3, 8..=8, 1..=1]), [2..=6, 7..=10, 1..=1]);
    }

    #[test]
    fn the_right_answer_is_among_the_choices() {
        let mistake =
            |n: u32| Mistake { name: n.to_string(), diagnosis: format!("d{n}"), edits: vec![] };
        let all: Vec<Mistake> = (0..9).map(mistake).collect();
        for seed in 0..20 {
            let (choices, at) = choices(&all[3], &all, 4, &mut Dice::new(seed));
            assert_eq!((choices.len(), choices[at].as_str()), (5, "d3"));
        }
    }
}
