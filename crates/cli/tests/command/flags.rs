//! Tests of the path from flags to a run, and of the command's notes: which implementation runs,
//! and which settings a model recommends.

use candecode::kit::processor::process_all;
use candecode::kit::{named, EarlyStopping, ProcessorInput, SamplingParams, Tokenizer};
use candecode::{Day, DAYS};
use candecode_cli::flags::{Args, Format, RngKind, Seed};
use candecode_cli::plan;
use candecode_engine::credits::whose;
use candecode_engine::generation_config;
use candecode_engine::loops::{names, Ability, Loop, LOOPS};
use candecode_engine::operations::plain;
use candecode_engine::{load_model, requests, CacheKind};
use candecode_testing::{refused, story, Folder, Random};
use candle_core::{DType, Device};
use clap::error::ErrorKind;
use serde_json::json;

fn tokenizer() -> Tokenizer {
    candecode_formats::read_tokenizer(&story("story-230k")).unwrap()
}

/// Parses a command line's flags, after `-p Once`.
pub fn args(flags: &[&str]) -> Args {
    parsed(flags).unwrap()
}

fn parsed(flags: &[&str]) -> Result<Args, clap::Error> {
    Args::read([&["candecode", "-p", "Once"], flags].concat())
}

fn params(flags: &[&str]) -> SamplingParams {
    plan::plan(&args(flags), 1).unwrap().1
}

#[test]
fn the_default_is_greedy_decoding_with_a_cache() {
    let args = args(&[]);
    assert_eq!((args.model.as_str(), args.max_new_tokens(), args.seed), ("story-3m", 128, None));
    assert_eq!(
        (args.device.as_str(), args.dtype, args.quantize, args.format),
        ("cpu", None, None, Format::Text)
    );
    assert_eq!(
        (args.num_beams(), args.early_stopping, args.cache),
        (1, EarlyStopping::False, None)
    );
    let (day_loop, params) = plan::plan(&args, 1).unwrap();
    assert_eq!((day_loop.day, args.cache(day_loop)), (10, Some(CacheKind::Dynamic)));
    assert_eq!(params, SamplingParams::default());
}

#[test]
fn any_sampling_flag_alone_turns_sampling_on() {
    for (flags, temperature, top_k, top_p, min_p) in [
        (["--temperature", "0.7"], 0.7, None, 1.0, 0.0),
        (["--top-k", "5"], 1.0, Some(5), 1.0, 0.0),
        (["--top-p", "0.9"], 1.0, None, 0.9, 0.0),
        (["--min-p", "0.1"], 1.0, None, 1.0, 0.1),
    ] {
        // No other setting is implied, not even HF's hidden top_k = 50.
        let want = SamplingParams { temperature, top_k, top_p, min_p, ..Default::default() };
        assert_eq!(params(&flags), want, "{flags:?}");
    }
    assert_eq!(params(&["--temperature", "0"]), SamplingParams::default());
}

