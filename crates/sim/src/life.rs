//! The life of devices: one goes away, comes back at a mount, and what it missed is made up for.
//!
//! One device at a time may be away, and another one only after everything was found whole again: more are beyond what copies
//! bear. Within that the pool shows no error at all. Read next: `recovery.rs`.

use stere_naming::Error;
use stere_store::Wait;

use crate::fault::FaultKind;
use crate::history::{Budget, History, Stop};
use crate::pool::caller;

/// Rounds in which everything must be whole; each does what one step of the background work does.
const ROUNDS_MAX: usize = 1000;

impl History {
    /// A device goes away, at an event from now on or at once.
    pub(crate) fn take_away(&mut self, device: usize, events: u64) {
        let is_bearable = self.plan.budget == Budget::Tolerated && self.plan.pool.device_bytes.len() > 1;
        if is_bearable && self.may_suffer(device) && self.away().is_none() {
            self.exposed = Some(device);
            self.machine.take_away_after(device, events);
        }
    }

    /// Whether faults of this device can be borne: no other one fails, or has anything that is not known to be whole again.
    pub(crate) fn may_suffer(&self, device: usize) -> bool {
        let is_another = |other: usize| other != device;
        let is_armed = (0..self.plan.pool.device_bytes.len()).any(|at| is_another(at) && self.machine.is_faulty(at));
        let has_struck = self.machine.faults_struck().iter().any(|(kind, at)| {
            let counts = !matches!(kind, FaultKind::AwayDevice | FaultKind::SlowDevice);
            counts && is_another(*at)
        });
        let is_kept = self.kept_image.as_ref().is_some_and(|(at, _)| is_another(*at));
        !is_armed && !has_struck && !is_kept && !self.exposed.is_some_and(is_another)
    }

    /// Scrubs and mends until nothing is left to do, which must come, and demands that everything has all its copies then.
    pub(crate) fn mend(&mut self) -> Result<(), Stop> {
        if self.exposed.is_none() || self.away().is_some() || !self.is_calm() {
            return Ok(());
        }
        self.mend_all()?;
        let scrubbed = self.mounted().store.scrub();
        let scrubbed = self.must("scrub", scrubbed.map_err(Error::from))?;
        if !scrubbed.unrepairable.is_empty() {
            return Err(Stop::Failure(format!("scrub with all devices there: {scrubbed:?}")));
        }
        self.mend_all()?;
        let kept = self.mounted().store.commit(Wait::Allowed);
        self.must("commit after mending", kept.map_err(Error::from))?;
        let status = self.mounted().store.mend_status();
        // Somebody may have gone away or begun to fail in the middle of it, which is then not at its end.
        if self.away().is_some() || !self.is_calm() {
            return Ok(());
        }
        if status.chunks_left + status.waiting_chunks > 0 {
            return Err(Stop::Failure(format!("not whole after mending: {status:?}")));
        }
        self.machine.cancel_away();
        self.exposed = None;
        self.summary.mended += 1;
        Ok(())
    }

    fn mend_all(&mut self) -> Result<(), Stop> {
        for _ in 0..ROUNDS_MAX {
            let progress = self.mounted().store.mend_step(8 << 20);
            let mended = self.must("mending", progress.map_err(Error::from))?.is_done;
            let more = self.mounted().files.reconcile_step(&caller(&self.machine), 8 << 20);
            if mended && !self.must("reconciling", more)? {
                return Ok(());
            }
        }
        Err(Stop::Failure(format!("mending does not end: {:?}", self.mounted().store.mend_status())))
    }
}
