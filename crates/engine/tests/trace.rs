//! Tests `--trace`: `cargo test --features ref --test trace`.

#![cfg(feature = "ref")]

use candecode::day07_greedy::argmax;
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::draft::Counts;
use candecode::kit::{
    BeamParams, EarlyStopping, Model, PastContext, Request, SamplingParams, SchedulerInterface,
};
use candecode_engine::loops::{DraftSource, Drafts, Loop, Run};
use candecode_engine::trace::{Trace, TraceFormat, TracedScheduler};
use candecode_engine::{requests, CacheConfig, Engine};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { max_num_batched_tokens: 6, max_num_seqs: 8 };

/// Runs a day's loop and returns each row's new tokens, its counts, and the lines of the trace.
fn run(
    day: &str,
    engine: &Engine,
    prompts: &[Vec<u32>],
    new: usize,
    format: Option<TraceFormat>,
) -> (BTreeMap<usize, Vec<u32>>, Option<Counts>, Vec<String>) {
    let day_loop = Loop::parse(day).unwrap();
    let config = engine.model().config();
    let params =
        SamplingParams { max_new_tokens: new, min_new_tokens: new, ..SamplingParams::default() };
    let source = DraftSource::Ngrams(1);
    let drafts = Drafts { source, num_tokens: 3, tree_shape: vec![2, 1], typical: false };
    let drafts = day_loop.needs.map(|_| drafts);
    let lines = RefCell::new(Vec::new());
    let write = |line: &str| lines.borrow_mut().push(line.to_string());
    let trace = format.map(|format| Trace::new(engine.model(), format, drafts.is_some(), write));
    let model = trace.as_ref().map_or(engine.model() as &dyn Model, |trace| trace);
    let run = Run {
        day_loop,
        engine,
        model,
        processors: requests::processors(&params, engine.tokenizer(), config).unwrap(),
        params,
        torch_stream: false,
        top_logprobs: None,
        past_context: PastContext::Stop,
        beams: BeamParams {
            num_beams: 1,
            num_return_sequences: 1,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::False,
        },
        drafts,
        max_batch_tokens: 60,
        limits: LIMITS,
        trace: trace.as_ref(),
    };
    let mut texts: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    let found = run.run(prompts, 0, &mut |token| {
        texts.entry(token.row).or_default().push(token.id);
        Ok(true)
    });
    let counts = found.unwrap().counts;
    drop(run);
    drop(trace);
    (texts, counts, lines.into_inner())
}

fn number(object: &Value, name: &str) -> usize {
    object[name].as_u64().unwrap_or_else(|| panic!("{name}: {object}")) as usize
}

/// Follows every request through the lines: what a line says about it must follow from the lines
/// before. Returns the number of tokens that each request has in the end, and of preemptions.
fn follow(lines: &[Value], prompts: &[Vec<u32>], keeps: bool, block: usize) -> (Vec<usize>, usize) {
    let mut tokens: Vec<usize> = prompts.iter().map(Vec::len).collect();
    let mut computed = vec![0; prompts.len()];
    // Requests that haven't run since they were submitted or preempted.
    let mut starts = vec![true; prompts.len()];
    let mut preemptions = 0;
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(number(line, "step"), i + 1);
        for id in line["preempted_req_ids"].as_array().unwrap() {
            starts[id.as_u64().unwrap() as usize] = true;
            preemptions += 1;
        }
        let (mut scheduled, rejected, accepted) = match line.get("num_draft_tokens") {
            Some(_) => {
                let accepted = number(line, "num_accepted_tokens");
                (0, number(line, "num_draft_tokens") - accepted, accepted)
            }
            None => (0, 0, 0),
        };
        for request in line["requests"].as_array().unwrap() {
            let id = number(request, "req_id");
            let (from, new) =
                (number(request, "num_computed_tokens"), number(request, "num_scheduled_tokens"));
            assert_eq!(number(request, "num_tokens"), tokens[id], "{line}");
            if starts[id] {
                assert!(from % block == 0 && from < tokens[id], "{line}");
            } else {
                assert_eq!(from, if keeps { computed[id] } else { 0 }, "{line}");
            }
            let decodes = from >= prompts[id].len() && from + 1 == tokens[id];
            assert_eq!(request["kind"], if decodes { "decode" } else { "prompt" }, "{line}");
            starts[id] = false;
            computed[id] = from + new - rejected;
            tokens[id] += if from + new >= tokens[id] { 1 + accepted } else { 0 };
            scheduled += new;
        }
        assert_eq!(number(line, "total_num_scheduled_tokens"), scheduled);
    }
    (tokens, preemptions)
}

