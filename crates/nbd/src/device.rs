//! A device on another machine: several connections to one export, and a deadline for every call.
//!
//! A call that takes longer than its deadline fails, with all that are under way, and the device is silent: whatever is asked of it fails at
//! once. Invariants: what was written since the last flush that succeeded is lost when a connection breaks, as far as anybody knows,
//! so the next flush fails; a device that comes back with another size, or with an older disk, stays away. Read next: `node.rs`.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stere_device::deadline::WAITED_FOR;
use stere_device::parallel::reader_threads;
use stere_device::{
    Access, Buffer, BufferPool, Completion, Deadline, Device, DeviceError, Operation, Parallel, Piece, Scatter, Ticket,
    check_range, length_of,
};

use crate::address::Address;
use crate::connection::{Failure, ReadCell, Waiter};
use crate::error::NbdError;
use crate::node::{Away, BLOCK_BYTES, Node};
use crate::session::Session;
use crate::wire::Command;

/// How long opening a device may take in all.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// What latency is told of.
const LATENCY_UNIT_BYTES: usize = 64 << 10;
/// A read that others could answer is waited for so many times what it should take,
const PATIENCE: u32 = 8;
/// within these bounds.
const PATIENCE_RANGE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// A node that gives others what they asked for is waited for no longer than this, where somebody else has the bytes.
const BUSY_MAX: Duration = Duration::from_secs(3);
/// Free bounce memory a device keeps.
const BOUNCE_RETAINED_BYTES: usize = 8 << 20;

/// A session, asked for once more where the other side breaks off: it may have found out just now that a connection before is gone.
fn open_session(address: &Address) -> Result<Session, NbdError> {
    let is_broken = |error: &io::Error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
    };
    match Session::open(address) {
        Err(NbdError::Io(error)) if is_broken(&error) => Session::open(address),
        outcome => outcome,
    }
}

/// A device that is reached by NBD.
pub struct NbdDevice {
    node: Arc<Node>,
    bounce: BufferPool,
}

impl NbdDevice {
    /// Opens a device by its address. Takes `OPEN_TIMEOUT` at most.
    pub fn open(path: &Path, access: Access) -> Result<NbdDevice, DeviceError> {
        let name = path.display().to_string();
        let failed = |error: NbdError| match error {
            NbdError::Io(_) => DeviceError::Unreachable { device: name.clone(), why: error.to_string() },
            other => DeviceError::Unusable { device: name.clone(), why: other.to_string() },
        };
        let address = Address::parse(&name).map_err(failed)?;
        // A name that is looked up has no deadline of its own.
        let (give, take) = mpsc::channel();
        let asked = address.clone();
        let ask = move || drop(give.send(open_session(&asked)));
        let started = std::thread::Builder::new().name("stere-nbd-open".into()).spawn(ask);
        started.map_err(|error| failed(error.into()))?;
        let session = match take.recv_timeout(OPEN_TIMEOUT) {
            Ok(session) => session.map_err(failed)?,
            Err(_) => return Err(DeviceError::Silent { device: name }),
        };
        let export = session.export;
        if access == Access::ReadWrite && export.flags.is_read_only() {
            return Err(DeviceError::Unusable { device: name, why: "its server gives it for reading only".into() });
        }
        if access == Access::ReadWrite && !export.flags.has_flush() {
            let why = "its server cannot flush, so nothing written there is ever known to be durable".into();
            return Err(DeviceError::Unusable { device: name, why });
        }
        let node = Arc::new(Node::new(name.clone(), address, access, export, session.epoch));
        let connections = node.connect_all(session).map_err(failed)?;
        node.state.lock().connections = connections;
        let kept = node.clone();
        let keep = move || kept.supervise();
        if let Err(error) = std::thread::Builder::new().name("stere-nbd-keep".into()).spawn(keep) {
            node.close();
            return Err(failed(error.into()));
        }
        Ok(NbdDevice { node, bounce: BufferPool::new(BOUNCE_RETAINED_BYTES) })
    }

    /// Whether the server says that it is a disk that turns; none where it does not say anything of the kind.
    pub fn is_rotational(&self) -> bool {
        self.node.export.flags.is_rotational()
    }

    /// Whether all who are connected see the same, as the server says.
    pub fn has_several_connections(&self) -> bool {
        self.node.export.flags.has_several_connections()
    }

    /// The widened range of a read, and how much of its head nobody asked for.
    fn widen(&self, offset: u64, length: usize) -> (u64, usize, usize) {
        let align = u64::from(self.node.export.block_bytes);
        let start = offset / align * align;
        let end = (offset + length as u64).next_multiple_of(align);
        assert!(end <= self.node.size_bytes(), "a read is widened to {end} of {} bytes", self.node.size_bytes());
        (start, (offset - start) as usize, (end - start) as usize)
    }

