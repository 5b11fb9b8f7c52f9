//! A chart as SVG: axes with marks, lines, and a legend. Text only, the same for the same points.
//!
//! Invariants: every number in the text has a fixed count of digits; points outside of the axes are drawn at their edge; names
//! are escaped. Read next: `picture.rs`.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Distinguished by eyes that see few colours, too (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly from one end to the other.
    Even { low: f64, high: f64 },
    /// By powers; both ends are above zero.
    Powers { low: f64, high: f64, base: f64 },
}

impl Scale {
    /// Where a value lies, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Even { low, high } => (value - low) / (high - low),
            Scale::Powers { low, high, .. } => (value.max(low) / low).ln() / (high / low).ln(),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Values at which the axis has marks, at most about ten.
    fn marks(self) -> Vec<f64> {
        match self {
            Scale::Even { low, high } => (0..=5).map(|step| low + (high - low) * f64::from(step) / 5.0).collect(),
            Scale::Powers { low, high, base } => {
                let (first, last) =
                    ((low.ln() / base.ln()).ceil() as i32, (high.ln() / base.ln() + 1e-9).floor() as i32);
                let step = ((last - first) / 8 + 1).max(1);
                (first..=last).step_by(step as usize).map(|power| base.powi(power)).collect()
            }
        }
    }

    fn check(self) {
        match self {
            Scale::Even { low, high } => assert!(low < high, "an axis from {low} to {high}"),
            Scale::Powers { low, high, base } => {
                assert!(0.0 < low && low < high && base > 1.0, "an axis from {low} to {high} by {base}");
            }
        }
    }
}

/// One axis.
pub struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    /// How a mark is written.
    pub text: fn(f64) -> String,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// From point to point.
    Line,
    /// At the height of a point until the next one.
    Steps,
    /// Dashed, from point to point.
    Dashes,
    /// Points only.
    Dots,
}

/// One line of a chart.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub stroke: Stroke,
}

/// A chart.
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

fn escaped(text: &str) -> String {
    let text: String = text.chars().map(|character| if character.is_control() { '?' } else { character }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (across, up) = (self.x.scale.place(x), self.y.scale.place(y));
        (LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM))
    }

    /// The chart as a file.
    pub fn svg(&self) -> String {
        self.x.scale.check();
        self.y.scale.check();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n<text x=\"{LEFT}\" y=\"20\" \
             font-size=\"14\">{}</text>\n",
            escaped(&self.title)
        );
        self.put_axes(&mut out);
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            self.put_series(&mut out, series, colour);
            let y = TOP + 14.0 + 18.0 * number as f64;
            let x = WIDTH - RIGHT + 10.0;
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\n<text x=\"{}\" y=\"{y:.1}\">{}</text>",
                y - 6.0,
                x + 17.0,
                escaped(&series.name)
            );
        }
        out.push_str("</svg>\n");
        assert!(out.starts_with("<svg") && out.ends_with("</svg>\n"), "a whole file");
        out
    }

    fn put_axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for mark in self.x.scale.marks() {
            let x = LEFT + self.x.scale.place(mark) * (right - LEFT);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\n<text x=\"{x:.1}\" y=\"{}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                escaped(&(self.x.text)(mark))
            );
        }
        for mark in self.y.scale.marks() {
            let y = bottom - self.y.scale.place(mark) * (bottom - TOP);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n<text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escaped(&(self.y.text)(mark))
            );
        }
        let (middle, height) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let _ = writeln!(
            out,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n<text transform=\"translate(16 {height:.1}) \
             rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 14.0,
            escaped(self.x.label),
            escaped(self.y.label)
        );
    }

    fn put_series(&self, out: &mut String, series: &Series, colour: &str) {
        let places: Vec<(f64, f64)> = series.points.iter().map(|point| self.at(*point)).collect();
        if series.stroke == Stroke::Dots {
            for (x, y) in places {
                let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
            return;
        }
        let mut path = String::new();
        for (index, (x, y)) in places.iter().enumerate() {
            let _ = match (index, series.stroke) {
                (0, _) => write!(path, "M{x:.1} {y:.1}"),
                (_, Stroke::Steps) => write!(path, "H{x:.1}V{y:.1}"),
                _ => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        if series.stroke == Stroke::Steps && !path.is_empty() {
            // What the last point says holds to the end of the axis.
            let _ = write!(path, "H{:.1}", WIDTH - RIGHT);
        }
        let dashes = if series.stroke == Stroke::Dashes { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>");
    }
}
