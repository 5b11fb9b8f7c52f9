//! Going to a place by LOCATE, on drives that can, and that tell truly where they stand (SSC: LOCATE(10), LOCATE(16), READ POSITION).
//!
//! Nothing is assumed of a drive: after each LOCATE it is asked where it stands, and an answer that is not the place asked for ends this way
//! on that drive, as does a command that it does not know. SPACE takes over then, which every drive has. Where a file begins is learned
//! from what the drive says when it stands there, and forgotten with the medium.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Drive, LONG, SHORT};
use crate::error::RobotError;
use crate::sense::SenseKey;
use crate::transport::{Data, execute};

/// What is known of a drive's way to locate.
pub(super) struct Locating {
    /// It cannot, or what it said was not so.
    is_over: bool,
    /// It takes and tells the numbers of files, as far as is known.
    knows_files: bool,
    /// The logical block that each file of this medium begins with.
    beginnings: BTreeMap<u32, u64>,
    /// Where the tape is thought to stand goes back to a LOCATE.
    pub(super) is_from_it: bool,
}

impl Default for Locating {
    fn default() -> Locating {
        Locating { is_over: false, knows_files: true, beginnings: BTreeMap::new(), is_from_it: false }
    }
}

/// Where a drive says it stands: the logical block (filemarks count), and the file if it tells that too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub block: u64,
    pub file: Option<u64>,
}

/// Bits of the first byte: that the drive does not know where it stands.
const LONG_UNKNOWN: u8 = 0x0c;
const SHORT_UNKNOWN: u8 = 0x06;

/// The short form of an answer to READ POSITION; none if it says that the place is not known, or is not in the first partition.
pub fn decode_short_position(reply: &[u8]) -> Option<Told> {
    let reply: &[u8; 20] = reply.first_chunk()?;
    let block = u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]);
    (reply[0] & SHORT_UNKNOWN == 0 && reply[1] == 0).then_some(Told { block: u64::from(block), file: None })
}

