//! The state of a pool on one screen, and its parts for other commands.

mod cleaning;

use crate::lose::print_lost;
use crate::terminal::{plain, plain_lines};
use stere_control::status::{ClassReport, DeviceReport, Finding, StatusReport, WorkReport};
use stere_machine::size::{self, count, show_duration};

/// One screen.
pub fn print_status(report: &StatusReport, exact: bool, is_verbose: bool) {
    let mounted = match (&report.mountpoint, report.read_only) {
        (Some(point), false) => format!("mounted on {point}"),
        (Some(point), true) => format!("mounted on {point}, read only"),
        (None, _) => "not mounted".into(),
    };
    let through = match report.through.as_ref().map(|through| through.host.as_deref()) {
        Some(Some(host)) => format!(" through host {host}, which owns the pool"),
        Some(None) => " through the pool's owner".into(),
        None => String::new(),
    };
    println!("pool {}: {}, {mounted}{through}", report.pool, report.state_text());
    let because = match report.least_classes.as_slice() {
        [] => String::new(),
        classes => format!(" (files of class {})", classes.join(", ")),
    };
    let devices = count(u64::from(report.survives), "device");
    let hosts = report.survives_hosts.map(|hosts| format!(", and of {}", count(u64::from(hosts), "host")));
    let hosts = hosts.unwrap_or_default();
    println!("survives the loss of {devices}{because}{hosts}; next: {}", plain(&report.next));
    if let Some(work) = work_text(&report.work) {
        println!("{work}");
    }
    if let Some(scrub) = report.scrub.text() {
        println!("{scrub}");
    }
    let is_told = |finding: &&Finding| !report.next.starts_with(&finding.what);
    for Finding { what, next, .. } in report.findings.iter().filter(is_told) {
        println!("{}: {}", plain(what), plain(next));
    }
    for junction in report.junctions.iter().filter(|junction| junction.is_mounted) {
        println!("{} is the pool {}, which `stere status {1}` tells of", plain(&junction.path), junction.pool);
    }
    report.lost_files.iter().for_each(print_lost);
    if report.has_more_lost_files {
        let first =
            report.devices.iter().find(|device| matches!(device.state.as_str(), "missing" | "left out" | "offline"));
        match first {
            Some(device) => println!("and more: `stere lose {}` names all", device.name),
            None => println!("and more: `stere find state=lost PATH` names all"),
        }
    }
    for warning in &report.warnings {
        println!("note: {}", plain_lines(warning));
    }
    println!();
    print_devices(&report.devices, exact);
    crate::tier::report::print_volumes_if_any(&report.volumes);
    println!();
    print_classes(&report.classes, exact);
    if is_verbose {
        println!();
        cleaning::lines(&report.cleaning).iter().for_each(|line| println!("{line}"));
    }
}

/// The work in the background, if there is any.
pub fn work_text(work: &WorkReport) -> Option<String> {
    if work.is_done() {
        return None;
    }
    if work.chunks_left == 0 {
        return Some(format!("evening out how full the devices are: {} moved", size::show(work.bytes_done)));
    }
    let hopeless = match work.impossible_chunks {
        0 => String::new(),
        chunks => format!("; {chunks} chunks find no place or no source"),
    };
    Some(format!(
        "repairing: {} left, about {}{hopeless}",
        size::show(work.bytes_left),
        show_duration(work.seconds_left)
    ))
}

pub fn print_devices(devices: &[DeviceReport], exact: bool) {
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or(0).max(6);
    let states = devices.iter().map(|device| device.state.len()).max().unwrap_or(0).max(7);
    println!(
        "{:width$}  {:states$}  {:7}  {:>10}  {:>10}  {:>6}  path",
        "device", "state", "class", "size", "used", "errors"
    );
    for device in devices {
        let (size, used) = (size::show_as(device.size_bytes, exact), size::show_as(device.used_bytes, exact));
        let errors = device.read_errors + device.write_errors + device.checksum_errors;
        let DeviceReport { name, state, class, path, .. } = device;
        println!("{name:width$}  {state:states$}  {class:7}  {size:>10}  {used:>10}  {errors:>6}  {path}");
    }
    for device in devices {
        if device.behind_bytes > 0 {
            println!("{} lacks {} of what it should hold", device.name, size::show_as(device.behind_bytes, exact));
        }
        if let Some(why) = &device.why {
            match device.state.as_str() {
                "silent" | "slow" | "sick" => println!("{}: {why}", device.name),
                _ => println!("{} is left out: {why}", device.name),
            }
        }
        if device.unusable_bytes > 0 {
            println!(
                "{} of {} cannot be used for two copies: the other devices together are smaller than it",
                size::show_as(device.unusable_bytes, exact),
                device.name
            );
        }
    }
}

pub fn print_classes(classes: &[ClassReport], exact: bool) {
    println!("{:9}  {:6}  {:8}  {:>10}  {:>10}", "class", "scheme", "survives", "total", "free");
    for class in classes {
        let (total, free) = (size::show_as(class.total_bytes, exact), size::show_as(class.free_bytes, exact));
        println!("{:9}  {:6}  {:8}  {total:>10}  {free:>10}", class.class, class.scheme, class.survives);
    }
}
