//! The state of a device that its calls, its connections and the thread of `reconnect.rs` share: who waits for what, and what is durable.
//!
//! Invariant: a request has one waiter, who hears of it once: from the answer, or because the device is away. Read next: `reconnect.rs`.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stere_device::latency::Latency;
use stere_device::{Access, Buffer, Deadline, DeviceError, Operation, Piece, Ticket, length_of};

use crate::address::Address;
use crate::connection::{Connection, Failure, Filling, Kind, Pending, ReadCell, Waiter};
use crate::error::NbdError;
use crate::replay::{KEPT_BYTES_MAX, Replay};
use crate::session::{Export, Session};
use crate::wire::Command;
use crate::wire::extension::Told;
use crate::witness::{self, Witnesses};

/// Connections to a server that flushes them all at once.
pub const CONNECTIONS: usize = 4;
/// The device is written in units of this many bytes.
pub const BLOCK_BYTES: u32 = 4096;
/// Requests of this length and more share a connection while the link is slow: many connections of many machines fill its queue, and what
/// is dropped there is waited for by each of them.
const LONG_BYTES: usize = 64 << 10;
/// A link is not slow on which 64 KiB take less than this, in the average.
const FAST_US: u32 = 4000;
/// A request that waits behind others of a busy server is waited for as many times longer.
const BUSY_LIMITS: u32 = 3;
/// How long closing a device waits for what is under way.
const CLOSE: Duration = Duration::from_secs(1);
const EIO: i32 = 5;
const EPERM: i32 = 1;

pub struct Away {
    pub since: Instant,
    pub why: String,
    /// No other device of the pool answers: requests wait.
    pub is_waited_for: bool,
}

#[derive(Default)]
pub struct State {
    pub connections: Vec<Arc<Connection>>,
    pub next: usize,
    pub deadline: Option<Deadline>,
    /// As which the device has left the others, while it is silent.
    pub left: Option<Deadline>,
    pub away: Option<Away>,
    /// Requests that wait for it to come back.
    pub held: Vec<Pending>,
    pub is_closing: bool,
}

impl State {
    /// The one with the least to do, but for long requests on a slow link, or one of which nothing is known: these share the first.
    pub fn connection_for(&mut self, length: usize, latency_us: u32) -> Option<Arc<Connection>> {
        let is_fast = (1..FAST_US).contains(&latency_us);
        if length >= LONG_BYTES && !is_fast {
            return self.connections.first().cloned();
        }
        self.next = self.next.wrapping_add(1);
        let (next, count) = (self.next, self.connections.len());
        let in_order = (0..count).map(|at| &self.connections[(next + at) % count]);
        in_order.min_by_key(|connection| connection.in_flight()).cloned()
    }
}

/// For which owner a stere node is written.
pub struct Fence {
    /// Whether the server is a stere node, and hears of it.
    pub is_heard: bool,
    /// What the node knew when the device was opened.
    pub kept: u64,
    /// Until an owner says his own epoch, what is written is written as by the last one: to get the pool at all.
    pub epoch: AtomicU64,
}

impl Fence {
    /// What a connection has to say before it changes anything; none if nothing.
    pub fn wanted(&self, command: Command) -> Option<u64> {
        let changes =
            matches!(command, Command::Write | Command::Trim | Command::Flush | Command::Fence | Command::Tell);
        let epoch = self.epoch.load(Ordering::Acquire);
        (self.is_heard && changes && epoch != 0).then_some(epoch)
    }
}

pub struct Node {
    pub name: String,
    pub address: Address,
    pub access: Access,
    pub export: Export,
    pub state: Mutex<State>,
    /// For the thread that watches: something was asked, is away, or is over.
    pub changed: Condvar,
    pub latency: Latency,
    /// Writes that were acknowledged, and how many of them a flush has covered.
    pub written: AtomicU64,
    pub flushed: AtomicU64,
    /// The server may have lost what it had acknowledged and not flushed.
    pub is_unflushed_lost: AtomicBool,
    /// Why a flush failed: what the server then dropped cannot be known.
    pub flush_failed: OnceLock<String>,
    pub witnesses: Mutex<Witnesses>,
    pub replay: Mutex<Replay>,
    /// Another machine makes durable what is written here.
    pub is_flushed_by_others: AtomicBool,
    pub fence: Arc<Fence>,
    /// When a request of each kind was answered last.
    pub answered: Mutex<[Option<Instant>; 2]>,
    /// What it did not take of that.
    pub told_in_vain: Mutex<Option<String>>,
}