    /// Reads, waiting so long at most; `None` if that was not enough.
    fn read_within(
        &self,
        patience: Option<Duration>,
        offset: u64,
        pieces: &mut [Scatter<'_>],
    ) -> Option<Result<(), DeviceError>> {
        let node = &self.node;
        let length: usize = pieces.iter().map(Scatter::length).sum();
        if let Err(error) = check_range(&node.name, Operation::Read, offset, length as u64, node.size_bytes()) {
            return Some(Err(error));
        }
        if length == 0 {
            return Some(Ok(()));
        }
        let begun = Instant::now();
        let (start, head, whole) = self.widen(offset, length);
        let payload = node.export.payload_bytes_max as usize;
        assert!(head < whole && head + length <= whole, "what is wanted is read");
        let parts: Vec<(usize, Arc<ReadCell>)> = (0..whole)
            .step_by(payload)
            .map(|at| {
                let buffer = self.bounce.take(payload.min(whole - at));
                (at, node.submit_read(start + at as u64, buffer))
            })
            .collect();
        for (at, cell) in parts {
            let buffer = match self.wait_for(&cell, begun, patience)? {
                Ok(buffer) => buffer,
                Err(Failure::Silent) => return Some(Err(node.silent())),
                Err(Failure::Server(error)) => return Some(Err(node.failed(Operation::Read, offset, error))),
            };
            scatter(&buffer, at, head, pieces);
        }
        Some(Ok(()))
    }

    /// What a read gave; `None` when nobody shall wait for it any longer: nothing came from the node for so long. A node that is busy with
    /// what was asked before is no reason to ask others, who are as busy.
    fn wait_for(&self, cell: &ReadCell, begun: Instant, patience: Option<Duration>) -> Option<Result<Buffer, Failure>> {
        let mut until = patience.map(|patience| begun + patience);
        loop {
            if let Some(outcome) = cell.wait(until) {
                return Some(outcome);
            }
            let (patience, stalled) = (patience?, self.node.latency.stalled());
            if stalled >= patience || begun.elapsed() >= BUSY_MAX {
                return None;
            }
            until = Some(Instant::now() + (patience - stalled));
        }
    }

    fn check_write(&self, offset: u64, pieces: &[Piece]) -> Result<(), DeviceError> {
        let (node, device) = (&self.node, self.node.name.clone());
        if node.access == Access::ReadOnly {
            return Err(DeviceError::ReadOnly { device });
        }
        let length = length_of(pieces) as u64;
        check_range(&node.name, Operation::Write, offset, length, node.size_bytes())?;
        let block_bytes = BLOCK_BYTES;
        let is_whole = |length: usize| length % block_bytes as usize == 0;
        if offset % u64::from(block_bytes) != 0 || !pieces.iter().all(|piece| is_whole(piece.bytes().len())) {
            return Err(DeviceError::Unaligned { device, operation: Operation::Write, offset, length, block_bytes });
        }
        node.refuse_after_failed_flush()
    }
}

/// Copies what arrived, which begins `at` behind the start of the read, to where it is wanted; the first `head` bytes of all nobody wants.
fn scatter(buffer: &[u8], at: usize, head: usize, pieces: &mut [Scatter<'_>]) {
    let mut place = head;
    for piece in pieces {
        let length = piece.length();
        if let Scatter::Into(slice) = piece {
            let (from, to) = (place.max(at), (place + length).min(at + buffer.len()));
            if from < to {
                slice[from - place..to - place].copy_from_slice(&buffer[from - at..to - at]);
            }
        }
        place += length;
    }
}

/// Pieces cut into requests of at most so many bytes each.
fn cut(pieces: Vec<Piece>, bytes_max: usize) -> Vec<Vec<Piece>> {
    let (mut requests, mut current, mut length) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        let mut at = 0;
        while at < piece.bytes().len() {
            let end = piece.bytes().len().min(at + bytes_max - length);
            current.push(piece.part(at..end));
            length += end - at;
            at = end;
            if length == bytes_max {
                requests.push(std::mem::take(&mut current));
                length = 0;
            }
        }
    }
    if !current.is_empty() {
        requests.push(current);
    }
    assert!(requests.iter().all(|pieces| length_of(pieces) <= bytes_max), "no request is too long");
    requests
}

impl Device for NbdDevice {
    fn size_bytes(&self) -> u64 {
        self.node.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        self.read_within(None, offset, pieces).unwrap_or_else(|| Err(self.node.silent()))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_scattered(offset, &mut [Scatter::Into(buffer)])
    }

    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length: usize = pieces.iter().map(Scatter::length).sum();
        let units = length.div_ceil(LATENCY_UNIT_BYTES).max(1) as u32;
        let expected = Duration::from_micros(u64::from(self.node.latency.microseconds())) * units;
        let patience = (expected * PATIENCE).clamp(PATIENCE_RANGE.0, PATIENCE_RANGE.1);
        let too_slow = || Err(DeviceError::TooSlow { device: self.node.name.clone() });
        self.read_within(Some(patience), offset, pieces).unwrap_or_else(too_slow)
    }

