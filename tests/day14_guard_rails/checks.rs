//! Day 14's checks: guard rails.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day14_guard_rails;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day14_guard_rails.rs"]
mod day14_guard_rails;

use candecode::day07_greedy::{self, generate};
use candecode::day08_sampling::{chacha_sampler, warpers};
use candecode::day10_kv_cache::{generate_cached, Cached};
use candecode::day11_beam_search::beam_search;
use candecode::day12_batching::generate_batch;
use candecode::day13_speculative::{decode_block, one_hot, SpeculativeDecoder};
use candecode::kit::beams::{BeamParams, EarlyStopping};
use candecode::kit::dfa::Dfa;
use candecode::kit::draft::{Draft, Drafter};
use candecode::kit::{
    LogitsProcessor, Model, NoCache, ProcessorInput, Request, SamplingParams, Schema, Token,
    Tokenizer,
};
use candle_core::{Error, Result};
use frame::{
    ensure, equal, golden_json, refused, tokenizer, Failure, Fake, Likely, Outcome, Random,
};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

const NEVER: f32 = f32::NEG_INFINITY;
const VOCAB: usize = 2048;
const EOS: u32 = 0;

/// A rule in any implementation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyRule {
    MustMatch,
    BlockSubstring,
    BlockWord,
}

/// The processors that make up a guard rail.
pub type Rails = Vec<Rc<dyn LogitsProcessor>>;

/// The day 14 functions under test. An automaton is passed as its pattern and its rule, and reads
/// one piece after another.
#[derive(Clone, Copy)]
pub struct Day {
    pub choose: fn(&[String], &[u8], &[u8]) -> bool,
    pub read: fn(&str, AnyRule, &[&[u8]]) -> Result<usize>,
    pub violates: fn(&str, AnyRule, &[u8]) -> Result<bool>,
    pub may_end: fn(&str, AnyRule, &[u8]) -> Result<bool>,
    pub walk: fn(&str, AnyRule, &[u8], &[u8]) -> Result<Option<usize>>,
    /// For each text, whether a block list of these words finds one of them: words, `whole`, texts.
    pub finds: fn(&[String], bool, &[&str]) -> Result<Vec<bool>>,
    pub state: fn(&str, AnyRule, &Tokenizer, &ProcessorInput) -> Result<usize>,
    /// The legal next tokens after each text. The flag says whether the text is the whole prompt.
    pub legal: fn(&str, AnyRule, &Tokenizer, &[(&[u8], bool)]) -> Result<Vec<Vec<bool>>>,
    /// The number of mask bytes that a rail of `1 << 20` tokens keeps after questions about all
    /// these texts.
    pub kept_bytes: fn(&str, AnyRule, &Tokenizer, &[&[u8]]) -> Result<usize>,
    pub block: fn(&[String], bool, &[String], &Tokenizer) -> Result<Rails>,
    pub sequences: fn(&mut [f32], &[u32], &[Vec<u32>], &[u32]),
    /// For each text, whether the state it leads to is live.
    pub live: fn(&str, &[&[u8]]) -> Result<Vec<bool>>,
    pub allow: fn(&str, &Tokenizer) -> Result<Rails>,
    /// The forced bytes after each text.
    pub forced: fn(&str, &[&[u8]]) -> Result<Vec<Vec<u8>>>,
    /// Whether an automaton of the schema's pattern takes each text.
    pub takes: fn(&Schema, &[&str]) -> Result<Vec<bool>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        use candecode::kit::LogitsProcessor;
        fn automaton(pattern: &str, rule: crate::AnyRule) -> candle_core::Result<code::Automaton> {
            let rule = match rule {
                crate::AnyRule::BlockSubstring => code::Rule::BlockSubstring,
                crate::AnyRule::BlockWord => code::Rule::BlockWord,
                crate::AnyRule::MustMatch => code::Rule::MustMatch,
            };
            code::Automaton::new(pattern, rule)
        }
        crate::Day {
            choose: code::may_choose,
            read: |pattern, rule, pieces| {
                let automaton = automaton(pattern, rule)?;
                let start = automaton.start();
                let end = pieces.iter().fold(start, |state, piece| automaton.read(state, piece));
                Ok(end.as_usize())
            },
            violates: |pattern, rule, text| {
                let automaton = automaton(pattern, rule)?;
                Ok(automaton.violates(automaton.read(automaton.start(), text)))
            },
            may_end: |pattern, rule, text| {
                let automaton = automaton(pattern, rule)?;
                Ok(automaton.may_end(automaton.read(automaton.start(), text)))
            },
            walk: |pattern, rule, text, piece| {
                let automaton = automaton(pattern, rule)?;
                let state = automaton.read(automaton.start(), text);
                Ok(automaton.walk(state, piece).map(|state| state.as_usize()))
            },
            finds: |words, whole, texts| {
                let rule = match whole {
                    true => crate::AnyRule::BlockWord,
                    false => crate::AnyRule::BlockSubstring,
                };
                let automaton = automaton(&code::block_pattern(words, whole)?, rule)?;
                let finds = |text: &&str| {
                    let mut state = automaton.start();
                    for byte in text.bytes() {
                        state = automaton.read(state, &[byte]);
                        if automaton.violates(state) {
                            return true;
                        }
                    }
                    !automaton.may_end(state)
                };
                Ok(texts.iter().map(finds).collect())
            },
            state: |pattern, rule, tokenizer, input| {
                let rail = code::GuardRail::new("", automaton(pattern, rule)?, tokenizer, 2048);
                Ok(rail.state(input).as_usize())
            },
            legal: |pattern, rule, tokenizer, texts| {
                let rail = code::GuardRail::new("", automaton(pattern, rule)?, tokenizer, 2048);
                let automaton = automaton(pattern, rule)?;
                let after = |text: &[u8]| automaton.read(automaton.start(), text);
                let legal = texts.iter().map(|(text, first)| rail.legal(after(text), *first));
                Ok(legal.map(|legal| legal.to_vec()).collect())
            },
            kept_bytes: |pattern, rule, tokenizer, texts| {
                let rail = code::GuardRail::new("", automaton(pattern, rule)?, tokenizer, 1 << 20);
                let automaton = automaton(pattern, rule)?;
                let mut masks = Vec::new();
                for text in texts {
                    let mask = rail.legal(automaton.read(automaton.start(), text), false);
                    masks.push(std::rc::Rc::downgrade(&mask));
                }
                masks.dedup_by(|a, b| a.ptr_eq(b));
                Ok(masks.iter().filter_map(|mask| mask.upgrade()).map(|mask| mask.len()).sum())
            },
            block: |words, whole, stops, tokenizer| {
                let rails = code::block_rails(words, whole, stops, tokenizer, 2048)?;
                let shared = |rail| std::rc::Rc::new(rail) as std::rc::Rc<dyn LogitsProcessor>;
                Ok(rails.into_iter().map(shared).collect())
            },
            sequences: code::block_sequences,
            live: |pattern, texts| {
                let dfa = candecode::kit::dfa::Dfa::anchored(pattern)?;
                let live = code::live_states(&dfa);
                let next = |state, byte: &u8| dfa.next_state(state, *byte);
                let after = |text: &[u8]| text.iter().fold(dfa.start(), next);
                Ok(texts.iter().map(|text| live.contains(&after(text))).collect())
            },
            allow: |regex, tokenizer| {
                Ok(vec![std::rc::Rc::new(code::allow_rail(regex, tokenizer, 2048)?)])
            },
            forced: |pattern, texts| {
                let automaton = automaton(pattern, crate::AnyRule::MustMatch)?;
                let after = |text: &&[u8]| automaton.read(automaton.start(), text);
                Ok(texts.iter().map(|text| automaton.forced(after(text))).collect())
            },
            takes: |schema, texts| {
                let pattern = code::schema_pattern(schema);
                let automaton = automaton(&pattern, crate::AnyRule::MustMatch)?;
                let takes = |text: &&str| {
                    automaton.may_end(automaton.read(automaton.start(), text.as_bytes()))
                };
                Ok(texts.iter().map(takes).collect())
            },
        }
    }};
}

