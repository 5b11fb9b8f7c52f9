//! An owner that does not know this session is told all that belongs to it, before anything else is asked of it.
//!
//! In this order: what the kernel knows; what was done and written and may be lost, in the order in which that was; what it has open; what
//! it has locked. What the same owner forgot because the connection was away for long is told too, but not what was done or written: that is
//! there, and others may have changed it since.
//! Read next: `state.rs`.

use std::collections::HashSet;

use fuse_wire::abi::opcode;
use fuse_wire::raw;
use stere_machine_wire::{Frame, Incoming, Notice, StreamError};

use crate::link::{Shared, sync_message};
use crate::retained::requests::Request;
use crate::retained::{Again, Time};
use crate::state::{Answer, State};
use crate::wire::{FromOwner, Wire};

/// Requests that are sent before their answers are waited for.
const WINDOW: usize = 64;

fn is_open(state: &State, node: u64) -> bool {
    state.handles.all().iter().any(|(_, file)| file.node == node)
}

/// Whether a change that was asked for once more is made, by this answer.
fn is_done(operation: u32, errno: i32) -> bool {
    match errno {
        0 => true,
        // It was there already, and the kernel was told so then.
        libc::EEXIST => matches!(operation, opcode::MKNOD),
        // The file is gone, with its attributes.
        libc::ESTALE => matches!(operation, opcode::SETATTR),
        _ => false,
    }
}

/// A conversation with an owner before others may use the connection.
pub(crate) struct Restoring<'a> {
    shared: &'a Shared,
    wire: &'a Wire,
    incoming: &'a mut Incoming<FromOwner>,
    /// What was written again has these marks of this owner: file, offset and mark.
    written: Vec<(u64, u64, u64)>,
}

