//! `stere tier release --metadata`: names of what is on volumes only go there too. Read next: the naming crate's `fold.rs`.

use std::path::Path;
use std::time::Instant;

use crate::tier::ask::{POLL, STANDSTILL, ask_survey, ask_tier};
use stere_control::connection::Connection;
use stere_control::tier::Order;
use stere_machine::error::Result;

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
