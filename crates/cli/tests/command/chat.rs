//! Tests the chat command through pipes: lines go in and answers come out. Ctrl-C stops an answer,
//! or ends the chat at its prompt.

use crate::Ran;
use candecode_testing::Folder;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

fn command(flags: &[&str]) -> Command {
    let mut command = crate::command(&[&["--chat"], flags].concat());
    command.stdin(Stdio::piped());
    command
}

/// Runs a chat with these lines, and returns its standard output, standard error and exit code.
fn chat(flags: &[&str], lines: impl AsRef<[u8]>) -> (String, String, i32) {
    let mut child = command(flags).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_ref()).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    (ran.out, ran.err, ran.code)
}

/// Returns the numbers in each `--stats` line: tokens, reused, answer, computed.
fn stats(errors: &str) -> Vec<[usize; 4]> {
    let lines = errors.lines().filter(|line| line.starts_with("turn "));
    let numbers = |line: &str| -> [usize; 4] {
        let words = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        let numbers: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
        numbers[1..5].try_into().unwrap()
    };
    lines.map(numbers).collect()
}

const SMALL: [&str; 4] = ["--model", "story-230k", "--stats", "--offline"];

#[test]
fn each_line_is_a_turn_and_reuses_the_cache() {
    let (out, errors, code) =
        chat(&SMALL, "Once upon a time there was a cat.\nOne day, it rained.\n\n");
    assert_eq!(code, 0, "{errors}");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(errors.contains("--template story"), "{errors}");
    let turns = stats(&errors);
    assert_eq!(turns.len(), 3, "{errors}");
    assert_eq!(turns[0][1], 0);
    for (before, turn) in turns.iter().zip(&turns[1..]) {
        let [tokens, reused, answer, computed] = *turn;
        assert!(reused >= before[0], "the previous turn isn't recomputed: {errors}");
        assert_eq!(computed, tokens - reused + answer - 1);
    }
    let (plain, errors, _) = chat(
        &[&SMALL[..], &["--no-cache"]].concat(),
        "Once upon a time there was a cat.\nOne day, it rained.\n\n",
    );
    assert_eq!(plain, out, "the same words without a cache");
    assert!(
        stats(&errors).iter().all(|turn| turn[1] == 0 && turn[3] > turn[0] + turn[2]),
        "{errors}"
    );
}

#[test]
fn commands_do_what_help_says() {
    let lines = "/help\n/foo\n/system Be brief.\nA cat sat.\n/reset\nA cat \
        sat.\n/system\n//x\n/quit\nA dog.\n";
    let (out, errors, code) = chat(&SMALL, lines);
    for named in ["/reset ", "\"/foo\"", "a story has no system prompt"] {
        assert!(errors.contains(named), "{named}: {errors}");
    }
    let turns = stats(&errors);
    assert_eq!((turns.len(), code), (3, 0), "{errors}");
    assert_eq!(
        turns[1][1],
        turns[1][0] - 1,
        "after /reset, the same line is already in the cache: {errors}"
    );
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers[0], answers[1], "{out}");
}

#[test]
fn a_chat_accepts_a_custom_template_and_system_prompt() {
    let folder = Folder::new("chat-own");
    let file = folder.write(
        "t.jinja",
        "{% for m in messages %}{{ m.role }}{{ mark }} {{ m.content }}\n{% endfor %}assistant:",
    );
    let path = file.to_str().unwrap();
    let flags = [
        "--template",
        path,
        "--template-set",
        "mark=:",
        "--max-new-tokens",
        "6",
        "--system",
        "A story.",
    ];
    let (_, errors, code) =
        chat(&[&SMALL[..], &flags].concat(), "Hi.\n\n/system Be very brief, and kind.\nWho?\n");
    assert_eq!(code, 0, "{errors}");
    assert!(!errors.contains("--template story"), "{errors}");
    let turns = stats(&errors);
    assert_eq!(turns.len(), 2, "an empty line isn't a turn: {errors}");
    assert!(
        turns[1][1] < turns[0][0],
        "a new system prompt: everything after it is recomputed: {errors}"
    );
    assert!(errors.contains("--max-new-tokens"), "what cut the answer: {errors}");
}