#[test]
fn the_lowest_day_that_supports_the_flags_runs() {
    for (flags, prompts, day, rows) in [
        (&[][..], 1, 10, 1),
        (&["--no-cache"], 1, 7, 1),
        (&[], 3, 12, 3),
        (&["--num-return-sequences", "4", "--top-k", "9"], 2, 12, 8),
        (&["--num-beams", "3"], 1, 11, 1),
        (&["--num-beams", "3", "--num-return-sequences", "2"], 2, 11, 2),
        (&["--draft-ngram"], 1, 13, 1),
        (&["--draft-model", "story-230k"], 2, 13, 2),
        (&["--draft-table", "a"], 1, 13, 1),
        (&["--loop", "day6"], 1, 6, 1),
        (&["--loop", "7"], 1, 7, 1),
        (&["--loop", "day7"], 2, 7, 2), // one after another
        (&["--loop", "day15"], 3, 15, 3),
        (&["--loop", "day12"], 1, 12, 1),
        (&["--loop", "day11"], 1, 11, 1),
        (&["--loop", "day22"], 2, 22, 2),
        (&["--max-num-batched-tokens", "8"], 2, 23, 2),
        (&["--trace"], 1, 10, 1),
        (&["--trace", "--draft-tree", "2x1"], 1, 24, 1),
    ] {
        let args = args(flags);
        let (day_loop, _) = plan::plan(&args, prompts).unwrap();
        let got = (day_loop.day, prompts * args.samples());
        assert_eq!(got, (day, rows), "{flags:?} and {prompts} prompts");
    }
    for (flags, prompts, says) in [
        (&["--loop", "day10", "--no-cache"][..], 1, "day 7's loop can"),
        (&["--loop", "day21", "--no-cache"], 2, "day 12's loop can"),
        (&["--loop", "day24"], 1, "--draft-tree or --medusa"),
        // No loop takes both.
        (&["--past-context", "window"], 2, "for one prompt at a time"),
        (&["--trace", "--past-context", "window"], 1, "--past-context window"),
        (&["--trace", "--num-beams", "2"], 1, "--trace cannot be used with --num-beams"),
    ] {
        refused(plan::plan(&args(flags), prompts), &[says]);
    }
}

/// The flags that ask something of a loop, one by one, for every loop.
#[test]
fn each_loop_refuses_the_flags_that_it_cannot_take_and_names_them() {
    let caches = [CacheKind::Static, CacheKind::Sliding, CacheKind::Paged].map(Ability::Cache);
    let asked = [
        ("--top-k 5", "--top-k", Ability::Sampling),
        ("--top-k 5 --rng torch", "--rng torch", Ability::TorchStream),
        ("--stop x", "--stop", Ability::Processors),
        ("--stop-token-ids 5", "--stop-token-ids", Ability::Processors),
        ("--logit-bias 5=1", "--logit-bias", Ability::Processors),
        ("--repetition-penalty 1.5", "--repetition-penalty", Ability::Processors),
        ("--presence-penalty 1", "--presence-penalty", Ability::Processors),
        ("--no-repeat-ngram 2", "--no-repeat-ngram", Ability::Processors),
        ("--min-new-tokens 2", "--min-new-tokens", Ability::Processors),
        ("--block x", "--block", Ability::Processors),
        ("--block-ids 5", "--block-ids", Ability::Processors),
        ("--allow-regex x", "--allow-regex", Ability::Processors),
        ("--json-schema x", "--json-schema", Ability::Processors),
        ("--grammar x", "--grammar", Ability::Processors),
        ("--top-logprobs 2", "--top-logprobs", Ability::TopLogprobs),
        ("--past-context window", "--past-context window", Ability::Window),
        ("--max-batch-tokens 4096", "--max-batch-tokens", Ability::BatchLimit),
        ("--max-num-batched-tokens 9", "--max-num-batched-tokens", Ability::TokenBudget),
        ("--max-num-seqs 2", "--max-num-seqs", Ability::TokenBudget),
        ("--trace", "--trace", Ability::Trace),
        ("--num-beams 2", "--num-beams", Ability::Beams),
        ("--draft-ngram", "--draft-ngram", Ability::Drafts),
        ("--medusa", "--medusa", Ability::DraftTrees),
        ("--num-return-sequences 2 --top-k 5", "--num-return-sequences", Ability::Batches),
        ("--no-cache", "--no-cache", Ability::NoCache),
        ("--cache static", "--cache static", caches[0]),
        ("--cache sliding", "--cache sliding", caches[1]),
        ("--cache paged", "--cache paged", caches[2]),
    ];
    let mut refusals = 0;
    for day_loop in LOOPS {
        let needed = match day_loop.needs {
            Some((Ability::Drafts, _)) => "--draft-ngram",
            Some(_) => "--draft-tree 2x1",
            None => "",
        };
        for (flags, named, ability) in asked {
            let line = format!("--loop {day_loop:?} {needed} {flags}");
            let flags: Vec<&str> = line.split_whitespace().collect();
            let Ok(args) = parsed(&flags) else { continue }; // clap has refused two of the flags
            if args.draft_trees() && ability == Ability::Drafts {
                continue; // trees of n-grams
            }
            let planned = plan::plan(&args, 1);
            if flags.contains(&"torch") && !day_loop.can(Ability::Sampling) {
                refused(planned, &[&format!("--loop {day_loop:?} can't take --top-k")]);
            } else if day_loop.can(ability) {
                assert_eq!(planned.unwrap().0, *day_loop, "{line}");
            } else {
                let error = planned.unwrap_err().to_string();
                let days_loop = format!("{day_loop} can't take it");
                let by_name = format!("--loop {day_loop:?} can't take {named}; ");
                let clash = error.starts_with(named) && error.contains(&days_loop);
                assert!(error.starts_with(&by_name) || clash, "{line}: {error}");
                refusals += 1;
            }
        }
    }
    assert!(refusals > 40, "{refusals}");
}

