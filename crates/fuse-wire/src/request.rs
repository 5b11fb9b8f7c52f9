//! A request: what is asked, by whom, and the only way to answer it.
//!
//! Invariants: a request owns its slot (header, payload) from arrival until it is answered; it can be sent to
//! any thread and answered there; every request that wants an answer gets exactly one (dropping it
//! unanswered sends EIO, so no caller hangs for a lost request). Operations borrow the request, answers
//! consume it: the compiler sees to it that a name or WRITE data is not used after its buffer went back.
//! Read next: `device.rs` and `ring.rs`, where answers go.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::{Immutable, IntoBytes};

use crate::abi::opcode;
use crate::abi::structs::{
    BmapOut, CopyFileRangeOut, FileLock, GetxattrOut, InHeader, IoctlOut, LkOut, LseekOut, OpenOut, PollOut, WriteOut,
};
use crate::buffer::PAGE_BYTES;
use crate::device::Device;
use crate::directory::DirectoryWriter;
use crate::dispatch::Shared;
use crate::interrupt::Cancel;
use crate::operation::arguments::{Arguments, supplementary_groups};
use crate::operation::decode::decode;
use crate::operation::{Lock, Operation};
use crate::remote_id::{Redone, RemoteId};
use crate::remote_memory::Remote;
use crate::reply::{Attributes, Entry, Statfs, Timestamp};
use crate::ring::RingShared;

/// Where a request came from and its answer goes.
#[derive(Debug)]
pub(crate) enum Origin {
    Device(Arc<Device>),
    Ring(Arc<RingShared>),
    /// From a kernel of another machine.
    Remote(Box<Remote>),
}

/// What an answer consists of, behind its header.
pub(crate) enum Body<'a> {
    Bytes(&'a [u8]),
    /// That many bytes at the start of the request's own payload.
    InPlace(usize),
    /// For another machine: where the bytes lie.
    Map(&'a [u8]),
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The kernel's number of the request, never used twice.
    pub unique: u64,
    pub uid: u32,
    pub gid: u32,
    /// The calling thread's id. 0 when the caller is outside this process's pid namespace, or it is the kernel's own request.
    pub pid: u32,
}

/// One request of the kernel, waiting for its answer.
#[derive(Debug)]
pub struct Request {
    pub(crate) header: InHeader,
    pub(crate) slot: usize,
    /// Length of the whole message (/dev/fuse) or of the payload (io_uring).
    pub(crate) message_bytes: usize,
    pub(crate) origin: Origin,
    pub(crate) shared: Arc<Shared>,
    pub(crate) answered: bool,
    pub(crate) companion: Option<Companion>,
    pub(crate) when_answered: Option<WhenAnswered>,
}

/// Hears that a request was answered: the errno, and how many bytes of data.
pub struct WhenAnswered(Box<dyn FnOnce(i32, usize) + Send>);

impl std::fmt::Debug for WhenAnswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WhenAnswered")
    }
}

/// What lives as long as a request is not answered.
pub(crate) struct Companion(#[allow(dead_code, reason = "only dropped")] Box<dyn Send>);

impl std::fmt::Debug for Companion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Companion")
    }
}

// SAFETY: the raw memory behind a request belongs to it alone until it is answered.
unsafe impl Send for Request {}

