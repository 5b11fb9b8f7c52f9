//! Requests that wait for their answers, and what answers change: what the kernel has open, knows, has locked and has written.
//!
//! Invariants: a request is in the table until it is answered, whatever connections come and go; its number is never used again; what
//! an answer says is noted before the kernel gets it. Read next: `link.rs`, `restore.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, mpsc};

use fuse_wire::abi::opcode;
use fuse_wire::ranges::{Owner, Ranges, Wanted};
use fuse_wire::{Operation, Request, Write, raw};

use crate::handles::{Handles, Stale};
use crate::leased::Leased;
use crate::retained::{Retained, requests};
use crate::wire::Wire;

#[cfg(test)]
mod tests;

/// Inodes share places in the table of what this side wrote by itself.
const PLACES: u64 = 1 << 12;

/// An answer of the owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub errno: i32,
    pub mark: u64,
    pub place: u64,
    pub is_leased: bool,
    /// It is kept until it is committed.
    pub is_uncommitted: bool,
    pub bytes: Vec<u8>,
}

/// Who waits for an answer.
pub(crate) enum Asker {
    Kernel(Request),
    /// This side itself, with what it asked.
    Own(Vec<u8>, mpsc::Sender<Answer>),
}

impl Asker {
    fn message(&self) -> Vec<u8> {
        match self {
            Asker::Kernel(request) => request.message(),
            Asker::Own(message, _) => message.clone(),
        }
    }
}

/// A request without an answer.
pub(crate) struct Waiting {
    pub asker: Asker,
    /// It was sent to an owner that counted sessions so.
    sent_to: Option<u64>,
    /// It was sent to an owner before, who may have performed it.
    is_repeated: bool,
    /// What is kept from this order on was written after it was sent.
    order: u64,
    /// What was recalled before this it was sent after.
    since: u64,
    /// Of a read: only bytes will do.
    wants_bytes: bool,
}

/// References of the kernel to an inode.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct References {
    pub all: u64,
    /// Of these, those that the owner counts as well.
    pub given: u64,
}

/// A request as it is sent.
pub(crate) struct Prepared {
    pub number: u64,
    pub acknowledged: u64,
    pub is_repeated: bool,
    pub takes_map: bool,
    pub message: Vec<u8>,
}

/// Where the link is.
#[derive(Clone)]
pub(crate) enum Phase {
    /// There is no owner.
    Away,
    /// Requests are sent there.
    Ready(Arc<Wire>),
}

/// An answer on its way to the kernel.
pub(crate) struct Answered(pub Request, pub Answer);

pub(crate) struct State {
    pub phase: Phase,
    pub waiting: BTreeMap<u64, Waiting>,
    next_number: u64,
    pub handles: Handles,
    pub known: HashMap<u64, References>,
    pub leased: Leased,
    /// When what this side wrote by itself to files with this place was answered last, in the time of `leased`.
    sent: Box<[u64]>,
    pub locks: HashMap<(u64, bool), Ranges>,
    pub retained: Retained,
    /// The owner's term in which the kept writes were written.
    pub written_epoch: u64,
    /// Writes that are answered when there is room to keep more.
    pub held_back: Vec<Answered>,
    /// The kernel waits for nothing any more.
    pub is_given_up: bool,
    /// The pool does not take this machine: nothing waits for an owner.
    pub is_refused: bool,
    pub is_settling: bool,
    /// The owner wants to hear that all up to here was heard.
    pub to_confirm: Option<u64>,
    /// Inodes of which the kernel has to forget attributes before that.
    pub to_doubt: Vec<u64>,
    /// Why it could not.
    pub settling_failed: Option<i32>,
    /// Requests, by the kernel's numbers, whose askers got a signal while there was no owner.
    pub interrupted: Vec<u64>,
    /// Rises with each owner that knows nothing of this session.
    incarnation: u64,
    /// An owner that knows the session has been told all of it.
    is_complete: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            phase: Phase::Away,
            waiting: BTreeMap::new(),
            next_number: 1,
            handles: Handles::default(),
            known: HashMap::new(),
            leased: Leased::default(),
            sent: vec![0; PLACES as usize].into_boxed_slice(),
            locks: HashMap::new(),
            retained: Retained::default(),
            written_epoch: 0,
            held_back: Vec::new(),
            is_given_up: false,
            is_refused: false,
            is_settling: false,
            to_confirm: None,
            to_doubt: Vec::new(),
            settling_failed: None,
            interrupted: Vec::new(),
            incarnation: 0,
            is_complete: false,
        }
    }
}

