//! `cargo xtask bench files`: whether the number of files matters. Pools with 10,000 to 10,000,000 files take turns at
//! the same sample: creates, and stats and reads of cold files, per second; beside them the most memory the process held.
//!
//! The pools are made once (`--prepared`); a sample leaves behind what it found.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::BenchArguments;
use super::cases::{CaseBar, Cases};
use super::report::save_value;
use super::special::{PREPARED_FILE_BYTES, prepare_pool};
use crate::cleanup::Place;
use crate::command::{MINUTE, capture};
use crate::error::Result;
use crate::subject::{Binaries, Subject, memory_of};

const COUNTS: [(u64, &str); 4] = [
    (10_000, "10,000 files"),
    (100_000, "100,000 files"),
    (1_000_000, "1,000,000 files"),
    (10_000_000, "10,000,000 files"),
];
const METRICS: &[&str] = &["many_create", "many_stat_cold", "many_stat_cold_random", "many_read_cold"];
/// Within 20 % of the smallest pool's.
const LEAST: f64 = 0.8;

const fn bar(what: &'static str, metric: &'static str, case: &'static str) -> CaseBar {
    CaseBar { what, metric, case, beside: COUNTS[0].1, ratio_min: LEAST }
}

const BARS: &[CaseBar] = &[
    bar("create, 100,000 / 10,000", "many_create", COUNTS[1].1),
    bar("create, 1,000,000 / 10,000", "many_create", COUNTS[2].1),
    bar("create, 10,000,000 / 10,000", "many_create", COUNTS[3].1),
    bar("stat cold, 100,000 / 10,000", "many_stat_cold", COUNTS[1].1),
    bar("stat cold, 1,000,000 / 10,000", "many_stat_cold", COUNTS[2].1),
    bar("stat cold, 10,000,000 / 10,000", "many_stat_cold", COUNTS[3].1),
    bar("read cold, 100,000 / 10,000", "many_read_cold", COUNTS[1].1),
    bar("read cold, 1,000,000 / 10,000", "many_read_cold", COUNTS[2].1),
    bar("read cold, 10,000,000 / 10,000", "many_read_cold", COUNTS[3].1),
];

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let most = arguments.files.unwrap_or(u64::MAX);
    let mut pools: Vec<(u64, &'static str, Subject)> = Vec::new();
    for (files, case) in COUNTS.into_iter().filter(|(files, _)| *files <= most) {
        pools.push((files, case, prepare_pool(root, &place, &binaries, arguments, files)?));
    }
    if arguments.prepare {
        return Ok(());
    }
    let mut cases = Cases::default();
    for round in 0..arguments.runs {
        for (files, case, subject) in &pools {
            println!("round {} of {}: {case}", round + 1, arguments.runs);
            subject.mount()?;
            let printed = sample(&binaries, subject, *files, round)?;
            cases.add_printed(case, &printed, METRICS);
            let (resident, _) = memory_of(subject.daemon_process()?)?;
            cases.add(case, "resident at most", "MiB", (resident >> 20) as f64);
            subject.unmount()?;
        }
    }
    cases.print(BARS);
    let mut value: Value = cases.to_json(BARS);
    value["pools"] = json!({ "file_bytes": PREPARED_FILE_BYTES, "devices": 1 });
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}

/// What the driver printed. The process that ends up serving is the one of the last cold phase, with the creates.
fn sample(binaries: &Binaries, subject: &Subject, files: u64, round: usize) -> Result<String> {
    let mut command = Command::new(&binaries.bench);
    command.arg("sample").arg(subject.mount_point.join("many"));
    command.args(["--files", &files.to_string(), "--size", &PREPARED_FILE_BYTES.to_string()]);
    command.args(["--seed", &(round + 1).to_string(), "--cold-hook", &subject.remount_hook()]);
    capture(&mut command, 10 * MINUTE)
}
