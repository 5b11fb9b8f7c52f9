//! A client: what it has open, what its kernel knows, which of its requests are under way, and which answers it may ask for again.
//!
//! Invariants: a request is under way once; its answer is kept until the client says that it has it (content that was read is read again
//! instead); a handle is let go once, by the client or when the session ends; references are counted as the client's kernel counts them.
//! Read next: `session/work.rs`, for which answers wait; `listener.rs`, where sessions begin and end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::{Redone, RemoteAnswer, RemoteContext, RemoteId, RemoteSession, Request, raw};
use parking_lot::Mutex;
use stere_fuse::{Changes, Door, changes_of};
use stere_machine_tls::PublicKey;
use stere_machine_wire::frame::ANSWER_BYTES_MAX;
use stere_machine_wire::{Frame, IN_FLIGHT_MAX, Notice, SESSION_SECONDS};
use stere_naming::requests::{self, Noted, Slots};

use crate::appends::Appends;
use crate::connection::{Charge, Connection};
use crate::definite::Definite;
use crate::leases::Leases;
use crate::listener::when_heard;
use crate::repeated::{self, Rest};
use crate::sharing::{HeldAnswer, Sharing, Untold};
use crate::writers::{self, Opening, Writers, asked_of};

#[cfg(test)]
mod tests;
mod work;

pub(crate) use work::Work;

/// A longer answer is not kept.
const KEPT_ANSWER_BYTES_MAX: usize = 256 << 10;
/// Of all answers of a session that are kept; then the oldest is let go.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Requests of a session that are answered and not committed; more wait for the commit.
const UNCOMMITTED_MAX: usize = 256;
/// The same where the oldest of them has waited for so long: this machine may have been replaced, and others be served elsewhere.
const UNCOMMITTED_FOR: Duration = Duration::from_secs(1);
/// The second byte of the answer to an offer that is taken.
const GRANTED: u8 = 1;
/// Inodes and handles that a client may have; more end its connection.
const KNOWN_MAX: usize = 16 << 20;
const OPEN_MAX: usize = 1 << 20;
/// So much may each client gather, and for as much there has to be room: what is written has room when it is answered.
const GATHERED_BYTES_MAX: u64 = 16 << 20;

/// Answers that may be asked for again.
#[derive(Default)]
struct Kept {
    answers: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Kept {
    fn keep(&mut self, number: u64, frame: &[u8]) {
        self.bytes += frame.len();
        if let Some(before) = self.answers.insert(number, frame.to_vec()) {
            self.bytes -= before.len();
        }
        while self.bytes > KEPT_BYTES_MAX {
            let Some((_, oldest)) = self.answers.pop_first() else { break };
            self.bytes -= oldest.len();
        }
    }

    /// The client has all answers with lower numbers.
    fn acknowledge(&mut self, number: u64) {
        while let Some(first) = self.answers.first_entry().filter(|first| *first.key() < number) {
            self.bytes -= first.remove().len();
        }
    }
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    gone_since: Option<Instant>,
    was_connected: bool,
    under_way: HashSet<u64>,
    kept: Kept,
    /// Handles with their inodes.
    open: HashMap<u64, u64>,
    /// References of the client's kernel.
    known: HashMap<u64, u64>,
    /// The client has all answers below.
    acknowledged: u64,
    slots: Slots,
    /// What owners before have performed for this session, by the numbers of the requests.
    noted: BTreeMap<u64, Noted>,
    untold: Untold,
    /// Marks of what was answered and is not committed, as far as the client was told.
    uncommitted: VecDeque<(u64, Instant)>,
    /// The client has told this owner what it has.
    is_settled: bool,
    is_over: bool,
}

/// What a client did that none of ours does.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Offence {
    #[error("it has too many requests under way")]
    TooMany,
    #[error("it has too many inodes or files open")]
    TooMuch,
    #[error("it sent what no kernel sends")]
    Message,
}

/// One client.
pub(crate) struct Session {
    pub id: [u8; 16],
    pub tag: u64,
    /// Of the machine that it is one of.
    pub key: PublicKey,
    remote: RemoteSession,
    door: Door,
    definite: Arc<Definite>,
    sharing: Arc<Sharing>,
    appends: Arc<Appends<Session, HeldAnswer>>,
    leases: Arc<Leases>,
    writers: Arc<Writers>,
    state: Mutex<State>,
}

