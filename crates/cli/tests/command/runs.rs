//! Tests of what a run does besides failing with a message: its text and JSON, notes and warnings,
//! Ctrl-C, and what is checked before the model is loaded.

use crate::{command, done, refused, run, Ran};
use candecode_testing::{copy_of, story, Folder};
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Parses the lines that `--format json` prints, one for each text.
fn lines(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A run that takes and prints ids needs no tokenizer, but one that needs the text does.
#[test]
fn a_model_without_a_tokenizer_runs_on_token_ids() {
    let folder = copy_of("story-230k", "ids");
    let ids =
        ["--model", folder.0.to_str().unwrap(), "--prompt-ids", "5,6,7", "--max-new-tokens", "9"];
    let json = [&ids[..], &["--format", "json"]].concat();
    let tokens = || lines(&done(&json))[0]["new_ids"].clone();
    let with = tokens();
    fs::remove_file(folder.0.join("tokenizer.json")).unwrap();
    assert_eq!(tokens(), with);
    assert_eq!(with.as_array().unwrap().len(), 9);
    refused(&ids, 1, "tokenizer.json");
    refused(&[&json[..], &["--stop", "."]].concat(), 1, "tokenizer.json");
}

#[test]
fn generation_config_settings_are_noted_but_not_applied() {
    let folder = copy_of("story-230k", "wishes");
    let flags = ["--model", folder.0.to_str().unwrap(), "-p", "Once", "--max-new-tokens", "12"];
    let greedy = done(&flags);
    assert!(!greedy.err.contains("generation_config.json"), "{}", greedy.err);
    let wishes = r#"{"eos_token_id": 0, "do_sample": true, "temperature": 3.0, "top_k": 2000}"#;
    folder.write("generation_config.json", wishes);
    let noted = done(&flags);
    assert_eq!(noted.out, greedy.out);
    let names = noted.err.contains("generation_config.json");
    assert!(names && noted.err.contains("--temperature 3 --top-k 2000"), "{}", noted.err);
    let asked = done(&[&flags[..], &["--temperature", "3", "--top-k", "2000"]].concat());
    let silent = !asked.err.contains("generation_config.json");
    assert!(asked.out != greedy.out && silent, "{}", asked.err);
}

#[test]
fn a_draft_model_as_large_as_its_target_prints_a_warning() {
    let run = |target: &str, draft: &str| {
        let flags = ["--max-new-tokens", "8", "--model", target, "--draft-model", draft];
        let ran = done(&[&["-p", "Once"], &flags[..]].concat());
        (ran.out, ran.err.contains("warning: the draft model"))
    };
    let (text, warned) = run("story-230k", "story-3m");
    assert!(warned);
    assert_eq!(run("story-230k", "story-230k"), (text, true));
    assert!(!run("story-3m", "story-230k").1);
}

/// A tree is cut to the levels that still fit, like every draft. The model's context is 512.
#[test]
fn a_draft_tree_shrinks_near_the_end_of_the_context() {
    let ids: Vec<String> = (0..505).map(|i| (300 + i * 7 % 900).to_string()).collect();
    let ids = ids.join(",");
    let run = |more: &[&str]| {
        let flags = ["--prompt-ids", &ids, "--format", "json"];
        lines(&done(&[&flags[..], more].concat()))[0]["new_ids"].clone()
    };
    for new in ["3", "40"] {
        let plain = run(&["--max-new-tokens", new]);
        for tree in [&["--draft-tree", "2x2x1"][..], &["--draft-tree", "9x4"], &["--medusa"]] {
            assert_eq!(run(&[tree, &["--max-new-tokens", new]].concat()), plain, "{tree:?}, {new}");
        }
    }
}

/// Medusa's heads fit the widened model, too, which has wider states.
#[test]
fn the_widened_model_drafts_with_the_heads_of_the_model_inside() {
    let run = |model: &str| {
        let text = ["-p", "Lily and her dog", "--max-new-tokens", "16", "--stats", "--medusa"];
        let Ran { out, err, .. } = done(&[&["--model", model], &text[..]].concat());
        let drafts = err.lines().find(|line| line.starts_with("drafts ")).unwrap().to_string();
        (out, drafts)
    };
    let (text, drafts) = run("story-3m");
    assert!(!drafts.contains(" 0 of "), "{drafts}");
    assert_eq!(run("story-135m"), (text, drafts));
}

/// A draft may lead where the request's constraints leave no token. That's no error unless the text
/// itself goes there.
#[test]
fn a_dead_end_in_a_draft_is_not_an_error() {
    let run = |prompt: &str, regex: &str, more: &[&str]| {
        let flags = ["-p", prompt, "--allow-regex", regex, "--block", "xq"];
        done(&[&flags[..], more].concat()).out
    };
    let (prompt, regex) = ("there was a xq and there was a", " (?:big dog|xq)");
    let sampled = ["--temperature", "1", "--seed", "1", "--draft-ngram", "2"];
    assert!(run(prompt, regex, &sampled).contains(" big dog"));
    let (prompt, regex) = ("Once upon a time there was a", " big dog|xq");
    let plain = run(prompt, regex, &[]);
    let draft = ["--draft-model", "story-230k"];
    assert_eq!(run(prompt, regex, &draft), plain);
    assert_eq!(run(prompt, regex, &[&draft[..], &["--draft-tree", "8x1"]].concat()), plain);
}

/// Every loop keeps a schema and a grammar, with drafts, beams and several prompts, and samples the
/// same text where it samples the same without.
#[cfg(feature = "structured")]
#[test]
fn every_loop_keeps_a_schema_and_a_grammar() {
    let folder = Folder::new("formats");
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let toys = file(
        "toys.json",
        r#"{"type": "array", "items": {"enum": ["ball", "kite"]}, "minItems": 1, "maxItems": 3}"#,
    );
    let brackets = file("brackets.lark", "start: \"[\" start* \"]\"");
    let prompt = ["-p", "Tom has toys: ", "--max-new-tokens", "60"];
    for (flag, path) in [("--json-schema", &toys), ("--grammar", &brackets)] {
        let run = |more: &[&str]| done(&[&prompt[..], &[flag, path], more].concat()).out;
        let plain = run(&[]);
        let written = plain.trim_start_matches("Tom has toys: ").trim();
        match flag {
            "--grammar" => assert!(written.chars().all(|c| c == '[' || c == ']'), "{plain}"),
            _ => assert!(serde_json::from_str::<Value>(written).is_ok(), "{plain}"),
        }
        for more in [
            &["--loop", "day10"][..],
            &["--loop", "day15"],
            &["--loop", "day23"],
            &["--draft-ngram", "3"],
            &["--draft-model", "story-230k"],
            &["--draft-model", "story-230k", "--draft-tree", "2x2"],
            &["--cache", "paged", "--block-size", "4"],
        ] {
            assert_eq!(run(more), plain, "{flag} {more:?}");
        }
        let beams = run(&["--num-beams", "3"]);
        assert!(beams.contains('[') && beams.trim().ends_with(']'), "{beams}");
        let batch = run(&["-p", "Lily has toys: "]);
        assert!(batch.contains(written), "{batch}");
    }
    let none = file("none.json", r#"{"enum": []}"#);
    refused(&["-p", "a", "--json-schema", &none], 2, "--json-schema");
    refused(&["-p", "a", "--json-schema", &brackets], 2, "--json-schema");
    refused(&["-p", "a", "--grammar", &none], 2, "--grammar");
}

/// A cache in pages holds what any other cache holds, whoever drafts.
#[test]
fn pages_change_no_text() {
    let prompt = ["-p", "Lily and her dog", "--max-new-tokens", "40"];
    let sampled = ["--temperature", "1", "--seed", "3"];
    for drafts in [&[][..], &["--draft-model", "story-230k"], &["--draft-ngram"]] {
        for choice in [&[][..], &sampled] {
            let flags = [&prompt[..], drafts, choice].concat();
            let paged = [&flags[..], &["--cache", "paged", "--block-size", "4"]].concat();
            assert_eq!(done(&paged).out, done(&flags).out, "{flags:?}");
        }
    }
}

/// Writes a copy of a safetensors file in which these bytes stand at a place in one tensor, and
/// returns its path.
fn with_bytes(
    from: &Path,
    folder: &Folder,
    name: &str,
    tensor: &str,
    place: usize,
    bytes: &[u8],
) -> String {
    let mut file = fs::read(from).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let begin = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    let at = 8 + header + begin + place;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    folder.write(name, file).display().to_string()
}

/// Like every damaged file: exit code 2 is for the command line.
#[test]
fn a_damaged_draft_table_ends_with_exit_code_1() {
    let folder = Folder::new("table");
    let table = folder.write("table.json", "{}").display().to_string();
    refused(&["-p", "Once", "--draft-table", &table], 1, "--draft-table");
}

/// The model's weights are cut off in every case but the last, so had the model been loaded first,
/// the message would be about them.
#[test]
fn medusa_heads_and_trees_are_checked_before_the_model_is_loaded() {
    let heads = story("story-3m").join("medusa.safetensors");
    let folder = copy_of("story-3m", "medusa");
    let weights = fs::read(folder.0.join("model.safetensors")).unwrap();
    folder.write("model.safetensors", &weights[..100]);
    let refused = |flags: &[&str], code: i32, named: &str| {
        let first = ["--model", folder.0.to_str().unwrap(), "-p", "Once", "--max-new-tokens", "4"];
        refused(&[&first[..], flags].concat(), code, named);
    };
    let nan = with_bytes(&heads, &folder, "nan", "heads.2.bias", 0, &[0x00, 0x7e]);
    refused(&["--medusa", &nan], 1, "heads.2.bias");
    let other = with_bytes(&heads, &folder, "vocab", "vocab_size", 0, &50_257i64.to_le_bytes());
    refused(&["--medusa", &other], 1, "50257");
    let cut = folder.write("cut", &fs::read(&heads).unwrap()[..1000]);
    refused(&["--medusa", cut.to_str().unwrap()], 1, "cut short or damaged");
    refused(&["--medusa", folder.0.to_str().unwrap()], 1, "this is a folder");
    let config = folder.0.join("config.json");
    refused(&["--medusa", config.to_str().unwrap()], 1, "cut short or damaged");
    refused(&["--medusa", "nowhere.safetensors"], 1, "nowhere.safetensors");
    refused(&["--medusa", "--draft-tree", "9x9x9"], 1, "--draft-tree");
    fs::remove_file(folder.0.join("medusa.safetensors")).unwrap();
    refused(&["--medusa"], 1, "medusa.safetensors");
    // Only the last norm identifies the heads' model. The rest of the weights aren't read.
    folder.write("model.safetensors", &weights);
    let norm = with_bytes(&heads, &folder, "norm", "norm.weight", 0, &99f32.to_le_bytes());
    refused(&["--medusa", &norm], 1, "another model");
    fs::copy(story("story-230k").join("config.json"), config).unwrap();
    refused(&["--medusa", heads.to_str().unwrap()], 1, "heads.0.weight is [192, 192]");
}

/// A pool of blocks can be too small for a prompt, for a text, or for several.
#[test]
fn a_run_that_is_out_of_blocks_names_the_flag_for_more() {
    let paged = |blocks: &str, more: &[&str]| {
        let pool = ["--block-size", "4", "--num-gpu-blocks-override", blocks, "-p", "Once upon a"];
        let flags = ["--model", "story-230k", "--cache", "paged", "--max-new-tokens", "30"];
        run(&[&flags[..], &pool, more].concat())
    };
    for (blocks, more) in [
        ("1", &[" time there was a"][..]), // two prompts, one of which doesn't fit
        ("2", &[]),
        ("2", &["--loop", "day10"]),
        ("2", &["--num-beams", "2"]),
        ("2", &["--draft-ngram"]),
        ("8", &["A dog"]),
        ("8", &["--num-return-sequences", "3", "--temperature", "1", "--seed", "1"]),
    ] {
        let ran = paged(blocks, more);
        let is_named = ran.err.contains("--num-gpu-blocks-override");
        assert!(ran.code == 1 && is_named, "{blocks} {more:?}: {}", ran.err);
    }
    assert_eq!(paged("16", &["A dog"]).code, 0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_generation_cleanly() {
    use std::io::Read;
    // A text that goes on for minutes.
    let long = ["--min-new-tokens", "100000", "--max-new-tokens", "100000"];
    let endless = ["-p", "Once", "--model", "story-230k", "--past-context", "window"];
    let mut run = command(&[&endless[..], &long].concat());
    let mut child = run.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 8]; // the prompt has been printed, so the loop is running
    out.read_exact(&mut first).unwrap();
    crate::control_c(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.ends_with('\n'), "the line was not ended: {rest:?}");
}

/// Beam search returns no tokens until it is done, but it can still be stopped.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_beam_search() {
    use std::io::{BufRead, BufReader};
    let beams = ["--num-beams", "8", "--early-stopping", "never", "--max-new-tokens", "480"];
    let mut run = command(&[&["-p", "Once", "--cache", "dynamic"], &beams[..]].concat());
    let mut child = run.spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap(); // this line is printed right before the loop starts
    assert!(line.starts_with("[loop: day 11, on the CPU; "), "{line}");
    crate::control_c(&child);
    let ran = Ran::from(child.wait_with_output().unwrap());
    // On a busy machine the signal may come before the search.
    assert!(["", "Once\n"].contains(&&*ran.out), "the search ran to its end: {}", ran.out);
    assert_eq!(ran.code, 130, "{}", ran.err);
}

/// With a single beam, day 11's loop finds the greedy text.
#[test]
fn beam_search_prints_text_for_every_prompt() {
    let run = |flags: &[&str], prompts: &[&str]| {
        let text = ["--model", "story-230k", "--max-new-tokens", "9", "--stats"];
        done(&[&text[..], flags, prompts].concat())
    };
    let one = ["-p", "Once upon"];
    let greedy = run(&[], &one).out;
    for flags in [&["--loop", "day11"][..], &["--loop", "day11", "--cache", "paged"]] {
        let Ran { out, err, .. } = run(flags, &one);
        assert_eq!(out, greedy, "{err}");
        assert!(err.contains("search  ") && !err.contains("decode  "), "{err}");
    }
    let ids = |flags: &[&str]| {
        let json = lines(&run(&[flags, &["--format", "json"]].concat(), &one)).remove(0);
        (json["new_ids"].clone(), json["finish_reason"].clone())
    };
    assert_eq!(ids(&["--loop", "day11"]), ids(&[]));
    let beams = |prompts: &[&str]| run(&["--num-beams", "2"], prompts).out;
    let both = beams(&["-p", "Once upon", "-p", "The dog"]);
    assert_eq!(both, format!("{}\n{}", beams(&one), beams(&["-p", "The dog"])));
}

/// The lines of a trace go to standard error, and the text to standard output as a whole.
#[test]
fn a_trace_leaves_the_text_as_it_is() {
    let text = ["--model", "story-230k", "--max-new-tokens", "12", "-p", "Tom had a", "The"];
    let budget = ["--max-num-batched-tokens", "2", "--block-size", "4"];
    for flags in [&["--loop", "day12"][..], &["--loop", "day10"], &budget] {
        let plain = [&text[..], flags].concat();
        let traced = [&plain[..], &["--trace"]].concat();
        let ran = done(&traced);
        assert_eq!(ran.out, done(&plain).out, "{flags:?}");
        let table: Vec<&str> =
            ran.err.lines().skip_while(|line| !line.starts_with("step")).collect();
        let steps = table[1..].iter().map(|line| line.split_whitespace().next().unwrap());
        assert!(steps.eq((1..table.len()).map(|step| step.to_string())), "{}", ran.err);
        // Prompts of 3 tokens and 1. The budget cuts the first one in two.
        let passes = match flags {
            ["--loop", "day12"] => 12,
            ["--loop", "day10"] => 24,
            _ => 13,
        };
        assert_eq!(table.len(), 1 + passes, "{}", ran.err);
        let json = done(&[&traced[..], &["--format", "json"]].concat());
        assert_eq!(lines(&json).len(), 2);
        let steps = json.err.lines().filter(|line| line.starts_with('{'));
        let steps: Vec<Value> = steps.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(steps.len(), passes);
        let last = &steps[passes - 1];
        assert_eq!(last["total_num_scheduled_tokens"], last["requests"].as_array().unwrap().len());
        assert_eq!(last["requests"][0]["kind"], "decode");
        assert_eq!(last.get("num_free_blocks").is_some(), flags == budget);
    }
    for other in [["--chat", "--trace"], ["--endpoint=http://127.0.0.1:1", "--trace"]] {
        refused(&other, 2, "--trace");
    }
}

#[test]
fn a_byte_order_mark_is_stripped_from_the_prompt() {
    let folder = Folder::new("byte-order-mark");
    let flags = ["--max-new-tokens", "2", "--format", "json", "--prompt-file"];
    let ids = |file: &Path| {
        lines(&done(&[&flags[..], &[file.to_str().unwrap()]].concat()))[0]["prompt_ids"].clone()
    };
    let (with, without) = (folder.write("with", "\u{feff}Once"), folder.write("without", "Once"));
    assert_eq!(ids(&with), ids(&without));
    let mut piped = command(&[&flags[..], &["-"]].concat());
    let piped: Ran = piped.stdin(fs::File::open(with).unwrap()).output().unwrap().into();
    assert_eq!(lines(&piped)[0]["prompt_ids"], ids(&without));
}

/// 40 MB are rejected by size alone: reading them as tokens takes half a minute.
#[test]
fn a_huge_prompt_is_refused_by_size_alone() {
    let folder = Folder::new("long-prompt");
    let file = folder.write("long", "a b ".repeat(10_000_000));
    refused(&["--prompt-file", file.to_str().unwrap()], 1, "40000000 bytes");
}

/// A processor's name may contain NaN even if the model's numbers are fine.
#[test]
fn an_error_that_quotes_nan_is_not_blamed_on_the_model() {
    let run = |flags: &[&str]| run(&[&["-p", "Once", "--model", "story-230k"], flags].concat());
    let dead = run(&["--allow-regex", "NaN NaN", "--block", "N"]);
    assert!(dead.code == 1 && dead.err.contains("the pattern NaN NaN"), "{}", dead.err);
    for ran in [run(&["--allow-regex", "NaN\u{4e00}{9999}\u{1F600}"]), dead] {
        assert!(!ran.err.contains("logits are NaN"), "{}", ran.err);
    }
}

/// Parameters that pass validation also work at the ends of their ranges, without turning anything
/// into infinity or NaN on the way.
#[test]
fn extreme_parameters_act_like_their_limit_or_are_refused() {
    let fixed = ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "12"];
    let with = |flags: &[&'static str]| [&fixed, flags].concat();
    let greedy = done(&fixed).out;
    for tiny in ["1e-5", "1e-30", "2e-38", "1e-38", "1e-40", "1e-45"] {
        let ran = done(&with(&["--temperature", tiny, "--seed", "3"]));
        assert_eq!(ran.out, greedy, "{tiny}: {}", ran.err);
    }
    for flags in [
        &["--repetition-penalty", "1e-45", "--temperature", "1"][..],
        &["--repetition-penalty", "3e38", "--temperature", "0.5"],
        &["--repetition-penalty", "1e-45", "--temperature", "1e-45"],
        &["--repetition-penalty", "1e-45", "--presence-penalty", "2", "--frequency-penalty", "-2"],
        &["--repetition-penalty", "1e-45", "--num-beams", "2"],
        &["--temperature", "3e38", "--top-p", "1e-300"],
        &["--temperature", "1", "--min-p", "1e-300"],
        &["--num-beams", "2", "--length-penalty", "-20"],
        &["--num-beams", "2", "--length-penalty", "20"],
    ] {
        done(&with(flags));
    }
    for penalty in ["1e300", "-1e300"] {
        let ran = run(&with(&["--num-beams", "2", "--length-penalty", penalty]));
        assert_eq!((ran.code, &*ran.out), (1, ""), "{}", ran.err);
        assert!(ran.err.contains("error: length_penalty"), "{}", ran.err);
    }
}

#[test]
fn the_penalty_window_limits_which_tokens_count() {
    let run = |more: &[&str]| {
        let long = ["-p", "Once upon a time", "--model", "story-230k", "--max-new-tokens", "60"];
        done(&[&long[..], &["--repetition-penalty", "1.8"], more].concat()).out
    };
    let all = run(&[]);
    let [whole, one, twenty] =
        ["16777216", "1", "20"].map(|window| run(&["--penalty-window", window]));
    assert_eq!(whole, all, "a window longer than the text has no effect");
    assert!(one != all && twenty != all && one != twenty, "{one}{twenty}{all}");
}

/// As in transformers, a text may start with only BOS.
#[test]
fn an_empty_prompt_becomes_bos_if_the_tokenizer_adds_it() {
    let folder = copy_of("story-230k", "bos");
    let file = folder.0.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let bos = "<|endoftext|>";
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let add = json!({"SpecialToken": {"id": bos, "type_id": 0}});
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [add, text],
        "pair": [add, text],
        "special_tokens": {bos: {"id": bos, "ids": [0], "tokens": [bos]}}
    });
    fs::write(&file, tokenizer.to_string()).unwrap();
    let new_ids = |flags: &[&str]| -> Vec<Value> {
        let model = folder.0.to_str().unwrap();
        let fixed = ["--model", model, "--format", "json", "--max-new-tokens", "5"];
        let lines = lines(&done(&[&fixed, flags].concat()));
        lines.into_iter().map(|line| line["new_ids"].clone()).collect()
    };
    let alone = new_ids(&["--prompt-ids", "0"]);
    assert_eq!(new_ids(&["-p", ""]), alone);
    assert_eq!(new_ids(&["-p", "Once", "-p", ""])[1], alone[0]);
}

