//! Records of who wrote files and of what happened to them: on their way into the pool, and out of it again.
//!
//! Both lists are rings of bounded numbers. Numbers are given in memory, so that a record can be made longer later; they are in the pool
//! only with their records. Invariant: a record that goes takes its entries in the indexes along, in the same transaction.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use stere_format::{AuditValue, Key, ProvenanceValue, WatchedValue};
use stere_namespace::error::Error;
use stere_store::{Io, Store, Transaction};

use crate::audit::Audit;

/// Records of who wrote files that are kept.
pub const PROVENANCE_MAX: u64 = 65_536;
/// Records of what happened that are kept.
pub const AUDIT_MAX: u64 = 65_536;
/// What waits in memory at most.
const PENDING_MAX: usize = 4096;
/// Records of one transaction.
const BATCH: usize = 64;

/// A record that is not in the pool yet.
#[derive(Debug, Clone)]
enum Pending {
    Provenance(u64, ProvenanceValue),
    Audit(u64, AuditValue),
}

/// What waits, and the numbers.
#[derive(Default)]
struct Waiting {
    next: WatchedValue,
    pending: VecDeque<Pending>,
    lost: u64,
}

/// Both lists in memory.
#[derive(Default)]
pub struct List {
    is_in_pool: bool,
    waiting: Mutex<Waiting>,
    /// Held by the one who puts records into the pool, so that they come in their order.
    flushing: Mutex<()>,
}

/// A record of a file being written.
pub type Written = (u64, ProvenanceValue);
/// A record of something that happened.
pub type Audited = (u64, AuditValue);

impl List {
    pub fn load(store: &Store) -> Result<List, Error> {
        let bytes = store.view(Io::BLOCKING, |view| Ok::<_, Error>(view.get(&Key::watched())?))?;
        let next = bytes.as_ref().map(|bytes| decoded(bytes)).unwrap_or_default();
        let waiting = Mutex::new(Waiting { next, ..Waiting::default() });
        Ok(List { is_in_pool: bytes.is_some(), waiting, flushing: Mutex::default() })
    }

    pub fn is_in_pool(&self) -> bool {
        self.is_in_pool
    }

    /// Takes a record; gives its number.
    pub fn put_provenance(&self, value: ProvenanceValue) -> u64 {
        let mut waiting = self.waiting.lock();
        let number = waiting.next.provenance_next;
        assert!(number >= waiting.next.provenance_first, "records are counted from 1, not {number}");
        waiting.next.provenance_next += 1;
        waiting.push(Pending::Provenance(number, value));
        number
    }

    /// Takes a record that is longer than it was.
    pub fn put_provenance_again(&self, number: u64, value: ProvenanceValue) {
        let mut waiting = self.waiting.lock();
        assert!(number < waiting.next.provenance_next, "a record that is put again was put before");
        waiting.push(Pending::Provenance(number, value));
    }

    pub fn put_audit(&self, value: AuditValue) {
        let mut waiting = self.waiting.lock();
        let number = waiting.next.audit_next;
        assert!(number >= waiting.next.audit_first, "records are counted from 1, not {number}");
        waiting.next.audit_next += 1;
        waiting.push(Pending::Audit(number, value));
    }
}

impl Waiting {
    fn push(&mut self, record: Pending) {
        if self.pending.len() >= PENDING_MAX {
            self.lost += 1;
            return;
        }
        self.pending.push_back(record);
        assert!(self.pending.len() <= PENDING_MAX, "records that wait are bounded");
    }
}

fn decoded(bytes: &[u8]) -> WatchedValue {
    WatchedValue::decode(bytes).unwrap_or_else(|error| {
        tracing::error!(%error, "how far the lists of provenance and audit are is damaged; both begin anew");
        WatchedValue::default()
    })
}

/// Puts a record where it is found, and takes those beyond the bound away.
fn put(transaction: &mut Transaction<'_>, far: &mut WatchedValue, record: &Pending) -> Result<(), Error> {
    match record {
        // So old that it would have gone already.
        Pending::Provenance(number, _) if *number < far.provenance_first => {}
        Pending::Provenance(number, value) => {
            transaction.put(Key::provenance(*number), &value.encode());
            transaction.put(Key::provenance_of(value.inode, *number), &[1]);
            for input in &value.inputs {
                transaction.put(Key::provenance_from(*input, *number), &[1]);
            }
            far.provenance_next = far.provenance_next.max(number + 1);
            while far.provenance_next - far.provenance_first > PROVENANCE_MAX {
                take_provenance(transaction, far.provenance_first)?;
                far.provenance_first += 1;
            }
        }
        Pending::Audit(number, value) => {
            transaction.put(Key::audit(*number), &value.encode());
            far.audit_next = far.audit_next.max(number + 1);
            while far.audit_next - far.audit_first > AUDIT_MAX {
                transaction.delete(Key::audit(far.audit_first));
                far.audit_first += 1;
            }
        }
    }
    Ok(())
}

