//! Memory for requests: one anonymous mapping, cut into slots of a header page and a payload.
//!
//! Invariants: the payload of every slot starts on a page; the last bytes of the header page lie directly in
//! front of it, so a message read to `payload - 80` has the data of a WRITE on the page boundary. Pages are
//! only taken from the machine when they are first touched. The arena hands out raw pointers: who owns a slot
//! is decided by `device.rs` and `ring.rs`, each slot belonging to at most one `Request` at a time.

use std::io;
use std::ptr::NonNull;

pub(crate) const PAGE_BYTES: usize = 4096;

/// A mapping of `count` slots.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    count: usize,
    payload_bytes: usize,
}

// SAFETY: the arena only computes addresses; access to the memory behind them is ruled by slot ownership.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `count` slots with at least `payload_bytes` of payload each.
    pub fn new(count: usize, payload_bytes: usize) -> io::Result<Self> {
        let payload_bytes = payload_bytes.next_multiple_of(PAGE_BYTES);
        let bytes = (PAGE_BYTES + payload_bytes)
            .checked_mul(count)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a fresh private anonymous mapping touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast::<u8>()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, count, payload_bytes })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// The first byte of a slot's header page.
    pub fn header(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // SAFETY: slot < count, so the offset is inside the mapping.
        unsafe { self.base.add(slot * (PAGE_BYTES + self.payload_bytes)) }
    }

    /// The first byte of a slot's payload.
    pub fn payload(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the payload follows the header page inside the slot.
        unsafe { self.header(slot).add(PAGE_BYTES) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = self.count * (PAGE_BYTES + self.payload_bytes);
        // SAFETY: unmaps exactly what new() mapped; nobody holds a slot, for holders hold the arena.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}
