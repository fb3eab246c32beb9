//! `cargo xtask compare`: runs the same prompts through every loop of the reference, and prints a
//! table of times, speed-ups, and whether the texts match.

use super::args::Compare;
use super::texts::{texts, two_columns, Drafts, Text};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, ExitCode};
use xtask::term::{paint, Color};
use xtask::{host, say};

/// One row of the table.
struct Row {
    name: String,
    source: Source,
    /// True if sampling draws other random numbers than the first row: drafts need some, too.
    own_draws: bool,
}

/// The source of a row's texts.
enum Source {
    Server(String),
    /// The course's engine, with these flags.
    Engine(Vec<String>),
}

/// A word that appears in no story.
const UNHEARD: &str = "xylophonist";

/// Runs all rows and prints the table. The exit code is 1 if texts that must be equal differ.
///
/// # Errors
/// If the engine refuses a flag, or the server fails.
pub(super) fn run(program: &Path, args: &Compare) -> Result<ExitCode> {
    let mut prompts = args.prompt.clone();
    if prompts.is_empty() {
        prompts =
            ["Lily and her dog", "Once upon a time, there was a red ball"].map(String::from).into();
    }
    let rows = rows(args, prompts.len());
    let mut rounds: Vec<Vec<Vec<Text>>> = rows.iter().map(|_| vec![]).collect();
    for _ in 0..args.rounds {
        for (row, rounds) in rows.iter().zip(&mut rounds) {
            let command = command(program, args, &row.source);
            rounds.push(texts(command, &prompts).with_context(|| row.name.clone())?);
        }
    }
    Ok(table(&rows, &rounds, &prompts, args))
}

/// Returns the rows, in the order of the table.
fn rows(args: &Compare, prompts: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: &str, flags: &[&str], drafts: bool| {
        let flags = flags.iter().map(|flag| flag.to_string()).collect();
        let own_draws = drafts && args.samples();
        rows.push(Row { name: name.to_string(), source: Source::Engine(flags), own_draws });
    };
    add("no cache", &["--loop", "day7", "--no-cache"], false);
    add("KV cache", &["--loop", "day10"], false);
    add("static KV cache", &["--loop", "day10", "--cache", "static"], false);
    if prompts > 1 {
        add(&format!("batch of {prompts}"), &["--loop", "day12"], false);
    }
    add("scheduled", &["--loop", "day15"], false);
    let k = args.num_draft_tokens.to_string();
    if let Some(draft) = args.draft() {
        let name = format!("drafts by {}", draft.rsplit('/').next().unwrap_or(draft));
        add(&name, &["--draft-model", draft, "--num-draft-tokens", &k], true);
        let flags = ["--draft-model", draft, "--draft-tree", "3x2x1x1"];
        add("the same in trees", &flags, true);
    }
    add("drafts by n-grams", &["--draft-ngram", "2", "--num-draft-tokens", &k], true);
    if args.model == "story-3m" {
        add("Medusa, a chain", &["--medusa", "--draft-tree", "1x1x1x1"], true);
        add("Medusa, in trees", &["--medusa"], true);
    }
    let word = args.block.as_deref().unwrap_or(UNHEARD);
    add(&format!("guarded: no {word}"), &["--loop", "day10", "--block", word], false);
    rows.extend(args.endpoint.iter().map(|url| Row {
        name: "the server".to_string(),
        source: Source::Server(url.clone()),
        own_draws: false,
    }));
    rows
}

/// Returns the command that generates a row's texts, without the prompts.
fn command(program: &Path, args: &Compare, source: &Source) -> Command {
    let mut command = Command::new(program);
    match source {
        Source::Engine(flags) => {
            command.args(["--format", "json", "--raw", "--model", &args.model]);
            command.args(["--device", &args.device]).args(flags);
        }
        Source::Server(url) => {
            command.args(["--format", "json", "--endpoint", url]);
            command.args(args.endpoint_model.iter().flat_map(|name| ["--model", name]));
        }
    }
    command.args(args.sampling());
    host::set_threads(&mut command);
    command
}