/// A token's logprob is the same number in the answer and in the list of top tokens.
#[test]
fn a_token_has_the_same_logprob_everywhere_in_an_answer() {
    let flags = ["-p", "Once upon a time", "--max-new-tokens", "40"];
    let json =
        &lines(&done(&[&flags[..], &["--format", "json", "--top-logprobs", "3"]].concat()))[0];
    let logprobs = json["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 40);
    // The first token came from the prefill.
    let [rate, seconds] = ["tokens_per_second", "decode_s"].map(|key| json[key].as_f64().unwrap());
    assert!((rate * seconds - 39.0).abs() < 1e-6, "{rate} {seconds}");
    for (logprob, top) in logprobs.iter().zip(json["top_logprobs"].as_array().unwrap()) {
        // Greedy, so the top token is the chosen one.
        assert_eq!(*logprob, top[0]["logprob"], "{top}");
    }
}

/// The pattern allows a different opening for each text, and one of them is blocked.
#[test]
fn a_failing_text_in_a_batch_leaves_the_others_complete() {
    let pattern = " and [A-Z][a-z]+|, there was";
    let run = |flags: &[&str]| {
        let fixed = ["--model", "story-230k", "--max-new-tokens", "8", "--block", "was"];
        run(&[&fixed[..], &["--allow-regex", pattern], flags].concat())
    };
    let prompts = ["-p", "Lily", "-p", "Once upon a time", "-p", "Ben"];
    let whole = run(&["-p", "Lily", "-p", "Ben"]).out;
    let [first, last] = whole.split("\n\n").collect::<Vec<_>>()[..] else { panic!("{whole}") };
    for day in ["day12", "day15"] {
        let Ran { out, err, code } = run(&[&prompts[..], &["--loop", day]].concat());
        assert_eq!(code, 1, "{day}");
        assert_eq!(out, format!("{first}\n\nOnce upon a time, there wa\n\n{last}"), "{day}");
        assert!(err.contains(&format!("error: text 2 of 3: the pattern {pattern}")), "{err}");
        let ran = run(&[&prompts[..], &["--loop", day, "--format", "json"]].concat());
        assert_eq!(ran.code, 1, "{day}");
        let lines = lines(&ran);
        let failed = &lines[1];
        assert_eq!(
            (&failed["finish_reason"], &failed["text"]),
            (&"failed".into(), &", there wa".into())
        );
        assert!(failed["error"].as_str().unwrap().contains(pattern), "{failed}");
        let new = failed["new_ids"].as_array().unwrap().len();
        assert_eq!(new, failed["logprobs"].as_array().unwrap().len());
        for other in [&lines[0], &lines[2]] {
            assert!(other["error"].is_null() && other["finish_reason"] != "failed", "{other}");
        }
    }
}

/// Each text in a batch has its own top tokens, the same as when it runs alone.
#[test]
fn top_logprobs_in_a_batch_equal_those_of_each_text_alone() {
    let run = |flags: &[&str]| {
        let fixed = ["--model", "story-230k", "--max-new-tokens", "6", "--top-logprobs", "3"];
        done(&[&fixed, flags].concat()).out
    };
    let (one, two) = (run(&["-p", "Once upon a time"]), run(&["-p", "Lily"]));
    assert_eq!(one.lines().count(), 8, "{one}"); // the text, an empty line, six steps
    for day in ["day12", "day15"] {
        let both = run(&["-p", "Once upon a time", "-p", "Lily", "--loop", day]);
        assert_eq!(both, format!("{one}\n{two}"), "{day}");
    }
}

/// A stop string ends a text anywhere, even before a format is complete, as in vLLM.
#[test]
fn a_stop_string_may_cut_a_format_short() {
    let flags = ["-p", "Lily had", "--allow-regex", " [0-9] red dogs", "--stop", "dog"];
    let text = done(&flags).out;
    assert!(text.starts_with("Lily had ") && text.ends_with(" red \n"), "{text}");
}

/// An instruct model answers a prompt: its template wraps the prompt, and the end-of-turn token
/// ends the text.
#[test]
fn an_instruct_models_prompt_is_wrapped_in_its_template() {
    let folder = copy_of("story-230k", "Instruct");
    let template = "{% for m in messages %}Tell me: {{ m.content }}.<|endoftext|>{% endfor %}";
    folder.write("chat_template.jinja", template);
    let link = Folder::new("instruct-name");
    let model = link.0.join("tiny-Instruct"); // the name says that it's one
    fs::rename(&folder.0, &model).unwrap();
    let model = model.to_str().unwrap();
    let run =
        |flags: &[&str]| done(&[&["--model", model, "--max-new-tokens", "8"], flags].concat());
    let asked = run(&["-p", "a story"]);
    assert!(asked.out.starts_with("a story\n\n"), "{}", asked.out);
    assert!(asked.err.contains("chat template") && asked.err.contains("--raw"), "{}", asked.err);
    let same = run(&["-p", "Tell me: a story.<|endoftext|>", "--raw"]);
    assert!(!same.err.contains("template"), "{}", same.err);
    let answer = asked.out.strip_prefix("a story\n\n").unwrap();
    assert_eq!(same.out, format!("Tell me: a story.{answer}"));
    // Two prompts after one -p, each with its own answer.
    let two = run(&["-p", "a story", "a song"]).out;
    assert!(two.starts_with(&asked.out) && two.contains("\na song\n\n"), "{two}");
    assert!(!run(&["--prompt-ids", "428"]).err.contains("template"));
}

#[test]
fn a_failing_template_is_reported_before_weights_are_read() {
    let link = Folder::new("instruct-fails");
    let model = link.0.join("tiny-chat");
    let folder = copy_of("story-230k", "chat-fails");
    folder.write("chat_template.jinja", "{{ raise_exception('no questions') }}");
    folder.write("model.safetensors", "damaged");
    fs::rename(&folder.0, &model).unwrap();
    let args = ["--model", model.to_str().unwrap(), "-p", "a story"];
    refused(&args, 1, "chat_template.jinja");
    refused(&args, 1, "no questions");
}

#[test]
fn nanogpt_prompt_syntax_points_to_the_prompt_file_flag() {
    refused(&["-p", "FILE:prompt.txt"], 2, "--prompt-file prompt.txt");
}

/// A list with commas is one long word that no text contains, so without a warning it would
/// silently block nothing.
#[test]
fn a_block_list_with_commas_prints_a_note() {
    let notes = |words: &[&str]| {
        let flags = ["--model", "story-230k", "-p", "Once", "--max-new-tokens", "1", "--block"];
        done(&[&flags[..], words].concat()).err.contains("note: --block ")
    };
    assert!(notes(&["war, conflict, fight"]) && notes(&["war,conflict"]));
    assert!(!notes(&["war", "conflict"]));
}

/// Writes a copy of an embedded model with one number of a tensor replaced.
fn with_number(model: &str, test: &str, tensor: &str, place: usize, bits: u16) -> Folder {
    let folder = copy_of(model, test);
    let weights = story(model).join("model.safetensors");
    with_bytes(&weights, &folder, "model.safetensors", tensor, 2 * place, &bits.to_le_bytes());
    folder
}

/// NaN and infinity in bf16.
const NAN: u16 = 0x7fc0;
const INFINITY: u16 = 0x7f80;

#[test]
fn every_loop_stops_at_nan_and_says_where_it_began() {
    let tensor = "model.layers.2.mlp.down_proj.weight";
    let folder = with_number("story-3m", "nan-in-mlp", tensor, 5, NAN);
    for flags in [
        &["--loop", "day6"][..],
        &["--no-cache"],
        &["--cache", "static"],
        &["--cache", "sliding"],
        &["--cache", "paged"],
        &["--temperature", "1", "--top-k", "5"],
        &["--num-beams", "3"],
        &["--draft-ngram"],
        &["--draft-tree", "2x1"],
        &["--loop", "day15", "-p", "Lily and Tom"],
        &["--loop", "day21", "-p", "Lily and Tom"],
    ] {
        let fixed = ["--model", folder.0.to_str().unwrap(), "-p", "Once upon a time"];
        let ran = run(&[&fixed[..], flags].concat());
        let named = ran.err.contains("logits are NaN") && ran.err.contains("(model.layers.2)");
        assert!(ran.code == 1 && named, "{flags:?}: {}", ran.err);
    }
}

/// The embedding of position 6 is 128 wide. Only the step that reaches this position reads it.
#[test]
fn nan_in_a_later_step_is_reported_with_its_position() {
    for (name, bits, origin) in [("nan", NAN, "embedding"), ("inf", INFINITY, "infinity")] {
        let folder = with_number("story-gpt2-1m", name, "transformer.wpe.weight", 771, bits);
        for cache in [&["--cache", "dynamic"][..], &["--cache", "static"], &["--no-cache"]] {
            let flags = ["-p", "Once upon a", "--max-new-tokens", "9", "--model"];
            let ran = run(&[&flags, &[folder.0.to_str().unwrap()][..], cache].concat());
            assert_eq!((ran.code, &*ran.out), (1, "Once upon a time, there was\n"), "{}", ran.err);
            let named = ran.err.contains("position 6") && ran.err.contains(origin);
            assert!(named, "{cache:?}: {}", ran.err);
        }
    }
}

/// As in a release: the program runs with the models beside it.
#[test]
fn models_beside_the_program_come_first() {
    let (folder, model) = (Folder::new("beside"), copy_of("story-230k", "beside-model"));
    let program = folder.0.join("candecode").with_extension(std::env::consts::EXE_EXTENSION);
    fs::copy(env!("CARGO_BIN_EXE_candecode"), &program).unwrap();
    fs::create_dir(folder.0.join("models")).unwrap();
    fs::rename(&model.0, folder.0.join("models/story-3m")).unwrap();
    let args = ["-p", "Once upon a time", "--max-new-tokens", "20"];
    // While this program wrote it, another test may have started a child, which holds it open for a
    // moment: "text file busy".
    let output = loop {
        match Command::new(&program).args(args).env_remove("CANDECODE_MODELS").output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            ran => break ran.unwrap(),
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, done(&[&["--model", "story-230k"], &args[..]].concat()).out);
    assert_ne!(text, done(&args).out);
}
