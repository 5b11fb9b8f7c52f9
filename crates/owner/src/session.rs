//! A client: what it has open, what its kernel knows, which of its requests are under way, and which answers it may ask for again.
//!
//! Invariants: a request is under way once; its answer is kept until the client says that it has it (content that was read is read again
//! instead); a handle is let go once, by the client or when the session ends; references are counted as the client's kernel counts them.
//! Read next: `definite.rs`, for which answers wait; `listener.rs`, where sessions begin and end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::EntryOut;
use fuse_wire::{Redone, RemoteAnswer, RemoteContext, RemoteId, RemoteSession, Request, raw};
use parking_lot::Mutex;
use stere_fuse::{Changes, Door, changes_of};
use stere_machine_tls::PublicKey;
use stere_machine_wire::frame::ANSWER_BYTES_MAX;
use stere_machine_wire::{Frame, IN_FLIGHT_MAX, Notice, SESSION_SECONDS};
use stere_naming::requests::{self, Noted, Slots};

use crate::appends::{Appending, Appends};
use crate::connection::{Charge, Connection};
use crate::definite::{Definite, Need};
use crate::leases::{Changing, Leases};
use crate::listener::when_heard;
use crate::repeated::{self, Rest};
use crate::sharing::{Change, HeldAnswer, Sharing, Untold};
use crate::uncommitted::Pending;

#[cfg(test)]
mod tests;

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
    state: Mutex<State>,
}

/// A request as its frame has it.
pub(crate) struct Asked {
    pub number: u64,
    /// Answers that the client has: all with lower numbers.
    pub acknowledged: u64,
    pub is_repeated: bool,
    pub takes_map: bool,
    /// An owner before this one has answered it.
    pub redone: Option<Redone>,
}

/// A request that is being performed.
pub(crate) struct Work {
    session: Arc<Session>,
    number: u64,
    opcode: u32,
    node: u64,
    /// When it came, for leases on what its answer tells; `None`: others may have changed that since.
    since: Option<u64>,
    /// Until what it changes is done.
    changing: Option<Changing<Session>>,
    pending: Option<Pending>,
    /// It may be answered before it is committed.
    may_be_early: bool,
    /// As it came, for one that may have been performed before, and is not noted.
    repeated: Option<Vec<u8>>,
    /// It sets the size.
    is_cut: bool,
    /// Bytes that it writes.
    written: u64,
    append: Option<Appending<Session, HeldAnswer>>,
    /// Where it says that it writes, and how much.
    range: Option<(u64, u64)>,
    /// That of what it has written.
    mark: Option<u64>,
    charge: Charge,
}

impl Session {
    pub fn new(
        (id, tag, key): ([u8; 16], u64, PublicKey),
        setxattr_extended: bool,
        door: Door,
        (definite, sharing, appends): (Arc<Definite>, Arc<Sharing>, Arc<Appends<Session, HeldAnswer>>),
        leases: Arc<Leases>,
    ) -> Result<Arc<Session>, stere_naming::requests::Error> {
        let remote = RemoteSession::new(tag, setxattr_extended, ANSWER_BYTES_MAX);
        let noted = requests::of_session(door.filesystem().store(), &id)?;
        let state = Mutex::new(State { slots: Slots::of(&noted), noted, ..State::default() });
        Ok(Arc::new(Session { id, tag, key, remote, door, definite, sharing, appends, leases, state }))
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
        let Asked { number, acknowledged, is_repeated, takes_map, redone } = *asked;
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
        let mut message = message.to_vec();
        let written = match header.opcode {
            opcode::WRITE => message.len() as u64,
            // What it says of itself; it only paces how soon all is made durable.
            opcode::ENTER_WRITE => {
                raw::written_range(&message).map_or(0, |(_, bytes)| bytes.min(ANSWER_BYTES_MAX as u64))
            }
            _ => 0,
        };
        let repeated = (is_repeated && slot.is_none()).then(|| message.clone());
        // A copy is of two files, and the second is the one that is changed.
        let node = raw::handle_places(&message).get(1).map_or(header.nodeid, |(_, node)| *node);
        let operation = header.opcode;
        let is_cut = operation == opcode::SETATTR && raw::sets_size(&message);
        let mut work = Work {
            session: Arc::clone(self),
            number,
            opcode: operation,
            node,
            since: Some(self.leases.now()),
            changing: None,
            pending: None,
            may_be_early: redone.is_none() && may_be_early(operation) && !is_cut && !self.door.has_keys(),
            repeated,
            is_cut,
            written,
            append: (operation == opcode::WRITE && slot.is_some()).then(|| self.appends.begin(self, self.tag, node)),
            range: raw::written_range(&message),
            mark: None,
            charge,
        };
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
        self.perform(work, RemoteContext { id, redone, takes_map }, message);
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
                None
            }
            _ => None,
        }
    }

    /// Serves a request when all others have heard of what it is about to change.
    fn serve_when_heard(&self, request: Request, work: &Mutex<Option<Work>>) {
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

    fn perform(&self, work: Work, context: RemoteContext, message: Vec<u8>) {
        let failed = Arc::new(Mutex::new(Some(work)));
        let taken = Arc::clone(&failed);
        let answer = Box::new(move |answer: RemoteAnswer<'_>| {
            taken.lock().take().into_iter().for_each(|work| work.answered(&answer));
        });
        match self.remote.request_of(context, message, answer) {
            Some(request) => self.serve_when_heard(request, &failed),
            None => failed.lock().take().into_iter().for_each(|work| work.finish(libc::EIO, &[], 0)),
        }
    }
}

