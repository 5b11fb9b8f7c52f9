//! The power goes while a cartridge is written, and what was behind the end of data shows again: for tests of what is used again.
//!
//! A drive marks the end of data when it gets to it. If the power goes before, what an earlier use left behind that place is read as if it
//! belonged there. Read next: `medium.rs`.

use super::SimulatedLibrary;

/// WRITE and WRITE FILEMARKS.
const WRITES: [u8; 2] = [0x0a, 0x10];

impl SimulatedLibrary {
    /// So many blocks and filemarks are written still; at the next one the power goes, and no drive answers until `power_comes`.
    pub fn power_goes_after(&self, writes: u64) {
        self.state.lock().faults.writes_left = Some(writes);
    }

    /// True if the power had gone.
    pub fn power_comes(&self) -> bool {
        let faults = &mut self.state.lock().faults;
        faults.writes_left = None;
        std::mem::take(&mut faults.is_off)
    }

    /// Whether a drive does not answer this command for want of power; counts what is written.
    pub(super) fn is_off_for(&self, command: &[u8]) -> bool {
        let faults = &mut self.state.lock().faults;
        if command.first().is_some_and(|code| WRITES.contains(code)) {
            match &mut faults.writes_left {
                None => {}
                Some(0) => faults.is_off = true,
                Some(count) => *count -= 1,
            }
        }
        faults.is_off
    }

    /// What an earlier use of a cartridge left behind its end is read again from now on, as after a power cut on some drives; tells how
    /// many blocks and filemarks that are.
    pub fn remains_show(&self, barcode: &str) -> usize {
        let mut state = self.state.lock();
        let tagged = state.media.iter_mut().find(|tagged| tagged.barcode == barcode);
        tagged.map_or(0, |tagged| tagged.medium.show_remains())
    }

    /// What is on this cartridge cannot be written over: the drive refuses.
    pub fn make_written_once(&self, barcode: &str) {
        self.state.lock().faults.written_once.push(barcode.to_owned());
    }
}