    fn latency_us(&self) -> u32 {
        self.node.latency.microseconds()
    }

    fn submit_write_gathered(&self, offset: u64, mut pieces: Vec<Piece>, ticket: Ticket) {
        let checked = self.check_write(offset, &pieces);
        if checked.is_err() {
            return ticket.finish(checked);
        }
        pieces.retain(|piece| !piece.bytes().is_empty());
        let mut requests = cut(pieces, self.node.export.payload_bytes_max as usize);
        match requests.len() {
            0 => ticket.finish(Ok(())),
            1 => {
                self.node.submit_write(offset, requests.swap_remove(0), ticket);
            }
            _ => {
                // Larger than a request may be, which rows never are: its caller waits.
                let (completion, mut at) = (Completion::new(), offset);
                for pieces in requests {
                    let length = length_of(&pieces);
                    self.node.submit_write(at, pieces, completion.ticket(0));
                    at += length as u64;
                }
                ticket.finish(completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error)));
            }
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let completion = Completion::new();
        self.submit_flush(completion.ticket(0));
        completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn submit_flush(&self, ticket: Ticket) {
        let node = &self.node;
        if node.access == Access::ReadOnly {
            return ticket.finish(Ok(()));
        }
        if let Err(error) = node.refuse_after_failed_flush() {
            return ticket.finish(Err(error));
        }
        if node.is_unflushed_lost.load(Ordering::Acquire) {
            node.tell_loss();
            return ticket.finish(Err(node.silent()));
        }
        node.submit_other(Command::Flush, 0, 0, Waiter::Flush(ticket));
    }

    fn answers(&self) -> Result<(), DeviceError> {
        self.node.refuse_after_failed_flush()?;
        let completion = Completion::new();
        self.node.submit_other(Command::Flush, 0, 0, Waiter::Trim(completion.ticket(0)));
        completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let node = &self.node;
        if node.access == Access::ReadOnly {
            return Err(DeviceError::ReadOnly { device: node.name.clone() });
        }
        check_range(&node.name, Operation::Discard, offset, length, node.size_bytes())?;
        if length == 0 || !node.export.flags.has_trim() {
            return Ok(());
        }
        let (completion, step) = (Completion::new(), u64::from(node.export.payload_bytes_max));
        for at in (offset..offset + length).step_by(step as usize) {
            let part = step.min(offset + length - at) as usize;
            node.submit_other(Command::Trim, at, part, Waiter::Trim(completion.ticket(0)));
        }
        completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.node.state.lock().deadline = deadline;
        self.node.changed.notify_one();
    }

    fn silent_for(&self) -> Option<Duration> {
        let state = self.node.state.lock();
        state.away.as_ref().filter(|away| !away.is_waited_for).map(|away| away.since.elapsed())
    }

    fn silent_because(&self) -> Option<String> {
        let state = self.node.state.lock();
        let why = |away: &Away| match away.is_waited_for {
            true => format!("{}; {WAITED_FOR}", away.why),
            false => away.why.clone(),
        };
        state.away.as_ref().map(why)
    }

    fn expect_other_writer(&self, offset: u64, length: u64) {
        self.node.witnesses.lock().forget(offset, length);
    }

    fn note_other_writer(&self) {
        let mut replay = self.node.replay.lock();
        let number = self.node.written.fetch_add(1, Ordering::AcqRel) + 1;
        replay.miss(number);
    }

    fn leave_flushing_to_others(&self) {
        self.node.is_flushed_by_others.store(true, Ordering::Release);
    }

    fn set_epoch(&self, epoch: u64) {
        self.node.fence.epoch.store(epoch, Ordering::Release);
    }

    fn tell(&self, offset: u64, length: u64, settings: &str) {
        let node = &self.node;
        if !node.export.is_stere || node.access == Access::ReadOnly {
            return;
        }
        node.tell(offset, length, settings);
    }

    fn hears(&self) -> bool {
        self.node.export.is_stere
    }

    fn told_in_vain(&self) -> Option<String> {
        self.node.told_in_vain.lock().clone()
    }

    fn kept_epoch(&self) -> u64 {
        self.node.fence.kept
    }

    fn forget_epochs(&self) -> Result<(), DeviceError> {
        let node = &self.node;
        if !node.fence.is_heard || node.fence.epoch.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let completion = Completion::new();
        node.submit_other(Command::Fence, 0, 0, Waiter::Trim(completion.ticket(0)));
        completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error))?;
        self.set_epoch(0);
        Ok(())
    }

    fn parallel(&self) -> Option<Arc<dyn Parallel>> {
        reader_threads()
    }

    fn describe(&self) -> String {
        let count = self.node.state.lock().connections.len();
        format!("{} (NBD, {} bytes, {count} connections)", self.node.name, self.size_bytes())
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.node.close();
    }
}

#[cfg(test)]
mod tests;