frame::checks! {
    day14_guard_rails:
    14.1: a_token_must_leave_a_choice, a_token_can_end_inside_a_character_of_a_choice,
        a_token_without_bytes_is_not_a_choice;
    14.2: live_states_lead_to_a_match, live_agrees_with_trying_everything,
        a_loop_that_never_matches_is_not_live, a_pattern_without_matches_is_refused,
        one_search_is_enough;
    14.3: a_format_starts_after_the_prompt, a_block_list_reads_the_prompt, every_token_is_read;
    14.4: every_token_is_judged, stored_masks_are_bounded;
    14.5: eos_is_legal_only_where_the_text_may_end, an_eos_id_with_bytes_is_still_eos,
        the_last_token_ends_the_text_if_one_can, random_models_match_the_pattern,
        legal_tokens_keep_their_logits, ids_without_a_piece_are_illegal;
    14.6: a_substring_is_blocked_at_its_last_byte, a_whole_word_is_blocked_once_it_stands_alone,
        a_text_may_not_end_in_a_blocked_word, words_are_not_patterns,
        letter_case_is_ignored_in_a_list, composed_and_decomposed_letters_are_found,
        whole_words_stand_alone;
    14.7: a_word_can_end_inside_a_token, the_text_may_continue_after_a_blocked_word;
    14.8: the_first_token_is_not_blamed_for_the_prompt, the_first_token_can_complete_a_word,
        the_prompt_may_end_in_the_word, no_spelling_of_a_blocked_word_gets_through,
        the_end_of_the_text_ends_a_word, a_stop_string_ends_a_word, every_loop_keeps_the_rail;
    14.9: bytes_are_forced_up_to_a_choice, many_bytes_can_lead_to_one_state,
        nothing_is_forced_where_the_text_may_end, nothing_is_forced_in_a_dead_state;
    14.10: the_last_id_of_a_sequence_is_forbidden, sequences_agree_with_transformers;
    14.11: whole_numbers_and_strings_are_json, words_of_an_enum_are_whole_and_not_patterns,
        a_list_has_the_right_number_of_items, an_object_has_its_properties_in_order,
        schemas_can_be_nested;
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn show(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

/// Returns the bytes of every token. EOS has none.
fn pieces(tokenizer: &Tokenizer) -> Vec<Vec<u8>> {
    (0..VOCAB as u32).map(|id| tokenizer.token_bytes(id)).collect()
}

/// Returns the id of the token with this text.
fn id(tokenizer: &Tokenizer, text: &str) -> Result<u32> {
    let found = pieces(tokenizer).iter().position(|piece| piece == text.as_bytes());
    found.map(|id| id as u32).ok_or_else(|| Error::Msg(format!("no token {text:?}")))
}

/// Returns the ids of these texts, one token each.
fn ids(tokenizer: &Tokenizer, texts: &[&str]) -> Result<Vec<u32>> {
    texts.iter().map(|text| id(tokenizer, text)).collect()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns the tokens that may follow, from logits that are all 1. Fails if a logit is neither 1
/// nor -inf afterwards.
fn legal(
    rails: &Rails,
    tokens: &[u32],
    prompt_len: usize,
    remaining: usize,
) -> std::result::Result<Vec<bool>, Failure> {
    let mut logits = vec![1.0; VOCAB];
    let input = ProcessorInput { tokens, prompt_len, remaining, eos: &[EOS] };
    rails.iter().try_for_each(|rail| rail.process(&input, &mut logits))?;
    let changed = logits.iter().find(|logit| **logit != 1.0 && **logit != NEVER);
    if let Some(changed) = changed {
        equal("a logit of 1, after the rail", Ok(*changed), &NEVER)
            .likely("set illegal tokens to -inf, and leave the others alone")?;
    }
    Ok(logits.iter().map(|logit| *logit != NEVER).collect())
}

/// Tests some tokens, given by their text, with "" for EOS. `want` lists the legal ones.
fn asks(
    what: &str,
    tokenizer: &Tokenizer,
    legal: &[bool],
    asked: &[&str],
    want: &[&str],
) -> Outcome {
    let mut got = Vec::new();
    for text in asked {
        let id = if text.is_empty() { EOS } else { id(tokenizer, text)? };
        if legal[id as usize] {
            got.push(if text.is_empty() { "EOS" } else { text });
        }
    }
    let want: Vec<&str> = want.iter().map(|w| if w.is_empty() { "EOS" } else { w }).collect();
    let asked = asked.iter().map(|w| if w.is_empty() { "EOS" } else { w });
    let asked: Vec<&str> = asked.collect();
    equal(&format!("{what}; which of {asked:?} may follow"), Ok(got), &want)
}

/// Checks the result of `f` on each text.
fn says<T: std::fmt::Debug + PartialEq + Copy>(
    what: &str,
    f: impl Fn(&[u8]) -> Result<T>,
    cases: &[(&str, T)],
) -> Outcome {
    let want: Vec<(&str, T)> = cases.to_vec();
    let got: Result<Vec<(&str, T)>> =
        cases.iter().map(|(text, _)| Ok((*text, f(text.as_bytes())?))).collect();
    equal(what, got, &want)
}

// 14.1

/// Checks which of these pieces may follow a text, if the answer must be one of `choices`.
fn may_choose(day: &Day, choices: &[&str], cases: &[(&str, &[&str], &[&str])]) -> Outcome {
    for (text, pieces, want) in cases {
        let may =
            |piece: &&&str| (day.choose)(&strings(choices), text.as_bytes(), piece.as_bytes());
        let got: Vec<&str> = pieces.iter().filter(may).copied().collect();
        let what = format!("one of {choices:?}, after {text:?}; which of {pieces:?} may follow");
        equal(&what, Ok(got), &want.to_vec())?;
    }
    Ok(())
}

fn a_token_must_leave_a_choice(day: &Day) -> Outcome {
    let pieces = &["y", "ye", "yes", "yesterday", "n", "e", "not", "s", " yes"];
    may_choose(day, &["yes", "no"], &[("", pieces, &["y", "ye", "yes", "n"])])
        .likely("the text plus the token must be the beginning of a choice, or a whole choice")?;
    let pieces = &["es", "e", "est", "s", "y", "yes"];
    may_choose(day, &["yes", "no"], &[("y", pieces, &["es", "e"])])?;
    let pieces = &["t", " ", "t yet", "s", "no"];
    let cases: &[(&str, &[&str], &[&str])] =
        &[("no", pieces, &["t", "t yet"]), ("not yet", pieces, &[]), ("nobody", pieces, &[])];
    may_choose(day, &["no", "not yet", "yes"], cases)?;
    may_choose(day, &[], &[("", &["a", "no"], &[])])
}

fn a_token_can_end_inside_a_character_of_a_choice(day: &Day) -> Outcome {
    let choices = strings(&["\u{e9}t\u{e9}"]);
    let mut got = Vec::new();
    for (written, piece) in [(0, 1), (0, 2), (1, 1), (1, 3), (2, 2), (4, 1)] {
        let bytes = choices[0].as_bytes();
        got.push((day.choose)(&choices, &bytes[..written], &bytes[written..written + piece]));
    }
    let what = "\"\u{e9}t\u{e9}\" in pieces of 1 to 3 bytes: may each of them follow";
    equal(what, Ok(got), &vec![true; 6])
        .likely("compare bytes: a token can end in the middle of a character")
}

fn a_token_without_bytes_is_not_a_choice(day: &Day) -> Outcome {
    let choices = strings(&["yes", "no"]);
    let got: Vec<bool> =
        ["", "ye", "yes"].iter().map(|text| (day.choose)(&choices, text.as_bytes(), b"")).collect();
    let what = "yes or no: may a token without bytes follow \"\", \"ye\" and \"yes\"";
    equal(what, Ok(got), &vec![false; 3])
        .likely("a token without bytes isn't text; whether EOS is legal is decided separately")
}

// 14.2

fn live_states_lead_to_a_match(day: &Day) -> Outcome {
    let live = |pattern: &'static str| move |text: &[u8]| Ok((day.live)(pattern, &[text])?[0]);
    let cases = [("", true), ("ye", true), ("yes", true), ("x", false), ("yel", false)];
    says("yes|yet|no+; is the state live", live("yes|yet|no+"), &cases)?;
    let cases = [("yess", false), ("noo", true), ("non", false), ("no no", false)];
    says("yes|yet|no+; after a match, is the state live", live("yes|yet|no+"), &cases)?;
    let cases = [("", true), ("12", true), ("12345", true), ("123456", false)];
    says("[0-9]{5}; is the state live", live("[0-9]{5}"), &cases)
        .likely("go back from each live state to all states before it, not just one step")?;
    says("[a&&b], which matches nothing", live("[a&&b]"), &[("", false), ("a", false)])?;
    let bytes = "日日".as_bytes();
    let texts: Vec<&[u8]> = (0..=6).map(|n| &bytes[..n]).chain([&b"\xe6x"[..]]).collect();
    let want = [vec![true; 7], vec![false]].concat();
    equal(
        "日+: are the states after 0 to 6 bytes of 日日 live, and after \\xe6x",
        (day.live)("日+", &texts),
        &want,
    )
}

/// Checks by brute force: a state is live if and only if some continuation of zero to four letters
/// leads to a match.
fn live_agrees_with_trying_everything(day: &Day) -> Outcome {
    let patterns = ["ab", "a*b", "(ab)+", "a|bba", "a{2,3}", "(a|b)*bb", "b?a?", "(aa|b)*a", ""];
    let mut continuations = vec![String::new()];
    for at in 0..15 {
        continuations.push(format!("{}a", continuations[at]));
        continuations.push(format!("{}b", continuations[at]));
    }
    let mut random = Random::new(41);
    for _ in 0..200 {
        let pattern = patterns[random.below(patterns.len())];
        let text: String = (0..random.below(8)).map(|_| ["a", "b"][random.below(2)]).collect();
        let dfa = Dfa::anchored(pattern)?;
        let matches = |more: &String| {
            let bytes = text.bytes().chain(more.bytes());
            dfa.ends_in_match(bytes.fold(dfa.start(), |state, byte| dfa.next_state(state, byte)))
        };
        let want = continuations.iter().any(matches);
        let got = (day.live)(pattern, &[text.as_bytes()])?[0];
        equal(
            &format!("{pattern:?} must match; is the state after {text:?} live"),
            Ok(got),
            &want,
        )?;
    }
    Ok(())
}

fn a_loop_that_never_matches_is_not_live(day: &Day) -> Outcome {
    let live = |text: &[u8]| Ok((day.live)(r"(?-u)x(a+\b[a-z]|b)", &[text])?[0]);
    let cases = [("x", true), ("xb", true), ("xa", false), ("xaaaa", false)];
    says(r"x(a+\b[a-z]|b); is the state live", live, &cases)
        .likely("after \"xa\" more letters can always come, but never a match")
}

fn a_pattern_without_matches_is_refused(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let got = (day.allow)("[a&&b]", &tokenizer).map(|rails| rails.len());
    refused("[a&&b], which matches nothing", got, &["matches", "[a&&b]"])?;
    let got = (day.allow)("(a", &tokenizer).map(|rails| rails.len());
    refused("(a, which isn't a regular expression", got, &["(a"])?;
    let got = (day.allow)("a|b", &tokenizer).map(|rails| rails.len());
    equal("a|b: the number of rails", got, &1)
}

/// Returns the number of states that can be reached, each of which is visited once.
fn count_states(dfa: &Dfa) -> usize {
    let mut seen = HashSet::from([dfa.start()]);
    let mut open = vec![dfa.start()];
    while let Some(state) = open.pop() {
        open.extend(dfa.successors(state).into_iter().filter(|next| seen.insert(*next)));
    }
    seen.len()
}

/// The limit is work and not time: `SEARCHES` searches of the same automaton, on this thread, while
/// the code under test runs on another. A right solution needs about two.
fn one_search_is_enough(day: &Day) -> Outcome {
    const SEARCHES: usize = 100;
    // After an a, 5,000 states follow each other, and no match.
    let pattern = r"(?-u)a{5000}\b[a-z]|b";
    let live = day.live;
    // A search that calls itself goes as deep as there are states.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    let running = thread.spawn(move || live(pattern, &[b"", b"aaa", b"b"]));
    let running = running.map_err(|error| Error::Msg(error.to_string()))?;
    let dfa = Dfa::anchored(pattern)?;
    for _ in 0..SEARCHES {
        if running.is_finished() {
            break;
        }
        count_states(&dfa);
    }
    let input = format!("{pattern} must match: are the states after nothing, aaa and b live");
    let late = format!("it takes more work than {SEARCHES} searches of this automaton");
    ensure(&input, running.is_finished(), &late).likely("visit every state once")?;
    let got = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    equal(&input, got, &vec![true, false, true])
}

// 14.3

/// Builds a processor's input for a text.
fn input_for<'a>(tokens: &'a [u32], prompt_len: usize, eos: &'a [u32]) -> ProcessorInput<'a> {
    ProcessorInput { tokens, prompt_len, remaining: 9, eos }
}

fn a_block_list_reads_the_prompt(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let state = |tokens: &[u32], prompt_len| {
        let input = input_for(tokens, prompt_len, &[EOS]);
        (day.state)("playground", AnyRule::BlockSubstring, &tokenizer, &input)
    };
    let tokens = ids(&tokenizer, &["The", " play", "g", "r"])?;
    let want = (day.read)("playground", AnyRule::BlockSubstring, &[b"playgr"])?;
    for prompt_len in 1..=4 {
        let what = format!(
            "playground blocked; tokens \"The\" \" play\" \"g\" \"r\", the first {prompt_len} from \
            the prompt: the state"
        );
        equal(&what, state(&tokens, prompt_len), &want)
            .likely("a block list reads the prompt, too")?;
    }
    // EOS in the prompt isn't text, and neither is an id that the model has but the tokenizer
    // doesn't.
    let odd = [&tokens[..2], &[EOS, 70_000], &tokens[2..]].concat();
    equal("the same with EOS and an unknown id between \" play\" and \"g\"", state(&odd, 2), &want)
}

fn every_token_is_read(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let state = |pattern: &str, tokens: &[u32], eos: &[u32]| {
        (day.state)(pattern, AnyRule::BlockSubstring, &tokenizer, &input_for(tokens, 1, eos))
    };
    let long = vec![id(&tokenizer, "a")?; 80];
    let want = (day.read)("a{100}", AnyRule::BlockSubstring, &[&[b'a'; 80]])?;
    equal("a{100} blocked; 80 tokens \"a\": the state", state("a{100}", &long, &[EOS]), &want)
        .likely("read the whole text: a word may have as many tokens as bytes")?;
    let dog = ids(&tokenizer, &["The", " do", "g"])?;
    let want = (day.read)("dog|ogre", AnyRule::BlockSubstring, &[b"The dog"])?;
    equal(
        "dog|ogre blocked; tokens \"The\" \" do\" \"g\": the state",
        state("dog|ogre", &dog, &[EOS]),
        &want,
    )
    .likely("keep reading after a blocked word: another one may start inside it")?;
    let g = id(&tokenizer, "g")?;
    let what = "the same where \"g\" is one of the EOS ids";
    equal(what, state("dog|ogre", &dog, &[EOS, g]), &want)
        .likely("an EOS id that has bytes is text like any other")
}

fn a_format_starts_after_the_prompt(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let tokens = ids(&tokenizer, &["The", " play", "g", "r"])?;
    for prompt_len in [2, 3, 4] {
        let input = input_for(&tokens, prompt_len, &[EOS]);
        let got = (day.state)("[a-z]+", AnyRule::MustMatch, &tokenizer, &input);
        let text: &[u8] = [&b"gr"[..], b"r", b""][prompt_len - 2];
        let want = (day.read)("[a-z]+", AnyRule::MustMatch, &[text])?;
        let what = format!(
            "[a-z]+ must match; tokens \"The\" \" play\" \"g\" \"r\", the first {prompt_len} from \
                the prompt: the state"
        );
        equal(&what, got, &want)
            .likely("only the generated text must match, so skip the prompt")?;
    }
    Ok(())
}

// 14.4

/// Checks that two answers about the whole vocabulary agree.
fn same_tokens(what: &str, tokenizer: &Tokenizer, got: &[bool], want: &[bool]) -> Outcome {
    let names = |these: &mut dyn Iterator<Item = usize>| {
        let all: Vec<String> = these.map(|id| show(&tokenizer.token_bytes(id as u32))).collect();
        let few = all[..all.len().min(6)].join(" ");
        if all.len() > 6 {
            format!("{few} and {} more", all.len() - 6)
        } else {
            few
        }
    };
    let let_in = names(&mut (0..VOCAB).filter(|id| got[*id] && !want[*id]));
    let kept_out = names(&mut (0..VOCAB).filter(|id| !got[*id] && want[*id]));
    equal(&format!("{what}: illegal tokens allowed"), Ok(let_in), &String::new())?;
    equal(&format!("{what}: legal tokens blocked"), Ok(kept_out), &String::new())
}

/// Checks the mask against the definition: a token is legal if the text with its bytes is the
/// beginning of a match.
fn every_token_is_judged(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let pieces = pieces(&tokenizer);
    let begins = |text: &[u8]| {
        let no = text
            .split_first()
            .is_none_or(|(n, rest)| *n == b'n' && rest.iter().all(|c| *c == b'o'));
        b"yes".starts_with(text) || b"yet".starts_with(text) || no
    };
    let texts = ["", "y", "n", "ye", "no", "noo", "yes", "yet"];
    let asked: Vec<(&[u8], bool)> = texts.iter().map(|text| (text.as_bytes(), false)).collect();
    let got = (day.legal)("yes|yet|no+", AnyRule::MustMatch, &tokenizer, &asked)?;
    for (text, legal) in texts.iter().zip(&got) {
        let may = |piece: &Vec<u8>| !piece.is_empty() && begins(&[text.as_bytes(), piece].concat());
        let want: Vec<bool> = pieces.iter().map(may).collect();
        same_tokens(&format!("yes|yet|no+, after {text:?}"), &tokenizer, legal, &want)
            .likely("judge each token from the state that the text has led to")?;
    }
    Ok(())
}

fn stored_masks_are_bounded(day: &Day) -> Outcome {
    let word = b"abcdefghijklmnopqrstuvwxyz";
    let texts: Vec<&[u8]> = (0..25).map(|n| &word[..n]).collect();
    let bytes =
        (day.kept_bytes)("abcdefghijklmnopqrstuvwxyz", AnyRule::MustMatch, &tokenizer()?, &texts)?;
    ensure(
        "a vocabulary of 1,048,576 and 25 states",
        bytes <= 16 << 20,
        &format!("{bytes} bytes of masks are kept, more than MASK_BYTES"),
    )
}

// 14.5

/// Checks on random logits that the rails leave every legal token's logit unchanged.
fn logits_are_kept(name: &str, tokenizer: &Tokenizer, rails: &Rails, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let before = ids(tokenizer, &["The", " do"])?;
    let logits: Vec<f32> = (0..VOCAB).map(|_| 8.0 * random.float()).collect();
    let mut got = logits.clone();
    rails.iter().try_for_each(|rail| rail.process(&input_for(&before, 2, &[EOS]), &mut got))?;
    let other: BTreeSet<String> = got
        .iter()
        .zip(&logits)
        .filter(|(got, was)| **got != NEVER && got != was)
        .map(|(got, _)| format!("{got}"))
        .collect();
    let few: Vec<String> = other.into_iter().take(4).collect();
    equal(&format!("{name}: logits that are neither unchanged nor -inf"), Ok(few), &vec![])
        .likely("set illegal tokens to -inf, and leave the others alone")?;
    ensure(name, got.contains(&NEVER), "no token is -inf")
}

fn eos_is_legal_only_where_the_text_may_end(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.allow)("yes|yet|no", &tokenizer)?;
    let asked = ["", "y", "n", "e", "s", "t", "o", "es", "a", " "];
    for (text, want) in [
        (&[][..], &["y", "n"][..]),
        (&["y"], &["e", "es"]),
        (&["y", "e"], &["s", "t"]),
        (&["y", "es"], &[""]),
        (&["n", "o"], &[""]),
    ] {
        let tokens = [ids(&tokenizer, &["The"])?, ids(&tokenizer, text)?].concat();
        let what = format!("yes|yet|no, after {text:?}");
        asks(&what, &tokenizer, &legal(&rails, &tokens, 1, 9)?, &asked, want)?;
    }
    let rails = (day.allow)("no+", &tokenizer)?;
    let tokens = ids(&tokenizer, &["The", "n", "o"])?;
    let got = legal(&rails, &tokens, 1, 9)?;
    asks("no+, after [\"n\", \"o\"]", &tokenizer, &got, &["", "o", "n"], &["", "o"])
        .likely("a text that may end doesn't have to")
}

fn an_eos_id_with_bytes_is_still_eos(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.allow)("no+", &tokenizer)?;
    for (text, other, want, why) in [
        (&["n", "o"][..], "a", [true, true], "all EOS ids are legal where the text may end"),
        (&["n"], "o", [false, false], "no EOS id is legal where the text may not end"),
    ] {
        let tokens = [ids(&tokenizer, &["The"])?, ids(&tokenizer, text)?].concat();
        let eos = [EOS, id(&tokenizer, other)?];
        let mut logits = vec![1.0; VOCAB];
        rails[0].process(&input_for(&tokens, 1, &eos), &mut logits)?;
        let got = eos.map(|id| logits[id as usize] > NEVER);
        let what = format!("no+, after {text:?}; EOS and {other:?} end a text: are they legal");
        equal(&what, Ok(got), &want).likely(why)?;
    }
    Ok(())
}

fn the_last_token_ends_the_text_if_one_can(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.allow)("axyz", &tokenizer)?;
    let tokens = ids(&tokenizer, &["The", "a"])?;
    let got = legal(&rails, &tokens, 1, 1)?;
    let what =
        "axyz, after \"a\", 1 token left: no token can end the text, so legal tokens stay legal";
    asks(what, &tokenizer, &got, &["", "x", "y"], &["x"])?;
    let rails = (day.allow)("a(?:b|bc)?(?:,a)?", &tokenizer)?;
    let asked = ["", "b", "c", ",", "a"];
    let after = |texts: &[&str], remaining| -> std::result::Result<Vec<bool>, Failure> {
        let tokens = [ids(&tokenizer, &["The"])?, ids(&tokenizer, texts)?].concat();
        legal(&rails, &tokens, 1, remaining)
    };
    let what = "a(?:b|bc)?(?:,a)?, after \"a\"";
    asks(
        &format!("{what}, 2 tokens left"),
        &tokenizer,
        &after(&["a"], 2)?,
        &asked,
        &["", "b", ","],
    )?;
    asks(&format!("{what}, 1 token left"), &tokenizer, &after(&["a"], 1)?, &asked, &["", "b"])
        .likely("\",\" as the last token would leave \"a,\"")?;
    let rails = (day.allow)("a(?:b|cd)", &tokenizer)?;
    let got = legal(&rails, &ids(&tokenizer, &["The", "a"])?, 1, 1)?;
    asks("a(?:b|cd), after \"a\", 1 token left", &tokenizer, &got, &["", "b", "c"], &["b"])
        .likely("if one token can end the text, the others are illegal")?;
    let rails = (day.allow)("a(?:xyz)?", &tokenizer)?;
    let tokens = ids(&tokenizer, &["The", "a"])?;
    let got = legal(&rails, &tokens, 1, 1)?;
    asks("a(?:xyz)?, after \"a\", 1 token left", &tokenizer, &got, &["", "x"], &[""])
        .likely("EOS is one of the tokens that the text may end with")
}

