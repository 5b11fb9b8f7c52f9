//! The /dev/fuse transport: reader threads, a pool of slots, answers by writev(2) from any thread.
//!
//! Every session has one, for the forgets and interrupts that never travel over io_uring. Invariants: a slot is
//! in the free list, with a reader, or with one `Request`. A message is read to 80 bytes in front of the
//! payload, so that the data of a WRITE (behind its 40 + 40 bytes of headers) starts on a page.
//! Read next: `ring.rs`, the other transport.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use zerocopy::IntoBytes;

use crate::abi::structs::{InHeader, OutHeader, WriteIn, split};
use crate::buffer::Arena;
use crate::dispatch::Dispatcher;
use crate::error::Error;
use crate::operation::arguments::Arguments;
use crate::request::{Body, Origin, Request};

/// How far in front of the payload a message begins.
const PREFIX_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// The open FUSE device and the slots that requests are read into.
#[derive(Debug)]
pub(crate) struct Device {
    file: Arc<File>,
    arena: Arena,
    free: Mutex<Vec<usize>>,
    freed: Condvar,
    /// Where this transport's slots begin in the table of interrupts.
    interrupt_base: usize,
}

/// What reading gave.
enum Arrival {
    Message(usize),
    Ended,
    Aborted,
}

impl Device {
    pub fn new(file: Arc<File>, arena: Arena, interrupt_base: usize) -> Arc<Self> {
        // The last is taken first: the slots used most stay in the processor's caches.
        let free = Mutex::new((0..arena.count()).rev().collect());
        Arc::new(Self { file, arena, free, freed: Condvar::new(), interrupt_base })
    }

    /// Serves requests until the connection ends. Run by each reader thread.
    pub fn serve(self: &Arc<Self>, dispatcher: &Dispatcher) {
        self.serve_until_the_end(dispatcher);
        dispatcher.ended();
    }

    fn serve_until_the_end(self: &Arc<Self>, dispatcher: &Dispatcher) {
        loop {
            let slot = self.take();
            match self.receive(slot) {
                Ok(Arrival::Message(bytes)) => self.arrived(slot, bytes, dispatcher),
                Ok(Arrival::Ended) => {
                    self.release(slot);
                    return dispatcher.shared.end();
                }
                Ok(Arrival::Aborted) => {
                    self.release(slot);
                    return dispatcher.shared.fail(Error::Aborted);
                }
                Err(error) => {
                    self.release(slot);
                    return dispatcher.shared.fail(Error::Connection(error));
                }
            }
        }
    }

    fn arrived(self: &Arc<Self>, slot: usize, bytes: usize, dispatcher: &Dispatcher) {
        let header = split::<InHeader>(self.message(slot, bytes)).map(|(header, _)| header);
        let Some(header) = header.filter(|header| header.len as usize == bytes) else {
            // Cannot be answered: without a whole header there is no number to answer to.
            tracing::error!(bytes, "a message of the kernel has a wrong length");
            return self.release(slot);
        };
        dispatcher.dispatch(Request {
            header,
            slot,
            message_bytes: bytes,
            origin: Origin::Device(Arc::clone(self)),
            shared: Arc::clone(&dispatcher.shared),
            answered: false,
            companion: None,
            when_answered: None,
        });
    }

    /// Waits until every request was answered. For the end, when no reader takes slots any more.
    pub fn drain(&self) {
        let mut free = self.free.lock();
        while free.len() < self.arena.count() {
            self.freed.wait(&mut free);
        }
    }

    fn take(&self) -> usize {
        let mut free = self.free.lock();
        loop {
            if let Some(slot) = free.pop() {
                return slot;
            }
            self.freed.wait(&mut free);
        }
    }

    pub fn release(&self, slot: usize) {
        let mut free = self.free.lock();
        debug_assert!(!free.contains(&slot), "slot {slot} is freed twice");
        assert!(slot < self.arena.count(), "slot {slot} of {}", self.arena.count());
        assert!(free.len() < self.arena.count(), "more slots are freed than there are");
        free.push(slot);
        drop(free);
        self.freed.notify_one();
    }

