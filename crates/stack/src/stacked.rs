//! The content of a file that is stored in another form: records, each encoded on its own, in a file of the source.
//!
//! Changed records gather in memory; a save appends them and a new index behind everything that is there, and then writes the header
//! that is older. So a torn save leaves the state before it. What nothing names any more is given back (holes are punched) when the
//! header that no longer names it is durable. Invariants: what a plugin refuses stays in memory, and the file as it was; bytes that do
//! not match their checksum are an error, never content.
//! Read next: `layout.rs`, `coder.rs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use stere_format::BlobEncoding;

use crate::coder::{Coded, Coder, random};
use crate::error::Error;
use crate::layout::{DATA_START, Entry, Header, RECORD_BYTES};
use crate::way::Way;

/// Changed bytes that a file keeps in memory at most.
const DIRTY_RECORDS_MAX: usize = 256;
/// Garbage that a file may hold, beside as much as it has content, until it is given back.
const GARBAGE_BYTES_MIN: u64 = 1 << 20;

/// How a file of the source is stored, as far as its first bytes tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is what it is.
    Plain,
    /// It is stored in another form, and has so many bytes of content.
    Stacked { size: u64, way: Way },
}

/// Looks at the beginning of a file.
pub fn find(file: &File) -> Result<Found, Error> {
    let mut start = [0; DATA_START as usize];
    let length = read_at_most(file, &mut start, 0)?;
    Ok(match Header::find(&start[..length]).into_iter().next() {
        None => Found::Plain,
        Some(header) => Found::Stacked { size: header.size, way: header.way },
    })
}

/// A file that is stored in another form, open.
pub struct Stacked {
    file: File,
    coder: Arc<Coder>,
    way: Way,
    id: u64,
    sequence: u64,
    size: u64,
    /// Where the next bytes are appended.
    end: u64,
    index: Range<u64>,
    entries: Vec<Entry>,
    dirty: BTreeMap<u64, Vec<u8>>,
    /// Something is to be saved besides dirty records.
    is_changed: bool,
    /// The last header is not known to be durable.
    is_unsynced: bool,
    /// The record that was decoded last.
    kept: Option<(u64, Vec<u8>)>,
}

impl Stacked {
    /// Makes an empty file one that is stored this way.
    pub fn create(file: File, coder: Arc<Coder>, way: Way) -> Result<Stacked, Error> {
        coder.stack(&way)?;
        let mut stacked = Stacked {
            file,
            coder,
            way,
            id: u64::from_le_bytes(random()),
            sequence: 0,
            size: 0,
            end: DATA_START,
            index: 0..0,
            entries: Vec::new(),
            dirty: BTreeMap::new(),
            is_changed: true,
            is_unsynced: false,
            kept: None,
        };
        stacked.save(false)?;
        stacked.assert_invariants();
        Ok(stacked)
    }