fn random_models_match_the_pattern(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let pieces = pieces(&tokenizer);
    let mut random = Random::new(7);
    for pattern in [
        "yes|no|maybe",
        "[0-9]{1,3}(?:\\.[0-9]{2})?",
        "(?:[A-Z][a-z]+ )+ends",
        "\"(?:cat|dog)\"(?:,\"(?:cat|dog)\"){0,2}",
    ] {
        let rails = (day.allow)(pattern, &tokenizer)?;
        let checked = Dfa::anchored(pattern)?;
        for _ in 0..20 {
            let (mut tokens, mut bytes, mut ended) =
                (ids(&tokenizer, &["The"])?, Vec::new(), false);
            for remaining in (1..=40).rev() {
                let legal = legal(&rails, &tokens, 1, remaining)?;
                let may: Vec<usize> = (0..VOCAB).filter(|id| legal[*id]).collect();
                let Some(next) = may.get(random.below(may.len())) else {
                    ensure(
                        &format!("{pattern}, after {}", show(&bytes)),
                        false,
                        "nothing is legal",
                    )?;
                    break;
                };
                // Take EOS as soon as it is legal: with [A-Z][a-z]+ the text would never end
                // otherwise.
                let next = if legal[EOS as usize] { EOS as usize } else { *next };
                ended = next == EOS as usize;
                if ended {
                    break;
                }
                tokens.push(next as u32);
                bytes.extend(&pieces[next]);
            }
            if ended {
                let end = bytes
                    .iter()
                    .fold(checked.start(), |state, byte| checked.next_state(state, *byte));
                let matches = checked.ends_in_match(end);
                ensure(
                    &format!("{pattern}: a random model wrote {}", show(&bytes)),
                    matches,
                    "it doesn't match",
                )?;
            }
        }
    }
    Ok(())
}

