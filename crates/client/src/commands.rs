//! Conversations of commands with the owner's process: each over a connection of its own, so that a long one holds up no request.
//!
//! Read next: `greet.rs`, `crates/machine-wire/src/conversation.rs`; at the other end `crates/owner/src/commands.rs`.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use stere_machine_tls::TlsError;
use stere_machine_wire::{Purpose, Refusal, StreamError, conversation};

use crate::greet::{GreetError, greet};
use crate::link::Link;

/// Of an owner that takes connections.
const SILENT: &str = "it says nothing";

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Why a command was not answered by the owner.
#[derive(Debug, thiserror::Error)]
pub enum CommandsError {
    #[error("nobody owns the pool at this moment; ask again in some seconds")]
    NoOwner,
    #[error("{0}")]
    NotConnected(String),
    #[error(
        "the connection to the owner ended before it had answered ({0}); whether what was asked for is done, `stere status` and the command's own list tell once there is an owner"
    )]
    Broken(StreamError),
}

impl Link {
    /// Carries a conversation to the owner, of which `first` was read from `local` before, until both have ended it.
    ///
    /// # Errors
    /// Why it did not come to its end. `local` is still open then, and what was passed on to it are whole lines.
    pub fn carry(&self, local: &UnixStream, first: &[u8]) -> Result<(), CommandsError> {
        let owner = (self.shared.find)().ok_or(CommandsError::NoOwner)?;
        let greeted = greet(&owner, &self.shared.own(Purpose::Commands), |_| {});
        let mut greeted = greeted.map_err(|error| CommandsError::NotConnected(self.why_not(&error)))?;
        let carried = conversation::carry(local, first, &mut greeted.incoming, greeted.outgoing);
        carried.map_err(CommandsError::Broken)
    }

    fn why_not(&self, error: &GreetError) -> String {
        match error {
            GreetError::Refused(Refusal::Full) => {
                "as many commands of this machine are under way there as are served at a time; try again when one has ended"
                    .to_owned()
            }
            GreetError::Refused(refusal) => self.shared.why_refused(*refusal),
            GreetError::Tls(TlsError::Io(error)) if is_silence(error) => SILENT.to_owned(),
            GreetError::Stream(StreamError::Silence) => SILENT.to_owned(),
            other => other.to_string(),
        }
    }
}
