//! What can go wrong with the journal; the engine tells it in its own words. Read next: `lib.rs`.

#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal could not be written to any device; check the devices")]
    NoMirror,
    /// One update is larger than a record may be.
    #[error("one update of {bytes} bytes is larger than the journal takes ({max})")]
    UpdateTooLarge { bytes: usize, max: usize },
    /// A record is on no mirror, although later ones were durable.
    #[error("the journal is damaged at record {sequence} on every device that holds it")]
    Damaged { sequence: u64 },
    /// Another owner has the pool.
    #[error(
        "another machine took the pool over; nothing that was not acknowledged is kept, and nothing is written from here any more: mount it again to go on as a client or a standby"
    )]
    Replaced,
    /// What once was in the shared log is not there.
    #[error(
        "the shared log of the pool is damaged ({detail}); was its database restored from an older state? Nothing was changed on devices; see `stere pool move-log --help`"
    )]
    LogDamaged { detail: String },
    /// Nobody wants to wait for the shared log any longer.
    #[error("{why}")]
    LogAway { why: String },
    /// A whole record does not decode.
    #[error("a record of the journal is not valid ({detail})")]
    BadRecord { detail: String },
}