#[test]
fn loops_have_unique_days_and_are_listed_in_messages() {
    let mut days: Vec<usize> = LOOPS.iter().map(|day_loop| day_loop.day).collect();
    days.sort();
    days.dedup();
    assert_eq!(days.len(), LOOPS.len());
    assert!(names("or").starts_with("day6, day7, day10 to day13, "), "{}", names("or"));
    for day_loop in LOOPS {
        let own = day_loop.cache.map_or(Ability::NoCache, Ability::Cache);
        let trees = day_loop.can(Ability::DraftTrees); // with a cache of their own
        assert!(day_loop.can(own) || trees, "{day_loop} lacks its own cache");
        assert!(day_loop.needs.is_none_or(|(needed, _)| day_loop.can(needed)), "{day_loop}");
        assert_eq!(Loop::parse(&format!("{day_loop:?}")).unwrap(), *day_loop);
    }
}

#[test]
fn flags_are_read() {
    let read = |line: &str| Args::read(std::iter::once("candecode").chain(line.split(' ')));
    let args = read(
        "--prompt-ids 5,9,77 --rng torch --seed 18446744073709551615 --top-k 4 --cache sliding \
         --stop a --stop b --block x y --format json --draft-ngram",
    )
    .unwrap();
    assert_eq!(args.prompt_ids, Some(vec![5, 9, 77]));
    let seed = Seed { value: u64::MAX, drawn: false };
    assert_eq!((args.rng, args.seed), (Some(RngKind::Torch), Some(seed)));
    assert_eq!((args.cache, args.top_k), (Some(CacheKind::Sliding), Some(4)));
    assert_eq!(
        (args.stop, args.block),
        (vec!["a".into(), "b".into()], vec!["x".into(), "y".into()])
    );
    assert_eq!((args.format, args.draft_ngram), (Format::Json, Some(2)));
    let args =
        read("-p -5 --num-beams 2 --early-stopping never --length-penalty -0.5 --loop 11").unwrap();
    assert_eq!((args.num_beams(), args.early_stopping), (2, EarlyStopping::Never));
    assert_eq!((args.length_penalty, args.day_loop.unwrap().day), (Some(-0.5), 11));
    assert_eq!(args.prompt, ["-5"]);
    let clashes = [
        "-p a --prompt-file b",
        "-p a --models",
        "-p a --no-cache --cache static",
        "-p a --draft-model b --draft-ngram 2",
        "-p a --draft-table b --draft-ngram 2",
        "-p a --draft-table b --draft-model c",
        "-p a --draft-table b --count-ngrams c",
        "-p a --draft-model b --num-return-sequences 2",
        "-p a --medusa --draft-ngram",
        "-p a --draft-tree 2x1 --num-beams 2",
        "-p a --draft-tree 2x1 --num-draft-tokens 3",
        "-p a --num-beams 2 --temperature 1",
        "-p a --endpoint http://a --no-cache",
        "--chat --past-context stop",
    ];
    for clash in clashes {
        let error = read(clash).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{clash}: {error}");
    }
    // Only what was typed is named.
    for (typed, named, others) in [
        (
            "-p a --num-beams 16 --temperature 1.4",
            "--temperature",
            "--top-k --top-p --min-p --draft",
        ),
        (
            "-p a --num-return-sequences 2 --draft-ngram",
            "--draft-ngram",
            "--draft-model --draft-table",
        ),
        ("-p a --medusa --draft-table b", "--draft-table", "--draft-model --draft-ngram"),
        ("--chat --draft-ngram", "--draft-ngram", "--draft-model --draft-table"),
        ("-p a --top-logprobs 2 --draft-model b", "--draft-model", "--draft-ngram --draft-table"),
        ("-p a --endpoint http://a --block b", "--block", "--block-file --draft"),
    ] {
        let error = read(typed).unwrap_err().to_string();
        let error = error.split("Usage").next().unwrap_or_default();
        assert!(error.contains("cannot be used with") && error.contains(named), "{typed}: {error}");
        for other in others.split(' ') {
            assert!(!error.contains(other), "{typed}: {error}");
        }
    }
    for (foreign, here) in [
        ("--loader week1", "--loop day6"),
        ("--sampler-temp=0.5", "--temperature"),
        ("--max_new_tokens 5", "--max-new-tokens"),
    ] {
        let error = read(&format!("-p a {foreign}")).unwrap_err().to_string();
        assert!(error.contains(here), "{foreign}: {error}");
    }
    for (alone, needed) in [
        ("--length-penalty 2", "--num-beams"),
        ("--early-stopping never", "--num-beams"),
        ("--max-batch-tokens 99", "--loop"),
        ("--block-whole-words", "--block"),
        ("--penalty-window 9", "--repetition-penalty"),
        ("--count-ngrams a", "--draft-table"),
        ("--typical-acceptance", "--medusa"),
        ("--system b", "--chat"),
        ("--template story", "--chat"),
    ] {
        let error = read(alone).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument, "{alone}: {error}");
        assert!(error.to_string().contains(needed), "{alone}: {error}");
    }
}