#[test]
fn every_loop_is_followed_and_writes_the_same_text() {
    let mut engine = Engine::open("story-230k").unwrap();
    let encode = |text: &str| engine.tokenizer().encode(text).unwrap();
    let prompts = ["Tom had a big red ball. Tom had a", "The", "Lily and her"].map(encode).to_vec();
    let sizes = CacheConfig::Paged { block_size: 4, num_blocks: 40 };
    for day in ["6", "7", "10", "12", "13", "15", "21", "22", "23", "24"] {
        let day_loop = Loop::parse(day).unwrap();
        engine.cache = day_loop.cache.map(|_| CacheConfig::Dynamic);
        let caches = match day {
            "21" | "22" | "23" => vec![Some(sizes)],
            "10" | "13" => vec![Some(CacheConfig::Dynamic), Some(sizes)],
            "6" | "7" => vec![None],
            _ => vec![Some(CacheConfig::Dynamic)],
        };
        for cache in caches {
            engine.cache = cache;
            let prompts =
                if day_loop.takes_batches() { prompts.clone() } else { vec![prompts[0].clone()] };
            let (texts, _, no_lines) = run(day, &engine, &prompts, 12, None);
            let json = Some(TraceFormat::Json);
            let (traced, counts, lines) = run(day, &engine, &prompts, 12, json);
            assert_eq!(traced, texts, "day {day}");
            assert!(no_lines.is_empty());
            let lines: Vec<Value> =
                lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            let (tokens, _) = follow(&lines, &prompts, cache.is_some(), 4);
            for (row, prompt) in prompts.iter().enumerate() {
                let written = prompt.len() + texts[&row].len();
                // A text may end with an accepted token, after which the pass has one more.
                let more = usize::from(counts.is_some());
                assert!((written..=written + more).contains(&tokens[row]), "day {day}: {tokens:?}");
            }
            let sum = |name| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
            let (drafted, accepted) = counts.map_or((0, 0), |all| (all.drafted, all.accepted));
            assert_eq!(sum("num_draft_tokens"), drafted as u64, "day {day}");
            assert_eq!(sum("num_accepted_tokens"), accepted as u64, "day {day}");
            assert!(counts.is_none() || accepted > 0);
            let paged = cache == Some(sizes);
            for line in &lines {
                assert_eq!(line.get("num_used_blocks").is_some(), paged, "day {day}: {line}");
                let used = paged.then(|| number(line, "num_used_blocks"));
                assert!(used.is_none_or(|used| used + number(line, "num_free_blocks") == 40));
            }
            let last = lines.last().unwrap();
            assert!(!paged || number(last, "num_used_blocks") == 0, "day {day}: {last}");
        }
    }
}

/// Day 23's example: a budget of 6, and prompts of 9 and 2 tokens.
#[test]
fn a_table_worked_by_hand() {
    let mut engine = Engine::open("story-230k").unwrap();
    engine.cache = Some(CacheConfig::Paged { block_size: 4, num_blocks: 8 });
    let prompts = [(300..309).collect(), vec![310, 311]];
    let (_, _, lines) = run("23", &engine, &prompts, 2, Some(TraceFormat::Table));
    let table = "
step  tokens  used  cached  free  requests: computed/tokens +scheduled
   1       6     2       1     6  prompt 0 0/9 +6
   2       5     4       2     4  prompt 0 6/9 +3, 1 0/2 +2
   3       2     0       2     8  decode 0 9/10, 1 2/3";
    assert_eq!(lines.join("\n"), table.trim_start());
}

/// Drives a scheduler as the server does, in a pool that is too small for three requests, one of
/// which is canceled.
#[test]
fn preempted_and_canceled_requests_are_followed() {
    let engine = Engine::open("story-230k").unwrap();
    let lines = RefCell::new(Vec::new());
    let write = |line: &str| lines.borrow_mut().push(serde_json::from_str(line).unwrap());
    let trace = Trace::new(engine.model(), TraceFormat::Json, false, write);
    let cache = PagedCache::new(engine.model().config().num_hidden_layers, 5, 4).unwrap();
    let prefixes = Some(PrefixCache::new());
    let scheduler =
        TokenScheduler::new(&trace, engine.tokenizer(), cache, prefixes, LIMITS).unwrap();
    let mut scheduler = TracedScheduler { scheduler, trace: &trace };
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| vec![300 + i, 7, 8, 9]).collect();
    for (id, prompt) in prompts.iter().enumerate() {
        let mut request = Request::new(engine.model().config(), prompt, 9, argmax);
        request.id = id;
        request.eos_token_ids.clear();
        scheduler.submit(request).unwrap();
    }
    scheduler.cancel(3);
    while scheduler.load().rows() > 0 {
        scheduler.step().unwrap();
    }
    let preemptions = scheduler.cache_load().preemptions;
    assert!(preemptions > 1, "{preemptions}");
    let (tokens, seen) = follow(&lines.borrow(), &prompts, true, 4);
    assert_eq!((tokens, seen), (vec![13, 13, 13, 4], preemptions));
    assert!(lines.borrow().iter().any(|line: &Value| number(line, "num_free_blocks") == 0));
}
