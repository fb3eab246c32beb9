//! The book's paper model, `models/paper`, which is small enough to compute by hand. Everything the
//! book prints about it is computed here with the days' own functions and compared. `cargo xtask book
//! --refresh` rewrites the pages.

use candecode::day00_warm_up::{embed, logits};
use candecode::day01_attention::{causal_mask, scaled_dot_product_attention, softmax, split_heads};
use candecode::day02_positions::{rotate, RotaryEmbedding};
use candecode::day03_norms_and_mlps::{rms_norm, silu};
use candecode::day06_generate::next_logits;
use candecode::day07_greedy::{argmax, log_softmax};
use candecode::day08_sampling::{self as sampling, sample};
use candecode::day09_penalties::repetition_penalty;
use candecode::day10_kv_cache::{cache_bytes, Cached, DynamicCache};
use candecode::day11_beam_search::{candidates, Beam};
use candecode::day12_batching::{left_pad, ragged_mask};
use candecode::day13_speculative::{overlap, residual};
use candecode::kit::weights::Weights;
use candecode::kit::{Model, SamplingParams, Step, View};
use candecode_engine::Engine;
use candecode_formats::ModelFiles;
use candecode_testing::root;
use candle_core::{DType, Device, Result, Tensor};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WORDS: [&str; 5] = ["the", "cat", "and", "dog", "."];
/// The sentence that the model writes after "the".
const TEXT: [u32; 6] = [0, 1, 2, 0, 3, 4];

struct Paper {
    engine: Engine,
    weights: Weights,
}

impl Paper {
    fn new() -> Self {
        let files = ModelFiles::open("paper").unwrap();
        let weights = files.weights(DType::F32, &Device::Cpu).unwrap();
        Self { engine: Engine::open("paper").unwrap(), weights }
    }

    fn table(&self) -> Tensor {
        self.weights.tensor("model.embed_tokens.weight", &[5, 4]).unwrap()
    }

    /// Returns a layer's matrix by the last part of its name.
    fn matrix(&self, layer: usize, name: &str) -> Tensor {
        let (out, inner) = match name {
            "self_attn.q_proj" | "self_attn.o_proj" => (4, 4),
            "self_attn.k_proj" | "self_attn.v_proj" => (2, 4),
            "mlp.down_proj" => (4, 1),
            _ => (1, 4),
        };
        let name = format!("model.layers.{layer}.{name}.weight");
        self.weights.tensor(&name, &[out, inner]).unwrap()
    }

    /// Multiplies each row by a matrix of the first layer.
    fn product(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        x.broadcast_matmul(&self.matrix(0, name).t()?)
    }

    /// Returns the logits after the last of these tokens.
    fn logits(&self, ids: &[u32]) -> Vec<f32> {
        next_logits(self.engine.model(), ids).unwrap()
    }
}

