//! Why the daemon of a mount was not met.

/// What went wrong before anything was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this is not on a stere mount; `stere pool list` shows them")]
    NotStere,
    #[error("the daemon of the pool '{pool}' does not answer; see its log")]
    NoDaemon { pool: String },
    #[error("user {uid}, whose mount this is not, answers for it; tell the administrator")]
    Stranger { uid: u32 },
    #[error(transparent)]
    System(#[from] std::io::Error),
}
