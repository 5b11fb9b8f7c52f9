//! A request of a client that is performed, and how it is answered: at once, when others have heard, or when it is committed.
//!
//! Invariants: a request is answered once, or never where this machine may not be the owner any more; an answer that says that it is not
//! committed is followed by one that says when it is. Read next: `../definite.rs`, `../uncommitted.rs`, `../leases.rs`.

use std::sync::Arc;
use std::time::Instant;

use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::{EntryOut, InHeader};
use fuse_wire::{RemoteAnswer, RemoteContext, raw};
use stere_machine_wire::frame::ANSWER_BYTES_MAX;
use stere_machine_wire::{Frame, Notice};

use super::{Asked, GRANTED, KEPT_ANSWER_BYTES_MAX, Opening, Session};
use crate::appends::Appending;
use crate::connection::Charge;
use crate::definite::Need;
use crate::leases::Changing;
use crate::repeated;
use crate::sharing::{Change, HeldAnswer};
use crate::uncommitted::Pending;
use crate::writers;

/// A request that is being performed.
pub(crate) struct Work {
    session: Arc<Session>,
    number: u64,
    pub(super) opcode: u32,
    node: u64,
    /// When it came, for leases on what its answer tells; `None`: others may have changed that since.
    since: Option<u64>,
    /// Until what it changes is done.
    pub(super) changing: Option<Changing<Session>>,
    pub(super) pending: Option<Pending>,
    /// Of what opens a file, until it is noted as open.
    pub(super) opening: Option<Opening>,
    /// When it was performed, for what others gather.
    pub(super) served: u64,
    /// As it came, for what shows a file by its name.
    again: Option<Vec<u8>>,
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
    let is_of_two_places = matches!(operation, opcode::LINK | opcode::RENAME | opcode::RENAME2);
    operation == opcode::SETATTR || (raw::changes_names(operation) && !is_of_two_places)
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
pub(super) fn need(operation: u32, node: u64, is_cut: bool) -> Option<Need> {
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
    /// A request that has come. `is_noted`: it is noted when it is carried out.
    pub(super) fn of(
        session: &Arc<Session>,
        asked: &Asked,
        (header, message): (&InHeader, &[u8]),
        is_noted: bool,
        charge: Charge,
    ) -> Work {
        let written = match header.opcode {
            opcode::WRITE => message.len() as u64,
            // What it says of itself; it only paces how soon all is made durable.
            opcode::ENTER_WRITE => {
                raw::written_range(message).map_or(0, |(_, bytes)| bytes.min(ANSWER_BYTES_MAX as u64))
            }
            _ => 0,
        };
        // A copy is of two files, and the second is the one that is changed.
        let node = raw::handle_places(message).get(1).map_or(header.nodeid, |(_, node)| *node);
        let is_cut = header.opcode == opcode::SETATTR && raw::sets_size(message);
        let is_append = header.opcode == opcode::WRITE && is_noted;
        Work {
            session: Arc::clone(session),
            number: asked.number,
            opcode: header.opcode,
            node,
            since: Some(session.leases.now()),
            changing: None,
            pending: None,
            opening: None,
            served: 0,
            again: (header.opcode == opcode::LOOKUP).then(|| message.to_vec()),
            may_be_early: asked.redone.is_none() && may_be_early(header.opcode) && !is_cut && !session.door.has_keys(),
            repeated: (asked.is_repeated && !is_noted).then(|| message.to_vec()),
            is_cut,
            written,
            append: is_append.then(|| session.appends.begin(session, session.tag, node)),
            range: raw::written_range(message),
            mark: None,
            charge,
        }
    }

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
    pub(super) fn answered(self, answer: &RemoteAnswer<'_>) {
        if self.opcode != opcode::READDIRPLUS || answer.errno != 0 || !self.shows_old(answer.bytes) {
            return self.answered_now(answer);
        }
        let mut bytes = answer.bytes.to_vec();
        let (session, since) = (&self.session, self.served);
        raw::hide_attributes(&mut bytes, |node| session.writers.may_be_old(session.tag, node, since));
        self.answered_now(&RemoteAnswer { bytes: &bytes, ..*answer });
    }

    fn answered_now(mut self, answer: &RemoteAnswer<'_>) {
        let mut early = None;
        if let Some(changing) = self.changing.take() {
            // While nobody else changes the same: so marks are in the order of the changes.
            let mark = if self.may_be_early { self.session.definite.mark_of_change() } else { 0 };
            let found = made(self.opcode, answer.bytes);
            self.since = changing.end(found.as_slice());
            let is_made = self.opcode != opcode::CREATE || answer.place == stere_fuse::MADE;
            early = self.since.filter(|_| self.may_be_early && is_made).map(|_| mark);
        }
        if answer.errno == 0 && self.again.is_some() && self.shows_old(answer.bytes) {
            return self.look_again(answer.bytes);
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
            self.session.writers.goes_on(change.tag, change.node);
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

    /// Whether it shows a file that somebody else gathers, or has gathered since this was asked for.
    fn shows_old(&self, bytes: &[u8]) -> bool {
        let (session, since, mut is_old) = (&self.session, self.served, false);
        raw::each_found(self.opcode, bytes, |node| is_old |= session.writers.may_be_old(session.tag, node, since));
        is_old
    }

    /// Is performed once more, when whoever gathers what it shows has sent that.
    fn look_again(self, bytes: &[u8]) {
        let session = Arc::clone(&self.session);
        let mut nodes = Vec::new();
        raw::each_found(self.opcode, bytes, |node| nodes.push(node));
        let again = move |mut work: Work| {
            work.since = Some(work.session.leases.now());
            let (session, message) = (Arc::clone(&work.session), work.again.clone().unwrap_or_default());
            session.perform(work, RemoteContext::default(), message);
        };
        let held = HeldAnswer::of(Box::new(move || again(self)));
        writers::wait(&session.writers, session.tag, &nodes, &held);
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
        drop(state);
        session.writers.opened(session.tag, inode);
    }

    /// Sends the answer, and keeps it for a client that asks again.
    pub(super) fn finish(self, errno: i32, bytes: &[u8], place: u64) {
        self.finish_as(bytes, place, Told { errno, ..Told::default() });
    }

    /// Whether the client may believe what the answer tells until it hears otherwise.
    fn is_leased(&self, bytes: &[u8]) -> bool {
        let Some(since) = self.since else { return false };
        if self.opcode == opcode::WRITE {
            return self.append.is_none() && self.session.may_gather(self.node);
        }
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
