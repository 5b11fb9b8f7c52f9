//! What everything below an inode takes on the devices.

use stere_naming::{FileSystem, Io};

use stere_control::usage::UsageReport;
use stere_machine::clock;
use stere_machine::error::Result;

/// Names looked at without a look at the clock.
const STEP_NAMES: usize = 4096;

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