#[test]
fn values_that_a_flag_does_not_take_are_refused() {
    let refuses = |flag: &str, value: &str| {
        let error = Args::read(["candecode", flag, value]).unwrap_err();
        let error = error.to_string();
        let named = error.contains("invalid value '") && error.contains(&format!("' for '{flag} "));
        assert!(named, "{flag} {value}: {error}");
    };
    for flag in [
        "--max-new-tokens",
        "--min-new-tokens",
        "--no-repeat-ngram",
        "--penalty-window",
        "--num-beams",
        "--num-return-sequences",
        "--draft-ngram",
        "--num-draft-tokens",
        "--max-batch-tokens",
        "--top-logprobs",
        "--top-k",
    ] {
        let most = (1u64 << 32).to_string();
        for value in ["-1", "-9223372036854775809", "1.5", "1e9", "nan", "", "x", &most] {
            refuses(flag, value);
        }
        refuses(flag, "99999999999999999999");
    }
    for flag in ["--temperature", "--top-p", "--min-p", "--length-penalty"] {
        let error = Args::read(["candecode", flag, "x"]).unwrap_err().to_string();
        assert!(error.contains("must be a number"), "{flag}: {error}");
    }
    for (flag, values) in [
        ("--seed", &["-2", "1.5", "x", "", "99999999999999999999"][..]),
        ("--penalty-window", &["0"]),
        ("--temperature", &["1e-50", "1e-300", "1e39"]),
        ("--repetition-penalty", &["1e-46"]),
        ("--frequency-penalty", &["-1e39"]),
        ("--prompt-ids", &["-1", "-5", "[]", "4294967296", "5,,6"]),
        ("--stop-token-ids", &["</s>"]),
        ("--block-ids", &["5,", "-1", "dog", "4294967296", "[5]"]),
        ("--logit-bias", &["5", "=1", "x=1", "-5=1", "5=", "5=NaN", "5=inf", "5=1=2"]),
        ("--draft-tree", &["", "x", "3x", "2x-1", "1.5", "99999999999999999999"]),
        ("--loop", &["daydayday10"]),
    ] {
        for value in values {
            refuses(flag, value);
        }
    }
}