/// Prints the table. The exit code is 1 if texts that must be equal differ.
fn table(rows: &[Row], rounds: &[Vec<Vec<Text>>], prompts: &[String], args: &Compare) -> ExitCode {
    let (first, unit) = (&rounds[0][0], median(&rows[0], &rounds[0]));
    let cached = against(rows, rounds);
    let mut all_equal = true;
    let head = format!(
        "{:<26}{:>9}{:>11}{:>10}{:>22}   text",
        "", "time", "tokens/s", "speed-up", "against the KV cache"
    );
    say!("{}", paint(Color::Bold, &head));
    for (at, (row, rounds)) in rows.iter().zip(rounds).enumerate() {
        let (texts, seconds) = (&rounds[0], median(row, rounds));
        let is_server = matches!(row.source, Source::Server(_));
        let is_guarded = row.name.starts_with("guarded") && args.block.is_some();
        let (color, words) = match difference(first, texts, is_server) {
            _ if at == 0 => (Color::Dim, "the baseline for the other rows".to_string()),
            _ if is_server && args.samples() => (Color::Dim, "a server draws its own".to_string()),
            None => (Color::Green, "equal".to_string()),
            Some(_) if row.own_draws => (Color::Dim, "other draws of the same distribution".into()),
            Some(place) if is_guarded => (Color::Dim, format!("{place}: the word is blocked")),
            Some(place) => {
                all_equal = false;
                (Color::Red, format!("DIFFERS, {place}"))
            }
        };
        let tokens: usize = texts.iter().map(|text| text.new_ids.len()).sum();
        let (rate, speed_up) = (tokens as f64 / seconds, unit / seconds);
        let beside = cached.map_or("-".to_string(), |cached| format!("{:.2}x", cached / seconds));
        let (words, drafts) = (paint(color, &words), accepted(texts, tokens));
        say!(
            "{:<26}{seconds:>7.2} s{rate:>11.0}{speed_up:>9.2}x{beside:>22}   {words}{drafts}",
            row.name
        );
    }
    if let Some(temperature) = args.temperature.filter(|_| args.samples()) {
        say!("Sampled at temperature {temperature}, seed {}.", args.seed);
    }
    say!("On {}.", args.device);
    say!("\n{}", paint(Color::Bold, &format!("{:<26}{}", "prompt", rows[0].name)));
    for (prompt, text) in prompts.iter().zip(first) {
        say!("{}", two_columns(prompt, &text.text));
    }
    ExitCode::from(u8::from(!all_equal))
}

/// Returns the median time of the loop that has a cache and nothing else, which all later methods
/// have to beat.
fn against(rows: &[Row], rounds: &[Vec<Vec<Text>>]) -> Option<f64> {
    let at = rows.iter().position(|row| row.name == "KV cache")?;
    Some(median(&rows[at], &rounds[at]))
}

