//! Commands of a tape drive (SSC), with blocks of variable length. A drive counts for itself where its tape stands, in files and
//! blocks: not all drives tell, and what they tell is checked. Read next: `drive/locate.rs`.

mod locate;

use std::time::{Duration, Instant};

use crate::error::RobotError;
use crate::sense::SenseKey;
use crate::transport::{Data, Transport, execute};
use locate::Locating;

pub use locate::{decode_long_position, decode_short_position};

const SHORT: Duration = Duration::from_secs(60);
const TRANSFER: Duration = Duration::from_secs(300);
/// From one end of a tape to the other, with tries.
const LONG: Duration = Duration::from_secs(1800);
const READY: Duration = Duration::from_secs(300);
const READY_POLL: Duration = Duration::from_millis(200);

/// What was found where a block was to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Block(usize),
    Filemark,
    EndOfData,
}

/// How writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Well,
    /// It is written, and the medium ends soon.
    NearEnd,
    /// It is not written: the medium has ended.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Blocks,
    Filemarks,
    EndOfData,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spaced {
    Done,
    /// Something was in the way: a filemark, or an end.
    Stopped,
}

/// What is in a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    None,
    Ready,
    /// Perhaps another one than before.
    Changed,
}

/// The bounds of blocks' lengths that a drive tells.
pub fn decode_block_limits(reply: &[u8]) -> Option<(u32, u32)> {
    let &[_, a, b, c, d, e] = reply.first_chunk()?;
    let (most, least) = (u32::from_be_bytes([0, a, b, c]), u32::from(u16::from_be_bytes([d, e])));
    Some((least, most))
}

pub struct Drive {
    transport: Box<dyn Transport>,
    /// File and block, where it is known; blocks count from the file's beginning.
    at: Option<(u32, u64)>,
    /// Nothing is behind this place: it was just written, or seen.
    is_at_end: bool,
    /// The block that the tape stands right behind, where somebody wanted it kept.
    behind: Option<(u32, u64, Vec<u8>)>,
    locating: Locating,
}

impl Drive {
    pub fn new(transport: Box<dyn Transport>) -> Drive {
        Drive { transport, at: None, is_at_end: false, behind: None, locating: Locating::default() }
    }

    /// Keeps the block that was just read: what is wanted next may begin in it, and no tape should turn for that.
    pub fn keep_behind(&mut self, bytes: Vec<u8>) {
        if let Some((file, block)) = self.at {
            self.behind = block.checked_sub(1).map(|block| (file, block, bytes));
        }
    }

    /// The block that was kept, if it is this one and nothing was asked of the tape since.
    pub fn take_behind(&mut self, file: u32, block: u64) -> Option<Vec<u8>> {
        let (kept_file, kept_block, bytes) = self.behind.take()?;
        let is_there = (kept_file, kept_block) == (file, block) && self.at == Some((file, block + 1));
        is_there.then_some(bytes)
    }

    /// Whether this is where the tape ends, for sure.
    pub fn is_at_end_of(&self, files: u32) -> bool {
        self.is_at_end && self.at == Some((files, 0))
    }

    /// Where the tape stood; until a command has gone well that is not known any more.
    fn leave(&mut self) -> Option<(u32, u64)> {
        (self.is_at_end, self.behind) = (false, None);
        self.at.take()
    }

    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    pub fn position(&self) -> Option<(u32, u64)> {
        self.at
    }

    fn run(&mut self, what: &'static str, command: &[u8], timeout: Duration) -> Result<usize, RobotError> {
        execute(&mut *self.transport, what, command, Data::None, timeout, false)
    }

