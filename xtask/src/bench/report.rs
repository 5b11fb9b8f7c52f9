//! How results are shown: a table of medians with spreads and ratios, the conditions of each row, the bars; and as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::bars::Verdict;
use super::compare::Results;
use super::redundancy::images_word;
use super::statistics::Summary;
use super::{BenchArguments, Images};
use crate::error::{At, Result};
use crate::subject::Kind;

pub fn print(results: &Results, verdicts: &[Verdict], subjects: &[Kind], arguments: &BenchArguments) {
    let quick = if arguments.quick { ", --quick: these figures show that it runs, nothing else" } else { "" };
    println!("\nmedians of {} rounds (smallest..largest), and stere's ratio to each peer{quick}", arguments.runs);
    for row in results.metrics() {
        println!("\n{} [{}]   durable: {}; cached: {}", row.metric, row.unit, row.durable, row.cached);
        for kind in subjects {
            if let Some(line) = subject_line(results, &row.metric, *kind, subjects) {
                println!("  {line}");
            }
        }
    }
    print_verdicts(verdicts);
    results.failures.iter().for_each(|failure| println!("FAILED: {failure}"));
}

fn subject_line(results: &Results, metric: &str, kind: Kind, subjects: &[Kind]) -> Option<String> {
    let own = results.summary(metric, kind)?;
    let costs = results.figures.iter().find(|figure| figure.metric == metric && figure.subject == kind);
    let cost = costs.and_then(|figure| {
        let median = Summary::of(&figure.processors)?.median;
        Some(format!("{} {} of processors", short(median), figure.processors_unit))
    });
    let spread = format!("({}..{})", short(own.min), short(own.max));
    let ratio = |stere: &Kind| {
        let theirs = results.summary(metric, *stere)?.median;
        Some(format!("{} {:.2}", stere.name(), theirs / own.median))
    };
    let steres = subjects.iter().filter(|other| other.is_stere() && !kind.is_stere());
    let ratios: Vec<String> = steres.filter_map(ratio).collect();
    Some(format!(
        "{:<13} {:>9}  {spread:<20} {:<26} {}",
        kind.name(),
        short(own.median),
        cost.unwrap_or_default(),
        ratios.join("  ")
    ))
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

fn print_verdicts(verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    println!("\nbars (ratios of medians)");
    for verdict in verdicts {
        let bar = verdict.bar;
        let word = if verdict.is_met() { "met   " } else { "MISSED" };
        let names = format!("{} / {}", bar.stere.name(), bar.peer.name());
        println!("  {word} {:<18} {names:<22} {:>6.2}  at least {:.2}", bar.metric, verdict.ratio, bar.ratio_min);
    }
    let met = verdicts.iter().filter(|verdict| verdict.is_met()).count();
    println!("  {met} of {} met", verdicts.len());
}

pub fn save(root: &Path, results: &Results, verdicts: &[Verdict], arguments: &BenchArguments) -> Result<PathBuf> {
    let figures: Vec<Value> = results
        .figures
        .iter()
        .map(|figure| {
            json!({
                "metric": figure.metric, "unit": figure.unit, "subject": figure.subject.name(), "values": figure.values,
                "durable": figure.durable, "cached": figure.cached, "processors": figure.processors,
                "processors_unit": figure.processors_unit,
            })
        })
        .collect();
    let bars: Vec<Value> = verdicts
        .iter()
        .map(|verdict| {
            json!({
                "metric": verdict.bar.metric, "stere": verdict.bar.stere.name(), "peer": verdict.bar.peer.name(),
                "ratio": verdict.ratio, "at_least": verdict.bar.ratio_min, "met": verdict.is_met(),
            })
        })
        .collect();
    save_value(root, arguments, json!({ "figures": figures, "bars": bars, "failures": results.failures }))
}

/// Writes a result with the conditions it was taken under, and returns where.
pub fn save_value(root: &Path, arguments: &BenchArguments, mut value: Value) -> Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |duration| duration.as_secs());
    value["conditions"] = json!({
        "seconds_since_1970": seconds, "runs": arguments.runs, "divided_by": arguments.divisor(), "options": arguments.options,
        "stere_on": if arguments.stere_on_files { "image files" } else { "loop devices, where its peers are on some" },
        "images": images_word(arguments.images), "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read_line("/proc/sys/kernel/osrelease"), "memory": read_line("/proc/meminfo"),
    });
    let folder = root.join("bench").join(if arguments.publish { "published" } else { "results" });
    fs::create_dir_all(&folder).at("mkdir", &folder)?;
    let name = arguments.name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let name = if arguments.images == Images::Memory { format!("{name}-memory") } else { name };
    let name = [&[name], &arguments.only[..]].concat().join("-");
    let file = if arguments.publish { format!("{name}.json") } else { format!("{name}-{seconds}.json") };
    let path = folder.join(file);
    fs::write(&path, format!("{value:#}\n")).at("write", &path)?;
    Ok(path)
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