#[test]
fn processors_follow_transformers_order() {
    let flags = [
        "--min-p",
        "0.1",
        "--top-p",
        "0.9",
        "--top-k",
        "5",
        "--temperature",
        "0.7",
        "--allow-regex",
        "[a-z ]*",
        "--block",
        "cat",
        "--no-repeat-ngram",
        "3",
        "--block-ids",
        "5,9",
        "--block-ids",
        "77",
        "--presence-penalty",
        "0.5",
        "--repetition-penalty",
        "1.5",
        "--min-new-tokens",
        "3",
        "--logit-bias",
        "7=-2.5",
    ];
    let (args, tokenizer) = (args(&flags), tokenizer());
    let (_, params) = plan::plan(&args, 1).unwrap();
    let config = candecode_formats::read_config(&story("story-230k")).unwrap();
    let all = requests::processors(&params, &tokenizer, &config).unwrap();
    let names: Vec<String> = all.iter().map(|processor| processor.name()).collect();
    let want = [
        "logit_bias",
        "repetition_penalty(1.5)",
        "presence_penalty(0.5), frequency_penalty(0)",
        "no_repeat_ngram(3)",
        "block_ids",
        "the block list of size 1",
        "the pattern [a-z ]*",
        "min_tokens",
        "temperature(0.7)",
        "top_k(5)",
        "top_p(0.9)",
        "min_p(0.1)",
    ];
    assert_eq!(names, want);
}

fn context(tokens: &[u32]) -> ProcessorInput<'_> {
    ProcessorInput { tokens, prompt_len: 1, remaining: 5, eos: &[0] }
}

#[test]
fn each_processor_runs_on_the_previous_ones_output() {
    let add = |n: f32| {
        named(format!("add({n})"), move |_: &ProcessorInput, logits: &mut [f32]| {
            logits.iter_mut().for_each(|logit| *logit += n);
            Ok(())
        })
    };
    let double = named("double", |_: &ProcessorInput, logits: &mut [f32]| {
        logits.iter_mut().for_each(|logit| *logit *= 2.0);
        Ok(())
    });
    let all = [add(1.0), double, add(0.5)];
    let mut logits = [0.0, 3.0];
    process_all(&all, &context(&[1]), &mut logits).unwrap();
    assert_eq!(logits, [2.5, 8.5]);
}

#[test]
fn processing_stops_and_names_the_processor_that_left_no_token() {
    let forbid = |id: usize| {
        named(format!("forbid({id})"), move |_: &ProcessorInput, logits: &mut [f32]| {
            logits[id] = f32::NEG_INFINITY;
            Ok(())
        })
    };
    let never = named("never", |_: &ProcessorInput, _: &mut [f32]| candle_core::bail!("it ran"));
    let all = [forbid(0), forbid(1), never];
    let error = process_all(&all, &context(&[7, 8, 9]), &mut [1.0, 2.0]);
    refused(
        error.map_err(Into::into),
        &["forbid(1) left no token to choose after 2 generated tokens"],
    );
}

#[test]
fn a_request_gets_the_models_eos_and_fits_its_context() {
    let params = params(&["--stop", "The end"]);
    let model = load_model(&story("story-230k"), DType::F32, &Device::Cpu).unwrap();
    let sampler = requests::sampler(&params, 0, &plain());
    let mut request = requests::request(model.config(), &[5; 500], &params, &[], sampler, &plain());
    assert_eq!(request.eos_token_ids, [0]);
    assert_eq!((request.max_new_tokens, &request.stop_strings), (128, &params.stop));
    assert!(request.processors.is_empty());
    request.fit(&*model).unwrap();
    // With a context of 512, 12 more tokens can be fed, and the token after them is never fed.
    assert_eq!(request.max_new_tokens, 13);
}

