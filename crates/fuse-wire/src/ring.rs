//! The FUSE-over-io_uring transport: one ring per possible CPU, each served by a thread pinned there.
//!
//! A ring has `depth` entries, each a header block and a payload, registered with the kernel once. A completion
//! says that a request lies in the entry; `COMMIT_AND_FETCH` answers it and arms the entry for the next. Only the
//! ring's own thread may submit (SINGLE_ISSUER), so an answer given on another thread is queued here and the
//! thread is woken through an eventfd, but only if it sleeps.
//!
//! Invariants: an entry is armed (the kernel's), held (one `Request`'s), committed (queued) or dead. The thread ends
//! when all are dead, so memory and ring outlive every request. FORGET and INTERRUPT never come here.

mod beside;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue, opcode as operation, squeue, types};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::abi::structs::{OutHeader, UringCmdReq, UringReqHeader, split};
use crate::abi::uring;
use crate::buffer::Arena;
use crate::dispatch::Dispatcher;
use crate::error::Error;
use crate::operation::arguments::{Arguments, fixed_bytes};
use crate::request::{Body, Origin, Request};

use beside::Beside;
pub use beside::{Reading, read_beside, room_beside};

#[cfg(test)]
mod tests;

/// `user_data` of the poll on the eventfd; entries have their index.
const WAKE: u64 = u64::MAX;
/// How long the end of a session waits for reads of its ring at a time.
const WAIT_AT_END: Duration = Duration::from_secs(1);
/// The FUSE device's place in the ring's table of files.
const FUSE_FILE: Fixed = Fixed(0);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

