//! A conversation of a local socket (lines of text, both ways) carried over a connection between two machines.
//!
//! Both sides run the same: one thread reads the local socket and sends pieces, another writes there what came, and the caller's receives. A
//! side sends no more than a window beyond what the other has passed on, so a reader that stands still stops neither pings nor the end.
//! Invariants: only whole lines are passed on, so whoever tells of a broken conversation begins a line of its own; no more than a window and
//! one line is kept; what was sent before a Bye is passed on before the local socket is shut. Read next: `frame.rs`, `stream.rs`.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zeroize::{Zeroize, Zeroizing};

use crate::frame::{Frame, PIECE_BYTES_MAX};
use crate::stream::{Incoming, Outgoing, StreamError};
use crate::{PING_EVERY_SECONDS, WINDOW_BYTES};

#[cfg(test)]
mod tests;

/// How long a thread waits before it looks whether the conversation is over, or a ping is due.
const LOOK: Duration = Duration::from_millis(200);
/// No request and no answer is longer.
const LINE_BYTES_MAX: usize = 64 << 20;

/// What the threads of one side share.
#[derive(Default)]
struct State {
    /// Came, and is not passed on yet. There may be a secret in it.
    arrived: VecDeque<Zeroizing<Vec<u8>>>,
    arrived_bytes: usize,
    /// May still be sent.
    credit: u32,
    has_said_bye: bool,
    /// The other side says nothing more.
    has_heard_bye: bool,
    /// The connection is of no use any more.
    is_broken: bool,
}

struct Side<W> {
    state: Mutex<State>,
    changed: Condvar,
    outgoing: Mutex<(Outgoing<W>, Instant)>,
}

/// Carries a conversation until both sides have ended it. `first` was read from the local socket before.
///
/// # Errors
/// When the connection ends first. Whole lines that came before are passed on, and the local socket is still open.
pub fn carry<R: Read, W: Write + Send>(
    local: &UnixStream,
    first: &[u8],
    incoming: &mut Incoming<R>,
    outgoing: Outgoing<W>,
) -> Result<(), StreamError> {
    local.set_read_timeout(Some(LOOK))?;
    let side = Side {
        state: Mutex::new(State { credit: WINDOW_BYTES, ..State::default() }),
        changed: Condvar::new(),
        outgoing: Mutex::new((outgoing, Instant::now())),
    };
    std::thread::scope(|scope| {
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let sends = spawn("carry-send").spawn_scoped(scope, || side.send_local(local, first));
        let passes = spawn("carry-pass").spawn_scoped(scope, || side.pass_on(local));
        let outcome = match sends.and(passes) {
            Ok(_) => side.receive(incoming),
            Err(error) => Err(StreamError::Io(error)),
        };
        side.end(outcome)
    })
}

impl<W: Write> Side<W> {
    fn end(&self, outcome: Result<(), StreamError>) -> Result<(), StreamError> {
        let mut state = self.state.lock();
        state.has_heard_bye = true;
        let outcome = match outcome {
            // The other side had no reason to wait for this one.
            Err(StreamError::Ended) if state.has_said_bye => Ok(()),
            outcome => outcome,
        };
        state.is_broken = outcome.is_err();
        drop(state);
        self.changed.notify_all();
        outcome
    }

    fn send(&self, frame: &Frame<'_>) -> Result<(), StreamError> {
        let mut outgoing = self.outgoing.lock();
        outgoing.0.send(frame)?;
        outgoing.1 = Instant::now();
        Ok(())
    }

    fn ping_if_due(&self) -> Result<(), StreamError> {
        let is_due = self.outgoing.lock().1.elapsed() >= Duration::from_secs(PING_EVERY_SECONDS) / 2;
        if is_due { self.send(&Frame::Ping) } else { Ok(()) }
    }

