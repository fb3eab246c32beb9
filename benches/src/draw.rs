//! Draws the plots of the book, `book/src/bench/*.svg`, from what criterion measured: `draw day10
//! day12 …`; none: all.

use anyhow::{bail, Result};
use benches::estimates::fastest;
use benches::kernel_sizes::{Size, SIZES, VECTORS};
use benches::plot::Plot;
use benches::serving::{fixed, mix, running, Counted};
use benches::{logits, model, text, tokenizer};
use candecode::day10_kv_cache::SlidingCache;
use candecode::day18_flash_attention::{BLOCK, TILE};
use candecode::engine::load_model;
use candecode::formats::hub;
use candecode::kernels;
use candecode::kit::units::bytes;
use candecode::kit::{Logits, NoCache, Step};
use candle_core::{DType, Device};

type Draw = fn() -> Result<()>;

/// What can be drawn.
const DAYS: [(&str, Draw); 7] = [
    ("day10", day10),
    ("day12", day12),
    ("day13", day13),
    ("day14", day14),
    ("day15", day15),
    ("day17", day17),
    ("day18", day18),
];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|day| DAYS.iter().all(|(name, _)| name != day)) {
        bail!("no plot of {unknown}")
    }
    for (name, draw) in DAYS {
        if wanted.is_empty() || wanted.iter().any(|day| day == name) {
            draw()?;
        }
    }
    Ok(())
}

/// The cost of the next token against the length of the text.
fn day10() -> Result<()> {
    cliff()?;
    const LENGTHS: [usize; 7] = [16, 64, 128, 192, 256, 384, 480];
    let points = |kind: &str| -> Result<Vec<(f64, f64)>> {
        let point =
            |len: &usize| Ok((*len as f64, fastest("day10_next_token", &format!("{kind}_{len}"))?));
        LENGTHS.iter().map(point).collect()
    };
    let mut lines = [points("none")?, points("dynamic")?, points("static")?];
    let unit = lines[1][0].1;
    lines.iter_mut().flatten().for_each(|point| point.1 /= unit);
    println!("next token; 1 is a growing cache at 16 tokens, {:.2} ms", unit * 1e3);
    for (i, len) in LENGTHS.iter().enumerate() {
        println!(
            "{len:4} tokens: none {:6.1}, dynamic {:5.2}, static {:5.2}",
            lines[0][i].1, lines[1][i].1, lines[2][i].1
        );
    }
    let [none, dynamic, _] = lines;
    let last = (none[LENGTHS.len() - 1], dynamic[LENGTHS.len() - 1]);
    let mut plot = Plot::new(
        "The time that the next token takes, against the length of the text, both axes logarithmic: without a cache it grows with every token, with one it stays almost flat, close to the ideal line at 1.",
        (16.0, 512.0),
        (0.5, 1000.0),
        (true, true),
    );
    for at in [16, 32, 64, 128, 256, 512] {
        plot.tick_x(f64::from(at), &at.to_string());
    }
    for at in [1, 10, 100, 1000] {
        plot.tick_y(f64::from(at), &at.to_string());
    }
    plot.axes(
        "tokens in the text",
        "time of the next token; 1 is the step with a cache after 16 tokens",
    );
    plot.line("known", &[(16.0, 1.0), (480.0, 1.0)]);
    plot.line("dropped", &none);
    plot.dots("dropped", &none);
    plot.line("kept", &dynamic);
    plot.dots("kept", &dynamic);
    plot.words("right", last.0, (-12.0, 0.0), &format!("no cache: {:.0} times", last.0 .1));
    plot.words(
        "right",
        last.1,
        (0.0, -16.0),
        &format!("cache: {:.1} times (grey: the ideal, 1)", last.1 .1),
    );
    Ok(plot.save("day10_cost.svg")?)
}

