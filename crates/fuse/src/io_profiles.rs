//! What the load on a mount is like: every call is counted, always, in constant memory (ATTEST, chapter 3).
//!
//! A request is stamped when it arrives and put into a buffer when it is answered; somebody empties the buffers now and then and counts
//! what is in them, for the mount as a whole, and for volumes, classes, machines and directories that somebody asked for. A trace is
//! written out of the same buffers. Invariants: answering waits for no counting; buffers, tables and caches are bounded, and what does
//! not fit is counted as missed. Read next: the crate workload's `subjects.rs` and `profile.rs`.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use fuse_wire::abi::opcode;
use fuse_wire::{Operation, Request, Write as Written};
use parking_lot::Mutex;
use stere_format::IoTraceNamed;
use stere_naming::{FileSystem, Io, ROOT, Whose};
use stere_workload::trace::{NameRule, TraceWriter};
use stere_workload::{Call, CallKind, Profile, Subject, SubjectKind, Subjects};

use crate::clock::now;

/// Buffers; threads put their calls into one of them each.
const BUFFERS: usize = 8;
/// Calls that wait in a buffer at most; what comes then is missed.
const BUFFERED_MAX: usize = 1 << 12;
/// Files of which it is known for whom they count.
const KNOWN_MAX: usize = 1 << 13;
/// For so long, in nanoseconds: names, classes and volumes change.
const KNOWN_NS: u64 = 10_000_000_000;
/// Directories that are counted for themselves at a time.
pub const SUBTREES_MAX: usize = 32;
/// Directories above one another that are looked at.
const DEPTH_MAX: usize = 256;

/// A call, and whose it was.
struct Noted {
    call: Call,
    machine: u64,
    /// Whose the file was when the call came, where that was looked up then: it may be gone when the call is counted.
    whose: Option<Whose>,
}

/// For whom a file's calls count.
#[derive(Clone, Copy)]
struct Known {
    inode: u64,
    until_ns: u64,
    volume: u32,
    class: u8,
    /// Of the directories that are asked for, those it lies below.
    subtrees: u32,
}

/// A trace that is being recorded.
struct Recording {
    writer: TraceWriter,
    file: File,
    until_ns: u64,
    bytes_left: u64,
    names: bool,
}

/// How a recording is, or was.
#[derive(Clone, Debug, Default)]
pub struct RecordingState {
    pub is_going_on: bool,
    pub calls: u64,
    /// Why it ended before its time.
    pub failure: Option<String>,
}

struct Counted {
    whole: Box<Profile>,
    subjects: Subjects,
    known: Vec<Option<Known>>,
    recording: Option<Recording>,
    recorded: RecordingState,
    /// Some file counted for another class than the usual one.
    has_classes: bool,
}

/// Counts the calls of a mount.
pub struct IoProfiles {
    begun: Instant,
    is_on: bool,
    buffers: [Mutex<Vec<Noted>>; BUFFERS],
    next_buffer: AtomicUsize,
    in_flight: AtomicU32,
    missed: AtomicU64,
    subtrees: Mutex<Vec<u64>>,
    /// Whether it matters whose a file is.
    needs_whose: AtomicBool,
    /// Files of which that was looked up, each at a place of its own.
    looked_up: Box<[AtomicU64]>,
    counted: Mutex<Counted>,
}