#[test]
fn values_that_make_no_sense_together_are_refused() {
    for (flags, named) in [
        ("--num-beams 2 --length-penalty inf", "--length-penalty"),
        (
            "--past-context window --num-beams 2",
            "--past-context window cannot be used with --num-beams",
        ),
        ("--past-context window --cache sliding", "--cache sliding"),
        ("--num-beams 2 --cache sliding", "--cache sliding cannot be used with --num-beams"),
        ("--block-size 16", "--block-size"),
        ("--template-date 2026-01-31", "--template-date"),
        ("--min-new-tokens 9 --max-new-tokens 8", "--min-new-tokens"),
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        refused(plan::plan(&args(&flags), 1), &[named]);
    }
    for flags in [
        "--seed 3 --top-k 5",
        "--length-penalty 2 --early-stopping never --num-beams 2",
        "--num-draft-tokens 3 --draft-ngram",
        "--max-batch-tokens 999 --loop day15",
        "--block-whole-words --block cat",
        "--past-context window --no-cache",
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        plan::plan(&args(&flags), 1).unwrap();
    }
}

/// Spellings that users of other engines type: -1 for "no limit" or "any", and ids in brackets.
#[test]
fn flag_values_from_other_engines_work() {
    let parse = |flags: &[&str]| Args::read([&["candecode"], flags].concat()).unwrap();
    let drawn = |_| parse(&["-p", "a", "--top-k", "9", "--seed", "-1"]).seed.unwrap();
    let seeds = [(); 4].map(drawn);
    assert!(seeds.iter().any(|seed| seed.value != seeds[0].value), "{seeds:?}");
    for ids in ["5,9,77", "[5,9,77]", "[5, 9, 77]", " 5, 9,77 "] {
        assert_eq!(parse(&["--prompt-ids", ids]).prompt_ids.unwrap(), [5, 9, 77]);
        assert_eq!(parse(&["--stop-token-ids", ids]).stop_token_ids, [5, 9, 77]);
    }
}

/// A special token has no text, so a stop string with its name ends the text by its id.
#[test]
fn a_special_token_as_stop_string_becomes_a_stop_token_id() {
    let tokenizer = tokenizer();
    let stops_of = |stop: &[&str], vocab_size: usize| {
        let stop = stop.iter().map(|stop| stop.to_string()).collect();
        let mut params = SamplingParams { stop, stop_token_ids: vec![7], ..Default::default() };
        requests::special_stops(&mut params, &tokenizer, vocab_size);
        (params.stop, params.stop_token_ids)
    };
    let stops = |stop: &[&str]| stops_of(stop, 2048);
    let special = "<|endoftext|>";
    // The model has no row for it, so it never generates it.
    assert_eq!(stops_of(&["a", special], 0), (vec!["a".into()], vec![7]));
    assert_eq!(stops(&["a", special, "b"]), (vec!["a".into(), "b".into()], vec![7, 0]));
    assert_eq!(stops(&["Once", "<|other|>"]).1, [7]);
    let check = |stop: &str| requests::check_stops(&[stop.to_string()], &tokenizer);
    for fine in ["a", special, "<|", "endoftext"] {
        check(fine).unwrap();
    }
    for mixed in ["b<|endoftext|>", "<|endoftext|>\n", "<|endoftext|><|endoftext|>"] {
        refused(check(mixed), &["<|endoftext|> is a special token"]);
    }
}