fn legal_tokens_keep_their_logits(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.allow)("[a-g]+", &tokenizer)?;
    logits_are_kept("[a-g]+ must match", &tokenizer, &rails, 15)
}

/// A model may have more embedding rows than its tokenizer has tokens, and it returns logits for
/// all of them.
fn ids_without_a_piece_are_illegal(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.allow)("[^g](?s:.*)", &tokenizer)?;
    let before = ids(&tokenizer, &["The", " do"])?;
    for remaining in [2, 1] {
        let mut logits = vec![1.0; VOCAB + 3];
        let input = ProcessorInput { remaining, ..input_for(&before, 2, &[EOS]) };
        rails.iter().try_for_each(|rail| rail.process(&input, &mut logits))?;
        let what = format!(
            "[^g](?s:.*) must match, {remaining} tokens left, 3 more logits than pieces: \
                \"g\" and the last 4"
        );
        let g = logits[id(&tokenizer, "g")? as usize];
        let got = [vec![g], logits.split_off(VOCAB - 1)].concat();
        equal(&what, Ok(got), &vec![NEVER, 1.0, NEVER, NEVER, NEVER])
            .likely("an id without a piece has no bytes: it isn't text, and never legal")?;
    }
    // No token ends " timely" at once. " time" would end a text, but the model has only 300 ids.
    for pattern in [" timely", " time"] {
        let rails = (day.allow)(pattern, &tokenizer)?;
        let mut few = vec![1.0; 300];
        let input = ProcessorInput { remaining: 1, ..input_for(&before, 2, &[EOS]) };
        rails.iter().try_for_each(|rail| rail.process(&input, &mut few))?;
        let legal: Vec<String> = (0..300)
            .filter(|id| few[*id] > NEVER)
            .map(|id| show(&tokenizer.token_bytes(id as u32)))
            .collect();
        let what = format!("{pattern:?} must match, 1 token left, 300 logits: the legal tokens");
        equal(&what, Ok(legal), &strings(&["\" \"", "\" t\""])).likely(
            "only ids that have a logit can end the text; if none can, the rule for the last token \
             is ignored",
        )?;
    }
    Ok(())
}