/// The inode that an answer to a change tells of, if it tells of one.
fn made(operation: u32, bytes: &[u8]) -> Option<u64> {
    let mut made = None;
    raw::each_entry(operation, bytes, |_, entry| made = Some(entry.nodeid).filter(|node| *node != 0));
    made
}

/// Whether an entry says that there is no such name, and that this may be believed.
fn is_absence(entry: &EntryOut) -> bool {
    entry.nodeid == 0 && (entry.entry_valid, entry.entry_valid_nsec) != (0, 0)
}

/// Whether a request is answered before it is committed, if nobody else has to do with it. Its client keeps it and has the next owner
/// perform it once more; what that comes to must not depend on content.
fn may_be_early(operation: u32) -> bool {
    matches!(
        operation,
        opcode::CREATE
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::SETATTR
    )
}

/// Whether what a request tells is names or attributes.
fn tells_names(operation: u32) -> bool {
    !matches!(
        operation,
        opcode::READ
            | opcode::WRITE
            | opcode::OFFER_WRITE
            | opcode::ENTER_WRITE
            | opcode::FLUSH
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::GETLK
            | opcode::SETLK
            | opcode::SETLKW
            | opcode::STATFS
    )
}

/// What has to be durable before a request is answered that was done.
fn need(operation: u32, node: u64, is_cut: bool) -> Option<Need> {
    match operation {
        // What was written before must not come back behind the new end.
        opcode::SETATTR if is_cut => Some(Need::File(node)),
        opcode::TMPFILE | opcode::SETATTR | opcode::SETXATTR | opcode::REMOVEXATTR => Some(Need::Names),
        operation if raw::changes_names(operation) => Some(Need::Names),
        opcode::FALLOCATE | opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => Some(Need::File(node)),
        _ => None,
    }
}

/// How an answer is given.
#[derive(Default)]
struct Told {
    errno: i32,
    is_map: bool,
    /// The client keeps the request until it is committed.
    is_uncommitted: bool,
}

impl Work {
    /// What of a file it has written, or will have: a client answers its program when its offer is taken.
    fn change(&self, answer: &RemoteAnswer<'_>) -> Option<Change> {
        let (tag, node) = (self.session.tag, self.node);
        let (start, bytes) = match self.opcode {
            opcode::WRITE => (answer.place, raw::number_at(answer.bytes, 0)? & u64::from(u32::MAX)),
            opcode::OFFER_WRITE if answer.bytes.get(1) != Some(&GRANTED) => return None,
            opcode::OFFER_WRITE | opcode::ENTER_WRITE => self.range?,
            _ => return None,
        };
        (bytes > 0).then(|| Change { tag, node, start, end: start.saturating_add(bytes) })
    }

