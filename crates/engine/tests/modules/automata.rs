//! Tests of the guard rails' automata, which can be compiled on any thread.

use crate::common::tokenizer;
use candecode::kit::{Prepared, ProcessorInput, SamplingParams};
use candecode_engine::requests::{self, Automata};
use candecode_formats::ModelFiles;
use candecode_testing::story;
use std::sync::Arc;
use std::thread;

fn regex(pattern: &str) -> SamplingParams {
    SamplingParams { allow_regex: Some(pattern.into()), ..Default::default() }
}

#[test]
fn an_automaton_compiled_on_another_thread_works_here() {
    let params = regex("yes|no");
    let automata =
        thread::scope(|scope| scope.spawn(|| Automata::compile(&params)).join().unwrap()).unwrap();
    let prepared = Prepared::new(Arc::new(automata));
    let files = ModelFiles::at(&story("story-230k")).unwrap();
    let (tokenizer, config) = (tokenizer().unwrap(), files.config());
    let carried = SamplingParams { prepared: prepared.clone(), ..params.clone() };
    let used = Automata::of(&carried).unwrap();
    assert!(Arc::ptr_eq(&used, &prepared.get().unwrap()), "not compiled again");
    let rails = requests::processors(&carried, &tokenizer, config);
    let compiled_here = requests::processors(&params, &tokenizer, config).unwrap();
    let input = ProcessorInput { tokens: &[5], prompt_len: 1, remaining: 9, eos: &[0] };
    let [mut there, mut here] = [(); 2].map(|()| vec![1.0; config.vocab_size]);
    rails.unwrap().iter().for_each(|rail| rail.process(&input, &mut there).unwrap());
    compiled_here.iter().for_each(|rail| rail.process(&input, &mut here).unwrap());
    assert_eq!(there, here);
    assert!(there.contains(&1.0) && there.contains(&f32::NEG_INFINITY));
}