#[test]
fn a_block_file_has_one_word_per_line() {
    let folder = Folder::new("block");
    let blocked = |text: &str, more: &[&str]| {
        let file = folder.write("words.txt", text);
        let flags = [&["--block-file", file.to_str().unwrap()], more].concat();
        plan::plan(&args(&flags), 1).map(|(_, params)| params.block)
    };
    assert_eq!(blocked("cat\nbig dog\n", &[]).unwrap(), ["cat", "big dog"]);
    assert_eq!(blocked("cat\r\nbig dog\r\n", &[]).unwrap(), ["cat", "big dog"]);
    assert_eq!(blocked("\u{feff}cat\nÉté", &[]).unwrap(), ["cat", "Été"]);
    assert_eq!(blocked("cat\n", &["--block", "fox", "owl"]).unwrap(), ["fox", "owl", "cat"]);
    assert_eq!(blocked("cat\rbig dog\r", &[]).unwrap(), ["cat", "big dog"]);
    for text in ["", "\n", "\u{feff}", " \r\n", "cat\n  \t\n"] {
        refused(blocked(text, &[]), &["words.txt"]);
    }
    // A text in place of a list, and lists that are too long for an automaton.
    let text = "word ".repeat(200_000);
    refused(blocked(&format!("cat\n{text}\n"), &[]), &["words.txt: line 2"]);
    refused(
        blocked(&"nineteen letters ab\n".repeat(20_000), &[]),
        &["words.txt: ", "380000 bytes"],
    );
    refused(blocked("cat\n", &["--block", &"long".repeat(150)]), &["--block: ", "600 bytes"]);
    std::fs::write(folder.0.join("words.txt"), [0xff, 0xfe, b'c', 0]).unwrap();
    let file = folder.0.join("words.txt");
    refused(plan::plan(&args(&["--block-file", file.to_str().unwrap()]), 1), &["UTF-8"]);
}

fn advice(config: &serde_json::Value, args: &Args) -> Option<String> {
    generation_config::advice(config, "generation_config.json", &args.settings())
}

