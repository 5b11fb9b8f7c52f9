//! HighLight's tables (Kohl and others, 1993) and what was measured here, in one picture. Nothing is measured here.
//!
//! Figures come from `bench/published/tier-*.json`, which `bench/tier.sh` writes, and the test of tape libraries prints; a figure that
//! nobody published is left out. Read next: `docs/performance/highlight.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::plot::{Chart, Series, draw_charts};
use super::statistics::Summary;
use crate::error::{At, Result};

/// What the paper reports, and what is asked of stere; `None` where there is no such figure.
struct Row {
    tick: &'static str,
    metric: &'static str,
    paper: Option<f64>,
    bar: Option<f64>,
}

/// Table 2: seconds of a fetched file, parted by transfer and latency; the paper's are 3.73, 8.22 and 44.23 s.
const DELAYS: [Row; 3] = [
    Row { tick: "100 KB", metric: "fetched-100K-of-bound", paper: Some(3.73 / 0.32), bar: Some(1.1) },
    Row { tick: "1 MB", metric: "fetched-1M-of-bound", paper: Some(8.22 / 2.37), bar: Some(1.1) },
    Row { tick: "10 MB", metric: "fetched-10M-of-bound", paper: Some(44.23 / 22.81), bar: Some(1.1) },
];

/// Tables 3 to 5: migration as a part of the tertiary device's own rate.
const MIGRATION: [Row; 2] = [
    Row { tick: "disks idle", metric: "archive-of-put-and-get-idle", paper: Some(0.94), bar: Some(0.95) },
    Row { tick: "disks busy", metric: "archive-of-put-and-get-busy", paper: Some(0.54), bar: Some(0.85) },
];

/// A reader beside copying out at a rate: its rate as a part of that alone.
const BESIDE: [Row; 1] = [Row { tick: "beside", metric: "read-slowed-to", paper: None, bar: Some(0.9) }];

/// Draws `docs/performance/highlight.svg` from `bench/published`.
pub fn run(root: &Path) -> Result<()> {
    let figures = published(&root.join("bench/published"))?;
    let charts = [
        chart("table 2: fetched file", "of transfer + latency", &DELAYS, &figures),
        chart("tables 3 to 5: migration", "of the volume's own rate", &MIGRATION, &figures),
        chart("a reader beside migration", "of its rate alone", &BESIDE, &figures),
    ];
    let picture = root.join("docs/performance/highlight.svg");
    fs::write(&picture, draw_charts(&charts)).at("write", &picture)?;
    println!("drawn in {}", picture.display());
    Ok(())
}

/// Medians by metric.
fn published(folder: &Path) -> Result<BTreeMap<String, f64>> {
    let mut medians = BTreeMap::new();
    for entry in fs::read_dir(folder).at("list", folder)? {
        let path = entry.at("list", folder)?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tier-"));
        if !is_ours {
            continue;
        }
        let Ok(value) = serde_json::from_str::<Value>(&fs::read_to_string(&path).at("read", &path)?) else { continue };
        medians.extend(medians_of(&value));
    }
    Ok(medians)
}

fn medians_of(result: &Value) -> Vec<(String, f64)> {
    let figures = result["figures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let median = |figure: &Value| {
        let values: Vec<f64> = figure["values"].as_array()?.iter().filter_map(Value::as_f64).collect();
        Some((figure["metric"].as_str()?.to_owned(), Summary::of(&values)?.median))
    };
    figures.iter().filter_map(median).collect()
}

fn chart(title: &str, y_label: &'static str, rows: &[Row], figures: &BTreeMap<String, f64>) -> Chart {
    let series = |label: &str, values: Vec<Option<f64>>| Series { label: label.to_owned(), values };
    let all = [
        series("stere", rows.iter().map(|row| figures.get(row.metric).copied()).collect()),
        series("HighLight", rows.iter().map(|row| row.paper).collect()),
        series("what is asked", rows.iter().map(|row| row.bar).collect()),
    ];
    let ticks = rows.iter().map(|row| row.tick.to_owned()).collect();
    let series = all.into_iter().filter(|series| series.values.iter().any(Option::is_some)).collect();
    Chart { title: title.to_owned(), y_label, x_label: "", ticks, series }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn medians_are_drawn_and_what_was_not_measured_is_left_out() {
        let result = json!({"figures": [{"metric": "archive-of-put-and-get-idle", "values": [0.87, 1.54, 0.95]}]});
        let figures: BTreeMap<String, f64> = medians_of(&result).into_iter().collect();
        let chart = chart("migration", "", &MIGRATION, &figures);
        assert_eq!(chart.series[0].values, [Some(0.95), None]);
        let beside = super::chart("beside", "", &BESIDE, &figures);
        assert_eq!(beside.series.iter().map(|series| series.label.as_str()).collect::<Vec<_>>(), ["what is asked"]);
    }
}
