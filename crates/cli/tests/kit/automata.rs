//! Tests of the guard rails' automata, which can be compiled on any thread and are cached.

use crate::checks::tokenizer;
use crate::{refused, story};
use candecode::kit::{ProcessorInput, SamplingParams};
use candecode_engine::requests::{self, Automata, AutomataMemo};
use candecode_formats::ModelFiles;
use std::thread;

fn regex(pattern: &str) -> SamplingParams {
    SamplingParams { allow_regex: Some(pattern.into()), ..Default::default() }
}

#[test]
fn an_automaton_compiled_on_another_thread_works_here() {
    let memo = AutomataMemo::default();
    let params = regex("yes|no");
    let automata = thread::scope(|scope| scope.spawn(|| memo.get(&params)).join().unwrap());
    let files = ModelFiles::at(&story("story-230k")).unwrap();
    let (tokenizer, config) = (tokenizer().unwrap(), files.config());
    let rails = requests::processors_with(&params, &automata.unwrap(), &tokenizer, config);
    let compiled_here = requests::processors(&params, &tokenizer, config).unwrap();
    let input = ProcessorInput { tokens: &[5], prompt_len: 1, remaining: 9, eos: &[0] };
    let [mut there, mut here] = [(); 2].map(|()| vec![1.0; config.vocab_size]);
    rails.unwrap().iter().for_each(|rail| rail.process(&input, &mut there).unwrap());
    compiled_here.iter().for_each(|rail| rail.process(&input, &mut here).unwrap());
    assert_eq!(there, here);
    assert!(there.contains(&1.0) && there.contains(&f32::NEG_INFINITY));
}

#[test]
fn the_memo_remembers_accepted_and_refused_patterns() {
    let memo = AutomataMemo::default();
    assert_eq!(memo.get(&SamplingParams::default()).unwrap().memory_usage(), 0);
    assert!(memo.is_empty(), "without rails there is nothing to remember");
    assert!(memo.known(&regex("[ab]+")).is_none() && memo.known(&regex("(a")).is_none());
    assert!(memo.known(&SamplingParams::default()).is_some(), "there is nothing to compile");
    for _ in 0..3 {
        assert!(memo.get(&regex("[ab]+")).unwrap().memory_usage() > 0);
        refused(memo.get(&regex(r"\w{99999}")), &["invalid pattern", "too large"]);
        refused(memo.get(&regex("(a")), &["unclosed group"]);
    }
    assert!(memo.known(&regex("[ab]+")).unwrap().unwrap().memory_usage() > 0);
    refused(memo.known(&regex("(a")).unwrap(), &["unclosed group"]);
    assert_eq!(memo.len(), 3);
    // Stop strings only affect a block list of whole words. A seed never matters.
    let mut words = SamplingParams { block: vec!["dog".into()], ..Default::default() };
    for (whole, stop, entries) in [(false, "x", 4), (false, "y", 4), (true, "x", 5), (true, "y", 6)]
    {
        words.block_whole_words = whole;
        words.stop = vec![stop.into()];
        words.seed += 1;
        memo.get(&words).unwrap();
        assert_eq!(memo.len(), entries, "{whole} {stop}");
    }
}

#[test]
fn the_automata_memo_has_a_memory_limit() {
    let memo = AutomataMemo::default();
    let large = |n: usize| regex(&format!("{}.{{5000}}", "a".repeat(n)));
    let one = Automata::compile(&large(1)).unwrap().memory_usage();
    assert!(one > 1 << 21, "{one}");
    for n in 0..2 * AutomataMemo::MOST_BYTES / one {
        memo.get(&large(n)).unwrap();
        assert!(memo.memory_usage() <= AutomataMemo::MOST_BYTES);
    }
    assert!(memo.len() > 1);
}
