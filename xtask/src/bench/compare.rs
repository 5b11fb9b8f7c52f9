//! Turns and rounds: every workload on every file system, made fresh for each turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::plot::{Chart, Series, draw_charts};
use super::redundancy::memory_if_wanted;
use super::statistics::Summary;
use super::{BenchArguments, BenchName, bars, report};
use crate::cleanup::Place;
use crate::command::{MINUTE, capture};
use crate::error::{At, Result, XtaskError};
use crate::subject::{Binaries, Kind, Shape, Subject};

const USUAL_SUBJECTS: &[Kind] = &[
    Kind::Stere,
    Kind::Ext4,
    Kind::SterePool,
    Kind::Mergerfs,
    Kind::StereMirror,
    Kind::BtrfsRaid1,
    Kind::StereParity,
    Kind::BtrfsRaid5,
    Kind::Xfs,
    Kind::Btrfs,
    Kind::Gocryptfs,
];
const RAID_SUBJECTS: &[Kind] = &[Kind::StereMirror, Kind::BtrfsRaid1, Kind::StereParity, Kind::BtrfsRaid5];
/// File systems in user space.
const PEER_SUBJECTS: &[Kind] = &[
    Kind::Stere,
    Kind::Gocryptfs,
    Kind::Bindfs,
    Kind::Fuse2fs,
    Kind::Ntfs3g,
    Kind::ZfsFuse,
    Kind::Juicefs,
    Kind::SterePool,
    Kind::Mergerfs,
];
/// One device, one copy.
const LOCAL_SUBJECTS: &[Kind] = &[Kind::Stere, Kind::Ext4, Kind::Xfs, Kind::Btrfs];
const NULL_SUBJECTS: &[Kind] = &[Kind::Stere, Kind::Null, Kind::NullTerse, Kind::Ext4, Kind::Xfs];
const CEILING_SUBJECTS: &[Kind] = &[
    Kind::Stere,
    Kind::HeldInMemory,
    Kind::Ext4,
    Kind::Xfs,
    Kind::StereMirror,
    Kind::BtrfsRaid1,
    Kind::StereParity,
    Kind::BtrfsRaid5,
];

/// Small, because the whole of it is written twice in each turn.
const AGED_DEVICE_SIZE: &str = "2G";
const AGED_SUBJECTS: &[Kind] = &[
    Kind::Stere,
    Kind::Ext4,
    Kind::Xfs,
    Kind::Btrfs,
    Kind::StereMirror,
    Kind::BtrfsRaid1,
    Kind::StereParity,
    Kind::BtrfsRaid5,
];

/// One figure: of which file system, and what was durable and cached when it was taken.
#[derive(Debug, Clone)]
pub struct Figure {
    pub metric: String,
    pub unit: String,
    pub durable: String,
    pub cached: String,
    pub subject: Kind,
    pub values: Vec<f64>,
    /// Processor time of the whole machine, one for each value, in a unit of its own.
    pub processors: Vec<f64>,
    pub processors_unit: String,
}

#[derive(Debug, Default)]
pub struct Results {
    pub figures: Vec<Figure>,
    pub failures: Vec<String>,
}

impl Results {
    pub fn summary(&self, metric: &str, subject: Kind) -> Option<Summary> {
        let figure = self.figures.iter().find(|figure| figure.metric == metric && figure.subject == subject)?;
        Summary::of(&figure.values)
    }

    /// Every metric once, in the order in which they came.
    pub fn metrics(&self) -> Vec<&Figure> {
        let mut seen: Vec<&Figure> = Vec::new();
        for figure in &self.figures {
            if !seen.iter().any(|known| known.metric == figure.metric) {
                seen.push(figure);
            }
        }
        seen
    }

