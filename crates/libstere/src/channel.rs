//! A file through its pool's daemon: frames over a socket, data in memory that both have.
//!
//! The memory is cut into slots of the longest request; a slot's number is the tag of its request. Whoever waits for an answer
//! reads the socket if nobody else does, and puts aside what others wait for.
//! Invariant: a slot is in use from its request to its answer, and nobody touches its memory but the one who took it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, MemfdFlags, SealFlags, StatxFlags, statx};
use stere_client_wire::frame::{self, Kind, REPLY_BYTES, REQUEST_BYTES_MAX, Reply, Request, TEXT_BYTES_MAX};
use stere_client_wire::{handles, meet};

use crate::error::Error;
use crate::file::Piece;

const SLOT_BYTES: usize = REQUEST_BYTES_MAX as usize;
const SLOTS: usize = frame::MEMORY_BYTES_MAX as usize / SLOT_BYTES;
const _: () = assert!(SLOTS <= frame::IN_FLIGHT_MAX);

/// The memory, mapped here.
struct Memory {
    start: *mut u8,
}

// SAFETY: it is a mapping that lives until it is dropped; who may touch which slot is decided by the channel.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    const BYTES: usize = SLOTS * SLOT_BYTES;

    fn new() -> Result<(Memory, OwnedFd), Error> {
        let system = |error: rustix::io::Errno| Error::system("make the memory of a session")(error.into());
        let file =
            rustix::fs::memfd_create(c"stere", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
        rustix::fs::ftruncate(&file, Memory::BYTES as u64).map_err(system)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(system)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of that length, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), Memory::BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::system("map the memory of a session")(std::io::Error::last_os_error()));
        }
        Ok((Memory { start: start.cast() }, file))
    }

    fn put(&self, slot: usize, bytes: &[u8]) {
        assert!(slot < SLOTS && bytes.len() <= SLOT_BYTES, "{} bytes for slot {slot}", bytes.len());
        // SAFETY: within the mapping, as was just asserted; the slot is the caller's. The daemon may read it meanwhile and takes
        // nothing on trust.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(slot * SLOT_BYTES), bytes.len()) };
    }

    fn get(&self, slot: usize, bytes: &mut [u8]) {
        assert!(slot < SLOTS && bytes.len() <= SLOT_BYTES, "{} bytes from slot {slot}", bytes.len());
        // SAFETY: as above; the daemon has answered and writes to the slot no more.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(slot * SLOT_BYTES), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), Memory::BYTES) };
    }
}

struct Answers {
    free: Vec<usize>,
    arrived: [Option<Reply>; SLOTS],
    /// The beginning of an answer, or nothing.
    rest: Vec<u8>,
    is_somebody_reading: bool,
    has_ended: bool,
}

pub struct Channel {
    /// Keeps the file open for the kernel too: the mount is in use, and a program that is written to is not started.
    file: File,
    stream: UnixStream,
    memory: Memory,
    requests: Mutex<()>,
    answers: Mutex<Answers>,
    arrived: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As write(2), without the signal that ends programs whose other side has gone.
fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        // SAFETY: reads from a live slice of that length.
        let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(count) => bytes = &bytes[count..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Error::Ended),
        }
    }
    Ok(())
}

/// What the daemon says to the question.
fn understand(line: &str) -> Result<(), Error> {
    let answer: serde_json::Value = serde_json::from_str(line).map_err(|error| Error::Version(error.to_string()))?;
    let text = || answer["message"].as_str().unwrap_or_default().to_owned();
    match answer["answer"].as_str() {
        Some("library") if answer["version"] == frame::VERSION => Ok(()),
        Some("not_opened") => {
            let errno = answer["errno"].as_i64().and_then(|errno| i32::try_from(errno).ok()).unwrap_or(libc::EIO);
            Err(Error::Answer { errno, text: text() })
        }
        Some("refused") => Err(Error::Refused(text())),
        _ => Err(Error::Version(line.trim().to_owned())),
    }
}

impl Channel {
    pub fn open(file: File) -> Result<Channel, Error> {
        // What programs mapped and changed, or the kernel still gathers, goes to the daemon first.
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: takes numbers; what is no file with content is refused by the daemon.
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
        let stream = meet::connect(&file)?;
        let (memory, memory_file) = Memory::new()?;
        match handles::send(&stream, &[file.as_fd(), memory_file.as_fd()]) {
            // Refused already: the answer says why.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            other => other.map_err(Error::system("reach the pool's daemon"))?,
        }
        let question = serde_json::json!({ "question": "library", "version": frame::VERSION });
        // One that is refused before it was heard finds why in the answer.
        let _whether_heard = send_all(&stream, format!("{question}\n").as_bytes());
        let mut line = String::new();
        // Nothing follows the line before the first request.
        let read = BufReader::new(&stream).read_line(&mut line).map_err(Error::system("hear the pool's daemon"))?;
        if read == 0 {
            return Err(Error::Ended);
        }
        understand(&line)?;
        let answers = Answers {
            free: (0..SLOTS).rev().collect(),
            arrived: [None; SLOTS],
            rest: Vec::new(),
            is_somebody_reading: false,
            has_ended: false,
        };
        let (requests, answers, arrived) = (Mutex::new(()), Mutex::new(answers), Condvar::new());
        Ok(Channel { file, stream, memory, requests, answers, arrived })
    }

