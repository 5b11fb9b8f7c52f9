//! Bugs on purpose: the simulator plants one and must find it. Without the feature `planted-bugs` none of this exists in a build:
//! [`is_planted`] is then a constant. The switch belongs to the thread, because histories run side by side.

/// A bug that can be planted; each says where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// journal, `tail.rs`: slots are written to before a record in the shared log grants them.
    GrantNotPut,
    /// journal, `lib.rs`: a commit is acknowledged before its records are in the shared log.
    AcknowledgedBeforePut,
    /// file, `requests.rs`: a request of another machine is carried out and not noted, so that the next owner does it again.
    RequestNotNoted,
    /// engine, `batch.rs`: records are put into the shared log before what they name is flushed.
    PutBeforeFlush,
    /// engine, `shared.rs`: slots that an owner before may still write to are given out at once.
    SlotGrantedTwice,
    /// journal, `tail.rs`: an owner that was replaced goes on.
    FencedGoesOn,
    /// journal, `foreign.rs`: a root does not repeat which slots owners before the last may still write to.
    HeldForgotten,
    /// journal, `foreign.rs`: slots of the owner before are free when the new root is in the log, and not when its writes have arrived.
    LateWriteIntoReusedSlot,
    /// stripe, `grants.rs`: an owner writes to devices although its lease is over.
    LeaseIgnored,
    /// stripe, `grants.rs`: slots that another machine may write to are granted no longer than others.
    LentForgotten,
    /// direct, `write.rs`: an unprotected row counts as written before the nodes have flushed it.
    LentNotFlushed,
    /// engine, `batch.rs`: a commit answers without having flushed.
    CommitWithoutFlush,
    /// engine, `checkpoint.rs`: superblocks are written before what they name is flushed.
    CheckpointWithoutFlush,
    /// engine, `commit.rs`: slots are given out again before anything durable tells that they are empty.
    EarlyReuse,
    /// engine, `recover.rs`: what was given back before a crash is not given back again, and checkpoints count on it (P-6).
    GivenBackForgotten,
    /// log, `read.rs`: any bytes are taken for the right ones.
    ChecksumIgnored,
    /// log, `unwaited.rs`: what arrives for a call that may not wait is taken as it is.
    ArrivedBelieved,
    /// log, `read.rs`: whose blocks have their CRCs is taken for right, whatever its digest says (P-120).
    DigestIgnored,
    /// engine, `recover.rs`: the data that the unproven tail of the journal names is not looked at.
    TailNotVerified,
    /// journal, `scan.rs`: a record of an abandoned epoch counts.
    EpochIgnored,
    /// engine, `batch.rs`: a commit forgets one of its changes.
    ChangeForgotten,
    /// engine, `recover.rs`: of each group the journal holds, the last change is left out.
    GroupCutShort,
    /// tree, `overlay.rs`: replay lets older values win.
    OldestWins,
    /// engine, `void.rs`: what is put where nothing was known to be is not seen by scans.
    VoidStays,
    /// engine, `transaction.rs`: trimming kills one block too many.
    TrimOneTooMany,
    /// file, `orphan.rs`: a removed file is freed although it is open.
    OpenFileFreed,
    /// file, `size.rs`: cutting a file forgets the unsaved bytes behind the new end.
    CutKeepsTail,
    /// engine, `stranded.rs`: a commit is acknowledged although what it names did not reach enough devices (P-5).
    StrandedForgotten,
    /// journal, `scan.rs`: only the first mirror of the journal is read, and damage there is taken for its end (P-7).
    OneMirrorRead,
    /// pool, `void.rs`: a mount in which nothing happened makes a half of its own (P-13).
    VoidEpochCounts,
    /// engine, `relocate.rs`: what moves because its policy changed gets one copy less than it asks for (P-18).
    RelocatedToFewer,
    /// log, `write.rs`: a chunk that a device did not take is not marked as missing (P-19).
    AbsenceForgotten,
    /// engine, `rebuild.rs`: a chunk is entered as mended that was never written (P-20).
    MendingUnwritten,
    /// engine, `rebuild.rs`: a chunk that cannot be read is moved as zeros, and its source freed (P-189).
    SalvagedZeros,
    /// engine, `mend.rs`: a device that says nothing is asked whether it answers again, and then never more (P-162).
    SilentAskedOnce,
    /// engine, `mirrors.rs`: the last device that answers is given up, too (P-236).
    LastOneGivenUp,
    /// engine, `devices.rs`: a device that is to be removed leaves with what could not be read from it (P-160).
    RestDropped,
    /// engine, `devices.rs`: no spare takes the place of a device that is given up (P-20).
    SpareStays,
    /// pool, `claim.rs`: a heartbeat that lives is written over at once (P-157).
    RivalUnwatched,
    /// pool, `claim.rs`: an owner whose device another one has taken beats on (P-157).
    RivalOverwritten,
    /// pool, `claim.rs`: what was read before the pool was claimed is used as it is (P-157).
    OutdatedBelieved,
    /// pool, `assemble.rs`: the oldest superblock speaks for the pool (P-21).
    StaleSuperblockWins,
    /// engine, `devices.rs`: a device that takes the place of a lost one counts as holding what that held (P-22).
    ReplacementTrusted,
    /// stripe, `read.rs`: a device that does not answer is waited for although others have the content (P-23).
    SlowWaitedFor,
    /// log, `repair.rs`: what a read finds bad is not written again (P-30).
    RepairForgotten,
    /// engine, `rows.rs`: of a row that is bad somewhere only the first chunk is put right (P-31).
    ScrubTrusting,
    /// store, `scrub/segment.rs`: a row is passed over where a larger one from before shows on the first copy (P-31).
    HiddenRowPassed,
    /// engine, `relocate.rs`: what is stored in another encoding is said to be in the old one (P-50).
    EncodingForgotten,
    /// tier, `upload.rs`: what a volume says that it stored is not read back (P-60).
    VolumeBelieved,
    /// recall, `labelled.rs`: a label is read once, and whatever is at its place then counts as the volume (P-63).
    ExchangeUnnoticed,
    /// recall, `lib.rs`: only the first volume that has a segment is asked (P-63).
    FirstVolumeOnly,
    /// file, `edges.rs`: what a write changes in part is not read before it may leave devices (P-62).
    EdgesForgotten,
    /// tier, `stage.rs`: what comes back is entered without being written (P-64).
    StagedUnwritten,
    /// tier, `repack.rs`: new objects are entered that were never stored (P-87).
    RepackedUnwritten,
    /// tier, `retire.rs`: a volume is retired before its heir has everything (P-116).
    RetiredEarly,
    /// tier, `upload.rs`: copying out goes on although it is held back (P-112).
    HeldAnyway,
    /// tier, `media.rs`: a newcomer gets the number of a volume that policies name (P-113).
    NumberReused,
    /// file, `edges.rs`: what was read beside a write counts although the file was changed meanwhile (P-62).
    EdgesStale,
    /// file, `accounts.rs`: the while of a soft limit begins anew with every change (P-114).
    GraceBeginsAnew,
    /// file, `accounts.rs`: limits of all others hold for root, too (P-115).
    OthersIncludeRoot,
    /// file, `encode.rs`: a record is not encrypted although its file asks for it (P-53).
    LeftInTheClear,
    /// file, `encode.rs`: what a plugin fails at is stored as if there were none (P-66).
    PluginPassedOver,
    /// file, `encode.rs`: all records are encrypted under one nonce (P-54).
    NonceRepeated,
    /// naming, `room.rs`: what is pinned is released by itself like anything else (P-74).
    PinnedReleased,
    /// residency, `eviction/choice.rs`: a segment goes although files share it that do not go to media (P-231).
    OthersReleased,
    /// residency, `eviction/unused.rs`: what was used since `release=` says goes all the same (P-300).
    ReleasedTooEarly,
    /// features, `durability.rs`: what is to be durable when a call returns is not (P-301).
    AlwaysForgotten,
    /// features, `durability.rs`: a relaxed fsync does not hand over what was written (P-302).
    RelaxedUnordered,
    /// naming, `room.rs`: nothing is released for a writer that finds no room (P-110).
    WriterNotServed,
    /// recall, `lib.rs`: on a mount that refuses recalls bytes are fetched all the same (P-62).
    RecallAnyway,
    /// recall, `lib.rs`: what is to be had later is not asked for (P-62).
    LaterForgotten,
    /// tier, `metadata.rs`: what only the older state needs is deleted before the new one is there (P-72).
    OlderStateDeleted,
    /// naming, `rename.rs`: what is renamed over may be retained (P-59).
    RetainedReplaced,
    /// naming, `retention.rs`: a moment may become an earlier one (P-59).
    MomentShortened,
    /// naming, `versions.rs`: what cannot be kept is not changed (P-6, P-82).
    VersionNeedsRoom,
    /// tier, `repack.rs`: of volumes the one of which least is dead is repacked by itself (P-111).
    FullestRepacked,
    /// file, `policy.rs`: what rules say of versions and plugins is not looked at (P-117).
    RuledListForgotten,
    /// file, `encode.rs`: records are as long as they can be, whatever was asked for (P-118).
    RecordsUncut,
    /// file, `policy.rs`: locks of versions and plugins do not count (P-121).
    ListLockIgnored,
    /// file, `named_in.rs`: of several names only the newest one decides (P-147).
    OtherNamesForgotten,
    /// file, `named_in.rs`: a file stays below the directory in which its last name was removed (P-148).
    ParentLeftBehind,
    /// naming, `plugins/following.rs`: what is to be told is taken off the list before it is told (P-128).
    ToldTooEarly,
    /// file, `following.rs`: a file whose plugins failed at being told of it cannot be changed (P-129).
    FollowerInTheWay,
    /// backup, `run.rs`: what lies at a destination is never looked at again (P-104).
    MetBelieved,
    /// backup, `run.rs`: copies take their places before that is told (P-105).
    PlacedUntold,
    /// naming, `backup.rs`: what is encrypted is copied like anything else (P-106).
    CopiedInTheClear,
    /// stripe, `placement/sites.rs`: new segments lie anywhere, whatever is required (P-142).
    RequirementForgotten,
    /// engine, `moving.rs`: the cleaner moves what is required to lie somewhere to anywhere (P-142).
    CleanedElsewhere,
    /// stripe, `placement/sites.rs`: where a wish cannot be met there is no room (P-143).
    WishRequired,
    /// engine, `places.rs`: what lies elsewhere than is wished stays there (P-143).
    WishForgotten,
    /// file, `accounts.rs`: the while of a soft limit of stored bytes never ends (P-124).
    StoredWhileEndless,
    /// file, `charge.rs`: of the volumes around a file only the innermost one's limit of stored bytes holds (P-124).
    OuterLimitForgotten,
    /// naming, `volumes.rs`: what a volume holds does not move with it from one volume to another (P-75).
    VolumeMovedAlone,
    /// engine, `reload.rs`: of names that come back the last one is forgotten (P-141).
    UnfoldedInPart,
    /// naming, `cold.rs`: that names were used is not noted (P-152).
    UseOfNamesForgotten,
    /// tier, `heat.rs`: how segments were used is not kept (P-137).
    HeatForgotten,
    /// tier, `remnants.rs`: proving an object for a volume counts as a use of what is in it (P-137).
    ProvenIsUsed,
    /// tier, `orders.rs`: what should go last goes first (P-138).
    LastGoesFirst,
    /// fuse, `turns.rs`: one read more than the limit is under way (P-139).
    TurnTooMany,
    /// fuse, `turns.rs`: who needs two turns is passed by for ever (P-139).
    PassedForEver,
    /// naming, `units.rs`: a directory that says it is none is not listened to (P-145).
    UnitNoIgnored,
    /// naming, `units.rs`: only the file comes that was recalled (P-145).
    UnitComesApart,
    /// naming, `units.rs`: each segment of a unit is as old as itself (P-145).
    UnitAgesApart,
    /// naming, `reconcile.rs`: files of a unit go down as they are found (P-145).
    UnitGoesApart,
    /// recall, `clusters.rs`: what was recalled together is not kept (P-146).
    FollowersForgotten,
    /// recall, `clusters.rs`: all that may follow is fetched ahead, however much that is (P-146).
    AheadUnbounded,
    /// recall, `fetch.rs`: what was fetched ahead comes to devices (P-146).
    AheadToDevices,
    /// engine, `clean.rs`: segments are cleaned however little that frees, again and again (P-158).
    CleanedForNothing,
}

