//! What can be shown only beside the history, on a copy of all devices: that what is called safe bears the loss of any one of
//! them, that what a read or a scrub repaired stays right, and that nobody waits for a slow device without need.
//!
//! Read next: `device_lifecycle.rs`, which says when everything must be safe.

use std::rc::Rc;

use stere_naming::{Error, OpenFlags};

use crate::content::pattern;
use crate::fault::FaultKind;
use crate::history::{Budget, History, Slot, Stop};
use crate::medium::Survival;
use crate::model::{Kind, Node, ROOT};
use crate::operation::CrashManner;
use crate::pool::{PoolUnderTest, caller};
use crate::{
    device_lifecycle,
    execute::{contents, names},
    observe, quotas, recovery,
};

/// After so many times everything was read from every copy that is ever asked.
const READS_MAX: usize = 6;

impl PoolUnderTest {
    fn errors_of_devices(&self) -> u64 {
        let statistics = self.mounted().store.device_statistics();
        statistics.iter().map(|(_, statistics)| statistics.read_errors + statistics.checksum_errors).sum()
    }
}

/// Everything bears the loss of one device, whichever that is, and a power cut with it: shown on a copy of the machine.
pub(crate) fn prove_safe(history: &mut History) -> Result<(), Stop> {
    let struck_before = history.machine.faults_struck().len();
    history.sync_all()?;
    // Somebody may have gone away in the middle of it, or failed a flush, or was unreadable when the pool was mounted: what lacks then is
    // not called safe. Nor is what another fault struck that nobody has looked at since.
    let is_struck = history.machine.faults_struck().len() > struck_before;
    let is_short = is_struck
        || history.pool.away().is_some()
        || history.pool.has_lost_member()
        || device_lifecycle::lacks(history).is_some();
    if is_short || !device_lifecycle::must_be_safe(history) {
        return Ok(());
    }
    let members = history.pool.members();
    let there: Vec<usize> = members.iter().map(|(device, _)| *device).collect();
    let there: Vec<usize> = there.into_iter().filter(|device| !history.machine.is_away(*device)).collect();
    let lost = *history.random.pick(&there);
    // What a flush that lied did not keep is lost with the power: together with another device that is too much.
    let has_lied = history.machine.faults_struck().iter().any(|(kind, _)| *kind == FaultKind::LyingFlush);
    let keeps_all = history.random.chance(1, 2) || has_lied;
    let fork = history.machine.fork(history.random.fork());
    fork.power_off();
    let survival = if keeps_all { Survival::Everything } else { Survival::Nothing };
    fork.power_on(&mut |_, _| survival.clone());
    fork.lose_after(lost, 0);
    history.summary.proofs += 1;
    let failed = |text: String| Stop::Failure(format!("what was called safe is not, without device {lost}: {text}"));
    let mounted = history.plan.pool.mount(&fork).map_err(failed)?;
    let recovery = format!("{:?}", mounted.report);
    let failed = |text: String| failed(format!("{text} ({recovery})"));
    let seen = observe::observe(&mounted.files, &caller(&fork));
    let seen = seen.map_err(|trouble| failed(format!("{trouble:?}")))?;
    let expected = history.model.without_handles();
    if let Some(difference) = expected.difference(&seen) {
        return Err(failed(difference));
    }
    for (inode, node) in &expected.nodes {
        let theirs = seen.nodes.get(inode).and_then(|node| node.content());
        if let (Some(mine), Some(theirs)) = (node.content(), theirs)
            && let Some(difference) = mine.difference(theirs)
        {
            return Err(failed(format!("{}: {difference}", expected.path_of(*inode))));
        }
    }
    Ok(())
}

/// What is on its way to a device that dies is written elsewhere before it is acknowledged, also with one copy only.
pub(crate) fn lonely_sync(history: &mut History, device: usize, events: u64) -> Result<(), Stop> {
    const NAME: &[u8] = b"lonely";
    const BYTES: usize = 150_000;
    if !device_lifecycle::may_go(history, device)
        || !history.pool.is_calm()
        || history.plan.may_fill
        || history.pool.has_changed_devices
    {
        return Ok(());
    }
    // Nor where a limit has no room for it.
    if quotas::check_inode_room(history).and(quotas::check_growth(history, 0, BYTES as u64)).is_err() {
        return Ok(());
    }
    // What was removed would stay as a version, with its one copy; what limits make of it nobody notes.
    if history.plan.pool.keeps_versions || history.quotas.are_on() {
        return Ok(());
    }
    history.machine.disarm();
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), ROOT, NAME, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, ROOT, NAME, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    names::put_policy(history, inode, b"user.stere.copies", b"1")?;
    history.sync_all()?;
    let seed = history.random.next_u64();
    contents::write(history, inode, 0, &pattern(seed, BYTES))?;
    device_lifecycle::take_away(history, device, events);
    history.fsync(inode)?;
    // What had reached the device before it went is lost with it, as was asked for.
    if history.machine.went_unflushed(device) {
        history.machine.power_off();
        recovery::recover(history, CrashManner::Nothing, None)?;
        history.pool.returning = Some(device);
        names::remove_name(history, ROOT, NAME, false)?;
        return history.sync_all();
    }
    history.machine.cancel_away();
    history.release(Slot { inode, handle })?;
    history.pool.returning = Some(device);
    names::remove_name(history, ROOT, NAME, false)?;
    // A crash must not bring it back: it alone of all files is lost with one device.
    history.sync_all()
}