impl State {
    /// Takes a request in.
    pub fn enter(&mut self, asker: Asker) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let (order, since) = (self.retained.order(), self.leased.now());
        match &asker {
            Asker::Kernel(request) => self.leased.begin(&request.operation()),
            Asker::Own(message, _) => self.forget_what_changes(message),
        }
        let wants_bytes = false;
        self.waiting.insert(number, Waiting { asker, sent_to: None, is_repeated: false, order, since, wants_bytes });
        number
    }

    /// What this side changes by itself is not believed: when that is sent, and when it is answered.
    fn forget_what_changes(&mut self, message: &[u8]) {
        let header = raw::header(message).filter(|_| raw::written_range(message).is_some());
        header.into_iter().for_each(|header| self.leased.change_attributes(header.nodeid));
    }

    /// The answer to a request of the kernel that is leased, with the kernel's reference noted.
    pub fn leased_answer(&mut self, now_ms: u64, request: &Request) -> Option<Vec<u8>> {
        if !matches!(self.phase, Phase::Ready(_)) {
            return None;
        }
        let mut bytes = self.leased.answer(now_ms, &request.operation())?;
        let mut are_counted = true;
        // The owner keeps what it counts, and no inode that this kernel alone would know.
        raw::each_found(request.opcode(), &bytes, |node| are_counted &= self.known.contains_key(&node));
        if !are_counted {
            return None;
        }
        raw::set_believed(request.opcode(), &mut bytes, self.leased.believed_ms(now_ms));
        raw::each_found(request.opcode(), &bytes, |node| {
            self.known.entry(node).and_modify(|references| references.all += 1);
        });
        Some(bytes)
    }

    /// Takes a read in of which only the bytes will do.
    pub fn enter_again(&mut self, request: Request) -> u64 {
        let number = self.enter(Asker::Kernel(request));
        self.waiting.entry(number).and_modify(|waiting| waiting.wants_bytes = true);
        number
    }

    /// Takes a read out that is answered with a map.
    pub fn take_read(&mut self, number: u64) -> Option<Request> {
        let is_it = self.waiting.get(&number).is_some_and(
            |waiting| matches!(&waiting.asker, Asker::Kernel(request) if request.opcode() == opcode::READ),
        );
        match is_it.then(|| self.waiting.remove(&number)).flatten()?.asker {
            Asker::Kernel(request) => Some(request),
            Asker::Own(..) => None,
        }
    }

    /// Numbers for requests that are not in the table.
    pub fn take_numbers(&mut self, count: u64) -> u64 {
        let first = self.next_number;
        self.next_number += count;
        first
    }

    /// There is a connection. Whether the owner has all that belongs to the session; else it has to be told.
    pub fn goes_on(&mut self, epoch: u64, is_resumed: bool) -> bool {
        // Of another connection; an owner that waits for it says so again.
        self.to_confirm = None;
        self.to_doubt.clear();
        self.leased.clear();
        if self.written_epoch != epoch {
            self.retained.forget_others();
        }
        let goes_on = is_resumed && self.is_complete && self.written_epoch == epoch;
        if !is_resumed {
            self.incarnation += 1;
            let lost = if self.written_epoch == epoch { self.retained.lose_gathered() } else { 0 };
            if lost > 0 {
                tracing::error!(files = lost, "this machine was given up: what it had gathered of these files is lost");
            }
        }
        self.is_complete = goes_on;
        goes_on
    }

    /// The owner of this term has been told everything.
    pub fn is_told(&mut self, epoch: u64) {
        self.written_epoch = epoch;
        self.is_complete = true;
        // It has what was kept, and that was all: written once more it would come after what others write from now on.
        let is_told = |waiting: &Waiting| match &waiting.asker {
            Asker::Own(message, _) => raw::header(message).is_some_and(|header| header.opcode == opcode::WRITE),
            Asker::Kernel(_) => false,
        };
        self.waiting.retain(|_, waiting| !is_told(waiting));
    }

    /// The file that may be gathered from the answer to this request of the kernel on.
    pub fn may_gather(&self, number: u64, answer: &Answer) -> Option<u64> {
        let waiting = self.waiting.get(&number)?;
        let Asker::Kernel(request) = &waiting.asker else { return None };
        let may = request.opcode() == opcode::WRITE && !self.leased.is_recalled(request.node(), waiting.since);
        (may && answer.is_leased).then(|| request.node())
    }

    /// A write is kept and will be answered, and no owner has heard of it.
    pub fn gathered(&mut self, node: u64, offset: u64, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a write has bytes");
        self.retained.gather(node, offset, bytes);
        self.leased.change_attributes(node);
    }

    /// The operation of a question of the kernel whose answer shows files by their names, and these.
    pub fn shown_by(&self, number: u64, answer: &Answer) -> Option<(u32, Vec<u64>)> {
        let Asker::Kernel(request) = &self.waiting.get(&number)?.asker else { return None };
        let (operation, mut nodes) = (request.opcode(), Vec::new());
        if !matches!(operation, opcode::LOOKUP | opcode::READDIRPLUS) || answer.errno != 0 {
            return None;
        }
        raw::each_found(operation, &answer.bytes, |node| nodes.push(node));
        (!nodes.is_empty()).then_some((operation, nodes))
    }

    /// Whether it was asked for before the owner had what was gathered of a file.
    pub fn is_before_sent(&self, number: u64, node: u64) -> bool {
        let since = self.waiting.get(&number).map_or(u64::MAX, |waiting| waiting.since);
        self.sent[(node % PLACES) as usize] > since
    }

    /// Takes out a request of the kernel, to ask once more.
    pub fn take_again(&mut self, number: u64) -> Option<Request> {
        match self.waiting.remove(&number)?.asker {
            Asker::Kernel(request) => Some(request),
            Asker::Own(..) => None,
        }
    }

    /// All requests with lower numbers are answered, and what they did is committed.
    fn acknowledged(&self) -> u64 {
        let first = self.waiting.first_key_value().map_or(self.next_number, |(first, _)| *first);
        self.retained.requests.first().map_or(first, |kept| kept.min(first))
    }

    /// What to send of a request; `None` if it is not waiting any more. One that uses a stale handle is taken out.
    pub fn prepare(&mut self, number: u64) -> Result<Option<Prepared>, Asker> {
        let acknowledged = self.acknowledged();
        let Some(waiting) = self.waiting.get_mut(&number) else { return Ok(None) };
        let mut message = waiting.asker.message();
        let translated = self.handles.translate(&mut message);
        if translated == Err(Stale) {
            if raw::header(&message).is_some_and(|header| matches!(header.opcode, opcode::RELEASE | opcode::RELEASEDIR))
            {
                self.handles.release(&message);
            }
            let stale = self.waiting.remove(&number).map(|waiting| waiting.asker);
            return stale.map_or(Ok(None), Err);
        }
        waiting.is_repeated |= waiting.sent_to.is_some_and(|before| before != self.incarnation);
        waiting.sent_to = Some(self.incarnation);
        waiting.since = self.leased.now();
        let is_read = raw::header(&message).is_some_and(|header| header.opcode == opcode::READ);
        let (is_repeated, takes_map) = (waiting.is_repeated, is_read && !waiting.wants_bytes);
        Ok(Some(Prepared { number, acknowledged, is_repeated, takes_map, message }))
    }

    /// An answer came. Gives it on to the kernel, if it waits for it.
    pub fn answered(&mut self, now_ms: u64, number: u64, mut answer: Answer) -> Option<Answered> {
        let Waiting { asker, order, since, .. } = self.waiting.remove(&number)?;
        match &asker {
            Asker::Kernel(request) => {
                let may_learn = self.may_learn((now_ms, since), request, &answer);
                self.leased.end(&request.operation(), answer.errno == 0, may_learn);
                self.learn(now_ms, may_learn, request, &mut answer);
            }
            Asker::Own(message, _) => {
                self.forget_what_changes(message);
                if let Some(header) = raw::header(message).filter(|_| raw::written_range(message).is_some()) {
                    self.sent[(header.nodeid % PLACES) as usize] = self.leased.now();
                }
            }
        }
        let answered = self.note_answer(number, asker, order, answer);
        self.retained.answered_below(self.first_waiting());
        answered
    }

    /// Whether what an answer tells may be believed.
    fn may_learn(&self, asked: (u64, u64), request: &Request, answer: &Answer) -> bool {
        answer.is_leased && self.leased.may_learn(asked, &request.operation(), request.opcode(), &answer.bytes)
    }

    /// What an answer tells is believed, by this side and for a moment by the kernel, or by none.
    fn learn(&mut self, now_ms: u64, may_learn: bool, request: &Request, answer: &mut Answer) {
        let operation = request.opcode();
        if answer.errno != 0 || operation == opcode::READ {
            return;
        }
        if may_learn {
            self.leased.learn(now_ms, &request.operation(), operation, &answer.bytes);
        }
        let believed_ms = if may_learn { self.leased.believed_ms(now_ms) } else { 0 };
        raw::set_believed(operation, &mut answer.bytes, believed_ms);
    }

    /// All requests with lower numbers are answered, but for those that wait for locks.
    fn first_waiting(&self) -> u64 {
        let waits_for_lock = |waiting: &Waiting| match &waiting.asker {
            Asker::Kernel(request) => request.opcode() == opcode::SETLKW,
            Asker::Own(..) => false,
        };
        let first = self.waiting.iter().find(|(_, waiting)| !waits_for_lock(waiting));
        first.map_or(self.next_number, |(number, _)| *number)
    }

    /// Somebody else has written there, after all of this client's writes with lower marks.
    pub fn others_wrote(&mut self, place: (u64, u64, u64), mark: u64) {
        self.retained.others_wrote(place, mark, self.next_number);
        self.retained.answered_below(self.first_waiting());
    }

    fn note_answer(&mut self, number: u64, asker: Asker, order: u64, mut answer: Answer) -> Option<Answered> {
        if answer.is_uncommitted && answer.errno == 0 {
            let kept = requests::Request::of(number, asker.message(), &answer.bytes);
            self.retained.keep_request(answer.mark, kept);
        }
        match asker {
            Asker::Own(message, told) => {
                self.note_durable(&message, order, &answer);
                self.note_late_close(&message);
                self.note_entered(&message, &answer);
                if raw::header(&message).is_some_and(|header| header.opcode == opcode::SYNCFS) {
                    // What is on its way past the owner is kept: if that is still too much, it is asked again.
                    let was_settling = std::mem::take(&mut self.is_settling);
                    if answer.errno != 0 && was_settling {
                        self.settling_failed = Some(answer.errno);
                    }
                }
                // Whoever asked may have given up.
                drop(told.send(answer));
                None
            }
            Asker::Kernel(request) => {
                self.note(&request, order, &mut answer);
                Some(Answered(request, answer))
            }
        }
    }

    /// Notes what an answer says.
    fn note(&mut self, request: &Request, order: u64, answer: &mut Answer) {
        let operation = request.opcode();
        if matches!(operation, opcode::RELEASE | opcode::RELEASEDIR) {
            // Whatever the owner says, the kernel will not use it again.
            self.handles.release(&request.message());
        }
        if answer.errno != 0 {
            return;
        }
        raw::each_found(operation, &answer.bytes, |node| {
            let references = self.known.entry(node).or_default();
            references.all += 1;
            references.given += 1;
        });
        self.note_opened(request, answer);
        if matches!(operation, opcode::GETATTR | opcode::SETATTR) {
            requests::modified(operation, &answer.bytes)
                .into_iter()
                .for_each(|mtime| self.retained.date(request.node(), order, mtime));
        }
        match request.operation() {
            Operation::Write(Write { node, data, .. }) => {
                let written = raw::number_at(&answer.bytes, 0).unwrap_or(0) & u64::from(u32::MAX);
                let written = data.len().min(usize::try_from(written).unwrap_or(0));
                self.retained.keep(node, answer.place, &data[..written], answer.mark);
            }
            Operation::Setlk { node, owner, lock, flock, .. } => {
                let wanted = Wanted::new(Owner { kernel: None, number: owner }, &lock);
                self.locks.entry((node, flock)).or_default().set(&wanted);
            }
            Operation::Flush { node, lock_owner, .. } => self.unlock(node, false, lock_owner),
            Operation::Release { node, lock_owner, flock_unlock: true, .. } => self.unlock(node, true, lock_owner),
            Operation::Fsync { node, .. } | Operation::Fsyncdir { node, .. } if self.retained.loss(node).is_some() => {
                (answer.errno, answer.bytes) = (self.retained.tell_loss(node).unwrap_or(libc::EIO), Vec::new());
            }
            _ if matches!(
                operation,
                opcode::FSYNC
                    | opcode::SYNCFS
                    | opcode::SETATTR
                    | opcode::FALLOCATE
                    | opcode::COPY_FILE_RANGE
                    | opcode::COPY_FILE_RANGE_64
            ) =>
            {
                self.note_durable(&request.message(), order, answer);
            }
            _ => {}
        }
    }

    fn note_opened(&mut self, request: &Request, answer: &mut Answer) {
        let Some(place) = raw::opened_place(request.opcode(), &answer.bytes) else { return };
        let Some(at_owner) = raw::number_at(&answer.bytes, place) else { return };
        let (mut node, mut is_directory) = (request.node(), false);
        let flags = match request.operation() {
            Operation::Open { flags, .. } => flags,
            Operation::Opendir { flags, .. } => {
                is_directory = true;
                flags
            }
            Operation::Create { flags, .. } | Operation::Tmpfile { flags, .. } => {
                raw::each_found(request.opcode(), &answer.bytes, |made| node = made);
                flags
            }
            _ => return,
        };
        let handle = self.handles.open(node, flags, is_directory, at_owner);
        raw::set_number(&mut answer.bytes, place, handle);
    }

    fn unlock(&mut self, node: u64, is_flock: bool, number: u64) {
        if let Some(ranges) = self.locks.get_mut(&(node, is_flock)) {
            ranges.remove(|owner| owner.number == number);
            if ranges.is_empty() {
                self.locks.remove(&(node, is_flock));
            }
        }
    }

    /// The owner has what was written past it: noted before anything else that it says. What is only offered it has not.
    fn note_entered(&mut self, message: &[u8], answer: &Answer) {
        let Some(header) = raw::header(message).filter(|_| answer.errno == 0) else { return };
        if header.opcode == opcode::OFFER_WRITE {
            return;
        }
        if let Some((offset, length)) = raw::written_range(message) {
            self.retained.entered(header.nodeid, offset, length, answer.mark);
        }
    }

    /// The owner heard of a close(2) that the kernel was let go from.
    fn note_late_close(&mut self, message: &[u8]) {
        if let Some((node, lock_owner)) = raw::closed_by(message) {
            self.unlock(node, false, lock_owner);
        }
    }

    /// What was asked for says that a file, or everything, is durable as it was then.
    fn note_durable(&mut self, message: &[u8], order: u64, answer: &Answer) {
        let Some(header) = raw::header(message).filter(|_| answer.errno == 0) else { return };
        match header.opcode {
            opcode::FSYNC | opcode::FALLOCATE => self.retained.let_go(Some(header.nodeid), order),
            opcode::SETATTR if raw::sets_size(message) => self.retained.let_go(Some(header.nodeid), order),
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let written = raw::handle_places(message).get(1).map(|(_, node)| *node);
                written.into_iter().for_each(|node| self.retained.let_go(Some(node), order));
            }
            opcode::SYNCFS => self.retained.let_go(None, order),
            _ => {}
        }
    }

    /// The kernel takes references back. Gives those that the owner has counted.
    pub fn forget(&mut self, message: &[u8]) -> Vec<(u64, u64)> {
        let mut counted = Vec::new();
        raw::each_forgotten(message, |node, count| {
            let Some(known) = self.known.get_mut(&node) else { return };
            assert!(known.given <= known.all, "the owner counts what the kernel has: {known:?} of inode {node}");
            known.all = known.all.saturating_sub(count);
            let given = known.given.saturating_sub(known.all);
            known.given -= given;
            if given > 0 {
                counted.push((node, given));
            }
            if known.all == 0 {
                self.known.remove(&node);
                self.leased.forget(node);
            }
        });
        counted
    }

    /// An owner is told of all references: it counts them from now on.
    pub fn count_all(&mut self) -> Vec<(u64, u64)> {
        let count = |(node, references): (&u64, &mut References)| {
            references.given = references.all;
            (*node, references.all)
        };
        self.known.iter_mut().map(count).collect()
    }

    /// Whether the kernel will not use a handle again, which is noted.
    pub fn note_close(&mut self, request: &Request) -> bool {
        let is_close = matches!(request.opcode(), opcode::RELEASE | opcode::RELEASEDIR);
        if is_close {
            self.handles.release(&request.message());
        }
        is_close
    }

    /// Whether it is a close(2) of a file in which its process has no lock, so that the owner has nothing to do: what was written was
    /// answered before. Programs close what others have locked whenever these begin one.
    pub fn is_mere_close(&self, request: &Request) -> bool {
        let Operation::Flush { node, lock_owner, .. } = request.operation() else { return false };
        !self.locks.get(&(node, false)).is_some_and(|held| held.are_held_by(|owner| owner.number == lock_owner))
    }

    /// Lets the kernel go that waits for a close(2), by its number; the owner is told later what is not locked any more. Only for a close:
    /// a kernel lets nobody stop waiting for it, and whoever looks at a process that waits so (ps) waits, too.
    pub fn let_close_go(&mut self, unique: u64) -> Option<Request> {
        let number = self.number_of(unique)?;
        let waiting = self.waiting.get_mut(&number)?;
        let Asker::Kernel(request) = &waiting.asker else { return None };
        if request.opcode() != opcode::FLUSH {
            return None;
        }
        let own = Asker::Own(request.message(), mpsc::channel().0);
        match std::mem::replace(&mut waiting.asker, own) {
            Asker::Kernel(request) => Some(request),
            Asker::Own(..) => unreachable!("it was the kernel's"),
        }
    }

    /// The same for all of them.
    pub fn let_closes_go(&mut self) -> Vec<Request> {
        let of_kernel = |waiting: &Waiting| match &waiting.asker {
            Asker::Kernel(request) => Some(request.context().unique),
            Asker::Own(..) => None,
        };
        let all: Vec<u64> = self.waiting.values().filter_map(of_kernel).collect();
        all.into_iter().filter_map(|unique| self.let_close_go(unique)).collect()
    }

    /// A request for a lock was answered with EINTR. If it was sent before it may have been granted: that is taken back, unless the process
    /// goes on and has other locks in the file.
    pub fn end_lock(&mut self, request: &Request, is_dying: bool) -> Option<u64> {
        let Operation::Setlk { node, handle, owner, flock: false, .. } = request.operation() else { return None };
        let holds = self.locks.get(&(node, false)).is_some_and(|held| held.are_held_by(|other| other.number == owner));
        if holds && !is_dying {
            return None;
        }
        Some(self.enter(Asker::Own(raw::close_message(node, handle, owner), mpsc::channel().0)))
    }

    /// No owner takes this machine; gives all that the kernel waited for, and whether each closes a file.
    pub fn refuse(&mut self) -> Vec<(Request, bool)> {
        self.is_refused = true;
        let mut requests = Vec::new();
        for request in self.take_all() {
            let is_close = self.note_close(&request);
            requests.push((request, is_close));
        }
        assert!(self.held_back.is_empty(), "nobody of the kernel waits any more");
        requests
    }

    /// The kernel waits for nothing any more; gives all that it waited for.
    pub fn give_up(&mut self) -> Vec<Request> {
        self.is_given_up = true;
        self.take_all()
    }

    fn take_all(&mut self) -> Vec<Request> {
        let kernels: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| matches!(waiting.asker, Asker::Kernel(_)))
            .map(|(number, _)| *number)
            .collect();
        let waiting = kernels.into_iter().filter_map(|number| self.waiting.remove(&number));
        let mut requests: Vec<Request> = waiting
            .filter_map(|waiting| match waiting.asker {
                Asker::Kernel(request) => Some(request),
                Asker::Own(..) => None,
            })
            .collect();
        requests.extend(self.held_back.drain(..).map(|Answered(request, _)| request));
        requests
    }

    fn number_of(&self, unique: u64) -> Option<u64> {
        let is_it = |waiting: &Waiting| match &waiting.asker {
            Asker::Kernel(request) => request.context().unique == unique,
            Asker::Own(..) => false,
        };
        self.waiting.iter().find(|(_, waiting)| is_it(waiting)).map(|(number, _)| *number)
    }

    /// Takes out a request of the kernel, by the kernel's number: its process was killed. A change that an owner may have made is asked for
    /// on, because other programs may have seen it and gone on from there.
    pub fn take(&mut self, unique: u64) -> Option<Request> {
        let number = self.number_of(unique)?;
        let waiting = self.waiting.remove(&number)?;
        let Asker::Kernel(request) = waiting.asker else { return None };
        if waiting.sent_to.is_some() && (raw::changes_names(request.opcode()) || request.opcode() == opcode::SETATTR) {
            let asker = Asker::Own(requests::without_handle(request.message()), mpsc::channel().0);
            self.waiting.insert(number, Waiting { asker, ..waiting });
        }
        Some(request)
    }

    /// The thread that waits with this request of the kernel, and whether for a lock.
    pub fn asker(&self, unique: u64) -> Option<(u32, bool)> {
        self.waiting.values().find_map(|waiting| match &waiting.asker {
            Asker::Kernel(request) if request.context().unique == unique => {
                Some((request.context().pid, request.opcode() == opcode::SETLKW))
            }
            _ => None,
        })
    }

    /// Whether the kernel waits with this request for a lock.
    pub fn waits_for_lock(&self, unique: u64) -> bool {
        self.asker(unique).is_some_and(|(_, is_for_lock)| is_for_lock)
    }
}
