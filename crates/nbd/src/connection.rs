//! One connection to a server: requests go out in order on a thread of their own, answers come in any order on another.
//!
//! Invariants: a request that was given up stays known until it is answered or the connection is gone, because until then it may still be
//! carried out; every waiter hears of its request exactly once; what is received is put only where it was asked for.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use stere_device::{Buffer, Piece, Ticket};

use crate::node::{Fence, Node};
use crate::session::Session;
use crate::wire::{self, ChunkKind, Command, Reply, WireError};

/// The outcome of a request: nothing, or the error number of the server.
pub type Outcome = Result<(), i32>;

/// Where a read is waited for.
#[derive(Default)]
pub struct ReadCell {
    state: Mutex<Option<Result<Buffer, Failure>>>,
    ended: Condvar,
}

/// Why a request has no answer.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The server said so, by this number.
    Server(i32),
    /// It was given up, or the connection is gone.
    Silent,
}

impl ReadCell {
    pub fn finish(&self, outcome: Result<Buffer, Failure>) {
        let before = self.state.lock().replace(outcome);
        assert!(before.is_none(), "a read ends once");
        self.ended.notify_all();
    }

    /// None if that takes until then.
    pub fn wait(&self, until: Option<Instant>) -> Option<Result<Buffer, Failure>> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.take() {
                return Some(outcome);
            }
            match until {
                None => self.ended.wait(&mut state),
                Some(until) if Instant::now() >= until => return None,
                Some(until) => drop(self.ended.wait_until(&mut state, until)),
            }
        }
    }
}

/// What answers tell of each other: a server that reads may hang when it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Change,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Read, Kind::Change];

    pub fn of(command: Command) -> Kind {
        if command == Command::Read { Kind::Read } else { Kind::Change }
    }
}

/// Who waits for a request.
pub enum Waiter {
    Read(Arc<ReadCell>),
    Write(Ticket),
    Flush(Ticket),
    Trim(Ticket),
    /// Nobody: what follows on the connection fails if it did.
    Fence,
    /// Nobody: what a range is told changes none of its bytes.
    Tell,
}

/// What a read has received so far.
pub struct Filling {
    buffer: Buffer,
    /// Ranges that are there, none over another.
    filled: BTreeMap<usize, usize>,
    error: Option<i32>,
}

impl Filling {
    pub fn of(buffer: Buffer) -> Filling {
        Filling { buffer, filled: BTreeMap::new(), error: None }
    }

    fn note(&mut self, at: usize, length: usize) -> Result<(), WireError> {
        assert!(length > 0 && at + length <= self.buffer.len(), "what is received was asked for");
        let before = self.filled.range(..at + length).next_back();
        if before.is_some_and(|(start, end)| *end > at || *start >= at) {
            return Err(WireError::Broken("the same bytes of a read twice".into()));
        }
        self.filled.insert(at, at + length);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.filled.iter().map(|(start, end)| end - start).sum::<usize>() == self.buffer.len()
    }
}

/// A request that was sent, or is to be.
pub struct Pending {
    pub command: Command,
    /// What is written. It is kept, because it may have to be written again.
    pub pieces: Vec<Piece>,
    pub begun: Instant,
    pub offset: u64,
    pub length: usize,
    /// None once it was given up.
    pub waiter: Option<Waiter>,
    pub filling: Option<Filling>,
    /// For a flush: how many writes it covers.
    pub covers: u64,
    /// For a write: the checksum of its first block.
    pub checksum: u32,
}

impl Pending {
    /// What says for which owner a connection writes.
    fn fence(epoch: u64, begun: Instant) -> Pending {
        Pending {
            command: Command::Fence,
            pieces: Vec::new(),
            begun,
            offset: epoch,
            length: 0,
            waiter: Some(Waiter::Fence),
            filling: None,
            covers: 0,
            checksum: 0,
        }
    }
}

struct Outgoing {
    head: [u8; wire::REQUEST_BYTES],
    pieces: Vec<Piece>,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<u64, Pending>,
    outgoing: VecDeque<Outgoing>,
    next_cookie: u64,
    is_over: bool,
    /// For which owner the server was told that this connection writes; none before it was told.
    fenced: Option<u64>,
}

impl State {
    fn push(&mut self, pending: Pending) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        assert!(pending.waiter.is_some(), "somebody waits for what is asked");
        assert!(pending.filling.is_some() == matches!(pending.waiter, Some(Waiter::Read(_))), "a read has memory");
        let length = u32::try_from(pending.length).expect("a request is not longer than its payload may be");
        let head = wire::request(pending.command, cookie, pending.offset, length);
        let pieces = pending.pieces.clone();
        self.pending.insert(cookie, pending);
        self.outgoing.push_back(Outgoing { head, pieces });
    }
}

pub struct Connection {
    socket: TcpStream,
    is_structured: bool,
    fence: Arc<Fence>,
    state: Mutex<State>,
    arrived: Condvar,
}

