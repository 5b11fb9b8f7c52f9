//! One cartridge in a drive: its label, objects put behind what is there, ranges read back, and finding out what it holds.
//!
//! Invariants: writing begins only where the tape was seen to end, or where remains of an earlier generation begin; what is of another
//! generation than the label is nothing. Read next: `docs/format/cartridge.md`, `library.rs`.

use std::ops::Range;

use stere_format::{CartridgeBlock, CartridgeEntry, CartridgeIndex, CartridgeKind, crc32c};

use crate::drive::{Drive, Read, Spaced, Write};
use crate::error::RobotError;
use crate::sense::SenseKey;

/// What the first file of a cartridge says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// Nothing was ever written.
    Blank,
    Set {
        set: String,
        barcode: String,
        generation: u64,
    },
    /// Something that is not ours.
    Foreign(String),
    /// The medium cannot be read there now: nobody knows whose it is.
    Unreadable(String),
}

/// What is on a cartridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Files, the label among them.
    pub files: u32,
    /// There is something behind the last filemark: a file that was not ended.
    pub is_ragged: bool,
    /// The last file is an index that tells everything.
    pub is_indexed: bool,
    /// Files of which the first block cannot be read: any object may begin there.
    pub unreadable_files: u32,
    /// Whole objects.
    pub entries: Vec<CartridgeEntry>,
    /// The generation counts as one.
    pub ordinal_max: u64,
    pub generation: u64,
}

/// How putting an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is there.
    Whole { is_near_end: bool },
    /// The medium ended first: it is not.
    Ended { is_ragged: bool },
}

/// A cartridge of a set that is in a drive.
pub struct Cartridge<'a> {
    pub drive: &'a mut Drive,
    pub set: &'a str,
    /// Empty where there is no reader of bar codes.
    pub barcode: &'a str,
    pub unit_bytes: u32,
    /// What its label says, as far as is known.
    pub generation: u64,
}

/// Room for any block.
fn buffer() -> Vec<u8> {
    vec![0; CartridgeBlock::SIZE + CartridgeBlock::UNIT_BYTES_MAX as usize]
}

