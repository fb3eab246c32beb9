//! The table, and its three forms: text, JSON, and a plot and a page for the book.

use crate::contender::{Contender, Run};
use crate::ours::VERIFIED;
use crate::Args;
use anyhow::{Context as _, Result};
use benches::machine;
use serde_json::{json, Value};
use std::fmt::Write as _;
use std::path::Path;

/// All that was measured, in medians of rounds.
pub struct Report {
    json: Value,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

impl Report {
    /// Of these rounds. The bandwidth of a round is the median of what was read before and after it.
    pub fn new(
        args: &Args,
        contenders: &[Contender],
        rounds: &[Vec<Run>],
        probes: &[[f64; 2]],
        verify: &[Value],
        speculate: &[Value],
    ) -> Self {
        let roofs: Vec<f64> = probes.iter().map(|probe| median(probe.to_vec())).collect();
        // Of the same batch and weights; of ours, the first.
        let alike = |i: usize, j: usize| {
            contenders[i].batch == contenders[j].batch
                && contenders[i].weights() == contenders[j].weights()
        };
        let ours_of = |row: usize| (0..contenders.len()).find(|i| alike(*i, row)).unwrap_or(0);
        let bytes_of = |row: usize| rounds[ours_of(row)][0].bytes.filter(|bytes| *bytes > 0.0);
        let mut rows = vec![];
        for (i, Contender { name, batch, .. }) in contenders.iter().enumerate() {
            let tokens = (batch * (args.new - 1)) as f64;
            let ours = ours_of(i);
            let ratio = |seconds: fn(&Run) -> f64| {
                let pairs = rounds[ours].iter().zip(&rounds[i]);
                median(pairs.map(|(ours, theirs)| seconds(theirs) / seconds(ours)).collect())
            };
            let decode: Vec<f64> = rounds[i].iter().map(|run| tokens / run.decode_s).collect();
            let share = bytes_of(i).map(|bytes| {
                let passes = decode
                    .iter()
                    .zip(&roofs)
                    .map(|(rate, roof)| rate / *batch as f64 * bytes / roof);
                median(passes.collect())
            });
            let prompt = (batch * args.prompt) as f64;
            rows.push(json!({
                "name": name, "batch": batch,
                "prefill": median(rounds[i].iter().map(|run| prompt / run.prefill_s).collect()),
                "decode": median(decode),
                "ours_to_theirs_prefill": ratio(|run| run.prefill_s),
                "ours_to_theirs_decode": ratio(|run| run.decode_s),
                "bytes_a_token": bytes_of(i).map(|bytes| bytes / *batch as f64),
                "of_the_roofline": share,
                "same_tokens": rounds[i][0].tokens == rounds[ours][0].tokens,
            }));
        }
        let costs: Vec<f64> = (0..VERIFIED.len())
            .map(|i| {
                let cost = |round: &Value| {
                    let seconds = |i: usize| round["seconds"][i].as_f64().unwrap_or(f64::NAN);
                    seconds(i) / seconds(0)
                };
                median(verify.iter().map(cost).collect())
            })
            .collect();
        let drafts: Vec<Value> = (0..3)
            .map(|i| {
                let gain = |round: &Value| {
                    let row = &round["rows"][i];
                    round["plain_s"].as_f64().unwrap_or(f64::NAN)
                        / row["seconds"].as_f64().unwrap_or(f64::NAN)
                };
                let row = &speculate[0]["rows"][i];
                json!({ "k": row["k"], "a_pass": row["a_pass"], "same": row["same"],
                    "gain": median(speculate.iter().map(gain).collect()) })
            })
            .collect();
        let json = json!({
            "machine": machine::words(), "commit": machine::commit(), "model": args.model.rsplit('/').next(),
            "prompt": args.prompt, "new": args.new, "rounds": args.rounds,
            "bandwidth_gb_s": probes.iter().flatten().map(|b| (b / 1e8).round() / 10.0).collect::<Vec<_>>(),
            "rows": rows,
            "verify": VERIFIED.iter().zip(costs).map(|(m, cost)| json!({ "tokens": m, "cost": cost })).collect::<Vec<_>>(),
            "speculate": drafts,
        });
        Self { json }
    }

