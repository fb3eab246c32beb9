/// 24 requests that want 4 to 64 new tokens each.
fn mix() -> Result<Vec<(Vec<u32>, usize)>> {
    let group = group("stories")?;
    let mut random = Random::new(15);
    let want = |i: usize, random: &mut Random| match i % 4 {
        0 => 48 + random.below(17),
        _ => 4 + random.below(13),
    };
    Ok((0..24).map(|i| (group.texts[i % 6].prompt_ids.clone(), want(i, &mut random))).collect())
}

/// Seconds, and rows of every decoding pass: in static batches of `size`, each run until all of it have ended.
fn fixed(model: &Watched, mix: &[(Vec<u32>, usize)], size: usize) -> Result<(f64, Vec<usize>)> {
    let tokenizer = tokenizer()?;
    let start = std::time::Instant::now();
    for chunk in mix.chunks(size) {
        let prompts: Vec<Vec<u32>> = chunk.iter().map(|(prompt, _)| prompt.clone()).collect();
        let cache = KvCache::new(CacheKind::Dynamic, model.config().num_hidden_layers);
        let tokens = generate_batch(model, &tokenizer, &prompts, ending(model, chunk), cache)?;
        tokens.collect::<Result<Vec<_>>>()?;
    }
    Ok((start.elapsed().as_secs_f64(), rows(model)))
}

/// The same, in one running batch of at most `size` rows: the scheduler is fed as soon as a row is free.
fn running(model: &Watched, mix: &[(Vec<u32>, usize)], size: usize) -> Result<(f64, Vec<usize>)> {
    use candecode::day15_scheduler::{Request, Scheduler};
    let tokenizer = tokenizer()?;
    let layers = model.config().num_hidden_layers;
    let new_cache = Box::new(|| Box::new(KvCache::new(CacheKind::Dynamic, layers)) as Box<dyn Cache>);
    let start = std::time::Instant::now();
    let mut scheduler = Scheduler::new(model, &tokenizer, ending(model, mix), new_cache, usize::MAX)?;
    let mut queue = mix.iter().enumerate();
    loop {
        while scheduler.running.len() + scheduler.waiting.len() < size {
            let Some((id, (prompt, _))) = queue.next() else { break };
            scheduler.submit(Request { id, prompt: prompt.clone() })?;
        }
        if scheduler.is_idle() {
            break;
        }
        scheduler.step()?;
    }
    Ok((start.elapsed().as_secs_f64(), rows(model)))
}

/// Greedy, but row i ends when it has as many tokens as request i wants: token 0 is EOS, and nothing else is.
fn ending<'a>(model: &Watched, mix: &[(Vec<u32>, usize)]) -> GenerationOptions<'a> {
    let wanted: Vec<usize> = mix.iter().map(|(_, wanted)| *wanted).collect();
    let mut given = vec![0; wanted.len()];
    GenerationOptions::new(model.config(), 100, move |row, logits: &[f32]| {
        given[row] += 1;
        match given[row] == wanted[row] {
            true => Ok(0),
            false => Ok(greedy(row, &logits[1..])? + 1),
        }
    })
}

/// Rows of every pass over one new token a row.
fn rows(model: &Watched) -> Vec<usize> {
    let passes = model.passes.take();
    passes.iter().filter(|(ids, _)| ids[0].len() == 1).map(|(ids, _)| ids.len()).collect()
}

/// Runs both ways, best of five each in turn, prints ratios, and draws how many rows every pass had.
pub fn measure_throughput() -> Result<()> {
    const SIZE: usize = 8;
    let (model, mix) = (Watched::new("story-3m")?, mix()?);
    let (mut a, mut b) = (f64::MAX, f64::MAX);
    let (mut static_rows, mut running_rows) = (vec![], vec![]);
    for _ in 0..5 {
        let (seconds, rows) = fixed(&model, &mix, SIZE)?;
        (a, static_rows) = (a.min(seconds), rows);
        let (seconds, rows) = running(&model, &mix, SIZE)?;
        (b, running_rows) = (b.min(seconds), rows);
    }
    let tokens: usize = mix.iter().map(|(_, wanted)| wanted).sum();
    println!("{tokens} tokens, at most {SIZE} rows");
    for (name, seconds, rows) in [("static", a, &static_rows), ("continuous", b, &running_rows)] {
        let mean = rows.iter().sum::<usize>() as f64 / rows.len() as f64;
        println!("{name}: {} decoding passes, {mean:.2} rows each, {:.0} tokens/s", rows.len(), tokens as f64 / seconds);
    }
    println!("continuous / static: {:.2}", a / b);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/book/src/figures/day15_throughput.svg");
    std::fs::write(path, plot(&static_rows, &running_rows, SIZE, a / b)).map_err(Error::wrap)
}

/// Rows of every pass, as two rows of bars.
fn plot(fixed: &[usize], running: &[usize], size: usize, ratio: f64) -> String {
    let mut svg = String::from(
        "<svg viewBox=\"0 0 720 330\" role=\"img\" aria-label=\"Rows in every decoding pass: static batches run down to one row, one after another; the running batch stays full almost to the end, and needs fewer passes.\">\n",
    );
    let width = 600.0 / fixed.len().max(running.len()) as f64;
    for (rows, top, role, name) in [
        (fixed, 50.0, "known", "static batches of 8"),
        (running, 200.0, "kept", "one running batch"),
    ] {
        let base = top + 12.0 * size as f64;
        let _ = writeln!(svg, "<text class=\"left strong\" x=\"70\" y=\"{}\">{name}: {} passes</text>", top - 14.0, rows.len());
        for (count, label) in [(size, size.to_string()), (0, "0".into())] {
            let y = base - 12.0 * count as f64;
            let _ = writeln!(svg, "<text class=\"right note\" x=\"60\" y=\"{y}\">{label}</text>");
        }
        let _ = writeln!(svg, "<g class=\"{role}\">");
        for (i, count) in rows.iter().enumerate() {
            let (x, high) = (70.0 + width * i as f64, 12.0 * *count as f64);
            let _ = writeln!(svg, "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\"/>", base - high, width);
        }
        let _ = writeln!(svg, "</g>\n<path class=\"axis\" d=\"M70 {base}H670\"/>");
    }
    let _ = writeln!(
        svg,
        "<text class=\"note\" x=\"370\" y=\"318\">decoding passes, in order; height: rows in the pass. Tokens per second, running / static: {ratio:.2}</text>\n</svg>"
    );
    svg
}
