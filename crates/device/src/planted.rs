//! Bugs on purpose: the simulator plants one and must find it. Without the feature `planted-bugs` none of this exists in a build:
//! [`is_planted`] is then a constant. The switch belongs to the thread, because histories run side by side.

/// A bug that can be planted; each says where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// store, `commit.rs`: a commit answers without having flushed.
    CommitWithoutFlush,
    /// store, `checkpoint.rs`: superblocks are written before what they name is flushed.
    CheckpointWithoutFlush,
    /// stripe: slots are given out again before the checkpoint that no longer needs them.
    EarlyReuse,
    /// log, `read.rs`: any bytes are taken for the right ones.
    ChecksumIgnored,
    /// store, `recover.rs`: the data that the unproven tail of the journal names is not looked at.
    TailNotVerified,
    /// store, `journal_scan.rs`: a record of an abandoned epoch counts.
    EpochIgnored,
    /// store, `commit.rs`: a commit forgets one of its changes.
    ChangeForgotten,
    /// store, `recover.rs`: of each group the journal holds, the last change is left out.
    GroupCutShort,
    /// store, `overlay.rs`: replay lets older values win.
    OldestWins,
    /// store, `transaction.rs`: trimming kills one block too many.
    TrimOneTooMany,
    /// file, `orphan.rs`: a removed file is freed although it is open.
    OpenFileFreed,
    /// file, `size.rs`: cutting a file forgets the unsaved bytes behind the new end.
    CutKeepsTail,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 12] = [
        Bug::CommitWithoutFlush,
        Bug::CheckpointWithoutFlush,
        Bug::EarlyReuse,
        Bug::ChecksumIgnored,
        Bug::TailNotVerified,
        Bug::EpochIgnored,
        Bug::ChangeForgotten,
        Bug::GroupCutShort,
        Bug::OldestWins,
        Bug::TrimOneTooMany,
        Bug::OpenFileFreed,
        Bug::CutKeepsTail,
    ];
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug for what this thread does from now on, or takes it out.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

/// Whether this bug is to be had.
#[cfg(feature = "planted-bugs")]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.with(|planted| planted.get() == Some(bug))
}

/// Whether this bug is to be had: never, in a build without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}