#[test]
fn the_note_lists_generation_config_settings_and_their_flags() {
    let say = |config: serde_json::Value, flags: &[&str]| advice(&config, &args(flags));
    let qwen = json!({"bos_token_id": 1, "do_sample": true, "eos_token_id": [2, 3], "pad_token_id": 1,
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"});
    let said = say(qwen.clone(), &[]).unwrap();
    assert!(said.contains("do_sample=true, temperature=0.6, top_k=20, top_p=0.95"), "{said}");
    assert!(said.contains("add --temperature 0.6 --top-k 20 --top-p 0.95"), "{said}");
    assert!(!said.contains("token_id") && !said.contains("version"), "{said}");
    // Settings that a flag already covers aren't repeated.
    let said = say(qwen.clone(), &["--temperature", "1.5"]).unwrap();
    assert!(
        said.contains("add --top-k 20 --top-p 0.95") && !said.contains("temperature="),
        "{said}"
    );
    assert_eq!(say(qwen, &["--temperature", "0.6", "--top-k", "20", "--top-p", "0.95"]), None);
    // The silent top-k that transformers adds.
    let said = say(json!({"do_sample": true}), &[]).unwrap();
    assert!(said.contains("add --temperature 1 --top-k 50"), "{said}");
    // Without do_sample, transformers ignores the warpers too, but not the penalties.
    assert_eq!(say(json!({"temperature": 0.6, "top_p": 0.9, "do_sample": false}), &[]), None);
    let said = say(json!({"repetition_penalty": 1.1, "temperature": 0.7}), &[]).unwrap();
    assert!(
        said.contains("asks for repetition_penalty=1.1;")
            && said.contains("add --repetition-penalty 1.1")
    );
    // The default for this flag is different in a chat.
    let asked = json!({"max_new_tokens": 300});
    let chat = |flags: &[&str]| Args::read([&["candecode", "--chat"], flags].concat()).unwrap();
    for args in [args(&[]), chat(&[])] {
        let said = advice(&asked, &args).unwrap();
        assert!(said.contains("add --max-new-tokens 300"), "{said}");
    }
    assert_eq!(advice(&asked, &chat(&["--max-new-tokens", "200"])), None);
    // Settings that have no flag are listed.
    let said = say(json!({"epsilon_cutoff": 0.1, "num_beams": 1, "use_cache": true}), &[]).unwrap();
    assert!(said.contains("epsilon_cutoff=0.1") && !said.contains("add"), "{said}");
    // A server has no flags for these.
    let said = generation_config::advice_for_requests(
        &json!({"do_sample": true, "temperature": 0.6, "bad_words_ids": [[5]]}),
        "generation_config.json",
    );
    let said = said.unwrap();
    for asked in ["do_sample=true", "temperature=0.6", "top_k=50", "bad_words_ids=[[5]]"] {
        assert!(said.contains(asked), "{said}");
    }
    assert_eq!(generation_config::advice_for_requests(&json!({"eos_token_id": 0}), "x"), None);
    // A value that isn't a number is shown as written, and a long number in a few digits.
    let said = say(json!({"num_beams": "4", "repetition_penalty": 1e300}), &[]).unwrap();
    assert!(said.contains("num_beams=\"4\"") && said.contains("-penalty 1e300"), "{said}");
    for silent in [
        json!({}),
        json!([]),
        json!({"_from_model_config": true, "eos_token_id": 0, "output_attentions": false, "use_cache": true}),
        json!({"top_k": 50, "top_p": 1.0, "temperature": 1.0, "repetition_penalty": 1.0, "num_beams": 1}),
    ] {
        assert_eq!(say(silent.clone(), &[]), None, "{silent}");
    }
}

#[test]
fn suggested_flags_are_valid_and_silence_the_note() {
    let mut random = Random::new(51);
    for _ in 0..50 {
        let mut config = serde_json::Map::new();
        for (key, value) in [
            ("do_sample", json!(true)),
            ("temperature", json!(0.1 + random.below(20) as f64 / 10.0)),
            ("top_k", json!(1 + random.below(100))),
            ("top_p", json!(0.05 + random.below(90) as f64 / 100.0)),
            ("min_p", json!(random.below(90) as f64 / 100.0)),
            ("repetition_penalty", json!(1.0 + random.below(9) as f64 / 10.0)),
            ("no_repeat_ngram_size", json!(random.below(5))),
            ("max_new_tokens", json!(1 + random.below(500))),
        ] {
            if random.below(2) == 0 {
                config.insert(key.into(), value);
            }
        }
        let config = config.into();
        let Some(said) = advice(&config, &args(&[])) else { continue };
        let flags: Vec<&str> = said.split(" add ").nth(1).unwrap().split(' ').collect();
        let args = args(&flags);
        plan::plan(&args, 1).unwrap();
        assert_eq!(advice(&config, &args), None, "{said}");
    }
}

#[test]
fn whose_summarizes_days_as_ranges() {
    let days = |mine: &[usize]| {
        let day = |day: &Day| Day { reference: !mine.contains(&day.number), ..*day };
        whose(&DAYS.iter().map(day).collect::<Vec<_>>())
    };
    assert_eq!(days(&[]), "all days from the reference");
    let last = DAYS.last().unwrap().number;
    assert_eq!(days(&(0..=last).collect::<Vec<_>>()), "all days yours");
    assert_eq!(days(&[6]), format!("yours: day 6; from the reference: days 0–5, 7–{last}"));
    assert_eq!(
        days(&[0, 1, 2, 5, 15]),
        format!("yours: days 0–2, 5, 15; from the reference: days 3–4, 6–14, 16–{last}")
    );
    let most: Vec<usize> = (0..last).collect();
    assert_eq!(days(&most), format!("yours: days 0–{}; from the reference: day {last}", last - 1));
}

#[test]
fn logit_bias_is_parsed() {
    let args =
        args(&["--logit-bias", "5=-2.5", "--logit-bias", "7=-inf", "--stop-token-ids", "3,4"]);
    assert_eq!(args.logit_bias, [(5, -2.5), (7, f32::NEG_INFINITY)]);
    assert_eq!(args.stop_token_ids, [3, 4]);
}

#[test]
fn block_ids_are_parsed() {
    for (value, ids) in [("5,9", &[5, 9][..]), ("77", &[77]), ("1, 2", &[1, 2])] {
        assert_eq!(params(&["--block-ids", value]).block_ids, [ids]);
    }
}