impl Bug {
    /// Those of a shared log, which the simulator's area `cluster` looks for.
    pub const CLUSTER: [Bug; 10] = [
        Bug::AcknowledgedBeforePut,
        Bug::PutBeforeFlush,
        Bug::FencedGoesOn,
        Bug::SlotGrantedTwice,
        Bug::GrantNotPut,
        Bug::HeldForgotten,
        Bug::LateWriteIntoReusedSlot,
        Bug::LeaseIgnored,
        Bug::LentForgotten,
        Bug::LentNotFlushed,
    ];

    /// All others.
    pub const ALL: [Bug; 97] = [
        Bug::CommitWithoutFlush,
        Bug::CheckpointWithoutFlush,
        Bug::EarlyReuse,
        Bug::GivenBackForgotten,
        Bug::ChecksumIgnored,
        Bug::ArrivedBelieved,
        Bug::DigestIgnored,
        Bug::TailNotVerified,
        Bug::EpochIgnored,
        Bug::ChangeForgotten,
        Bug::GroupCutShort,
        Bug::OldestWins,
        Bug::VoidStays,
        Bug::TrimOneTooMany,
        Bug::OpenFileFreed,
        Bug::CutKeepsTail,
        Bug::StrandedForgotten,
        Bug::OneMirrorRead,
        Bug::VoidEpochCounts,
        Bug::RelocatedToFewer,
        Bug::AbsenceForgotten,
        Bug::MendingUnwritten,
        Bug::SalvagedZeros,
        Bug::SilentAskedOnce,
        Bug::LastOneGivenUp,
        Bug::RestDropped,
        Bug::SpareStays,
        Bug::RivalUnwatched,
        Bug::RivalOverwritten,
        Bug::OutdatedBelieved,
        Bug::StaleSuperblockWins,
        Bug::ReplacementTrusted,
        Bug::SlowWaitedFor,
        Bug::RepairForgotten,
        Bug::ScrubTrusting,
        Bug::HiddenRowPassed,
        Bug::EncodingForgotten,
        Bug::VolumeBelieved,
        Bug::ExchangeUnnoticed,
        Bug::FirstVolumeOnly,
        Bug::EdgesForgotten,
        Bug::StagedUnwritten,
        Bug::RepackedUnwritten,
        Bug::RetiredEarly,
        Bug::HeldAnyway,
        Bug::NumberReused,
        Bug::EdgesStale,
        Bug::LeftInTheClear,
        Bug::PluginPassedOver,
        Bug::NonceRepeated,
        Bug::GraceBeginsAnew,
        Bug::OthersIncludeRoot,
        Bug::PinnedReleased,
        Bug::ReleasedTooEarly,
        Bug::AlwaysForgotten,
        Bug::RelaxedUnordered,
        Bug::OthersReleased,
        Bug::WriterNotServed,
        Bug::RecallAnyway,
        Bug::LaterForgotten,
        Bug::OlderStateDeleted,
        Bug::RetainedReplaced,
        Bug::MomentShortened,
        Bug::VersionNeedsRoom,
        Bug::FullestRepacked,
        Bug::RuledListForgotten,
        Bug::RecordsUncut,
        Bug::ListLockIgnored,
        Bug::OtherNamesForgotten,
        Bug::ParentLeftBehind,
        Bug::ToldTooEarly,
        Bug::FollowerInTheWay,
        Bug::MetBelieved,
        Bug::PlacedUntold,
        Bug::CopiedInTheClear,
        Bug::RequirementForgotten,
        Bug::CleanedElsewhere,
        Bug::WishRequired,
        Bug::WishForgotten,
        Bug::StoredWhileEndless,
        Bug::OuterLimitForgotten,
        Bug::VolumeMovedAlone,
        Bug::UnfoldedInPart,
        Bug::UseOfNamesForgotten,
        Bug::HeatForgotten,
        Bug::ProvenIsUsed,
        Bug::LastGoesFirst,
        Bug::TurnTooMany,
        Bug::PassedForEver,
        Bug::UnitNoIgnored,
        Bug::UnitComesApart,
        Bug::UnitAgesApart,
        Bug::UnitGoesApart,
        Bug::FollowersForgotten,
        Bug::AheadUnbounded,
        Bug::AheadToDevices,
        Bug::CleanedForNothing,
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