    /// Opens a file that `find` found to be one: by the newest of its headers whose index is whole.
    pub fn open(file: File, coder: Arc<Coder>) -> Result<Stacked, Error> {
        let mut start = [0; DATA_START as usize];
        let length = read_at_most(&file, &mut start, 0)?;
        let end = file.metadata()?.len().max(DATA_START);
        let mut last = Error::Damaged("it has no header".into());
        for header in Header::find(&start[..length]) {
            match read_index(&file, &header, end) {
                Ok(entries) => {
                    let index = header.index_offset..header.index_offset + header.index_bytes() as u64;
                    let Header { id, sequence, size, way, .. } = header;
                    let stacked = Stacked {
                        file,
                        coder,
                        way,
                        id,
                        sequence,
                        size,
                        end,
                        index,
                        entries,
                        dirty: BTreeMap::new(),
                        is_changed: false,
                        is_unsynced: false,
                        kept: None,
                    };
                    stacked.assert_invariants();
                    return Ok(stacked);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What holds between any two calls.
    fn assert_invariants(&self) {
        let (size, index, end) = (self.size, &self.index, self.end);
        assert!(end >= DATA_START && index.start <= index.end, "the index {index:?} of a file that ends at {end}");
        assert!(index.end <= end, "the index {index:?} reaches behind the end, {end}");
        let records = self.entries.len() as u64;
        assert!(records <= size.div_ceil(RECORD_BYTES), "{records} records of {size} bytes");
        let last = self.dirty.last_key_value().map(|(record, _)| record * RECORD_BYTES);
        assert!(last.is_none_or(|last| last < size), "a changed record begins at {last:?} of {size} bytes");
        let kept = self.kept.as_ref().map(|(record, _)| record);
        assert!(kept.is_none_or(|kept| !self.dirty.contains_key(kept)), "record {kept:?} was changed and is kept too");
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How it is stored.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Changes how it is stored; only of an empty file.
    pub fn set_way(&mut self, way: Way) -> Result<(), Error> {
        assert_eq!(self.size, 0, "the way of a file with content is that of its records");
        self.coder.stack(&way)?;
        self.is_changed |= self.way != way;
        self.way = way;
        Ok(())
    }

    /// Whether there is something to save.
    pub fn is_dirty(&self) -> bool {
        self.is_changed || !self.dirty.is_empty()
    }

    /// The file beneath, for what is not content.
    pub fn beneath(&self) -> &File {
        &self.file
    }

    /// Bytes of a record, as far as the file reaches.
    fn content_bytes(&self, record: u64) -> usize {
        self.size.saturating_sub(record * RECORD_BYTES).min(RECORD_BYTES) as usize
    }

    /// A record as it is stored, decoded; what the file has grown by since is zeros.
    fn load(&self, record: u64) -> Result<Vec<u8>, Error> {
        let entry = self.entries.get(record as usize).copied().unwrap_or_default();
        let mut content = vec![0; (entry.content_bytes as usize).max(self.content_bytes(record))];
        if entry.offset != 0 {
            let mut bytes = vec![0; entry.stored_bytes as usize];
            self.file.read_exact_at(&mut bytes, entry.offset)?;
            if stere_format::crc32c(&bytes) != entry.crc32c {
                return Err(Error::Damaged(format!("record {record} does not match its checksum")));
            }
            let coded = Coded { encoding: BlobEncoding(entry.encoding), bytes };
            let out = &mut content[..entry.content_bytes as usize];
            self.coder.decode(&self.way, self.id, record * RECORD_BYTES, coded, out)?;
        }
        content.truncate(self.content_bytes(record));
        Ok(content)
    }

    /// Reads; fewer bytes than asked for only at the end.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        let length = self.size.saturating_sub(offset).min(out.len() as u64) as usize;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (record, start) = (at / RECORD_BYTES, (at % RECORD_BYTES) as usize);
            let bytes = (RECORD_BYTES as usize - start).min(length - done);
            let into = &mut out[done..done + bytes];
            done += bytes;
            if let Some(content) = self.dirty.get(&record) {
                copy_or_zero(content, start, into);
                continue;
            }
            if self.kept.as_ref().is_none_or(|(kept, _)| *kept != record) {
                self.kept = Some((record, self.load(record)?));
            }
            let (_, content) = self.kept.as_ref().expect("it was put there just now");
            copy_or_zero(content, start, into);
        }
        Ok(length)
    }

    /// Writes; what cannot be saved later is told then.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let end = offset + data.len() as u64;
        // Also where it fails on the way: what was changed until then counts.
        self.kept = None;
        let mut done = 0;
        while done < data.len() {
            if self.dirty.len() >= DIRTY_RECORDS_MAX {
                self.save(false)?;
            }
            let at = offset + done as u64;
            let (record, start) = (at / RECORD_BYTES, (at % RECORD_BYTES) as usize);
            let bytes = (RECORD_BYTES as usize - start).min(data.len() - done);
            if !self.dirty.contains_key(&record) {
                let is_whole = start == 0 && (bytes >= self.content_bytes(record));
                let content = if is_whole { Vec::new() } else { self.load(record)? };
                self.dirty.insert(record, content);
            }
            let content = self.dirty.get_mut(&record).expect("it was put there just now");
            if content.len() < start + bytes {
                content.resize(start + bytes, 0);
            }
            content[start..start + bytes].copy_from_slice(&data[done..done + bytes]);
            done += bytes;
            self.size = self.size.max((at + bytes as u64).min(end));
        }
        self.assert_invariants();
        Ok(())
    }

    /// Cuts the content, or lets zeros follow it.
    pub fn set_size(&mut self, size: u64) -> Result<(), Error> {
        if size < self.size {
            let (last, rest) = (size / RECORD_BYTES, (size % RECORD_BYTES) as usize);
            if rest > 0 {
                // What is cut must not come back when the file grows.
                let mut content = match self.dirty.remove(&last) {
                    Some(content) => content,
                    None => self.load(last)?,
                };
                content.truncate(rest);
                self.dirty.insert(last, content);
            }
            let records = size.div_ceil(RECORD_BYTES);
            self.dirty.split_off(&records);
            self.entries.truncate(records as usize);
        }
        self.is_changed |= size != self.size;
        self.size = size;
        self.kept = None;
        self.assert_invariants();
        Ok(())
    }

    /// Saves what was changed; with `sync` it is durable on return.
    pub fn save(&mut self, sync: bool) -> Result<(), Error> {
        if self.is_dirty() {
            self.append()?;
        }
        let live: u64 = self.entries.iter().map(|entry| u64::from(entry.stored_bytes)).sum();
        let garbage = (self.end - DATA_START).saturating_sub(live);
        let is_wasteful = self.is_unsynced && garbage > live + GARBAGE_BYTES_MIN;
        if (sync || is_wasteful) && self.is_unsynced {
            self.file.sync_data()?;
            self.is_unsynced = false;
            self.give_back();
        } else if sync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), Error> {
        let mut entries = self.entries.clone();
        entries.resize(self.size.div_ceil(RECORD_BYTES) as usize, Entry::default());
        let mut end = self.end;
        for (record, content) in &self.dirty {
            let (begins, length) = (record * RECORD_BYTES, content.len() as u64);
            assert!((1..=RECORD_BYTES).contains(&length), "a changed record has {length} bytes");
            assert!(begins + length <= self.size, "record {record} ends behind {} bytes of content", self.size);
            let coded = self.coder.encode(&self.way, self.id, record * RECORD_BYTES, content)?;
            self.file.write_all_at(&coded.bytes, end)?;
            entries[*record as usize] = Entry {
                offset: end,
                stored_bytes: coded.bytes.len() as u32,
                crc32c: stere_format::crc32c(&coded.bytes),
                content_bytes: content.len() as u32,
                encoding: coded.encoding.0,
            };
            end += coded.bytes.len() as u64;
        }
        let index = Entry::encode_all(&entries);
        self.file.write_all_at(&index, end)?;
        if self.is_unsynced {
            // The header that is written over now is the only one that is known to be durable.
            self.file.sync_data()?;
        }
        let header = Header {
            sequence: self.sequence + 1,
            id: self.id,
            size: self.size,
            index_offset: end,
            records: entries.len() as u32,
            index_crc32c: stere_format::crc32c(&index),
            way: self.way.clone(),
        };
        self.file.write_all_at(&header.encode(), header.place())?;
        self.sequence += 1;
        self.index = end..end + index.len() as u64;
        self.end = end + index.len() as u64;
        self.entries = entries;
        self.dirty.clear();
        (self.is_changed, self.is_unsynced) = (false, true);
        self.assert_invariants();
        Ok(())
    }

    /// Gives back what nothing names. The file system beneath may not be able to; then it stays.
    fn give_back(&mut self) {
        assert!(!self.is_unsynced && !self.is_dirty(), "the header that names less is durable first");
        let records = self.entries.iter().filter(|entry| entry.offset != 0);
        let mut used: Vec<Range<u64>> =
            records.map(|entry| entry.offset..entry.offset + u64::from(entry.stored_bytes)).collect();
        used.push(self.index.clone());
        used.sort_by_key(|range| range.start);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let mut at = DATA_START;
        for range in used {
            if range.start > at && rustix::fs::fallocate(&self.file, flags, at, range.start - at).is_err() {
                return;
            }
            at = at.max(range.end);
        }
    }
}

fn read_index(file: &File, header: &Header, end: u64) -> Result<Vec<Entry>, Error> {
    let damaged = |what: &str| Error::Damaged(what.to_owned());
    let length = header.index_bytes();
    if header.index_offset < DATA_START || header.index_offset.saturating_add(length as u64) > end {
        return Err(damaged("its index lies behind its end"));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, header.index_offset)?;
    if stere_format::crc32c(&bytes) != header.index_crc32c {
        return Err(damaged("its index does not match its checksum"));
    }
    Entry::decode_all(&bytes)
}

fn read_at_most(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// What a record has from `start` on; behind its end zeros.
fn copy_or_zero(content: &[u8], start: usize, into: &mut [u8]) {
    let there = content.get(start..).unwrap_or_default();
    let length = there.len().min(into.len());
    into[..length].copy_from_slice(&there[..length]);
    into[length..].fill(0);
}

#[cfg(test)]
mod tests;
