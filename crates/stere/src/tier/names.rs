//! `stere tier release --metadata`: names of what is on volumes only go there too. Read next: the naming crate's `fold.rs`.

use std::path::Path;
use std::time::Instant;

use stere_naming::{FileSystem, Io};

use super::{Order, POLL, STANDSTILL, SurveyReport, ask_survey, ask_tier, survey};
use crate::clock;
use crate::control::Connection;
use crate::error::Result;
use crate::running::Running;

/// Puts away the names of what is on volumes only.
pub fn put_away_below(filesystem: &FileSystem, running: &Running, root: u64) -> Result<SurveyReport> {
    let outcome = filesystem.offload().offload_below(&clock::own_caller(Io::BLOCKING), root)?;
    running.store.commit(Io::BLOCKING)?;
    let (mut report, _, _) = survey(filesystem, running, root)?;
    report.is_partial = outcome.staying > 0;
    report.said = format!(
        "put away {} keys of names in {} bundles{}",
        outcome.keys,
        outcome.bundles,
        match outcome.staying {
            0 => String::new(),
            staying => format!(
                "; {staying} files or directories stay: they are not on volumes only, are in use, have several names, or say something themselves"
            ),
        }
    );
    Ok(report)
}

/// Puts names away, waits until volumes have them, and gives up what devices have of them. False if some stay.
pub fn release(connection: &mut Connection, path: &Path, inode: u64) -> Result<bool> {
    let report = ask_survey(connection, Order::PutAway(inode))?;
    println!("{}: {}", path.display(), report.said);
    let is_whole = !report.is_partial;
    let begin = Instant::now();
    let mut tier = ask_tier(connection, Order::Push)?;
    while ask_survey(connection, Order::Survey(inode))?.waiting_bytes > 0 {
        let why = tier.waits_for.take().or_else(|| tier.stuck.first().cloned());
        if let Some(why) = why.filter(|_| begin.elapsed() >= STANDSTILL) {
            println!("{}: the names wait to be copied out, and stay on devices until then: {why}", path.display());
            return Ok(false);
        }
        std::thread::sleep(POLL);
        tier = ask_tier(connection, Order::Push)?;
    }
    let report = ask_survey(connection, Order::Release(inode))?;
    println!("{}: {}", path.display(), report.said);
    Ok(is_whole && !report.is_partial)
}