impl Node {
    pub fn new(name: String, address: Address, access: Access, export: Export, kept_epoch: u64) -> Node {
        Node {
            name,
            address,
            access,
            export,
            state: Mutex::default(),
            changed: Condvar::new(),
            latency: Latency::default(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            is_unflushed_lost: AtomicBool::new(false),
            flush_failed: OnceLock::new(),
            witnesses: Mutex::default(),
            replay: Mutex::default(),
            is_flushed_by_others: AtomicBool::new(false),
            fence: Arc::new(Fence { is_heard: export.is_stere, kept: kept_epoch, epoch: AtomicU64::new(kept_epoch) }),
            answered: Mutex::default(),
            told_in_vain: Mutex::default(),
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.export.size_bytes / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES)
    }

    pub fn silent(&self) -> DeviceError {
        DeviceError::Silent { device: self.name.clone() }
    }

    pub fn failed(&self, operation: Operation, offset: u64, error: i32) -> DeviceError {
        if self.export.is_stere && error == EPERM && operation != Operation::Read {
            return DeviceError::Fenced { device: self.name.clone() };
        }
        let source = Arc::new(io::Error::from_raw_os_error(error));
        DeviceError::Io { device: self.name.clone(), operation, offset, source }
    }

    /// A first session, and as many more as the server is good for.
    pub fn connect_all(self: &Arc<Self>, first: Session) -> Result<Vec<Arc<Connection>>, NbdError> {
        let wanted = if self.export.flags.has_several_connections() { CONNECTIONS } else { 1 };
        assert_eq!(first.export, self.export, "the export is the one that was agreed on");
        let mut connections = vec![Connection::start(first, self)?];
        while connections.len() < wanted {
            // One is enough to work with.
            match Session::open(&self.address) {
                Ok(session) if session.export == self.export => connections.push(Connection::start(session, self)?),
                _ => break,
            }
        }
        Ok(connections)
    }

    /// Sends a request; gives it back where the device is away and nobody waits for it.
    pub fn submit(&self, pending: Pending) -> Option<Pending> {
        let connection = {
            let mut state = self.state.lock();
            match &state.away {
                _ if state.is_closing => return Some(pending),
                Some(away) if !away.is_waited_for => return Some(pending),
                Some(_) => {
                    state.held.push(pending);
                    return None;
                }
                None => {}
            }
            state.connection_for(pending.length, self.latency.microseconds())
        };
        let outcome = match &connection {
            Some(connection) => connection.submit(pending),
            None => Some(pending),
        };
        let mut state = self.state.lock();
        // It may have been lost since: then nobody looks at what waits for it any more.
        let is_lost = state.is_closing || state.away.as_ref().is_some_and(|away| !away.is_waited_for);
        match outcome {
            Some(pending) if is_lost => return Some(pending),
            // The thread that looks after connections finds this one over, and decides.
            Some(pending) => state.held.push(pending),
            None => {}
        }
        drop(state);
        connection.iter().filter(|_| is_lost).for_each(|connection| self.give_up_all(connection));
        self.changed.notify_one();
        None
    }

    pub fn pending(&self, command: Command, offset: u64, length: usize, waiter: Waiter) -> Pending {
        let covers = match command {
            Command::Flush => {
                let _noted = self.replay.lock();
                self.written.load(Ordering::Acquire)
            }
            _ => 0,
        };
        assert!(length as u64 <= u64::from(self.export.payload_bytes_max), "a request moves no more than was agreed");
        Pending {
            command,
            pieces: Vec::new(),
            begun: self.latency.begin(),
            offset,
            length,
            waiter: Some(waiter),
            filling: None,
            covers,
            checksum: 0,
        }
    }

    pub fn submit_read(&self, offset: u64, buffer: Buffer) -> Arc<ReadCell> {
        let cell = Arc::new(ReadCell::default());
        let mut pending = self.pending(Command::Read, offset, buffer.len(), Waiter::Read(cell.clone()));
        pending.filling = Some(Filling::of(buffer));
        if let Some(pending) = self.submit(pending) {
            self.refuse(pending);
        }
        cell
    }

    pub fn submit_other(&self, command: Command, offset: u64, length: usize, waiter: Waiter) {
        if command == Command::Trim {
            self.witnesses.lock().forget(offset, length as u64);
        }
        if let Some(pending) = self.submit(self.pending(command, offset, length, waiter)) {
            self.refuse(pending);
        }
    }

    pub fn submit_write(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        let length = length_of(&pieces);
        self.witnesses.lock().forget(offset, length as u64);
        assert!(length % BLOCK_BYTES as usize == 0, "blocks are written, not {length} bytes");
        let checksum = witness::checksum(&pieces[0].bytes()[..witness::BLOCK_BYTES]);
        let mut pending = self.pending(Command::Write, offset, length, Waiter::Write(ticket));
        (pending.checksum, pending.pieces) = (checksum, pieces);
        if let Some(pending) = self.submit(pending) {
            self.refuse(pending);
        }
    }

    /// Tells a stere node what to do with a range. Nobody waits for it: no byte of the range depends on when it comes.
    pub fn tell(&self, offset: u64, length: u64, settings: &str) {
        let payload = Buffer::copy_of(&Told { length, settings: settings.to_owned() }.encode()).share();
        let mut pending = self.pending(Command::Tell, offset, payload.len(), Waiter::Tell);
        let end = payload.len();
        pending.pieces = vec![Piece::new(payload, 0..end)];
        if let Some(pending) = self.submit(pending) {
            self.refuse(pending);
        }
    }

    pub fn refuse(&self, mut pending: Pending) {
        self.latency.end(pending.begun, pending.length);
        if let Some(waiter) = pending.waiter.take() {
            self.tell_silent(waiter);
        }
    }

    pub fn tell_silent(&self, waiter: Waiter) {
        match waiter {
            Waiter::Read(cell) => cell.finish(Err(Failure::Silent)),
            // The caller counts all that was not flushed as lost now: a flush that failed has said so.
            Waiter::Flush(ticket) => {
                self.tell_loss();
                ticket.finish(Err(self.silent()));
            }
            Waiter::Write(ticket) | Waiter::Trim(ticket) => ticket.finish(Err(self.silent())),
            // Whoever writes there once more tells it again.
            Waiter::Fence | Waiter::Tell => {}
        }
    }

    /// From now on the device is away. Whoever waits for it hears so, unless no other device of the pool answers.
    pub fn lose(&self, since: Instant, why: String) {
        {
            let mut state = self.state.lock();
            if state.away.is_none() && !state.is_closing {
                tracing::warn!(device = self.name, why, "a device on another machine is away");
                state.away = Some(Away { since, why, is_waited_for: true });
            }
        }
        self.leave_if_may();
        self.changed.notify_one();
    }

    /// A device that is away is waited for no longer where another one answers.
    pub fn leave_if_may(&self) {
        let (connections, held) = {
            let mut state = self.state.lock();
            let deadline = state.deadline.clone();
            let may_leave = deadline.as_ref().is_some_and(Deadline::may_leave);
            match &mut state.away {
                Some(away) if may_leave => away.is_waited_for = false,
                _ => return,
            }
            state.left = deadline;
            (state.connections.clone(), std::mem::take(&mut state.held))
        };
        connections.iter().for_each(|connection| self.give_up_all(connection));
        held.into_iter().for_each(|pending| self.refuse(pending));
    }

    /// Sends requests that waited, now that the device is back.
    pub fn send_held(&self, held: Vec<Pending>) {
        for mut pending in held {
            assert!(pending.waiter.is_some(), "a request that is held has somebody who waits");
            let is_lost = self.is_unflushed_lost.load(Ordering::Acquire);
            if is_lost && matches!(pending.waiter, Some(Waiter::Flush(_))) {
                self.refuse(pending);
                continue;
            }
            if matches!(pending.waiter, Some(Waiter::Read(_))) {
                pending.filling = Some(Filling::of(Buffer::zeroed(pending.length)));
            }
            if let Some(pending) = self.submit(pending) {
                self.refuse(pending);
            }
        }
    }

    /// Whoever waits on a connection that is ended hears so.
    pub fn give_up_all(&self, connection: &Arc<Connection>) {
        for (waiter, begun, length) in connection.give_up() {
            if matches!(waiter, Waiter::Fence) {
                continue;
            }
            self.latency.end(begun, length);
            self.tell_silent(waiter);
        }
    }

    /// Somebody hears that what was not flushed is lost.
    pub fn tell_loss(&self) {
        let written = self.written.load(Ordering::Acquire);
        self.flushed.fetch_max(written, Ordering::AcqRel);
        self.replay.lock().flushed(written);
        self.is_unflushed_lost.store(false, Ordering::Release);
    }

    pub fn refuse_after_failed_flush(&self) -> Result<(), DeviceError> {
        match self.flush_failed.get() {
            None => Ok(()),
            Some(reason) => Err(DeviceError::FlushFailed { device: self.name.clone(), reason: reason.clone() }),
        }
    }

    pub fn is_back(&self, why: &str) {
        let (away, held) = {
            let mut state = self.state.lock();
            state.left.take().iter().for_each(Deadline::is_back);
            (state.away.take(), std::mem::take(&mut state.held))
        };
        if let Some(away) = away {
            let after_s = away.since.elapsed().as_secs();
            tracing::info!(device = self.name, after_s, why, "a device on another machine is back");
        }
        self.send_held(held);
    }

    pub fn close(&self) {
        let (connections, held) = {
            let mut state = self.state.lock();
            state.is_closing = true;
            state.left.take().iter().for_each(Deadline::is_back);
            (std::mem::take(&mut state.connections), std::mem::take(&mut state.held))
        };
        self.changed.notify_all();
        held.into_iter().for_each(|pending| self.refuse(pending));
        connections.iter().for_each(|connection| connection.disconnect());
        // What was sent is answered, or not: nobody waits for it any more, for every ticket holds its device.
        let begun = Instant::now();
        let is_busy = |connection: &Arc<Connection>| connection.in_flight() > 0 && !connection.is_over();
        while connections.iter().any(is_busy) && begun.elapsed() < CLOSE {
            std::thread::sleep(Duration::from_millis(5));
        }
        for connection in connections {
            connection.end();
            self.give_up_all(&connection);
        }
    }
}

impl Node {
    /// Since when a device that takes too long counts as silent; none while it does not. One that answers others of the kind is busy: what waits behind
    /// them is waited for longer.
    pub fn silent_since(&self, connections: &[Arc<Connection>], limit: Duration) -> Option<Instant> {
        let answered = *self.answered.lock();
        let late = |kind: Kind| {
            let oldest = connections.iter().filter_map(|connection| connection.oldest(kind)).min()?;
            let is_busy = answered[kind as usize].is_some_and(|at| at.elapsed() < limit);
            let limit = if is_busy { limit * BUSY_LIMITS } else { limit };
            (oldest.elapsed() >= limit).then_some(oldest)
        };
        Kind::ALL.into_iter().filter_map(late).min()
    }

