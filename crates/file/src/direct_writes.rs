//! Writes past the owner: another machine encodes, computes parity and writes the row to the devices; here it is offered, placed, and entered.
//!
//! A write is *offered* with lengths and checksums, gets a row, and is *entered* when the row is on the devices. From the offer on it counts
//! as made: attributes show it, and calls that touch the content of the file wait until it is entered, or withdrawn. Invariants: a file shows no
//! byte of a row before it was entered; a row that was not is in nobody's way for `LATE_MS`, because a write to it may be under way
//! still; what waits is bounded by the session, at whose end all of its rows are dropped. Read next: the log's `given.rs`,
//! `docs/design/direct.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use stere_format::{InodeValue, OfferAnswer, Timestamp, WriteOffer};
use stere_store::{GivenRow, Io, Owner, Reservation, Store};

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::Appended;
use crate::encoding::Storing;
use crate::error::Error;
use crate::options::FILE_BYTES_MAX;
use crate::record::RECORD_BYTES;
use crate::save::growing;
use crate::state::{Content, State};
use crate::table::FileTable;
use crate::write::Writer;

/// Until a write to a row that was dropped has arrived, or never will: lease and time-outs of connections.
pub const LATE_MS: u64 = 30_000;
/// A row that is not written by then is none of the file's any more: whoever has it makes others wait.
const OFFERED_MS_MAX: u64 = 30_000;
/// Bits of a write's number that count within an owner's term.
const COUNTED_BITS: u32 = 40;

/// A row and the blobs in it.
struct Given {
    row: GivenRow,
    blobs: Vec<Appended>,
}

/// A write that was offered and is not entered.
struct Offered {
    session: u64,
    inode: u64,
    range: Range<u64>,
    at: Timestamp,
    until_ms: u64,
    /// None until its row has a place.
    given: Option<Given>,
    /// Room for it.
    room: Option<Reservation>,
}

#[derive(Default)]
struct Writes {
    next: u64,
    offered: BTreeMap<u64, Offered>,
    /// How many calls wait for writes to an inode.
    awaited: BTreeMap<u64, u32>,
    /// Rows that were dropped, and until when they are held.
    late: Vec<(u64, Given)>,
    over: BTreeSet<u64>,
}

impl Writes {
    fn touch(&self, inode: u64) -> bool {
        self.offered.values().any(|offered| offered.inode == inode)
    }
}

/// The writes of other machines that are on their way past this one.
pub struct DirectWrites {
    store: Arc<Store>,
    table: Arc<FileTable>,
    writer: Arc<Writer>,
    writes: Mutex<Writes>,
    /// How many there are; most calls look no further.
    count: AtomicUsize,
    entered: Condvar,
}

/// What is to be written, checked.
struct Checked {
    storing: Storing,
    room: Option<Reservation>,
    home: Option<stere_format::DeviceIndex>,
}

impl DirectWrites {
    pub(crate) fn new(writer: &Arc<Writer>) -> DirectWrites {
        DirectWrites {
            store: writer.store.clone(),
            table: writer.table.clone(),
            writer: writer.clone(),
            writes: Mutex::default(),
            count: AtomicUsize::new(0),
            entered: Condvar::new(),
        }
    }

    /// Waits until nothing that others write to an inode is on its way.
    pub fn wait_until_entered(&self, io: Io<'_>, inode: u64) -> Result<(), Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut writes = self.writes.lock();
        if !writes.touch(inode) {
            return Ok(());
        }
        if !io.may_block() {
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        *writes.awaited.entry(inode).or_default() += 1;
        while writes.touch(inode) {
            self.entered.wait(&mut writes);
        }
        let count = writes.awaited.get_mut(&inode).expect("whoever waits is counted");
        *count -= 1;
        if *count == 0 {
            writes.awaited.remove(&inode);
        }
        Ok(())
    }

    /// Waits for all that is on its way now.
    pub fn wait_for_all(&self, io: Io<'_>) -> Result<(), Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut writes = self.writes.lock();
        let Some((last, _)) = writes.offered.last_key_value() else { return Ok(()) };
        if !io.may_block() {
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        let last = *last;
        while writes.offered.first_key_value().is_some_and(|(first, _)| *first <= last) {
            self.entered.wait(&mut writes);
        }
        Ok(())
    }

    /// Whether something of an inode is on its way.
    pub(crate) fn touch(&self, inode: u64) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.writes.lock().touch(inode)
    }

    /// The inode as it will be when all that was offered is entered.
    pub(crate) fn lay_over(&self, inode: u64, value: &mut InodeValue) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for offered in self.writes.lock().offered.values().filter(|offered| offered.inode == inode) {
            value.size = value.size.max(offered.range.end);
            value.mtime = value.mtime.max(offered.at);
            value.ctime = value.ctime.max(offered.at);
        }
    }

