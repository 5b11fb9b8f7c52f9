//! What a call brings along. Read next: the crate device's `io.rs`.

use stere_format::Timestamp;
use stere_store::Io;

use crate::requests::RequestId;

/// Who asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The caller's clock.
    pub now: Timestamp,
    /// How the call may use devices and media.
    pub io: Io<'a>,
    /// Which request of another machine asks for it.
    pub request: Option<&'a RequestId>,
}
