//! Compiles schemas and grammars for an embedded model's vocabulary and follows texts through them,
//! with random logits in place of a model's.

use candecode::kit::error::describe;
use candecode::kit::{LogitsProcessor, ProcessorInput, Tokenizer};
use candecode_structured::{Compiler, Constraint};
use candecode_testing::{story, Random};
use serde_json::{json, Value};
use std::rc::Rc;
use std::time::{Duration, Instant};

const EOS: u32 = 0;

fn tokenizer() -> Tokenizer {
    let json = std::fs::read(story("story-230k").join("tokenizer.json")).unwrap();
    Tokenizer::from_bytes(&json).unwrap()
}

fn compiler(tokenizer: &Tokenizer) -> Compiler {
    Compiler::new(tokenizer, tokenizer.vocab_size()).unwrap()
}

/// Returns the logits that a rule leaves after these generated tokens. None if it is too complex.
fn tried(rule: &Rc<dyn LogitsProcessor>, tokens: &[u32], vocab: usize) -> Option<Vec<f32>> {
    let mut logits = vec![0.0; vocab];
    let input = ProcessorInput { tokens, prompt_len: 0, remaining: 9, eos: &[EOS] };
    rule.process(&input, &mut logits).ok().map(|()| logits)
}

fn left(rule: &Rc<dyn LogitsProcessor>, tokens: &[u32], vocab: usize) -> Vec<f32> {
    tried(rule, tokens, vocab).unwrap()
}

fn allowed(logits: &[f32]) -> Vec<u32> {
    (0..).zip(logits).filter(|(_, x)| **x > f32::NEG_INFINITY).map(|(id, _)| id).collect()
}

/// Returns up to `most` random tokens that `rule` allows one after the other, EOS included.
fn random_text(rule: &Rc<dyn LogitsProcessor>, vocab: usize, most: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut tokens = Vec::new();
    while tokens.len() < most && tokens.last() != Some(&EOS) {
        let Some(logits) = tried(rule, &tokens, vocab) else { break };
        let ids = allowed(&logits);
        tokens.push(ids[random.below(ids.len())]);
    }
    tokens
}

/// A list of people, whose schema refers to itself.
fn people() -> Constraint {
    Constraint::JsonSchema(json!({
        "type": "object", "properties": {
            "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        },
        "required": ["name", "age"], "additionalProperties": false,
    }))
}

#[test]
fn a_complete_text_is_what_the_constraint_describes() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let in_a_tag = |schema: Value| {
        Constraint::Grammar(format!("start: \"<call>\" call \"</call>\"\ncall: %json {schema}"))
    };
    let mut complete = 0;
    for (constraint, is_right) in [
        (
            people(),
            (|text: &str| {
                let value: Value = serde_json::from_str(text).unwrap();
                value["age"].as_u64().is_some_and(|age| age < 100) && value["name"].is_string()
            }) as fn(&str) -> bool,
        ),
        (Constraint::json_object(), |text| text.starts_with('{')),
        (Constraint::Grammar("start: \"yes\" | \"no\"".into()), |text| {
            text == "yes" || text == "no"
        }),
        (in_a_tag(json!({"enum": [1, 2]})), |text| {
            ["<call>1</call>", "<call>2</call>"].contains(&text)
        }),
        (Constraint::Grammar("start: \"(\" start \")\" | \"x\"".into()), |text| {
            text.len() % 2 == 1 && text.trim_matches(['(', ')']) == "x"
        }),
    ] {
        let format = compiler.compile(&constraint).unwrap();
        for seed in 0..20 {
            let rule = format.processor();
            let ids = random_text(&rule, tokenizer.vocab_size(), 400, seed);
            if let Some((&EOS, ids)) = ids.split_last() {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
                let text = String::from_utf8(bytes).unwrap();
                assert!(is_right(&text), "{}: {text:?}", format.name());
                complete += 1;
            }
        }
    }
    assert!(complete > 70, "{complete}");
}

