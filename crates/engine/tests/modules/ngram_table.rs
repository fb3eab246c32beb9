//! Tests of n-gram tables: the counts, the file, and drafting.

use crate::common::{model, tokenizer};
use candecode::day08_sampling::softmax;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day13_speculative::{decode_block, SpeculativeDecoder};
use candecode::kit::rng::RequestRng;
use candecode::kit::{
    Cache, Model, ModelConfig, NoCache, ProcessorInput, Request, Step, Tokenizer,
};
use candecode_engine::ngram_table::{texts, NgramTable, TableDrafter};
use candecode_testing::{least_config, refused, story};
use candle_core::{Device, Result, Tensor};

const CORPUS: &str = "Tom ran. Tom ran. Tom ran. Tom sat.<|endoftext|>A cat sat.\n<|endoftext|> \n";

fn table(corpus: &str) -> NgramTable {
    NgramTable::count(&texts(corpus, false).unwrap(), &tokenizer().unwrap()).unwrap()
}

#[test]
fn next_is_the_top_continuation_of_the_longest_known_context() {
    let tokenizer = tokenizer().unwrap();
    let ids = |text: &str| tokenizer.encode(text).unwrap();
    let found = table(CORPUS);
    let line = ids("Tom ran. Tom ran. Tom");
    for end in 3..line.len() {
        assert_eq!(found.next(&line[..end]), Some(line[end]), "{:?}", &line[..end]);
        // A context missing from the corpus falls back to its shorter suffix.
        let other = [&[1999], &line[end - 1..end]].concat();
        assert_eq!(found.next(&other), found.next(&line[end - 1..end]));
    }
    assert_eq!(found.next(&[]), None);
    assert_eq!(found.next(&[1999]), None);
    // "sat" occurs twice, which is too rare. Three occurrences spread over several texts don't form
    // an n-gram.
    let apart = texts("Tom<|endoftext|> Tom<|endoftext|> Tom<|endoftext|>", false).unwrap();
    assert_eq!(apart.len(), 3);
    refused(NgramTable::count(&apart, &tokenizer), &["no token occurs 3 times"]);
}

#[test]
fn jsonl_lines_need_a_text_field() {
    assert_eq!(texts("{\"text\":\"a\",\"x\":1}\n\n{\"text\":\"b\"}\n", true).unwrap(), ["a", "b"]);
    refused(texts("{\"text\":\"a\"}\n{\"txt\":\"b\"}", true), &["line 2 is not JSON"]);
    for (corpus, lines) in [("", false), (" \n<|endoftext|>\n", false), ("{\"text\":\" \"}", true)]
    {
        refused(texts(corpus, lines), &["the corpus has no text"]);
    }
    refused(texts(&"a ".repeat(9 << 20), false), &["larger than 16 MiB"]);
}

#[test]
fn a_saved_table_loads_and_invalid_files_are_refused() {
    let own = tokenizer().unwrap();
    let found = table(CORPUS);
    let json = found.to_json(&own).unwrap();
    assert_eq!(NgramTable::from_json(&json, &own).unwrap(), found);

    let file = story("story-230k").join("tokenizer.json");
    let mut other: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let vocab = other["model"]["vocab"].as_object_mut().unwrap();
    let piece = |id: u64| vocab.iter().find(|(_, v)| **v == id).unwrap().0.clone();
    let (a, b) = (piece(1000), piece(1001));
    vocab[&a] = 1001.into();
    vocab[&b] = 1000.into();
    let other = Tokenizer::from_bytes(other.to_string().as_bytes()).unwrap();
    refused(NgramTable::from_json(&json, &other), &["different tokenizer"]);

    for cut in 0..json.len() - 1 {
        refused(NgramTable::from_json(&json[..cut], &own), &["not a table of n-grams, or damaged"]);
    }
    let version = json.replace("version 1", "version 2");
    refused(NgramTable::from_json(&version, &own), &["the format is not"]);
    for row in ["[]", "[1]", "[1,2,3,4,5]", "[1,99999]", "[99999,1]"] {
        let damaged = json.replace("\"rows\":[", &format!("\"rows\":[{row},"));
        refused(NgramTable::from_json(&damaged, &own), &["row 1 is damaged"]);
    }
    for row in ["[-1,2]", "[1.5,2]", "[\"a\",2]", "7", "null"] {
        let damaged = json.replace("\"rows\":[", &format!("\"rows\":[{row},"));
        refused(NgramTable::from_json(&damaged, &own), &["or damaged"]);
    }
    let huge = json.replace("\"rows\":[", &format!("\"rows\":[{}", "[1,2],".repeat(1 << 20)));
    refused(NgramTable::from_json(&huge, &own), &["the maximum is 1048576"]);
}

/// Generates after `prompt` with a table that drafts `k` tokens at a time. Returns the new ids, and
/// the number of accepted drafts.
fn speculated(
    model: &dyn Model,
    table: &NgramTable,
    prompt: &[u32],
    k: usize,
) -> (Vec<u32>, usize) {
    let tokenizer = tokenizer().unwrap();
    let request = Request::new(model.config(), prompt, 60, |_| Ok(0));
    let drafter = Box::new(TableDrafter { table, vocab_size: model.config().vocab_size });
    let mut decoder =
        SpeculativeDecoder::new(cached(model), &tokenizer, request, drafter, k).unwrap();
    let mut ids = Vec::new();
    while decoder.sequence.finish.is_none() {
        ids.extend(decode_block(&mut decoder).unwrap().iter().map(|token| token.id));
    }
    (ids, decoder.counts.accepted)
}