    /// A slot; none if all are in use and it is not to be waited for.
    fn take_slot(&self, is_to_wait: bool) -> Result<Option<usize>, Error> {
        let mut answers = lock(&self.answers);
        loop {
            if answers.has_ended {
                return Err(Error::Ended);
            }
            if let Some(slot) = answers.free.pop() {
                return Ok(Some(slot));
            }
            if !is_to_wait {
                return Ok(None);
            }
            answers = self.arrived.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_slot(&self, slot: usize) {
        let mut answers = lock(&self.answers);
        assert!(answers.free.len() < SLOTS, "slot {slot} is given back twice");
        answers.free.push(slot);
        drop(answers);
        self.arrived.notify_all();
    }

    fn submit(&self, slot: usize, kind: Kind, (offset, length): (u64, usize), is_alone: bool) -> Result<(), Error> {
        assert!(length <= SLOT_BYTES, "a request of {length} bytes");
        let place = (slot * SLOT_BYTES) as u64;
        let is_alone = is_alone && lock(&self.answers).free.len() == SLOTS - 1;
        let request = Request { kind, tag: slot as u32, offset, place, length: length as u32, is_alone };
        // Offsets that no file has are refused here, and not as another version's frames there.
        Request::decode(&request.encode()).map_err(|_| Error::Usage("no file has bytes at this offset"))?;
        let turn = lock(&self.requests);
        let sent = send_all(&self.stream, &request.encode());
        drop(turn);
        sent
    }

    /// Waits for the answer to a slot's request. After an error the session has ended, and no slot is used again.
    fn wait(&self, slot: usize) -> Result<Reply, Error> {
        let mut answers = lock(&self.answers);
        loop {
            if let Some(reply) = answers.arrived[slot].take() {
                return Ok(reply);
            }
            if answers.has_ended {
                return Err(Error::Ended);
            }
            if answers.is_somebody_reading {
                answers = self.arrived.wait(answers).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            answers.is_somebody_reading = true;
            drop(answers);
            let mut buffer = [0; REPLY_BYTES * SLOTS];
            let count = self.receive(&mut buffer);
            answers = lock(&self.answers);
            assert!(answers.is_somebody_reading, "two read the socket at a time");
            answers.is_somebody_reading = false;
            answers.take_in(&buffer[..count]);
            self.arrived.notify_all();
        }
    }

    /// Bytes of answers; none when the session has ended.
    fn receive(&self, buffer: &mut [u8]) -> usize {
        loop {
            match std::io::Read::read(&mut &self.stream, buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => return outcome.unwrap_or(0),
            }
        }
    }

    /// What an answer means; the slot still holds what came with it.
    fn judge(&self, slot: usize, reply: Reply) -> Result<u64, Error> {
        if reply.errno == 0 {
            return Ok(reply.value);
        }
        let mut text = vec![0; (reply.text_bytes as usize).min(TEXT_BYTES_MAX)];
        self.memory.get(slot, &mut text);
        let errno = i32::try_from(reply.errno).unwrap_or(libc::EIO);
        let text = match text.is_empty() {
            true => std::io::Error::from_raw_os_error(errno).to_string(),
            false => String::from_utf8_lossy(&text).into_owned(),
        };
        Err(Error::Answer { errno, text })
    }

    /// Runs requests for so many parts, as many at a time as there are slots. `begin` prepares a part in a slot and gives its
    /// offset and length, `end` takes its result; it tells whether to go on. Errors end it when all that was begun is over.
    fn run(
        &self,
        kind: Kind,
        count: usize,
        mut begin: impl FnMut(usize, usize) -> (u64, usize),
        mut end: impl FnMut(usize, usize, u64) -> bool,
    ) -> Result<(), Error> {
        let mut under_way: VecDeque<(usize, usize)> = VecDeque::with_capacity(SLOTS);
        let (mut next, mut failed, mut is_enough) = (0, None, false);
        loop {
            let mut is_full = under_way.len() >= SLOTS;
            while next < count && !is_full && !is_enough && failed.is_none() {
                match self.take_slot(under_way.is_empty()) {
                    Ok(Some(slot)) => {
                        let range = begin(next, slot);
                        match self.submit(slot, kind, range, next + 1 == count) {
                            Ok(()) => under_way.push_back((next, slot)),
                            Err(error) => {
                                self.give_slot(slot);
                                failed = Some(error);
                            }
                        }
                        next += 1;
                    }
                    Ok(None) => is_full = true,
                    Err(error) => failed = Some(error),
                }
            }
            let Some((index, slot)) = under_way.pop_front() else { break };
            match self.wait(slot).and_then(|reply| self.judge(slot, reply)) {
                Ok(value) => is_enough |= failed.is_none() && !is_enough && !end(index, slot, value),
                Err(error) => failed = failed.or(Some(error)),
            }
            self.give_slot(slot);
        }
        failed.map_or(Ok(()), Err)
    }

    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        let length = bytes.len();
        let of = |index: usize| index * SLOT_BYTES..length.min((index + 1) * SLOT_BYTES);
        let at = |index: usize, _| (offset.saturating_add((index * SLOT_BYTES) as u64), of(index).len());
        let mut done = 0;
        let outcome = self.run(Kind::Read, length.div_ceil(SLOT_BYTES), at, |index, slot, count| {
            let part = &mut bytes[of(index)];
            let count = (count as usize).min(part.len());
            self.memory.get(slot, &mut part[..count]);
            done += count;
            count == part.len()
        });
        assert!(done <= length, "{done} bytes were read where {length} were asked for");
        outcome.or_else(|error| if done > 0 { Ok(()) } else { Err(error) }).map(|()| done)
    }

    pub fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Error> {
        // Pieces that are longer than a slot overlap in themselves.
        if pieces.iter().any(|piece| piece.bytes.len() > SLOT_BYTES) {
            for piece in pieces {
                piece.read = self.read(piece.bytes, piece.offset)?;
            }
            return Ok(());
        }
        let places: Vec<(u64, usize)> = pieces.iter().map(|piece| (piece.offset, piece.bytes.len())).collect();
        self.run(
            Kind::Read,
            places.len(),
            |index, _| places[index],
            |index, slot, count| {
                let piece = &mut pieces[index];
                piece.read = (count as usize).min(piece.bytes.len());
                self.memory.get(slot, &mut piece.bytes[..piece.read]);
                true
            },
        )
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        let part = |index: usize| &bytes[index * SLOT_BYTES..bytes.len().min((index + 1) * SLOT_BYTES)];
        let begin = |index: usize, slot: usize| {
            self.memory.put(slot, part(index));
            (offset.saturating_add((index * SLOT_BYTES) as u64), part(index).len())
        };
        let mut done = 0;
        let outcome = self.run(Kind::Write, bytes.len().div_ceil(SLOT_BYTES), begin, |index, _, count| {
            done += (count as usize).min(part(index).len());
            count as usize == part(index).len()
        });
        assert!(done <= bytes.len(), "{done} bytes were written where {} were given", bytes.len());
        if done == 0 {
            return outcome.map(|()| 0);
        }
        self.show_size(offset.saturating_add(done as u64))?;
        Ok(done)
    }

    /// Makes the kernel see how long the file is now: who appends through the mount begins there.
    fn show_size(&self, end: u64) -> Result<(), Error> {
        let size = |flags: AtFlags| {
            let facts = statx(&self.file, "", AtFlags::EMPTY_PATH | flags, StatxFlags::SIZE);
            facts.map(|facts| facts.stx_size).map_err(|error| Error::system("look at the file")(error.into()))
        };
        if end > size(AtFlags::STATX_DONT_SYNC)? {
            size(AtFlags::STATX_FORCE_SYNC)?;
        }
        Ok(())
    }

    /// One request without data.
    fn ask(&self, kind: Kind) -> Result<u64, Error> {
        let mut answer = 0;
        self.run(
            kind,
            1,
            |_, _| (0, 0),
            |_, _, value| {
                answer = value;
                true
            },
        )?;
        Ok(answer)
    }

    pub fn sync(&self) -> Result<(), Error> {
        self.ask(Kind::Sync).map(drop)
    }

    pub fn size(&self) -> Result<u64, Error> {
        self.ask(Kind::Size)
    }
}

impl Answers {
    fn take_in(&mut self, bytes: &[u8]) {
        assert!(self.rest.len() < REPLY_BYTES, "a whole answer was not taken in");
        self.has_ended |= bytes.is_empty();
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / REPLY_BYTES * REPLY_BYTES;
        for frame in self.rest[..whole].chunks_exact(REPLY_BYTES) {
            let reply = <&[u8; REPLY_BYTES]>::try_from(frame).ok().and_then(|bytes| Reply::decode(bytes).ok());
            match reply {
                Some(reply) if (reply.tag as usize) < SLOTS => self.arrived[reply.tag as usize] = Some(reply),
                // What is no answer comes from no daemon of ours.
                _ => self.has_ended = true,
            }
        }
        self.rest.drain(..whole);
    }
}
