//! Devices that hang: calls of some kinds never come back, as with a link that is cut or a controller that is stuck.
//!
//! What a real device makes of that is played in the machine's time: a write or flush is given up at the deadline, and from then on
//! everything fails at once until the calls that were given up have come back. A write that hangs may have arrived, may arrive when the
//! device answers again, or never. Read next: `hanging.rs`, which lets devices of a history hang, and `stere_device`'s queue.

use std::sync::Arc;
use std::time::Duration;

use stere_device::Deadline;

use crate::device::{Machine, State};
use crate::random::Random;

/// How long a write or flush is waited for where nobody said anything else, as `device_timeout=` has it.
pub(crate) const DEADLINE_NS: u64 = 5_000_000_000;
/// Whoever waits without a deadline waits for ever, which this stands for.
const FOREVER_NS: u64 = 86_400_000_000_000;

/// After such a time everything that hangs at once answers again.
const OUTAGE_NS: u64 = 60_000_000_000;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Flush,
}

/// How long a call is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// So long, because the bytes can be had elsewhere.
    Until(u64),
    /// As long as the device's deadline says.
    Deadline,
}

/// What does not come back from a device.
#[derive(Debug, Clone)]
pub(crate) struct Hang {
    kinds: Vec<Call>,
    /// So many calls are answered before.
    calls_left: u32,
    /// Since when nothing came back.
    since_ns: Option<u64>,
    /// When the first write or flush that was given up began.
    given_up_ns: Option<u64>,
    /// Writes that are still on their way.
    late: Vec<(u64, Vec<u8>)>,
    /// The call that was made last is one that hangs, and was not refused because of another one.
    hung_now: bool,
}

impl Machine {
    /// Lets calls of these kinds hang from now on, after so many calls that are answered.
    pub(crate) fn hang(self: &Arc<Machine>, device: usize, kinds: &[Call], calls_left: u32) {
        let hang = Hang {
            kinds: kinds.to_vec(),
            calls_left,
            since_ns: None,
            given_up_ns: None,
            late: Vec::new(),
            hung_now: false,
        };
        self.state.lock().media[device].hang = Some(hang);
    }

    /// All calls come back, and writes that were on their way arrive, or not.
    pub(crate) fn answer_again(&self, device: usize) {
        let State { media, random, .. } = &mut *self.state.lock();
        let Some(hang) = media[device].hang.take() else { return };
        media[device].deadline.iter().for_each(Deadline::is_back);
        for (offset, bytes) in hang.late {
            if random.chance(1, 2) {
                media[device].write(offset, bytes);
            }
        }
    }

    /// Whether a write or flush of the device was given up that has not come back.
    pub(crate) fn is_given_up(&self, device: usize) -> bool {
        self.state.lock().media[device].hang.as_ref().is_some_and(|hang| hang.given_up_ns.is_some())
    }

    /// Whether anything hung.
    pub(crate) fn has_hung(&self, device: usize) -> bool {
        self.state.lock().media[device].hang.as_ref().is_some_and(|hang| hang.since_ns.is_some())
    }

    /// Calls that somebody waited for who set no bound.
    pub(crate) fn waited_for_ever(&self) -> u64 {
        self.state.lock().waited_for_ever
    }

    pub(crate) fn set_deadline(&self, device: usize, deadline: Option<Deadline>) {
        let limit = deadline.as_ref().map(|deadline| deadline.limit);
        let medium = &mut self.state.lock().media[device];
        medium.deadline_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        medium.deadline = deadline;
    }

    pub(crate) fn silent_for(&self, device: usize) -> Option<Duration> {
        let state = self.state.lock();
        let given_up_ns = state.media[device].hang.as_ref()?.given_up_ns?;
        Some(Duration::from_nanos(state.clock_ns.saturating_sub(given_up_ns)))
    }

    /// For how long nothing came back although it was asked for.
    pub(crate) fn stalled_us(&self, device: usize) -> u32 {
        let state = self.state.lock();
        let since_ns = state.media[device].hang.as_ref().and_then(|hang| hang.since_ns);
        let stalled_us = since_ns.map_or(0, |since_ns| state.clock_ns.saturating_sub(since_ns) / 1000);
        u32::try_from(stalled_us).unwrap_or(u32::MAX)
    }
}

impl State {
    /// Whether a call is answered. `Err` is the operating system's number: ETIME where the device is silent.
    pub(crate) fn answers(&mut self, device: usize, call: Call, patience: Patience) -> Result<(), i32> {
        let (now_ns, medium) = (self.clock_ns, &mut self.media[device]);
        let (deadline_ns, deadline) = (medium.deadline_ns, medium.deadline.clone());
        let Some(hang) = &mut medium.hang else { return Ok(()) };
        hang.hung_now = false;
        if hang.given_up_ns.is_some() {
            return Err(libc::ETIME);
        }
        if hang.calls_left > 0 {
            hang.calls_left -= 1;
            return Ok(());
        }
        if !hang.kinds.contains(&call) {
            return Ok(());
        }
        hang.hung_now = true;
        hang.since_ns.get_or_insert(now_ns);
        match (patience, deadline_ns) {
            (Patience::Until(patience_ns), _) => {
                self.clock_ns += patience_ns;
                Err(libc::ETIMEDOUT)
            }
            // The last one that answers is waited for.
            (Patience::Deadline, Some(_))
                if call != Call::Read && deadline.is_some_and(|deadline| !deadline.may_leave()) =>
            {
                self.clock_ns += OUTAGE_NS;
                self.media[device].hang = None;
                Ok(())
            }
            (Patience::Deadline, Some(deadline_ns)) => {
                if call != Call::Read {
                    hang.given_up_ns = Some(now_ns);
                }
                self.clock_ns += deadline_ns;
                Err(libc::ETIME)
            }
            (Patience::Deadline, None) => {
                self.waited_for_ever += 1;
                self.clock_ns += FOREVER_NS;
                Err(libc::EIO)
            }
        }
    }

    /// A write that hangs is somewhere on its way.
    pub(crate) fn leave_on_its_way(&mut self, device: usize, offset: u64, bytes: Vec<u8>) {
        let State { media, random, .. } = self;
        match (random.below(3), &mut media[device].hang) {
            (0, _) => media[device].write(offset, bytes),
            (1, Some(hang)) => hang.late.push((offset, bytes)),
            _ => {}
        }
    }
}

impl Hang {
    /// Whether the call that was made last hangs itself.
    pub(crate) fn has_just_begun(&self) -> bool {
        self.hung_now
    }

    /// The devices were closed and opened: whoever opened them has asked for nothing yet.
    pub(crate) fn reopen(&mut self) {
        (self.since_ns, self.given_up_ns) = (None, None);
    }

    /// Nothing is on its way any more.
    pub(crate) fn power_off(&mut self) {
        self.late.clear();
        self.reopen();
    }
}

/// Kinds of calls that hang: mostly all.
pub(crate) fn any_kinds(random: &mut Random) -> &'static [Call] {
    const KINDS: [&[Call]; 8] = [
        &[Call::Read, Call::Write, Call::Flush],
        &[Call::Read, Call::Write, Call::Flush],
        &[Call::Read],
        &[Call::Write],
        &[Call::Flush],
        &[Call::Write, Call::Flush],
        &[Call::Read, Call::Flush],
        &[Call::Read, Call::Write],
    ];
    KINDS[random.below(KINDS.len() as u64) as usize]
}