/// How far a sliding cache is from the same window computed from scratch, token by token. This
/// is not a matter of time.
fn cliff() -> Result<()> {
    const WINDOW: usize = 64;
    // The kernels sum in one order: without a slide they differ by nothing at all.
    let model = load_model(&hub::locate("story-3m", false)?, DType::F32, &Device::Cpu)?;
    let prompt = tokenizer()?.encode("Lily and her dog")?.len();
    let ids = text(&*model, "Lily and her dog", 128)?;
    let mut sliding = SlidingCache::new(model.config().num_hidden_layers, WINDOW);
    let (mut held, mut points) = (0, Vec::new());
    for end in prompt..=ids.len() {
        let step = Step::sliding(&*model, &ids[held..end], held)?.with_logits(Logits::Last(1));
        let got = model.forward(&step, &mut sliding)?.flatten_all()?.to_vec1::<f32>()?;
        held = end;
        let anew = logits(&*model, &ids[end.saturating_sub(WINDOW)..end], &mut NoCache)?;
        let apart = got.iter().zip(&anew).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        points.push((end as f64, f64::from(apart)));
    }
    let (before, after) = points.split_at(WINDOW - prompt + 1);
    let most = |points: &[(f64, f64)]| points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    println!(
        "before the first slid token at most {:.1e} apart, at it {:.2}, later at most {:.2}",
        most(before),
        after[0].1,
        most(after)
    );
    let mut plot = Plot::new(
        "The largest difference between the logits of a sliding cache and of the same window computed from scratch: about a millionth until 64 tokens, and near a half at the 65th and after it.",
        (0.0, 130.0),
        (1e-7, 10.0),
        (false, true),
    );
    for at in [0, 32, 64, 96, 128] {
        plot.tick_x(f64::from(at), &at.to_string());
    }
    for (at, label) in [(1e-6, "10⁻⁶"), (1e-4, "10⁻⁴"), (1e-2, "10⁻²"), (1.0, "1")] {
        plot.tick_y(at, label);
    }
    plot.axes(
        "tokens in the text; the window is 64",
        "largest difference of a logit, sliding cache against the last 64 tokens computed from scratch",
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
    Ok(plot.save("day10_cliff.svg")?)
}

/// Tokens a second over all rows, against the number of rows.
fn day12() -> Result<()> {
    const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];
    let unit = fastest("day12_batch", "even_1")?;
    let gains = |kind: &str| -> Result<Vec<(f64, f64)>> {
        let gain = |rows: &usize| {
            let time = fastest("day12_batch", &format!("{kind}_{rows}"))?;
            Ok((*rows as f64, *rows as f64 * unit / time))
        };
        SIZES.iter().map(gain).collect()
    };
    let (even, ragged) = (gains("even")?, gains("ragged")?);
    println!("1 row: {:.0} tokens a second", 32.0 / unit);
    for (i, rows) in SIZES.iter().enumerate() {
        println!(
            "{rows:2} rows: {:5.2} times the tokens a second, ragged {:5.2}",
            even[i].1, ragged[i].1
        );
    }
    for kernels in ["plain", "fast"] {
        let times: Result<Vec<String>> = [1, 2, 4, 8, 32]
            .iter()
            .map(|rows| fastest("day12_product", &format!("{kernels}_{rows}")))
            .map(|time| Ok(format!("{:.0}", time? * 1e6)))
            .collect();
        println!("a product of 1, 2, 4, 8 and 32 rows, {kernels}, in µs: {}", times?.join(" "));
    }
    let mut plot = Plot::new(
        "Tokens per second over all rows, against the number of rows, both axes logarithmic, beside the ideal line: more rows give more tokens, far below the ideal.",
        (1.0, 32.0),
        (1.0, 32.0),
        (true, true),
    );
    for rows in SIZES {
        plot.tick_x(rows as f64, &rows.to_string());
        plot.tick_y(rows as f64, &rows.to_string());
    }
    plot.axes("rows in the batch", "tokens per second over all rows; 1 is a single row");
    plot.line("known", &[(1.0, 1.0), (32.0, 32.0)]);
    plot.words("right", (16.0, 16.0), (-14.0, 0.0), "ideal: as many as rows");
    plot.line("kept", &even);
    plot.dots("kept", &even);
    plot.words("", even[1], (0.0, 16.0), &format!("2 rows: {:.1}", even[1].1));
    let last = even[SIZES.len() - 1];
    plot.words("right", last, (-4.0, -16.0), &format!("32 rows: {:.1}", last.1));
    Ok(plot.save("day12_throughput.svg")?)
}

/// How much faster a text is written with drafts, against K, for drafters of a known rate of
/// acceptance.
fn day13() -> Result<()> {
    const RATES: [usize; 4] = [100, 80, 50, 0];
    let plain = fastest("day13_speculation", "plain")?;
    let mut plot = Plot::new(
        "How many times as fast as plain decoding speculation is, against the number of drafted tokens, for drafters whose tokens are accepted always, in 80 or 50 of 100 cases, or never; and the ideal, K plus 1.",
        (1.0, 10.0), // room for the words beside the lines
        (0.0, 5.0),
        (false, false),
    );
    for k in 1..=8 {
        plot.tick_x(f64::from(k), &k.to_string());
    }
    for at in 0..=5 {
        plot.tick_y(f64::from(at), &at.to_string());
    }
    plot.axes(
        "K: tokens drafted before each pass",
        "times as fast as without drafts; drafts cost nothing here",
    );
    plot.line("known", &[(1.0, 1.0), (10.0, 1.0)]);
    plot.line("known", &[(1.0, 2.0), (4.0, 5.0)]);
    plot.words("left", (3.6, 4.6), (20.0, 8.0), "ideal: K + 1");
    for rate in RATES {
        let mut points = Vec::new();
        for k in 1..=8usize {
            let time = fastest("day13_speculation", &format!("stands_{rate}_k{k}"))?;
            points.push((k as f64, plain / time));
        }
        let shown: Vec<String> = points.iter().map(|(_, y)| format!("{y:.2}")).collect();
        println!("{rate:3} % accepted, K = 1 to 8: {}", shown.join(" "));
        let role = if points[3].1 >= 1.0 { "kept" } else { "dropped" };
        plot.line(role, &points);
        plot.dots(role, &points);
        let down = if rate == 50 { -2.0 } else { 6.0 }; // the two lowest lines are close
        plot.words(
            "left",
            points[7],
            (10.0, down),
            &format!("{rate} % accepted: {:.1}", points[7].1),
        );
    }
    for name in ["model_k2", "model_k4", "ngram_k4"] {
        println!("{name}: {:.2} times as fast", plain / fastest("day13_speculation", name)?);
    }
    Ok(plot.save("day13_speedup.svg")?)
}