fn take_provenance(transaction: &mut Transaction<'_>, number: u64) -> Result<(), Error> {
    let Some(bytes) = transaction.get(&Key::provenance(number))? else { return Ok(()) };
    match ProvenanceValue::decode(&bytes) {
        Ok(value) => {
            transaction.delete(Key::provenance_of(value.inode, number));
            for input in value.inputs {
                transaction.delete(Key::provenance_from(input, number));
            }
        }
        Err(error) => tracing::error!(number, %error, "a record of provenance is damaged; it goes"),
    }
    transaction.delete(Key::provenance(number));
    Ok(())
}

impl Audit {
    /// Puts what waits into the pool. What cannot be put there is given up, and told.
    pub fn flush_records(&self, io: Io<'_>) -> Result<(), Error> {
        let list = &self.list;
        if !self.is_used() || list.waiting.lock().pending.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = match io.may_block() {
            false => list.flushing.try_lock().ok_or(Error::WouldBlock)?,
            _ => list.flushing.lock(),
        };
        loop {
            let batch: Vec<Pending> = list.waiting.lock().pending.iter().take(BATCH).cloned().collect();
            if batch.is_empty() {
                break;
            }
            let outcome = self.core.store.update(io, |transaction| {
                let mut far = transaction.get(&Key::watched())?.map(|bytes| decoded(&bytes)).unwrap_or_default();
                for record in &batch {
                    put(transaction, &mut far, record)?;
                }
                transaction.put(Key::watched(), &far.encode());
                Ok::<_, Error>(())
            });
            if matches!(outcome, Err(Error::WouldBlock)) {
                return outcome;
            }
            let mut waiting = list.waiting.lock();
            assert!(batch.len() <= BATCH, "{} records are one transaction", batch.len());
            assert!(waiting.pending.len() >= batch.len(), "only who puts records into the pool takes them");
            waiting.pending.drain(..batch.len());
            if let Err(error) = outcome {
                waiting.lost += batch.len() as u64;
                tracing::warn!(records = batch.len(), %error, "records of provenance and audit could not be kept");
            }
        }
        let lost = std::mem::take(&mut list.waiting.lock().lost);
        if lost > 0 {
            tracing::warn!(lost, "records of provenance and audit are missing: more came than could be kept");
        }
        Ok(())
    }

    /// Who wrote a file, oldest first.
    pub fn written(&self, io: Io<'_>, inode: u64) -> Result<Vec<Written>, Error> {
        self.flush_records(io)?;
        self.provenance_records(io, Key::provenance_of(inode, 0), Key::provenance_of(inode, u64::MAX))
    }

    /// What was made from a file, oldest first.
    pub fn made_from(&self, io: Io<'_>, inode: u64) -> Result<Vec<Written>, Error> {
        self.flush_records(io)?;
        self.provenance_records(io, Key::provenance_from(inode, 0), Key::provenance_from(inode, u64::MAX))
    }

    fn provenance_records(&self, io: Io<'_>, from: Key, to: Key) -> Result<Vec<Written>, Error> {
        self.core.store.view(io, |view| {
            let mut numbers = Vec::new();
            view.scan(from, to, |key, _| {
                numbers.push(key.position);
                ControlFlow::Continue(())
            })?;
            let mut records = Vec::new();
            for number in numbers {
                let Some(bytes) = view.get(&Key::provenance(number))? else { continue };
                match ProvenanceValue::decode(&bytes) {
                    Ok(value) => records.push((number, value)),
                    Err(error) => tracing::error!(number, %error, "a record of provenance is damaged"),
                }
            }
            Ok::<_, Error>(records)
        })
    }

    /// Some of what happened, in order, from this number on; and where to go on, if there may be more.
    pub fn audited(&self, io: Io<'_>, from: u64, limit: usize) -> Result<(Vec<Audited>, Option<u64>), Error> {
        self.flush_records(io)?;
        self.core.store.view(io, |view| {
            let (mut records, mut next) = (Vec::new(), None);
            view.scan(Key::audit(from.max(1)), Key::audit(u64::MAX), |key, bytes| {
                if records.len() >= limit {
                    next = Some(key.position);
                    return ControlFlow::Break(());
                }
                match AuditValue::decode(bytes) {
                    Ok(value) => records.push((key.position, value)),
                    Err(error) => tracing::error!(number = key.position, %error, "a record of the audit is damaged"),
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>((records, next))
        })
    }
}
