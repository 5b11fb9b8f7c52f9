//! One picture of where stere stands: for each pair of file systems the ratio of every workload that was published, with its bar.
//!
//! Ratios are of medians of one run, and of the newest run that measured both sides. Nothing is measured here.
//! Read next: `bench/bars.rs` (the bars), `bench/report.rs` (how results are kept).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::bars::bars;
use super::plot::text;
use super::statistics::Summary;
use crate::error::{At, Result};
use crate::subject::Kind;

/// What is drawn beside each other.
const PAIRS: [(Kind, Kind, &str); 3] = [
    (Kind::Stere, Kind::Ext4, "one copy beside ext4"),
    (Kind::StereMirror, Kind::BtrfsRaid1, "two copies beside btrfs raid1"),
    (Kind::StereParity, Kind::BtrfsRaid5, "2+1 beside btrfs raid5"),
];

/// Rows in their order, and how they are called.
const ROWS: [(&str, &str); 20] = [
    ("seqwrite", "sequential write + fsync"),
    ("seqread_cold", "sequential read, cold"),
    ("randread4k_qd1", "random 4 KiB read, depth 1"),
    ("randread4k_qd16", "random 4 KiB read, depth 16"),
    ("randwrite4k_fs32", "random 4 KiB write, fsync each 32"),
    ("randwrite4k", "random 4 KiB write, one fsync"),
    ("sm_create", "create 4 KiB files, sync"),
    ("sm_create_fsync", "create, fsync each"),
    ("sm_stat_cold", "stat, cold"),
    ("sm_read_cold", "read back, cold"),
    ("sm_delete", "delete, sync"),
    ("postmark_small", "PostMark, small files"),
    ("postmark_large", "PostMark, larger files"),
    ("tree_untar", "untar sources, sync"),
    ("tree_find", "find, cold"),
    ("tree_grep_cold", "grep, cold"),
    ("tree_rm", "rm -rf, sync"),
    ("several_own_write", "8 writers"),
    ("several_mixed", "8 threads, 70/30"),
    ("pgbench", "PostgreSQL, pgbench"),
];

const PANEL_WIDTH: f64 = 430.0;
const NAME_WIDTH: f64 = 200.0;
const ROW_HEIGHT: f64 = 17.0;
const TOP: f64 = 44.0;
/// The scale is logarithmic, so that twice as fast is as long as half as fast.
const RATIO_MIN: f64 = 0.25;
const RATIO_MAX: f64 = 8.0;

/// Ratios by metric, of one pair.
type Ratios = BTreeMap<String, f64>;

/// Draws `docs/performance/ratios.svg` from `bench/published`.
pub fn run(root: &Path) -> Result<()> {
    let results = published(root)?;
    let height = TOP + ROW_HEIGHT * ROWS.len() as f64 + 40.0;
    let width = PANEL_WIDTH * PAIRS.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, (stere, peer, title)) in PAIRS.into_iter().enumerate() {
        let ratios = ratios_of(&results, stere, peer);
        draw_panel(&mut out, PANEL_WIDTH * at as f64, title, &ratios, |metric| bar_of(stere, peer, metric));
    }
    let note =
        "bars to the right: stere is faster; the black mark is the goal (green: met, red: missed, blue: there is none)";
    text(&mut out, width / 2.0, height - 8.0, "middle", note);
    out.push_str("</svg>\n");
    let picture = root.join("docs/performance/ratios.svg");
    fs::write(&picture, out).at("write", &picture)?;
    println!("drawn in {}", picture.display());
    Ok(())
}

/// Every published result with figures of file systems, the oldest first.
fn published(root: &Path) -> Result<Vec<Value>> {
    let folder = root.join("bench/published");
    let mut results = Vec::new();
    for entry in fs::read_dir(&folder).at("list", &folder)? {
        let path = entry.at("list", &folder)?.path();
        let Ok(value) = serde_json::from_str::<Value>(&fs::read_to_string(&path).at("read", &path)?) else { continue };
        results.push(value);
    }
    results.sort_by_key(|value| value["conditions"]["seconds_since_1970"].as_u64());
    Ok(results)
}

/// The ratios of medians of a pair, each from the newest run that measured both sides in the usual place: image files on disk.
fn ratios_of(results: &[Value], stere: Kind, peer: Kind) -> Ratios {
    let mut ratios = Ratios::new();
    let on_disk =
        |result: &&Value| result["conditions"]["images"].as_str().is_none_or(|images| images.contains("disk"));
    for result in results.iter().filter(on_disk) {
        for (metric, _) in ROWS {
            let median = |kind: Kind| median_of(result, metric, kind.name());
            if let (Some(ours), Some(theirs)) = (median(stere), median(peer)) {
                ratios.insert(metric.to_owned(), ours / theirs);
            }
        }
    }
    ratios
}

fn median_of(result: &Value, metric: &str, subject: &str) -> Option<f64> {
    let figures = result["figures"].as_array()?;
    let figure = figures.iter().find(|figure| figure["metric"] == metric && figure["subject"] == subject)?;
    let values: Vec<f64> = figure["values"].as_array()?.iter().filter_map(Value::as_f64).collect();
    Some(Summary::of(&values)?.median)
}

fn bar_of(stere: Kind, peer: Kind, metric: &str) -> Option<f64> {
    let bar = bars().into_iter().find(|bar| bar.stere == stere && bar.peer == peer && bar.metric == metric)?;
    Some(bar.ratio_min)
}

fn draw_panel(out: &mut String, left: f64, title: &str, ratios: &Ratios, bar_of: impl Fn(&str) -> Option<f64>) {
    let wide = PANEL_WIDTH - NAME_WIDTH - 50.0;
    let x_of = |ratio: f64| {
        let part = (ratio.clamp(RATIO_MIN, RATIO_MAX) / RATIO_MIN).log2() / (RATIO_MAX / RATIO_MIN).log2();
        left + NAME_WIDTH + part * wide
    };
    text(out, left + PANEL_WIDTH / 2.0, 18.0, "middle", title);
    let bottom = TOP + ROW_HEIGHT * ROWS.len() as f64;
    for ratio in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0] {
        let (x, colour) = (x_of(ratio), if ratio == 1.0 { "#888" } else { "#ddd" });
        // Writing to a string does not fail.
        let _ = writeln!(out, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{colour}\"/>");
        text(out, x, TOP - 6.0, "middle", &format!("{ratio}"));
    }
    for (at, (metric, name)) in ROWS.into_iter().enumerate() {
        let y = TOP + ROW_HEIGHT * at as f64;
        text(out, left + NAME_WIDTH - 8.0, y + 12.0, "end", name);
        let Some(ratio) = ratios.get(metric) else { continue };
        let bar = bar_of(metric);
        let colour = match bar {
            Some(bar) if *ratio >= bar => "#3a7d44",
            Some(_) => "#b23a48",
            None => "#1b6ca8",
        };
        let (from, to) = (x_of(ratio.min(1.0)), x_of(ratio.max(1.0)));
        let (wide, tall) = ((to - from).max(1.0), ROW_HEIGHT - 5.0);
        let top = y + 2.0;
        let _ = writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>"
        );
        if let Some(bar) = bar {
            let (x, end) = (x_of(bar), y + ROW_HEIGHT - 1.0);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{end:.1}\" stroke=\"black\" stroke-width=\"2\"/>"
            );
        }
        text(out, left + PANEL_WIDTH - 8.0, y + 12.0, "end", &format!("{ratio:.2}"));
    }
}

#[cfg(test)]
mod tests;
