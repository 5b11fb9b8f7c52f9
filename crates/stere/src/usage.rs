//! `stere du`: what files and directories take on the devices, with copies, parity and compression.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io};

use crate::cli::UsageArguments;
use crate::control::{Answer, Request};
use crate::error::{DONE, Result, refused};
use crate::registry::Registry;
use crate::status::to_json;
use crate::{clock, locate, size};

/// Names looked at without a look at the clock.
const STEP_NAMES: usize = 4096;

/// What a path takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UsageReport {
    pub path: String,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    pub allocated_bytes: u64,
    /// What is stored, before copies and parity.
    pub stored_bytes: u64,
    /// What other files share.
    pub shared_bytes: u64,
    /// What that takes on all devices.
    pub raw_bytes: u64,
    pub devices: BTreeMap<String, u64>,
    /// Stored bytes by scheme, such as `1+1`.
    pub schemes: BTreeMap<String, u64>,
}

/// Answers for the daemon.
pub fn gather(filesystem: &FileSystem, inode: u64) -> Result<UsageReport> {
    let mut walk = filesystem.usage(&clock::own_caller(Io::BLOCKING), inode)?;
    while walk.step(&clock::own_caller(Io::BLOCKING), STEP_NAMES)? {}
    let usage = walk.usage;
    let entries = filesystem.store().device_entries();
    let name = |index: u16| {
        let entry = entries.iter().find(|entry| entry.index == index);
        entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
    };
    Ok(UsageReport {
        path: String::new(),
        files: usage.files,
        directories: usage.directories,
        others: usage.others,
        size_bytes: usage.size_bytes,
        allocated_bytes: usage.allocated_bytes,
        stored_bytes: usage.stored_bytes,
        shared_bytes: usage.shared_bytes,
        raw_bytes: usage.raw_bytes,
        devices: usage.device_bytes.into_iter().map(|(index, bytes)| (name(index), bytes)).collect(),
        schemes: usage
            .scheme_bytes
            .into_iter()
            .map(|((data, parity), bytes)| (format!("{data}+{parity}"), bytes))
            .collect(),
    })
}

pub fn run(registry: &Registry, arguments: &UsageArguments) -> Result<u8> {
    let mut reports = Vec::new();
    for path in &arguments.paths {
        let (_, mut connection, inode) = locate::connect(registry, path)?;
        connection.wait_without_limit()?;
        let Answer::Usage(mut report) = connection.ask(Request::Usage { inode })? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        report.path = path.display().to_string();
        reports.push(report);
    }
    if arguments.json {
        println!("{}", to_json(&reports)?);
        return Ok(DONE);
    }
    println!("{:>10}  {:>10}  {:>10}  {:>9}  path", "on devices", "stored", "size", "files");
    for report in &reports {
        print(report, arguments.bytes);
    }
    Ok(DONE)
}

fn print(report: &UsageReport, exact: bool) {
    let show = |bytes| size::show_as(bytes, exact);
    let (raw, stored, size) = (show(report.raw_bytes), show(report.stored_bytes), show(report.size_bytes));
    println!("{raw:>10}  {stored:>10}  {size:>10}  {:>9}  {}", report.files, report.path);
    let parts = |map: &BTreeMap<String, u64>| {
        let parts: Vec<String> = map.iter().map(|(name, bytes)| format!("{name} {}", show(*bytes))).collect();
        parts.join(", ")
    };
    if report.raw_bytes > 0 {
        println!("{:>10}  by device: {}; by scheme: {}", "", parts(&report.devices), parts(&report.schemes));
    }
    if report.shared_bytes > 0 {
        println!("{:>10}  {} are shared with other files, and counted for each of them", "", show(report.shared_bytes));
    }
}