impl Connection {
    /// Takes a session over, with a thread for each direction.
    pub fn start(session: Session, device: &Arc<Node>) -> io::Result<Arc<Connection>> {
        let Session { export, socket, mut reader, mut writer, .. } = session;
        let (state, arrived, fence) = (Mutex::default(), Condvar::new(), device.fence.clone());
        let connection = Arc::new(Connection { socket, is_structured: export.is_structured, fence, state, arrived });
        let (own, told) = (connection.clone(), device.clone());
        let send = move || {
            if let Err(error) = own.send_all(&mut *writer) {
                told.broke(&own, format!("sending failed: {error}"));
            }
        };
        let (own, told) = (connection.clone(), device.clone());
        let receive = move || {
            let why = match own.receive_all(&mut *reader, &told) {
                Ok(()) => "the server closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            told.broke(&own, why);
        };
        std::thread::Builder::new().name("stere-nbd-send".into()).spawn(send)?;
        if let Err(error) = std::thread::Builder::new().name("stere-nbd-answer".into()).spawn(receive) {
            connection.end();
            return Err(error);
        }
        Ok(connection)
    }

    /// Queues a request. Gives it back if the connection is over.
    pub fn submit(&self, pending: Pending) -> Option<Pending> {
        let mut state = self.state.lock();
        if state.is_over {
            return Some(pending);
        }
        if let Some(epoch) = self.fence.wanted(pending.command).filter(|epoch| state.fenced != Some(*epoch)) {
            // In front, on the same connection: the server carries out one after the other.
            state.fenced = Some(epoch);
            state.push(Pending::fence(epoch, pending.begun));
        }
        state.push(pending);
        drop(state);
        self.arrived.notify_one();
        None
    }

    pub fn in_flight(&self) -> usize {
        self.state.lock().pending.len()
    }

    /// When the oldest request of a kind began that somebody waits for.
    pub fn oldest(&self, kind: Kind) -> Option<Instant> {
        let state = self.state.lock();
        let those = state.pending.values().filter(|one| one.waiter.is_some() && Kind::of(one.command) == kind);
        those.map(|one| one.begun).min()
    }

    /// Takes the waiters of all requests; they are heard of no more.
    pub fn give_up(&self) -> Vec<(Waiter, Instant, usize)> {
        let mut state = self.state.lock();
        let waiters = state.pending.values_mut();
        waiters.filter_map(|one| Some((one.waiter.take()?, one.begun, one.length))).collect()
    }

    /// Takes the requests that somebody waits for, in their order, once the connection is over.
    pub fn take_pending(&self) -> Vec<Pending> {
        let mut state = self.state.lock();
        assert!(state.outgoing.is_empty(), "nothing goes out any more");
        assert!(state.is_over, "what a server still may answer is not sent again");
        let all = std::mem::take(&mut state.pending);
        // Another connection says by itself for whom it writes.
        let is_asked = |pending: &Pending| !matches!(pending.waiter, None | Some(Waiter::Fence));
        all.into_values().filter(is_asked).collect()
    }

    /// Ends it at once: what was not sent is not, and the server hears that we are gone.
    pub fn end(&self) {
        {
            let mut state = self.state.lock();
            state.is_over = true;
            state.outgoing.clear();
        }
        self.arrived.notify_all();
        // Nothing that the kernel still holds goes out.
        let _is_set = socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO));
        let _is_down = self.socket.shutdown(Shutdown::Both);
    }

    /// Says good-bye: the server ends it after what it has.
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        if !state.is_over {
            let head = wire::request(Command::Disconnect, u64::MAX, 0, 0);
            state.outgoing.push_back(Outgoing { head, pieces: Vec::new() });
            drop(state);
            self.arrived.notify_one();
        }
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    fn send_all(&self, writer: &mut dyn Write) -> io::Result<()> {
        loop {
            let mut state = self.state.lock();
            while state.outgoing.is_empty() && !state.is_over {
                self.arrived.wait(&mut state);
            }
            if state.is_over {
                return Ok(());
            }
            let Some(outgoing) = state.outgoing.pop_front() else { continue };
            drop(state);
            let pieces = outgoing.pieces.iter().map(|piece| IoSlice::new(piece.bytes()));
            let mut slices: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&outgoing.head)).chain(pieces).collect();
            write_all_vectored(writer, &mut slices)?;
        }
    }

    fn receive_all(&self, reader: &mut dyn Read, device: &Node) -> io::Result<()> {
        loop {
            let mut head = [0; wire::STRUCTURED_BYTES];
            let start = head.first_chunk_mut::<4>().expect("a head has four bytes");
            match reader.read(start)? {
                0 => return Ok(()),
                count => reader.read_exact(&mut start[count..])?,
            }
            let is_structured = Reply::is_structured(*start).map_err(io::Error::other)?;
            let length = if is_structured { wire::STRUCTURED_BYTES } else { wire::SIMPLE_BYTES };
            reader.read_exact(&mut head[4..length])?;
            let reply = Reply::decode(&head[..length]).map_err(io::Error::other)?;
            self.receive_one(reader, device, reply)?;
        }
    }

    fn receive_one(&self, reader: &mut dyn Read, device: &Node, reply: Reply) -> io::Result<()> {
        let broken = |why: &str| Err(io::Error::other(WireError::Broken(why.into())));
        let cookie = match reply {
            Reply::Simple { cookie, .. } | Reply::Structured { cookie, .. } => cookie,
        };
        // Its memory is here while it is filled; its waiter stays where it can be taken.
        let (mut filling, offset) = match self.state.lock().pending.get_mut(&cookie) {
            Some(pending) => (pending.filling.take(), pending.offset),
            None => return broken("an answer to nothing that was asked"),
        };
        let outcome = self.receive_into(reader, &mut filling, offset, reply)?;
        let mut state = self.state.lock();
        let Some(outcome) = outcome else {
            if let Some(pending) = state.pending.get_mut(&cookie) {
                pending.filling = filling;
            }
            return Ok(());
        };
        let Some(pending) = state.pending.remove(&cookie) else { return Ok(()) };
        drop(state);
        device.ended(pending, outcome.map(|()| filling.map(|filling| filling.buffer)));
        Ok(())
    }

    /// The outcome, if this was the last of the answer.
    fn receive_into(
        &self,
        reader: &mut dyn Read,
        filling: &mut Option<Filling>,
        offset: u64,
        reply: Reply,
    ) -> io::Result<Option<Outcome>> {
        let broken = |why: &str| io::Error::other(WireError::Broken(why.into()));
        match (reply, filling) {
            (Reply::Simple { .. }, Some(_)) if self.is_structured => Err(broken("a read that is answered simply")),
            (Reply::Simple { error: 0, .. }, Some(filling)) => {
                reader.read_exact(&mut filling.buffer)?;
                Ok(Some(Ok(())))
            }
            (Reply::Simple { error: 0, .. }, None) => Ok(Some(Ok(()))),
            (Reply::Simple { error, .. }, _) => Ok(Some(Err(wire::os_error(error)))),
            (Reply::Structured { .. }, _) if !self.is_structured => Err(broken("an answer in chunks")),
            (Reply::Structured { is_last, kind: ChunkKind::Error { .. }, length, .. }, filling) => {
                let mut bytes = vec![0; length as usize];
                reader.read_exact(&mut bytes)?;
                let error = wire::os_error(wire::decode_error(&bytes).map_err(io::Error::other)?);
                match filling {
                    Some(filling) => filling.error = filling.error.or(Some(error)),
                    None if is_last => return Ok(Some(Err(error))),
                    None => return Err(broken("more than one chunk for what is no read")),
                }
                Ok(is_last.then_some(Err(error)))
            }
            (Reply::Structured { kind: ChunkKind::Nothing, .. }, None) => Ok(Some(Ok(()))),
            (Reply::Structured { .. }, None) => Err(broken("bytes for what is no read")),
            (Reply::Structured { is_last, kind, length, .. }, Some(filling)) => {
                receive_chunk(reader, filling, offset, kind, length as usize)?;
                if !is_last {
                    return Ok(None);
                }
                match filling.error {
                    Some(error) => Ok(Some(Err(error))),
                    None if filling.is_whole() => Ok(Some(Ok(()))),
                    None => Err(broken("a read that is answered in part")),
                }
            }
        }
    }
}

fn receive_chunk(
    reader: &mut dyn Read,
    filling: &mut Filling,
    asked_at: u64,
    kind: ChunkKind,
    length: usize,
) -> io::Result<()> {
    let asked = filling.buffer.len();
    match kind {
        ChunkKind::Data => {
            let mut head = [0; wire::DATA_HEAD_BYTES];
            reader.read_exact(&mut head)?;
            let length = length - head.len();
            let at = wire::decode_place(&head, asked_at, asked, length).map_err(io::Error::other)?;
            filling.note(at, length).map_err(io::Error::other)?;
            reader.read_exact(&mut filling.buffer[at..at + length])
        }
        ChunkKind::Hole => {
            let mut bytes = [0; wire::HOLE_BYTES];
            reader.read_exact(&mut bytes)?;
            let (at, length) = wire::decode_hole(&bytes, asked_at, asked).map_err(io::Error::other)?;
            filling.note(at, length).map_err(io::Error::other)?;
            filling.buffer[at..at + length].fill(0);
            Ok(())
        }
        ChunkKind::Nothing => Ok(()),
        ChunkKind::Error { .. } => unreachable!("errors are read before"),
    }
}

fn write_all_vectored(writer: &mut dyn Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match writer.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