impl Request {
    /// What is asked. Decoded anew at each call; cheap.
    #[must_use]
    pub fn operation(&self) -> Operation<'_> {
        decode(&self.header, self.arguments(), &self.shared.decode)
    }

    /// The operation's number, see `abi::opcode`.
    #[must_use]
    pub fn opcode(&self) -> u32 {
        self.header.opcode
    }

    /// The node that it is about; for names the directory.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.header.nodeid
    }

    #[must_use]
    pub fn context(&self) -> Context {
        let InHeader { unique, uid, gid, pid, .. } = self.header;
        Context { unique, uid, gid, pid }
    }

    /// The caller's supplementary groups that matter for a new name (only with `CREATE_SUPP_GROUP`).
    pub fn supplementary_groups(&self) -> impl Iterator<Item = u32> + '_ {
        supplementary_groups(self.arguments().extensions)
    }

    /// Tells later whether the caller was interrupted.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        let slot = self.interrupt_slot();
        Cancel::new(Arc::clone(&self.shared.interrupts), slot, self.header.unique)
    }

    /// Whether the kernel waits for an answer; forgets have none.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        !matches!(self.header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY)
    }

    /// The buffer the answer's data may be written into in place: page aligned, `max_write` bytes or more.
    /// Afterwards `operation()` may no longer tell the names and data it told before. See `reply_data`.
    pub fn data_buffer(&mut self) -> &mut [u8] {
        let (payload, bytes) = self.payload();
        assert!(payload.addr().get().is_multiple_of(PAGE_BYTES), "the buffer begins on a page");
        // SAFETY: the payload is this request's own and mapped; initialised by the kernel as zeros or by us.
        unsafe { std::slice::from_raw_parts_mut(payload.as_ptr(), bytes) }
    }

    /// A writer of directory entries into `data_buffer`, for the `size` READDIR asks for. Answer with
    /// `reply_data(writer.used_bytes())`; nothing written says that the directory ends here.
    pub fn directory(&mut self, size: usize) -> DirectoryWriter<'_> {
        let buffer = self.data_buffer();
        let size = size.min(buffer.len());
        DirectoryWriter::new(&mut buffer[..size])
    }

    fn payload(&self) -> (NonNull<u8>, usize) {
        match &self.origin {
            Origin::Device(device) => device.payload(self.slot),
            Origin::Ring(ring) => ring.payload(self.slot),
            Origin::Remote(remote) => remote.payload(),
        }
    }

    /// The longest answer that is given as bytes.
    fn answer_room(&self) -> usize {
        match &self.origin {
            Origin::Remote(_) => self.shared.decode.payload_bytes_max,
            _ => self.payload().1,
        }
    }

    /// Which far session it is of; `None` for a kernel of this machine.
    #[must_use]
    pub fn remote_tag(&self) -> Option<u64> {
        match &self.origin {
            Origin::Remote(remote) => Some(remote.tag),
            _ => None,
        }
    }

    /// As what it is to be noted when it is carried out; `None` if it need not be.
    #[must_use]
    pub fn remote_id(&self) -> Option<RemoteId> {
        match &self.origin {
            Origin::Remote(remote) => remote.context.id,
            _ => None,
        }
    }

    /// What it did when an owner before performed it; `None` if it is new.
    #[must_use]
    pub fn redone(&self) -> Option<Redone> {
        match &self.origin {
            Origin::Remote(remote) => remote.context.redone,
            _ => None,
        }
    }

    /// Calls this when the request is answered, just before the answer goes out, and once.
    pub fn when_answered(&mut self, hear: Box<dyn FnOnce(i32, usize) + Send>) {
        self.when_answered = Some(WhenAnswered(hear));
    }

    /// Keeps this until the request is answered; the answer is sent before it is dropped.
    pub fn accompany(&mut self, companion: Box<dyn Send>) {
        self.companion = Some(Companion(companion));
    }

    /// Whether a read may be answered with where the bytes lie.
    #[must_use]
    pub fn takes_map(&self) -> bool {
        matches!(&self.origin, Origin::Remote(remote) if remote.context.takes_map)
    }

    /// Whether that may be encrypted bytes: whoever asks has keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        matches!(&self.origin, Origin::Remote(remote) if remote.context.has_keys)
    }

    /// Notes where a write goes, for a kernel of another machine, which may think otherwise.
    pub fn note_place(&self, offset: u64) {
        if let Origin::Remote(remote) = &self.origin {
            remote.place.store(offset, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The whole message as /dev/fuse has it, for those who pass it on.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let Arguments { fixed, variable, extensions } = self.arguments();
        let bytes = size_of::<InHeader>() + fixed.len() + variable.len() + extensions.len();
        let header = InHeader { len: u32::try_from(bytes).unwrap_or(u32::MAX), ..self.header };
        let mut message = Vec::with_capacity(bytes);
        message.extend_from_slice(header.as_bytes());
        [fixed, variable, extensions].into_iter().for_each(|part| message.extend_from_slice(part));
        message
    }

    fn arguments(&self) -> Arguments<'_> {
        match &self.origin {
            Origin::Device(device) => device.arguments(self),
            Origin::Ring(ring) => ring.arguments(self),
            Origin::Remote(remote) => remote.arguments(&self.header, &self.shared.decode),
        }
    }

    /// The operation's fixed structure, for the dispatcher's own requests.
    pub(crate) fn fixed_bytes(&self) -> &[u8] {
        self.arguments().fixed
    }

    fn interrupt_slot(&self) -> usize {
        match &self.origin {
            Origin::Device(device) => device.interrupt_slot(self.slot),
            Origin::Ring(ring) => ring.interrupt_slot(self.slot),
            Origin::Remote(_) => 0,
        }
    }

    /// Notes the arrival, so that an INTERRUPT finds the request.
    pub(crate) fn begin(&self) {
        if self.wants_answer() {
            self.shared.interrupts.begin(self.interrupt_slot(), self.header.unique);
        }
    }

    fn send(&mut self, errno: i32, body: &Body<'_>) {
        assert!(!self.answered, "a request is answered once");
        assert!((0..512).contains(&errno), "errno {errno}");
        assert!(errno == 0 || matches!(body, Body::Bytes([])), "an error has no data");
        self.answered = true;
        if let Some(WhenAnswered(hear)) = self.when_answered.take() {
            let bytes = match body {
                Body::Bytes(bytes) | Body::Map(bytes) => bytes.len(),
                Body::InPlace(count) => *count,
            };
            hear(errno, bytes);
        }
        match &self.origin {
            Origin::Device(device) => device.answer(self, errno, body),
            Origin::Ring(ring) => ring.answer(self, errno, body),
            Origin::Remote(remote) => match body {
                Body::Bytes(bytes) => remote.answer(errno, bytes),
                Body::InPlace(count) => remote.answer_in_place(errno, *count),
                Body::Map(map) => remote.answer_map(map),
            },
        }
    }

    fn send_struct<T: IntoBytes + Immutable>(mut self, value: &T) {
        self.send(0, &Body::Bytes(value.as_bytes()));
    }
}