/// The long form.
pub fn decode_long_position(reply: &[u8]) -> Option<Told> {
    let reply: &[u8; 32] = reply.first_chunk()?;
    let number = |at: usize| reply[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let is_known = reply[0] & LONG_UNKNOWN == 0 && reply[4..8] == [0; 4];
    is_known.then(|| Told { block: number(8), file: Some(number(16)) })
}

/// LOCATE to a logical block.
fn to_block(block: u64) -> Vec<u8> {
    match u32::try_from(block) {
        Ok(block) => {
            let [a, b, c, d] = block.to_be_bytes();
            vec![0x2b, 0, 0, a, b, c, d, 0, 0, 0]
        }
        Err(_) => [&[0x92, 0, 0, 0][..], &block.to_be_bytes(), &[0; 4]].concat(),
    }
}

/// LOCATE to the beginning of a file.
fn to_file(file: u32) -> Vec<u8> {
    [&[0x92, 0x08, 0, 0][..], &u64::from(file).to_be_bytes(), &[0; 4]].concat()
}

impl Drive {
    /// Another medium is in the drive, or may be.
    pub(super) fn forget_beginnings(&mut self) {
        self.locating.beginnings.clear();
    }

    /// The tape was brought to its beginning: what counts from there is right.
    pub(super) fn is_at_beginning_for_sure(&mut self) {
        self.locating.is_from_it = false;
    }

    /// A command that some drives do not know; none if this one does not.
    fn try_command(
        &mut self,
        what: &'static str,
        command: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Option<usize>, RobotError> {
        match execute(&mut *self.transport, what, command, data, timeout, false) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.key() == Some(SenseKey::IllegalRequest) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the drive where it stands; none if it does not tell.
    fn tell(&mut self) -> Result<Option<Told>, RobotError> {
        const WHAT: &str = "READ POSITION";
        let command = |form: u8| [0x34, form, 0, 0, 0, 0, 0, 0, 0, 0];
        if self.locating.knows_files {
            let mut reply = [0; 32];
            if let Some(length) = self.try_command(WHAT, &command(6), Data::In(&mut reply), SHORT)? {
                return Ok(decode_long_position(&reply[..length.min(32)]));
            }
            self.locating.knows_files = false;
        }
        let mut reply = [0; 20];
        let length = self.try_command(WHAT, &command(0), Data::In(&mut reply), SHORT)?;
        Ok(length.and_then(|length| decode_short_position(&reply[..length.min(20)])))
    }

    /// Whether places are found by LOCATE, until it shows that it is not so.
    pub fn is_locating(&self) -> bool {
        !self.locating.is_over
    }

    fn end_locating(&mut self, why: &str) {
        tracing::info!(drive = self.describe(), "places are found by filemarks from now on: {why}");
        self.locating.is_over = true;
    }

    /// Has the drive tell where this file begins, if that is not known.
    pub fn learn(&mut self) -> Result<(), RobotError> {
        let Some((file, block)) = self.at else { return Ok(()) };
        if self.locating.is_over || file == 0 || self.locating.beginnings.contains_key(&file) {
            return Ok(());
        }
        let told = self.tell()?;
        // There is a filemark, at least, for each file before this one.
        let is_likely =
            |told: &Told| told.file.is_none_or(|told| told == u64::from(file)) && told.block >= u64::from(file) + block;
        match told.filter(is_likely) {
            Some(told) => drop(self.locating.beginnings.insert(file, told.block - block)),
            None => self.end_locating("it does not tell where it stands"),
        }
        Ok(())
    }

    /// Goes to a block of a file, or at least to the file, in one movement; false if that cannot be done: then it is not known where the
    /// tape stands.
    pub(super) fn locate(&mut self, file: u32, block: u64) -> Result<bool, RobotError> {
        if self.locating.is_over || file == 0 {
            return Ok(false);
        }
        let beginning = self.locating.beginnings.get(&file).copied();
        let command = match beginning {
            Some(beginning) => to_block(beginning + block),
            None if self.locating.knows_files => to_file(file),
            None => return Ok(false),
        };
        self.leave();
        match self.try_command("LOCATE", &command, Data::None, LONG) {
            Ok(Some(_)) => {}
            Ok(None) if beginning.is_none() => {
                self.locating.knows_files = false;
                return Ok(false);
            }
            Ok(None) => {
                self.end_locating("it does not know LOCATE");
                return Ok(false);
            }
            // It ends before that.
            Err(error) if matches!(error.key(), Some(SenseKey::None | SenseKey::Blank)) => return Ok(false),
            Err(error) => return Err(error),
        }
        let told = self.tell()?;
        let is_right = |told: &Told| {
            let is_block = beginning.is_none_or(|beginning| told.block == beginning + block);
            let is_file = told.file.map_or(beginning.is_some(), |told| told == u64::from(file));
            is_block && is_file && told.block >= u64::from(file)
        };
        let Some(told) = told.filter(is_right) else {
            self.end_locating("after LOCATE it stands elsewhere, or does not tell");
            return Ok(false);
        };
        let at = if beginning.is_some() { block } else { 0 };
        self.locating.beginnings.entry(file).or_insert(told.block);
        (self.at, self.locating.is_from_it) = (Some((file, at)), true);
        Ok(true)
    }

    /// What stands here is not what was thought. True if LOCATE led here: it is not used any more, and another way may be the right one.
    pub fn was_led_astray(&mut self) -> bool {
        let was = std::mem::take(&mut self.locating.is_from_it);
        if was {
            self.end_locating("it led to another place than it said");
            self.leave();
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_decoded() {
        let mut short = [0; 20];
        short[4..8].copy_from_slice(&70_000u32.to_be_bytes());
        assert_eq!(decode_short_position(&short), Some(Told { block: 70_000, file: None }));
        assert_eq!(decode_short_position(&short[..19]), None);
        let mut long = [0; 32];
        long[8..16].copy_from_slice(&(1u64 << 33).to_be_bytes());
        long[16..24].copy_from_slice(&9u64.to_be_bytes());
        assert_eq!(decode_long_position(&long), Some(Told { block: 1 << 33, file: Some(9) }));
        for (at, byte) in [(0, 0x04), (0, 0x02), (1, 1)] {
            let mut reply = short;
            reply[at] = byte;
            assert_eq!(decode_short_position(&reply), None, "byte {at} is {byte}");
        }
        for (at, byte) in [(0, 0x04), (0, 0x08), (7, 1)] {
            let mut reply = long;
            reply[at] = byte;
            assert_eq!(decode_long_position(&reply), None, "byte {at} is {byte}");
        }
    }

    #[test]
    fn commands_have_the_lengths_of_their_kinds() {
        assert_eq!(to_block(0x0102_0304), [0x2b, 0, 0, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(to_block(1 << 32), [0x92, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(to_file(258), [0x92, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
    }
}
