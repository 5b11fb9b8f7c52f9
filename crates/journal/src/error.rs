//! What can go wrong with the journal; the engine tells it in its own words. Read next: `lib.rs`.

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal could not be written to any device; check the devices")]
    NoMirror,
    /// One update is larger than a record may be.
    #[error("one update of {bytes} bytes is larger than the journal takes ({max})")]
    UpdateTooLarge { bytes: usize, max: usize },
    /// A record is on no mirror, although later ones were durable.
    #[error("the journal is damaged at record {sequence} on every device that holds it")]
    Damaged { sequence: u64 },
    /// A whole record does not decode.
    #[error("a record of the journal is not valid ({detail})")]
    BadRecord { detail: String },
}