    /// Takes an offer of a session to write at `offset`: gives a row for the first of its records or all, or says what else is wanted.
    pub fn offer(
        &self,
        context: &Context<'_>,
        session: u64,
        inode: u64,
        offset: u64,
        offer: WriteOffer,
    ) -> Result<OfferAnswer, Error> {
        if !context.io.may_block() {
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        self.forget_late();
        let end = offset.saturating_add(offer.content_bytes());
        if end > FILE_BYTES_MAX || !offset.is_multiple_of(BLOCK) || !end.is_multiple_of(BLOCK) {
            return Ok(OfferAnswer::Bytes);
        }
        let Some(number) = self.note(session, inode, offset..end, context.now) else { return Ok(OfferAnswer::Bytes) };
        let answer = self.place(context, number, inode, offset..end, offer);
        if !matches!(answer, Ok(OfferAnswer::Granted(_))) {
            self.forget(number);
        }
        answer
    }

    /// Whether a file may grow by so much, by its accounts and by the room that there is.
    pub fn has_room(&self, context: &Context<'_>, inode: u64, bytes: u64) -> Result<bool, Error> {
        let storing = self.writer.policies.storing_change(context, inode)?;
        if !self.writer.grants.has_room(context, inode, storing.stored_bytes_max(bytes))? {
            return Ok(false);
        }
        match self.writer.reserve(context, inode, &storing, 0..bytes, bytes) {
            // None: it would only replace what is there.
            Ok(room) => Ok(room.is_some()),
            Err(Error::Store(stere_store::Error::NoSpace)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn now_ms(&self) -> u64 {
        self.store.log().stripe.lending_clock_ms().unwrap_or_default()
    }

    /// A write is offered; none where it has to wait for others, or others for it.
    fn note(&self, session: u64, inode: u64, range: Range<u64>, at: Timestamp) -> Option<u64> {
        let mut writes = self.writes.lock();
        let overlaps =
            |other: &Offered| other.inode == inode && other.range.start < range.end && range.start < other.range.end;
        let is_in_the_way = writes.offered.values().any(overlaps) || writes.awaited.contains_key(&inode);
        if is_in_the_way || writes.over.contains(&session) {
            return None;
        }
        writes.next += 1;
        assert!(range.start < range.end, "what is offered has bytes");
        // Told apart from those of other owners.
        let number = self.store.log().stripe.devices.epoch() << COUNTED_BITS | writes.next;
        let until_ms = self.now_ms() + OFFERED_MS_MAX;
        writes.offered.insert(number, Offered { session, inode, range, at, until_ms, given: None, room: None });
        self.count.store(writes.offered.len(), Ordering::Release);
        Some(number)
    }

    fn place(
        &self,
        context: &Context<'_>,
        number: u64,
        inode: u64,
        range: Range<u64>,
        offer: WriteOffer,
    ) -> Result<OfferAnswer, Error> {
        let checked = {
            let held = self.table.hold(inode);
            let mut state = held.write(context.io)?;
            match self.check(context, inode, &mut state, &range, &offer)? {
                Ok(checked) => checked,
                Err(answer) => return Ok(answer),
            }
        };
        let owner = Owner { inode, offset: range.start };
        let placed = self.store.places().give_row(checked.storing.placement, checked.home, owner, offer.records);
        let (row, blobs) = match placed {
            Ok(Some(placed)) => placed,
            Ok(None) | Err(stere_store::Error::NoSpace) => return Ok(OfferAnswer::Bytes),
            Err(error) => return Err(error.into()),
        };
        let granted = row.wait();
        let mut start = range.start;
        let blobs = blobs.into_iter().map(|blob| {
            let at = start;
            start += u64::from(blob.length());
            Appended { start: at, blob }
        });
        let given = Given { blobs: blobs.collect(), row };
        let end = given.blobs.last().map_or(range.start, Appended::end);
        assert!((range.start + 1..=range.end).contains(&end), "the blobs are what was offered, from its begin on");
        let grant = given.row.grant(number, self.store.log().stripe.devices.epoch());
        let mut writes = self.writes.lock();
        let is_over = |session: u64| writes.over.contains(&session);
        let is_wanted = writes.offered.get(&number).is_some_and(|offered| !is_over(offered.session));
        let offered = writes.offered.get_mut(&number).filter(|_| is_wanted && granted.is_ok());
        let Some(offered) = offered else {
            drop(writes);
            self.drop_row(given);
            granted.map_err(stere_store::Error::from)?;
            return Ok(OfferAnswer::Bytes);
        };
        (offered.given, offered.room, offered.range.end) = (Some(given), checked.room, end);
        Ok(OfferAnswer::Granted(Box::new(grant)))
    }

    /// What an offer needs, or what is to be said instead.
    fn check(
        &self,
        context: &Context<'_>,
        inode: u64,
        state: &mut State,
        range: &Range<u64>,
        offer: &WriteOffer,
    ) -> Result<Result<Checked, OfferAnswer>, Error> {
        let writer = &self.writer;
        let content = writer.writeback.load(context, inode, state)?;
        let storing = writer.policies.storing_change(context, inode)?;
        writer.policies.check_keys(context.io, inode, &storing, range.clone())?;
        if !is_as_wanted(&storing, range, offer) {
            let (compression, checksum) = (storing.compression.code(), storing.checksum);
            let record_bytes = u32::try_from(storing.record_bytes).expect("a record is far below 4 GiB");
            let (key, stack) = (storing.key(), storing.stack());
            return Ok(Err(OfferAnswer::Encode { compression, checksum, key, stack, record_bytes }));
        }
        let length = (range.end - range.start) as usize;
        let granted = writer.grants.grant_write(context, inode, content, range.start, length)?;
        writer.grants.keep_promised(inode, content);
        if granted < length {
            return Ok(Err(OfferAnswer::Bytes));
        }
        let stored = writer.grant_stored(context, inode, content, &storing, range.clone())?;
        if stored.at_once || stored.length < length {
            return Ok(Err(OfferAnswer::Bytes));
        }
        let room = match writer.reserve(context, inode, &storing, range.clone(), length as u64) {
            Err(Error::Store(stere_store::Error::NoSpace)) => return Ok(Err(OfferAnswer::Bytes)),
            room => room?,
        };
        let home = writer.policies.home(context.io, inode, content.home, storing.placement)?;
        // Others that are offered before this one is entered go to the same device.
        content.home = home.or(content.home);
        Ok(Ok(Checked { storing, room, home }))
    }

    /// A session's row is on the devices: its records become the file's. Gives the inode and the range.
    pub fn enter(&self, context: &Context<'_>, session: u64, number: u64) -> Result<(u64, Range<u64>), Error> {
        if !context.io.may_block() {
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        self.forget_late();
        let (inode, range, at, given) = {
            let mut writes = self.writes.lock();
            let offered = writes.offered.get_mut(&number).filter(|offered| offered.session == session);
            let offered = offered.ok_or(Error::NotOffered(number))?;
            let given = offered.given.take().ok_or(Error::NotOffered(number))?;
            (offered.inode, offered.range.clone(), offered.at, given)
        };
        self.store.log().note_given_written(&given.row);
        let entered = self.put(context, inode, &range, at, &given);
        self.forget(number);
        entered.map(|()| (inode, range))
    }

    fn put(
        &self,
        context: &Context<'_>,
        inode: u64,
        range: &Range<u64>,
        at: Timestamp,
        given: &Given,
    ) -> Result<(), Error> {
        let writeback = &self.writer.writeback;
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        if state.opens == 0 && writeback.orphans.is_removed_for_good(inode) {
            return Err(Error::NoInode(inode));
        }
        let content = writeback.load(context, inode, &mut state)?;
        let length = (range.end - range.start) as usize;
        if self.writer.grants.grant_write(context, inode, content, range.start, length)? < length {
            self.writer.grants.keep_promised(inode, content);
            return Err(Error::Store(stere_store::Error::NoSpace));
        }
        let before = content.size;
        assert_eq!(given.blobs.first().map(|first| first.start), Some(range.start), "the blobs are those of the range");
        self.table.note_dirty(content);
        content.size = content.size.max(range.end);
        content.touch(at);
        let entered = self.put_over(context, inode, content, range, given);
        if entered.is_err() {
            content.size = before;
        }
        self.writer.grants.keep_promised(inode, content);
        content.assert_invariants();
        entered
    }

    /// What is in memory of the range goes, or to the store first where more of its record is.
    fn put_over(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: &Range<u64>,
        given: &Given,
    ) -> Result<(), Error> {
        let writeback = &self.writer.writeback;
        let records = range.start / RECORD_BYTES..=(range.end - 1) / RECORD_BYTES;
        let is_within = |record: &u64| {
            Content::record_start(*record) >= range.start && Content::record_start(record + 1) <= range.end
        };
        let dirty = content.records.range(records.clone()).map(|(record, _)| *record);
        let (replaced, partly): (Vec<u64>, Vec<u64>) = dirty.partition(is_within);
        for record in partly {
            writeback.save_record(context, inode, content, record)?;
        }
        if range.end > content.stored_size {
            for record in growing(content, records.end() + 1).into_iter().filter(|record| !replaced.contains(record)) {
                writeback.save_record(context, inode, content, record)?;
            }
        }
        writeback.enter(context, inode, content, &given.blobs, &replaced)?;
        content.home = given.blobs.last().map_or(content.home, |last| last.blob.home());
        Ok(())
    }

    /// A session gives a write up; what it was to write comes in another way.
    pub fn withdraw(&self, session: u64, number: u64) -> Result<(), Error> {
        let given = {
            let mut writes = self.writes.lock();
            let offered = writes.offered.get_mut(&number).filter(|offered| offered.session == session);
            offered.ok_or(Error::NotOffered(number))?.given.take().ok_or(Error::NotOffered(number))?
        };
        self.drop_row(given);
        self.forget(number);
        Ok(())
    }

    /// A session is over: nothing more of it is entered.
    pub fn end_session(&self, session: u64) {
        self.writes.lock().over.insert(session);
        self.drop_where(|offered| offered.session == session);
    }

    fn drop_where(&self, is_meant: impl Fn(&Offered) -> bool) {
        let ended: Vec<(u64, Given)> = {
            let mut writes = self.writes.lock();
            let meant = writes.offered.iter_mut().filter(|(_, offered)| is_meant(offered));
            meant.filter_map(|(number, offered)| offered.given.take().map(|given| (*number, given))).collect()
        };
        for (number, given) in ended {
            self.drop_row(given);
            self.forget(number);
        }
    }

    /// Nothing was written, as far as anybody knows: the row is held for as long as a write may still arrive.
    fn drop_row(&self, given: Given) {
        let log = self.store.log();
        log.note_given_dropped(&given.row);
        let until = self.now_ms() + LATE_MS;
        self.writes.lock().late.push((until, given));
    }

    /// An offer has come to its end.
    fn forget(&self, number: u64) {
        let gone = {
            let mut writes = self.writes.lock();
            let gone = writes.offered.remove(&number);
            assert!(
                gone.as_ref().is_none_or(|gone| gone.given.is_none()),
                "a row is entered or dropped before it is forgotten"
            );
            self.count.store(writes.offered.len(), Ordering::Release);
            gone
        };
        drop(gone);
        self.entered.notify_all();
    }

    /// Drops rows that nobody writes, and lets go of those that were dropped so long ago that nothing is under way to them.
    pub fn forget_late(&self) {
        let now_ms = self.now_ms();
        if self.count.load(Ordering::Acquire) > 0 {
            self.drop_where(|offered| offered.until_ms <= now_ms);
        }
        let mut writes = self.writes.lock();
        if writes.late.is_empty() {
            return;
        }
        let (over, held) = std::mem::take(&mut writes.late).into_iter().partition(|(until, _)| *until <= now_ms);
        writes.late = held;
        drop(writes);
        let over: Vec<(u64, Given)> = over;
        // What is empty may be freed with the next commit.
        over.iter().for_each(|(_, given)| self.store.log().changed.note(&given.row.segment));
    }
}

/// Whether records are cut, encoded and checksummed as a file's policy asks for.
fn is_as_wanted(storing: &Storing, range: &Range<u64>, offer: &WriteOffer) -> bool {
    let mut at = range.start;
    offer.records.iter().all(|record| {
        let end = storing.blob_end(at).min(range.end);
        let is_cut = u64::from(record.logical_bytes) == end - at;
        at = end;
        is_cut
            && record.checksums.kind() == storing.checksum
            && (record.key, record.stack) == (storing.key(), storing.stack())
            && stere_plugin::is_as_asked(storing.compression, record.encoding, record.flags)
    })
}