/// No file waits for a copy that its policy asks for.
pub(crate) fn prove_policies(history: &mut History) -> Result<(), Stop> {
    let files = history.model.nodes.iter().filter(|(_, node)| node.content().is_some() && node.nlink > 0);
    let inodes: Vec<u64> = files.map(|(inode, _)| *inode).collect();
    for inode in inodes {
        let state = history.mounted().files.getxattr(&caller(&history.machine), inode, b"user.stere.state");
        let state = String::from_utf8_lossy(&history.must("getxattr of the state", state)?).into_owned();
        let residency = history.mounted().files.getxattr(&caller(&history.machine), inode, b"user.stere.residency");
        // What is on volumes only is as safe as these are.
        if history.must("getxattr of the residency", residency)? != b"online" {
            continue;
        }
        let survives = history.mounted().files.getxattr(&caller(&history.machine), inode, b"user.stere.survives");
        let survives = history.must("getxattr of what is survived", survives)?;
        // What files share is stored as one of them asks, which another may call pending.
        if state.starts_with("pending") && survives == b"0" {
            let text = format!("{} is not stored as its policy says: {state}", history.model.path_of(inode));
            return Err(Stop::Failure(text));
        }
    }
    Ok(())
}

/// Scrubs; where copies bear the faults, what it leaves is whole.
pub(crate) fn scrub(history: &mut History) -> Result<(), Stop> {
    let is_whole = history.pool.is_whole();
    let struck = history.machine.faults_struck();
    let is_stopped = struck.iter().any(|(kind, _)| kind.may_stop_writing() || kind.is_absence());
    if history.plan.budget == Budget::Beyond || !is_whole || is_stopped || history.pool.has_changed_devices {
        return Ok(());
    }
    let rates: Vec<_> = (0..history.machine.device_count()).map(|device| history.machine.rates(device)).collect();
    history.pool.calm();
    // A row that files have not named yet is no live data: the next pass looks at it.
    history.sync_all()?;
    for pass in 1..=2 {
        let report = history.mounted().store.scrubber.scrub();
        let report = history.must("scrub", report.map_err(Error::from))?;
        if !report.is_clean() || (pass == 2 && report.repaired_blocks > 0) {
            return Err(Stop::Failure(format!("scrub of what copies bear, pass {pass}: {report:?}")));
        }
    }
    if history.plan.budget == Budget::Tolerated {
        prove_safe(history)?;
    }
    for (device, rates) in rates.into_iter().enumerate() {
        history.machine.set_faults(device, rates);
    }
    Ok(())
}

/// What a read found bad it has written again: whoever reads after it finds nothing bad.
pub(crate) fn prove_repaired(history: &mut History) -> Result<(), Stop> {
    let struck = history.machine.faults_struck();
    let is_other = |kind: FaultKind| kind.may_stop_writing() || kind.is_absence() || kind == FaultKind::StaleDevice;
    let is_plain = history.plan.budget == Budget::Tolerated && history.summary.changes == 0 && !history.plan.may_fill;
    if !is_plain || struck.is_empty() || struck.iter().any(|(kind, _)| is_other(*kind)) {
        return Ok(());
    }
    history.pool.calm();
    let mut errors = vec![history.pool.errors_of_devices()];
    // Another copy may be read the next time, but not for ever.
    for _ in 0..READS_MAX {
        history.verify_all()?;
        errors.push(history.pool.errors_of_devices());
        if errors.ends_with(&[errors[errors.len() - 2]; 2]) {
            return Ok(());
        }
    }
    Err(Stop::Failure(format!("what was found bad is found bad again and again: {errors:?} errors of devices")))
}

/// Whether nothing but slowness ever struck, and everything has copies elsewhere.
pub(crate) fn is_only_slow(history: &History) -> bool {
    let struck = history.machine.faults_struck();
    let is_slow = struck.iter().all(|(kind, _)| *kind == FaultKind::SlowDevice);
    let is_whole = history.summary.changes == 0 && history.pool.exposed.is_none() && !history.plan.may_fill;
    history.plan.budget == Budget::Tolerated && is_slow && is_whole && history.pool.offline.is_none()
}

/// Runs reads, which wait for no slow device whose bytes are elsewhere.
pub(crate) fn without_waiting<T>(
    history: &mut History,
    read: impl FnOnce(&mut History) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let before = history.machine.slow_reads();
    let value = read(history)?;
    let waits = history.machine.slow_reads() - before;
    if waits > 0 && is_only_slow(history) {
        return Err(Stop::Failure(format!("{waits} reads waited for a slow device that they do not need")));
    }
    Ok(value)
}

/// After a crash: where the pool holds everything to be whole, it is.
pub(crate) fn prove_claims(history: &mut History) -> Result<(), Stop> {
    let is_whole = history.pool.is_well();
    let is_asked = history.plan.budget == Budget::Tolerated && is_whole && history.random.chance(1, 4);
    if !is_asked || !device_lifecycle::must_be_safe(history) || device_lifecycle::lacks(history).is_some() {
        return Ok(());
    }
    match history.mounted().store.journal_mirrors().len() {
        0 | 1 => Ok(()),
        _ => prove_safe(history),
    }
}
