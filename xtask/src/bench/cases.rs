//! Cases that are measured in turn: values by case and metric, ratios between cases, bars on them; printed and as JSON.
//!
//! For benches that compare stere with itself in another state; `compare.rs` is for file systems beside each other.

use serde_json::{Value, json};

use super::statistics::Summary;

/// Values of one metric of one case, a value each round.
#[derive(Debug)]
struct Row {
    case: &'static str,
    metric: String,
    unit: String,
    values: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Cases {
    rows: Vec<Row>,
}

/// One case's median over another's, and what it should be.
#[derive(Debug, Clone, Copy)]
pub struct CaseBar {
    pub what: &'static str,
    pub metric: &'static str,
    pub case: &'static str,
    pub beside: &'static str,
    pub ratio_min: f64,
}

impl Cases {
    pub fn add(&mut self, case: &'static str, metric: &str, unit: &str, value: f64) {
        match self.rows.iter_mut().find(|row| row.case == case && row.metric == metric) {
            Some(row) => row.values.push(value),
            None => self.rows.push(Row { case, metric: metric.into(), unit: unit.into(), values: vec![value] }),
        }
    }

    /// Those of these metrics that one turn of the workload driver printed.
    pub fn add_printed(&mut self, case: &'static str, printed: &str, wanted: &[&str]) {
        let value: Value = serde_json::from_str(printed).unwrap_or_default();
        for metric in value["metrics"].as_array().into_iter().flatten() {
            if let (Some(name), Some(unit), Some(value)) =
                (metric["name"].as_str(), metric["unit"].as_str(), metric["value"].as_f64())
                && wanted.contains(&name)
            {
                self.add(case, name, unit, value);
            }
        }
    }

    pub fn summary(&self, case: &str, metric: &str) -> Option<Summary> {
        Summary::of(&self.rows.iter().find(|row| row.case == case && row.metric == metric)?.values)
    }

    pub fn ratio(&self, bar: &CaseBar) -> Option<f64> {
        Some(self.summary(bar.case, bar.metric)?.median / self.summary(bar.beside, bar.metric)?.median)
    }

    pub fn print(&self, bars: &[CaseBar]) {
        let mut metrics: Vec<&str> = self.rows.iter().map(|row| row.metric.as_str()).collect();
        metrics.sort_unstable();
        metrics.dedup();
        for metric in metrics {
            for row in self.rows.iter().filter(|row| row.metric == metric) {
                let Some(summary) = Summary::of(&row.values) else { continue };
                let Summary { median, min, max, count } = summary;
                println!(
                    "{metric:<20} {:<24} {median:>10.3} {}  ({min:.3}..{max:.3}, {count} rounds)",
                    row.case, row.unit
                );
            }
        }
        for bar in bars {
            let Some(ratio) = self.ratio(bar) else { continue };
            let word = if ratio >= bar.ratio_min { "met   " } else { "MISSED" };
            println!("  {word} {:<52} {ratio:.3}  at least {}", bar.what, bar.ratio_min);
        }
    }

    pub fn to_json(&self, bars: &[CaseBar]) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| json!({ "case": row.case, "metric": row.metric, "unit": row.unit, "values": row.values }))
            .collect();
        let bars: Vec<Value> = bars
            .iter()
            .filter_map(|bar| {
                let ratio = self.ratio(bar)?;
                let is_met = ratio >= bar.ratio_min;
                Some(json!({ "what": bar.what, "ratio": ratio, "at_least": bar.ratio_min, "met": is_met }))
            })
            .collect();
        json!({ "figures": rows, "bars": bars })
    }
}
