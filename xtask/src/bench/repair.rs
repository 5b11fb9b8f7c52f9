//! `cargo xtask bench repair`: what damage costs a reader, after Loris (2010), table 1, and scrubbing beside bare reads.
//!
//! The work is the example `rot`, which uses the file system as a library, so that milliseconds are those of the reader.

use std::path::Path;

use serde_json::Value;

use super::BenchArguments;
use super::report::save_value;
use super::statistics::Summary;
use crate::cleanup::Place;
use crate::command::{MINUTE, capture};
use crate::error::{Result, XtaskError};
use crate::subject::cargo;

/// Of the rate of bare reads with as many under way.
const SCRUB_BAR: f64 = 0.8;

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let place = Place::new(root)?;
    let runs = arguments.runs.to_string();
    let mut command = cargo(root, &["run", "--release", "--quiet", "-p", "stere-naming", "--example", "rot", "--"]);
    let printed = capture(command.arg(&place.directory).arg(runs), 60 * MINUTE)?;
    let (table, json) = printed.trim_end().rsplit_once('\n').unwrap_or(("", &printed));
    println!("{table}");
    let value: Value = serde_json::from_str(json)
        .map_err(|_| XtaskError::found(format!("the last line of `rot` is no JSON: {json}")))?;
    let ratios = value["scrub"]["ratio"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    if let Some(summary) = Summary::of(&ratios.collect::<Vec<_>>()) {
        let word = if summary.median >= SCRUB_BAR { "met" } else { "MISSED" };
        println!("scrub / bare reads: {:.2}, at least {SCRUB_BAR}: {word}", summary.median);
    }
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}