/// What a block list costs: printed, not drawn.
fn day14() -> Result<()> {
    let plain = fastest("day14_block_list", "decode_0")?;
    for n in [1, 10_000] {
        let with = fastest("day14_block_list", &format!("decode_{n}"))?;
        let build = fastest("day14_block_list", &format!("build_{n}"))?;
        println!(
            "{n:5} words: a token takes {:+.1} % more; {:.2} s to build",
            100.0 * (with / plain - 1.0),
            build
        );
    }
    Ok(())
}

/// Rows of every pass, static and continuous, as two rows of bars.
fn day15() -> Result<()> {
    let (model, tokenizer, mix) = (model("story-3m")?, tokenizer()?, mix());
    let ratio = fastest("day15_serving", "static")? / fastest("day15_serving", "continuous")?;
    let counted = Counted::new(&*model);
    fixed(&counted, &tokenizer, &mix)?;
    let static_rows = counted.rows.take();
    running(&counted, &tokenizer, &mix)?;
    let running_rows = counted.rows.take();
    let tokens: usize = mix.iter().map(|(_, wanted)| wanted).sum();
    for (name, rows) in [("static", &static_rows), ("continuous", &running_rows)] {
        let mean = rows.iter().sum::<usize>() as f64 / rows.len() as f64;
        println!("{name}: {tokens} tokens in {} decoding passes of {mean:.2} rows", rows.len());
    }
    println!("tokens a second, continuous / static: {ratio:.2}");
    Ok(benches::plot::rows("day15_throughput.svg", &static_rows, &running_rows, ratio)?)
}

/// The time of a product against the number of vectors: day 17's kernel and the kit's.
fn day17() -> Result<()> {
    let time = |size: &Size, dtype: &str, kind: &str, vectors: usize| {
        fastest("day17_product", &format!("{}_{dtype}_{kind}_{vectors}", size.name))
    };
    println!("microseconds, and the share of the kit's own speed");
    for size in &SIZES {
        for dtype in ["f32", "bf16"] {
            let (name, inner, out) = (size.name, size.inner, size.out);
            let mut parts = Vec::new();
            let kit = time(size, dtype, "kit", 1)?;
            for kind in ["loop", "sums", "candle"] {
                if let Ok(time) = time(size, dtype, kind, 1) {
                    parts.push(format!("{kind} {:.0} ({:.2})", time * 1e6, kit / time));
                }
            }
            println!(
                "{name} {inner} -> {out}, {dtype}, 1 vector, one thread: {}",
                parts.join(", ")
            );
            for vectors in VECTORS {
                let kit = time(size, dtype, "kit", vectors)?;
                let mine = time(size, dtype, "threads", vectors)?;
                println!(
                    "  {vectors} vectors: day 17 {:.0} ({:.2}), kit {:.0}",
                    mine * 1e6,
                    kit / mine,
                    kit * 1e6
                );
            }
        }
    }
    let head = &SIZES[SIZES.len() - 1];
    let points = |kind: &str| -> Result<Vec<(f64, f64)>> {
        let point =
            |vectors: &usize| Ok((*vectors as f64, 1e3 * time(head, "f32", kind, *vectors)?));
        VECTORS.iter().map(point).collect()
    };
    let (mine, kit) = (points("threads")?, points("kit")?);
    let simple = (1.0, 1e3 * time(head, "f32", "loop", 1)?);
    let sums = (1.0, 1e3 * time(head, "f32", "sums", 1)?);
    let mut plot = Plot::new(
        "Milliseconds of a product with the head of SmolLM2-135M in f32, against the number of vectors, both axes logarithmic: a simple loop is slowest, several running sums are much faster, and two threads faster still; up to four vectors take little longer than one.",
        (1.0, 12.0), // room for the words beside the lines
        (2.0, 100.0),
        (true, true),
    );
    for at in VECTORS {
        plot.tick_x(at as f64, &at.to_string());
    }
    for at in [2, 5, 10, 20, 50, 100] {
        plot.tick_y(f64::from(at), &at.to_string());
    }
    plot.axes(
        "vectors that are multiplied at once",
        "milliseconds of a product, 576 to 49,152 in f32",
    );
    plot.dots("dropped", &[simple, sums]);
    plot.words(
        "left",
        simple,
        (12.0, 4.0),
        &format!("simple loop, one thread: {:.0} ms", simple.1),
    );
    plot.words("left", sums, (12.0, 4.0), &format!("several sums, one thread: {:.1} ms", sums.1));
    plot.line("kept", &mine);
    plot.dots("kept", &mine);
    plot.line("known", &kit);
    plot.dots("known", &kit);
    let last = VECTORS.len() - 1;
    plot.words("left", mine[last], (10.0, -4.0), &format!("day 17: {:.1} ms", mine[last].1));
    plot.words("left", kit[last], (10.0, 12.0), &format!("the kit's: {:.1} ms", kit[last].1));
    Ok(plot.save("day17_kernel.svg")?)
}