thread_local! {
    /// The ring this thread serves, to know its own answers from those of others.
    static OWN_RING: Cell<*const RingShared> = const { Cell::new(std::ptr::null()) };
    /// Entries answered on the ring's own thread, to be committed.
    static OWN_COMMITS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The part of a ring that requests hold on to.
#[derive(Debug)]
pub(crate) struct RingShared {
    queue: u16,
    arena: Arena,
    wake: OwnedFd,
    /// The ring's thread is about to wait or waits; whoever takes the flag wakes it.
    sleeping: AtomicBool,
    commits: Mutex<Vec<usize>>,
    interrupt_base: usize,
}

impl RingShared {
    pub fn new(queue: u16, arena: Arena, interrupt_base: usize) -> io::Result<Arc<Self>> {
        // SAFETY: plain system call; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        let (sleeping, commits) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        Ok(Arc::new(Self { queue, arena, wake, sleeping, commits, interrupt_base }))
    }

    pub fn payload(&self, slot: usize) -> (NonNull<u8>, usize) {
        (self.arena.payload(slot), self.arena.payload_bytes())
    }

    pub fn interrupt_slot(&self, slot: usize) -> usize {
        self.interrupt_base + slot
    }

    fn header(&self, slot: usize) -> NonNull<UringReqHeader> {
        self.arena.header(slot).cast()
    }

    pub fn arguments(&self, request: &Request) -> Arguments<'_> {
        let (payload, capacity) = self.payload(request.slot);
        assert!(request.message_bytes <= capacity, "payload of {} bytes", request.message_bytes);
        // SAFETY: mapped and initialised, message_bytes was checked on arrival, and the request owns the entry.
        let (operation, payload) = unsafe {
            (
                &(*self.header(request.slot).as_ptr()).op_in,
                std::slice::from_raw_parts(payload.as_ptr(), request.message_bytes),
            )
        };
        let extension_bytes = usize::from(request.header.total_extlen) * 8;
        let (variable, extensions) = payload.split_at(payload.len().saturating_sub(extension_bytes));
        let fixed = &operation[..fixed_bytes(request.header.opcode, &request.shared.decode)];
        Arguments { fixed, variable, extensions }
    }

    /// Puts the answer into the entry and has it committed by the ring's thread.
    pub fn answer(&self, request: &Request, errno: i32, body: &Body<'_>) {
        let (payload, capacity) = self.payload(request.slot);
        let bytes = match body {
            Body::Bytes(bytes) | Body::Map(bytes) => {
                assert!(bytes.len() <= capacity, "answer of {} bytes", bytes.len());
                // SAFETY: in bounds; `bytes` cannot point into the entry, for its request was consumed.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), payload.as_ptr(), bytes.len()) };
                bytes.len()
            }
            Body::InPlace(bytes) => *bytes,
        };
        assert!(bytes <= capacity, "answer of {bytes} bytes");
        let payload_sz = u32::try_from(bytes).unwrap_or_default();
        let len = payload_sz.saturating_add(16);
        let head = OutHeader { len, error: -errno, unique: request.header.unique };
        // SAFETY: the entry is the request's own until it is committed below.
        let header = unsafe { &mut *self.header(request.slot).as_ptr() };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(head.as_bytes());
        header.ring_ent_in_out.payload_sz = payload_sz;
        self.commit(request.slot);
    }

    fn commit(&self, slot: usize) {
        if std::ptr::eq(OWN_RING.get(), self) {
            OWN_COMMITS.with_borrow_mut(|commits| commits.push(slot));
            return;
        }
        self.commits.lock().push(slot);
        // SeqCst pairs with prepare_sleep(): either it sees the commit or we see it sleep.
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let one = 1_u64;
            // SAFETY: writes 8 bytes from a live variable to an eventfd.
            unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// True when the thread may wait; false when an answer came in meanwhile.
    fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let idle = self.commits.lock().is_empty();
        if !idle {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        idle
    }
}

/// A ring and its thread's state. Made, used and dropped on that thread.
pub(crate) struct RingThread {
    ring: Ring,
    shared: Arc<RingShared>,
    /// Entries that are not dead.
    alive: usize,
    completions: Vec<(u64, i32, bool)>,
    beside: Beside,
}

impl RingThread {
    /// Sets a ring up on the calling thread, which is pinned to its CPU where that is allowed.
    pub fn new(shared: Arc<RingShared>) -> io::Result<Self> {
        pin_to_cpu(usize::from(shared.queue));
        let entries = u32::try_from((shared.arena.count() + 1).next_power_of_two()).unwrap_or(u32::MAX);
        let deferred: io::Result<Ring> =
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().dontfork().build(entries);
        let ring = deferred.or_else(|_| IoUring::builder().dontfork().build(entries))?;
        let alive = shared.arena.count();
        Ok(Self { ring, shared, alive, completions: Vec::with_capacity(64), beside: Beside::default() })
    }

    /// Hands all entries to the kernel. An error says that the kernel does not want this ring.
    pub fn register(&mut self, fuse: &File) -> io::Result<()> {
        self.ring.submitter().register_files(&[fuse.as_raw_fd()])?;
        assert_eq!(self.alive, self.shared.arena.count(), "a ring is registered before any entry is dead");
        let header_bytes = size_of::<UringReqHeader>();
        let vectors: Vec<[libc::iovec; 2]> = (0..self.alive)
            .map(|slot| {
                let (payload, payload_bytes) = self.shared.payload(slot);
                let header = self.shared.header(slot);
                [
                    libc::iovec { iov_base: header.as_ptr().cast(), iov_len: header_bytes },
                    libc::iovec { iov_base: payload.as_ptr().cast(), iov_len: payload_bytes },
                ]
            })
            .collect();
        for (slot, vector) in vectors.iter().enumerate() {
            let entry = self.command(uring::COMMAND_REGISTER, slot, 0, Some(vector));
            self.push(&entry)?;
        }
        self.arm_wake()?;
        self.ring.submit()?;
        self.collect();
        let refused = self.completions.iter().find(|(data, result, _)| *data != WAKE && *result < 0);
        refused.map_or(Ok(()), |(_, result, _)| Err(io::Error::from_raw_os_error(-result)))
    }

    /// Serves requests until the connection has ended and every request was answered.
    pub fn serve(&mut self, dispatcher: &Dispatcher) {
        OWN_RING.set(Arc::as_ptr(&self.shared));
        beside::open_to_this_thread();
        if let Err(error) = self.serve_until_dead(dispatcher) {
            dispatcher.shared.fail(Error::Connection(error));
            (dispatcher.abort)();
        }
        beside::close_to_this_thread();
        OWN_RING.set(std::ptr::null());
        self.wait_for_beside();
    }

    fn serve_until_dead(&mut self, dispatcher: &Dispatcher) -> io::Result<()> {
        loop {
            // What register() or the last turn collected comes first.
            let completions = std::mem::take(&mut self.completions);
            for (data, result, more) in &completions {
                self.completed(*data, *result, *more, dispatcher)?;
            }
            self.completions = completions;
            self.completions.clear();
            self.guarded(dispatcher, Beside::tell_late);
            self.push_reads()?;
            self.push_commits()?;
            if self.alive == 0 {
                return Ok(());
            }
            let want = usize::from(self.shared.prepare_sleep());
            let waited = self.submit_and_wait(want);
            self.shared.sleeping.store(false, Ordering::SeqCst);
            match waited {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME)) => {
                }
                Err(error) => return Err(error),
            }
            self.collect();
        }
    }

    /// Waits until something completes, or a read beside the requests is late.
    fn submit_and_wait(&self, want: usize) -> io::Result<usize> {
        match self.beside.patience() {
            Some(patience) if want > 0 => {
                let limit = types::Timespec::from(patience);
                self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
            }
            _ => self.ring.submit_and_wait(want),
        }
    }

    /// What the file system does with its reads; a panic there takes the session down, as in a handler.
    fn guarded(&mut self, dispatcher: &Dispatcher, work: impl FnOnce(&mut Beside)) {
        let beside = &mut self.beside;
        if catch_unwind(AssertUnwindSafe(|| work(beside))).is_err() {
            dispatcher.shared.fail(Error::HandlerPanicked);
            (dispatcher.abort)();
        }
    }

    fn push_reads(&mut self) -> io::Result<()> {
        while let Some(entry) = self.beside.next_entry() {
            self.push(&entry.into())?;
        }
        Ok(())
    }

    /// Reads that are still under way when all requests have been answered: their memory is the kernel's until they end.
    fn wait_for_beside(&mut self) {
        let limit = types::Timespec::from(WAIT_AT_END);
        while self.beside.is_busy() {
            let waited = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit));
            if waited.is_err() {
                return self.beside.give_up();
            }
            self.collect();
            for (data, _, _) in std::mem::take(&mut self.completions) {
                drop(self.beside.take(data));
            }
        }
    }

    fn collect(&mut self) {
        let completions = self.ring.completion();
        self.completions
            .extend(completions.map(|entry| (entry.user_data(), entry.result(), cqueue::more(entry.flags()))));
    }

    fn completed(&mut self, data: u64, result: i32, more: bool, dispatcher: &Dispatcher) -> io::Result<()> {
        if data == WAKE {
            return if more { Ok(()) } else { self.arm_wake() };
        }
        if Beside::is_own(data) {
            self.guarded(dispatcher, |beside| beside.completed(data, result));
            return Ok(());
        }
        let slot = usize::try_from(data).unwrap_or(usize::MAX);
        assert!(slot < self.shared.arena.count(), "completion of entry {slot}");
        if result < 0 {
            if !matches!(-result, libc::ENOTCONN | libc::ECANCELED | libc::ECONNABORTED) {
                let (queue, errno) = (self.shared.queue, -result);
                tracing::error!(queue, slot, errno, "an io_uring entry was lost");
            }
            assert!(self.alive > 0, "more entries died than there are");
            self.alive -= 1;
            return Ok(());
        }
        self.arrived(slot, dispatcher);
        Ok(())
    }

    fn arrived(&self, slot: usize, dispatcher: &Dispatcher) {
        // SAFETY: the completion gave the entry to us; the kernel no longer touches it.
        let block = unsafe { &*self.shared.header(slot).as_ptr() };
        let message_bytes = block.ring_ent_in_out.payload_sz as usize;
        let header = split::<crate::abi::structs::InHeader>(&block.in_out).map(|(header, _)| header);
        let Some(header) = header else { return };
        assert!(message_bytes <= self.shared.arena.payload_bytes(), "payload of {message_bytes} bytes");
        dispatcher.dispatch(Request {
            header,
            slot,
            message_bytes,
            origin: Origin::Ring(Arc::clone(&self.shared)),
            shared: Arc::clone(&dispatcher.shared),
            answered: false,
            companion: None,
            when_answered: None,
        });
    }

    fn push_commits(&mut self) -> io::Result<()> {
        let mut slots = OWN_COMMITS.take();
        slots.append(&mut self.shared.commits.lock());
        let entries = self.shared.arena.count();
        assert!(slots.len() <= entries, "{} answers for {entries} entries", slots.len());
        for slot in slots.drain(..) {
            // SAFETY: the entry was answered and is ours until it is submitted.
            let commit_id = unsafe { (*self.shared.header(slot).as_ptr()).ring_ent_in_out.commit_id };
            let entry = self.command(uring::COMMAND_COMMIT_AND_FETCH, slot, commit_id, None);
            self.push(&entry)?;
        }
        // Keeps the allocation.
        OWN_COMMITS.set(slots);
        Ok(())
    }

    fn command(&self, code: u32, slot: usize, commit_id: u64, vector: Option<&[libc::iovec; 2]>) -> squeue::Entry128 {
        let request = UringCmdReq { flags: 0, commit_id, qid: self.shared.queue, padding: [0; 6] };
        let mut bytes = [0_u8; 80];
        bytes[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        let address = vector.map(|vector| vector.as_ptr() as u64);
        let command = operation::UringCmd80::new(FUSE_FILE, code).cmd(bytes).addr(address);
        let mut entry = command.build().user_data(slot as u64);
        if let Some(vector) = vector {
            set_length(&mut entry, u32::try_from(vector.len()).unwrap_or_default());
        }
        entry
    }

    fn arm_wake(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        let poll = operation::PollAdd::new(fd, libc::POLLIN.cast_unsigned().into()).multi(true).build();
        self.push(&poll.user_data(WAKE).into())
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: entries point to memory of the arena (or, for REGISTER, to vectors that live until it is submitted), which
            // outlives the ring; or to that of a `Reading`, which `Beside` keeps until it has completed, or for ever.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

/// Sets the `len` field, for which the io-uring crate has no setter in commands.
fn set_length(entry: &mut squeue::Entry128, length: u32) {
    const SQE_LENGTH_OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: Entry128 is a C structure laid out as the kernel's io_uring_sqe, whose `len` is at byte 24.
    unsafe { std::ptr::from_mut(entry).cast::<u8>().add(SQE_LENGTH_OFFSET).cast::<u32>().write(length) };
}

fn pin_to_cpu(cpu: usize) {
    // SAFETY: cpu_set_t is plain data, zero is the empty set; CPU_SET and the call stay within it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu >= size_of::<libc::cpu_set_t>() * 8 {
            return;
        }
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result != 0 {
        // An offline CPU, or one outside our cpuset: its queue must be served all the same.
        tracing::debug!(cpu, error = %io::Error::last_os_error(), "a ring thread is not pinned");
    }
}

/// How many queues the kernel wants: one per possible CPU.
pub(crate) fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    parse_cpu_list(&text).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// One more than the highest CPU in a list like `0-3,8`.
fn parse_cpu_list(text: &str) -> Option<usize> {
    let last = text.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}
