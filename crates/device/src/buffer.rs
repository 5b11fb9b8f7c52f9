//! Aligned memory for I/O, and a pool that reuses it.
//!
//! Invariants: memory is 4 KiB aligned and always initialised (zeroed when first got from the system, so a reused
//! buffer shows old bytes, never undefined ones). A buffer from a pool goes back when it, or the last clone of the
//! `SharedBuffer` around it, is dropped. The pool keeps at most the bytes it was told to.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

pub const BUFFER_ALIGNMENT_BYTES: usize = 4096;

/// A sealed buffer, shared by all writes that carry it.
pub type SharedBuffer = Arc<Buffer>;

/// The allocation itself, without a length.
struct Memory {
    start: NonNull<u8>,
    capacity_bytes: usize,
}

// SAFETY: `Memory` owns its allocation alone; access goes through `&`/`&mut` of the owning `Buffer`.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives no way to write.
unsafe impl Sync for Memory {}

/// From here on memory is mapped, so that pages nobody uses are never made. The allocator clears all of it when it is to be aligned.
const MAPPED_FROM_BYTES: usize = 1 << 20;

impl Memory {
    fn zeroed(capacity_bytes: usize) -> Memory {
        assert!(capacity_bytes > 0, "memory has bytes");
        assert!(capacity_bytes % BUFFER_ALIGNMENT_BYTES == 0, "{capacity_bytes} bytes are no whole blocks");
        let layout = Memory::layout(capacity_bytes);
        let start = match capacity_bytes >= MAPPED_FROM_BYTES {
            true => Memory::map(capacity_bytes),
            // SAFETY: the layout has a non-zero size.
            false => NonNull::new(unsafe { alloc_zeroed(layout) }),
        };
        match start {
            Some(start) => Memory { start, capacity_bytes },
            None => handle_alloc_error(layout),
        }
    }

    /// Whole pages of zeros from the system; none where it has none left.
    fn map(capacity_bytes: usize) -> Option<NonNull<u8>> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping that touches no other memory; the outcome is checked.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), capacity_bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast())?;
        assert!(start.addr().get() % BUFFER_ALIGNMENT_BYTES == 0, "pages are at least as large as blocks");
        Some(start)
    }

    fn layout(capacity_bytes: usize) -> Layout {
        Layout::from_size_align(capacity_bytes, BUFFER_ALIGNMENT_BYTES)
            .expect("a buffer is smaller than the address space")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.capacity_bytes < MAPPED_FROM_BYTES {
            // SAFETY: allocated by `zeroed` with this very layout, freed once.
            return unsafe { dealloc(self.start.as_ptr(), Memory::layout(self.capacity_bytes)) };
        }
        // SAFETY: mapped by `zeroed` with this very length, unmapped once.
        let outcome = unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity_bytes) };
        assert_eq!(outcome, 0, "a mapping of ours can be given back");
    }
}

/// 4 KiB aligned bytes.
pub struct Buffer {
    memory: Option<Memory>,
    length: usize,
    pool: Option<Arc<Shelves>>,
}

impl Buffer {
    /// A new buffer of zeros.
    pub fn zeroed(length: usize) -> Buffer {
        let memory = (length > 0).then(|| Memory::zeroed(length.next_multiple_of(BUFFER_ALIGNMENT_BYTES)));
        Buffer { memory, length, pool: None }
    }

    /// A new buffer with these bytes.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        buffer
    }

    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            None => &[],
            // SAFETY: `length <= capacity` always, the memory is initialised and borrowed with `self`.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), self.length) },
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            None => &mut [],
            // SAFETY: as in `as_slice`, and `&mut self` makes the borrow unique.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), self.length) },
        }
    }

    /// The length this buffer can be set to without moving.
    pub fn capacity_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.capacity_bytes)
    }

    /// Shortens or lengthens within the capacity; bytes that appear are whatever the memory held before.
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.capacity_bytes(), "a buffer of {} bytes cannot hold {length}", self.capacity_bytes());
        self.length = length;
    }

    /// Seals the buffer for sharing with queued writes.
    pub fn share(self) -> SharedBuffer {
        Arc::new(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(pool), Some(memory)) = (self.pool.take(), self.memory.take()) {
            pool.put(memory);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.length)
    }
}

/// Free memory by power-of-two capacity.
struct Shelves {
    retained_bytes_max: usize,
    state: Mutex<ShelvesState>,
}

struct ShelvesState {
    retained_bytes: usize,
    shelves: [Vec<Memory>; SHELF_COUNT],
}

/// 4 KiB, 8 KiB, ... 64 MiB; larger memory is not kept.
const SHELF_COUNT: usize = 15;

impl Shelves {
    fn index_of(capacity_bytes: usize) -> Option<usize> {
        assert!(capacity_bytes.is_power_of_two(), "a buffer of {capacity_bytes} bytes has no shelf");
        let index = (capacity_bytes / BUFFER_ALIGNMENT_BYTES).trailing_zeros() as usize;
        (index < SHELF_COUNT).then_some(index)
    }

    fn put(&self, memory: Memory) {
        let Some(index) = Shelves::index_of(memory.capacity_bytes) else {
            return;
        };
        let mut state = self.state.lock();
        if state.retained_bytes + memory.capacity_bytes <= self.retained_bytes_max {
            state.retained_bytes += memory.capacity_bytes;
            state.shelves[index].push(memory);
        } else {
            // Unmapping megabytes is slow: not under the lock.
            drop(state);
            drop(memory);
        }
    }

    fn get(&self, capacity_bytes: usize) -> Option<Memory> {
        let index = Shelves::index_of(capacity_bytes)?;
        let mut state = self.state.lock();
        let memory = state.shelves[index].pop()?;
        assert_eq!(memory.capacity_bytes, capacity_bytes, "memory lies on the shelf of its size");
        assert!(state.retained_bytes >= memory.capacity_bytes, "what lies on shelves is counted");
        state.retained_bytes -= memory.capacity_bytes;
        Some(memory)
    }
}

/// Reuses buffers: no page faults and no zeroing for what was used before. Clones share the memory.
#[derive(Clone)]
pub struct BufferPool {
    shelves: Arc<Shelves>,
}

impl BufferPool {
    /// A pool that keeps at most `retained_bytes_max` bytes of free memory.
    pub fn new(retained_bytes_max: usize) -> BufferPool {
        let state = ShelvesState { retained_bytes: 0, shelves: Default::default() };
        BufferPool { shelves: Arc::new(Shelves { retained_bytes_max, state: Mutex::new(state) }) }
    }

    /// A buffer of this length with unspecified (old) contents: the caller writes every byte that matters.
    pub fn take(&self, length: usize) -> Buffer {
        if length == 0 {
            return Buffer::zeroed(0);
        }
        let capacity_bytes = length.max(BUFFER_ALIGNMENT_BYTES).next_power_of_two();
        let memory = self.shelves.get(capacity_bytes).unwrap_or_else(|| Memory::zeroed(capacity_bytes));
        Buffer { memory: Some(memory), length, pool: Some(Arc::clone(&self.shelves)) }
    }

    /// Like `take`, with zeros.
    pub fn take_zeroed(&self, length: usize) -> Buffer {
        let mut buffer = self.take(length);
        buffer.as_mut_slice().fill(0);
        buffer
    }

    /// Free bytes held at this moment.
    pub fn retained_bytes(&self) -> usize {
        self.shelves.state.lock().retained_bytes
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "BufferPool({} of {} bytes)", self.retained_bytes(), self.shelves.retained_bytes_max)
    }
}

#[cfg(test)]
mod tests;