/// Attention of one layer, 9 heads on 3, 64 wide: the time and the memory of its scores, against the
/// prompt; and the time of a new token, against the context.
fn day18() -> Result<()> {
    const PROMPTS: [usize; 4] = [64, 256, 1024, 2048];
    const CONTEXTS: [usize; 5] = [64, 256, 1024, 4096, 8192];
    const HEADS: usize = 9;
    const GROUP: usize = 3;
    let points = |group: &str, kind: &str, sizes: &[usize]| -> Result<Vec<(f64, f64)>> {
        let point = |size: &usize| {
            Ok((*size as f64, 1e3 * fastest(&format!("day18_{group}"), &format!("{kind}_{size}"))?))
        };
        sizes.iter().map(point).collect()
    };
    println!("a new token, in µs: plain, in tiles, the kit's kernel");
    let [plain, tiled, kit] =
        ["plain", "tiled", "kit"].map(|kind| points("decode", kind, &CONTEXTS));
    let (plain, tiled, kit) = (plain?, tiled?, kit?);
    for i in 0..CONTEXTS.len() {
        let [plain, tiled, kit] = [&plain, &tiled, &kit].map(|line| 1e3 * line[i].1);
        println!("{:6} columns: {plain:7.0} {tiled:7.0} {kit:7.0}", CONTEXTS[i]);
    }
    println!("a prompt, in ms: plain, in tiles, the kit's kernel; its scores: plain, in tiles");
    let [plain, tiled, kit] =
        ["plain", "tiled", "kit"].map(|kind| points("prefill", kind, &PROMPTS));
    let (plain, tiled, kit) = (plain?, tiled?, kit?);
    let threads = candecode_threads();
    for i in 0..PROMPTS.len() {
        let new = PROMPTS[i];
        // As scores and as probabilities; a tile for each thread.
        let all = 2 * HEADS * new * new * size_of::<f32>();
        let of_tiles = threads * GROUP * BLOCK * TILE * size_of::<f32>();
        let [plain, tiled, kit] = [&plain, &tiled, &kit].map(|line| line[i].1);
        println!(
            "{new:6} tokens: {plain:8.1} {tiled:8.1} {kit:8.1}; {}, {}",
            bytes(all as f64),
            bytes(of_tiles as f64)
        );
    }
    let mut plot = Plot::new(
        "The time that the attention of one layer takes, against the length of the prompt, both axes logarithmic: by plain tensor operations, in tiles, and by the kernel of the kit. All grow with the square of the prompt; at its end the plain ones are the slowest.",
        (64.0, 8192.0),
        (0.01, 10_000.0),
        (true, true),
    );
    for at in [64, 256, 1024, 4096] {
        plot.tick_x(f64::from(at), &at.to_string());
    }
    for (at, label) in [(0.01, "0.01"), (1.0, "1"), (100.0, "100"), (10_000.0, "10,000")] {
        plot.tick_y(at, label);
    }
    plot.axes("tokens of the prompt", "milliseconds for the attention of one layer");
    for (role, line, name) in
        [("dropped", &plain, "plain"), ("kept", &tiled, "tiles"), ("known", &kit, "the kit's")]
    {
        plot.line(role, line);
        plot.dots(role, line);
        let last = line[line.len() - 1];
        plot.words("left", last, (10.0, 0.0), &format!("{name}: {:.0} ms", last.1));
    }
    Ok(plot.save("day18_prefill.svg")?)
}

/// Threads that attention is shared among, as in the benchmark.
fn candecode_threads() -> usize {
    kernels::set_threads();
    std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}
