//! What a process with secrets does about its memory: it leaves no core dump, and gives back what it does not use any more.

/// From now on this process leaves no core dump, and nobody but root looks into it. To be called before the first secret is in memory.
pub fn keep_secret() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read their arguments only. A handler of core dumps is given one whatever the limit is, so the limit is not enough.
    let outcomes = unsafe {
        [libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0), libc::setrlimit(libc::RLIMIT_CORE, &raw const none)]
    };
    if outcomes != [0, 0] {
        tracing::warn!("the system does not let this process go without core dumps; one of it would hold keys");
    }
}

/// Gives free memory back to the system, which wipes it: what was read of files whose key is locked now is in some of it.
pub fn give_back_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    /// P-204: the process of the test goes without dumps from here on, which harms nobody.
    #[test]
    fn a_process_with_secrets_leaves_no_dump() {
        super::keep_secret();
        // SAFETY: it takes no pointers.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }, 0);
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    }
}