    /// Takes what one turn of the workload driver printed.
    pub fn add(&mut self, subject: Kind, printed: &str) -> Result<()> {
        let wrong = |what: &str| XtaskError::found(format!("the workload driver printed {what}: {printed}"));
        let value: Value = serde_json::from_str(printed).map_err(|_| wrong("no JSON"))?;
        for metric in value["metrics"].as_array().ok_or_else(|| wrong("no metrics"))? {
            let text = |key: &str| metric[key].as_str().unwrap_or_default().to_owned();
            let number = metric["value"].as_f64().ok_or_else(|| wrong("a metric without value"))?;
            let processors = metric["processors"].as_f64();
            let name = text("name");
            match self.figures.iter_mut().find(|figure| figure.metric == name && figure.subject == subject) {
                Some(figure) => {
                    figure.values.push(number);
                    figure.processors.extend(processors);
                }
                None => self.figures.push(Figure {
                    metric: name,
                    unit: text("unit"),
                    durable: text("durable"),
                    cached: text("cached"),
                    subject,
                    values: vec![number],
                    processors: processors.into_iter().collect(),
                    processors_unit: text("processors_unit"),
                }),
            }
        }
        Ok(())
    }
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let subjects = choose_subjects(arguments);
    let binaries = Binaries::build(root, subjects.iter().any(|kind| kind.is_null()))?;
    let place = Place::new(root)?;
    let _memory = memory_if_wanted(&place, arguments.images)?;
    let mut results = Results::default();
    let workloads = workloads(arguments)?;
    let share = MINUTE * arguments.minutes / workloads.len() as u32;
    for workload in workloads {
        let begun = Instant::now();
        for round in 1..=arguments.runs {
            // As many rounds as go into the time, and at least one: a round is whole, so that all are measured alike.
            let spent = begun.elapsed();
            if spent + spent / (round as u32 - 1).max(1) > share {
                println!("{workload}: {} rounds, more would take too long (--minutes)", round - 1);
                break;
            }
            for kind in &subjects {
                println!("{workload}, round {round} of {}: {}", arguments.runs, kind.name());
                let turn = turn(&place, &binaries, arguments, workload, *kind);
                if let Err(error) = turn.and_then(|printed| results.add(*kind, &printed)) {
                    eprintln!("    failed: {error}");
                    results.failures.push(format!("{workload} on {}: {error}", kind.name()));
                }
            }
        }
    }
    let verdicts = bars::judge(&results);
    report::print(&results, &verdicts, &subjects, arguments);
    let file = report::save(root, &results, &verdicts, arguments)?;
    println!("\nwritten to {}", file.display());
    if arguments.name == BenchName::Sweep {
        println!("drawn in {}", draw_sweep(root, &results, &subjects, arguments)?.display());
    }
    match results.failures.len() {
        0 => Ok(()),
        count => Err(XtaskError::found(format!("{count} turns failed, listed above"))),
    }
}

fn turn(place: &Place, binaries: &Binaries, arguments: &BenchArguments, workload: &str, kind: Kind) -> Result<String> {
    let on_loop_devices = !arguments.stere_on_files;
    let mut shape = Shape { options: arguments.options.clone(), on_loop_devices, ..Shape::default() };
    if workload == "aged" {
        shape.device_size = AGED_DEVICE_SIZE.into();
    }
    let subject = Subject::new(kind, &place.directory, &shape, binaries)?;
    let mut command = Command::new(&binaries.bench);
    command.args(["run", workload]).arg(&subject.mount_point).arg("--scratch").arg(&place.directory);
    if !kind.is_null() {
        command.args(["--cold-hook", &subject.remount_hook()]);
    }
    command.args(["--divide", &arguments.divisor().to_string()]);
    capture(&mut command, 30 * MINUTE)
}

