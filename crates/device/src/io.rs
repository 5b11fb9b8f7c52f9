//! How a call may use devices and media: a value that travels with it through all layers.
//!
//! An [`Io`] says whether the call may block, for devices only or for tertiary media too; what reads have arrived for it
//! ([`Call::collecting`], [`Call::arrived`]); who cancels it; whether it may recall at all; and whether it passes over metadata that is
//! offloaded. It is small and copied freely. Most calls use one of the constants.
//!
//! A non-blocking call that misses small content leaves the reads it needs in its `Call`. The front end submits them to its ring
//! and repeats the call with what arrived, so a cold read of a small range is one pass after the first miss.
//!
//! Invariants: a call that collects reads nothing itself; arrived bytes are unverified, so the layer that takes them verifies them.
//! Read next: `pending.rs` (one read), the log's `unwaited.rs` (where reads are left and taken).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pending::{Name, PendingRead};

/// How long a call may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocking {
    Never,
    Devices,
    DevicesAndMedia,
}

/// How one call may use devices and media.
#[derive(Clone, Copy)]
pub struct Io<'a> {
    blocking: Blocking,
    skips_offloaded: bool,
    call: Option<&'a Call>,
}

impl Io<'static> {
    /// Answers from memory, or with `WouldBlock`.
    pub const NON_BLOCKING: Io<'static> = Io::constant(Blocking::Never);
    /// Waits for devices; what needs tertiary media ends with `WouldBlock`.
    pub const DEVICES_ONLY: Io<'static> = Io::constant(Blocking::Devices);
    /// Waits for devices and for media.
    pub const BLOCKING: Io<'static> = Io::constant(Blocking::DevicesAndMedia);

    const fn constant(blocking: Blocking) -> Io<'static> {
        Io { blocking, skips_offloaded: false, call: None }
    }
}

impl<'a> Io<'a> {
    /// The same for a call with reads, cancellation or refusal of its own.
    #[must_use]
    pub fn of(self, call: &'a Call) -> Io<'a> {
        Io { call: Some(call), ..self }
    }

    /// The same, passing over metadata that is offloaded instead of reloading it.
    #[must_use]
    pub fn skipping_offloaded(self) -> Io<'a> {
        Io { skips_offloaded: true, ..self }
    }

    /// Whether the call may wait for devices.
    pub fn may_block(self) -> bool {
        self.blocking != Blocking::Never
    }

    /// Whether the call may wait for tertiary media.
    pub fn may_recall(self) -> bool {
        self.blocking == Blocking::DevicesAndMedia
    }

    pub fn skips_offloaded(self) -> bool {
        self.skips_offloaded
    }

    /// Who cancels the call.
    pub fn cancellation(self) -> Cancellation {
        self.call.map_or(Cancellation::NONE, |call| call.cancellation.clone())
    }

    /// Whether nobody wants the answer any more.
    pub fn is_cancelled(self) -> bool {
        self.call.is_some_and(|call| call.cancellation.is_cancelled())
    }

    /// Whether whoever waits for the answer is being killed: a long call may end with an error then.
    pub fn is_abandoned(self) -> bool {
        self.call.is_some_and(|call| call.abandonment.is_cancelled())
    }

    /// Whether the caller is refused what lies on tertiary media only. Asked when the first such thing is needed.
    pub fn is_recall_refused(self) -> bool {
        self.call.and_then(|call| call.recall_refused.as_ref()).is_some_and(|is_refused| is_refused())
    }

    /// Whether a miss is to be left as reads.
    pub fn collects_reads(self) -> bool {
        self.call.is_some_and(|call| matches!(&*call.reads.lock(), Reads::Collecting(_)))
    }

    /// Leaves reads for the caller, which repeats the call when all have arrived.
    pub fn leave_reads(self, mut reads: Vec<PendingRead>) {
        let call = self.call.expect("reads are left for calls that collect them");
        match &mut *call.reads.lock() {
            Reads::Collecting(collected) => collected.append(&mut reads),
            Reads::Off | Reads::Arrived(_) => unreachable!("this call collects no reads"),
        }
    }

    /// Shows the bytes of this name and length, if they have arrived.
    pub fn look<T>(self, name: Name, length: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let reads = self.call?.reads.lock();
        let Reads::Arrived(arrived) = &*reads else { return None };
        arrived.iter().find_map(|read| read.wanted_of(name, length)).map(look)
    }
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Io({:?})", self.blocking)
    }
}

#[derive(Default)]
enum Reads {
    #[default]
    Off,
    Collecting(Vec<PendingRead>),
    Arrived(Vec<PendingRead>),
}

type Check = Arc<dyn Fn() -> bool + Send + Sync>;

/// What belongs to one call, beyond whether it may block.
#[derive(Default)]
pub struct Call {
    reads: Mutex<Reads>,
    cancellation: Cancellation,
    abandonment: Cancellation,
    recall_refused: Option<Check>,
}

impl Call {
    /// A call that leaves the reads it misses.
    pub fn collecting() -> Call {
        Call { reads: Mutex::new(Reads::Collecting(Vec::new())), ..Call::default() }
    }

    /// A call that is repeated with the reads that have arrived.
    pub fn arrived(reads: Vec<PendingRead>) -> Call {
        Call { reads: Mutex::new(Reads::Arrived(reads)), ..Call::default() }
    }

    /// A call that can be cancelled.
    pub fn cancelled_by(cancellation: Cancellation) -> Call {
        Call { cancellation, ..Call::default() }
    }

    /// The same call, of somebody who may be killed meanwhile.
    #[must_use]
    pub fn abandoned_when(self, is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Call {
        Call { abandonment: Cancellation::when(is_gone), ..self }
    }

    /// The same call, refused what lies on tertiary media only if `is_refused` says so.
    #[must_use]
    pub fn refusing_recalls(self, is_refused: impl Fn() -> bool + Send + Sync + 'static) -> Call {
        Call { recall_refused: Some(Arc::new(is_refused)), ..self }
    }

    /// The reads that a collecting call has left.
    pub fn into_reads(self) -> Vec<PendingRead> {
        match self.reads.into_inner() {
            Reads::Collecting(reads) => reads,
            Reads::Off | Reads::Arrived(_) => Vec::new(),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Call")
    }
}

/// Tells whether nobody wants an answer any more. The default is never cancelled. Waits for devices are short and do not ask.
#[derive(Clone, Default)]
pub struct Cancellation(Option<Check>);

impl Cancellation {
    pub const NONE: Cancellation = Cancellation(None);

    pub fn when(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Cancellation {
        Cancellation(Some(Arc::new(is_cancelled)))
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|check| check())
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Cancellation(by its caller)" } else { "Cancellation(none)" })
    }
}

#[cfg(test)]
mod tests;