fn cached(model: &dyn Model) -> Cached<'_> {
    let layers = model.config().num_hidden_layers;
    Cached::new(model, Box::new(DynamicCache::new(layers)))
}

#[test]
fn greedy_speculation_equals_the_target_alone() {
    let tokenizer = tokenizer().unwrap();
    let good = table(
        &"Once upon a time, there was a little girl named Lily. She was very happy. ".repeat(4),
    );
    let bad = table(&"was was was , , , a a a the the the Lily Lily Lily ".repeat(4));
    for name in ["story-3m", "story-gpt2-1m"] {
        let model = model(name).unwrap();
        let model = &*model;
        let mut guessed = 0;
        for prompt in ["Once upon a time", "Lily and her dog"] {
            let prompt = tokenizer.encode(prompt).unwrap();
            let request = Request::new(model.config(), &prompt, 60, |logits| {
                candecode::day07_greedy::argmax(logits)
            });
            let plain: Vec<u32> = generate_cached(cached(model), &tokenizer, request)
                .unwrap()
                .map(|token| token.unwrap().id)
                .collect();
            for k in [1, 2, 4, 8] {
                let (ids, accepted) = speculated(model, &good, &prompt, k);
                assert_eq!(ids, plain, "{name}, K = {k}");
                guessed += accepted;
                assert_eq!(speculated(model, &bad, &prompt, k).0, plain, "{name}, K = {k}");
            }
        }
        assert!(guessed > 0, "{name}: the table guesses nothing");
    }
}

/// A model of four tokens whose logits depend on the last token alone.
struct LastToken(ModelConfig, fn(u32) -> [f32; 4]);

impl Model for LastToken {
    fn config(&self) -> &ModelConfig {
        &self.0
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, step: &Step, _cache: &mut dyn Cache) -> Result<Tensor> {
        let rows = step.ids.to_vec2::<u32>()?;
        let logits: Vec<f32> = rows.concat().into_iter().flat_map(self.1).collect();
        step.chosen(&Tensor::from_vec(logits, (rows.len(), rows[0].len(), 4), &Device::Cpu)?)
    }
}

#[test]
fn sampled_tokens_keep_the_targets_distribution() {
    let tokenizer = tokenizer().unwrap();
    // Token 1 is drafted after token 1, and then again. The target has its own distribution.
    let json = format!(
        "{{\"format\":\"candecode n-grams, version \
            1\",\"tokenizer\":\"{:016x}\",\"rows\":[[1,1],[2,3]]}}",
        tokenizer.fingerprint()
    );
    let table = NgramTable::from_json(&json, &tokenizer).unwrap();
    let logits: fn(u32) -> [f32; 4] =
        |last| [f32::NEG_INFINITY, 0.3 * last as f32, 1.0 - 0.4 * last as f32, 0.2];
    let config = ModelConfig::from_json(&least_config("llama").to_string()).unwrap();
    let config = ModelConfig { vocab_size: 4, ..config };
    let mut seen = [0.0; 9];
    let draws = 4000;
    for draw in 0..draws {
        let target = LastToken(config.clone(), logits);
        let mut request = Request::new(target.config(), &[1], 2, |_| Ok(0));
        request.eos_token_ids.clear();
        let drafter = Box::new(TableDrafter { table: &table, vocab_size: 4 });
        let target = Cached::new(&target, Box::new(NoCache));
        let mut decoder = SpeculativeDecoder::new(target, &tokenizer, request, drafter, 3).unwrap();
        decoder.rng = Some(RequestRng::new(13, draw));
        let mut ids = Vec::new();
        while decoder.sequence.finish.is_none() {
            ids.extend(decode_block(&mut decoder).unwrap().iter().map(|token| token.id as usize));
        }
        seen[3 * (ids[0] - 1) + ids[1] - 1] += 1.0;
    }
    let after = |last: usize| softmax(&logits(last as u32)).unwrap();
    let chi_square: f64 = (0..9)
        .map(|i| {
            let (a, b) = (i / 3 + 1, i % 3 + 1);
            let want = f64::from(after(1)[a] * after(a)[b]) * draws as f64;
            (seen[i] - want).powi(2) / want
        })
        .sum();
    // With 8 degrees of freedom, 42.7 is exceeded once in a million runs. The draws are seeded, so
    // the result is stable.
    assert!(chi_square < 42.7, "{chi_square}: {seen:?}");
}

#[test]
fn a_draft_has_n_tokens_unless_the_table_has_no_match() {
    use candecode::kit::draft::Drafter as _;
    let tokenizer = tokenizer().unwrap();
    let table = table(CORPUS);
    let mut drafter = TableDrafter { table: &table, vocab_size: 2048 };
    let tokens = tokenizer.encode("Tom ran. Tom").unwrap();
    let mut lengths = |tokens: &[u32], n: usize| {
        let input = ProcessorInput { tokens, prompt_len: 1, remaining: 9, eos: &[] };
        let draft = drafter.draft(&input, n, &vec![0.5; n]).unwrap();
        assert_eq!(draft.tokens.len(), draft.probs.len());
        for (id, q) in draft.tokens.iter().zip(&draft.probs) {
            assert_eq!((q[*id as usize], q.iter().sum::<f32>(), q.len()), (1.0, 1.0, 2048));
        }
        draft.tokens.len()
    };
    assert_eq!((lengths(&tokens, 0), lengths(&tokens, 1), lengths(&tokens, 4)), (0, 1, 4));
    assert_eq!((lengths(&[1999], 4), lengths(&[], 4)), (0, 0));
}
