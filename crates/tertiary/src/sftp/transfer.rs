//! Contents of files over one session: many requests under way at once, so that a far server is not waited for piece by piece.
//!
//! Invariant: what is handed on comes in the order of the file, without gaps, whatever order replies have and however short they are.

use std::collections::VecDeque;

use super::connection::{Connection, Fault, WINDOW_BYTES, unasked};
use super::packet::{self, Reply, put_text};

/// A part of a file that was asked for.
struct Piece {
    /// None when all of it is here, or the file ended in it.
    number: Option<u32>,
    start: usize,
    length: usize,
    bytes: Vec<u8>,
}

impl Connection {
    fn ask_for(&mut self, handle: &[u8], at: u64, length: usize) -> u32 {
        self.ask(packet::READ, |to| {
            put_text(to, handle);
            to.extend(at.to_be_bytes());
            to.extend((length as u32).to_be_bytes());
        })
    }

    /// Reads `length` bytes from `offset` on and hands them on as they come; says how many there were before the end of the file.
    pub(super) fn read(
        &mut self,
        handle: &[u8],
        offset: u64,
        length: usize,
        give: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<usize, Fault> {
        assert!(self.abilities.read_bytes > 0, "a session that was greeted says how much is read at once");
        let (mut pieces, mut asked, mut given) = (VecDeque::<Piece>::new(), 0, 0);
        loop {
            while asked < length && asked - given < WINDOW_BYTES {
                let count = self.abilities.read_bytes.min(length - asked);
                let number = Some(self.ask_for(handle, offset + asked as u64, count));
                pieces.push_back(Piece { number, start: asked, length: count, bytes: Vec::new() });
                asked += count;
            }
            if pieces.is_empty() {
                assert_eq!(given, length, "nothing is missing when nothing is under way");
                return Ok(given);
            }
            if let Err(fault) = self.receive_piece(&mut pieces, handle, offset) {
                pieces.iter().filter_map(|piece| piece.number).for_each(|number| self.abandon(number));
                return Err(fault);
            }
            while pieces.front().is_some_and(|piece| piece.number.is_none())
                && let Some(piece) = pieces.pop_front()
            {
                assert_eq!(piece.start, given, "pieces come in the order of the file, without gaps");
                give(&piece.bytes)?;
                given += piece.bytes.len();
                if piece.bytes.len() < piece.length {
                    // The file ends here, whatever is said of what is behind.
                    pieces.iter().filter_map(|piece| piece.number).for_each(|number| self.abandon(number));
                    return Ok(given);
                }
            }
        }
    }

    /// Takes one reply; what a short one lacks is asked for.
    fn receive_piece(&mut self, pieces: &mut VecDeque<Piece>, handle: &[u8], offset: u64) -> Result<(), Fault> {
        let rest = self.receive(|number, reply| {
            let piece = pieces.iter_mut().find(|piece| piece.number == Some(number)).ok_or_else(unasked)?;
            assert!(piece.bytes.len() < piece.length, "only what is missing of a piece is under way");
            let missing = piece.length - piece.bytes.len();
            piece.number = None;
            match reply {
                Reply::Data(bytes) if bytes.len() <= missing => piece.bytes.extend(bytes),
                Reply::Status { code: packet::STATUS_END, .. } => return Ok(None),
                Reply::Status { code, words } => return Err(Fault::Status { code, words }),
                _ => return Err(unasked()),
            }
            let is_short = !matches!(reply, Reply::Data([])) && piece.bytes.len() < piece.length;
            Ok(is_short.then_some((piece.start, piece.bytes.len(), piece.length)))
        })?;
        if let Some((start, here, length)) = rest {
            let number = self.ask_for(handle, offset + (start + here) as u64, length - here);
            if let Some(piece) = pieces.iter_mut().find(|piece| piece.start == start) {
                piece.number = Some(number);
            }
        }
        Ok(())
    }

    /// Writes a file from its beginning on.
    pub(super) fn write(&mut self, handle: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        assert!(self.abilities.write_bytes > 0, "a session that was greeted says how much is written at once");
        let (mut under_way, mut sent) = (VecDeque::new(), 0);
        let pieces_max = (WINDOW_BYTES / self.abilities.write_bytes).max(1);
        loop {
            while sent < bytes.len() && under_way.len() < pieces_max {
                let end = bytes.len().min(sent + self.abilities.write_bytes);
                under_way.push_back(self.ask(packet::WRITE, |to| {
                    put_text(to, handle);
                    to.extend((sent as u64).to_be_bytes());
                    put_text(to, &bytes[sent..end]);
                }));
                sent = end;
            }
            if under_way.is_empty() {
                assert_eq!(sent, bytes.len(), "everything was sent when nothing is under way");
                return Ok(());
            }
            let outcome = self.receive(|number, reply| {
                let at = under_way.iter().position(|one| *one == number).ok_or_else(unasked)?;
                under_way.remove(at);
                match reply {
                    Reply::Status { code: packet::STATUS_OK, .. } => Ok(()),
                    Reply::Status { code, words } => Err(Fault::Status { code, words }),
                    _ => Err(unasked()),
                }
            });
            if let Err(fault) = outcome {
                under_way.into_iter().for_each(|number| self.abandon(number));
                return Err(fault);
            }
        }
    }
}
