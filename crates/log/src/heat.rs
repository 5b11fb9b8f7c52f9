//! How segments are used: one number each, changed without a lock by whoever reads.
//!
//! What readers note concurrently may be lost, which makes a segment a little colder than it is and harms nothing. Invariants: the clock
//! is the callers'; only what goes to media is counted. Read next: the tier's `heat.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use stere_format::SegmentHeat;

/// Reads that are no farther apart are one use: a file that is read on and on is used once.
const ONE_USE_SECONDS: u64 = 60;

/// When it was used last, from bit 9 on; whether it came back; and how often it was used.
#[derive(Debug, Default)]
pub struct HeatCell(AtomicU64);

fn pack(heat: SegmentHeat) -> u64 {
    heat.used_seconds.min(SegmentHeat::USED_SECONDS_MAX) << 9
        | u64::from(heat.is_back) << 8
        | u64::from(heat.references)
}

fn unpack(bits: u64) -> SegmentHeat {
    SegmentHeat { used_seconds: bits >> 9, references: bits as u8, is_back: bits >> 8 & 1 == 1 }
}

impl HeatCell {
    pub fn get(&self) -> SegmentHeat {
        unpack(self.0.load(Ordering::Relaxed))
    }

    pub fn set(&self, heat: SegmentHeat) {
        self.0.store(pack(heat), Ordering::Relaxed);
    }

    /// Somebody read it.
    #[inline]
    pub fn note_use(&self, now_seconds: i64) {
        let now = u64::try_from(now_seconds).unwrap_or(0).clamp(1, SegmentHeat::USED_SECONDS_MAX);
        let heat = self.get();
        if heat.used_seconds == now && heat.references > 0 {
            return;
        }
        let is_new = heat.references == 0 || heat.used_seconds.abs_diff(now) >= ONE_USE_SECONDS;
        self.set(SegmentHeat {
            used_seconds: now,
            references: heat.references.saturating_add(u8::from(is_new)),
            ..heat
        });
    }

    /// Something was put in that was used then.
    pub fn inherit(&self, used_seconds: u64) {
        let heat = self.get();
        if used_seconds > heat.used_seconds {
            self.set(SegmentHeat { used_seconds, ..heat });
        }
    }

    /// It is given up on devices; what is counted begins anew.
    pub(crate) fn left(&self) {
        self.set(SegmentHeat { references: 0, is_back: false, ..self.get() });
    }

    /// It is on devices again.
    pub(crate) fn came_back(&self) {
        self.set(SegmentHeat { is_back: true, ..self.get() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-137: one use is one however many reads it takes; release and coming back are known.
    #[test]
    fn uses_are_counted_and_not_reads() {
        let cell = HeatCell::default();
        cell.inherit(500);
        cell.inherit(400);
        assert_eq!(cell.get(), SegmentHeat { used_seconds: 500, references: 0, is_back: false });
        for now in 1000..1040 {
            cell.note_use(now);
            cell.note_use(now);
        }
        assert_eq!(cell.get(), SegmentHeat { used_seconds: 1039, references: 1, is_back: false });
        cell.note_use(1099);
        assert_eq!(cell.get().references, 2);
        // A clock that was put back counts too.
        cell.note_use(900);
        assert_eq!(cell.get(), SegmentHeat { used_seconds: 900, references: 3, is_back: false });
        cell.left();
        assert_eq!(cell.get(), SegmentHeat { used_seconds: 900, references: 0, is_back: false });
        cell.note_use(901);
        cell.came_back();
        assert_eq!(cell.get(), SegmentHeat { used_seconds: 901, references: 1, is_back: true });
        (0..300).for_each(|number| cell.note_use(1000 + number * 100));
        assert_eq!(cell.get().references, u8::MAX);
        cell.note_use(i64::MIN);
        assert_eq!(cell.get().used_seconds, 1);
        cell.note_use(i64::MAX);
        assert_eq!(
            cell.get(),
            SegmentHeat { used_seconds: SegmentHeat::USED_SECONDS_MAX, references: 255, is_back: true }
        );
    }
}
