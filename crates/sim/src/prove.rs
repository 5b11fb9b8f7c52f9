//! What can be shown only beside the history, on a copy of all devices: that what is called safe bears the loss of any one of
//! them, that what a read or a scrub repaired stays right, and that nobody waits for a slow device without need.
//!
//! Read next: `life.rs`, which says when everything must be safe.

use std::rc::Rc;

use stere_naming::{Error, OpenFlags};

use crate::content::pattern;
use crate::fault::FaultKind;
use crate::history::{Budget, History, Slot, Stop};
use crate::medium::Survival;
use crate::model::{Kind, Node, ROOT};
use crate::observe;
use crate::operation::CrashManner;
use crate::pool::caller;

/// After so many times everything was read from every copy that is ever asked.
const READS_MAX: usize = 6;

impl History {
    /// Everything bears the loss of one device, whichever that is, and a power cut with it: shown on a copy of the machine.
    pub(crate) fn prove_safe(&mut self) -> Result<(), Stop> {
        let struck_before = self.machine.faults_struck().len();
        self.sync_all()?;
        // Somebody may have gone away in the middle of it, or failed a flush, or was unreadable when the pool was mounted: what lacks then is
        // not called safe. Nor is what another fault struck that nobody has looked at since.
        let is_struck = self.machine.faults_struck().len() > struck_before;
        let is_short = is_struck || self.away().is_some() || self.has_lost_member() || self.lacks().is_some();
        if is_short || !self.must_be_safe() {
            return Ok(());
        }
        let members = self.members();
        let there: Vec<usize> = members.iter().map(|(device, _)| *device).collect();
        let there: Vec<usize> = there.into_iter().filter(|device| !self.machine.is_away(*device)).collect();
        let lost = *self.random.pick(&there);
        // What a flush that lied did not keep is lost with the power: together with another device that is too much.
        let has_lied = self.machine.faults_struck().iter().any(|(kind, _)| *kind == FaultKind::LyingFlush);
        let keeps_all = self.random.chance(1, 2) || has_lied;
        let fork = self.machine.fork(self.random.fork());
        fork.power_off();
        let survival = if keeps_all { Survival::Everything } else { Survival::Nothing };
        fork.power_on(&mut |_, _| survival.clone());
        fork.lose_after(lost, 0);
        self.summary.proofs += 1;
        let failed =
            |text: String| Stop::Failure(format!("what was called safe is not, without device {lost}: {text}"));
        let mounted = self.plan.pool.mount(&fork).map_err(failed)?;
        let seen = observe::observe(&mounted.files, &caller(&fork));
        let seen = seen.map_err(|trouble| failed(format!("{trouble:?}")))?;
        let expected = self.model.without_handles();
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
    pub(crate) fn lonely_sync(&mut self, device: usize, events: u64) -> Result<(), Stop> {
        const NAME: &[u8] = b"lonely";
        const BYTES: usize = 150_000;
        if !self.may_go(device) || !self.is_calm() || self.plan.may_fill || self.has_changed_devices {
            return Ok(());
        }
        // Nor where a limit has no room for it.
        if self.check_inode_room().and(self.check_growth(0, BYTES as u64)).is_err() {
            return Ok(());
        }
        // What was removed would stay as a version, with its one copy; what limits make of it nobody notes.
        if self.plan.pool.keeps_versions || self.has_quotas() {
            return Ok(());
        }
        self.machine.disarm();
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = self.mounted().files.create(&caller(&self.machine), ROOT, NAME, 0o666, flags);
        let (attributes, handle) = self.must("create", created)?;
        let inode = attributes.inode;
        self.made(ROOT, NAME, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        self.model.open(inode);
        self.put_policy(inode, b"user.stere.copies", b"1")?;
        self.sync_all()?;
        let seed = self.random.next_u64();
        self.write(inode, 0, &pattern(seed, BYTES))?;
        self.take_away(device, events);
        self.fsync(inode)?;
        // What had reached the device before it went is lost with it, as was asked for.
        if self.machine.went_unflushed(device) {
            self.machine.power_off();
            self.recover(CrashManner::Nothing, None)?;
            self.returning = Some(device);
            self.remove_name(ROOT, NAME, false)?;
            return self.sync_all();
        }
        self.machine.cancel_away();
        self.release(Slot { inode, handle })?;
        self.returning = Some(device);
        self.remove_name(ROOT, NAME, false)?;
        // A crash must not bring it back: it alone of all files is lost with one device.
        self.sync_all()
    }

    /// No file waits for a copy that its policy asks for.
    pub(crate) fn prove_policies(&mut self) -> Result<(), Stop> {
        let files = self.model.nodes.iter().filter(|(_, node)| node.content().is_some() && node.nlink > 0);
        let inodes: Vec<u64> = files.map(|(inode, _)| *inode).collect();
        for inode in inodes {
            let state = self.mounted().files.getxattr(&caller(&self.machine), inode, b"user.stere.state");
            let state = String::from_utf8_lossy(&self.must("getxattr of the state", state)?).into_owned();
            let residency = self.mounted().files.getxattr(&caller(&self.machine), inode, b"user.stere.residency");
            // What is on volumes only is as safe as these are.
            if self.must("getxattr of the residency", residency)? != b"online" {
                continue;
            }
            let survives = self.mounted().files.getxattr(&caller(&self.machine), inode, b"user.stere.survives");
            let survives = self.must("getxattr of what is survived", survives)?;
            // What files share is stored as one of them asks, which another may call pending.
            if state.starts_with("pending") && survives == b"0" {
                let text = format!("{} is not stored as its policy says: {state}", self.model.path_of(inode));
                return Err(Stop::Failure(text));
            }
        }
        Ok(())
    }

    /// Scrubs; where copies bear the faults, what it leaves is whole.
    pub(crate) fn scrub(&mut self) -> Result<(), Stop> {
        let is_whole = self.exposed.is_none() && self.away().is_none() && self.kept_image.is_none();
        let struck = self.machine.faults_struck();
        let is_stopped = struck.iter().any(|(kind, _)| kind.may_stop_writing() || kind.is_absence());
        if self.plan.budget == Budget::Beyond || !is_whole || is_stopped || self.has_changed_devices {
            return Ok(());
        }
        let rates: Vec<_> = (0..self.machine.device_count()).map(|device| self.machine.rates(device)).collect();
        self.calm();
        for pass in 1..=2 {
            let report = self.mounted().store.scrubber.scrub();
            let report = self.must("scrub", report.map_err(Error::from))?;
            if !report.is_clean() || (pass == 2 && report.repaired_blocks > 0) {
                return Err(Stop::Failure(format!("scrub of what copies bear, pass {pass}: {report:?}")));
            }
        }
        if self.plan.budget == Budget::Tolerated {
            self.prove_safe()?;
        }
        for (device, rates) in rates.into_iter().enumerate() {
            self.machine.set_faults(device, rates);
        }
        Ok(())
    }

    /// What a read found bad it has written again: whoever reads after it finds nothing bad.
    pub(crate) fn prove_repaired(&mut self) -> Result<(), Stop> {
        let struck = self.machine.faults_struck();
        let is_other = |kind: FaultKind| kind.may_stop_writing() || kind.is_absence() || kind == FaultKind::StaleDevice;
        let is_plain = self.plan.budget == Budget::Tolerated && self.summary.changes == 0 && !self.plan.may_fill;
        if !is_plain || struck.is_empty() || struck.iter().any(|(kind, _)| is_other(*kind)) {
            return Ok(());
        }
        self.calm();
        let mut errors = vec![self.errors_of_devices()];
        // Another copy may be read the next time, but not for ever.
        for _ in 0..READS_MAX {
            self.verify_all()?;
            errors.push(self.errors_of_devices());
            if errors.ends_with(&[errors[errors.len() - 2]; 2]) {
                return Ok(());
            }
        }
        Err(Stop::Failure(format!("what was found bad is found bad again and again: {errors:?} errors of devices")))
    }

    fn errors_of_devices(&self) -> u64 {
        let statistics = self.mounted().store.device_statistics();
        statistics.iter().map(|(_, statistics)| statistics.read_errors + statistics.checksum_errors).sum()
    }

    /// Whether nothing but slowness ever struck, and everything has copies elsewhere.
    pub(crate) fn is_only_slow(&self) -> bool {
        let struck = self.machine.faults_struck();
        let is_slow = struck.iter().all(|(kind, _)| *kind == FaultKind::SlowDevice);
        let is_whole = self.summary.changes == 0 && self.exposed.is_none() && !self.plan.may_fill;
        self.plan.budget == Budget::Tolerated && is_slow && is_whole && self.offline.is_none()
    }

    /// Runs reads, which wait for no slow device whose bytes are elsewhere.
    pub(crate) fn without_waiting<T>(&mut self, read: impl FnOnce(&mut History) -> Result<T, Stop>) -> Result<T, Stop> {
        let before = self.machine.slow_reads();
        let value = read(self)?;
        let waits = self.machine.slow_reads() - before;
        if waits > 0 && self.is_only_slow() {
            return Err(Stop::Failure(format!("{waits} reads waited for a slow device that they do not need")));
        }
        Ok(value)
    }

    /// After a crash: where the pool holds everything to be whole, it is.
    pub(crate) fn prove_claims(&mut self) -> Result<(), Stop> {
        let is_whole = self.exposed.is_none() && self.away().is_none() && self.kept_image.is_none() && self.is_calm();
        let is_asked = self.plan.budget == Budget::Tolerated && is_whole && self.random.chance(1, 4);
        if !is_asked || !self.must_be_safe() || self.lacks().is_some() {
            return Ok(());
        }
        match self.mounted().store.journal_mirrors().len() {
            0 | 1 => Ok(()),
            _ => self.prove_safe(),
        }
    }
}