fn ids(words: &[u32]) -> Tensor {
    Tensor::new(words, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

fn norm(x: &Tensor) -> Result<Tensor> {
    rms_norm(x, &Tensor::ones(4, DType::F32, &Device::Cpu)?, 1e-5)
}

/// Formats a number with two decimals, or none if it is an integer.
fn number(x: f32) -> String {
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let text = format!("{x:.2}");
    let text = text.strip_suffix(".00").unwrap_or(&text);
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

fn row(values: &[f32]) -> String {
    let cells: Vec<String> = values.iter().map(|x| format!("{:>6}", number(*x))).collect();
    cells.concat()
}

/// Formats the rows of a tensor along its last dimension, each with a label.
fn rows(labels: &[&str], x: &Tensor) -> String {
    let width = x.dims().last().copied().unwrap_or(1);
    let flat: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
    let mut out = String::new();
    for (label, values) in labels.iter().zip(flat.chunks(width)) {
        let _ = writeln!(out, "{label:<14}{}", row(values));
    }
    out
}

/// Formats one row with a score or a share for each of the five words.
fn for_words(label: &str, values: &[f32]) -> String {
    format!("{label:<14}{}\n", row(values))
}

fn head(label: &str, words: &[&str]) -> String {
    let cells: Vec<String> = words.iter().map(|word| format!("{word:>6}")).collect();
    format!("{label:<14}{}\n", cells.concat())
}

/// Returns everything the book prints about the model, by name.
fn printed(paper: &Paper) -> Result<BTreeMap<&'static str, String>> {
    let mut all = BTreeMap::new();
    let model = paper.engine.model();
    let table = paper.table();
    all.insert("embedding", rows(&WORDS, &table));
    for (layer, name) in [(0, "layer0"), (1, "layer1")] {
        let mut text = String::new();
        for matrix in ["q", "k", "v", "o"] {
            let full = format!("self_attn.{matrix}_proj");
            let labels = [full.trim_start_matches("self_attn."), "", "", ""];
            text += &rows(&labels, &paper.matrix(layer, &full));
        }
        for matrix in ["gate", "up"] {
            text += &rows(
                &[&format!("{matrix}_proj")],
                &paper.matrix(layer, &format!("mlp.{matrix}_proj")),
            );
        }
        let down = paper.matrix(layer, "mlp.down_proj");
        text += &rows(&["down_proj", "", "", ""], &down);
        all.insert(name, text);
    }

    // Day 0: the table as a lookup, and as a scorer.
    let the_cat = ids(&[0, 1]);
    let x = embed(&table, &the_cat)?;
    all.insert("day00_embed", rows(&["the", "cat"], &x));
    let bare = logits(&table, &x)?;
    all.insert("day00_score", head("", &WORDS) + &rows(&["after the", "after cat"], &bare));

    // Day 1: head 0's queries, keys and values before rotation, then scores, shares and the
    // weighted sum.
    let h = norm(&x)?;
    all.insert("day01_input", rows(&["the", "cat"], &h));
    let q = split_heads(&paper.product(&h, "self_attn.q_proj")?, 2)?; // (1, 2, 2, 2)
    let k = split_heads(&paper.product(&h, "self_attn.k_proj")?, 1)?;
    let v = split_heads(&paper.product(&h, "self_attn.v_proj")?, 1)?;
    let q0 = q.narrow(1, 0, 1)?;
    let mut text = rows(&["query of the", "query of cat"], &q0);
    text += &rows(&["key of the", "key of cat"], &k);
    text += &rows(&["value of the", "value of cat"], &v);
    all.insert("day01_qkv", text);
    let scores = (q0.contiguous()?.matmul(&k.contiguous()?.t()?)? / 2f64.sqrt())?;
    let mask = causal_mask(2, 0, &Device::Cpu)?;
    let hidden = Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?.broadcast_as(scores.shape())?;
    let masked = mask.broadcast_as(scores.shape())?.where_cond(&scores, &hidden)?;
    let shares = softmax(&masked, 3)?;
    let mix = scaled_dot_product_attention(&q0.contiguous()?, &k, &v, Some(&mask))?;
    let mut text =
        head("score of", &["the", "cat"]) + &rows(&["  the asks", "  cat asks"], &masked);
    text += &(head("share of", &["the", "cat"]) + &rows(&["  the takes", "  cat takes"], &shares));
    text += &rows(&["mix of the", "mix of cat"], &mix);
    all.insert("day01_mix", text);

    // Day 2: the same keys and queries, rotated by their positions.
    let rope = RotaryEmbedding::new(2, 10_000.0, None, &Device::Cpu)?;
    let turned = |x: &Tensor, positions: &[u32]| -> Result<Tensor> {
        let (cos, sin) = rope.cos_sin(&ids(positions))?;
        rotate(x, &cos, &sin)
    };
    let mut text = String::new();
    for positions in [[0, 1], [2, 3], [0, 3]] {
        let (q, k) = (turned(&q0, &positions)?, turned(&k, &positions)?);
        let (q, k) = (q.narrow(2, 1, 1)?, k.narrow(2, 0, 1)?);
        let dot = (q.contiguous()?.matmul(&k.contiguous()?.t()?)? / 2f64.sqrt())?;
        let [a, b] = positions;
        text += &rows(&[&format!("key at {a}")], &k);
        text += &rows(&[&format!("query at {b}")], &q);
        text += &rows(&["score"], &dot);
    }
    all.insert("day02_turned", text);

    // Day 3: the norm of one vector, and the first layer's MLP applied to it.
    let the = embed(&table, &ids(&[0]))?;
    let normed = norm(&the)?;
    let gate = paper.product(&normed, "mlp.gate_proj")?;
    let up = paper.product(&normed, "mlp.up_proj")?;
    let act = (silu(&gate)? * &up)?;
    let out = paper.product(&act, "mlp.down_proj")?;
    let mut text = rows(&["x", "norm(x)"], &Tensor::cat(&[&the, &normed], 1)?);
    for (label, one) in [
        ("gate", &gate),
        ("silu(gate)", &silu(&gate)?),
        ("up", &up),
        ("product", &act),
        ("down", &out),
    ] {
        text += &rows(&[label], one);
    }
    all.insert("day03_mlp", text);

    // Day 4: the first layer's attention at the last token of "the cat and the".
    let prompt = [0, 1, 2, 0];
    let x = embed(&table, &ids(&prompt))?;
    let h = norm(&x)?;
    let positions = [0, 1, 2, 3];
    let q = turned(&split_heads(&paper.product(&h, "self_attn.q_proj")?, 2)?, &positions)?;
    let k = turned(&split_heads(&paper.product(&h, "self_attn.k_proj")?, 1)?, &positions)?;
    let v = split_heads(&paper.product(&h, "self_attn.v_proj")?, 1)?;
    let words = ["the", "cat", "and", "the"];
    let labels = |what: &str| words.map(|word| format!("{what} of {word}"));
    let labeled = |what: &str, x: &Tensor| -> Result<String> {
        let labels = labels(what);
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        Ok(rows(&labels, &x.squeeze(1)?))
    };
    let mut text = labeled("key", &k)? + &labeled("value", &v)?;
    let mut outs = Vec::new();
    for head_number in 0..2 {
        let q = q.narrow(1, head_number, 1)?.narrow(2, 3, 1)?.contiguous()?;
        let scores = (q.matmul(&k.contiguous()?.t()?)? / 2f64.sqrt())?;
        let shares = softmax(&scores, 3)?;
        let mix = shares.matmul(&v.contiguous()?)?;
        text += &rows(&[&format!("query, head {head_number}")], &q);
        text += &rows(&["  scores"], &scores);
        text += &rows(&["  shares"], &shares);
        text += &rows(&["  mix"], &mix);
        outs.push(mix);
    }
    let both = Tensor::cat(&outs, 3)?.squeeze(1)?;
    let projected = paper.product(&both, "self_attn.o_proj")?;
    text += &rows(&["both heads"], &both);
    text += &rows(&["o_proj"], &projected);
    text += &rows(&["x + o_proj"], &(x.narrow(1, 3, 1)? + projected)?);
    all.insert("day04_heads", text);

    // Day 5: the residual stream through both layers, at the last token of "the cat and the".
    let step = Step::new(model, &prompt, 0)?;
    let mut stream = model.embed(&step)?;
    let cos_sin = match &model.rotary_emb {
        Some(rope) => Some(rope.cos_sin(&step.positions)?),
        None => None,
    };
    let mut cache = candecode::kit::NoCache;
    let mut text = rows(&["embedding"], &stream.narrow(1, 3, 1)?);
    for (number, layer) in model.layers.iter().enumerate() {
        stream = layer.forward(&stream, &step, cos_sin.as_ref(), &mut cache)?;
        text += &rows(&[&format!("after layer {number}")], &stream.narrow(1, 3, 1)?);
    }
    let last = stream.narrow(1, 3, 1)?;
    text += &rows(&["last norm"], &norm(&last)?);
    let logits = paper.logits(&prompt);
    text += &(head("", &WORDS) + &for_words("logits", &logits));
    text += &for_words("shares", &sampling::softmax(&logits)?);
    all.insert("day05_stream", text);

    // Days 6 and 7: the loop, the positions each pass computes, and how confident the model is.
    let mut text = format!("{:<24}{:>10}   {:<8}{}\n", "tokens", "positions", "best", "ln p");
    for len in 1..TEXT.len() {
        let logits = paper.logits(&TEXT[..len]);
        let best = argmax(&logits)?;
        assert_eq!(best, TEXT[len]);
        let said: Vec<&str> = TEXT[..len].iter().map(|id| WORDS[*id as usize]).collect();
        let sure = log_softmax(&logits)?[best as usize];
        let _ = writeln!(
            text,
            "{:<24}{len:>10}   {:<8}{sure:.2}",
            said.join(" "),
            WORDS[best as usize]
        );
    }
    all.insert("day06_loop", text);

    // Day 8: one distribution, filtered.
    let mut text = head("", &WORDS) + &for_words("logits", &logits);
    let mut shown = |label: &str, logits: &[f32]| -> Result<()> {
        text += &for_words(label, &sampling::softmax(logits)?);
        Ok(())
    };
    shown("p", &logits)?;
    let mut hot = logits.clone();
    sampling::temperature(&mut hot, 2.0)?;
    shown("p at T = 2", &hot)?;
    let mut filtered = hot.clone();
    sampling::top_k(&mut filtered, 3)?;
    shown("then top-k 3", &filtered)?;
    let mut filtered = hot.clone();
    sampling::top_p(&mut filtered, 0.6)?;
    shown("or top-p 0.6", &filtered)?;
    let probs = sampling::softmax(&hot)?;
    let mut sum = 0.0;
    let ends: Vec<f32> = probs
        .iter()
        .map(|p| {
            sum += p;
            sum
        })
        .collect();
    text += &(String::from("\n") + &head("", &WORDS) + &for_words("ends at", &ends));
    for u in [0.1, 0.3, 0.6] {
        let drawn = WORDS[sample(&probs, u)? as usize];
        let _ = writeln!(text, "u = {u} at T = 2: {drawn}");
    }
    all.insert("day08_filters", text);

    // Day 9: the repetition penalty on the same logits. "cat" hasn't appeared yet.
    let mut after = paper.logits(&[0, 3, 2, 0]);
    let mut text = head("", &WORDS) + &for_words("logits", &after);
    repetition_penalty(&mut after, &[0, 3, 2, 0], 1.5)?;
    text += &for_words("penalized", &after);
    all.insert("day09_penalty", text);
    let mut text = head("", &WORDS) + &for_words("after dog", &paper.logits(&[3]));
    text += &for_words("dog dog dog", &paper.logits(&[3, 3, 3]));
    all.insert("day09_loop", text);

    // Day 10: the contents of a cache after "the cat and", and the step for the next "the".
    let mut cached = Cached::new(model, Box::new(DynamicCache::new(2)));
    cached.logits(&prompt[..3], 1)?;
    let mut text = String::new();
    let mut cache = DynamicCache::new(2);
    model.forward(&Step::new(model, &prompt[..3], 0)?, &mut cache)?;
    for layer in 0..2 {
        let Some(View { k: keys, v: values, .. }) = cache.layers.held(layer)? else {
            unreachable!("the cache was just filled")
        };
        let _ = writeln!(text, "layer {layer}              key           value");
        let (keys, values): (Vec<Vec<f32>>, Vec<Vec<f32>>) =
            (keys.flatten_to(2)?.to_vec2()?, values.flatten_to(2)?.to_vec2()?);
        for (word, (key, value)) in words.iter().zip(keys.iter().zip(&values)) {
            let _ = writeln!(text, "  {word:<12}{}  {}", row(key), row(value));
        }
    }
    all.insert("day10_cache", text);
    let cold = cached.computed;
    let got = cached.logits(&prompt, 1)?;
    assert_eq!(cached.computed - cold, 1);
    assert_eq!(argmax(&got[0])?, 3);
    let bytes = cache_bytes(&model.config, 1, 1, DType::F32);
    all.insert(
        "day10_bytes",
        format!(
            "2 x 2 layers x 1 key/value head x 2 numbers x 4 bytes = {bytes} bytes per token\n"
        ),
    );

    // Day 11: two beams find what greedy misses.
    let prompt = [3, 1, 1];
    let mut text = String::new();
    let greedy = beam_steps(paper, &prompt, 1, 2)?;
    let said = |beam: &Beam| -> String {
        let words: Vec<&str> = beam.tokens.iter().map(|id| WORDS[*id as usize]).collect();
        format!("{:>6}  {}\n", number(beam.score), words.join(" "))
    };
    for (step, beams) in greedy.iter().enumerate() {
        text += &format!("greedy, step {}  {}", step + 1, said(&beams[0]));
    }
    let beams = beam_steps(paper, &prompt, 2, 2)?;
    for (step, beams) in beams.iter().enumerate() {
        for beam in beams {
            text += &format!("beams,  step {}  {}", step + 1, said(beam));
        }
    }
    assert!(beams[1][0].score > greedy[1][0].score);
    all.insert("day11_beams", text);

    // Day 12: two prompts in one batch.
    let padded = left_pad(&[&[0, 1, 2], &[0]]);
    let mut text = String::new();
    for (ids, positions) in padded.ids.iter().zip(&padded.positions) {
        let _ = writeln!(text, "ids {ids:?}  positions {positions:?}");
    }
    let mask = ragged_mask(&padded.padding, 3, 0, &Device::Cpu)?;
    for (number, of_row) in mask.squeeze(1)?.to_vec3::<u8>()?.iter().enumerate() {
        for (i, line) in of_row.iter().enumerate() {
            let _ = writeln!(text, "row {number}, token {i} sees {line:?}");
        }
    }
    all.insert("day12_padded", text);

    // Day 13: the draft model is the same model without its second layer.
    let golden: serde_json::Value = golden();
    let early = golden["after_one_layer"].as_array().unwrap();
    let early: Vec<f32> =
        early[3].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
    let (p, q) = (sampling::softmax(&logits)?, sampling::softmax(&early)?);
    let both: Vec<f32> = p.iter().zip(&q).map(|(p, q)| p.min(*q)).collect();
    let mut text = head("", &WORDS) + &for_words("p, target", &p) + &for_words("q, drafter", &q);
    let ratios: Vec<f32> = p.iter().zip(&q).map(|(p, q)| (p / q).min(1.0)).collect();
    text += &for_words("p / q, at most", &ratios);
    text += &for_words("min(p, q)", &both);
    text += &for_words("residual", &residual(&p, &q)?);
    let _ = writeln!(text, "accepted with probability {}", number(overlap(&p, &q)));
    all.insert("day13_pq", text);
    Ok(all)
}

/// Returns the beams after each of `steps` steps of a beam search in which no beam ends.
fn beam_steps(
    paper: &Paper,
    prompt: &[u32],
    num_beams: usize,
    steps: usize,
) -> Result<Vec<Vec<Beam>>> {
    let mut beams = vec![Beam { tokens: prompt.to_vec(), score: 0.0 }];
    let mut all = Vec::new();
    for _ in 0..steps {
        let log_probs: Vec<Vec<f32>> = beams
            .iter()
            .map(|beam| log_softmax(&paper.logits(&beam.tokens)))
            .collect::<Result<_>>()?;
        let mut next = Vec::new();
        for one in candidates(&beams, &log_probs, num_beams) {
            let mut tokens = beams[one.parent].tokens.clone();
            tokens.push(one.token);
            next.push(Beam { tokens, score: one.score });
        }
        all.push(next.clone());
        beams = next;
    }
    Ok(all)
}

fn golden() -> serde_json::Value {
    candecode_testing::golden_json("paper_model")
}

/// The oracle is written in NumPy and uses none of our code: `oracle/paper_model.py`.
#[test]
fn the_paper_models_logits_equal_numpys() {
    let paper = Paper::new();
    for (i, want) in golden()["logits"].as_array().unwrap().iter().enumerate() {
        let got = paper.logits(&TEXT[..=i]);
        for (got, want) in got.iter().zip(want.as_array().unwrap()) {
            let want = want.as_f64().unwrap() as f32;
            // f32 against f64, with numbers up to 5.
            assert!((got - want).abs() < 1e-5, "after {} tokens: {got}, not {want}", i + 1);
        }
    }
}

#[test]
fn it_writes_its_sentence() {
    let paper = Paper::new();
    let params = SamplingParams { max_new_tokens: 9, ..SamplingParams::default() };
    let tokens = paper.engine.generate("the", &params).unwrap();
    let ids: Vec<u32> = tokens.map(|token| token.unwrap().id).collect();
    assert_eq!(ids, TEXT[1..]);
}

#[test]
fn the_book_prints_the_computed_numbers() {
    let all = printed(&Paper::new()).unwrap();
    let refresh = std::env::var_os("CANDECODE_REFRESH").is_some();
    let mut used = Vec::new();
    let mut differ = Vec::new();
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(root().join("book/src")).unwrap() {
        let page = entry.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let shown = format!("book/src/{}", page.file_name().unwrap().to_string_lossy());
        let text = std::fs::read_to_string(&page).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        for at in (0..lines.len()).rev() {
            let name =
                lines[at].strip_prefix("<!-- paper: ").and_then(|rest| rest.strip_suffix(" -->"));
            let Some(name) = name.map(str::to_string) else { continue };
            let place = format!("{shown}:{}", at + 1);
            let want = all.get(name.as_str());
            let want = want.unwrap_or_else(|| panic!("{place}: nothing is computed for {name}"));
            assert_eq!(lines[at + 1], "```text", "{place}: a block of text must follow");
            let end = (at + 2..lines.len()).find(|i| lines[*i] == "```").unwrap();
            let want: Vec<String> = want.lines().map(|line| line.trim_end().to_string()).collect();
            if lines[at + 2..end] != want {
                differ.push(format!("{place}: the code computes\n{}", want.join("\n")));
                lines.splice(at + 2..end, want);
            }
            used.push(name);
        }
        pages.push((page, lines.join("\n") + "\n", text.trim_end().to_string() + "\n"));
    }
    for name in all.keys() {
        assert!(used.iter().any(|used| used == name), "no page prints {name}");
    }
    for (page, new, _) in pages.iter().filter(|(_, new, old)| refresh && new != old) {
        std::fs::write(page, new).unwrap();
    }
    let remedy = "`cargo xtask book --refresh` rewrites the pages";
    assert!(refresh || differ.is_empty(), "{}\n{remedy}", differ.join("\n"));
}
