//! What is on a simulated cartridge: blocks and filemarks, in memory or in a file.
//!
//! In a file each record is its length in four bytes, little-endian, and its bytes; a filemark has the length 4294967295 and no bytes. What
//! is torn at the end was never written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILEMARK: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// None for a filemark.
    pub length: Option<u32>,
    /// Where its bytes are kept.
    start: u64,
    /// Where it begins on the medium, compressed.
    pub at: u64,
    pub stored: u64,
}

enum Backing {
    Memory(Vec<u8>),
    File(File),
}

pub struct Medium {
    pub records: Vec<Record>,
    pub spoiled: BTreeSet<usize>,
    /// What was written here before, by record, as far as nothing was written there since.
    remains: BTreeMap<usize, (Option<Vec<u8>>, u64)>,
    backing: Backing,
    end: u64,
}

impl Medium {
    pub fn in_memory() -> Medium {
        Medium::on(Backing::Memory(Vec::new()))
    }

    fn on(backing: Backing) -> Medium {
        Medium { records: Vec::new(), spoiled: BTreeSet::new(), remains: BTreeMap::new(), backing, end: 0 }
    }

    /// What compresses how is not kept: there it counts as it is.
    pub fn in_file(path: &Path) -> io::Result<Medium> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = file.metadata()?.len();
        let mut medium = Medium::on(Backing::File(file));
        let mut stored_end = 0;
        while medium.end + 4 <= length {
            let mut head = [0; 4];
            medium.read_at(medium.end, &mut head)?;
            let (bytes, kept) = match u32::from_le_bytes(head) {
                FILEMARK => (None, 0),
                bytes => (Some(bytes), u64::from(bytes)),
            };
            if medium.end + 4 + kept > length {
                break;
            }
            medium.records.push(Record { length: bytes, start: medium.end + 4, at: stored_end, stored: kept });
            medium.end += 4 + kept;
            stored_end += kept;
        }
        Ok(medium)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.backing {
            Backing::File(file) => file.read_exact_at(into, at),
            Backing::Memory(bytes) => {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok(())
            }
        }
    }

    /// The first bytes of a block.
    pub fn read(&self, record: &Record, into: &mut [u8]) -> io::Result<()> {
        assert!(
            record.length.is_some_and(|length| into.len() <= length as usize),
            "a block is read to its end at most"
        );
        self.read_at(record.start, into)
    }

    /// Where the medium is written to.
    pub fn stored_end(&self) -> u64 {
        self.records.last().map_or(0, |record| record.at + record.stored)
    }

    /// Nothing is left from this record on.
    pub fn truncate(&mut self, records: usize) {
        if let Some(first) = self.records.get(records) {
            self.end = first.start - 4;
            self.records.truncate(records);
        }
    }

    /// Writing goes on at this record. What it and those behind it were remains there unseen, where cartridges are kept in memory.
    pub fn write_over(&mut self, at: usize) {
        if matches!(self.backing, Backing::Memory(_)) {
            for number in at..self.records.len() {
                let record = self.records[number];
                let bytes = record.length.map(|length| {
                    let mut bytes = vec![0; length as usize];
                    self.read(&record, &mut bytes).expect("what is in memory can be read");
                    bytes
                });
                self.remains.insert(number, (bytes, record.stored));
            }
        }
        self.truncate(at);
        self.remains.remove(&at);
    }

    /// What remains behind the end is behind it again; tells how many records that are.
    pub fn show_remains(&mut self) -> usize {
        let before = self.records.len();
        while let Some((bytes, stored)) = self.remains.remove(&self.records.len()) {
            self.append(bytes.as_deref(), stored).expect("what is in memory can be written");
        }
        self.remains.clear();
        self.records.len() - before
    }

    /// Puts a block, or a filemark, behind the last.
    pub fn append(&mut self, bytes: Option<&[u8]>, stored: u64) -> io::Result<()> {
        assert!(bytes.is_none_or(|bytes| bytes.len() < FILEMARK as usize), "the length of a block means no filemark");
        assert!(bytes.is_some() || stored == 0, "a filemark takes {stored} bytes");
        let length = bytes.map_or(FILEMARK, |bytes| bytes.len() as u32);
        let record = [&length.to_le_bytes(), bytes.unwrap_or_default()].concat();
        let at = self.stored_end();
        match &mut self.backing {
            Backing::Memory(all) => {
                all.truncate(self.end as usize);
                assert_eq!(all.len() as u64, self.end, "what is kept reaches to the end of the last record");
                all.extend_from_slice(&record);
            }
            Backing::File(file) => {
                file.set_len(self.end)?;
                file.write_all_at(&record, self.end)?;
                if bytes.is_none() {
                    file.sync_data()?;
                }
            }
        }
        let length = bytes.map(|bytes| bytes.len() as u32);
        self.records.push(Record { length, start: self.end + 4, at, stored });
        self.end += record.len() as u64;
        Ok(())
    }
}
