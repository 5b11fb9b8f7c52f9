//! Reading a shared log: the last root, the records of the journal that it needs, and who may still write where.
//!
//! Invariants: entries of another pool, gaps and entries that do not decode are refused, never passed over; a record counts where its epoch
//! is the one that the last root assigns to its sequence. Read next: `tail.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_format::{HeldSlots, JournalHeader, LogEntry, LogRecord, PoolId, SlotExtent, Superblock, extents_of};
use stere_shared_log::{Error, SharedLog};
use stere_stripe::slots_of;

use crate::JournalError;

/// Bytes that are asked for at once.
const READ_BYTES: usize = 8 << 20;
/// How often a reader begins anew because what it read was trimmed meanwhile.
const ROUNDS_MAX: u32 = 16;

/// What a log holds of a pool.
#[derive(Default)]
pub(crate) struct Contents {
    pub root: Option<Superblock>,
    pub records: Arc<BTreeMap<u64, Vec<u8>>>,
    /// Number in the log and sequence of every record of the journal.
    pub places: Vec<(u64, u64)>,
    /// Slots that owners before may still write to, as long as the last root says.
    pub held: Vec<HeldSlots>,
    /// Slots that whoever had the pool last was granted.
    pub granted: Vec<SlotExtent>,
    pub next: u64,
}

/// Everything from the first record on, decoded.
struct Entries {
    entries: Vec<(u64, LogEntry)>,
    next: u64,
}

fn failed(error: Error) -> JournalError {
    match error {
        Error::Away { .. } | Error::Address { .. } | Error::Refused { .. } => {
            JournalError::LogAway { why: error.to_string() }
        }
        other => JournalError::LogDamaged { detail: other.to_string() },
    }
}

fn read_entries(log: &dyn SharedLog, pool: PoolId) -> Result<Option<Entries>, JournalError> {
    let bounds = log.bounds().map_err(failed)?;
    assert!(bounds.first <= bounds.next, "a log begins at {} and ends at {}", bounds.first, bounds.next);
    let (mut entries, mut next) = (Vec::new(), bounds.first);
    loop {
        let records = match log.read(next, READ_BYTES) {
            Err(Error::Trimmed { .. }) => return Ok(None),
            other => other.map_err(failed)?,
        };
        if records.is_empty() {
            break;
        }
        for record in records {
            let number = record.sequence;
            let damaged = |detail: String| JournalError::LogDamaged { detail };
            if number != next {
                return Err(damaged(format!("record {next} is not there, and {number} is")));
            }
            let entry =
                LogEntry::decode(&record.bytes).map_err(|error| damaged(format!("record {number}: {error}")))?;
            if entry.pool != pool {
                return Err(damaged(format!("record {number} is of pool {}", entry.pool)));
            }
            entries.push((number, entry));
            next += 1;
        }
    }
    if next < bounds.next {
        return Err(JournalError::LogDamaged {
            detail: format!("it ends before record {next} and had {}", bounds.next),
        });
    }
    Ok(Some(Entries { entries, next }))
}

pub(crate) fn read_contents(log: &dyn SharedLog, pool: PoolId) -> Result<Contents, JournalError> {
    for _ in 0..ROUNDS_MAX {
        if let Some(entries) = read_entries(log, pool)? {
            return judge(entries);
        }
    }
    Err(JournalError::LogAway { why: "the shared log was trimmed again and again while it was read; try again".into() })
}

fn judge(Entries { entries, next }: Entries) -> Result<Contents, JournalError> {
    let mut contents = Contents { next, ..Contents::default() };
    let mut last_granted: BTreeSet<(u16, u32)> = BTreeSet::new();
    let mut journal: Vec<(JournalHeader, Vec<u8>)> = Vec::new();
    for (number, entry) in entries {
        match entry.record {
            LogRecord::Root { superblock, granted, held } => {
                last_granted = slots_of(&granted).collect();
                contents.held = held;
                contents.root = Some(*superblock);
            }
            LogRecord::Grants(extents) => last_granted.extend(slots_of(&extents)),
            LogRecord::Journal(bytes) => {
                let header = JournalHeader::decode(&bytes);
                let header =
                    header.map_err(|error| JournalError::LogDamaged { detail: format!("record {number}: {error}") })?;
                contents.places.push((number, header.at.sequence));
                journal.push((header, bytes));
            }
        }
    }
    assert!(contents.places.is_sorted(), "records are read in the order of their numbers");
    contents.granted = extents_of(last_granted);
    let Some(root) = &contents.root else {
        let is_empty = journal.is_empty();
        let detail = "it has records of the journal and no root".to_owned();
        return if is_empty { Ok(contents) } else { Err(JournalError::LogDamaged { detail }) };
    };
    let start = root.journal_start.sequence;
    let epoch_of = |sequence: u64| root.epochs.iter().rev().find(|epoch| epoch.first_sequence <= sequence);
    let is_needed = |header: &JournalHeader| {
        let epoch = epoch_of(header.at.sequence).map(|epoch| epoch.epoch);
        header.at.sequence >= start && epoch == Some(header.epoch)
    };
    let needed = journal.into_iter().filter(|(header, _)| is_needed(header));
    contents.records = Arc::new(needed.map(|(header, bytes)| (header.at.sequence, bytes)).collect());
    Ok(contents)
}
