//! Plots of the measurements for the book: SVG in the house style, with classes instead of colors.

use crate::shared::root;
use anyhow::{anyhow, Context as _, Result};
use candecode_book::figures;
use std::fmt::Write as _;
use std::path::Path;

/// An axis, with its name, bounds and labels.
#[derive(Clone)]
pub struct Axis {
    name: &'static str,
    low: f64,
    high: f64,
    log: bool,
    labels: Vec<(f64, String)>,
}

impl Axis {
    /// Returns a linear axis, numbered at `ticks`.
    pub fn linear(name: &'static str, (low, high): (f64, f64), ticks: &[f64]) -> Self {
        let labels = ticks.iter().map(|at| (*at, at.to_string())).collect();
        Self { name, low, high, log: false, labels }
    }

    /// Returns a logarithmic axis, numbered at `ticks`.
    pub fn log(name: &'static str, bounds: (f64, f64), ticks: &[f64]) -> Self {
        Self { log: true, ..Self::linear(name, bounds, ticks) }
    }

    /// Replaces the numbers at the ticks with words.
    pub fn with_labels(mut self, labels: &[&str]) -> Self {
        for (label, words) in self.labels.iter_mut().zip(labels) {
            label.1 = words.to_string();
        }
        self
    }

    /// Returns a value's place on the axis, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.log { v.log10() } else { v };
        let value = value.clamp(self.low, self.high);
        (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
    }
}

/// A plot of 720 by 330 units. The data area is 70 to 690 by 40 to 270. A role, such as `kept`, is
/// a class in the book's `figures.css`.
pub struct Plot {
    svg: String,
    x: Axis,
    y: Axis,
}

impl Plot {
    /// Draws the axes. `label` describes the plot for screen readers.
    pub fn new(label: &str, x: Axis, y: Axis) -> Self {
        let mut svg = open(330, label);
        svg += "<path class=\"axis\" d=\"M70 40V270H690\"/>\n";
        let mut plot = Self { svg, x, y };
        for (value, label) in &plot.x.labels {
            let x = 70.0 + 620.0 * plot.x.share(*value);
            let _ = writeln!(
                plot.svg,
                "<path class=\"axis\" d=\"M{x:.1} 270V275\"/><text \
                class=\"note\" x=\"{x:.1}\" y=\"287\">{label}</text>"
            );
        }
        for (value, label) in &plot.y.labels {
            let y = 270.0 - 230.0 * plot.y.share(*value);
            let _ = writeln!(
                plot.svg,
                "<path class=\"axis dashed\" d=\"M70 {y:.1}H690\"/><text \
                class=\"note right\" x=\"62\" y=\"{y:.1}\">{label}</text>"
            );
        }
        let (x, y) = (plot.x.name, plot.y.name);
        let _ = writeln!(
            plot.svg,
            "<text class=\"note\" x=\"380\" y=\"314\">{x}</text>\n<text \
            class=\"note left\" x=\"8\" y=\"18\">{y}</text>"
        );
        plot
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (70.0 + 620.0 * self.x.share(x), 270.0 - 230.0 * self.y.share(y))
    }

    /// Draws a line through points.
    pub fn line(&mut self, role: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (i, point) in points.iter().enumerate() {
            let (x, y) = self.at(*point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.svg, "<path class=\"plot {role}\" d=\"{path}\"/>");
    }

    /// Draws a dot at each point.
    pub fn dots(&mut self, role: &str, points: &[(f64, f64)]) {
        let _ = writeln!(self.svg, "<g class=\"{role}\">");
        for point in points {
            let (x, y) = self.at(*point);
            let dot = format!("<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n");
            self.svg += &dot;
        }
        self.svg += "</g>\n";
    }

    /// Draws a line with dots.
    pub fn series(&mut self, role: &str, points: &[(f64, f64)]) {
        self.line(role, points);
        self.dots(role, points);
    }

    /// Draws the reference's points beside the reader's, and says in the corner what they are.
    pub fn beside(&mut self, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        self.dots("known", points);
        self.svg +=
            "<text class=\"note right\" x=\"690\" y=\"18\">gray dots: the reference, here</text>\n";
    }

    /// Draws a vertical line.
    pub fn upright(&mut self, x: f64) {
        let (x, _) = self.at((x, self.y.low));
        let _ = writeln!(self.svg, "<path class=\"wire dashed\" d=\"M{x:.1} 40V270\"/>");
    }

    /// Writes words next to a point, offset by `(dx, dy)` units. `side` is a class.
    pub fn words(&mut self, side: &str, point: (f64, f64), (dx, dy): (f64, f64), words: &str) {
        let (x, y) = self.at(point);
        let (x, y) = (x + dx, y + dy);
        let text =
            format!("<text class=\"note {side}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n");
        self.svg += &text;
    }

    /// Writes the plot to a folder.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(self, folder: &Path, name: &str) -> Result<()> {
        save(folder, name, &(self.svg + "</svg>\n"))
    }
}

/// Returns the powers of ten that enclose two values.
pub fn tens(least: f64, most: f64) -> Vec<f64> {
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (low..=high).map(|n| 10f64.powi(n)).collect()
}

/// Returns the opening tag of a figure that is 720 units wide.
pub fn open(height: usize, label: &str) -> String {
    format!("<svg viewBox=\"0 0 720 {height}\" role=\"img\" aria-label=\"{label}\">\n")
}

/// Writes a result to a folder, which is created if necessary, and says where it is. A plot gets
/// the style of the book's figures.
///
/// # Errors
/// If the file can't be written.
pub fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut text = text.to_string();
    if name.ends_with(".svg") {
        let css = root().join(figures::CSS);
        let css = std::fs::read_to_string(&css).with_context(|| css.display().to_string())?;
        let drawn = figures::standalone(&css, &text);
        text = drawn.map_err(|(line, why)| anyhow!("{name}:{line}: {why}"))?;
    }
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    eprintln!("{}", file.display());
    Ok(())
}
