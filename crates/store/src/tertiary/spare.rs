//! Memory for objects on their way to volumes, used again. An object is megabytes: memory that goes back to the system after each costs more
//! to get again, page by page, than the bytes cost to be copied.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

/// At most so many are kept: one for each thread that copies out.
const KEPT_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Spare {
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Spare {
    /// An empty one, with room for so many bytes.
    pub fn take(&self, bytes: usize) -> Object {
        let mut memory = self.kept.lock().pop().unwrap_or_default();
        memory.clear();
        memory.reserve_exact(bytes);
        Object { bytes: memory, kept: self.kept.clone() }
    }
}

/// An object's bytes, whose memory goes back to where it came from.
pub(super) struct Object {
    bytes: Vec<u8>,
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Object {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// So many zeros, to be read into. Nothing that was there before is left: it may be what is looked for.
    pub fn zeros(mut self, bytes: usize) -> Object {
        self.bytes.clear();
        self.bytes.resize(bytes, 0);
        self
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Deref for Object {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_up_to_a_bound() {
        let spare = Spare::default();
        let address = {
            let mut one = spare.take(1 << 20);
            one.extend(&[7; 1 << 20]);
            one.as_ptr()
        };
        let again = spare.take(1 << 19);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        let again = again.zeros(1 << 20);
        assert!(again.iter().all(|byte| *byte == 0) && again.len() == 1 << 20);
        let all: Vec<Object> = (0..9).map(|_| spare.take(100)).collect();
        drop((all, again));
        assert_eq!(spare.kept.lock().len(), KEPT_MAX);
    }
}