/// Answers. Each consumes the request and gives its buffers back.
impl Request {
    /// Fails the request with a positive errno number.
    pub fn reply_error(mut self, errno: i32) {
        debug_assert!((1..512).contains(&errno), "errno {errno}");
        self.send(if (1..512).contains(&errno) { errno } else { libc::EIO }, &Body::Bytes(&[]));
    }

    /// Done, with nothing to tell (unlink, rename, release, fsync, setxattr, access, ...).
    pub fn reply_ok(mut self) {
        self.send(0, &Body::Bytes(&[]));
    }

    /// For forgets: takes note and gives the buffer back.
    pub fn reply_none(self) {
        debug_assert!(!self.wants_answer(), "operation {} wants an answer", self.header.opcode);
    }

    /// Answers lookup, symlink, mknod, mkdir and link.
    pub fn reply_entry(self, entry: &Entry) {
        self.send_struct(&entry.wire());
    }

    /// Answers getattr and setattr.
    pub fn reply_attributes(self, attributes: &Attributes, ttl: Duration) {
        self.send_struct(&attributes.wire_out(ttl));
    }

    /// Answers statx; `born` is the time of birth.
    pub fn reply_statx(self, attributes: &Attributes, born: Option<Timestamp>, ttl: Duration) {
        self.send_struct(&attributes.wire_statx(born, ttl));
    }

    /// Answers open and opendir; `flags` from `abi::fopen`.
    pub fn reply_open(self, handle: u64, flags: u32) {
        self.send_struct(&OpenOut { fh: handle, open_flags: flags, backing_id: 0 });
    }

    /// Answers create and tmpfile; `flags` from `abi::fopen`.
    pub fn reply_create(mut self, entry: &Entry, handle: u64, flags: u32) {
        const ENTRY_BYTES: usize = size_of::<crate::abi::structs::EntryOut>();
        let open = OpenOut { fh: handle, open_flags: flags, backing_id: 0 };
        let mut bytes = [0_u8; ENTRY_BYTES + size_of::<OpenOut>()];
        bytes[..ENTRY_BYTES].copy_from_slice(entry.wire().as_bytes());
        bytes[ENTRY_BYTES..].copy_from_slice(open.as_bytes());
        self.send(0, &Body::Bytes(&bytes));
    }