impl<'a> Restoring<'a> {
    pub fn new(shared: &'a Shared, wire: &'a Wire, incoming: &'a mut Incoming<FromOwner>) -> Restoring<'a> {
        Restoring { shared, wire, incoming, written: Vec::new() }
    }

    /// Tells everything.
    pub fn tell_all(&mut self) -> Result<(), StreamError> {
        let (known, open, locks, again, is_new) = {
            let mut state = self.shared.state.lock();
            let known = state.count_all();
            let is_new = state.written_epoch != self.wire.epoch;
            let again = if is_new { state.retained.again() } else { Vec::new() };
            (known, state.handles.all(), self.locks(&state), again, is_new)
        };
        for (node, count) in &known {
            self.wire.send(&Frame::Hold { node: *node, count: *count });
        }
        let made: HashSet<u64> = again.iter().filter_map(Again::makes).collect();
        for one in again {
            match one {
                Again::Write { node, offset, bytes, mtime } => self.write_again((node, offset), &bytes, mtime)?,
                Again::Request(request) => self.do_again(&request)?,
            }
        }
        // The owner has counted one reference to each of these.
        for (node, count) in known.iter().filter(|(node, _)| made.contains(node)) {
            self.wire.send(&Frame::Hold { node: *node, count: *count });
        }
        self.reopen(&open)?;
        self.settle(is_new)?;
        self.lock_again(&locks)?;
        self.wire.send(&Frame::Settled);
        let mut state = self.shared.state.lock();
        // Now and not before: what this owner does not hear to the end is told to the next one in the order of the owner before.
        self.written.iter().for_each(|(node, offset, mark)| state.retained.mark(*node, *offset, *mark));
        state.is_told(self.wire.epoch);
        drop(state);
        // Others may have changed it while nobody told this kernel.
        for (_, file) in open {
            self.shared.notices.push(Notice::Inode { node: file.node, offset: 0, length: 0, settled: 0 });
        }
        Ok(())
    }

    fn reopen(&mut self, open: &[(u64, crate::handles::OpenFile)]) -> Result<(), StreamError> {
        let message = |file: &crate::handles::OpenFile| {
            let operation = if file.is_directory { opcode::OPENDIR } else { opcode::OPEN };
            raw::message(operation, file.node, &[&file.flags.to_ne_bytes(), &[0; 4]])
        };
        let messages: Vec<_> = open.iter().map(|(_, file)| message(file)).collect();
        let answers = self.ask(&messages)?;
        let mut state = self.shared.state.lock();
        for ((handle, file), answer) in open.iter().zip(answers) {
            let at_owner = if answer.errno == 0 { raw::number_at(&answer.bytes, 0) } else { None };
            if at_owner.is_none() {
                tracing::warn!(inode = file.node, errno = answer.errno, "an open file is gone with the owner before");
            }
            state.handles.reopened(*handle, at_owner);
        }
        Ok(())
    }

    /// Has a change made that the owner before may not have committed. It is answered when it is committed.
    fn do_again(&mut self, request: &Request) -> Result<(), StreamError> {
        let Request { number, inode, at: (seconds, nanoseconds), .. } = *request;
        let mut message = request.message.clone();
        let header = raw::header(&message).unwrap_or_default();
        let translated = self.shared.translate_request(&mut message);
        let answer = match translated {
            Ok(()) => {
                self.wire.send(&Frame::Redo { number, inode, seconds, nanoseconds, message: &message });
                self.answers(number, 1)?.pop().unwrap_or_default()
            }
            Err(errno) => Answer { errno, ..Answer::default() },
        };
        let mut made = None;
        raw::each_found(header.opcode, &answer.bytes, |node| made = Some(node));
        let is_another = made.is_some_and(|node| node != inode);
        let mut state = self.shared.state.lock();
        state.retained.requests.done(number);
        if is_another || !is_done(header.opcode, answer.errno) {
            let (inode, operation, errno) = (header.nodeid, header.opcode, answer.errno);
            tracing::error!(inode, operation, errno, "what was done and not synced cannot be done again: it is lost");
            state.retained.lose_change(header.nodeid);
        }
        Ok(())
    }

    fn write_again(
        &mut self,
        (node, offset): (u64, u64),
        bytes: &[u8],
        mtime: Option<Time>,
    ) -> Result<(), StreamError> {
        const PART_BYTES_MAX: usize = 1 << 20;
        for (index, part) in bytes.chunks(PART_BYTES_MAX).enumerate() {
            let at = offset + (index * PART_BYTES_MAX) as u64;
            let size = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let head: [&[u8]; 6] = [
                &0_u64.to_ne_bytes(),
                &at.to_ne_bytes(),
                &size.to_ne_bytes(),
                &[0; 12],
                &libc::O_WRONLY.to_ne_bytes(),
                &[0; 4],
            ];
            let message = raw::message(opcode::WRITE, node, &[&head.concat(), part]);
            let answer = match mtime {
                None => self.ask(&[message])?.pop(),
                Some((seconds, nanoseconds)) => {
                    let number = self.shared.state.lock().take_numbers(1);
                    self.wire.send(&Frame::Redo { number, inode: 0, seconds, nanoseconds, message: &message });
                    self.answers(number, 1)?.pop()
                }
            };
            let mut state = self.shared.state.lock();
            match answer {
                Some(answer) if answer.errno == 0 => self.written.push((node, offset, answer.mark)),
                // It was removed, and nobody has it open: nothing is lost.
                Some(answer) if answer.errno == libc::ESTALE && !is_open(&state, node) => {
                    state.retained.cut(node, at, part.len() as u64);
                }
                answer => {
                    let errno = answer.map_or(libc::EIO, |answer| answer.errno);
                    tracing::error!(inode = node, errno, "what was written and not synced cannot be written again");
                    state.retained.lose(node, at, part.len() as u64, errno);
                }
            }
        }
        Ok(())
    }

    /// The same owner has what was written, and may have forgotten to tell that others have written there since: nothing of it is kept.
    fn settle(&mut self, is_new: bool) -> Result<(), StreamError> {
        let order = {
            let state = self.shared.state.lock();
            if is_new || state.retained.is_empty() {
                return Ok(());
            }
            state.retained.order()
        };
        let answer = self.ask(&[sync_message()])?.pop();
        if answer.is_some_and(|answer| answer.errno == 0) {
            self.shared.state.lock().retained.let_go(None, order);
        }
        Ok(())
    }

    /// Messages of SETLK for all that is locked.
    fn locks(&self, state: &State) -> Vec<Vec<u8>> {
        let one = |node: u64, is_flock: bool, owner: u64, lock: fuse_wire::Lock| {
            let arguments: [&[u8]; 8] = [
                &0_u64.to_ne_bytes(),
                &owner.to_ne_bytes(),
                &lock.start.to_ne_bytes(),
                &lock.end.to_ne_bytes(),
                &lock.kind.to_ne_bytes(),
                &lock.pid.to_ne_bytes(),
                &u32::from(is_flock).to_ne_bytes(),
                &[0; 4],
            ];
            raw::message(opcode::SETLK, node, &arguments)
        };
        let all = state.locks.iter();
        all.flat_map(|((node, is_flock), ranges)| {
            ranges.each().map(move |(owner, lock)| one(*node, *is_flock, owner, lock))
        })
        .collect()
    }

    fn lock_again(&mut self, messages: &[Vec<u8>]) -> Result<(), StreamError> {
        let lost = self.ask(messages)?.iter().filter(|answer| answer.errno != 0).count();
        if lost > 0 {
            tracing::warn!(lost, "locks that were held are another's now");
        }
        Ok(())
    }

    /// Asks, several at once, and gives the answers in the order of the questions.
    fn ask(&mut self, messages: &[Vec<u8>]) -> Result<Vec<Answer>, StreamError> {
        let mut answers = Vec::with_capacity(messages.len());
        for window in messages.chunks(WINDOW) {
            let first = self.shared.state.lock().take_numbers(window.len() as u64);
            for (number, message) in (first..).zip(window) {
                let (acknowledged, is_repeated, takes_map) = (0, false, false);
                self.wire.send(&Frame::Request {
                    number,
                    acknowledged,
                    is_repeated,
                    takes_map,
                    has_keys: false,
                    message,
                });
            }
            answers.extend(self.answers(first, window.len())?);
        }
        Ok(answers)
    }

    /// The answers to so many requests, whose numbers follow each other.
    fn answers(&mut self, first: u64, count: usize) -> Result<Vec<Answer>, StreamError> {
        let mut missing = count;
        let mut found: Vec<Option<Answer>> = vec![None; count];
        while missing > 0 {
            match self.incoming.next_frame()? {
                Frame::Reply { number, errno, mark, place, is_map: false, bytes, .. } => {
                    let at = usize::try_from(number.wrapping_sub(first)).unwrap_or(usize::MAX);
                    let slot = found.get_mut(at).ok_or(StreamError::Order)?;
                    missing -= usize::from(slot.is_none());
                    let (errno, bytes) = (i32::from(errno), bytes.to_vec());
                    *slot = Some(Answer { errno, mark, place, bytes, ..Answer::default() });
                }
                // Nobody else tells the owner meanwhile that this side is there and hears, and its answers may take long.
                Frame::Ping => self.wire.send(&Frame::Pong),
                Frame::Confirm { number } => self.wire.send(&Frame::Confirmed { number }),
                other => self.shared.heard(self.wire, &other)?,
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}
