//! Repacking of media, one step an answer.

use std::collections::BTreeSet;

use stere_naming::{FileSystem, Io};

use crate::answer::describe::describe;
use stere_control::tier::report::{RepackReport, Told};
use stere_machine::clock;
use stere_machine::error::{Result, refused};
use stere_online::running::Running;

/// One step of repacking, for the daemon.
pub fn repack_some(filesystem: &FileSystem, running: &Running, volume: Option<&str>, below: u8) -> Result<Told> {
    let volumes = match volume.map(|name| (name, running.find_volume(name))) {
        None => running.store.tier.media.volumes().iter().fold(0, |set, entry| set | entry.bit()),
        Some((_, Some(entry))) => entry.bit(),
        Some((name, None)) => return refused(format!("the pool '{}' has no medium '{name}'", running.pool)),
    };
    let describe = |inodes: &BTreeSet<u64>| describe(filesystem, inodes);
    let done =
        filesystem.units().repack_step(&clock::own_caller(Io::BLOCKING), volumes, u64::from(below), &describe)?;
    Ok(Told::Repack(RepackReport {
        segments_emptied: done.segments_emptied,
        bytes_emptied: done.bytes_emptied,
        segments_made: done.segments_made,
        bytes_made: done.bytes_made,
        segments_left: done.segments_left,
        waits_for: done.waits_for,
    }))
}