    /// Answers read, readdir and readdirplus with the first `len` bytes of `data_buffer`, without a copy.
    pub fn reply_data(mut self, len: usize) {
        assert!(len <= self.payload().1, "answer of {len} bytes is longer than the buffer");
        self.send(0, &Body::InPlace(len));
    }

    /// Answers read, readlink, getxattr and listxattr with bytes from elsewhere (copied).
    pub fn reply_bytes(mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.answer_room(), "answer of {} bytes is too long", bytes.len());
        self.send(0, &Body::Bytes(bytes));
    }

    /// Answers a read with where the bytes lie; only one that takes a map.
    pub fn reply_map(mut self, map: &[u8]) {
        assert!(self.takes_map(), "a map is given to who takes one");
        self.send(0, &Body::Map(map));
    }

    /// Answers getxattr and listxattr that asked with size 0.
    pub fn reply_xattr_size(self, size: u32) {
        self.send_struct(&GetxattrOut { size, padding: 0 });
    }

    /// Answers write.
    pub fn reply_written(self, size: u32) {
        self.send_struct(&WriteOut { size, padding: 0 });
    }

    /// Answers copy_file_range, in the form the kernel asked in.
    pub fn reply_copied(self, bytes_copied: u64) {
        if self.header.opcode == opcode::COPY_FILE_RANGE_64 {
            self.send_struct(&CopyFileRangeOut { bytes_copied });
        } else {
            let size = u32::try_from(bytes_copied).unwrap_or(u32::MAX);
            self.send_struct(&WriteOut { size, padding: 0 });
        }
    }

    pub fn reply_statfs(self, statfs: &Statfs) {
        self.send_struct(&statfs.wire());
    }

    pub fn reply_lseek(self, offset: u64) {
        self.send_struct(&LseekOut { offset });
    }

    /// Answers getlk: the lock in the way, or kind F_UNLCK.
    pub fn reply_lock(self, lock: &Lock) {
        let Lock { start, end, kind, pid } = *lock;
        self.send_struct(&LkOut { lk: FileLock { start, end, kind, pid } });
    }

    pub fn reply_bmap(self, block: u64) {
        self.send_struct(&BmapOut { block });
    }

    pub fn reply_poll(self, events: u32) {
        self.send_struct(&PollOut { revents: events, padding: 0 });
    }

    /// Answers with what somebody else has answered to `message`; `errno` 0 says that it was done. False: it was too long, and EIO is sent.
    pub fn reply_raw(mut self, errno: i32, bytes: &[u8]) -> bool {
        let is_good =
            (0..512).contains(&errno) && bytes.len() <= self.answer_room() && (errno == 0 || bytes.is_empty());
        match is_good {
            true => self.send(errno, &Body::Bytes(bytes)),
            false => self.send(libc::EIO, &Body::Bytes(&[])),
        }
        is_good
    }

    /// Answers ioctl with its result and output data (copied).
    pub fn reply_ioctl(mut self, result: i32, output: &[u8]) {
        let head = IoctlOut { result, ..IoctlOut::default() };
        let total = size_of::<IoctlOut>() + output.len();
        assert!(total <= self.payload().1, "ioctl answer of {total} bytes is too long");
        let buffer = self.data_buffer();
        buffer[..size_of::<IoctlOut>()].copy_from_slice(head.as_bytes());
        buffer[size_of::<IoctlOut>()..total].copy_from_slice(output);
        self.send(0, &Body::InPlace(total));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if self.wants_answer() {
            tracing::warn!(opcode = self.header.opcode, "a request was dropped unanswered: EIO is sent");
            self.send(libc::EIO, &Body::Bytes(&[]));
        } else {
            self.answered = true;
            match &self.origin {
                Origin::Device(device) => device.release(self.slot),
                Origin::Ring(ring) => ring.answer(self, 0, &Body::Bytes(&[])),
                Origin::Remote(_) => {}
            }
        }
    }
}