    /// Whoever wrote there before hears of it, and whoever appended before has its answer; then this is answered.
    fn finish_when_heard(self, others: &[Arc<Session>], change: Change, mark: u64, bytes: &[u8], place: u64) {
        if others.is_empty() && self.append.is_none() {
            return Work { mark: Some(mark), ..self }.finish_shared(bytes, place);
        }
        let (session, append) = (Arc::clone(&self.session), self.append.as_ref().map(Appending::under_way));
        let answer = HeldAnswer::new(Work { mark: Some(mark), ..self }, bytes, place);
        if let Some(append) = append {
            session.appends.placed(&append, change.node, (change.start, change.end), mark, &answer);
        }
        // What is written again was answered before, and those who tell what they have hear nothing meanwhile.
        let is_settled = session.state.lock().is_settled;
        // Given here, if nobody is waited for: without a lock.
        let answer = is_settled.then_some(answer);
        let length = match change.end {
            u64::MAX => 0,
            end => i64::try_from(end - change.start).unwrap_or(0),
        };
        let offset = i64::try_from(change.start).unwrap_or(i64::MAX);
        for other in others {
            let notice = Notice::Inode { node: change.node, offset, length, settled: mark };
            other.hears(Some(notice), answer.as_ref());
        }
    }

    /// Content was written.
    fn wrote(self, change: Change, answer: &RemoteAnswer<'_>) {
        let (session, definite) = (Arc::clone(&self.session), Arc::clone(&self.session.definite));
        let (mark, others) = session.sharing.wrote(&session, change, || definite.mark(self.written.max(1)));
        self.finish_when_heard(&others, change, mark, answer.bytes, answer.place);
    }

    /// Everybody has heard of it.
    pub fn finish_shared(self, bytes: &[u8], place: u64) {
        let session = &self.session;
        if !session.sharing.is_over() && !session.definite.has_failed() {
            self.finish(0, bytes, place);
        }
    }

    /// It was performed, on whatever thread that was.
    fn answered(mut self, answer: &RemoteAnswer<'_>) {
        let mut early = None;
        if let Some(changing) = self.changing.take() {
            // While nobody else changes the same: so marks are in the order of the changes.
            let mark = if self.may_be_early { self.session.definite.mark_of_change() } else { 0 };
            let found = made(self.opcode, answer.bytes);
            self.since = changing.end(found.as_slice());
            let is_made = self.opcode != opcode::CREATE || answer.place == stere_fuse::MADE;
            early = self.since.filter(|_| self.may_be_early && is_made).map(|_| mark);
        }
        let is_others = self.tells_of_others(answer.bytes);
        let door = &self.session.door;
        if door.has_panicked() || (answer.errno != 0 && door.has_failed()) {
            // This machine may not be the owner any more, so its errors are nobody's: the client asks the next one.
            self.session.definite.fail();
            return;
        }
        if let Some(message) = self.repeated.as_ref().filter(|_| answer.errno != 0) {
            if repeated::is_done_before(message, answer.errno) {
                return self.finish(0, &[], 0);
            }
        }
        if answer.errno != 0 {
            let errno = answer.errno;
            return self.finish_when(is_others, Box::new(move |work| work.finish(errno, &[], 0)));
        }
        if answer.is_map {
            return self.finish_as(answer.bytes, 0, Told { is_map: true, ..Told::default() });
        }
        self.note(answer.bytes);
        let definite = Arc::clone(&self.session.definite);
        if let Some(change) = self.change(answer) {
            return self.wrote(change, answer);
        }
        let Some(need) = need(self.opcode, self.node, self.is_cut) else {
            if !is_others {
                return self.finish(0, answer.bytes, answer.place);
            }
            let (bytes, place) = (answer.bytes.to_vec(), answer.place);
            return self.finish_when(true, Box::new(move |work| work.finish(0, &bytes, place)));
        };
        if let Some(mark) = early.filter(|_| !is_others && self.session.may_owe()) {
            let work = Work { mark: Some(mark), ..self };
            work.finish_as(answer.bytes, answer.place, Told { is_uncommitted: true, ..Told::default() });
            return definite.commit_soon();
        }
        let (bytes, place) = (answer.bytes.to_vec(), answer.place);
        // Before that is made durable: what is written meanwhile is not.
        let mark = if matches!(need, Need::File(_)) { definite.mark(1) } else { 0 };
        definite.tell_when(
            need,
            Box::new(move |errno| match (errno, need) {
                (Some(errno), _) => self.finish(errno, &[], 0),
                (None, Need::Names) => self.finish(0, &bytes, place),
                (None, Need::File(node)) => {
                    let tag = self.session.tag;
                    let others = self.session.sharing.settled(tag, node, mark);
                    let change = Change { tag, node, start: 0, end: u64::MAX };
                    self.finish_when_heard(&others, change, mark, &bytes, place);
                }
            }),
        );
    }

