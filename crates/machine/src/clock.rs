//! The wall clock, and the caller that the daemon itself is.

use std::time::{SystemTime, UNIX_EPOCH};

use stere_naming::{Caller, Io, Timestamp};

pub fn now() -> Timestamp {
    // A clock before 1970 is a clock that was never set.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// Work that no user asked for.
pub fn own_caller(io: Io<'_>) -> Caller<'_> {
    Caller { uid: 0, gid: 0, groups: &[], umask: 0, now: now(), io, process: 0, request: None }
}
