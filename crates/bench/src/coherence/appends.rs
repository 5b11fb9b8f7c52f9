//! A journal that all machines append to: every record is there exactly once and whole, each writer's in its order, and all that had returned
//! when the journal was opened. When it is long it is read once more and begun anew. Read next: `order.rs`.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use super::{Plant, Random, Shared, at};

const MAGIC: u64 = 0x5245_434F_5244_0A0A;
const HEAD: usize = 32;
/// Larger ones may take several requests, and only one of these is one append.
const RECORD_MAX: u64 = 16 << 10;
const JOURNAL_MAX: u64 = 8 << 20;

/// Which journal is used; held for reading by who uses it.
struct Journal {
    number: u64,
}

pub struct Appends {
    journal: RwLock<Journal>,
    /// Records of each machine in this journal that have returned.
    returned: Vec<AtomicU64>,
}

fn name(journal: u64) -> String {
    format!("journal-{journal}")
}

/// A new journal, which each machine opens for appending before it reads it: a kernel that begins to append takes the file to end with its
/// own record, and may show so much of it to those who have it open for reading by then.
fn begin(shared: &Shared, journal: u64) -> Result<(), String> {
    let path = shared.path(0, &name(journal));
    at("create", &path, File::create_new(&path))?;
    (0..shared.directories.len()).try_for_each(|machine| open(shared, machine, journal).map(drop))
}

fn open(shared: &Shared, machine: usize, journal: u64) -> Result<(PathBuf, File), String> {
    let path = shared.path(machine, &name(journal));
    let open = at("open", &path, OpenOptions::new().append(true).open(&path))?;
    Ok((path, open))
}

fn record(machine: usize, serial: u64, length: usize) -> Vec<u8> {
    assert!(length >= HEAD, "a record is its head at least");
    let mut bytes = Vec::with_capacity(length);
    for word in [MAGIC, machine as u64, serial, length as u64] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend((HEAD..length).map(|place| body(machine as u64, serial, place)));
    bytes
}

fn body(machine: u64, serial: u64, place: usize) -> u8 {
    (machine.wrapping_mul(31) ^ serial.wrapping_mul(17) ^ place as u64) as u8 | 1
}

/// How many records of each machine a journal holds, if it holds nothing else, and each machine's in order. The last one may be missing in
/// part if that is allowed.
fn parse(bytes: &[u8], machines: usize, may_end_in_part: bool) -> Result<Vec<u64>, String> {
    let mut next = vec![0; machines];
    let mut at = 0;
    while at < bytes.len() {
        let wrong = |what: &str| format!("at byte {at} of {}: {what}", bytes.len());
        let Some(head) = bytes.get(at..at + HEAD) else {
            return if may_end_in_part { Ok(next) } else { Err(wrong("a part of a record")) };
        };
        let word =
            |number: usize| head[number * 8..][..8].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let (machine, serial, length) = (word(1), word(2), word(3) as usize);
        if word(0) != MAGIC || machine >= machines as u64 || length < HEAD || length > RECORD_MAX as usize + HEAD {
            return Err(wrong("no record begins here"));
        }
        let Some(record) = bytes.get(at..at + length) else {
            return if may_end_in_part { Ok(next) } else { Err(wrong("the end of a record is missing")) };
        };
        let is_whole = record.iter().enumerate().skip(HEAD).all(|(place, byte)| *byte == body(machine, serial, place));
        if !is_whole {
            return Err(wrong("a record that is torn"));
        }
        let expected = &mut next[machine as usize];
        if serial != *expected {
            return Err(wrong(&format!("record {serial} of machine {machine}, and {expected} is its next one")));
        }
        *expected += 1;
        at += length;
    }
    Ok(next)
}

impl Appends {
    pub fn make(shared: &Shared) -> Result<Appends, String> {
        let returned = shared.directories.iter().map(|_| AtomicU64::new(0)).collect();
        begin(shared, 0)?;
        Ok(Appends { journal: RwLock::new(Journal { number: 0 }), returned })
    }

