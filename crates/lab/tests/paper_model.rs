//! The book's paper model, `models/paper`, which is small enough to compute by hand. Everything the
//! book prints about it is computed here with the days' own functions and compared.
//! `cargo xtask book --refresh` rewrites the pages.

use candecode::day00_warm_up::{embed, logits};
use candecode::day01_attention::{causal_mask, scaled_dot_product_attention, softmax, split_heads};
use candecode::day02_positions::{rotate, RotaryEmbedding};
use candecode::day03_norms_and_mlps::{rms_norm, silu};
use candecode::day06_generate::next_logits;
use candecode::day07_greedy::{argmax, log_softmax};
use candecode::day08_sampling::{self as sampling, sample};
use candecode::day09_penalties::repetition_penalty;
use candecode::day10_kv_cache::{cache_bytes, DynamicCache};
use candecode::day11_beam_search::{candidates, Beam};
use candecode::day12_batching::{left_pad, ragged_mask};
use candecode::day13_speculative::{overlap, residual};
use candecode::kit::weights::Weights;
use candecode::kit::{Model, NoCache, Step, View};
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

    /// Returns the embeddings of these tokens, `(1, T, 4)`.
    fn embedded(&self, words: &[u32]) -> Result<Tensor> {
        embed(&self.table(), &ids(words))
    }

    /// Returns the queries, keys or values of the first layer, by head.
    fn heads(&self, h: &Tensor, name: &str, heads: usize) -> Result<Tensor> {
        split_heads(&self.product(h, &format!("self_attn.{name}_proj"))?, heads)
    }

    /// Returns a layer's matrices.
    fn layer(&self, layer: usize) -> String {
        let names =
            ["self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up"];
        let names = names.into_iter().chain(["mlp.down"]).map(|name| format!("{name}_proj"));
        let of = |name: String| {
            let (_, label) = name.split_once('.').unwrap();
            rows(&[label, "", "", ""], &self.matrix(layer, &name))
        };
        names.map(of).collect()
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

fn in_words(ids: &[u32]) -> String {
    ids.iter().map(|id| WORDS[*id as usize]).collect::<Vec<_>>().join(" ")
}

fn head(label: &str, words: &[&str]) -> String {
    let cells: Vec<String> = words.iter().map(|word| format!("{word:>6}")).collect();
    format!("{label:<14}{}\n", cells.concat())
}

/// What the book prints about the model, by name.
type Page = (&'static str, fn(&Paper) -> Result<String>);

const PAGES: [Page; 21] = [
    ("embedding", |paper| Ok(rows(&WORDS, &paper.table()))),
    ("layer0", |paper| Ok(paper.layer(0))),
    ("layer1", |paper| Ok(paper.layer(1))),
    // Day 0: the table as a lookup, and as a scorer.
    ("day00_embed", |paper| Ok(rows(&["the", "cat"], &paper.embedded(&[0, 1])?))),
    ("day00_score", |paper| {
        let scores = logits(&paper.table(), &paper.embedded(&[0, 1])?)?;
        Ok(head("", &WORDS) + &rows(&["after the", "after cat"], &scores))
    }),
    ("day01_input", |paper| Ok(rows(&["the", "cat"], &norm(&paper.embedded(&[0, 1])?)?))),
    ("day01_qkv", day01_qkv),
    ("day01_mix", day01_mix),
    ("day02_turned", day02_turned),
    ("day03_mlp", day03_mlp),
    ("day04_heads", day04_heads),
    ("day05_stream", day05_stream),
    ("day06_loop", day06_loop),
    ("day08_filters", day08_filters),
    ("day09_penalty", |paper| {
        // "cat" hasn't appeared yet.
        let mut after = paper.logits(&[0, 3, 2, 0]);
        let text = head("", &WORDS) + &for_words("logits", &after);
        repetition_penalty(&mut after, &[0, 3, 2, 0], 1.5)?;
        Ok(text + &for_words("penalized", &after))
    }),
    ("day09_loop", |paper| {
        let text = head("", &WORDS) + &for_words("after dog", &paper.logits(&[3]));
        Ok(text + &for_words("dog dog dog", &paper.logits(&[3, 3, 3])))
    }),
    ("day10_cache", day10_cache),
    ("day10_bytes", |paper| {
        let bytes = cache_bytes(&paper.engine.model().config, 1, 1, DType::F32);
        Ok(format!(
            "2 x 2 layers x 1 key/value head x 2 numbers x 4 bytes = {bytes} bytes per token\n"
        ))
    }),
    ("day11_beams", day11_beams),
    ("day12_padded", |_| day12_padded()),
    ("day13_pq", day13_pq),
];

/// Head 0's queries, keys and values of "the cat", before rotation.
struct Head0 {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

fn head0(paper: &Paper) -> Result<Head0> {
    let h = norm(&paper.embedded(&[0, 1])?)?;
    let q = paper.heads(&h, "q", 2)?.narrow(1, 0, 1)?.contiguous()?; // (1, 1, 2, 2)
    Ok(Head0 { q, k: paper.heads(&h, "k", 1)?, v: paper.heads(&h, "v", 1)? })
}

/// Scores of queries for keys, divided by the root of a head's width.
fn scores(q: &Tensor, k: &Tensor) -> Result<Tensor> {
    q.contiguous()?.matmul(&k.contiguous()?.t()?)? / 2f64.sqrt()
}

fn day01_qkv(paper: &Paper) -> Result<String> {
    let Head0 { q, k, v } = head0(paper)?;
    Ok(rows(&["query of the", "query of cat"], &q)
        + &rows(&["key of the", "key of cat"], &k)
        + &rows(&["value of the", "value of cat"], &v))
}

fn day01_mix(paper: &Paper) -> Result<String> {
    let Head0 { q, k, v } = head0(paper)?;
    let scores = scores(&q, &k)?;
    let mask = causal_mask(2, 0, &Device::Cpu)?;
    let hidden = Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?.broadcast_as(scores.shape())?;
    let masked = mask.broadcast_as(scores.shape())?.where_cond(&scores, &hidden)?;
    let shares = softmax(&masked, 3)?;
    let mix = scaled_dot_product_attention(&q, &k, &v, Some(&mask))?;
    let cat = ["the", "cat"];
    Ok(head("score of", &cat)
        + &rows(&["  the asks", "  cat asks"], &masked)
        + &head("weight of", &cat)
        + &rows(&["  the takes", "  cat takes"], &shares)
        + &rows(&["mix of the", "mix of cat"], &mix))
}

fn turned(x: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let rope = RotaryEmbedding::new(2, 10_000.0, None, &Device::Cpu)?;
    let (cos, sin) = rope.cos_sin(&ids(positions))?;
    rotate(x, &cos, &sin)
}

/// Day 2: the same keys and queries, rotated by their positions.
fn day02_turned(paper: &Paper) -> Result<String> {
    let Head0 { q, k, .. } = head0(paper)?;
    let mut text = String::new();
    for [a, b] in [[0, 1], [2, 3], [0, 3]] {
        let (q, k) = (turned(&q, &[a, b])?.narrow(2, 1, 1)?, turned(&k, &[a, b])?.narrow(2, 0, 1)?);
        text += &rows(&[&format!("key at {a}")], &k);
        text += &rows(&[&format!("query at {b}")], &q);
        text += &rows(&["score"], &scores(&q, &k)?);
    }
    Ok(text)
}

/// Day 3: the norm of one vector, and the first layer's MLP applied to it.
fn day03_mlp(paper: &Paper) -> Result<String> {
    let the = paper.embedded(&[0])?;
    let normed = norm(&the)?;
    let gate = paper.product(&normed, "mlp.gate_proj")?;
    let up = paper.product(&normed, "mlp.up_proj")?;
    let act = (silu(&gate)? * &up)?;
    let down = paper.product(&act, "mlp.down_proj")?;
    let steps = [
        ("x", the),
        ("norm(x)", normed),
        ("silu(gate)", silu(&gate)?),
        ("up", up),
        ("product", act),
        ("down", down),
    ];
    let mut text: Vec<String> = steps.iter().map(|(label, x)| rows(&[label], x)).collect();
    text.insert(2, rows(&["gate"], &gate));
    Ok(text.concat())
}

/// The prompt "the cat and the".
const PROMPT: [u32; 4] = [0, 1, 2, 0];

/// Day 4: the first layer's attention at the prompt's last token.
fn day04_heads(paper: &Paper) -> Result<String> {
    let x = paper.embedded(&PROMPT)?;
    let h = norm(&x)?;
    let positions = [0, 1, 2, 3];
    let q = turned(&paper.heads(&h, "q", 2)?, &positions)?;
    let k = turned(&paper.heads(&h, "k", 1)?, &positions)?;
    let v = paper.heads(&h, "v", 1)?;
    let labeled = |what: &str, x: &Tensor| -> Result<String> {
        let labels = PROMPT.map(|id| format!("{what} of {}", WORDS[id as usize]));
        Ok(rows(&labels.each_ref().map(String::as_str), &x.squeeze(1)?))
    };
    let mut text = labeled("key", &k)? + &labeled("value", &v)?;
    let mut outs = Vec::new();
    for number in 0..2 {
        let q = q.narrow(1, number, 1)?.narrow(2, 3, 1)?.contiguous()?;
        let scores = scores(&q, &k)?;
        let shares = softmax(&scores, 3)?;
        let mix = shares.matmul(&v.contiguous()?)?;
        text += &rows(&[&format!("query, head {number}")], &q);
        text += &rows(&["  scores"], &scores);
        text += &rows(&["  shares"], &shares);
        text += &rows(&["  mix"], &mix);
        outs.push(mix);
    }
    let both = Tensor::cat(&outs, 3)?.squeeze(1)?;
    let projected = paper.product(&both, "self_attn.o_proj")?;
    text += &rows(&["both heads"], &both);
    text += &rows(&["o_proj"], &projected);
    Ok(text + &rows(&["x + o_proj"], &(x.narrow(1, 3, 1)? + projected)?))
}

/// Day 5: the residual stream through both layers, at the prompt's last token.
fn day05_stream(paper: &Paper) -> Result<String> {
    let model = paper.engine.model();
    let step = Step::new(model, &PROMPT, 0)?;
    let mut stream = model.embed(&step)?;
    let rotary = model.rotary_emb.as_ref();
    let cos_sin = rotary.map(|rope| rope.cos_sin(&step.positions)).transpose()?;
    let mut text = rows(&["embedding"], &stream.narrow(1, 3, 1)?);
    for (number, layer) in model.layers.iter().enumerate() {
        stream = layer.forward(&stream, &step, cos_sin.as_ref(), &mut NoCache)?;
        text += &rows(&[&format!("after layer {number}")], &stream.narrow(1, 3, 1)?);
    }
    text += &rows(&["last norm"], &norm(&stream.narrow(1, 3, 1)?)?);
    let logits = paper.logits(&PROMPT);
    text += &(head("", &WORDS) + &for_words("logits", &logits));
    Ok(text + &for_words("shares", &sampling::softmax(&logits)?))
}

/// Days 6 and 7: the loop, the positions each pass computes, and how confident the model is.
fn day06_loop(paper: &Paper) -> Result<String> {
    let mut text = format!("{:<24}{:>10}   {:<8}{}\n", "tokens", "positions", "best", "ln p");
    for len in 1..TEXT.len() {
        let logits = paper.logits(&TEXT[..len]);
        let best = argmax(&logits)?;
        assert_eq!(best, TEXT[len]);
        let sure = log_softmax(&logits)?[best as usize];
        let (so_far, best) = (in_words(&TEXT[..len]), WORDS[best as usize]);
        let _ = writeln!(text, "{so_far:<24}{len:>10}   {best:<8}{sure:.2}");
    }
    Ok(text)
}

/// Day 8: one distribution, filtered.
fn day08_filters(paper: &Paper) -> Result<String> {
    let logits = paper.logits(&PROMPT);
    let mut hot = logits.clone();
    sampling::temperature(&mut hot, 2.0)?;
    let (mut of_three, mut nucleus) = (hot.clone(), hot.clone());
    sampling::top_k(&mut of_three, 3)?;
    sampling::top_p(&mut nucleus, 0.6)?;
    let mut text = head("", &WORDS) + &for_words("logits", &logits);
    for (label, logits) in [
        ("p", &logits),
        ("p at T = 2", &hot),
        ("then top-k 3", &of_three),
        ("or top-p 0.6", &nucleus),
    ] {
        text += &for_words(label, &sampling::softmax(logits)?);
    }
    let probs = sampling::softmax(&hot)?;
    let ends: Vec<f32> = (1..=5).map(|n| probs[..n].iter().sum()).collect();
    text += &(String::from("\n") + &head("", &WORDS) + &for_words("ends at", &ends));
    for u in [0.1, 0.3, 0.6] {
        let drawn = WORDS[sample(&probs, u)? as usize];
        let _ = writeln!(text, "u = {u} at T = 2: {drawn}");
    }
    Ok(text)
}

/// Day 10: the contents of a cache after "the cat and".
fn day10_cache(paper: &Paper) -> Result<String> {
    let model = paper.engine.model();
    let mut cache = DynamicCache::new(2);
    model.forward(&Step::new(model, &PROMPT[..3], 0)?, &mut cache)?;
    let mut text = String::new();
    for layer in 0..2 {
        let Some(View { k, v, .. }) = cache.layers.held(layer)? else {
            unreachable!("the cache was just filled")
        };
        let _ = writeln!(text, "layer {layer}              key           value");
        let (keys, values): (Vec<Vec<f32>>, Vec<Vec<f32>>) =
            (k.flatten_to(2)?.to_vec2()?, v.flatten_to(2)?.to_vec2()?);
        for (id, (key, value)) in PROMPT.iter().zip(keys.iter().zip(&values)) {
            let _ = writeln!(text, "  {:<12}{}  {}", WORDS[*id as usize], row(key), row(value));
        }
    }
    Ok(text)
}

/// Day 11: two beams find what greedy misses.
fn day11_beams(paper: &Paper) -> Result<String> {
    let prompt = [3, 1, 1];
    let (greedy, beams) = (beam_steps(paper, &prompt, 1, 2)?, beam_steps(paper, &prompt, 2, 2)?);
    assert!(beams[1][0].score > greedy[1][0].score);
    let mut text = String::new();
    for (name, steps) in [("greedy,", greedy), ("beams, ", beams)] {
        for (step, beams) in steps.iter().enumerate() {
            for beam in beams {
                let (score, words) = (number(beam.score), in_words(&beam.tokens));
                let _ = writeln!(text, "{name} step {}  {score:>6}  {words}", step + 1);
            }
        }
    }
    Ok(text)
}

/// Day 12: two prompts in one batch.
fn day12_padded() -> Result<String> {
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
    Ok(text)
}

/// Day 13: the draft model is the same model without its second layer.
fn day13_pq(paper: &Paper) -> Result<String> {
    let early: Vec<f32> = serde_json::from_value(golden()["after_one_layer"][3].clone()).unwrap();
    let (p, q) = (sampling::softmax(&paper.logits(&PROMPT))?, sampling::softmax(&early)?);
    let each = |of: fn(f32, f32) -> f32| p.iter().zip(&q).map(|(p, q)| of(*p, *q)).collect();
    let (ratios, both): (Vec<f32>, Vec<f32>) = (each(|p, q| (p / q).min(1.0)), each(f32::min));
    let mut text = head("", &WORDS);
    for (label, values) in [
        ("p, target", &p),
        ("q, drafter", &q),
        ("p / q, at most", &ratios),
        ("min(p, q)", &both),
        ("residual", &residual(&p, &q)?),
    ] {
        text += &for_words(label, values);
    }
    Ok(text + &format!("accepted with probability {}\n", number(overlap(&p, &q))))
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
fn the_book_prints_the_computed_numbers() {
    let paper = Paper::new();
    let all = PAGES.map(|(name, page)| (name, page(&paper).unwrap()));
    let all = BTreeMap::from(all);
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