impl Cartridge<'_> {
    fn stale(&self) -> RobotError {
        RobotError::Stale { barcode: self.barcode.to_owned() }
    }

    /// Reads the label, or finds that there is none.
    pub fn label(&mut self) -> Result<Label, RobotError> {
        self.drive.rewind()?;
        let mut block = buffer();
        let length = match self.drive.read(&mut block) {
            Ok(Read::Block(length)) => length,
            Ok(Read::EndOfData) => return Ok(Label::Blank),
            Ok(Read::Filemark) => return Ok(Label::Foreign("it begins with a filemark".into())),
            // A dirty head or another drive may be the reason, so this says nothing about what it holds.
            Err(error) if error.key() == Some(SenseKey::Medium) => return Ok(Label::Unreadable(error.to_string())),
            // A block that is longer than any of ours.
            Err(error) if error.sense().is_some() && !error.is_of_device() && !error.is_attention() => {
                return Ok(Label::Foreign(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        Ok(match CartridgeBlock::decode(&block[..length]) {
            Ok(header) if header.kind == CartridgeKind::Label => {
                Label::Set { set: header.set, barcode: header.barcode, generation: header.generation }
            }
            Ok(_) => Label::Foreign("its label is missing".into()),
            Err(error) => Label::Foreign(error.to_string()),
        })
    }

    /// Labels a cartridge that is blank, or of which nothing is needed any more: from then on what was on it counts for nothing.
    pub fn write_label(&mut self) -> Result<(), RobotError> {
        assert!(!self.set.is_empty(), "a set has a name");
        self.drive.begin_anew()?;
        let text = format!(
            "This cartridge belongs to stere, set {}, bar code {}.\nstere rescue reads it; docs/format/cartridge.md tells how it is written.\n",
            self.set, self.barcode
        );
        match self.write_file(CartridgeKind::Label, "", 0, text.as_bytes())? {
            Written::Whole { .. } => {
                assert!(self.drive.is_at_end_of(1), "the label is the first file");
                Ok(())
            }
            Written::Ended { .. } => Err(RobotError::NoRoom { set: self.set.to_owned() }),
        }
    }

    /// Writes one file from here on.
    fn write_file(
        &mut self,
        kind: CartridgeKind,
        name: &str,
        ordinal: u64,
        bytes: &[u8],
    ) -> Result<Written, RobotError> {
        let unit = self.unit_bytes as usize;
        let mut is_near_end = false;
        let count = CartridgeBlock::blocks_of(bytes.len() as u64, self.unit_bytes);
        for at in 0..count {
            let offset = at as usize * unit;
            let payload = &bytes[offset..bytes.len().min(offset + unit)];
            let header = CartridgeBlock {
                kind,
                payload_bytes: payload.len() as u32,
                unit_bytes: self.unit_bytes,
                payload_crc32c: crc32c(payload),
                ordinal,
                object_bytes: bytes.len() as u64,
                offset: offset as u64,
                generation: self.generation,
                set: self.set.to_owned(),
                barcode: self.barcode.to_owned(),
                name: name.to_owned(),
            };
            let mut block = header.encode();
            assert!(payload.len() <= unit && block.len() == CartridgeBlock::SIZE, "a block holds a unit at most");
            block.extend_from_slice(payload);
            match self.drive.write(&block)? {
                Write::Well => {}
                // There is room for an end, not for much more.
                Write::NearEnd if at + 1 < count => return self.end_early(),
                Write::NearEnd => is_near_end = true,
                Write::Full => return self.end_early(),
            }
        }
        match self.drive.write_filemark()? {
            Write::Well => Ok(Written::Whole { is_near_end }),
            Write::NearEnd => Ok(Written::Whole { is_near_end: true }),
            Write::Full => Ok(Written::Ended { is_ragged: true }),
        }
    }

    /// Ends a file that is not whole, if that can be done.
    fn end_early(&mut self) -> Result<Written, RobotError> {
        let is_ended = matches!(self.drive.write_filemark(), Ok(Write::Well | Write::NearEnd));
        Ok(Written::Ended { is_ragged: !is_ended })
    }

    /// Goes behind the last of so many files, and sees that the tape ends there; `Stale` if it does not.
    pub fn go_to_end(&mut self, files: u32) -> Result<(), RobotError> {
        if self.drive.go_to_file(files)? == Spaced::Stopped {
            return Err(self.stale());
        }
        let mut block = buffer();
        match self.drive.read(&mut block) {
            Ok(Read::EndOfData) => self.drive.go_to_end(Some((files, 0))),
            Ok(Read::Block(length)) if files > 0 && self.is_of_before(&block[..length]) => {
                match self.drive.go_to_file(files)? {
                    Spaced::Done => self.drive.is_to_end_here(files),
                    Spaced::Stopped => return Err(self.stale()),
                }
                Ok(())
            }
            Ok(_) => Err(self.stale()),
            Err(error) => Err(error),
        }
    }

    /// A block from before this cartridge was written again from its beginning. Such ones may be behind its end where the power went.
    fn is_of_before(&self, block: &[u8]) -> bool {
        CartridgeBlock::decode(block).is_ok_and(|header| header.set == self.set && header.generation < self.generation)
    }

    /// Puts an object behind everything; it will be the file of number `files`.
    pub fn append(&mut self, files: u32, name: &str, ordinal: u64, bytes: &[u8]) -> Result<Written, RobotError> {
        if !self.drive.is_at_end_of(files) {
            self.go_to_end(files)?;
        }
        // What is put is read back, and read one day.
        self.drive.learn()?;
        assert!(self.drive.is_at_end_of(files), "writing begins only where the tape was seen to end");
        let written = self.write_file(CartridgeKind::Object, name, ordinal, bytes)?;
        let is_whole = matches!(written, Written::Whole { .. });
        assert!(!is_whole || self.drive.is_at_end_of(files + 1), "behind a whole object the tape ends");
        Ok(written)
    }

    /// Ends a file that was left without an end, so that something can be put behind it. What it lacked may have been the filemark alone: a
    /// block that is not its own keeps it from counting now. False if there is no room for that: then it is left without an end.
    pub fn end_ragged(&mut self, files: u32) -> Result<bool, RobotError> {
        self.drive.go_to_end(Some((files, 1)))?;
        let text = b"unfinished\n";
        let header = CartridgeBlock {
            kind: CartridgeKind::Label,
            payload_bytes: text.len() as u32,
            unit_bytes: self.unit_bytes,
            payload_crc32c: crc32c(text),
            ordinal: 0,
            object_bytes: text.len() as u64,
            offset: 0,
            generation: self.generation,
            set: self.set.to_owned(),
            barcode: self.barcode.to_owned(),
            name: String::new(),
        };
        if self.drive.write(&[&header.encode()[..], text].concat())? == Write::Full {
            return Ok(false);
        }
        let is_ended = self.drive.write_filemark()? != Write::Full;
        assert!(!is_ended || self.drive.is_at_end_of(files + 1), "the file that was ragged is the last");
        Ok(is_ended)
    }

    /// Writes what is known of the cartridge behind everything.
    pub fn write_index(
        &mut self,
        files: u32,
        ordinal: u64,
        entries: Vec<CartridgeEntry>,
    ) -> Result<Written, RobotError> {
        if !self.drive.is_at_end_of(files) {
            self.go_to_end(files)?;
        }
        assert!(self.drive.is_at_end_of(files), "writing begins only where the tape was seen to end");
        assert!(entries.iter().all(|entry| entry.file < files), "an index tells of files before it");
        let index = CartridgeIndex { files, entries };
        let written = self.write_file(CartridgeKind::Index, "", ordinal, &index.encode())?;
        let is_whole = matches!(written, Written::Whole { .. });
        assert!(!is_whole || self.drive.is_at_end_of(files + 1), "behind a whole index the tape ends");
        Ok(written)
    }

    /// Reads a part of an object, and gives out every block's bytes as soon as they are here and proven, until it is told to end.
    pub fn read(
        &mut self,
        entry: &CartridgeEntry,
        offset: u64,
        length: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<(), RobotError>,
    ) -> Result<(), RobotError> {
        let end = offset + length as u64;
        assert!(end <= entry.object_bytes, "whoever reads knows how long the object is");
        let unit = u64::from(entry.unit_bytes);
        let (mut at, mut reached) = (offset / unit, offset);
        if let Some(block) = self.drive.take_behind(entry.file, at) {
            reached += self.take_part(entry, at, &block, reached..end, take)?;
            at += 1;
            if reached == end {
                self.drive.keep_behind(block);
                return Ok(());
            }
        }
        if self.drive.go_to(entry.file, at)? == Spaced::Stopped {
            return Err(self.stale());
        }
        assert_eq!(self.drive.position(), Some((entry.file, at)), "the tape stands before the block that is wanted");
        let mut block = vec![0; CartridgeBlock::SIZE + entry.unit_bytes as usize];
        let mut length = 0;
        while reached < end {
            let payload_bytes = (entry.object_bytes - at * unit).min(unit) as usize;
            length = match self.drive.read(&mut block[..CartridgeBlock::SIZE + payload_bytes]) {
                Ok(Read::Block(length)) => length,
                Ok(_) => return Err(self.stale()),
                Err(error) if error.is_of_device() || error.is_attention() => return Err(error),
                // A longer block than the object has there is another one: the drive does not stand where it was thought to.
                Err(error) if error.sense().is_some_and(|sense| sense.is_wrong_length) => return Err(self.stale()),
                Err(error) => return Err(self.damaged(entry, error.to_string())),
            };
            reached += self.take_part(entry, at, &block[..length], reached..end, take)?;
            at += 1;
        }
        block.truncate(length);
        self.drive.keep_behind(block);
        Ok(())
    }

    /// Proves a block of an object, and gives out what is wanted of it; tells how many bytes that were.
    fn take_part(
        &self,
        entry: &CartridgeEntry,
        at: u64,
        block: &[u8],
        wanted: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), RobotError>,
    ) -> Result<u64, RobotError> {
        let unit = u64::from(entry.unit_bytes);
        let header = CartridgeBlock::decode(block).map_err(|error| self.damaged(entry, error.to_string()))?;
        let is_of_now = header.set == self.set && header.generation == self.generation;
        let is_it = header.name == entry.name && header.ordinal == entry.ordinal && is_of_now;
        let is_cut_alike = header.unit_bytes == entry.unit_bytes && header.object_bytes == entry.object_bytes;
        if !is_it || !is_cut_alike || header.offset != at * unit {
            return Err(self.stale());
        }
        let payload = header.payload_of(block).map_err(|error| self.damaged(entry, error.to_string()))?;
        assert!(wanted.start >= at * unit, "blocks are read in order");
        let start = (wanted.start - at * unit) as usize;
        let part = &payload[start.min(payload.len())..];
        let count = (part.len() as u64).min(wanted.end - wanted.start);
        take(&part[..count as usize])?;
        Ok(count)
    }

    fn damaged(&self, entry: &CartridgeEntry, why: String) -> RobotError {
        RobotError::Damaged { barcode: self.barcode.to_owned(), object: entry.name.clone(), why }
    }

    /// Finds out what is there: from the index at the end, else from the first block of every file.
    pub fn scan(&mut self) -> Result<Found, RobotError> {
        match self.label()? {
            Label::Set { generation, .. } => self.generation = generation,
            _ => return Err(self.stale()),
        }
        match self.last_index()? {
            Some(found) => Ok(found),
            None => self.scan_all(),
        }
    }

    /// What the index at the end tells; none if the last file is none.
    fn last_index(&mut self) -> Result<Option<Found>, RobotError> {
        self.drive.go_to_end(None)?;
        if self.drive.go_to_last_file()? == Spaced::Stopped {
            return Ok(None);
        }
        let Some((header, bytes)) = self.read_file()? else { return Ok(None) };
        let Ok(index) = CartridgeIndex::decode(&bytes) else { return Ok(None) };
        if header.kind != CartridgeKind::Index || header.generation != self.generation {
            return Ok(None);
        }
        // Behind it nothing.
        let mut block = buffer();
        let is_last = self.drive.read(&mut block)? == Read::Filemark && self.drive.read(&mut block)? == Read::EndOfData;
        let files = index.files + 1;
        self.drive.go_to_end(Some((files, 0)))?;
        Ok(is_last.then_some(Found {
            files,
            is_ragged: false,
            is_indexed: true,
            unreadable_files: 0,
            entries: index.entries,
            ordinal_max: header.ordinal.max(self.generation),
            generation: self.generation,
        }))
    }

    /// Reads the file that begins here, if it is whole, up to its filemark.
    fn read_file(&mut self) -> Result<Option<(CartridgeBlock, Vec<u8>)>, RobotError> {
        let mut block = buffer();
        let mut whole = Vec::new();
        let mut first: Option<CartridgeBlock> = None;
        loop {
            let length = match self.drive.read(&mut block) {
                Ok(Read::Block(length)) => length,
                Ok(_) => return Ok(None),
                Err(error) if error.is_of_device() || error.is_attention() => return Err(error),
                Err(_) => return Ok(None),
            };
            let bytes = &block[..length];
            let Ok(header) = CartridgeBlock::decode(bytes) else { return Ok(None) };
            let Ok(payload) = header.payload_of(bytes) else { return Ok(None) };
            let is_of_now = header.set == self.set && header.generation == self.generation;
            let is_next = header.offset == whole.len() as u64 && is_of_now;
            if !is_next || first.as_ref().is_some_and(|first| first.ordinal != header.ordinal) {
                return Ok(None);
            }
            whole.extend_from_slice(payload);
            let is_whole = whole.len() as u64 == header.object_bytes;
            let first = first.get_or_insert(header);
            if is_whole {
                return Ok(Some((first.clone(), whole)));
            }
        }
    }

    /// Looks at every file from the beginning.
    fn scan_all(&mut self) -> Result<Found, RobotError> {
        let generation = self.generation;
        let mut found = Found { files: 1, generation, ordinal_max: generation, ..Found::default() };
        if self.drive.go_to_file(1)? == Spaced::Stopped {
            // The label was not ended.
            return Ok(Found { files: 0, is_ragged: true, ..found });
        }
        let mut block = buffer();
        loop {
            let file = found.files;
            let header = match self.drive.read(&mut block) {
                Ok(Read::EndOfData) => return Ok(found),
                Ok(Read::Filemark) => {
                    found.files += 1;
                    continue;
                }
                // All that follows is from before, too.
                Ok(Read::Block(length)) if self.is_of_before(&block[..length]) => return Ok(found),
                Ok(Read::Block(length)) => CartridgeBlock::decode(&block[..length]).ok(),
                Err(error) if error.is_of_device() || error.is_attention() => return Err(error),
                Err(error) => {
                    found.unreadable_files += u32::from(error.key() == Some(SenseKey::Medium));
                    None
                }
            };
            let is_of_now = |header: &CartridgeBlock| header.set == self.set && header.generation == generation;
            let header = header.filter(|header| is_of_now(header) && header.offset == 0);
            let is_ended = match header {
                Some(header) => self.scan_file(header, file, &mut found)?,
                None => self.skip_to_next(file)?,
            };
            if !is_ended {
                found.is_ragged = true;
                return Ok(found);
            }
            found.files += 1;
        }
    }

    /// Goes to the file behind this one; false if there is no filemark.
    fn skip_to_next(&mut self, file: u32) -> Result<bool, RobotError> {
        let is_there = self.drive.skip_file()? == Spaced::Done;
        if is_there {
            self.drive.note_position(file + 1, 0);
        }
        Ok(is_there)
    }

    /// Whether the next block is the last of an object; what has one block has no next.
    fn is_last_block(&mut self, first: &CartridgeBlock, blocks: u64) -> Result<bool, RobotError> {
        if blocks == 1 {
            return Ok(true);
        }
        let mut block = buffer();
        let length = match self.drive.read(&mut block) {
            Ok(Read::Block(length)) => length,
            Ok(_) => return Ok(false),
            Err(error) if error.is_of_device() || error.is_attention() => return Err(error),
            // It is there; whoever reads it is told.
            Err(_) => return Ok(true),
        };
        let is_its = |last: CartridgeBlock| {
            let is_same = last.ordinal == first.ordinal && last.generation == first.generation;
            is_same && last.offset == (blocks - 1) * u64::from(first.unit_bytes)
        };
        Ok(CartridgeBlock::decode(&block[..length]).is_ok_and(is_its))
    }

    /// Takes note of the file whose first block was read; false if it has no end.
    fn scan_file(&mut self, header: CartridgeBlock, file: u32, found: &mut Found) -> Result<bool, RobotError> {
        found.ordinal_max = found.ordinal_max.max(header.ordinal);
        if header.kind == CartridgeKind::Index {
            self.drive.go_to_file(file)?;
            if let Some((_, bytes)) = self.read_file()?
                && let Ok(index) = CartridgeIndex::decode(&bytes)
                && index.files == file
            {
                // What it leaves out is dead.
                found.entries = index.entries;
            }
            // One that is cut off was read beyond its filemark.
            return Ok(self.drive.go_to_file(file + 1)? == Spaced::Done);
        }
        let blocks = CartridgeBlock::blocks_of(header.object_bytes, header.unit_bytes);
        let more = u32::try_from(blocks.saturating_sub(2)).unwrap_or(u32::MAX);
        if self.drive.skip_blocks(more)? == Spaced::Stopped || !self.is_last_block(&header, blocks)? {
            // Too short, or ended by somebody else; where the tape stands now is not sure.
            return Ok(self.drive.go_to_file(file + 1)? == Spaced::Done);
        }
        let mut block = buffer();
        match self.drive.read(&mut block) {
            Ok(Read::Filemark) => {}
            Ok(Read::EndOfData) => return Ok(false),
            Ok(Read::Block(_)) => return self.skip_to_next(file),
            Err(error) if error.is_of_device() || error.is_attention() => return Err(error),
            Err(_) => return self.skip_to_next(file),
        }
        found.entries.push(CartridgeEntry {
            file,
            unit_bytes: header.unit_bytes,
            ordinal: header.ordinal,
            object_bytes: header.object_bytes,
            name: header.name,
        });
        Ok(true)
    }
}