    pub fn append(&self, shared: &Shared, machine: usize, mut random: Random) {
        shared.repeat(|| {
            let journal = self.journal.read().unwrap_or_else(PoisonError::into_inner);
            let (path, mut open) = open(shared, machine, journal.number)?;
            for _ in 0..1 + random.below(8) {
                let serial = self.returned[machine].load(Ordering::SeqCst);
                let length = HEAD as u64 + random.below(RECORD_MAX) / (1 + random.below(16));
                let record = record(machine, serial, length as usize);
                let times = if shared.is_planted(Plant::Doubled, serial) { 2 } else { 1 };
                for _ in 0..times {
                    // In one piece: only that is one append.
                    let written = at("append to", &path, open.write(&record))?;
                    if written != record.len() {
                        return Err(format!(
                            "machine {machine} appends {} bytes, and {written} are taken",
                            record.len()
                        ));
                    }
                }
                self.returned[machine].store(serial + 1, Ordering::SeqCst);
                shared.count(&shared.counts.writes, 1);
            }
            let length = at("stat", &path, open.metadata())?.len();
            drop((journal, open));
            if length > JOURNAL_MAX {
                return self.begin_anew(shared);
            }
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            Ok(())
        });
    }

    /// The next journal, when all that was appended to this one is proven to be there.
    fn begin_anew(&self, shared: &Shared) -> Result<(), String> {
        let mut journal = self.journal.write().unwrap_or_else(PoisonError::into_inner);
        let path = shared.path(0, &name(journal.number));
        if at("stat", &path, fs::metadata(&path))?.len() <= JOURNAL_MAX {
            return Ok(());
        }
        self.read_everywhere(shared, &journal)?;
        at("remove", &path, fs::remove_file(&path))?;
        journal.number += 1;
        begin(shared, journal.number)?;
        self.returned.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        Ok(())
    }

    /// Everything that was appended, on every machine: for the end, when nobody appends.
    pub fn read_all(&self, shared: &Shared) -> Result<(), String> {
        self.read_everywhere(shared, &self.journal.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_everywhere(&self, shared: &Shared, journal: &Journal) -> Result<(), String> {
        let returned: Vec<u64> = self.returned.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        for machine in 0..shared.directories.len() {
            let found = self.read_one(shared, machine, journal)?;
            if found != returned {
                return Err(format!(
                    "machine {machine} finds {found:?} records in the end, and {returned:?} were appended"
                ));
            }
        }
        Ok(())
    }

    fn read_one(&self, shared: &Shared, machine: usize, journal: &Journal) -> Result<Vec<u64>, String> {
        let returned: Vec<u64> = self.returned.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let path = shared.path(machine, &name(journal.number));
        let bytes = at("read", &path, fs::read(&path))?;
        shared.count(&shared.counts.opens, 1);
        shared.count(&shared.counts.reads, 1);
        let found = parse(&bytes, self.returned.len(), shared.plan.grows_in_parts);
        let found = found.map_err(|what| format!("machine {machine} reads {}: {what}", path.display()))?;
        shared.count(&shared.counts.records, found.iter().sum());
        match found.iter().zip(&returned).all(|(found, returned)| found >= returned) {
            true => Ok(found),
            false => Err(format!("machine {machine} finds {found:?} records, and {returned:?} had been appended")),
        }
    }

    pub fn read(&self, shared: &Shared, machine: usize, mut random: Random) {
        shared.repeat(|| {
            let journal = self.journal.read().unwrap_or_else(PoisonError::into_inner);
            self.read_one(shared, machine, &journal)?;
            drop(journal);
            std::thread::sleep(Duration::from_millis(random.below(100)));
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_holds_whole_records_in_order_and_nothing_else() {
        let (one, two, other) = (record(0, 0, 100), record(0, 1, 5000), record(1, 0, HEAD));
        assert_eq!(parse(&[&one[..], &other, &two].concat(), 2, false), Ok(vec![2, 1]));
        let wrong = [
            [&one[..], &one].concat(),
            [&two[..]].concat(),
            [&one[..], &two[..4999]].concat(),
            [&one[..99], &two].concat(),
            [&one[..], &[0; 64], &two].concat(),
        ];
        assert_eq!(parse(&[&one[..], &two[..4999]].concat(), 2, true), Ok(vec![1, 0]));
        for bytes in wrong {
            assert!(parse(&bytes, 2, false).is_err());
        }
    }
}