thread_local! {
    /// The buffer of a thread: which one is of no matter to what is counted.
    static BUFFER: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// Where what is known of an inode has its place.
fn place_of(inode: u64) -> usize {
    (inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize % KNOWN_MAX
}

fn kind_of(operation: u32) -> Option<CallKind> {
    Some(match operation {
        opcode::READ => CallKind::Read,
        opcode::WRITE => CallKind::Write,
        opcode::OPEN | opcode::OPENDIR => CallKind::Open,
        opcode::CREATE | opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK | opcode::LINK | opcode::TMPFILE => {
            CallKind::Create
        }
        opcode::LOOKUP => CallKind::Lookup,
        opcode::GETATTR | opcode::STATX => CallKind::Getattr,
        opcode::SETATTR => CallKind::Setattr,
        opcode::READDIR | opcode::READDIRPLUS => CallKind::Readdir,
        opcode::RENAME | opcode::RENAME2 => CallKind::Rename,
        opcode::UNLINK | opcode::RMDIR => CallKind::Unlink,
        opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => CallKind::Fsync,
        opcode::GETXATTR | opcode::SETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => CallKind::Xattr,
        // What is not answered is not counted, or would be under way for ever.
        opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY | opcode::INTERRUPT => return None,
        opcode::INIT | opcode::DESTROY => return None,
        _ => CallKind::Other,
    })
}

impl IoProfiles {
    /// `is_on`: whether calls are counted.
    pub fn new(is_on: bool) -> IoProfiles {
        let counted = Counted {
            whole: Box::default(),
            subjects: Subjects::default(),
            known: vec![None; KNOWN_MAX],
            recording: None,
            recorded: RecordingState::default(),
            has_classes: false,
        };
        IoProfiles {
            begun: Instant::now(),
            is_on,
            buffers: Default::default(),
            next_buffer: AtomicUsize::new(0),
            in_flight: AtomicU32::new(0),
            missed: AtomicU64::new(0),
            subtrees: Mutex::default(),
            needs_whose: AtomicBool::new(false),
            looked_up: (0..KNOWN_MAX).map(|_| AtomicU64::new(0)).collect(),
            counted: Mutex::new(counted),
        }
    }
}

impl IoProfiles {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A request has arrived: it is counted when it is answered.
    pub(crate) fn arrived(self: &Arc<Self>, request: &mut Request, filesystem: &FileSystem) {
        if !self.is_on {
            return;
        }
        let Some(kind) = kind_of(request.opcode()) else { return };
        let (offset, length, handle) = match (kind, request.operation()) {
            (CallKind::Read, Operation::Read { offset, handle, .. }) => (offset, 0, handle),
            (CallKind::Write, Operation::Write(Written { offset, data, handle, .. })) => {
                (offset, data.len() as u64, handle)
            }
            _ => (0, 0, 0),
        };
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let call = Call { stream: handle, offset, length, in_flight, ..Call::new(self.now_ns(), kind, request.node()) };
        let machine = request.remote_tag().unwrap_or(0);
        let noted = Noted { call, machine, whose: self.look_up(filesystem, &call) };
        let own = Arc::clone(self);
        request.when_answered(Box::new(move |errno, bytes| own.answered(noted, errno, bytes)));
    }

    /// Whose a file is, at the first call on its content for a while: it may be removed before anybody counts.
    fn look_up(&self, filesystem: &FileSystem, call: &Call) -> Option<Whose> {
        if !self.needs_whose.load(Ordering::Relaxed) || !call.kind.is_data() {
            return None;
        }
        let place = &self.looked_up[place_of(call.file)];
        match place.swap(call.file, Ordering::Relaxed) == call.file {
            true => None,
            false => filesystem.membership.whose(Io::NON_BLOCKING, call.file),
        }
    }

    fn answered(&self, mut noted: Noted, errno: i32, bytes: usize) {
        let call = &mut noted.call;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        call.latency_ns = self.now_ns().saturating_sub(call.at_ns);
        call.result = u16::try_from(errno).unwrap_or(u16::MAX);
        if call.kind == CallKind::Read {
            call.length = bytes as u64;
        }
        let place = BUFFER.with(|buffer| {
            if buffer.get() == usize::MAX {
                buffer.set(self.next_buffer.fetch_add(1, Ordering::Relaxed) % BUFFERS);
            }
            buffer.get()
        });
        let mut buffer = self.buffers[place].lock();
        match buffer.len() < BUFFERED_MAX {
            true => buffer.push(noted),
            false => drop(self.missed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Counts what was answered since somebody did so last, and tells how many calls that were.
    pub fn count(&self, filesystem: &FileSystem) -> usize {
        let mut all: Vec<Noted> = Vec::new();
        for buffer in &self.buffers {
            all.append(&mut buffer.lock());
        }
        // Of several threads: what comes when matters to how calls follow one another.
        all.sort_by_key(|noted| noted.call.at_ns);
        let now_ns = self.now_ns();
        let mut counted = self.counted.lock();
        // Behind that lock, or what is remembered of files could be without one that was added meanwhile.
        let subtrees = self.subtrees.lock().clone();
        let needs_whose = !subtrees.is_empty() || filesystem.membership.has_classes_or_volumes(Io::NON_BLOCKING);
        self.needs_whose.store(needs_whose, Ordering::Relaxed);
        for noted in &all {
            counted.whole.note(&noted.call);
            if needs_whose {
                let known = counted.known_of(filesystem, noted, &subtrees, now_ns);
                counted.note_for_subjects(noted, &known, subtrees.len());
            } else if noted.machine != 0 {
                counted.subjects.note(Subject { kind: SubjectKind::Client, id: noted.machine }, &noted.call);
            }
            counted.record(filesystem, &noted.call);
        }
        counted.end_recording(now_ns);
        all.len()
    }

    /// Counts calls below a directory for themselves from now on; false where there are too many of those.
    pub fn count_subtree(&self, inode: u64) -> bool {
        let mut subtrees = self.subtrees.lock();
        if subtrees.contains(&inode) {
            return true;
        }
        if subtrees.len() >= SUBTREES_MAX {
            return false;
        }
        subtrees.push(inode);
        self.needs_whose.store(true, Ordering::Relaxed);
        drop(subtrees);
        // Files that were met lie below it, or do not.
        self.counted.lock().known.fill(None);
        true
    }

    /// The directories that are counted for themselves; their places are their numbers as subjects.
    pub fn subtrees(&self) -> Vec<u64> {
        self.subtrees.lock().clone()
    }

    /// Calls that could not be counted.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Looks at the profile of the mount as a whole, and at those of subjects.
    pub fn look<T>(&self, look: impl FnOnce(&Profile, &Subjects) -> T) -> T {
        let counted = self.counted.lock();
        look(&counted.whole, &counted.subjects)
    }

    /// Begins to write a trace into a file, for so long and so many bytes at most; false where one is being written.
    pub fn record(&self, file: File, rule: NameRule, length_ns: u64, bytes_max: u64) -> bool {
        let mut counted = self.counted.lock();
        if counted.recording.is_some() {
            return false;
        }
        let started_ns = self.now_ns();
        let now = now();
        let unix_ns = u64::try_from(now.seconds).unwrap_or(0).saturating_mul(1_000_000_000);
        let writer = TraceWriter::new(started_ns, unix_ns + u64::from(now.nanoseconds), rule);
        let until_ns = started_ns.saturating_add(length_ns);
        let names = rule != NameRule::None;
        counted.recording = Some(Recording { writer, file, until_ns, bytes_left: bytes_max, names });
        counted.recorded = RecordingState { is_going_on: true, ..RecordingState::default() };
        true
    }

    /// Ends a trace that is being written.
    pub fn stop_recording(&self) {
        self.counted.lock().end_recording(u64::MAX);
    }

    /// How the recording is, or how the last one was.
    pub fn recording(&self) -> RecordingState {
        self.counted.lock().recorded.clone()
    }
}

impl Counted {
    fn note_for_subjects(&mut self, noted: &Noted, known: &Known, subtrees: usize) {
        let Noted { call, machine, .. } = noted;
        let mut note = |kind, id| self.subjects.note(Subject { kind, id }, call);
        if known.volume != 0 {
            note(SubjectKind::Volume, u64::from(known.volume));
        }
        if *machine != 0 {
            note(SubjectKind::Client, *machine);
        }
        if self.has_classes {
            note(SubjectKind::Class, u64::from(known.class));
        }
        for place in (0..subtrees).filter(|place| known.subtrees >> place & 1 == 1) {
            note(SubjectKind::Subtree, place as u64);
        }
    }

    /// For whom a file's calls count; what cannot be told without waiting counts for the whole alone.
    fn known_of(&mut self, filesystem: &FileSystem, noted: &Noted, subtrees: &[u64], now_ns: u64) -> Known {
        let (inode, place) = (noted.call.file, place_of(noted.call.file));
        let is_known = |known: &Known| known.inode == inode && now_ns < known.until_ns;
        if let Some(known) = self.known[place].filter(is_known).filter(|_| noted.whose.is_none()) {
            return known;
        }
        let found = noted.whose.or_else(|| filesystem.membership.whose(Io::NON_BLOCKING, inode));
        let Whose { volume, class, parent } = found.unwrap_or_default();
        let mut known = Known { inode, until_ns: now_ns.saturating_add(KNOWN_NS), volume, class, subtrees: 0 };
        let mut at = inode;
        for depth in 0..DEPTH_MAX {
            if let Some(found) = subtrees.iter().position(|root| *root == at) {
                known.subtrees |= 1 << found;
            }
            if subtrees.is_empty() || at == ROOT {
                break;
            }
            let above = match depth {
                0 => Some(parent).filter(|parent| *parent != 0),
                _ => filesystem.membership.whose(Io::NON_BLOCKING, at).map(|whose| whose.parent),
            };
            match above {
                Some(above) if above != at => at = above,
                _ => break,
            }
        }
        self.has_classes |= class != 0 && class != filesystem.membership.usual_class();
        // What is gone may have been looked up by a later call.
        self.known[place] = found.is_some().then_some(known);
        known
    }

    fn record(&mut self, filesystem: &FileSystem, call: &Call) {
        let Some(recording) = &mut self.recording else { return };
        recording.writer.note(call);
        if recording.names && recording.writer.wants_name(IoTraceNamed::File, call.file) {
            let name = filesystem.membership.path_if_known(Io::NON_BLOCKING, call.file);
            recording.writer.name(IoTraceNamed::File, call.file, &name.unwrap_or_else(|| format!("#{}", call.file)));
        }
        self.recorded.calls += 1;
    }

    /// Writes what is ready, and the rest where its time is over.
    fn end_recording(&mut self, now_ns: u64) {
        let Some(mut recording) = self.recording.take() else { return };
        let ready = recording.writer.take_ready();
        let mut outcome = recording.file.write_all(&ready);
        recording.bytes_left = recording.bytes_left.saturating_sub(ready.len() as u64);
        let is_over = now_ns >= recording.until_ns || recording.bytes_left == 0;
        if !is_over && outcome.is_ok() {
            self.recording = Some(recording);
            return;
        }
        if outcome.is_ok() {
            let rest = recording.writer.finish();
            outcome = recording.file.write_all(&rest).and_then(|()| recording.file.sync_all());
        }
        self.recorded.is_going_on = false;
        self.recorded.failure = outcome.err().map(|error| error.to_string());
    }
}