    /// Whether it tells of names or attributes that others have changed and may lose.
    fn tells_of_others(&mut self, bytes: &[u8]) -> bool {
        let pending = self.pending.take();
        if !tells_names(self.opcode) {
            return false;
        }
        let mut nodes = vec![self.node];
        nodes.extend(pending.iter().flat_map(|pending| pending.nodes()));
        // What is under way is its own no more: others' changes of the same are looked for.
        drop(pending);
        raw::each_found(self.opcode, bytes, |node| nodes.push(node));
        self.session.definite.uncommitted.are_others(self.session.tag, &nodes)
    }

    /// Goes on, perhaps after a commit.
    fn finish_when(self, is_commit_needed: bool, finish: Box<dyn FnOnce(Work) + Send>) {
        if !is_commit_needed {
            return finish(self);
        }
        let definite = Arc::clone(&self.session.definite);
        // After a commit that failed nobody is told anything.
        definite.tell_when(Need::Names, Box::new(move |_| finish(self)));
    }

    /// Counts what the answer gives to the client.
    fn note(&self, bytes: &[u8]) {
        let session = &self.session;
        let mut state = session.state.lock();
        if !state.is_over {
            raw::each_found(self.opcode, bytes, |node| *state.known.entry(node).or_insert(0) += 1);
        }
        let Some(handle) = raw::opened_place(self.opcode, bytes).and_then(|place| raw::number_at(bytes, place)) else {
            return;
        };
        let mut inode = self.node;
        if matches!(self.opcode, opcode::CREATE | opcode::TMPFILE) {
            raw::each_found(self.opcode, bytes, |node| inode = node);
        }
        if state.is_over {
            // Nobody will close it.
            drop(state);
            return session.door.release(inode, handle);
        }
        state.open.insert(handle, inode);
    }

    /// Sends the answer, and keeps it for a client that asks again.
    fn finish(self, errno: i32, bytes: &[u8], place: u64) {
        self.finish_as(bytes, place, Told { errno, ..Told::default() });
    }

    /// Whether the client may believe what the answer tells until it hears otherwise.
    fn is_leased(&self, bytes: &[u8]) -> bool {
        let Some(since) = self.since else { return false };
        let mut nodes = Vec::new();
        let mut is_fleeting = false;
        raw::each_entry(self.opcode, bytes, |name, entry| {
            // In a listing those are names alone.
            if entry.nodeid != 0 {
                nodes.push(entry.nodeid);
            }
            let is_told = entry.nodeid != 0 || name.is_none();
            is_fleeting |= is_told && (entry.attr_valid, entry.attr_valid_nsec) == (0, 0) && !is_absence(entry);
        });
        let mut directories = Vec::new();
        match self.opcode {
            opcode::LOOKUP | opcode::READDIRPLUS | opcode::CREATE | opcode::MKNOD | opcode::SYMLINK | opcode::LINK => {
                directories.push(self.node)
            }
            // What was made just now is empty.
            opcode::MKDIR => directories.extend([self.node].iter().chain(&nodes)),
            opcode::GETATTR | opcode::SETATTR => {
                nodes.push(self.node);
                is_fleeting = raw::number_at(bytes, 0).is_none_or(|seconds| seconds == 0);
            }
            _ => return false,
        }
        !is_fleeting && self.session.leases.give((self.session.tag, &self.session), since, &directories, &nodes)
    }

    fn finish_as(self, bytes: &[u8], place: u64, told: Told) {
        let Told { errno, is_map, is_uncommitted } = told;
        let is_leased = errno == 0 && !is_map && self.is_leased(bytes);
        let Work { session, number, opcode, mark, charge, append, .. } = self;
        let errno = u16::try_from(errno).unwrap_or(libc::EIO as u16);
        let mark = mark.unwrap_or_else(|| session.definite.mark(0));
        let bytes = if errno == 0 { bytes } else { &[] };
        let frame = Frame::Reply { number, errno, mark, place, is_map, is_leased, is_uncommitted, bytes }.encode();
        let mut state = session.state.lock();
        state.under_way.remove(&number);
        if is_uncommitted {
            state.uncommitted.push_back((mark, Instant::now()));
        }
        let is_read_again = matches!(opcode, opcode::READ | opcode::READDIR | opcode::GETATTR | opcode::STATX);
        if !is_read_again && frame.len() <= KEPT_ANSWER_BYTES_MAX {
            state.kept.keep(number, &frame);
        }
        // Before it hears that this is committed.
        if let Some(connection) = &state.connection {
            connection.send(frame, Some(charge));
        }
        drop(state);
        // Whoever waits for it hears from the client that it has the answer, which is queued now.
        drop(append);
    }
}
