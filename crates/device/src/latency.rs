//! How long reads and writes take lately: measured where the clock is, in devices that are real.
//!
//! A moving average per 64 KiB, so that large transfers do not look slow. It halves with every few seconds in which nothing is
//! read or written: a device that was passed over because it was slow gets another chance, at the price of a few slow ones.
//! Where something is under way and nothing has ended for longer than the average, that counts instead: a device that hangs is
//! slow before anything has come back from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a transfer of any size counts for at least, and in multiples of what.
const UNIT_BYTES: usize = 64 << 10;
/// Weight of the newest one, as a divisor.
const WEIGHT: u64 = 4;
/// After so long without any, half of what was known is forgotten.
const HALF_LIFE_MS: u64 = 5000;

/// Less than this is fast, whenever it was: the clock need not be asked.
const FAST_US: u64 = 10_000;

/// Shorter stalls than this are nothing: a queue of writes, a flush.
const STALLED_US: u64 = 30_000;

/// Latency of one device.
#[derive(Debug)]
pub struct Latency {
    average_us: AtomicU64,
    begun: Instant,
    /// When the last one ended, from `begun` on.
    last_ms: AtomicU64,
    under_way: AtomicU64,
    /// When the last one ended, or began with no other under way.
    progress_ms: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            average_us: AtomicU64::new(0),
            begun: Instant::now(),
            last_ms: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            progress_ms: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// Notes a read or write that begins.
    pub fn begin(&self) -> Instant {
        let now = Instant::now();
        if self.under_way.fetch_add(1, Ordering::Relaxed) == 0 {
            self.progress_ms.store(self.milliseconds_at(now), Ordering::Relaxed);
        }
        now
    }

    /// Notes that it has ended, after so many bytes.
    pub fn end(&self, begun: Instant, length: usize) {
        self.note(begun.elapsed(), length);
        self.progress_ms.store(self.last_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = self.under_way.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "what ends has begun");
    }

    /// For how long nothing has ended although something is under way.
    fn stalled_ms(&self) -> u64 {
        match self.under_way.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.now_ms().saturating_sub(self.progress_ms.load(Ordering::Relaxed)),
        }
    }

    /// For how long nothing has ended although something is under way.
    pub fn stalled(&self) -> Duration {
        Duration::from_millis(self.stalled_ms())
    }

    /// Notes a read or write that has just ended. Two at once may overlook one of them.
    pub fn note(&self, elapsed: Duration, length: usize) {
        let units = length.div_ceil(UNIT_BYTES).max(1) as u64;
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX) / units;
        let before = u64::from(self.average_us());
        let average = (before * (WEIGHT - 1)).saturating_add(elapsed_us) / WEIGHT;
        self.average_us.store(average, Ordering::Relaxed);
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// The average now, or the stall if that is worse.
    pub fn microseconds(&self) -> u32 {
        let stalled_us = self.stalled_ms() * 1000;
        let average = self.average_us();
        match stalled_us < STALLED_US {
            true => average,
            false => average.max(u32::try_from(stalled_us).unwrap_or(u32::MAX)),
        }
    }

    fn average_us(&self) -> u32 {
        let average_us = self.average_us.load(Ordering::Relaxed);
        if average_us < FAST_US {
            return average_us as u32;
        }
        let idle_ms = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        let halvings = u32::try_from(idle_ms / HALF_LIFE_MS).unwrap_or(u32::MAX);
        u32::try_from(average_us.checked_shr(halvings).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    fn now_ms(&self) -> u64 {
        self.milliseconds_at(Instant::now())
    }

    fn milliseconds_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_slow_before_it_ends() {
        let mut latency = Latency::default();
        let Some(earlier) = latency.begun.checked_sub(Duration::from_secs(40)) else { return };
        let (quick, stuck) = (latency.begin(), latency.begin());
        latency.end(quick, 4096);
        assert!(latency.microseconds() < 30_000);
        // Forty seconds pass.
        latency.begun = earlier;
        assert!(latency.microseconds() > 30_000_000, "{}", latency.microseconds());
        latency.end(stuck, 4096);
        assert!(latency.microseconds() < 30_000, "{}", latency.microseconds());
    }

    #[test]
    fn large_reads_count_by_their_size_and_old_ones_fade() {
        let mut latency = Latency::default();
        assert_eq!(latency.microseconds(), 0);
        (0..20).for_each(|_| latency.note(Duration::from_millis(64), 64 * UNIT_BYTES));
        assert!((900..=1000).contains(&latency.microseconds()), "{}", latency.microseconds());
        (0..20).for_each(|_| latency.note(Duration::from_millis(100), 4096));
        assert!(latency.microseconds() > 90_000, "{}", latency.microseconds());
        let Some(earlier) = latency.begun.checked_sub(Duration::from_secs(31)) else { return };
        latency.begun = earlier;
        assert!(latency.microseconds() < 2000, "{}", latency.microseconds());
        (0..20).for_each(|_| latency.note(Duration::from_micros(50), 4096));
        assert!(latency.microseconds() < 60);
    }
}