    /// Waits until the medium is ready; prepares for blocks of variable length.
    pub fn make_ready(&mut self) -> Result<(), RobotError> {
        self.leave();
        self.forget_beginnings();
        let start = Instant::now();
        loop {
            match execute(&mut *self.transport, "TEST UNIT READY", &[0; 6], Data::None, SHORT, true) {
                Ok(_) => break,
                // Becoming ready; no medium is no use waiting for.
                Err(error) if error.sense().is_some_and(|sense| sense.code.0 == 0x04) && start.elapsed() < READY => {
                    std::thread::sleep(READY_POLL);
                }
                Err(error) => return Err(error),
            }
        }
        // Variable length, buffered; drives that know nothing else refuse the page.
        let page = [0, 0, 0x10, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let command = [0x15, 0x10, 0, 0, page.len() as u8, 0];
        match execute(&mut *self.transport, "MODE SELECT", &command, Data::Out(&page), SHORT, true) {
            Err(error) if error.key() != Some(SenseKey::IllegalRequest) => Err(error),
            _ => self.rewind(),
        }
    }

    /// What is in it, as far as it says without being made ready.
    pub fn medium(&mut self) -> Result<Medium, RobotError> {
        match execute(&mut *self.transport, "TEST UNIT READY", &[0; 6], Data::None, SHORT, false) {
            Ok(_) => Ok(Medium::Ready),
            Err(error) if error.is_attention() => match self.has_medium()? {
                true => Ok(Medium::Changed),
                false => Ok(Medium::None),
            },
            Err(error) if error.sense().is_some_and(|sense| sense.code.0 == 0x3a) => Ok(Medium::None),
            Err(error) if error.key() == Some(SenseKey::NotReady) => Ok(Medium::None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a medium.
    pub fn has_medium(&mut self) -> Result<bool, RobotError> {
        match execute(&mut *self.transport, "TEST UNIT READY", &[0; 6], Data::None, SHORT, true) {
            Ok(_) => Ok(true),
            Err(error) if error.sense().is_some_and(|sense| sense.code.0 == 0x3a) => Ok(false),
            // It is getting ready.
            Err(error) if error.key() == Some(SenseKey::NotReady) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The largest block that the drive takes.
    pub fn block_bytes_max(&mut self) -> Result<u32, RobotError> {
        let mut reply = [0; 6];
        let command = [0x05, 0, 0, 0, 0, 0];
        execute(&mut *self.transport, "READ BLOCK LIMITS", &command, Data::In(&mut reply), SHORT, true)?;
        // No drive has a limit of nothing.
        Ok(decode_block_limits(&reply).map_or(0, |(_, most)| most).max(1 << 16))
    }

    pub fn rewind(&mut self) -> Result<(), RobotError> {
        self.leave();
        // After a reset the tape is at its beginning, or this brings it there.
        execute(&mut *self.transport, "REWIND", &[0x01, 0, 0, 0, 0, 0], Data::None, LONG, true)?;
        self.at = Some((0, 0));
        self.is_at_beginning_for_sure();
        Ok(())
    }

    /// Goes to the beginning to write there: where files began does not matter any more.
    pub fn begin_anew(&mut self) -> Result<(), RobotError> {
        self.forget_beginnings();
        self.rewind()
    }

    /// What stands here, at the beginning of this file, is nothing that counts: who writes may write over it.
    pub fn is_to_end_here(&mut self, files: u32) {
        assert_eq!(self.at, Some((files, 0)), "a tape ends where a file would begin");
        self.is_at_end = true;
    }

    /// Lets go of the medium, so that it can be taken away.
    pub fn unload(&mut self) -> Result<(), RobotError> {
        self.leave();
        execute(&mut *self.transport, "UNLOAD", &[0x1b, 0, 0, 0, 0, 0], Data::None, LONG, true).map(drop)
    }

    /// Reads the next block, which is at most as long as there is room.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Read, RobotError> {
        let was_at = self.at;
        match self.read_once(into) {
            Err(error) => match error.sense() {
                // Some drives do not believe that a shorter block is no mistake: then it is asked for as it is.
                Some(sense) if sense.is_wrong_length && sense.key == SenseKey::None => {
                    let missing = sense.information.and_then(|missing| usize::try_from(missing).ok()).unwrap_or(0);
                    let Some(length) = into.len().checked_sub(missing).filter(|length| *length > 0 && missing > 0)
                    else {
                        return Err(error);
                    };
                    if self.space(Space::Blocks, -1, was_at)? == Spaced::Stopped {
                        return Err(error);
                    }
                    self.read_once(&mut into[..length])
                }
                _ => Err(error),
            },
            outcome => outcome,
        }
    }

    fn read_once(&mut self, into: &mut [u8]) -> Result<Read, RobotError> {
        assert!(!into.is_empty() && into.len() < 1 << 24, "the length of a block fits its command");
        let was_at = self.leave();
        let size = (into.len() as u32).to_be_bytes();
        // Shorter blocks are no mistake.
        let command = [0x08, 0x02, size[1], size[2], size[3], 0];
        match execute(&mut *self.transport, "READ", &command, Data::In(into), TRANSFER, false) {
            Ok(length) => {
                self.at = was_at.map(|(file, block)| (file, block + 1));
                Ok(Read::Block(length.min(into.len())))
            }
            Err(error) => match error.sense() {
                Some(sense) if sense.is_filemark => {
                    self.at = was_at.map(|(file, _)| (file + 1, 0));
                    Ok(Read::Filemark)
                }
                Some(sense)
                    if sense.key == SenseKey::Blank || (sense.key == SenseKey::None && sense.is_end_of_medium) =>
                {
                    self.at = was_at;
                    Ok(Read::EndOfData)
                }
                _ => Err(error),
            },
        }
    }

    /// What an answer to a command that writes means.
    fn wrote(outcome: Result<usize, RobotError>) -> Result<Write, RobotError> {
        match outcome {
            Ok(_) => Ok(Write::Well),
            Err(error) => match error.sense() {
                Some(sense) if sense.key == SenseKey::Overflow => Ok(Write::Full),
                Some(sense) if matches!(sense.key, SenseKey::None | SenseKey::Recovered) => {
                    Ok(if sense.is_end_of_medium { Write::NearEnd } else { Write::Well })
                }
                _ => Err(error),
            },
        }
    }

    pub fn write(&mut self, block: &[u8]) -> Result<Write, RobotError> {
        assert!(!block.is_empty() && block.len() < 1 << 24, "the length of a block fits its command");
        let was_at = self.leave();
        let size = (block.len() as u32).to_be_bytes();
        let command = [0x0a, 0, size[1], size[2], size[3], 0];
        let outcome = execute(&mut *self.transport, "WRITE", &command, Data::Out(block), TRANSFER, false);
        let wrote = Drive::wrote(outcome)?;
        if wrote != Write::Full {
            (self.at, self.is_at_end) = (was_at.map(|(file, block)| (file, block + 1)), true);
        }
        Ok(wrote)
    }

    /// Ends a file; everything before is on the medium then.
    pub fn write_filemark(&mut self) -> Result<Write, RobotError> {
        let was_at = self.leave();
        let wrote = Drive::wrote(self.run("WRITE FILEMARKS", &[0x10, 0, 0, 0, 1, 0], TRANSFER))?;
        if wrote != Write::Full {
            (self.at, self.is_at_end) = (was_at.map(|(file, _)| (file + 1, 0)), true);
        }
        Ok(wrote)
    }

    /// Moves the tape; where it stands then is for the caller to say, in `to`, if it moved as it should.
    fn space(&mut self, what: Space, count: i32, to: Option<(u32, u64)>) -> Result<Spaced, RobotError> {
        self.leave();
        let code = match what {
            Space::Blocks => 0,
            Space::Filemarks => 1,
            Space::EndOfData => 3,
        };
        assert!(count.unsigned_abs() <= Drive::SPACE_MAX, "a distance fits its command");
        let [_, c0, c1, c2] = count.to_be_bytes();
        match self.run("SPACE", &[0x11, code, c0, c1, c2, 0], LONG) {
            Ok(_) => {
                self.at = to;
                Ok(Spaced::Done)
            }
            Err(error) => match error.key() {
                Some(SenseKey::None | SenseKey::Blank) => Ok(Spaced::Stopped),
                _ => Err(error),
            },
        }
    }

    /// Most that one command spaces.
    const SPACE_MAX: u32 = (1 << 23) - 1;

    /// Goes to the beginning of a file by what is on the tape, whatever the drive says: something may be written behind it.
    pub fn go_to_file(&mut self, file: u32) -> Result<Spaced, RobotError> {
        if self.locating.is_from_it {
            self.rewind()?;
        }
        let spaced = self.space_to_file(file)?;
        if spaced == Spaced::Done {
            assert_eq!(self.at, Some((file, 0)), "the tape stands where the file begins");
            self.learn()?;
        }
        Ok(spaced)
    }

    /// The same by filemarks.
    fn space_to_file(&mut self, file: u32) -> Result<Spaced, RobotError> {
        let (mut now, block) = match self.at {
            Some(at) => at,
            None => {
                self.rewind()?;
                (0, 0)
            }
        };
        if (now, block) == (file, 0) {
            return Ok(Spaced::Done);
        }
        if file <= now {
            if file == 0 {
                return self.rewind().map(|()| Spaced::Done);
            }
            // Back over the filemark that ends the file before, and over it again.
            let back = (now - file + 1).min(Drive::SPACE_MAX);
            let went_back = self.space(Space::Filemarks, -(back as i32), None);
            let is_back = matches!(went_back, Ok(Spaced::Done)) && back == now - file + 1;
            if is_back && self.space(Space::Filemarks, 1, Some((file, 0)))? == Spaced::Done {
                return Ok(Spaced::Done);
            }
            // Drives that cannot go back can begin again.
            self.rewind()?;
            now = 0;
        }
        while now < file {
            let step = (file - now).min(Drive::SPACE_MAX);
            now += step;
            if self.space(Space::Filemarks, step as i32, Some((now, 0)))? == Spaced::Stopped {
                return Ok(Spaced::Stopped);
            }
        }
        Ok(Spaced::Done)
    }

    /// Goes to a block of a file, which proves itself: the short way is good enough.
    pub fn go_to(&mut self, file: u32, block: u64) -> Result<Spaced, RobotError> {
        let ahead = match self.at {
            Some((now, at)) if now == file && at <= block => block - at,
            _ => {
                if !self.locate(file, block)? && self.go_to_file(file)? == Spaced::Stopped {
                    return Ok(Spaced::Stopped);
                }
                assert_eq!(self.at.map(|(now, _)| now), Some(file), "the tape stands in the file that is wanted");
                let at = self.at.map_or(0, |(_, at)| at);
                assert!(at <= block, "a file is gone to before the block that is wanted of it");
                block - at
            }
        };
        match ahead {
            0 => Ok(Spaced::Done),
            ahead if ahead <= u64::from(Drive::SPACE_MAX) => {
                self.space(Space::Blocks, ahead as i32, Some((file, block)))
            }
            _ => Ok(Spaced::Stopped),
        }
    }

    /// Goes on over so many blocks of this file.
    pub fn skip_blocks(&mut self, count: u32) -> Result<Spaced, RobotError> {
        let to = self.at.map(|(file, block)| (file, block + u64::from(count)));
        match count {
            0 => Ok(Spaced::Done),
            // What says that it has so many blocks is no file of ours.
            _ if count > Drive::SPACE_MAX => Ok(Spaced::Stopped),
            _ => self.space(Space::Blocks, count as i32, to),
        }
    }

    /// Goes behind the filemark that ends this file.
    pub fn skip_file(&mut self) -> Result<Spaced, RobotError> {
        let to = self.at.map(|(file, _)| (file + 1, 0));
        self.space(Space::Filemarks, 1, to)
    }

    /// Goes behind everything that is written; `at` is where that is, as the caller knows.
    pub fn go_to_end(&mut self, at: Option<(u32, u64)>) -> Result<(), RobotError> {
        self.space(Space::EndOfData, 0, at)?;
        (self.at, self.is_at_end) = (at, true);
        Ok(())
    }

    /// Goes from the end of all data to the beginning of the last file; which one that is is not known then.
    pub fn go_to_last_file(&mut self) -> Result<Spaced, RobotError> {
        match self.space(Space::Filemarks, -2, None)? {
            Spaced::Done => self.space(Space::Filemarks, 1, None),
            Spaced::Stopped => Ok(Spaced::Stopped),
        }
    }

    /// Says where the tape stands, for who found out.
    pub fn note_position(&mut self, file: u32, block: u64) {
        self.at = Some((file, block));
    }
}