// 14.6

fn a_substring_is_blocked_at_its_last_byte(day: &Day) -> Outcome {
    let violates = |text: &[u8]| (day.violates)("dog|dig|!", AnyRule::BlockSubstring, text);
    let cases = [("", false), ("do", false), ("dog", true), ("a dig", true), ("!", true)];
    says("dog|dig|! blocked; does the text break the rule", violates, &cases).likely(
        "is_match_state reports a match one byte late: ask if the text ends in a match now",
    )?;
    // A violation in the prompt doesn't matter once the text continues.
    says(
        "dog|dig|! blocked; does the last byte break the rule",
        violates,
        &[("dogs", false), ("dog and dig", true), ("dogma", false)],
    )
}

const ALONE: &str = r"(?-u:\b{start-half})dog(?-u:\b{end-half})";

fn a_whole_word_is_blocked_once_it_stands_alone(day: &Day) -> Outcome {
    let violates = |text: &[u8]| (day.violates)(ALONE, AnyRule::BlockWord, text);
    let cases =
        [("dog", false), ("dogs", false), ("dog ", true), ("a dog.", true), ("hotdog.", false)];
    says("dog blocked as a whole word; does the text break the rule", violates, &cases)
        .likely("\"dog\" may become \"dogs\": only the next byte decides")
}

fn a_text_may_not_end_in_a_blocked_word(day: &Day) -> Outcome {
    equal(
        "dog blocked, after \"dog\"",
        (day.violates)("dog", AnyRule::BlockSubstring, b"dog"),
        &true,
    )?;
    let end = |text: &[u8]| (day.may_end)(ALONE, AnyRule::BlockWord, text);
    let cases = [
        ("", true),
        ("dog", false),
        ("a dog", false),
        ("dogs", true),
        ("hotdog", true),
        ("The dog.", true), // the prompt contains the word, but only the end of the text counts
    ];
    says("dog blocked as a whole word; may the text end", end, &cases)?;
    let end = |text: &[u8]| (day.may_end)("dog", AnyRule::BlockSubstring, text);
    let cases = [("", true), ("do", true), ("dog", false), ("dogs", true)];
    says("dog blocked; may the text end", end, &cases)
}

/// Returns the texts in which a block list finds one of its words.
fn found(day: &Day, words: &[&str], whole: bool, texts: &[&str]) -> Result<Vec<String>> {
    let finds = (day.finds)(&strings(words), whole, texts)?;
    let found = texts.iter().zip(finds).filter(|(_, found)| *found);
    Ok(found.map(|(text, _)| text.to_string()).collect())
}

fn finds(day: &Day, words: &[&str], whole: bool, texts: &[&str], want: &[&str]) -> Outcome {
    let alone = if whole { ", whole words" } else { "" };
    let what = format!("blocked {words:?}{alone}; which of {texts:?} contain a blocked word");
    equal(&what, found(day, words, whole, texts), &strings(want))
}

fn words_are_not_patterns(day: &Day) -> Outcome {
    finds(day, &["a.c"], false, &["abc", "a.c", "xA.Cx"], &["a.c", "xA.Cx"])?;
    finds(
        day,
        &["(o", "c++", "a|b"],
        false,
        &["c", "c++", "a", "a|b", "(O"],
        &["c++", "a|b", "(O"],
    )?;
    finds(
        day,
        &["<3", "->", "~", "#1"],
        false,
        &["I <3 it", "a->b", "3", "-", "a~", "#1"],
        &["I <3 it", "a->b", "a~", "#1"],
    )?;
    finds(day, &[" dog\t"], false, &["a dog", "hotdog", "(dog)"], &["a dog", "hotdog", "(dog)"])?;
    for words in [vec!["dog", ""], vec!["  "], vec![]] {
        let got = (day.finds)(&strings(&words), false, &[]);
        refused(&format!("blocked {words:?}"), got, &["empty"])?;
    }
    Ok(())
}

fn letter_case_is_ignored_in_a_list(day: &Day) -> Outcome {
    finds(
        day,
        &["Lily", "DOG"],
        false,
        &["lily", "a dog", "LILY", "LiLy", "DoG", "cat"],
        &["lily", "a dog", "LILY", "LiLy", "DoG"],
    )?;
    let forms = ["éléphant", "ÉLÉPHANT", "Éléphant", "elephant"];
    finds(day, &["Éléphant"], false, &forms, &forms[..3])?;
    // Letters with two lowercase forms, with three forms, or with a form of two letters.
    finds(day, &["ΟΔΟΣ"], false, &["οδος", "οδοσ", "Οδος", "οδο"], &["οδος", "οδοσ", "Οδος"])?;
    finds(day, &["ǆ", "k"], false, &["ǅ", "Ǆ", "\u{212a}", "dž"], &["ǅ", "Ǆ", "\u{212a}"])?;
    let forms = ["straße", "STRAẞE", "STRASSE", "strase"];
    finds(day, &["straße"], false, &forms, &forms[..3])
}

fn composed_and_decomposed_letters_are_found(day: &Day) -> Outcome {
    let texts = ["caf\u{e9}", "cafe\u{301}", "CAFE\u{301}", "cafe"];
    for word in &texts[..2] {
        finds(day, &[word], false, &texts, &texts[..3])?;
    }
    Ok(())
}

fn whole_words_stand_alone(day: &Day) -> Outcome {
    let texts = ["dog", "a dog.", "hotdog", "dogs", "dog_1", "hot-dog", "cat", "concat", "cats"];
    let want = ["dog", "a dog.", "hot-dog", "cat"];
    finds(day, &["dog", "cat"], true, &texts, &want)?;
    finds(
        day,
        &["c++", "été"],
        true,
        &["c++", "in c++ now", "un été là", "étés"],
        &["c++", "in c++ now", "un été là"],
    )
}

// 14.7

/// Returns whether a piece may follow a text.
fn pass<'a>(
    day: &'a Day,
    pattern: &'static str,
    rule: AnyRule,
    text: &'static [u8],
) -> impl Fn(&[u8]) -> Result<bool> + 'a {
    move |piece| Ok((day.walk)(pattern, rule, text, piece)?.is_some())
}

