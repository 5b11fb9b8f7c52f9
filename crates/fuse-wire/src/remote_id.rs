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

/// What is said of a far request beside its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteContext {
    /// It is to be noted when it is carried out.
    pub id: Option<RemoteId>,
    /// An owner before has answered it.
    pub redone: Option<Redone>,
    /// A read may be answered with a map.
    pub takes_map: bool,
    /// A map may be of encrypted content.
    pub has_keys: bool,
}

/// What a request did that is performed once more, because it was lost with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redone {
    /// The inode that it had made; 0: none.
    pub inode: u64,
    /// When it was done, since 1970; 0: nobody knows.
    pub seconds: i64,
    pub nanoseconds: u32,
}
