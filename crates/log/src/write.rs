//! Appending: a record goes into the open row of its stream, a full row goes to the devices.
//!
//! Invariants: a stream's lock is never held while a device is waited for; bytes in flight are bounded; a row stays readable
//! in memory until its writes have completed. Read next: `read.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Completion, DeviceError};
use stere_faults::{Bug, is_planted};
use stere_format::{
    Address, BLOCK_BYTES, ChunkHeader, DeviceIndex, RowHeader, SECTOR_BYTES, SegmentChunks, SegmentKind, Site,
    SummaryEntry,
};
use stere_stripe::{split_tag, write_tag};

use crate::rows::FlyingRow;
use crate::segment::Segment;
use crate::stream::{OpenRow, Stream, StreamKey, align};
use crate::{Io, Log, LogError};

/// Rows grow to about this many logical bytes before they leave for the devices.
pub const ROW_BYTES_TARGET: usize = 1 << 20;
/// The summary entry of one record at most: fixed part, bitmap of a trimmed blob, hint.
const SUMMARY_ENTRY_BYTES_MAX: usize = SummaryEntry::SIZE_MIN + 32 + 255;
/// Less than this left in a segment is not worth a row.
const ROW_BYTES_MIN: usize = 16 * 1024;

/// What a row with this one record takes.
fn row_bytes_for(length: usize) -> usize {
    RowHeader::SIZE + align(length, SECTOR_BYTES) + align(SUMMARY_ENTRY_BYTES_MAX, SECTOR_BYTES)
}

/// A record that was appended: where it is, and the segment, which cannot be freed while this is held.
#[derive(Clone, Debug)]
pub struct Appended {
    pub address: Address,
    pub segment: Arc<Segment>,
}

impl Log {
    /// Appends a record of `length` bytes, which `fill` writes into the row itself and describes.
    pub fn append(
        &self,
        key: &StreamKey,
        length: usize,
        io: Io<'_>,
        fill: impl FnOnce(&mut [u8]) -> SummaryEntry,
    ) -> Result<Appended, LogError> {
        assert!(length > 0 && length <= self.record_bytes_max(), "a record of {length} bytes");
        self.throttle(io)?;
        let stream = self.stream(key);
        self.throttle_stream(&stream, io)?;
        let mut guard = stream.lock();
        self.ensure_room(key, &stream, &mut guard, length)?;
        let Stream { segment, row, idle_rounds } = &mut *guard;
        *idle_rounds = 0;
        let segment = segment.as_ref().expect("ensure_room leaves a segment");
        let row = row.as_mut().expect("ensure_room leaves a row");
        let entry = fill(row.space(length));
        let address = row.finish_record(segment.id, length, entry);
        let appended = Appended { address, segment: segment.clone() };
        if row.used_bytes >= self.row_bytes_target(key) {
            self.close_row(&mut guard);
        }
        Ok(appended)
    }