/// A request as its frame has it.
pub(crate) struct Asked {
    pub number: u64,
    /// Answers that the client has: all with lower numbers.
    pub acknowledged: u64,
    pub is_repeated: bool,
    pub takes_map: bool,
    pub has_keys: bool,
    /// An owner before this one has answered it.
    pub redone: Option<Redone>,
}

impl Session {
    pub fn new(
        (id, tag, key): ([u8; 16], u64, PublicKey),
        setxattr_extended: bool,
        door: Door,
        (definite, sharing, appends): (Arc<Definite>, Arc<Sharing>, Arc<Appends<Session, HeldAnswer>>),
        (leases, writers): (Arc<Leases>, Arc<Writers>),
    ) -> Result<Arc<Session>, stere_naming::requests::Error> {
        let remote = RemoteSession::new(tag, setxattr_extended, ANSWER_BYTES_MAX);
        let noted = requests::of_session(door.filesystem().store(), &id)?;
        let state = Mutex::new(State { slots: Slots::of(&noted), noted, ..State::default() });
        Ok(Arc::new(Session { id, tag, key, remote, door, definite, sharing, appends, leases, writers, state }))
    }

    /// From now on answers go there.
    pub fn attach(&self, connection: Arc<Connection>) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        state.gone_since = None;
        state.untold.tell_again(&connection);
        if state.was_connected {
            // What it was told before may have been lost on the way.
            connection.tell(&Frame::Committed { mark: self.definite.committed() });
        }
        state.was_connected = true;
        for (node, number) in self.writers.recalled_of(self.tag) {
            connection.tell(&Frame::RecallWrites { node, number });
        }
        let before = state.connection.replace(connection);
        drop(state);
        self.leases.ended(self.tag);
        before.into_iter().for_each(|before| before.cut());
        true
    }

    /// The connection is gone; another one may come.
    pub fn detach(&self, connection: &Arc<Connection>) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.connection = None;
            state.gone_since = Some(Instant::now());
            let released = state.untold.release();
            drop(state);
            self.leases.ended(self.tag);
            self.definite.uncommitted.disown(self.tag);
            drop(released);
        }
    }

    /// What this client may believe is about to change, or has changed: that waits until it has heard.
    pub fn recall(&self, notices: &[Notice], held: &Arc<HeldAnswer>) {
        let mut state = self.state.lock();
        // Without a connection it believes nothing.
        let Some(connection) = state.connection.clone().filter(|_| !state.is_over) else { return };
        assert!(!notices.is_empty(), "a machine hears of something");
        connection.notify(notices);
        state.untold.tell(Some(&connection), None, Some(held));
    }

    /// Tells it what nobody waits for.
    pub fn notify(&self, notices: &[Notice]) {
        if let Some(connection) = &self.state.lock().connection {
            connection.notify(notices);
        }
    }

    /// Gives its connection up if others have waited for so long until it hears.
    pub fn cut_if_deaf(&self, patience: Duration) {
        let state = self.state.lock();
        let deaf = state.connection.clone().filter(|_| state.untold.is_overdue(patience));
        drop(state);
        if let Some(connection) = deaf {
            tracing::warn!(client = self.tag, "a machine does not say that it has heard: its connection is given up");
            connection.cut();
        }
    }

    /// The client has told what it has: what it writes from now on is new.
    pub fn settled(&self) {
        self.state.lock().is_settled = true;
        self.door.doubt_pages(self.tag);
    }

    /// All up to this mark is committed, which the client hears if it keeps something of that.
    pub fn tell_committed(&self, mark: u64) {
        let mut state = self.state.lock();
        let before = state.uncommitted.len();
        state.uncommitted.retain(|(one, _)| *one > mark);
        let Some(connection) = state.connection.as_ref().filter(|_| state.uncommitted.len() < before) else { return };
        connection.tell(&Frame::Committed { mark });
    }

    /// Another one changed what this client wrote; an answer waits until it has heard of it.
    pub fn hears(&self, notice: Option<Notice>, answer: Option<&Arc<HeldAnswer>>) {
        let mut state = self.state.lock();
        if !state.is_over {
            let connection = state.connection.clone();
            state.untold.tell(connection.as_deref(), notice, answer);
        }
    }

    pub fn confirmed(&self, number: u64) {
        let (released, durable) = self.state.lock().untold.confirmed(number);
        drop(released);
        durable.into_iter().for_each(|mark| self.sharing.let_go(self.tag, mark));
    }

    /// It may not gather what it writes to a file any more: somebody else waits until it has sent what it has.
    pub fn recall_writes(&self, node: u64, number: u64) {
        // One that is away hears it when it comes back.
        if let Some(connection) = &self.state.lock().connection {
            connection.tell(&Frame::RecallWrites { node, number });
        }
    }

    /// It has sent all that it had gathered of a file.
    pub fn returned(&self, node: u64, number: u64) {
        let released = self.writers.returned(self.tag, node, number);
        drop(released);
    }

    /// Whether it may gather what it writes to a file from now on, or go on with that.
    fn may_gather(self: &Arc<Self>, node: u64) -> bool {
        // What is durable when a write returns passes this machine.
        if self.door.is_durable_at_once(node) {
            return false;
        }
        {
            let state = self.state.lock();
            if !state.is_settled || state.is_over || state.connection.is_none() {
                return false;
            }
        }
        let bytes = GATHERED_BYTES_MAX * self.writers.machines(self.tag);
        let is_alone = || self.leases.is_only(self.tag, node) && self.sharing.is_only(self.tag, node);
        let is_own = self.door.opens(self.tag, node).is_some_and(|opens| opens <= self.writers.opens(self.tag, node));
        is_own
            && self.door.has_room_to_gather(self.tag, node, bytes)
            && self.writers.give((self.tag, self), node, is_alone)
    }

    pub fn is_connected(&self) -> bool {
        self.state.lock().connection.is_some()
    }

    /// Whether nobody has come back for it in time.
    pub fn has_expired(&self) -> bool {
        let gone_since = self.state.lock().gone_since;
        gone_since.is_some_and(|since| since.elapsed() > Duration::from_secs(SESSION_SECONDS))
    }

    pub fn cut(&self) {
        let connection = self.state.lock().connection.clone();
        connection.into_iter().for_each(|connection| connection.cut());
    }

    /// Lets go of all that belongs to it. Inodes that it knew are given back, for whoever counts those of all.
    pub fn end(&self) -> Vec<u64> {
        let (open, known, connection, released) = {
            let mut state = self.state.lock();
            state.is_over = true;
            let released = state.untold.release();
            (std::mem::take(&mut state.open), std::mem::take(&mut state.known), state.connection.take(), released)
        };
        self.sharing.ended(self.tag);
        self.leases.ended(self.tag);
        drop(released);
        drop(self.writers.ended(self.tag));
        connection.into_iter().for_each(|connection| connection.cut());
        self.remote.end();
        self.door.end(self.tag);
        open.into_iter().for_each(|(handle, inode)| self.door.release(inode, handle));
        known
            .into_iter()
            .filter(|(node, count)| !self.door.forget_search(*node, *count))
            .map(|(node, _)| node)
            .collect()
    }

    /// The owner ends; the client takes what belongs to it to the next one.
    pub fn leave(&self) {
        assert!(self.sharing.is_over(), "who waits for this client is not answered by an owner that ends");
        let (connection, released) = {
            let mut state = self.state.lock();
            state.is_over = true;
            (state.connection.take(), state.untold.release())
        };
        drop(released);
        connection.into_iter().for_each(|connection| connection.cut());
        self.remote.end();
        self.door.end(self.tag);
    }

    pub fn knows(&self, inode: u64) -> bool {
        self.state.lock().known.contains_key(&inode)
    }

    /// The client's kernel has references that this owner did not give it.
    pub fn hold(&self, node: u64, count: u64) -> Result<(), Offence> {
        let mut state = self.state.lock();
        if state.known.len() >= KNOWN_MAX {
            return Err(Offence::TooMuch);
        }
        if count > 0 {
            state.known.insert(node, count);
        }
        Ok(())
    }

    /// The client's kernel takes references back. Gives those inodes that it does not know any more.
    fn forget(&self, message: &[u8]) -> Vec<u64> {
        let (mut state, mut forgotten) = (self.state.lock(), Vec::new());
        raw::each_forgotten(message, |node, count| {
            let Some(known) = state.known.get_mut(&node) else { return };
            let count = count.min(*known);
            *known -= count;
            let is_gone = *known == 0;
            if is_gone {
                state.known.remove(&node);
                self.leases.forgotten(self.tag, node);
            }
            if !self.door.forget_search(node, count) && is_gone {
                forgotten.push(node);
            }
        });
        forgotten
    }

    /// What others changed, as far as this client's kernel may have it in memory and was not told before (`recall`).
    pub fn tell(&self, changes: &Changes) {
        if changes.by == Some(self.tag) && !changes.tell_own {
            return;
        }
        let state = self.state.lock();
        let Some(connection) = state.connection.clone() else { return };
        let knows = |node: u64| node == stere_naming::ROOT || state.known.contains_key(&node);
        // A kernel that keeps a name of a removed file keeps the file.
        let was_told = |parent: u64| self.leases.has_names(self.tag, parent);
        let names = changes.names.iter().filter(|(parent, _)| knows(*parent) && !was_told(*parent));
        // Attributes that are not leased are believed by nobody.
        let inodes = changes.inodes.iter().filter(|inode| knows(inode.node) && inode.offset >= 0);
        let names = names.map(|(parent, name)| Notice::Entry { parent: *parent, name: name.clone() });
        let is_own = changes.by == Some(self.tag);
        // Of what other sessions write this one hears before they are answered (`sharing.rs`).
        let settled = |offset: i64| if changes.by.is_none() && offset >= 0 { u64::MAX } else { 0 };
        let inodes = inodes.map(|one| match is_own {
            true => Notice::Inode { node: one.node, offset: 0, length: 0, settled: 0 },
            false => {
                let settled = settled(one.offset);
                Notice::Inode { node: one.node, offset: one.offset, length: one.length, settled }
            }
        });
        let notices: Vec<Notice> = names.chain(inodes).collect();
        drop(state);
        connection.notify(&notices);
    }

    /// Whether the client was told what is durable, and has not confirmed it.
    pub fn is_hearing(&self) -> bool {
        let state = self.state.lock();
        state.connection.is_some() && state.untold.has_definite()
    }

    /// All up to this mark is durable: what the client drops then, others need not tell it.
    pub fn tell_definite(&self, mark: u64) {
        let mut state = self.state.lock();
        if let Some(connection) = state.connection.clone() {
            state.untold.tell_definite(&connection, mark);
        }
    }

    /// What wants no answer. Gives inodes that this client does not know any more.
    pub fn take_note(&self, message: &[u8]) -> Result<Vec<u64>, Offence> {
        let header = raw::header(message).ok_or(Offence::Message)?;
        match header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => Ok(self.forget(message)),
            opcode::INTERRUPT => {
                let unique = raw::number_at(message, raw::HEADER_BYTES).ok_or(Offence::Message)?;
                self.door.interrupt(self.tag, unique);
                Ok(Vec::new())
            }
            _ => Err(Offence::Message),
        }
    }

    /// A request of the client's kernel.
    pub fn request(self: &Arc<Self>, asked: &Asked, message: &[u8], charge: Charge) -> Result<(), Offence> {
        let Asked { number, acknowledged, is_repeated, takes_map, has_keys, redone } = *asked;
        let header = raw::header(message).ok_or(Offence::Message)?;
        let (slot, noted) = {
            let mut state = self.state.lock();
            // A frame of a connection that was cut may come after those of the next one.
            let acknowledged = acknowledged.max(state.acknowledged);
            state.acknowledged = acknowledged;
            state.kept.acknowledge(acknowledged);
            state.noted.retain(|before, _| *before >= acknowledged);
            if number < acknowledged || state.under_way.contains(&number) {
                return Ok(());
            }
            if let Some(frame) = state.kept.answers.get(&number).cloned() {
                let connection = state.connection.clone();
                drop(state);
                if let Some(connection) = connection {
                    connection.send(frame, Some(charge));
                    // It may say that this is not committed, and be older than the commit.
                    connection.tell(&Frame::Committed { mark: self.definite.committed() });
                }
                return Ok(());
            }
            if state.under_way.len() >= IN_FLIGHT_MAX {
                return Err(Offence::TooMany);
            }
            if state.open.len() >= OPEN_MAX || state.known.len() >= KNOWN_MAX {
                return Err(Offence::TooMuch);
            }
            state.under_way.insert(number);
            let slot = repeated::is_noted(message).then(|| state.slots.take(number, acknowledged));
            (slot, if is_repeated && slot.is_some() { state.noted.get(&number).copied() } else { None })
        };
        let mut work = Work::of(self, asked, (&header, message), slot.is_some(), charge);
        let (mut message, operation) = (message.to_vec(), header.opcode);
        if let Some(errno) = self.refusal(operation, &message) {
            work.finish(errno, &[], 0);
            return Ok(());
        }
        if let Some(noted) = noted {
            if redone.is_some() {
                // Its client was answered long ago.
                work.finish(0, &[], 0);
                return Ok(());
            }
            match repeated::rest_of(message, &noted) {
                Rest::Done => {
                    work.finish(0, &[], 0);
                    return Ok(());
                }
                Rest::Perform(rest) => message = rest,
            }
            work.opcode = raw::header(&message).map_or(operation, |header| header.opcode);
        }
        let id = slot.map(|slot| RemoteId { session: self.id, slot, number });
        let takes_map = takes_map && operation == opcode::READ;
        self.perform(work, RemoteContext { id, redone, takes_map, has_keys }, message);
        Ok(())
    }

    /// Whether one more of its requests may be answered before it is committed.
    fn may_owe(&self) -> bool {
        let state = self.state.lock();
        let is_new = |(_, since): &(u64, Instant)| since.elapsed() < UNCOMMITTED_FOR;
        let may_wait = state.uncommitted.len() < UNCOMMITTED_MAX && state.uncommitted.front().is_none_or(is_new);
        state.connection.is_some() && state.is_settled && may_wait
    }

    /// Why this is not performed: it is nobody's business here, or a handle is none of this client's.
    fn refusal(&self, operation: u32, message: &[u8]) -> Option<i32> {
        match operation {
            opcode::INIT | opcode::DESTROY | opcode::NOTIFY_REPLY | opcode::POLL | opcode::BMAP | opcode::ACCESS => {
                Some(libc::ENOSYS)
            }
            // Of those there is the trimming of devices, which is for who sits at them.
            opcode::IOCTL => Some(libc::ENOTTY),
            opcode::RELEASE | opcode::RELEASEDIR => {
                let (place, node) = raw::handle_places(message).first().copied()?;
                let handle = raw::number_at(message, place)?;
                let mut state = self.state.lock();
                if state.open.get(&handle) != Some(&node) {
                    return Some(libc::EBADF);
                }
                state.open.remove(&handle);
                drop(state);
                drop(self.writers.closed(self.tag, node));
                None
            }
            _ => None,
        }
    }

    /// Serves a request when nobody else gathers what it asks for.
    fn serve_when_returned(self: &Arc<Self>, request: Request, work: Arc<Mutex<Option<Work>>>) {
        let opening = (request.opcode() == opcode::OPEN).then(|| self.writers.opening(self.tag, request.node()));
        if let Some(work) = work.lock().as_mut() {
            work.opening = opening;
        }
        if !self.writers.has_others(self.tag) {
            return self.serve_when_heard(request, &work);
        }
        let nodes = asked_of(&self.door, &self.writers, self.tag, &request);
        let session = Arc::clone(self);
        let held = HeldAnswer::of(Box::new(move || session.serve_when_heard(request, &work)));
        writers::wait(&self.writers, self.tag, &nodes, &held);
    }

    /// Serves a request when all others have heard of what it is about to change.
    fn serve_when_heard(&self, request: Request, work: &Mutex<Option<Work>>) {
        if let Some(work) = work.lock().as_mut() {
            work.served = self.writers.now();
        }
        let Some(changes) = changes_of(&request) else { return self.door.serve(request) };
        let pending = self.definite.uncommitted.begin(&changes);
        let (changing, recalls) = self.leases.change(&changes);
        if let Some(work) = work.lock().as_mut() {
            (work.changing, work.pending) = (Some(changing), Some(pending));
        }
        let door = self.door.clone();
        match when_heard(recalls) {
            None => door.serve(request),
            Some(when_heard) => when_heard(Box::new(move || door.serve(request))),
        }
    }

    fn perform(self: &Arc<Self>, work: Work, context: RemoteContext, message: Vec<u8>) {
        let failed = Arc::new(Mutex::new(Some(work)));
        let taken = Arc::clone(&failed);
        let answer = Box::new(move |answer: RemoteAnswer<'_>| {
            taken.lock().take().into_iter().for_each(|work| work.answered(&answer));
        });
        match self.remote.request_of(context, message, answer) {
            Some(request) => self.serve_when_returned(request, failed),
            None => failed.lock().take().into_iter().for_each(|work| work.finish(libc::EIO, &[], 0)),
        }
    }
}
