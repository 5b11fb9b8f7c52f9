//! Frames on their way through anything that can be read and written.
//!
//! Invariants: before both sides have proven themselves only frames of the greeting are taken, and no more memory than for those is
//! made; afterwards every frame is sealed. After an error the stream is of no use. Read next: `frame.rs`.

use std::io::{ErrorKind, Read, Write};

use crate::frame::{Frame, FrameError, HEAD_BYTES, Head};
use crate::proof::{SEAL_BYTES, Seal};

#[cfg(test)]
mod tests;

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the connection is over")]
    Ended,
    #[error("nothing was heard for too long")]
    Silence,
    #[error("the connection broke: {0}")]
    Io(std::io::Error),
    #[error("what was received is no frame: {0}")]
    Frame(#[from] FrameError),
    #[error("a frame is not from the other side")]
    Seal,
    #[error("a frame came at the wrong time")]
    Order,
}

impl From<std::io::Error> for StreamError {
    fn from(error: std::io::Error) -> StreamError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => StreamError::Ended,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => StreamError::Silence,
            _ => StreamError::Io(error),
        }
    }
}

/// Frames of the other side.
#[derive(Debug)]
pub struct Incoming<R> {
    stream: R,
    seal: Option<Seal>,
    body: Vec<u8>,
}

impl<R: Read> Incoming<R> {
    pub fn new(stream: R) -> Incoming<R> {
        Incoming { stream, seal: None, body: Vec::new() }
    }

    /// From now on frames are sealed so.
    pub fn set_seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// What frames are read from.
    pub fn reader(&mut self) -> &mut R {
        &mut self.stream
    }

    /// The next frame.
    ///
    /// # Errors
    /// When there is none; the stream is of no use then.
    pub fn next_frame(&mut self) -> Result<Frame<'_>, StreamError> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head)?;
        let known = Head::decode(&head)?;
        if self.seal.is_none() && !known.is_of_greeting() {
            return Err(StreamError::Order);
        }
        self.body.resize(known.body_bytes, 0);
        self.stream.read_exact(&mut self.body)?;
        if let Some(seal) = &mut self.seal {
            let mut told = [0; SEAL_BYTES];
            self.stream.read_exact(&mut told)?;
            if !seal.is_good(&head, &self.body, &told) {
                return Err(StreamError::Seal);
            }
        }
        Ok(Frame::decode(known, &self.body)?)
    }
}

/// Frames to the other side.
#[derive(Debug)]
pub struct Outgoing<W> {
    stream: W,
    seal: Option<Seal>,
}

impl<W: Write> Outgoing<W> {
    pub fn new(stream: W) -> Outgoing<W> {
        Outgoing { stream, seal: None }
    }

    /// From now on frames are sealed so.
    pub fn set_seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When it could not be sent whole; the stream is of no use then.
    pub fn send(&mut self, frame: &Frame<'_>) -> Result<(), StreamError> {
        self.send_encoded(frame.encode())
    }

    /// Sends a frame that was encoded before.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_encoded(&mut self, mut frame: Vec<u8>) -> Result<(), StreamError> {
        if let Some(seal) = &mut self.seal {
            let seal = seal.of(&frame);
            frame.extend_from_slice(&seal);
        }
        self.stream.write_all(&frame)?;
        Ok(self.stream.flush()?)
    }
}