#[test]
fn a_refused_chat_line_is_reported_and_the_chat_continues() {
    let mut lines = "long ".repeat(600).into_bytes();
    lines.extend(b"\n\xff\xfe\nA cat sat.\n");
    let (_, errors, code) = chat(&SMALL, lines);
    assert!(errors.contains("512") && errors.contains("UTF-8"), "{errors}");
    assert_eq!((stats(&errors).len(), code), (1, 1), "{errors}");
}

#[test]
fn a_byte_order_mark_is_stripped_from_the_first_chat_line() {
    let (out, errors, code) = chat(&SMALL, "\u{feff}/quit\nA cat sat.\n");
    assert_eq!((out.as_str(), stats(&errors).len(), code), ("", 0, 0), "{errors}");
}

#[test]
fn a_seed_reproduces_the_chat() {
    let flags = |seed| [&SMALL[..], &["--temperature", "0.9", "--seed", seed]].concat();
    let lines = "Once upon a time there was a cat.\nOne day, it rained.\n/reset\nOnce upon a time \
        there was a cat.\n";
    let (one, _, _) = chat(&flags("1"), lines);
    assert_eq!(chat(&flags("1"), lines).0, one);
    assert_ne!(chat(&flags("2"), lines).0, one);
    let answers: Vec<&str> = one.lines().collect();
    assert_ne!(answers.first(), answers.last(), "the random stream continues after /reset: {one}");
}

#[test]
#[cfg(unix)]
fn control_c_stops_the_answer_but_not_the_chat() {
    let folder = Folder::new("chat-stop");
    let file = folder.write("t.jinja", "{% for m in messages %}{{ m.content }} {% endfor %}");
    // Slow on purpose: without a cache, the answer is still being generated when the signal
    // arrives.
    let path = file.to_str().unwrap();
    let flags = [
        "--stats",
        "--no-cache",
        "--kernels",
        "plain",
        "--template",
        path,
        "--max-new-tokens",
        "200",
    ];
    let mut child = command(&flags).spawn().unwrap();
    let (mut lines, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut until = |words: &str| loop {
        let mut line = String::new();
        assert!(errors.read_line(&mut line).unwrap() > 0, "the chat ended before \"{words}\"");
        if line.contains(words) {
            return line;
        }
    };
    lines.write_all(b"Once upon a time there was a cat.\n").unwrap();
    out.read_exact(&mut [0; 8]).unwrap(); // the answer has started
    crate::control_c(&child);
    until("[stopped; the conversation is kept]");
    let first = stats(&until("turn 1: "))[0];
    assert!(first[2] < 200);
    lines.write_all(b"And a dog.\n").unwrap();
    std::thread::spawn(move || out.read_to_end(&mut vec![]));
    let second = stats(&until("turn 2: "))[0];
    assert!(second[0] > first[0] + first[2] / 2, "the text so far must stay: {first:?} {second:?}");
    drop(lines); // the end of the input
    assert!(child.wait().unwrap().success());
}

#[test]
#[cfg(unix)]
fn control_c_at_the_prompt_ends_the_chat_cleanly() {
    let mut child = command(&SMALL).spawn().unwrap();
    let mut lines = child.stdin.take().unwrap();
    lines.write_all(b"A cat sat.\n").unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("turn 1: ") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // A Ctrl-C before the chat waits for a line has no effect, so another one follows, but not soon:
    // two of them before that end the program at once.
    let ends = |child: &mut std::process::Child| {
        crate::control_c(child);
        (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            child.try_wait().unwrap()
        })
    };
    let status = (0..5).find_map(|_| ends(&mut child)).expect("the chat doesn't end");
    errors.read_to_string(&mut said).unwrap();
    assert!(status.success() && said.contains("[the chat ends]"), "{status}: {said}");
}
