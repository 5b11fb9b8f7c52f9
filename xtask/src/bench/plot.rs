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

/// A line of words at a place; `anchor` is SVG's start, middle or end.
pub fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
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

/// Lines over named places on the x axis, y from 0 to a little above the largest.
pub struct Chart {
    pub title: String,
    pub y_label: &'static str,
    pub x_label: &'static str,
    pub ticks: Vec<String>,
    pub series: Vec<Series>,
}

/// A value at each tick, where there is one.
pub struct Series {
    pub label: String,
    pub values: Vec<Option<f64>>,
}

const SERIES_COLOURS: [&str; 8] =
    ["#1b6ca8", "#b8651b", "#3a7d44", "#8c2f39", "#6a4c93", "#4f5d75", "#b59f3b", "#2a9d8f"];
const LEGEND_LINE: f64 = 14.0;

/// Draws the charts beside each other, each with its legend below.
pub fn draw_charts(charts: &[Chart]) -> String {
    let legend = charts.iter().map(|chart| chart.series.len()).max().unwrap_or(0) as f64 * LEGEND_LINE;
    let (width, height) = (WIDTH * charts.len() as f64, HEIGHT + 50.0 + legend);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        draw_chart(&mut out, chart, WIDTH * at as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn draw_chart(out: &mut String, chart: &Chart, left: f64) {
    let values = chart.series.iter().flat_map(|series| series.values.iter().flatten());
    let top = round_up(values.copied().fold(0.0, f64::max));
    let step = (WIDTH - MARGIN_LEFT - MARGIN) / (chart.ticks.len().max(2) - 1) as f64;
    let x_of = |at: usize| left + MARGIN_LEFT + at as f64 * step;
    let y_of = |y: f64| MARGIN + (1.0 - y / top) * (HEIGHT - MARGIN);
    text(out, left + WIDTH / 2.0, 18.0, "middle", &chart.title);
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let (y, end) = (y_of(value), left + WIDTH - MARGIN);
        let _ =
            writeln!(out, "<line x1=\"{:.1}\" x2=\"{end:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>", x_of(0));
        let label = if top < 20.0 { format!("{value:.1}") } else { format!("{value:.0}") };
        text(out, x_of(0) - 6.0, y + 4.0, "end", &label);
    }
    let (x, y) = (left + 12.0, y_of(top / 2.0));
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{}</text>",
        chart.y_label
    );
    for (at, tick) in chart.ticks.iter().enumerate() {
        text(out, x_of(at), HEIGHT + 14.0, "middle", tick);
    }
    text(out, left + WIDTH / 2.0, HEIGHT + 30.0, "middle", chart.x_label);
    for (at, series) in chart.series.iter().enumerate() {
        let colour = SERIES_COLOURS[at % SERIES_COLOURS.len()];
        let points: Vec<String> = (series.values.iter().enumerate())
            .filter_map(|(at, value)| value.map(|value| format!("{:.1},{:.1}", x_of(at), y_of(value))))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        let y = HEIGHT + 46.0 + at as f64 * LEGEND_LINE;
        let (start, end) = (left + MARGIN_LEFT, left + MARGIN_LEFT + 20.0);
        let _ = writeln!(
            out,
            "<line x1=\"{start:.1}\" x2=\"{end:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        text(out, end + 6.0, y + 4.0, "start", &series.label);
    }
}

/// The next of 1, 2, 4, 5, 10, 20 and so on.
fn round_up(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 4.0, 5.0, 10.0].into_iter().map(|step| step * magnitude).find(|top| *top >= value).unwrap_or(value)
}
