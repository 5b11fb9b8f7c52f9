//! Which request of another machine's kernel a request is, for the file system that notes what it has done.

/// A request of a far session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteId {
    pub session: [u8; 16],
    /// Where it is to be noted.
    pub slot: u16,
    /// Rises in the session.
    pub number: u64,
}
