//! `stere du`: what files and directories take on the devices, with copies, parity and compression.

use std::collections::BTreeMap;

use crate::arguments::UsageArguments;
use crate::json::to_json;
use crate::terminal::plain;
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_control::usage::UsageReport;
use stere_machine::error::{DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

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
    println!("{raw:>10}  {stored:>10}  {size:>10}  {:>9}  {}", report.files, plain(&report.path));
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