/// Returns the median of a row's times. Texts in a batch run at the same time, so the longest
/// counts. Otherwise, the times are added.
fn median(row: &Row, rounds: &[Vec<Text>]) -> f64 {
    let shared = match &row.source {
        Source::Engine(flags) => {
            flags.iter().any(|flag| ["day12", "day15"].contains(&flag.as_str()))
        }
        Source::Server(_) => false,
    };
    let seconds = |texts: &Vec<Text>| {
        let each = texts.iter().map(Text::seconds);
        if shared {
            each.fold(0.0, f64::max)
        } else {
            each.sum()
        }
    };
    let mut seconds: Vec<f64> = rounds.iter().map(seconds).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Describes how many draft tokens were accepted. Empty without drafts.
fn accepted(texts: &[Text], tokens: usize) -> String {
    let drafts: Vec<&Drafts> = texts.iter().filter_map(|text| text.drafts.as_ref()).collect();
    if drafts.is_empty() {
        return String::new();
    }
    let sum = |count: fn(&Drafts) -> usize| drafts.iter().map(|one| count(one)).sum::<usize>();
    let share = 100.0 * sum(|one| one.accepted) as f64 / sum(|one| one.drafted).max(1) as f64;
    let per_pass = tokens as f64 / sum(|one| one.passes).max(1) as f64;
    format!("; {share:.0} % of drafts accepted, {per_pass:.2} tokens per pass")
}

/// Describes the first place where the texts differ. A server's texts are compared by ids if it
/// returns them, and by text otherwise. It may omit the final EOS token.
fn difference(want: &[Text], got: &[Text], is_server: bool) -> Option<String> {
    if want.len() != got.len() {
        return Some(format!("{} texts, not {}", got.len(), want.len()));
    }
    for (number, (want, got)) in (1..).zip(want.iter().zip(got)) {
        if is_server && got.new_ids.is_empty() {
            if want.text != got.text {
                let letters = want.text.chars().zip(got.text.chars());
                let same = letters.take_while(|(a, b)| a == b).count();
                let theirs: String = got.text.chars().skip(same).take(20).collect();
                return Some(format!("text {number} from character {same} on: {theirs:?} there"));
            }
            continue;
        }
        let hidden = usize::from(is_server && want.finish_reason.as_deref() == Some("eos"));
        let without_eos = &want.new_ids[..want.new_ids.len().saturating_sub(hidden)];
        if want.new_ids != got.new_ids && without_eos != got.new_ids {
            let pairs = want.new_ids.iter().zip(&got.new_ids);
            let same = pairs.take_while(|(a, b)| a == b).count();
            return Some(format!("text {number} from token {same} on"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::args::tests::Cli;
    use crate::compare::texts::tests::text;
    use clap::Parser as _;

    #[test]
    fn every_row_passes_each_flag_once() {
        let typed = ["compare", "--temperature", "0.8", "--device", "cpu"];
        let args = Cli::parse_from(typed).args;
        for row in rows(&args, 2) {
            let Source::Engine(flags) = &row.source else { continue };
            let mut flags = [args.sampling(), flags.clone()].concat();
            flags.retain(|flag| flag.starts_with("--"));
            let all = flags.len();
            flags.sort();
            flags.dedup();
            assert_eq!(flags.len(), all, "{}: {flags:?}", row.name);
        }
        assert!(Cli::try_parse_from(["compare", "--rounds", "0"]).is_err());
    }

    #[test]
    fn the_first_difference_is_named() {
        let want = [text(&[1, 2], ""), text(&[3, 4, 5], "")];
        let differs = |ids: &[u64]| difference(&want, &[text(&[1, 2], ""), text(ids, "")], false);
        assert_eq!(differs(&[3, 4, 5]), None);
        assert_eq!(differs(&[3, 9, 5]).as_deref(), Some("text 2 from token 1 on"));
        assert!(differs(&[3, 4]).is_some() && difference(&want, &want[..1], false).is_some());
    }

    #[test]
    fn a_server_is_compared_by_ids_or_by_text_and_may_omit_the_eos() {
        let mut want = [text(&[1, 2, 0], " a dog")];
        assert!(difference(&want, &[text(&[1, 2], " a dog")], true).is_some());
        want[0].finish_reason = Some("eos".to_string());
        assert_eq!(difference(&want, &[text(&[1, 2], " a dog")], true), None);
        assert!(difference(&want, &[text(&[1, 2], " a dog")], false).is_some());
        assert_eq!(difference(&want, &[text(&[], " a dog")], true), None);
        let words = difference(&want, &[text(&[], " a cat")], true);
        assert_eq!(words.as_deref(), Some("text 1 from character 3 on: \"cat\" there"));
    }

    #[test]
    fn batch_time_is_not_summed_over_its_texts() {
        let row = |source| Row { name: String::new(), source, own_draws: false };
        let engine = |flag: &str| row(Source::Engine(vec![flag.to_string()]));
        let rounds = [vec![text(&[1], ""), text(&[2], "")]];
        let mut rows = [engine("day7"), engine("day10")];
        let two = vec![text(&[1], ""), text(&[2], "")];
        let both = [vec![two], vec![vec![text(&[1], "")]]];
        assert_eq!(against(&rows, &both), None);
        rows[1].name = "KV cache".to_string();
        assert_eq!(against(&rows, &both), Some(3.0));
        assert_eq!(median(&engine("day12"), &rounds), 3.0);
        assert_eq!(median(&engine("day10"), &rounds), 6.0);
    }
}
