//! The clock of all calls.

use stere_naming::Timestamp;

/// The clock of all calls.
pub(crate) fn now() -> Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a live variable; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    Timestamp { seconds: time.tv_sec, nanoseconds: u32::try_from(time.tv_nsec).unwrap_or(0) }
}