fn a_word_can_end_inside_a_token(day: &Day) -> Outcome {
    let cases = [
        ("", true),
        ("g", false),
        ("gs and cats", false),
        ("wn", true),
        ("t the dog barks", false),
    ];
    says(
        "dog blocked, after \"the do\"; may the piece follow",
        pass(day, "dog", AnyRule::BlockSubstring, b"the do"),
        &cases,
    )
    .likely(
        "judge every state on the way: \"gs and cats\" completes the word with its first byte",
    )?;
    let cases = [("g", true), ("g.", false), ("g, a", false), ("gs.", true)];
    says(
        "dog blocked as a whole word, after \"the do\"; may the piece follow",
        pass(day, ALONE, AnyRule::BlockWord, b"the do"),
        &cases,
    )?;
    let got = (day.walk)("dog", AnyRule::BlockSubstring, b"the d", b"oor, do");
    let want = Some((day.read)("dog", AnyRule::BlockSubstring, &[b"the door, do"])?);
    equal("dog blocked: the state after \"the d\" and \"oor, do\"", got, &want)
}

fn the_text_may_continue_after_a_blocked_word(day: &Day) -> Outcome {
    let cases = [("", true), ("s", true), (" and", true), (" and a dog", false)];
    says(
        "dog blocked, after \"the dog\"; may the piece follow",
        pass(day, "dog", AnyRule::BlockSubstring, b"the dog"),
        &cases,
    )
    .likely("judge the states that the piece leads to, not the one it starts from")?;
    says(
        "dog blocked as a whole word, after \"the dog.\"; may the piece follow",
        pass(day, ALONE, AnyRule::BlockWord, b"the dog."),
        &[("", true), (" And", true), (" A dog.", false)],
    )
}

// 14.8

fn the_first_token_is_not_blamed_for_the_prompt(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let pattern = r"(?-u:\b{start-half})(?:dog|dogma)(?-u:\b{end-half})";
    let texts: [(&[u8], bool); 6] = [
        (b"a dog", false),
        (b"a dogma", true),
        (b"a dogma", false),
        (b"a dogma", true),
        (b"a do", true),
        (b"a dog.", true),
    ];
    let got = (day.legal)(pattern, AnyRule::BlockWord, &tokenizer, &texts)?;
    let asked = ["s", ".", " and", "g"];
    for ((text, first), legal) in texts.iter().zip(&got) {
        let want: &[&str] = if *first { &asked } else { &["s", "g"] };
        let text = show(text);
        let what = format!("dog|dogma blocked as a whole word, after {text}, `first` is {first}");
        asks(&what, &tokenizer, legal, &asked, want)
            .likely("the word in the prompt is the user's, so don't blame the first byte for it")?;
    }
    Ok(())
}

fn the_first_token_can_complete_a_word(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let stop = r"(?-u:\b{start-half})\.(?-u:\b{end-half})";
    let dogs = r"(?-u:\b{start-half})(?:dog|dog\.)(?-u:\b{end-half})";
    let cases: [(&str, AnyRule, &str, bool, &[&str], &[&str]); 6] = [
        ("dog", AnyRule::BlockSubstring, "a d", false, &["o", "og", "a"], &["o", "a"]),
        (stop, AnyRule::BlockWord, "a dog ", false, &[".", ".\"", "!\""], &[".", "!\""]),
        ("dog", AnyRule::BlockSubstring, "a d", true, &["o", "og", " dog", "a"], &["o", "a"]),
        ("dog", AnyRule::BlockSubstring, "a do", true, &["g", "ge", "n"], &["n"]),
        (stop, AnyRule::BlockWord, "a dog ", true, &[".", ".\"", "!\""], &[".", "!\""]),
        (dogs, AnyRule::BlockWord, "a dog", true, &["s", ".", ".\""], &["s", "."]),
    ];
    for (pattern, rule, text, first, asked, want) in cases {
        let legal = (day.legal)(pattern, rule, &tokenizer, &[(text.as_bytes(), first)])?.concat();
        let what = format!("{pattern} under {rule:?}, after {text:?}, `first` is {first}");
        asks(&what, &tokenizer, &legal, asked, want)
            .likely("only the token's first byte can complete a match that ends in the prompt")?;
    }
    Ok(())
}

/// Lists every way to spell exactly this text.
fn spellings(pieces: &[Vec<u8>], text: &[u8]) -> Vec<Vec<u32>> {
    if text.is_empty() {
        return vec![vec![]];
    }
    let fits = |(_, piece): &(usize, &Vec<u8>)| !piece.is_empty() && text.starts_with(piece);
    let first = pieces.iter().enumerate().filter(fits);
    first
        .flat_map(|(id, piece)| {
            let rest = spellings(pieces, &text[piece.len()..]);
            rest.into_iter().map(move |rest| [&[id as u32], &rest[..]].concat())
        })
        .collect()
}

fn request(model: &dyn Model, prompt: &[u32], max: usize, rails: &Rails) -> Request<'static> {
    let mut request = Request::new(model.config(), prompt, max, day07_greedy::argmax);
    request.processors.clone_from(rails);
    request
}

