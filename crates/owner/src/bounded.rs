//! A socket that is read for so long and no longer, while nobody knows who is at its other end.
//!
//! A time-out of the socket alone begins anew with each byte: a stranger that sends one now and then would be heard for ever.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Bounded {
    socket: TcpStream,
    silence: Duration,
    until: Option<Instant>,
}

impl Bounded {
    /// All that is read has to be there after `whole`; `silence` ends it earlier.
    pub fn new(socket: TcpStream, silence: Duration, whole: Duration) -> std::io::Result<Bounded> {
        socket.set_read_timeout(Some(silence))?;
        Ok(Bounded { socket, silence, until: Some(Instant::now() + whole) })
    }

    /// The other side is known: only silence ends it from now on.
    pub fn trust(&mut self) -> std::io::Result<()> {
        self.until = None;
        self.socket.set_read_timeout(Some(self.silence))
    }
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left.min(self.silence)))?;
        }
        self.socket.read(bytes)
    }
}
