//! What day 10's chapter measures. Not checks: they take minutes and depend on the machine.

use super::checks::{plot::Plot, tokenizer, Keep};
use super::day::{forced, goldens, load, logits, options, Day, Golden, Narrow};
use candecode::kit::{Cache, CacheKind, Logits, Model, NoCache, Step};
use candle_core::{DType, Result};
use std::time::Instant;

/// Seconds of the fastest of `n` runs.
fn fastest(n: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..n {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// A greedy text of so many tokens, past the ends of its stories.
fn text(day: &Day, model: &dyn Model, prompt: &[u32], len: usize) -> Result<Vec<u32>> {
    let cache = (day.new)(CacheKind::Dynamic, model.config().num_hidden_layers);
    let most = len - prompt.len();
    let tokens = (day.generate)(model, &tokenizer()?, prompt, options(model, most, 128), cache)?;
    Ok(prompt.iter().copied().chain(tokens.iter().map(|token| token.id)).collect())
}

/// The cost of the next token against the length of the text, with a cache and without; draws it.
pub fn cost(day: &Day) -> Result<()> {
    let model = load("story-3m", DType::F32)?;
    let layers = model.config().num_hidden_layers;
    let prompt = tokenizer()?.encode("Once upon a time")?;
    let ids = text(day, &*model, &prompt, 480)?;
    let lengths: Vec<usize> = [16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 480].to_vec();
    let step = |cache: &mut dyn Cache, len: usize| -> Result<()> {
        cache.truncate(len - 1)?;
        logits(&*model, &ids[len - 1..len], cache).map(|_| ())
    };
    let mut points: [Vec<(f64, f64)>; 3] = Default::default();
    for len in &lengths {
        let mut times =
            vec![fastest(5, || logits(&*model, &ids[..*len], &mut NoCache).map(|_| ()))?];
        for kind in [CacheKind::Dynamic, CacheKind::Static(512)] {
            let mut cache = (day.new)(kind, layers);
            logits(&*model, &ids[..*len], &mut *cache)?;
            times.push(fastest(40, || step(&mut *cache, *len))?);
        }
        for (points, time) in points.iter_mut().zip(times) {
            points.push((*len as f64, time));
        }
    }
    let unit = points[1][0].1;
    points.iter_mut().flatten().for_each(|point| point.1 /= unit);
    let [without, dynamic, fixed] = points;
    for i in 0..lengths.len() {
        println!(
            "length {:3}: without {:6.1}, dynamic {:5.2}, static {:5.2}",
            lengths[i], without[i].1, dynamic[i].1, fixed[i].1
        );
    }
    let ends = (without[lengths.len() - 1], dynamic[lengths.len() - 1]);
    let top = (ends.0 .1 / 10.0).ceil() * 10.0;
    let label = "The time that the next token takes, against the length of the text: without a cache it grows with every token, with one it stays almost flat.";
    let mut plot = Plot::new(label, (0.0, 512.0), (0.0, top), false);
    for at in [0, 128, 256, 384, 512] {
        plot.tick_x(f64::from(at), &at.to_string());
    }
    for at in [0.0, 0.25, 0.5, 0.75, 1.0] {
        plot.tick_y(at * top, &format!("{:.0}", at * top));
    }
    plot.axes(
        "tokens in the text",
        "time of the next token; 1 is the step with a cache after 16 tokens",
    );
    plot.line("dropped", &without);
    plot.dots("dropped", &without);
    plot.line("kept", &dynamic);
    plot.dots("kept", &dynamic);
    plot.words("right", ends.0, (-12.0, 0.0), &format!("no cache: {:.0} times", ends.0 .1));
    plot.words("right", ends.1, (0.0, -16.0), &format!("cache: {:.1} times", ends.1 .1));
    plot.save("day10_cost.svg")
}

/// How far a sliding cache is from the same window computed anew, token by token; draws it.
pub fn cliff(day: &Day) -> Result<()> {
    const WINDOW: usize = 64;
    let model = load("story-3m", DType::F32)?;
    let prompt = tokenizer()?.encode("Lily and her dog")?;
    let ids = text(day, &*model, &prompt, 128)?;
    let mut cache = (day.new)(CacheKind::Sliding(WINDOW), model.config().num_hidden_layers);
    let (mut held, mut points) = (0, Vec::new());
    for end in prompt.len()..=ids.len() {
        let step = Step::sliding(&*model, &ids[..end], held)?.with_logits(Logits::Last(1));
        let got = model.forward(&step, &mut *cache)?.flatten_all()?.to_vec1::<f32>()?;
        held = end;
        let start = end.saturating_sub(WINDOW);
        let anew = logits(&*model, &ids[start..end], &mut NoCache)?.to_vec1::<f32>()?;
        let apart = got.iter().zip(&anew).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        points.push((end as f64, f64::from(apart)));
    }
    for (end, apart) in points.iter().filter(|(end, _)| (60.0..70.0).contains(end)) {
        println!("text of {end} tokens: {apart:.3e} apart");
    }
    let (before, after) = points.split_at(WINDOW - prompt.len() + 1);
    let most = |points: &[(f64, f64)]| points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    println!(
        "before the first slid token at most {:.1e}, at it {:.2}, later at most {:.2}",
        most(before),
        after[0].1,
        most(after)
    );
    let label = "The largest difference between the logits of a sliding cache and of the same window computed anew: about a millionth until 64 tokens, and near a half at the 65th and after it.";
    let mut plot = Plot::new(label, (0.0, 130.0), (1e-7, 10.0), true);
    for at in [0, 32, 64, 96, 128] {
        plot.tick_x(f64::from(at), &at.to_string());
    }
    for (at, label) in [(1e-6, "10⁻⁶"), (1e-4, "10⁻⁴"), (1e-2, "10⁻²"), (1.0, "1")] {
        plot.tick_y(at, label);
    }
    plot.axes(
        "tokens in the text; the window is 64",
        "largest difference of a logit, sliding cache against the last 64 tokens computed anew",
    );
    plot.upright(64.5);
    plot.dots("kept", before);
    plot.dots("dropped", after);
    plot.words(
        "left",
        (after[0].0, 1e-3),
        (14.0, 0.0),
        &format!("the first slid token: {:.2}", after[0].1),
    );
    plot.words("right", (60.0, 3e-5), (0.0, 0.0), "nothing has slid: rounding");
    plot.save("day10_cliff.svg")
}

/// What half precision does, over 200 tokens: prints a table.
pub fn halves(day: &Day) -> Result<()> {
    for case in goldens()? {
        let plain = load(&case.model, DType::F32)?;
        let layers = plain.config().num_hidden_layers;
        let ids = text(day, &*plain, &case.prompt, 200)?;
        let case = Golden { new_ids: ids[case.prompt.len()..].to_vec(), ..case };
        let want = forced(&*plain, &case, &mut Keep::default())?;
        for dtype in [DType::BF16, DType::F16] {
            let kind = CacheKind::Dynamic;
            let cached = forced(&*plain, &case, &mut Narrow((day.new)(kind, layers), dtype))?;
            let weights = load(&case.model, dtype)?;
            let weights = forced(&*weights, &case, &mut *(day.new)(kind, layers))?;
            for (what, got) in [("cache", cached), ("weights", weights)] {
                let mut most = 0f32;
                let mut first = None;
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    most = g.iter().zip(w).map(|(g, w)| (g - w).abs()).fold(most, f32::max);
                    let best = |x: &[f32]| (0..x.len()).max_by(|a, b| x[*a].total_cmp(&x[*b]));
                    if best(g) != best(w) && first.is_none() {
                        first = Some(at);
                    }
                }
                println!("{}, {what} in {dtype:?}: at most {most:.6} apart; first differing token of {}: {first:?}", case.model, want.len());
            }
        }
    }
    Ok(())
}