/// Drafts are dropped, and rows of a batch take turns: the order of the questions makes no
/// difference to the answers.
#[test]
fn a_text_can_lose_tokens_and_others_can_come_between() {
    let tokenizer = tokenizer();
    let vocab = tokenizer.vocab_size();
    let format = compiler(&tokenizer).compile(&people()).unwrap();
    let texts: Vec<Vec<u32>> =
        (0..20).map(|seed| random_text(&format.processor(), vocab, 60, seed)).collect();
    let shared = format.processor();
    let mut random = Random::new(5);
    for _ in 0..600 {
        let text = &texts[random.below(texts.len())];
        let tokens = &text[..random.below(text.len())];
        let fresh = left(&format.processor(), tokens, vocab);
        assert_eq!(left(&shared, tokens, vocab), fresh, "{tokens:?}");
    }
}

#[test]
fn a_text_that_broke_the_format_has_no_next_token() {
    let tokenizer = tokenizer();
    let vocab = tokenizer.vocab_size();
    let rule = compiler(&tokenizer).compile(&people()).unwrap().processor();
    assert!(allowed(&left(&rule, &[200, 201], vocab)).is_empty());
    assert!(!allowed(&left(&rule, &[], vocab)).is_empty(), "other texts go on");
}

/// White space is bounded: with nothing but white space to choose, a text comes to an end of it.
#[test]
fn white_space_is_bounded() {
    let tokenizer = tokenizer();
    let vocab = tokenizer.vocab_size();
    let is_white = |id: &u32| {
        let bytes = tokenizer.token_bytes(*id);
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace)
    };
    let numbers = Constraint::JsonSchema(json!({
        "type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
        "required": ["list"], "additionalProperties": false,
    }));
    for constraint in [people(), numbers] {
        let rule = compiler(&tokenizer).compile(&constraint).unwrap().processor();
        let mut tokens: Vec<u32> = Vec::new();
        let mut run = 0;
        while tokens.len() < 300 && tokens.last() != Some(&EOS) {
            let ids = allowed(&left(&rule, &tokens, vocab));
            let white = ids.iter().copied().find(is_white);
            run = if white.is_some() { run + 1 } else { 0 };
            assert!(run <= 17, "{}", rule.name());
            tokens.push(white.unwrap_or(ids[0]));
        }
    }
}

/// What no text can follow, or cannot be compiled, is refused at once, with the reason.
#[test]
fn impossible_constraints_are_refused() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let schema = Constraint::JsonSchema;
    let grammar = |text: &str| Constraint::Grammar(text.to_string());
    let loop_of_two = json!({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}});
    let endless = |of: Value| json!({"type": "object", "properties": {"a": of}, "required": ["a"]});
    let both = json!([{"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"$ref": "#"}]);
    let long = "x".repeat(1 << 20);
    for (constraint, reason) in [
        (schema(json!([1])), "is an object"),
        (schema(json!("{")), "is an object"),
        (schema(json!({"type": "number of apples"})), "number of apples"),
        (schema(json!(false)), "allows nothing"),
        (schema(json!({"enum": []})), "empty"),
        (schema(json!({"anyOf": []})), "empty"),
        (schema(json!({"type": "integer", "minimum": 5, "maximum": 4})), "minimum"),
        (schema(json!({"type": "string", "minLength": 2, "maxLength": 1})), "minLength"),
        (schema(json!({"$ref": "#"})), "without end"),
        (schema(json!({"$ref": "#/$defs/a", "$defs": loop_of_two})), "without end"),
        (schema(endless(json!({"$ref": "#"}))), "without end"),
        (schema(endless(json!({"anyOf": both}))), "without end"),
        (schema(json!({"$ref": "#/$defs/a"})), "$defs"),
        (schema(json!({"$ref": "https://example.com/schema.json"})), "https://example.com"),
        (schema(json!({"type": "string", "pattern": "("})), "unclosed group"),
        (schema(json!({"not": {"type": "string"}})), "not"),
        (schema(json!({"type": "integer", "multipleOf": 99_999_999})), "multipleOf"),
        (schema(json!({"anyOf": [{"multipleOf": 101}, {"multipleOf": 103}]})), "multipleOf"),
        (schema(json!({"type": "number", "multipleOf": 0.000_000_1})), "multipleOf"),
        (grammar("start: %json {\"type\": \"integer\", \"multipleOf\": 99999999}"), "multipleOf"),
        (schema(json!({"const": long})), "at most"),
        (schema(json!({"type": "string", "pattern": "a?".repeat(9000)})), "at most"),
        (grammar(&format!("start: /{}/", "a?".repeat(9000))), "at most"),
        (grammar(&format!("start: \"{long}\"")), "at most"),
        (grammar("begin with a letter"), "begin"),
        (grammar(""), "no start"),
        (grammar("first: \"a\""), "no start"),
        (grammar("start: something"), "something"),
        (grammar("start: start"), "allows nothing"),
    ] {
        let begun = Instant::now();
        let refused = compiler.compile(&constraint).map(|_| constraint);
        let message = describe(&refused.unwrap_err());
        assert!(message.contains(reason), "{message}");
        assert!(message.len() < 700, "{message}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{message}");
    }
    for refers_to_itself in [
        json!({"anyOf": [endless(json!({"$ref": "#"})), {"type": "null"}]}),
        json!({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "number", "multipleOf": 0.25}]}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"const": 1}}}),
    ] {
        compiler.compile(&schema(refers_to_itself)).unwrap();
    }
}