    /// Sends every open row of the given kind on its way; `wait_for_rows` tells when they have arrived.
    pub fn close_rows(&self, kind: SegmentKind) {
        let streams: Vec<_> =
            self.streams.read().iter().filter(|(key, _)| key.kind == kind).map(|(_, s)| s.clone()).collect();
        for stream in streams {
            let mut guard = stream.lock();
            if guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
                self.close_row(&mut guard);
            }
        }
    }

    /// Waits until all rows sent so far have been written; tells what could not be.
    pub fn wait_for_rows(&self) -> Result<(), LogError> {
        let flying = self.rows.flying(|_| true);
        let headers = self.headers_flying.lock().clone();
        flying.iter().for_each(|(_, _, completion)| completion.wait_done());
        headers.iter().for_each(|(_, completion)| completion.wait_done());
        // Whoever takes a row's errors has noted them before anybody else goes on. Nobody waits for a device in here:
        // appends come by.
        let _arrivals = self.arrivals.lock();
        for (id, segment, completion) in flying {
            let errors = completion.wait();
            self.row_arrived(id, &segment, errors);
        }
        let mut headers_flying = self.headers_flying.lock();
        let (done, flying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *headers_flying).into_iter().partition(|(_, completion)| completion.is_done());
        *headers_flying = flying;
        drop(headers_flying);
        for (segment, completion) in done {
            for (chunk, error) in completion.wait() {
                tracing::warn!(segment = segment.id, chunk, %error, "a chunk header could not be written");
                self.chunk_failed(&segment, split_tag(chunk).1, &error);
            }
        }
        self.check_not_lost()
    }

    /// Takes note of rows that have been written, without waiting.
    pub fn reap(&self) {
        let done = self.rows.flying(|row| row.completion.is_done());
        let _arrivals = self.arrivals.lock();
        for (id, segment, completion) in done {
            let errors = completion.wait();
            self.row_arrived(id, &segment, errors);
        }
    }

    fn row_arrived(&self, id: (u64, u32), segment: &Arc<Segment>, errors: Vec<(u64, stere_device::DeviceError)>) {
        let mut is_on_too_few = false;
        for (chunk, error) in &errors {
            tracing::warn!(segment = segment.id, chunk, %error, "a chunk could not be written");
            is_on_too_few |= !self.chunk_failed(segment, split_tag(*chunk).1, error);
        }
        if is_on_too_few {
            self.reroute(segment, id.1, &errors);
        }
        self.rows.land(id, segment, is_on_too_few);
    }

    /// A write of a chunk failed; false if its segment cannot do without the chunk.
    fn chunk_failed(&self, segment: &Arc<Segment>, chunk: usize, error: &DeviceError) -> bool {
        let device = segment.chunks()[chunk].device;
        self.note_write_error(device, error);
        self.give_chunk_up(segment, chunk)
    }

    /// Marks a chunk as missing, unless too few were left then: what is right of it is still needed, and known by its checksums.
    pub(crate) fn give_chunk_up(&self, segment: &Arc<Segment>, chunk: usize) -> bool {
        if is_planted(Bug::AbsenceForgotten) {
            return true;
        }
        let was_missing = segment.missing();
        let is_marked = segment.mark_missing_up_to(chunk, u32::from(segment.scheme.parity));
        if segment.missing() != was_missing && segment.kind == SegmentKind::Data {
            self.rows.note_unrecorded();
        }
        self.changed.note(segment);
        is_marked
    }

    /// Counts a failed write of a device; one that is gone or fails again and again takes nothing new until it is attached again.
    pub fn note_write_error(&self, device: DeviceIndex, error: &DeviceError) {
        if self.stripe.slots.note_write_error(device, error) {
            tracing::error!(device, %error, "nothing new is put on this device until it is attached again");
        }
    }

    /// An error once a row was lost for good: what it held cannot be made durable any more.
    pub fn check_not_lost(&self) -> Result<(), LogError> {
        match &*self.lost_row.lock() {
            Some(cause) => Err(LogError::RowLost { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn throttle(&self, io: Io<'_>) -> Result<(), LogError> {
        // Rows on one device only are kept until they are flushed. Writers commit before it comes to this; the cleaner does not.
        if self.rows.keeps_too_much() {
            if !io.may_block() {
                return Err(LogError::WouldBlock);
            }
            self.reap();
            self.flush()?;
        }
        if !self.rows.are_too_many() {
            return Ok(());
        }
        self.reap();
        if !self.rows.are_too_many() {
            return Ok(());
        }
        if !io.may_block() {
            return Err(LogError::WouldBlock);
        }
        if let Some(completion) = self.rows.first_flying(None) {
            completion.wait_done();
        }
        self.reap();
        Ok(())
    }

    /// Lets only those wait for a device with too many writes before it who cannot write elsewhere: their stream goes on in a new
    /// segment, or waits here.
    fn throttle_stream(&self, stream: &Arc<Mutex<Stream>>, io: Io<'_>) -> Result<(), LogError> {
        let congested = self.stripe.devices.congested();
        if congested.is_empty() {
            return Ok(());
        }
        let open = stream.lock().segment.clone();
        let is_hit = |segment: &Segment| segment.chunks().iter().any(|place| congested.contains(&place.device));
        let Some(segment) = open.filter(|segment| is_hit(segment)) else { return Ok(()) };
        let others = self.stripe.slots.open_devices().into_iter().filter(|index| !congested.contains(index)).count();
        // What was asked to lie there would only go there again.
        if segment.home().is_none() && segment.site.is_anywhere() && others >= segment.scheme.width() {
            self.end_segments(&|open| open.id == segment.id);
            return Ok(());
        }
        // They may fill half of what may be under way: the rest is for others.
        let most = (self.options.flying_bytes_max / ROW_BYTES_TARGET / 2) as u64;
        if segment.chunks().iter().all(|place| self.stripe.devices.pending_writes(place.device) < most) {
            return Ok(());
        }
        match (self.rows.first_flying(Some(segment.id)), io.may_block()) {
            (None, _) => Ok(()),
            (Some(_), false) => Err(LogError::WouldBlock),
            (Some(completion), true) => {
                completion.wait_done();
                self.reap();
                Ok(())
            }
        }
    }

    /// Makes sure that the open row takes a record of this length, closing rows and segments on the way.
    fn ensure_room(
        &self,
        key: &StreamKey,
        stream: &Arc<Mutex<Stream>>,
        guard: &mut Stream,
        length: usize,
    ) -> Result<(), LogError> {
        if guard.row.as_ref().is_some_and(|row| row.fits(length, SUMMARY_ENTRY_BYTES_MAX)) {
            return Ok(());
        }
        if guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
            self.close_row(guard);
        }
        self.drop_empty_row(guard);
        let need = row_bytes_for(length);
        if let Some(segment) = &guard.segment {
            // With a chunk lost, a new segment on the devices that are there protects better.
            if self.row_limit(segment) < need.max(ROW_BYTES_MIN) || segment.has_lost_chunks() {
                segment.seal();
                self.changed.note(segment);
                guard.segment = None;
            }
        }
        if guard.segment.is_none() {
            guard.segment = Some(self.begin_segment(key)?);
        }
        let segment = guard.segment.as_ref().expect("just set");
        let limit = self.row_limit(segment);
        assert!(need <= limit, "a new segment takes the largest record");
        // Rows that have arrived give their buffers back before another is taken.
        self.reap();
        // Room for the target, one more record beyond it, and the summary of many small ones.
        let wanted = self.row_bytes_target(key) + align(length, SECTOR_BYTES) + 64 * 1024;
        let limit = limit.min(wanted.max(need));
        let buffer = self.buffers.take(align(limit, BLOCK_BYTES));
        let row_block = segment.written_blocks();
        guard.row = Some(OpenRow::new(buffer, row_block, limit));
        self.rows.open((segment.id, row_block), stream.clone());
        Ok(())
    }

    pub(crate) fn drop_empty_row(&self, guard: &mut Stream) {
        if let (Some(row), Some(segment)) = (guard.row.take(), &guard.segment) {
            assert!(row.is_empty(), "only an empty row is dropped");
            self.rows.drop_open((segment.id, row.row_block));
        }
    }

    pub(crate) fn row_limit(&self, segment: &Segment) -> usize {
        let left = self.chunk_bytes() as usize - segment.written_blocks() as usize * BLOCK_BYTES;
        stere_stripe::row_capacity(segment.scheme, (left / BLOCK_BYTES) as u32)
    }

    pub(crate) fn row_bytes_target(&self, key: &StreamKey) -> usize {
        let stripe = key.scheme.data as usize * stere_format::STRIPE_UNIT_BYTES;
        align(ROW_BYTES_TARGET.min(self.chunk_bytes() as usize / 2 * key.scheme.data as usize), stripe) - 64 * 1024
    }

    /// Bytes that the open segment of this stream still takes, headers and summaries to come included; 0 if none is open or what
    /// comes next begins a new one.
    pub fn room_in_open_segment(&self, key: &StreamKey) -> usize {
        let Some(stream) = self.streams.read().get(key).cloned() else { return 0 };
        let guard = stream.lock();
        let open = guard.segment.as_ref().filter(|segment| !segment.has_lost_chunks());
        let used = guard.row.as_ref().map_or(0, |row| row.used_bytes);
        open.map_or(0, |segment| self.row_limit(segment).saturating_sub(used))
    }

    /// Whether this stream would take a record of this length now, in its open segment or in a new one.
    pub fn can_take(&self, key: &StreamKey, length: usize) -> bool {
        self.fits_in_open_segment(key, length) || self.room.can_begin(key)
    }

    /// The same for a stream of the cleaner and a record that was accepted: a new segment is begun for it only if one for each kind of
    /// data that the cleaner may have to move can be begun after it.
    pub fn can_take_accepted(&self, key: &StreamKey, length: usize) -> bool {
        if self.fits_in_open_segment(key, length) {
            return true;
        }
        let mut kept = self.room.kept_for_others(key);
        kept.extend(self.room.kept_for_kinds());
        self.room.can_place(key, &kept)
    }

    fn fits_in_open_segment(&self, key: &StreamKey, length: usize) -> bool {
        let stream = self.streams.read().get(key).cloned();
        stream.is_some_and(|stream| {
            let guard = stream.lock();
            guard.row.as_ref().is_some_and(|row| row.fits(length, SUMMARY_ENTRY_BYTES_MAX))
                // With a row open the segment's end is not known yet.
                || (guard.row.is_none()
                    && guard
                        .segment
                        .as_ref()
                        .is_some_and(|segment| self.row_limit(segment) >= row_bytes_for(length).max(ROW_BYTES_MIN)))
        })
    }

    /// Seals what the streams of single devices and of places have not appended to for `rounds_max` calls of this, so that no
    /// segment stays open for what gets no files any more.
    pub fn seal_idle_homes(&self, rounds_max: u32) {
        let may_end = |key: &StreamKey| key.home.is_some() || key.site != Site::ANYWHERE;
        let streams: Vec<_> =
            self.streams.read().iter().filter(|(key, _)| may_end(key)).map(|(_, s)| s.clone()).collect();
        for stream in streams {
            let mut guard = stream.lock();
            guard.idle_rounds = guard.idle_rounds.saturating_add(1);
            if guard.idle_rounds <= rounds_max || guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
                continue;
            }
            self.drop_empty_row(&mut guard);
            if let Some(segment) = guard.segment.take() {
                segment.seal();
                self.changed.note(&segment);
            }
        }
    }

    /// Flushes every device that was written to since its last flush. Returns the devices that failed; what was written to
    /// them counts as missing, and it is an error if too little of a row is left.
    pub fn flush(&self) -> Result<Vec<DeviceIndex>, LogError> {
        // One at a time: whoever comes while a flush fails must find noted what that cost.
        let _alone = self.flushes.lock();
        let kept = self.rows.kept();
        let written = std::mem::take(&mut *self.unflushed.lock());
        // Rows still on their way may end too late for this flush: they belong to the next one.
        for ((_, row_block), segment, _) in self.rows.flying(|_| true) {
            self.note_unflushed(&segment, row_block);
        }
        let failed = self.stripe.devices.flush();
        for (device, error) in &failed {
            tracing::error!(device, %error, "a device could not be flushed; what was written to it counts as missing");
            // What a failed flush dropped cannot be known: the device takes nothing any more.
            self.stripe.slots.suspend(*device);
            for (segment, first_row) in written.values() {
                let chunk = segment.chunks().iter().position(|place| place.device == *device);
                let Some(chunk) = chunk else { continue };
                if !self.give_chunk_up(segment, chunk) {
                    self.reroute(segment, *first_row, &[(write_tag(0, chunk), error.clone())]);
                }
            }
        }
        self.rows.let_go_of(kept);
        self.check_not_lost()?;
        Ok(failed.into_iter().map(|(device, _)| device).collect())
    }

    pub(crate) fn begin_segment(&self, key: &StreamKey) -> Result<Arc<Segment>, LogError> {
        let place = self.room.place(key)?;
        let id = self.counters.next_segment(key);
        let sequence = self.counters.next_sequence();
        let segment = Arc::new(Segment::new(id, key, sequence, place));
        self.segments.insert(segment.clone());
        let completion = Completion::new();
        let header = ChunkHeader {
            pool: self.pool_id,
            segment: id,
            sequence,
            kind: key.kind,
            class: key.class,
            chunk: 0,
            place: SegmentChunks::clone(&segment.placed()),
        };
        self.stripe.write_chunk_headers(&header, 0, &completion)?;
        self.headers_flying.lock().push((segment.clone(), completion));
        self.changed.note(&segment);
        Ok(segment)
    }

    /// Finishes the open row (summary, header) and submits it; the stream goes on with a new row.
    pub(crate) fn close_row(&self, guard: &mut Stream) {
        let row = guard.row.take().expect("a row is open");
        let segment = guard.segment.clone().expect("an open row has a segment");
        assert!(!row.is_empty(), "an empty row is not written");
        let OpenRow { mut buffer, row_block, used_bytes, limit_bytes, summary, record_count } = row;
        let end = used_bytes + align(summary.len(), SECTOR_BYTES);
        assert!(end <= limit_bytes, "a row leaves room for its summary");
        let length = align(end, BLOCK_BYTES);
        let bytes = &mut buffer.as_mut_slice()[..length];
        bytes[used_bytes..used_bytes + summary.len()].copy_from_slice(&summary);
        bytes[used_bytes + summary.len()..].fill(0);
        let height = stere_stripe::row_height(segment.scheme, length);
        assert!(row_block + height <= self.chunk_blocks(), "a row ends within its chunks");
        assert_eq!(row_block, segment.written_blocks(), "rows follow one another");
        let header = RowHeader {
            pool: self.pool_id,
            segment: segment.id,
            sequence: self.counters.next_sequence(),
            row_block,
            row_height: height,
            record_count,
            summary_offset: u32::try_from(used_bytes).expect("rows are far below 4 GiB"),
            summary_length: u32::try_from(summary.len()).expect("rows are far below 4 GiB"),
            summary_crc32c: stere_format::crc32c(&summary),
        };
        bytes[..RowHeader::SIZE].copy_from_slice(&header.encode());
        buffer.set_length(length);
        let buffer = buffer.share();
        let completion = Completion::new();
        // Until all its writes are submitted the row counts as under way: others may look at its completion before that.
        let submitting = completion.ticket(write_tag(0, 0));
        let is_wanted = self.rows.recent.wants(&segment, length, record_count);
        let flying =
            FlyingRow { buffer: buffer.clone(), segment: segment.clone(), completion: completion.clone(), is_wanted };
        // The row is readable in memory before it is submitted and until it has arrived.
        self.rows.fly((segment.id, row_block), flying);
        segment.set_written_blocks(row_block + height);
        self.changed.note(&segment);
        self.statistics.row(length);
        self.note_unflushed(&segment, row_block);
        if let Err(error) = self.stripe.write_row(segment.id, &segment.placed(), row_block, &buffer, 0, &completion) {
            *self.lost_row.lock() = Some(error.to_string());
        }
        submitting.finish(Ok(()));
    }
}
