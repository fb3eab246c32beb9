//! Tests of n-gram tables: the counts, the file, and drafting.

use crate::common::tokenizer;
use candecode::kit::draft::Drafter as _;
use candecode::kit::{ProcessorInput, Tokenizer};
use candecode_engine::ngram_table::{texts, NgramTable, TableDrafter};
use candecode_testing::{refused, story};

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

#[test]
fn a_draft_has_n_tokens_unless_the_table_has_no_match() {
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
