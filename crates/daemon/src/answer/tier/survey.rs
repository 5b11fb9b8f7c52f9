//! What is on media of everything below an inode.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_naming::{FileSystem, Io};

use stere_control::tier::report::SurveyReport;
use stere_machine::clock;
use stere_machine::error::Result;
use stere_online::running::Running;

/// What lies below an inode, with its segments and files.
pub(super) fn survey(
    filesystem: &FileSystem,
    running: &Running,
    root: u64,
) -> Result<(SurveyReport, BTreeSet<u64>, Vec<u64>)> {
    let (mut report, mut segments, mut inodes) = (SurveyReport::default(), BTreeSet::new(), Vec::new());
    let mut volumes = 0;
    filesystem.tiers().tier_walk(&clock::own_caller(Io::BLOCKING), root, &mut |met| {
        report.files += 1;
        report.local_bytes += met.file.local_bytes;
        report.waiting_bytes += met.file.waiting_bytes;
        report.tertiary_bytes += met.file.tertiary_bytes;
        report.released_bytes += met.file.released_bytes;
        report.unreachable_bytes += met.file.unreachable_bytes;
        volumes |= met.file.volumes;
        if !met.segments.is_empty() {
            inodes.push(met.inode);
        }
        segments.extend(met.segments);
        ControlFlow::Continue(())
    })?;
    report.segments = segments.len() as u64;
    report.volumes = running.store.tier.media.tier_names(volumes);
    Ok((report, segments, inodes))
}