    pub fn ended(&self, mut pending: Pending, outcome: Result<Option<Buffer>, i32>) {
        self.answered.lock()[Kind::of(pending.command) as usize] = Some(Instant::now());
        let Some(waiter) = pending.waiter.take() else {
            // Given up before, and counted then. Whether it was written nobody knows who asked.
            self.changed.notify_all();
            return;
        };
        if matches!(waiter, Waiter::Fence) {
            // What follows it on the connection is refused, too, and tells whoever waits.
            if let Err(error) = outcome {
                let error = self.failed(Operation::Write, 0, error);
                tracing::warn!(%error, epoch = pending.offset, "a node does not take this owner's epoch");
            }
            return;
        }
        self.latency.end(pending.begun, pending.length);
        let told = |operation: Operation| match &outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(operation, pending.offset, *error)),
        };
        match waiter {
            Waiter::Read(cell) => cell.finish(match outcome {
                Ok(Some(buffer)) => Ok(buffer),
                Ok(None) => Err(Failure::Server(EIO)),
                Err(error) => Err(Failure::Server(error)),
            }),
            Waiter::Write(ticket) => {
                if outcome.is_ok() {
                    // Under one lock, so that numbers are noted in their order, and before a flush counts them.
                    let mut replay = self.replay.lock();
                    let number = self.written.fetch_add(1, Ordering::AcqRel) + 1;
                    self.witnesses.lock().note(pending.offset, pending.length as u64, pending.checksum, number);
                    let pieces = std::mem::take(&mut pending.pieces);
                    match self.is_flushed_by_others.load(Ordering::Acquire) {
                        true => replay.miss(number),
                        false => replay.note(number, pending.offset, pieces, KEPT_BYTES_MAX),
                    }
                }
                ticket.finish(told(Operation::Write));
            }
            Waiter::Flush(ticket) => {
                match &outcome {
                    Ok(_) => {
                        self.flushed.fetch_max(pending.covers, Ordering::AcqRel);
                        self.witnesses.lock().flushed(pending.covers);
                        self.replay.lock().flushed(pending.covers);
                    }
                    // Another machine's: it says so each time, and dropped nothing of ours that counts.
                    Err(EPERM) if self.export.is_stere => {}
                    Err(error) => drop(self.flush_failed.set(io::Error::from_raw_os_error(*error).to_string())),
                }
                ticket.finish(told(Operation::Flush));
            }
            Waiter::Trim(ticket) => ticket.finish(told(Operation::Discard)),
            Waiter::Tell => self.note_told(&pending, outcome.err()),
            Waiter::Fence => unreachable!("it was told before"),
        }
    }

    fn note_told(&self, pending: &Pending, error: Option<i32>) {
        let Some(error) = error else { return };
        let payload = pending.pieces.first().map(Piece::bytes).and_then(|bytes| Told::decode(bytes).ok());
        let settings = payload.map(|told| told.settings).unwrap_or_default();
        if self.told_in_vain.lock().replace(settings.clone()).is_none() {
            let error = io::Error::from_raw_os_error(error);
            tracing::warn!(device = self.name, settings, %error, "a node does not take all that it is told; its own log says why");
        }
    }

    pub fn broke(&self, connection: &Arc<Connection>, why: String) {
        let is_ours = {
            let state = self.state.lock();
            !state.is_closing && state.connections.iter().any(|one| Arc::ptr_eq(one, connection))
        };
        connection.end();
        if is_ours {
            self.lose(Instant::now(), why);
        }
    }
}
