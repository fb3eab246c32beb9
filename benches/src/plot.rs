//! Plots of what was measured, for the book: SVG in its house style.

use std::fmt::Write as _;

/// A plot of 720 by 330 units; data to 70 … 690 by 40 … 270.
pub struct Plot {
    svg: String,
    x: (f64, f64),
    y: (f64, f64),
    /// Whether the x axis and the y axis are logarithmic.
    log: (bool, bool),
}

impl Plot {
    /// An empty frame for data between these bounds; `log`: whether x and y are logarithmic.
    pub fn new(label: &str, x: (f64, f64), y: (f64, f64), log: (bool, bool)) -> Self {
        let svg = format!("<svg viewBox=\"0 0 720 330\" role=\"img\" aria-label=\"{label}\">\n<path class=\"axis\" d=\"M70 40V270H690\"/>\n");
        Self { svg, x, y, log }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |v: f64, (low, high): (f64, f64), log: bool| {
            let scale = |v: f64| if log { v.log10() } else { v };
            (scale(v.clamp(low, high)) - scale(low)) / (scale(high) - scale(low))
        };
        let (right, up) = (share(x, self.x, self.log.0), share(y, self.y, self.log.1));
        (70.0 + 620.0 * right, 270.0 - 230.0 * up)
    }

    /// A label on the x axis.
    pub fn tick_x(&mut self, x: f64, label: &str) {
        let (x, _) = self.at(x, self.y.0);
        let _ = writeln!(self.svg, "<path class=\"axis\" d=\"M{x:.1} 270V275\"/><text class=\"note\" x=\"{x:.1}\" y=\"287\">{label}</text>");
    }

    /// A label on the y axis, with a faint line across.
    pub fn tick_y(&mut self, y: f64, label: &str) {
        let (_, y) = self.at(self.x.0, y);
        let _ = writeln!(self.svg, "<path class=\"axis dashed\" d=\"M70 {y:.1}H690\"/><text class=\"note right\" x=\"62\" y=\"{y:.1}\">{label}</text>");
    }

    /// What the axes are.
    pub fn axes(&mut self, x: &str, y: &str) {
        let _ = writeln!(self.svg, "<text class=\"note\" x=\"380\" y=\"314\">{x}</text>\n<text class=\"note left\" x=\"8\" y=\"18\">{y}</text>");
    }

    /// A line through points.
    pub fn line(&mut self, role: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let (x, y) = self.at(*x, *y);
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.svg, "<path class=\"plot {role}\" d=\"{path}\"/>");
    }

    /// Dots.
    pub fn dots(&mut self, role: &str, points: &[(f64, f64)]) {
        let _ = writeln!(self.svg, "<g class=\"{role}\">");
        for (x, y) in points {
            let (x, y) = self.at(*x, *y);
            let _ =
                writeln!(self.svg, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        }
        self.svg += "</g>\n";
    }

    /// A vertical line.
    pub fn upright(&mut self, x: f64) {
        let (x, _) = self.at(x, self.y.0);
        let _ = writeln!(self.svg, "<path class=\"wire dashed\" d=\"M{x:.1} 40V270\"/>");
    }

    /// Words beside the point `(x, y)`, moved by `(dx, dy)` units.
    pub fn words(&mut self, side: &str, (x, y): (f64, f64), (dx, dy): (f64, f64), words: &str) {
        let (x, y) = self.at(x, y);
        let _ = writeln!(
            self.svg,
            "<text class=\"note {side}\" x=\"{:.1}\" y=\"{:.1}\">{words}</text>",
            x + dx,
            y + dy
        );
    }

    /// Writes it to `book/src/bench/`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(mut self, name: &str) -> std::io::Result<()> {
        self.svg += "</svg>\n";
        write(name, &self.svg)
    }
}

fn write(name: &str, svg: &str) -> std::io::Result<()> {
    std::fs::write(crate::root().join("book/src/bench").join(name), svg)
}

/// How many rows every pass had: in static batches above, in one running batch below.
///
/// # Errors
/// If the file cannot be written.
pub fn rows(name: &str, fixed: &[usize], running: &[usize], ratio: f64) -> std::io::Result<()> {
    let size = fixed.iter().chain(running).copied().max().unwrap_or(1);
    let mut svg = String::from(
        "<svg viewBox=\"0 0 720 330\" role=\"img\" aria-label=\"Rows in every decoding pass: static batches run down to one row, one after another; the running batch stays full almost to the end, and needs fewer passes.\">\n",
    );
    let width = 600.0 / fixed.len().max(running.len()) as f64;
    for (rows, top, role, name) in
        [(fixed, 50.0, "known", "static batches"), (running, 200.0, "kept", "one running batch")]
    {
        let base = top + 12.0 * size as f64;
        let _ = writeln!(
            svg,
            "<text class=\"left strong\" x=\"70\" y=\"{}\">{name}: {} passes</text>",
            top - 14.0,
            rows.len()
        );
        for count in [size, 0] {
            let y = base - 12.0 * count as f64;
            let _ = writeln!(svg, "<text class=\"right note\" x=\"60\" y=\"{y}\">{count}</text>");
        }
        let _ = writeln!(svg, "<g class=\"{role}\">");
        for (i, count) in rows.iter().enumerate() {
            let (x, high) = (70.0 + width * i as f64, 12.0 * *count as f64);
            let _ = writeln!(svg, "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{high:.1}\"/>", base - high);
        }
        let _ = writeln!(svg, "</g>\n<path class=\"axis\" d=\"M70 {base}H670\"/>");
    }
    let _ = writeln!(svg, "<text class=\"note\" x=\"370\" y=\"318\">decoding passes, in order; height: rows in the pass. Tokens per second, running / static: {ratio:.2}</text>\n</svg>");
    write(name, &svg)
}
