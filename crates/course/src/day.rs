//! A day of the course, and the paths of its files.

/// The days that change how `list --score` serves its trace. The last one of these that the reader
/// has written serves it, or day 7 if there is none.
pub const SCORED_DAYS: [u32; 5] = [10, 12, 15, 21, 23];

/// A day of the course: a file in `src/`, one in `solutions/`, a folder in `tests/` and a chapter
/// in `book/src/`, all with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Day {
    /// The day's number, from 0.
    pub number: u32,
    /// The base name of its files, such as `day06_generate`.
    pub name: String,
}

/// The day's files. All paths are relative to the root of the repository, and computed nowhere
/// else.
impl Day {
    /// Returns the path of the reader's file.
    pub fn src(&self) -> String {
        format!("src/{}.rs", self.name)
    }

    /// Returns the path of the reference.
    pub fn solution(&self) -> String {
        format!("solutions/{}.rs", self.name)
    }

    /// Returns the path of the check program.
    pub fn tests(&self) -> String {
        format!("tests/{}/checks.rs", self.name)
    }

    /// Returns the path of the known mistakes.
    pub fn mistakes(&self) -> String {
        format!("tests/{}/mistakes.toml", self.name)
    }

    /// Returns the path of the file with the hints.
    pub fn hints(&self) -> String {
        format!("tests/{}/hints.toml", self.name)
    }

    /// Returns the path of the oracle's file with this extension: `py` for the script, `json` and
    /// `safetensors` for its results.
    pub fn oracle(&self, extension: &str) -> String {
        format!("tests/{}/oracle.{extension}", self.name)
    }

    /// Returns the path of the record of how the known mistakes fail the checks.
    pub fn record(&self) -> String {
        format!("tests/{}/record.jsonl", self.name)
    }

    /// Returns the path of the chapter.
    pub fn chapter(&self) -> String {
        format!("book/src/{}.md", self.name)
    }
}

impl Day {
    /// Returns whether the day is an elective, which no later day needs.
    pub fn is_elective(&self) -> bool {
        self.number == 11
    }

    /// Returns the day's place in the order of the book, for sorting: day 11 uses day 12's batches,
    /// and comes after day 15.
    pub fn place(&self) -> (u32, u32) {
        if self.is_elective() {
            (15, self.number)
        } else {
            (self.number, 0)
        }
    }

    /// Returns the feature that compiles the reference instead of the reader's file.
    pub fn feature(&self) -> String {
        format!("ref-{}", self.short())
    }

    /// Returns the day's number with its prefix, such as `day06`.
    pub fn short(&self) -> String {
        format!("day{:02}", self.number)
    }

    /// Returns the day's heading, such as `day 6: generate`.
    pub fn title(&self) -> String {
        format!("day {}: {}", self.number, self.words())
    }

    /// Returns the day's topic, such as `warm up`.
    pub fn words(&self) -> String {
        self.name.split_once('_').map_or("", |(_, words)| words).replace('_', " ")
    }

    /// Parses a path such as `src/day06_generate.rs`. Returns `None` if it isn't a day's path.
    pub fn from_src(path: &str) -> Option<Day> {
        Day::from_name(path.strip_prefix("src/")?.strip_suffix(".rs")?)
    }

    /// Parses a name such as `day06_generate`. Returns `None` if it isn't a day's name.
    pub fn from_name(name: &str) -> Option<Day> {
        let (number, words) = name.strip_prefix("day")?.split_once('_')?;
        let number = (number.len() == 2).then(|| number.parse().ok())??;
        (!words.is_empty()).then(|| Day { number, name: name.to_string() })
    }
}

/// Shortens `tests/dayNN_*/../../src/dayNN_*.rs`, a day's path as a module of its check program, to
/// the path that the reader knows, `src/dayNN_*.rs`.
pub fn in_src(text: &str) -> String {
    let (mut short, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("../../src/") {
        let is_day = |at: &usize| {
            let folder = before.get(at + "tests/".len()..).unwrap_or_default();
            Day::from_name(folder.trim_end_matches(['/', '\\'])).is_some()
        };
        match before.rfind("tests").filter(is_day) {
            Some(at) => short += &before[..at],
            None => short += &format!("{before}../../"),
        }
        (short, rest) = (short + "src/", after);
    }
    short + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_recognized_by_its_name() {
        let day = Day { number: 6, name: "day06_generate".into() };
        assert_eq!(Day::from_src("src/day06_generate.rs").as_ref(), Some(&day));
        assert_eq!((day.short().as_str(), day.title().as_str()), ("day06", "day 6: generate"));
        for other in ["day6_generate", "day06_", "day06", "lib", "monday06_x"] {
            assert_eq!(Day::from_name(other), None, "{other}");
        }
    }

    #[test]
    fn an_elective_comes_after_the_days_it_builds_on() {
        let day = |number| Day { number, name: format!("day{number:02}_x") };
        let mut days: Vec<Day> = (10..17).map(day).collect();
        days.sort_by_key(Day::place);
        let order: Vec<u32> = days.iter().map(|day| day.number).collect();
        assert_eq!(order, [10, 12, 13, 14, 15, 11, 16]);
    }

    #[test]
    fn a_module_of_a_check_program_is_a_file_of_the_reader() {
        let text =
            "at tests/day06_x/../../src/day06_x.rs:3, tests\\day06_x\\../../src/day06_x.rs, ";
        let text = format!("{text}tests/other/../../src/day06_x.rs");
        let short = "at src/day06_x.rs:3, src/day06_x.rs, tests/other/../../src/day06_x.rs";
        assert_eq!(in_src(&text), short);
    }
}