/// Rates over request sizes: a chart for writes and one for reads, a line for each file system and number of clients.
fn draw_sweep(root: &Path, results: &Results, subjects: &[Kind], arguments: &BenchArguments) -> Result<PathBuf> {
    const SIZES: [&str; 6] = ["512", "4k", "32k", "256k", "2m", "16m"];
    let chart = |word: &str, title: &str| {
        let series =
            subjects.iter().flat_map(|kind| ["c1", "c8"].map(|clients| (kind, clients))).map(|(kind, clients)| {
                let value = |size| results.summary(&format!("sweep_{word}_{clients}_{size}"), *kind);
                let values = SIZES.iter().map(|size| value(size).map(|summary| summary.median)).collect();
                let many = if clients == "c1" { "1 client" } else { "8 clients" };
                Series { label: format!("{}, {many}", kind.name()), values }
            });
        let ticks = SIZES.map(str::to_owned).to_vec();
        Chart { title: title.into(), x_label: "bytes a request", y_label: "MB/s", ticks, series: series.collect() }
    };
    let charts = [chart("write", "sequential write + fsync"), chart("read", "sequential read, cold")];
    let folder = root.join(if arguments.publish { "docs/performance" } else { "bench/results" });
    fs::create_dir_all(&folder).at("mkdir", &folder)?;
    let picture = folder.join("sweep.svg");
    fs::write(&picture, draw_charts(&charts)).at("write", &picture)?;
    Ok(picture)
}

/// Those of the bench that are wanted, and at least one.
fn workloads(arguments: &BenchArguments) -> Result<Vec<&'static str>> {
    let of_bench = workloads_of(arguments.name);
    let wanted: Vec<&str> = of_bench.iter().copied().filter(|workload| arguments.wants(workload)).collect();
    if wanted.is_empty() {
        return Err(XtaskError::found(format!("--only names none of {}", of_bench.join(", "))));
    }
    Ok(wanted)
}

fn workloads_of(name: BenchName) -> Vec<&'static str> {
    match name {
        BenchName::Sequential => vec!["sequential"],
        BenchName::RandomRead => vec!["random-read"],
        BenchName::RandomWrite => vec!["random-write"],
        BenchName::SmallFiles => vec!["small-files"],
        BenchName::Tree => vec!["tree"],
        BenchName::Sweep => vec!["sweep"],
        BenchName::Postmark => vec!["postmark"],
        BenchName::Null => vec!["front-end"],
        BenchName::Ceiling => {
            vec!["sequential", "random-read", "random-write", "small-files", "tree", "postmark", "several"]
        }
        BenchName::Several => vec!["several"],
        BenchName::LargeObject => vec!["large-object"],
        BenchName::Database => vec!["database", "postgres"],
        BenchName::Aged => vec!["aged"],
        BenchName::Records => vec!["records"],
        BenchName::Build => vec!["build"],
        BenchName::Raid | BenchName::Peers => {
            vec!["sequential", "random-read", "random-write", "small-files", "postmark"]
        }
        _ => vec!["sequential", "random-read", "random-write", "small-files", "tree", "postmark"],
    }
}

/// Those asked for or the usual ones, without those whose programs are missing: they are named with the line that installs them.
fn choose_subjects(arguments: &BenchArguments) -> Vec<Kind> {
    let usual = match arguments.name {
        BenchName::Null => NULL_SUBJECTS,
        BenchName::Ceiling => CEILING_SUBJECTS,
        BenchName::Aged => AGED_SUBJECTS,
        BenchName::Raid => RAID_SUBJECTS,
        BenchName::Peers => PEER_SUBJECTS,
        BenchName::Several | BenchName::LargeObject | BenchName::Database | BenchName::Records | BenchName::Build => {
            LOCAL_SUBJECTS
        }
        _ => USUAL_SUBJECTS,
    };
    let wanted = if arguments.subjects.is_empty() { usual } else { &arguments.subjects };
    let (present, missing): (Vec<Kind>, Vec<Kind>) = wanted.iter().partition(|kind| kind.missing_packages().is_empty());
    if !missing.is_empty() {
        let mut packages: Vec<&str> = missing.iter().flat_map(|kind| kind.missing_packages()).collect();
        packages.sort_unstable();
        packages.dedup();
        let names: Vec<&str> = missing.iter().map(|kind| kind.name()).collect();
        println!("not installed, so not measured: {} (apt-get install -y {})", names.join(", "), packages.join(" "));
    }
    present
}