    /// Takes what the other side sends, until it has ended the conversation.
    fn receive<R: Read>(&self, incoming: &mut Incoming<R>) -> Result<(), StreamError> {
        loop {
            match incoming.next_frame()? {
                Frame::Piece { bytes } => {
                    let mut state = self.state.lock();
                    if state.arrived_bytes + bytes.len() > WINDOW_BYTES as usize {
                        return Err(StreamError::Order);
                    }
                    state.arrived_bytes += bytes.len();
                    state.arrived.push_back(Zeroizing::new(bytes.to_vec()));
                }
                Frame::Taken { bytes } => {
                    let mut state = self.state.lock();
                    let credit = state.credit.checked_add(bytes).filter(|credit| *credit <= WINDOW_BYTES);
                    state.credit = credit.ok_or(StreamError::Order)?;
                }
                Frame::Ping => continue,
                Frame::Bye => return Ok(()),
                Frame::Refused(_) => return Err(StreamError::Ended),
                _ => return Err(StreamError::Order),
            }
            self.changed.notify_all();
        }
    }

    /// Sends what is said here, until one side has ended the conversation; then tells now and then that this side is there.
    fn send_local(&self, mut local: &UnixStream, first: &[u8]) {
        let mut buffer = Zeroizing::new(vec![0; PIECE_BYTES_MAX]);
        let mut said = self.send_pieces(first);
        while said.is_ok() && !self.state.lock().has_heard_bye {
            said = match local.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.send_pieces(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    self.ping_if_due()
                }
                Err(_) => break,
            };
        }
        let mut said = said.and_then(|()| self.send(&Frame::Bye));
        while said.is_ok() {
            let mut state = self.state.lock();
            state.has_said_bye = true;
            if state.has_heard_bye {
                return;
            }
            self.changed.wait_for(&mut state, LOOK);
            drop(state);
            said = self.ping_if_due();
        }
    }

    /// Sends bytes as the other side has room for them.
    fn send_pieces(&self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let mut state = self.state.lock();
            // Nobody listens any more.
            if state.has_heard_bye {
                return Ok(());
            }
            let count = bytes.len().min(PIECE_BYTES_MAX).min(state.credit as usize);
            if count == 0 {
                self.changed.wait_for(&mut state, LOOK);
                drop(state);
                self.ping_if_due()?;
                continue;
            }
            assert!(count <= bytes.len() && count as u32 <= state.credit, "no more is sent than there is room for");
            state.credit -= count as u32;
            drop(state);
            self.send(&Frame::Piece { bytes: &bytes[..count] })?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Passes whole lines on, as long as somebody listens; then shuts the local socket, unless somebody is to be told of a broken connection.
    fn pass_on(&self, mut local: &UnixStream) {
        let mut line: Zeroizing<Vec<u8>> = Zeroizing::default();
        let mut is_heard = true;
        while let Some(piece) = self.next_arrived() {
            let count = piece.len() as u32;
            let (whole, rest) = piece.split_at(piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
            if is_heard && !whole.is_empty() {
                is_heard = local.write_all(&line).and_then(|()| local.write_all(whole)).is_ok();
                line.zeroize();
            }
            line.extend_from_slice(rest);
            is_heard &= line.len() <= LINE_BYTES_MAX;
            if !is_heard {
                line.clear();
                // So that this side says Bye.
                drop(local.shutdown(Shutdown::Both));
            }
            let mut state = self.state.lock();
            assert!(state.arrived_bytes >= count as usize, "what is passed on has arrived");
            state.arrived_bytes -= count as usize;
            drop(state);
            // A connection that broke is noticed by whoever receives.
            drop(self.send(&Frame::Taken { bytes: count }));
        }
        if !self.state.lock().is_broken {
            drop(local.shutdown(Shutdown::Both));
        }
    }

    fn next_arrived(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut state = self.state.lock();
        loop {
            assert!(state.arrived_bytes <= WINDOW_BYTES as usize, "a window bounds what is kept");
            if let Some(piece) = state.arrived.pop_front() {
                return Some(piece);
            }
            if state.has_heard_bye {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}
