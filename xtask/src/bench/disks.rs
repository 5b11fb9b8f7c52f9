//! Disks of a known rate: loop devices that the kernel throttles for the programs of a control group.
//!
//! All image files of a bench lie on one disk, which hides what several disks do for each other. Each of these takes and gives
//! 150 MB/s at most, as a hard disk does, whatever the others are doing; together they stay far below the disk under them.
//! Needs root and the block I/O controller of the kernel, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cleanup::{Guard, Place};
use crate::command::{MINUTE, capture, quoted, shell};
use crate::error::{At, Result, XtaskError};

/// What each disk reads and writes at most in a second.
pub const RATE_BYTES: u64 = 150_000_000;

const FIRST_VERSION: &str = "/sys/fs/cgroup/blkio";
const SECOND_VERSION: &str = "/sys/fs/cgroup";

pub struct Disks {
    devices: Vec<String>,
    group: PathBuf,
    _guards: Vec<Guard>,
}

impl Disks {
    pub fn new(place: &Place, count: usize, size_bytes: u64) -> Result<Self> {
        let is_first = Path::new(FIRST_VERSION).join("blkio.throttle.read_bps_device").exists();
        let parent = if is_first { FIRST_VERSION } else { SECOND_VERSION };
        let group = PathBuf::from(format!("{parent}/stere-bench-{}", std::process::id()));
        fs::create_dir_all(&group).at("mkdir", &group)?;
        // A group with members cannot go; they end when their mount does, so this is tried for a while.
        let remove = format!("for i in $(seq 50); do rmdir {} 2>/dev/null && break; sleep 0.1; done", quoted(&group));
        let mut guards = vec![Guard::new(remove)];
        let mut devices = Vec::new();
        for number in 0..count {
            let image = quoted(&place.directory.join(format!("disk-{number}.img")));
            let attach = format!("truncate -s {size_bytes} {image} && losetup --direct-io=on --find --show {image}");
            let device = capture(&mut shell(&attach), MINUTE)?.trim().to_owned();
            guards.push(Guard::new(format!("losetup -d {device}")));
            throttle(&group, is_first, &device)?;
            devices.push(device);
        }
        Ok(Disks { devices, group, _guards: guards })
    }

    pub fn device(&self, number: usize) -> &str {
        &self.devices[number]
    }

    /// The line, run by a shell whose I/O (and that of all that it starts) is throttled.
    pub fn throttled(&self, line: &str) -> String {
        format!("echo $$ > {} && {line}", quoted(&self.group.join("cgroup.procs")))
    }

    /// What a disk really writes, in megabytes a second: large writes, one after the other, past the cache.
    pub fn write_rate(&self, number: usize, megabytes: u64) -> Result<f64> {
        let device = self.device(number);
        let line =
            self.throttled(&format!("dd if=/dev/zero of={device} bs=1M oflag=direct conv=fsync count={megabytes}"));
        let start = Instant::now();
        capture(&mut shell(&line), 5 * MINUTE)?;
        Ok((megabytes << 20) as f64 / start.elapsed().as_secs_f64() / 1e6)
    }
}

fn throttle(group: &Path, is_first: bool, device: &str) -> Result<()> {
    let name = device.trim_start_matches("/dev/");
    let numbers = PathBuf::from(format!("/sys/block/{name}/dev"));
    let numbers = fs::read_to_string(&numbers).at("read", &numbers)?;
    let numbers = numbers.trim();
    let settings: &[(&str, String)] = if is_first {
        &[
            ("blkio.throttle.read_bps_device", format!("{numbers} {RATE_BYTES}")),
            ("blkio.throttle.write_bps_device", format!("{numbers} {RATE_BYTES}")),
        ]
    } else {
        &[("io.max", format!("{numbers} rbps={RATE_BYTES} wbps={RATE_BYTES}"))]
    };
    for (file, value) in settings {
        let path = group.join(file);
        fs::write(&path, value).map_err(|error| {
            XtaskError::found(format!(
                "{}: {error}; this bench needs root and the kernel's block I/O controller (io in cgroup.subtree_control)",
                path.display()
            ))
        })?;
    }
    Ok(())
}