fn tokens_of(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

fn no_spelling_of_a_blocked_word_gets_through(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let pieces = pieces(&tokenizer);
    let (the, stop) = (id(&tokenizer, "The")?, id(&tokenizer, ".")?);
    for (word, count) in [("playground", 99), ("dog", 6), ("Lily", 10)] {
        let rails = (day.block)(&strings(&[word]), false, &[], &tokenizer)?;
        let all = spellings(&pieces, format!(" {word}").as_bytes());
        equal(&format!("spellings of \" {word}\" in this vocabulary"), Ok(all.len()), &count)?;
        let mut through = Vec::new();
        for spelling in all {
            let wants = spelling.clone();
            let fake = Fake::wants(VOCAB, 64, 20, move |ids| {
                let (new, next) = (&ids[1..], wants.get(ids.len() - 1));
                *next.filter(|_| wants.starts_with(new)).unwrap_or(&stop)
            });
            let request = request(&fake, &[the], spelling.len() + 2, &rails);
            let got: Result<Vec<Token>> = generate(&fake, &tokenizer, request)?.collect();
            let (got, last) = (tokens_of(&got?), spelling.len() - 1);
            let shown: Vec<String> =
                spelling.iter().map(|id| show(&pieces[*id as usize])).collect();
            let shown = shown.join(" ");
            let what =
                format!("\"{word}\" blocked, the model wants {shown}: all but the last piece");
            equal(&what, Ok(&got[..last]), &&spelling[..last])?;
            if got[last] == spelling[last] {
                through.push(shown);
            }
        }
        let first = through.first().map_or("", String::as_str);
        let what =
            format!("\"{word}\" blocked, and a model that wants one of its {count} spellings");
        let got = format!("{} got through, the first {first}", through.len());
        ensure(&what, through.is_empty(), &got)?;
    }
    Ok(())
}

fn the_end_of_the_text_ends_a_word(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let rails = (day.block)(&strings(&["dog"]), true, &[], &tokenizer)?;
    let before = ids(&tokenizer, &["The", " do"])?;
    let asked = ["g", "n", "ge"];
    let far = legal(&rails, &before, 1, 9)?;
    asks(
        "\"dog\" blocked as a whole word, after \"The do\", 9 tokens left",
        &tokenizer,
        &far,
        &asked,
        &asked,
    )
    .likely("\"dog\" may still become \"dogs\"")?;
    let near = legal(&rails, &before, 1, 2)?;
    asks(
        "\"dog\" blocked as a whole word, after \"The do\", 2 tokens left",
        &tokenizer,
        &near,
        &asked,
        &asked,
    )?;
    let near = legal(&rails, &before, 1, 1)?;
    asks(
        "\"dog\" blocked as a whole word, after \"The do\", 1 token left",
        &tokenizer,
        &near,
        &asked,
        &["n", "ge"],
    )
    .likely(
        "the length limit also ends the text, so it must be able to end after the last token",
    )?;
    let after = ids(&tokenizer, &["The", " do", "g"])?;
    let asked = ["", "s", ".", " and", "!"];
    let got = legal(&rails, &after, 1, 9)?;
    asks("\"dog\" blocked as a whole word, after \"The dog\"", &tokenizer, &got, &asked, &["s"])
        .likely("EOS also ends the word")?;
    let asked = ["", "s", "."];
    let got = legal(&rails, &ids(&tokenizer, &["The", " do", "g", "s"])?, 1, 9)?;
    asks("\"dog\" blocked as a whole word, after \"The dogs\"", &tokenizer, &got, &asked, &asked)
}

fn a_stop_string_ends_a_word(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let dog = strings(&["dog"]);
    let before = ids(&tokenizer, &["The", " do", "g"])?;
    let rails = (day.block)(&dog, true, &strings(&["s", "###"]), &tokenizer)?;
    let got = legal(&rails, &before, 1, 9)?;
    let asked = ["s", "ge", "ma"];
    asks(
        "\"dog\" blocked as a whole word, stop strings \"s\" and \"###\", after \"The dog\"",
        &tokenizer,
        &got,
        &asked,
        &["ge", "ma"],
    )
    .likely("cutting off the stop string leaves the word alone")?;
    let rails = (day.block)(&dog, true, &strings(&["\n"]), &tokenizer)?;
    let got = legal(&rails, &before, 1, 9)?;
    asks(
        "\"dog\" blocked as a whole word, stop string \"\\n\", after \"The dog\"",
        &tokenizer,
        &got,
        &["s", "\n"],
        &["s"],
    )
    .likely("a stop string is used as it is, including whitespace")?;
    let rails = (day.block)(&dog, true, &strings(&[""]), &tokenizer)?;
    let got = legal(&rails, &before[..2], 1, 9)?;
    let what = "\"dog\" blocked as a whole word, stop string \"\", after \"The do\"";
    asks(what, &tokenizer, &got, &["g", "n"], &["g", "n"])
        .likely("an empty stop string ends no text")
}

fn the_prompt_may_end_in_the_word(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let prompt = ids(&tokenizer, &["The", " do", "g"])?;
    let asked = ["", "s", ".", " and", " dog"];
    let rails = (day.block)(&strings(&["dog"]), false, &[], &tokenizer)?;
    let got = legal(&rails, &prompt[..1], 1, 9)?;
    asks("\"dog\" blocked, and the prompt is \"The\"", &tokenizer, &got, &asked[..2], &asked[..2])?;
    for (whole, stops) in [(false, vec![]), (true, vec![]), (true, vec!["###"])] {
        let rails = (day.block)(&strings(&["dog"]), whole, &strings(&stops), &tokenizer)?;
        let as_word = if whole { " as a whole word" } else { "" };
        let what = format!("\"dog\" blocked{as_word}, and the prompt is \"The dog\"");
        let got = legal(&rails, &prompt, 3, 9)?;
        let want: &[&str] = if whole { &asked } else { &asked[..4] };
        asks(&what, &tokenizer, &got, &asked, want)
            .likely("the word is the user's: the text may continue after it, or end")?;
        let got = legal(&rails, &prompt, 3, 1)?;
        let what = format!("{what}, 1 token left");
        asks(&what, &tokenizer, &got, &asked, &asked[..4])?;
        let more = [&prompt[..], &[id(&tokenizer, ".")?]].concat();
        let what = format!("\"dog\" blocked{as_word}, after the prompt \"The dog\" and \".\"");
        asks(&what, &tokenizer, &legal(&rails, &more, 3, 9)?, &asked, want)?;
    }
    Ok(())
}

/// Returns the logits of a model that wants to write the word in any spelling. If the text ends in
/// a prefix of the word, it prefers every piece that continues it, and longer pieces more.
fn obsessed(pieces: &[Vec<u8>], word: &[u8], ids: &[u32]) -> Vec<f32> {
    let text: Vec<u8> =
        ids.iter().flat_map(|id| pieces.get(*id as usize).cloned().unwrap_or_default()).collect();
    let at = (0..word.len()).rev().find(|n| text.ends_with(&word[..*n])).unwrap_or(0);
    let rest = &word[at..];
    let wanted =
        |piece: &Vec<u8>| !piece.is_empty() && (rest.starts_with(piece) || piece.starts_with(rest));
    let score = |(id, piece): (usize, &Vec<u8>)| {
        let other = (id * 7919 % 2048) as f32 / 2048.0;
        if wanted(piece) {
            10.0 + piece.len() as f32 + other
        } else {
            other
        }
    };
    pieces.iter().enumerate().map(score).collect()
}

/// A drafter that drafts what the model would write without rails.
struct Eager(Vec<Vec<u8>>);

impl Drafter for Eager {
    fn draft(&mut self, cx: &ProcessorInput, n: usize, _uniforms: &[f32]) -> Result<Draft> {
        let (mut tokens, mut draft) = (cx.tokens.to_vec(), Draft::default());
        for _ in 0..n {
            let id = day07_greedy::argmax(&obsessed(&self.0, b" playground", &tokens))?;
            tokens.push(id);
            draft.tokens.push(id);
            draft.probs.push(one_hot(id, VOCAB));
        }
        Ok(draft)
    }
}

fn every_loop_keeps_the_rail(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let pieces = pieces(&tokenizer);
    let word = b" playground";
    let rails = (day.block)(&strings(&["playground"]), false, &[], &tokenizer)?;
    let script = pieces.clone();
    let fake = Fake::new(VOCAB, 128, 400, move |ids| obsessed(&script, word, ids));
    let prompt = ids(&tokenizer, &["The", " play"])?;
    let request = |max| request(&fake, &prompt, max, &rails);
    let uncached = || Cached::new(&fake, Box::new(NoCache));
    let collect = |tokens: &mut dyn Iterator<Item = Result<Token>>| -> Result<Vec<u32>> {
        tokens.map(|token| token.map(|token| token.id)).collect()
    };
    let plain = collect(&mut generate(&fake, &tokenizer, request(24))?)?;
    let mut texts = vec![("greedy", plain.clone())];
    texts.push((
        "with a cache",
        collect(&mut generate_cached(uncached(), &tokenizer, request(24))?)?,
    ));
    let mut sampled = request(24);
    let params = SamplingParams { temperature: 3.0, top_k: Some(5), ..Default::default() };
    sampled.processors.extend(warpers(&params)?);
    sampled.sampler = chacha_sampler(14, 0);
    texts.push(("sampled", collect(&mut generate(&fake, &tokenizer, sampled)?)?));
    let beams = BeamParams {
        num_beams: 3,
        num_return_sequences: 3,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::False,
    };
    for found in beam_search(&fake, &tokenizer, &mut request(12), &beams, &mut NoCache)? {
        texts.push(("a beam", found.new_ids));
    }
    let short = Request { prompt: prompt[..1].to_vec(), ..request(20) };
    let batch = vec![request(20), short];
    let batch: Result<Vec<Token>> =
        generate_batch(&fake, &tokenizer, batch, Box::new(NoCache))?.collect();
    let batch = batch?;
    for row in 0..2 {
        let row = batch.iter().filter(|token| token.row == row).map(|token| token.id);
        texts.push(("a row of a batch", row.collect()));
    }
    let drafter = Box::new(Eager(pieces.clone()));
    let mut decoder = SpeculativeDecoder::new(uncached(), &tokenizer, request(24), drafter, 4)?;
    let mut drafted: Vec<Token> = Vec::new();
    while decoder.sequence.finish.is_none() {
        drafted.extend(decode_block(&mut decoder)?);
    }
    let drafted = tokens_of(&drafted);
    for (name, new) in &texts {
        let all = [&prompt[..], new].concat();
        let text: Vec<u8> = all.iter().flat_map(|id| pieces[*id as usize].clone()).collect();
        let what = format!("\"playground\" blocked, {name}: {}", show(&text));
        ensure(&what, !contains(&text, b"playground"), "the word is in the text")?;
        ensure(
            &what,
            contains(&text, b"playg"),
            "the text doesn't even contain \"playg\": the rail blocks too much",
        )?;
    }
    equal("\"playground\" blocked: with drafts the text is the same", Ok(drafted), &plain)
}

// 14.9

/// Checks the forced bytes after each text.
fn forces(day: &Day, pattern: &str, cases: &[(&str, &str)]) -> Outcome {
    let texts: Vec<&[u8]> = cases.iter().map(|(text, _)| text.as_bytes()).collect();
    let got: Result<Vec<String>> = (day.forced)(pattern, &texts)
        .map(|all| all.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect());
    let names: Vec<&str> = cases.iter().map(|(text, _)| *text).collect();
    let want: Vec<String> = cases.iter().map(|(_, want)| want.to_string()).collect();
    equal(&format!("{pattern}: the forced bytes after each of {names:?}"), got, &want)
}

fn bytes_are_forced_up_to_a_choice(day: &Day) -> Outcome {
    forces(day, "yes|yet|no", &[("", ""), ("y", "e"), ("ye", ""), ("n", "o"), ("yes", "")])?;
    forces(day, "a red (cat|dog)s?", &[("", "a red "), ("a red c", "at"), ("a red dog", "")])?;
    forces(day, "colou?r|colt", &[("", "col"), ("colo", ""), ("colou", "r"), ("colt", "")])
}

fn many_bytes_can_lead_to_one_state(day: &Day) -> Outcome {
    forces(day, "id=[0-9]{3};", &[("", "id="), ("id=1", ""), ("id=123", ";")])
        .likely("all ten digits lead to the same state, but they are ten choices")
}

fn nothing_is_forced_where_the_text_may_end(day: &Day) -> Outcome {
    forces(day, "no(pe)?", &[("", "no"), ("no", ""), ("nop", "e"), ("nope", "")])
        .likely("after \"no\" the text may end, so nothing is forced")?;
    forces(day, "a*", &[("", ""), ("aaa", "")])?;
    forces(day, "(ab)+", &[("", "ab"), ("aba", "b"), ("ab", "")])
}

fn nothing_is_forced_in_a_dead_state(day: &Day) -> Outcome {
    forces(day, "yes|no", &[("x", ""), ("yess", "")])?;
    let (all, start) = ("a\u{65e5}\u{672c}", "a\u{65e5}");
    forces(day, all, &[("", all), (start, "\u{672c}")])
}

// 14.10

fn the_last_id_of_a_sequence_is_forbidden(day: &Day) -> Outcome {
    let forbidden = |tokens: &[u32], sequences: &[&[u32]]| -> Result<Vec<usize>> {
        let sequences: Vec<Vec<u32>> = sequences.iter().map(|ids| ids.to_vec()).collect();
        forbidden_ids(day, tokens, &sequences, &[])
    };
    let all: &[&[u32]] = &[&[1, 2, 3], &[2, 5], &[6]];
    for (tokens, want) in [
        (&[][..], &[6][..]),
        (&[1], &[6]),
        (&[1, 2], &[3, 5, 6]),
        (&[2, 1], &[6]),
        (&[7, 7, 1, 2], &[3, 5, 6]),
        (&[1, 2, 3], &[6]),
    ] {
        let what =
            format!("[1, 2, 3], [2, 5] and [6] blocked, after {tokens:?}: the forbidden ids");
        equal(&what, forbidden(tokens, all), &want.to_vec())
            .likely("the last id of a sequence is forbidden only right after the others")?;
    }
    equal("an empty sequence blocks nothing", forbidden(&[1], &[&[]]), &vec![])?;
    let got = forbidden(&[1], &[&[], &[1, 4]]);
    equal("an empty sequence, then [1, 4], after [1]", got, &vec![4])?;
    equal("an id outside of the vocabulary", forbidden(&[1], &[&[1, 99]]), &vec![])
}

/// Returns which of 8 ids are forbidden after these tokens.
fn forbidden_ids(
    day: &Day,
    tokens: &[u32],
    sequences: &[Vec<u32>],
    eos: &[u32],
) -> Result<Vec<usize>> {
    let mut logits = vec![1.0; 8];
    (day.sequences)(&mut logits, tokens, sequences, eos);
    Ok((0..8).filter(|id| logits[*id] == NEVER).collect())
}

fn sequences_agree_with_transformers(day: &Day) -> Outcome {
    let golden = golden_json("day14")?;
    let ids = |value: &serde_json::Value| -> Vec<u32> {
        let ids = value.as_array().into_iter().flatten();
        ids.filter_map(|id| Some(id.as_u64()? as u32)).collect()
    };
    let sequences = golden["sequences"].as_array().into_iter().flatten();
    let sequences: Vec<Vec<u32>> = sequences.map(ids).collect();
    let cases = golden["cases"].as_array().into_iter().flatten();
    for case in cases {
        let (tokens, eos) = (ids(&case["tokens"]), ids(&case["eos"]));
        let want: Vec<usize> = ids(&case["forbidden"]).iter().map(|id| *id as usize).collect();
        let what = format!("{sequences:?} blocked, after {tokens:?}, EOS ids {eos:?}");
        equal(&what, forbidden_ids(day, &tokens, &sequences, &eos), &want)
            .likely("a sequence that consists of a single EOS id is ignored")?;
    }
    Ok(())
}

/// Compares what the pattern of a schema takes with what it should.
fn takes(day: &Day, schema: &Schema, right: &[&str], wrong: &[&str]) -> Outcome {
    let texts = [right, wrong].concat();
    let want: Vec<bool> = (0..texts.len()).map(|i| i < right.len()).collect();
    let got = (day.takes)(schema, &texts)?;
    for ((text, got), want) in texts.iter().zip(got).zip(want) {
        equal(&format!("does the pattern of {schema:?} take {text}"), Ok(got), &want)?;
    }
    Ok(())
}

fn list(items: Schema, min_items: usize, max_items: usize) -> Schema {
    Schema::Array { items: Box::new(items), min_items, max_items }
}

fn whole_numbers_and_strings_are_json(day: &Day) -> Outcome {
    let right = ["0", "7", "10", "-7", "1234567"];
    takes(
        day,
        &Schema::Integer,
        &right,
        &["", "-", "007", "+1", "1.5", "1e3", " 1", "1 ", "\"1\"", "x"],
    )?;
    let string = Schema::String { max_length: 3 };
    let right = ["\"\"", "\"a\"", "\"abc\"", "\"日本語\"", "\"{}[\""];
    takes(
        day,
        &string,
        &right,
        &["\"abcd\"", "abc", "\"a", "\"a\"b\"", "\"\\\"", "\"a\n\"", "\"\t\"", "''"],
    )
}

fn words_of_an_enum_are_whole_and_not_patterns(day: &Day) -> Outcome {
    let words = Schema::Enum(strings(&["red", "a.b", "(c)", "red ball"]));
    let right = ["\"red\"", "\"a.b\"", "\"(c)\"", "\"red ball\""];
    takes(
        day,
        &words,
        &right,
        &["\"axb\"", "\"c\"", "red", "\"\"", "\"re\"", "\"red\"\"a.b\"", "\"Red\""],
    )
}

fn a_list_has_the_right_number_of_items(day: &Day) -> Outcome {
    let numbers = |least, most| list(Schema::Integer, least, most);
    takes(
        day,
        &numbers(0, 2),
        &["[]", "[1]", "[1,2]"],
        &["[1,2,3]", "[1,]", "[,1]", "[,]", "[12", "1,2"],
    )?;
    takes(day, &numbers(1, 1), &["[1]"], &["[]", "[1,2]"])?;
    takes(day, &numbers(2, 3), &["[1,2]", "[1,2,3]"], &["[]", "[1]", "[1,2,3,4]"])?;
    takes(day, &numbers(0, 0), &["[]"], &["[1]", "[,]"])?;
    let words = list(Schema::Enum(strings(&["a", "b"])), 1, 2);
    takes(
        day,
        &words,
        &["[\"a\"]", "[\"b\",\"a\"]"],
        &["[\"a\"\"b\"]", "[\"a\"|\"b\"]", "\"a\"", "[\"a\""],
    )
}

fn an_object_has_its_properties_in_order(day: &Day) -> Outcome {
    let named = |name: &str, schema| (name.to_string(), schema);
    let ball = Schema::Object(vec![
        named("color (any)", Schema::Enum(strings(&["red", "blue"]))),
        named("size", Schema::Integer),
    ]);
    let wrong = [
        "{}",
        "{\"color (any)\":\"red\"}",
        "{\"size\":3,\"color (any)\":\"red\"}",
        "{\"color any\":\"red\",\"size\":3}",
        "{\"color (any)\":\"red\",\"size\":3,}",
        "{\"color (any)\":\"red\" \"size\":3}",
        "{color (any):\"red\",size:3}",
    ];
    takes(
        day,
        &ball,
        &["{\"color (any)\":\"red\",\"size\":3}", "{\"color (any)\":\"blue\",\"size\":-1}"],
        &wrong,
    )?;
    takes(day, &Schema::Object(vec![]), &["{}"], &["", "{", "{,}"])
}

fn schemas_can_be_nested(day: &Day) -> Outcome {
    let toy = Schema::Object(vec![
        ("name".to_string(), Schema::String { max_length: 8 }),
        ("sizes".to_string(), list(list(Schema::Integer, 0, 2), 1, 2)),
    ]);
    let right = [
        "[]",
        "[{\"name\":\"kite\",\"sizes\":[[]]}]",
        "[{\"name\":\"\",\"sizes\":[[1],[2,3]]},{\"name\":\"ball\",\"sizes\":[[0]]}]",
    ];
    let wrong = [
        "[{\"name\":\"kite\",\"sizes\":[]}]",
        "[{\"name\":\"kite\",\"sizes\":[[1]}]",
        "{\"name\":\"kite\",\"sizes\":[[1]]}",
        "[{\"name\":\"kite\",\"sizes\":[[1]]}{\"name\":\"kite\",\"sizes\":[[1]]}]",
    ];
    takes(day, &list(toy, 0, 2), &right, &wrong)
}
