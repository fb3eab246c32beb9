//! The tables of engines in Markdown, and a bar chart.

use super::ours::{Drafted, Run, VERIFIED};
use super::{Contender, Job};
use crate::args::Args;
use crate::plot;
use crate::shared::machine;
use crate::times::median;
use std::fmt::Write as _;
use std::path::Path;

/// The results of one contender, as medians over rounds.
pub struct Row {
    name: String,
    batch: usize,
    /// Tokens per second.
    prefill: f64,
    decode: f64,
    /// Our engine's speed divided by this one's.
    ours_prefill: f64,
    ours_decode: f64,
    /// Bytes per token, and the speed as a fraction of what memory bandwidth allows.
    bytes: Option<f64>,
    roofline: Option<f64>,
    same_tokens: bool,
}

/// Summarizes the rounds. A round's bandwidth is the median of the probes before and after it.
pub fn rows(
    contenders: &[Contender],
    rounds: &[Vec<Run>],
    probes: &[[f64; 2]],
    job: &Job,
) -> Vec<Row> {
    let roofs: Vec<f64> = probes.iter().map(|probe| median(probe.to_vec())).collect();
    let row = |(contender, runs): (&Contender, &Vec<Run>)| {
        let Contender { name, batch, .. } = contender;
        // Our first contender with the same batch size and weights.
        let alike = |c: &Contender| c.batch == *batch && c.weights() == contender.weights();
        let ours = &rounds[contenders.iter().position(alike).unwrap_or(0)];
        let per_run = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value).collect());
        let ratio = |seconds: fn(&Run) -> f64| {
            median(ours.iter().zip(runs).map(|(a, b)| seconds(b) / seconds(a)).collect())
        };
        let (prompt, new) = (batch * job.prompt.len(), batch * (job.new - 1));
        let bytes = ours[0].bytes.map(|bytes| bytes / *batch as f64);
        let rate = |run: &Run| new as f64 / run.decode_s;
        Row {
            name: name.clone(),
            batch: *batch,
            prefill: per_run(&|run| prompt as f64 / run.prefill_s),
            decode: per_run(&rate),
            ours_prefill: ratio(|run| run.prefill_s),
            ours_decode: ratio(|run| run.decode_s),
            bytes,
            roofline: bytes.map(|bytes| {
                median(
                    runs.iter().zip(&roofs).map(|(run, roof)| rate(run) * bytes / roof).collect(),
                )
            }),
            same_tokens: runs[0].tokens == ours[0].tokens,
        }
    };
    contenders.iter().zip(rounds).map(row).collect()
}

/// Returns the paragraph above the table.
pub fn head(args: &Args, job: &Job, probes: &[[f64; 2]]) -> String {
    let probes: Vec<String> = probes.iter().flatten().map(|b| format!("{:.0}", b / 1e9)).collect();
    format!(
        "{}. {}, a prompt of {}, {} new tokens, medians of {} rounds. Memory read {} \
         GB/s before and after the rounds.\n\n",
        machine(),
        last_part(args.model()),
        job.prompt.len(),
        job.new,
        args.rounds(),
        probes.join(", "),
    )
}

/// Returns the three tables.
pub fn text(rows: &[Row], verify: &[Vec<f64>], drafted: &[Drafted]) -> String {
    let mut out = "| engine, weights | batch | prefill, tokens/s | decode, tokens/s | our \
        speedup: prefill | decode | MB per token | of the roofline | tokens \
        |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n"
        .to_string();
    let equal = |same: bool| if same { "equal" } else { "other" };
    for row in rows {
        let or_dash = |number: Option<f64>, unit: &str| {
            number.map_or("–".to_string(), |number| format!("{number:.0}{unit}"))
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.0} | {:.1} | {:.2} | {:.2} | {} | {} | {} |",
            row.name,
            row.batch,
            row.prefill,
            row.decode,
            row.ours_prefill,
            row.ours_decode,
            or_dash(row.bytes.map(|bytes| bytes / 1e6), ""),
            or_dash(row.roofline.map(|share| share * 100.0), " %"),
            equal(row.same_tokens),
        );
    }
    out += "\n| a pass over | cost, in passes over one |\n|--:|--:|\n";
    for (i, tokens) in VERIFIED.iter().enumerate() {
        let cost = median(verify.iter().map(|seconds| seconds[i] / seconds[0]).collect());
        let s = if *tokens == 1 { "" } else { "s" };
        let _ = writeln!(out, "| {tokens} token{s} | {cost:.2} |");
    }
    out += "\n| drafts | tokens per pass | measured speedup | text |\n|--:|--:|--:|---|\n";
    for (i, row) in drafted[0].rows.iter().enumerate() {
        let gain = median(drafted.iter().map(|all| all.plain_s / all.rows[i].seconds).collect());
        let _ = writeln!(
            out,
            "| up to {} | {:.2} | {gain:.2} | {} |",
            row.k,
            row.a_pass,
            equal(row.same)
        );
    }
    out
}

/// Draws a bar chart of tokens per second for every engine, decoding a single row.
pub fn bars(rows: &[Row], args: &Args) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.batch == 1).collect();
    let most = rows.iter().map(|row| row.decode).fold(1.0, f64::max);
    let height = 60 + 26 * rows.len();
    let mut svg = plot::open(height, "Tokens per second of each engine, decoding one text");
    for (i, Row { name, decode, .. }) in rows.iter().enumerate() {
        let (width, y) = (380.0 * decode / most, 14 + 26 * i);
        let role = if name.starts_with("candecode") { "kept" } else { "known" };
        let _ = writeln!(
            svg,
            "<text class=\"note right\" x=\"230\" y=\"{}\">{name}</text>\n<g \
             class=\"{role}\"><rect class=\"bar\" x=\"240\" y=\"{y}\" width=\"{width:.1}\" \
             height=\"18\"/></g>\n<text class=\"note left\" x=\"{:.1}\" \
             y=\"{}\">{decode:.1}</text>",
            y + 9,
            248.0 + width,
            y + 9,
        );
    }
    // Leave out the kernels, for lack of room. The paragraph above the table names them.
    let machine = machine();
    let machine = machine.split(", kernels").next().unwrap_or_default();
    let _ = writeln!(
        svg,
        "<text class=\"note left\" x=\"8\" y=\"{}\">tokens per second, one text; {}, \
         {machine}</text>\n</svg>",
        height - 18,
        last_part(args.model()),
    );
    svg
}

/// Returns the last component of a model's path.
pub fn last_part(model: &str) -> String {
    let last = Path::new(model).file_name().map(|name| name.to_string_lossy().into_owned());
    last.unwrap_or_else(|| model.to_string())
}