/// The largest constraints that are taken are compiled, or refused, in bounded time and on a small
/// stack, and so is each mask.
#[test]
fn large_constraints_take_a_bounded_time() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let of = |n: usize, one: &dyn Fn(usize) -> Value| (0..n).map(one).collect::<Vec<Value>>();
    let object = |n: usize| json!({"type": "object", "properties": {format!("k{n}"): {}}});
    let mut chain = serde_json::Map::new();
    for n in 0..2000 {
        chain.insert(format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}));
    }
    chain.insert("d2000".into(), json!({"type": "integer"}));
    let mut deep = json!({"type": "integer"});
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep, "minItems": 1});
    }
    let schemas = [
        json!({"enum": of(9000, &|n| json!(format!("n{n}")))}),
        json!({"anyOf": of(2500, &object)}),
        json!({"allOf": of(2500, &object)}),
        json!({"$ref": "#/$defs/d0", "$defs": chain}),
        json!({"type": "string", "pattern": "^(a{1,1000}){1,1000}$"}),
        json!({"type": "string", "pattern": "^(.*a.{900}|.*b.{900}|x)*$"}),
        json!({"type": "string", "pattern": "a?".repeat(4000)}),
        json!({"type": "array", "minItems": 4_000_000_000_u64}),
        json!({"type": "string", "minLength": 4_000_000_000_u64}),
        json!({"type": "integer", "multipleOf": 9999}),
        deep,
    ];
    let rules = |name: &str| {
        let chain = (0..700).map(|n| format!("{name}{n}: {name}{}\n", n + 1)).collect::<String>();
        format!("start: {name}0\n{chain}{name}700: \"a\"")
    };
    let grammars = [
        format!("start: {}\"a\"{}", "(".repeat(4000), ")".repeat(4000)),
        rules("r"),
        rules("R"),
        format!("start: {}\na: \"b\" | a", "a ".repeat(4000)),
        format!("start: /{}/", "a?".repeat(4000)),
        format!("start: /{}a/", "a|".repeat(4000)),
        format!("start: \"a\"{}", " | \"a\"".repeat(1000)),
        "start: R\nR: /(.*a.{20})/ & /(.*b.{20})/ & ~/(.*c.{20})/".to_string(),
    ];
    let all = schemas.map(Constraint::JsonSchema).into_iter();
    for constraint in all.chain(grammars.map(Constraint::Grammar)) {
        let begun = Instant::now();
        if let Ok(format) = compiler.compile(&constraint) {
            random_text(&format.processor(), tokenizer.vocab_size(), 60, 1);
        }
        let name: String = format!("{constraint:?}").chars().take(80).collect();
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}: {:?}", begun.elapsed());
    }
}