    /// The table as text; it is a table of Markdown too.
    pub fn table(&self) -> String {
        let json = &self.json;
        let mut out = format!(
            "{}, commit {}. {}, a prompt of {}, {} new tokens, medians of {} rounds. Memory read {} GB/s before and after the rounds.\n\n",
            text(&json["machine"]), text(&json["commit"]), text(&json["model"]), json["prompt"], json["new"], json["rounds"],
            json["bandwidth_gb_s"].as_array().into_iter().flatten().map(|b| format!("{:.0}", number(b))).collect::<Vec<_>>().join(", "),
        );
        out += "| engine, weights | batch | prefill, tokens/s | decode, tokens/s | ours is faster: prefill | decode | MB per token | of the roofline | tokens |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n";
        for row in json["rows"].as_array().into_iter().flatten() {
            let or = |key: &str, scale: f64, unit: &str| {
                row[key].as_f64().map_or("–".into(), |n| format!("{:.0}{unit}", n * scale))
            };
            let _ = writeln!(
                out,
                "| {} | {} | {:.0} | {:.1} | {:.2} | {:.2} | {} | {} | {} |",
                text(&row["name"]),
                row["batch"],
                number(&row["prefill"]),
                number(&row["decode"]),
                number(&row["ours_to_theirs_prefill"]),
                number(&row["ours_to_theirs_decode"]),
                or("bytes_a_token", 1e-6, ""),
                or("of_the_roofline", 100.0, " %"),
                if row["same_tokens"] == true { "equal" } else { "other" },
            );
        }
        out += "\n| tokens in a pass | its cost, in passes of one |\n|--:|--:|\n";
        for row in json["verify"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "| {} | {:.2} |", row["tokens"], number(&row["cost"]));
        }
        out +=
            "\n| drafts of | tokens per pass | faster on the clock | text |\n|--:|--:|--:|---|\n";
        for row in json["speculate"].as_array().into_iter().flatten() {
            let same = if row["same"] == true { "equal" } else { "other" };
            let _ = writeln!(
                out,
                "| {} | {:.2} | {:.2} | {same} |",
                row["k"],
                number(&row["a_pass"]),
                number(&row["gain"])
            );
        }
        out
    }

    /// Writes engine.json, engine.md and engine.svg.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let write = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text)
                .with_context(|| dir.join(name).display().to_string())
        };
        write("engine.json", &(serde_json::to_string_pretty(&self.json)? + "\n"))?;
        write("engine.md", &self.table())?;
        write("engine.svg", &self.plot())
    }

    /// Bars: tokens a second of every engine that decodes one text.
    fn plot(&self) -> String {
        let single = |row: &&Value| row["batch"] == 1;
        let rows: Vec<&Value> =
            self.json["rows"].as_array().into_iter().flatten().filter(single).collect();
        let most = rows.iter().map(|row| number(&row["decode"])).fold(1.0, f64::max);
        let height = 60 + 26 * rows.len();
        let mut svg = format!("<svg viewBox=\"0 0 720 {height}\" role=\"img\" aria-label=\"Tokens a second of each engine, decoding one text\">\n");
        for (i, row) in rows.iter().enumerate() {
            let (name, rate, y) = (text(&row["name"]), number(&row["decode"]), 14 + 26 * i);
            let role = if name.starts_with("candecode") { "kept" } else { "known" };
            let width = 380.0 * rate / most;
            let _ = writeln!(
                svg,
                "<text class=\"note right\" x=\"230\" y=\"{}\">{name}</text>\n<g class=\"{role}\"><rect class=\"bar\" x=\"240\" y=\"{y}\" width=\"{width:.1}\" height=\"18\"/></g>\n<text class=\"note left\" x=\"{:.1}\" y=\"{}\">{rate:.1}</text>",
                y + 9, 248.0 + width, y + 9,
            );
        }
        // What the kernels are made of stands above the table; a line of the figure is too short for it.
        let machine = text(&self.json["machine"]).split(", kernels").next().unwrap_or("?");
        let _ = writeln!(
            svg,
            "<text class=\"note left\" x=\"8\" y=\"{}\">tokens a second, one text; {}, {machine}, commit {}</text>\n</svg>",
            height - 18, text(&self.json["model"]), text(&self.json["commit"]),
        );
        svg
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