    fn receive(&self, slot: usize) -> io::Result<Arrival> {
        let room = PREFIX_BYTES + self.arena.payload_bytes();
        loop {
            // SAFETY: the range lies in the slot, which belongs to this reader.
            let read = unsafe { libc::read(self.file.as_raw_fd(), self.message_start(slot).as_ptr().cast(), room) };
            if let Ok(bytes) = usize::try_from(read) {
                // Zero bytes: the device was opened but nothing is mounted on it any more.
                return Ok(if bytes == 0 { Arrival::Ended } else { Arrival::Message(bytes) });
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // ENOENT: the request was taken back before we got it.
                Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => {}
                Some(libc::ECONNABORTED) => return Ok(Arrival::Aborted),
                Some(libc::ENODEV | libc::ENOTCONN) => return Ok(Arrival::Ended),
                _ => return Err(error),
            }
        }
    }

    fn message_start(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the header page in front of the payload is longer than the prefix.
        unsafe { self.arena.payload(slot).sub(PREFIX_BYTES) }
    }

    fn message(&self, slot: usize, bytes: usize) -> &[u8] {
        assert!(bytes <= PREFIX_BYTES + self.arena.payload_bytes(), "message of {bytes} bytes");
        // SAFETY: in bounds, mapped and initialised; only called by the owner of the slot.
        unsafe { std::slice::from_raw_parts(self.message_start(slot).as_ptr(), bytes) }
    }

    pub fn payload(&self, slot: usize) -> (NonNull<u8>, usize) {
        (self.arena.payload(slot), self.arena.payload_bytes())
    }

    pub fn interrupt_slot(&self, slot: usize) -> usize {
        self.interrupt_base + slot
    }

    pub fn arguments(&self, request: &Request) -> Arguments<'_> {
        let message = self.message(request.slot, request.message_bytes);
        Arguments::of_message(message, &request.header, &request.shared.decode)
    }

    /// Sends an answer and gives the slot back.
    pub fn answer(&self, request: &Request, errno: i32, body: &Body<'_>) {
        let body = match body {
            Body::Bytes(bytes) | Body::Map(bytes) => bytes,
            Body::InPlace(len) => {
                assert!(*len <= self.arena.payload_bytes(), "answer of {len} bytes");
                // SAFETY: in bounds, and owned by the request, which is done with it.
                unsafe { std::slice::from_raw_parts(self.arena.payload(request.slot).as_ptr(), *len) }
            }
        };
        if let Err(error) = write_message(self.file.as_raw_fd(), -errno, request.header.unique, &[body]) {
            match error.raw_os_error() {
                // The caller was interrupted or killed, or the mount is gone: nobody waits.
                Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN) => {}
                _ => self.answer_refused(request, &error),
            }
        }
        self.release(request.slot);
    }

    /// The kernel did not take an answer: the caller must not wait for ever.
    fn answer_refused(&self, request: &Request, error: &io::Error) {
        tracing::error!(opcode = request.header.opcode, %error, "the kernel refused an answer: EIO is sent instead");
        let unique = request.header.unique;
        if let Err(error) = write_message(self.file.as_raw_fd(), -libc::EIO, unique, &[]) {
            tracing::debug!(%error, "nor did it take the error");
        }
    }
}

/// Writes one message: an answer (`unique` of its request) or a notification (`unique` 0, code in `error`).
pub(crate) fn write_message(fd: RawFd, error: i32, unique: u64, parts: &[&[u8]]) -> io::Result<()> {
    const PARTS_MAX: usize = 4;
    assert!(parts.len() < PARTS_MAX, "{} parts", parts.len());
    let bytes = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let len = u32::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
    let header = OutHeader { len, error, unique };
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    let mut count = 0;
    for part in std::iter::once(header.as_bytes()).chain(parts.iter().copied()) {
        if !part.is_empty() {
            vectors[count] = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
            count += 1;
        }
    }
    loop {
        // SAFETY: the vectors point to live memory that is only read; count <= PARTS_MAX.
        let written = unsafe { libc::writev(fd, vectors.as_ptr(), i32::try_from(count).unwrap_or(0)) };
        if written >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}
