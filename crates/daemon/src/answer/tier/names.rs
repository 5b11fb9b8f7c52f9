//! Metadata of what is on media only, offloaded to media on request.

use stere_naming::{FileSystem, Io};

use crate::answer::tier::survey::survey;
use stere_control::tier::report::SurveyReport;
use stere_machine::clock;
use stere_machine::error::Result;
use stere_online::running::Running;

/// Offloads the metadata of what is on media only.
pub fn put_away_below(filesystem: &FileSystem, running: &Running, root: u64) -> Result<SurveyReport> {
    let caller = clock::own_caller(Io::BLOCKING);
    let outcome = filesystem.command(&caller, || filesystem.offload().offload_below(&caller, root))?;
    running.store.commit(Io::BLOCKING)?;
    let (mut report, _, _) = survey(filesystem, running, root)?;
    report.is_partial = outcome.staying > 0;
    report.said = format!(
        "offloaded {} keys of metadata in {} objects{}",
        outcome.keys,
        outcome.bundles,
        match outcome.staying {
            0 => String::new(),
            staying => format!(
                "; {staying} files or directories stay: they are not on media only, are in use, have several names, or say something themselves"
            ),
        }
    );
    Ok(report)
}
