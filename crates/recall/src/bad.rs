//! Objects that volumes lack, or have wrong: which volumes are to blame, and what is lost by that.
//!
//! Verifying and reading find them. What another volume or the devices have is copied out again; what nothing else has is known damage,
//! kept in the pool until it is gone or read rightly (the engine's `damage.rs`).

use stere_log::Segment;

use super::Volumes;

impl Volumes {
    /// These volumes do not give the segment.
    pub fn note_bad(&self, segment: u64, set: u16) {
        *self.bad.lock().entry(segment).or_default() |= set;
    }

    /// They do.
    pub fn note_good(&self, segment: u64, set: u16) {
        let mut bad = self.bad.lock();
        if let Some(known) = bad.get_mut(&segment) {
            *known &= !set;
            if *known == 0 {
                bad.remove(&segment);
            }
        }
    }

    /// Whether these do not give the segment, as far as is known.
    pub fn is_bad(&self, segment: &Segment, bit: u16) -> bool {
        let set = segment.tertiary().there & bit;
        set != 0 && self.good(segment) & set == 0
    }

    /// Those of its volumes that give the segment, as far as is known.
    pub fn good(&self, segment: &Segment) -> u16 {
        segment.tertiary().there & !self.bad.lock().get(&segment.id).copied().unwrap_or(0)
    }

    /// Neither devices nor any volume give it.
    pub fn is_nowhere_right(&self, segment: &Segment) -> bool {
        segment.is_released() && segment.live_bytes() > 0 && self.is_bad(segment, u16::MAX)
    }
}
