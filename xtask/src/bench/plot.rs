//! Pictures of measurements: lines over time in a row of panels, as SVG, drawn here because so little is needed.

use std::fmt::Write;

/// A line through points (x in seconds, y in percent), and a word on it.
pub struct Line {
    pub points: Vec<(f64, f64)>,
    pub label: String,
}

/// Lines that follow each other on one time axis.
pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
const MARGIN_LEFT: f64 = 52.0;
const MARGIN: f64 = 34.0;
const COLOURS: [&str; 3] = ["#1b6ca8", "#b8651b", "#8c2f39"];

/// Draws the panels beside each other; y goes from 0 to 100.
pub fn draw(x_label: &str, y_label: &str, panels: &[Panel]) -> String {
    let (width, height) = (WIDTH * panels.len() as f64, HEIGHT + 40.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut out, panel, WIDTH * at as f64, (x_label, y_label));
    }
    out.push_str("</svg>\n");
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    // Writing to a string does not fail.
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn draw_panel(out: &mut String, panel: &Panel, left: f64, (x_label, y_label): (&str, &str)) {
    let last = panel.lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    let x_of = |x: f64| left + MARGIN_LEFT + x / last * (WIDTH - MARGIN_LEFT - MARGIN / 2.0);
    let y_of = |y: f64| MARGIN + (1.0 - y / 100.0) * (HEIGHT - MARGIN);
    text(out, left + WIDTH / 2.0, 18.0, "middle", &panel.title);
    for percent in [0.0, 33.0, 67.0, 100.0] {
        let y = y_of(percent);
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
            x_of(0.0),
            x_of(last)
        );
        text(out, x_of(0.0) - 6.0, y + 4.0, "end", &format!("{percent:.0}"));
    }
    let (x, y) = (left + 12.0, y_of(50.0));
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{y_label}</text>"
    );
    text(out, x_of(last / 2.0), HEIGHT + 30.0, "middle", x_label);
    for (at, line) in panel.lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<String> = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        let (Some(first), Some(end)) = (line.points.first(), line.points.last()) else { continue };
        if at > 0 {
            let x = x_of(first.0);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>",
                y_of(0.0),
                y_of(100.0)
            );
        }
        let middle = x_of(f64::midpoint(first.0, end.0));
        let lost = match at {
            0 => "all devices".to_owned(),
            1 => "1 lost".to_owned(),
            more => format!("{more} lost"),
        };
        text(out, middle, y_of(0.0) - 24.0, "middle", &lost);
        text(out, middle, y_of(0.0) - 9.0, "middle", &line.label);
        text(out, x_of(first.0), HEIGHT + 14.0, "middle", &format!("{:.0}", first.0));
    }
}
