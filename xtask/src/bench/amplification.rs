//! `cargo xtask bench amplification`: device bytes for each byte the user writes, over how full the pool is.
//!
//! The work is the example `amplification`: one device in memory, nothing depends on time, so one run says it all. How full is
//! meant as users see it, in `df`; one row tells of 80 % of all slots, which leaves less room than that. The curve
//! beside it is what a log with a greedy cleaner costs at best under uniform overwrites (Rosenblum 1992; Robinson 1996):
//! at utilisation a the emptiest segments are as full as u, where a = (u - 1) / ln u, and each byte costs 1 / (1 - u).

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::BenchArguments;
use super::plot::{Chart, Series, draw_charts};
use super::report::save_value;
use crate::command::{MINUTE, capture};
use crate::error::{At, Result, XtaskError};
use crate::subject::cargo;

/// Beside the best there is for content alone, at 80 % full under uniform overwrites.
const BAR: f64 = 1.15;

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let mebibytes = if arguments.quick { "256" } else { "1024" };
    let words = ["run", "--release", "--quiet", "-p", "stere-naming", "--example", "amplification", "--", mebibytes];
    let printed = capture(&mut cargo(root, &words), 60 * MINUTE)?;
    let rows: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut percents: Vec<u64> = rows.iter().filter_map(|row| row["percent"].as_u64()).collect();
    percents.sort_unstable();
    percents.dedup();
    if percents.is_empty() {
        return Err(XtaskError::found(format!("the example printed no figures: {printed}")));
    }
    for row in &rows {
        println!("{row}");
    }
    let aged = find(&rows, "cost-benefit", "uniform", 80, "aged");
    if let Some(aged) = aged {
        let ratio = aged / best_possible(0.8);
        let word = if ratio <= BAR { "met" } else { "MISSED" };
        println!("uniform, 80 % full: {aged:.2}, {ratio:.2} times the best for content alone; at most {BAR}: {word}");
    }
    let charts = ["fresh", "aged"].map(|age| chart(&rows, &percents, age));
    let folder = root.join(if arguments.publish { "docs/performance" } else { "bench/results" });
    fs::create_dir_all(&folder).at("mkdir", &folder)?;
    let picture = folder.join("amplification.svg");
    fs::write(&picture, draw_charts(&charts)).at("write", &picture)?;
    let best: Vec<Value> = percents
        .iter()
        .map(|percent| json!({ "percent": percent, "best": best_possible(*percent as f64 / 100.0) }))
        .collect();
    let value = json!({ "amplification": rows, "best_for_content_alone": best });
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}

fn find(rows: &[Value], cleaner: &str, pattern: &str, percent: u64, age: &str) -> Option<f64> {
    let is_it = |row: &&Value| {
        let is_of_it = row["cleaner"] == cleaner && row["pattern"] == pattern && row["percent"] == percent;
        is_of_it && row["of"] == "df"
    };
    rows.iter().find(is_it)?[age].as_f64()
}

fn chart(rows: &[Value], percents: &[u64], age: &str) -> Chart {
    let mut series = Vec::new();
    for cleaner in ["cost-benefit", "greedy"] {
        for pattern in ["uniform", "80/20"] {
            let values = percents.iter().map(|percent| find(rows, cleaner, pattern, *percent, age)).collect();
            series.push(Series { label: format!("{pattern}, {cleaner}"), values });
        }
    }
    if age == "aged" {
        let values = percents.iter().map(|percent| Some(best_possible(*percent as f64 / 100.0))).collect();
        series.push(Series { label: "best for content alone, uniform".into(), values });
    }
    Chart {
        title: age.to_owned(),
        x_label: "percent of what df promises",
        y_label: "device bytes / user bytes",
        ticks: percents.iter().map(u64::to_string).collect(),
        series,
    }
}

/// 1 / (1 - u) where utilisation = (u - 1) / ln u, by halving.
fn best_possible(utilisation: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let middle: f64 = f64::midpoint(low, high);
        let reached = (middle - 1.0) / middle.ln();
        if reached < utilisation { low = middle } else { high = middle }
    }
    1.0 / (1.0 - low)
}
