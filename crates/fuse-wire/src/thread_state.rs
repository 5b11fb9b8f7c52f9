//! What /proc tells of the thread that a request is for.
//!
//! A fatal signal of any kind makes SIGKILL pending for all threads of a process, also while they wait in the kernel.

/// Whether what /proc says of a thread means that it ends.
#[must_use]
pub fn is_dying(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pending = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(|name| u64::from_str_radix(value(name)?, 16).ok());
    let is_killed = pending.fold(0, |all, some| all | some) >> (libc::SIGKILL - 1) & 1 == 1;
    is_killed || value("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// What /proc says of a thread; none where it is gone, or not seen from here.
#[must_use]
pub fn thread_status(thread: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok()
}
