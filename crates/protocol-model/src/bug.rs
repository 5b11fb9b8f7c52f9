//! Bugs planted into the models on purpose: each breaks one rule of the protocol.
//!
//! Invariants: a bug belongs to one model, and the checker finds a counterexample for it. Read next: `report.rs`.

/// Which of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Acknowledgement,
    Slots,
    Leases,
    Early,
    Gather,
}

/// One rule of the protocol that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The owner acknowledges a request while its record is on the way to the log.
    AcknowledgedBeforePut,
    /// A request that a client repeats is executed again by the next owner, which does not look into commit records.
    CommitRepeatedTwice,
    /// An owner that got `Taken` acknowledges what it had tried to commit.
    FencedStillAcknowledges,
    /// A put without an answer counts as refused, and the same record is put at the next number.
    LostAnswerTakenForNo,
    /// An owner answers reads after its lease.
    StaleReadAfterLease,
    /// A successor serves without having put its epoch record.
    EpochRecordSkipped,
    /// A successor waits for silence before it puts its epoch record, and not after.
    SilenceBeforeEpochRecord,
    /// The root at which the log is trimmed does not hold which requests were executed.
    TrimForgetsRequests,
    /// A free slot is granted although an earlier epoch holds it.
    SlotGrantedTwice,
    /// A slot of an earlier epoch is granted again after the lease, before the connection's time-out has passed.
    LateWriteIntoReusedSlot,
    /// The commit record is put before the nodes have flushed.
    PutBeforeFlush,
    /// A slot is written before its grant is in the log.
    WriteBeforeGrant,
    /// What is being changed is leased.
    LeasedWhileChanging,
    /// An answer is leased that may be older than a change.
    LeasedThoughChangedSince,
    /// The answer to a change is leased though others changed the same meanwhile.
    ChangeBelievedAmongOthers,
    /// A machine believes an answer that was on its way when a recall came.
    BelievedThoughRecalled,
    /// A change does not wait until those who may believe otherwise have heard.
    ChangedBeforeHeard,
    /// The owner goes on without a machine that may believe still.
    GivenUpBeforeLeaseIsOver,
    /// A change that came of others' changes is answered before these are committed.
    EarlyThoughOthersMayLose,
    /// A machine is told of others' changes before they are committed.
    SeenBeforeCommitted,
    /// Changes that were under way at the same time are answered before they are committed.
    EarlyAmongOthers,
    /// What a machine keeps is made once more though a commit record has it.
    RedoneThoughNoted,
    /// A machine that has lost an answer keeps what came of that.
    EarlyAfterLostAnswer,
    /// The next owner serves some before all have told what they keep.
    ServedBeforeAllIsTold,
    /// What was made while a commit was under way counts as committed by it.
    CommitCoversLater,
    /// A question is answered though somebody else gathers the file.
    ServedThoughGathered,
    /// A machine may gather a file that another one has open.
    GatheredThoughOpen,
    /// A machine gathers on by an answer that a recall has overtaken.
    GatheredThoughRecalled,
    /// A machine says that it has sent what it had gathered, and sends it after that.
    ReturnedBeforeSent,
    /// What was looked up by name is answered as it was found, whoever gathers it or has gathered it since.
    FoundThoughGathered,
    /// A machine that is cut off is waited for no longer, and keeps what it has gathered.
    AnsweredWhileAway,
    /// A machine that was given up writes what it had gathered when it comes back.
    WrittenAfterGivenUp,
    /// The next owner serves before all have told what they had gathered.
    ServedBeforeGatheredIsTold,
    /// What the next owner was told is sent to it once more, later.
    SentOnceMore,
}

impl Bug {
    pub const ALL: [Bug; 34] = [
        Bug::AcknowledgedBeforePut,
        Bug::CommitRepeatedTwice,
        Bug::FencedStillAcknowledges,
        Bug::LostAnswerTakenForNo,
        Bug::StaleReadAfterLease,
        Bug::EpochRecordSkipped,
        Bug::SilenceBeforeEpochRecord,
        Bug::TrimForgetsRequests,
        Bug::SlotGrantedTwice,
        Bug::LateWriteIntoReusedSlot,
        Bug::PutBeforeFlush,
        Bug::WriteBeforeGrant,
        Bug::LeasedWhileChanging,
        Bug::LeasedThoughChangedSince,
        Bug::ChangeBelievedAmongOthers,
        Bug::BelievedThoughRecalled,
        Bug::ChangedBeforeHeard,
        Bug::GivenUpBeforeLeaseIsOver,
        Bug::EarlyThoughOthersMayLose,
        Bug::SeenBeforeCommitted,
        Bug::EarlyAmongOthers,
        Bug::RedoneThoughNoted,
        Bug::EarlyAfterLostAnswer,
        Bug::ServedBeforeAllIsTold,
        Bug::CommitCoversLater,
        Bug::ServedThoughGathered,
        Bug::GatheredThoughOpen,
        Bug::GatheredThoughRecalled,
        Bug::ReturnedBeforeSent,
        Bug::FoundThoughGathered,
        Bug::AnsweredWhileAway,
        Bug::WrittenAfterGivenUp,
        Bug::ServedBeforeGatheredIsTold,
        Bug::SentOnceMore,
    ];

    /// The bug of this name, as the enum spells it.
    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    /// The model that has this bug.
    pub fn part(self) -> Part {
        match self {
            Bug::AcknowledgedBeforePut
            | Bug::CommitRepeatedTwice
            | Bug::FencedStillAcknowledges
            | Bug::LostAnswerTakenForNo
            | Bug::StaleReadAfterLease
            | Bug::EpochRecordSkipped
            | Bug::SilenceBeforeEpochRecord
            | Bug::TrimForgetsRequests => Part::Acknowledgement,
            Bug::SlotGrantedTwice | Bug::LateWriteIntoReusedSlot | Bug::PutBeforeFlush | Bug::WriteBeforeGrant => {
                Part::Slots
            }
            Bug::LeasedWhileChanging
            | Bug::LeasedThoughChangedSince
            | Bug::ChangeBelievedAmongOthers
            | Bug::BelievedThoughRecalled
            | Bug::ChangedBeforeHeard
            | Bug::GivenUpBeforeLeaseIsOver => Part::Leases,
            Bug::EarlyThoughOthersMayLose
            | Bug::SeenBeforeCommitted
            | Bug::EarlyAmongOthers
            | Bug::RedoneThoughNoted
            | Bug::EarlyAfterLostAnswer
            | Bug::ServedBeforeAllIsTold
            | Bug::CommitCoversLater => Part::Early,
            Bug::ServedThoughGathered
            | Bug::GatheredThoughOpen
            | Bug::GatheredThoughRecalled
            | Bug::ReturnedBeforeSent
            | Bug::FoundThoughGathered
            | Bug::AnsweredWhileAway
            | Bug::WrittenAfterGivenUp
            | Bug::ServedBeforeGatheredIsTold
            | Bug::SentOnceMore => Part::Gather,
        }
    }
}
