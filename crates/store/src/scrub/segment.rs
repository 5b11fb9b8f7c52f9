//! A segment: its chunks' headers, its rows, and its account.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, ChunkHeader, PoolId, RecordSubject, ScrubCursor, SegmentChunks, SegmentKind};
use stere_log::{Io, RowContents, Segment};
use stere_stripe::Stretch;

use super::Scrubber;
use super::ahead::{Ahead, Window};
use stere_engine::{Damage, Error, ScrubReport, Standing, parse_header, standing, stripe_error, usage_of};
use stere_recall::BlobHandle;

/// How often an account is gone through again because something changed meanwhile.
const ROUNDS_MAX: u32 = 3;

/// What was found at a block.
enum Found {
    /// A row of so many blocks.
    Row(u32),
    /// No row begins here.
    Nothing,
    /// A row of so many blocks that goes on behind the stretch: to be read by itself.
    Beyond(u32),
}

impl Scrubber {
    /// Scrubs segments from the cursor on; true at the end of the last one.
    pub(super) fn scrub_segments(
        &self,
        cursor: &mut ScrubCursor,
        budget_bytes: u64,
        report: &mut ScrubReport,
    ) -> Result<bool, Error> {
        let mut ahead = Ahead::new(&self.engine, cursor, budget_bytes);
        let mut batch = ahead.plan();
        self.read_beside(&mut batch, || ());
        while !batch.is_empty() {
            let mut next = ahead.plan();
            let windows = std::mem::take(&mut batch);
            self.read_beside(&mut next, || {
                windows.into_iter().try_for_each(|window| self.scrub_window(window, cursor, report))
            })?;
            batch = next;
        }
        Ok(ahead.is_at_end())
    }

    /// Scrubs a part of a segment and moves the cursor behind it.
    fn scrub_window(&self, window: Window, cursor: &mut ScrubCursor, report: &mut ScrubReport) -> Result<(), Error> {
        let id = window.segment.id;
        if cursor.segment > id {
            return Ok(());
        }
        let before = (cursor.segment, cursor.block);
        if cursor.segment < id {
            (cursor.segment, cursor.block, cursor.live_bytes) = (id, 0, 0);
        }
        let is_at_end = match self.engine.log().segments.get(id) {
            Some(segment) if segment.live_bytes() > 0 => self.scrub_part(&segment, window, cursor, report)?,
            _ => true,
        };
        if is_at_end {
            (cursor.segment, cursor.block, cursor.live_bytes) = (id + 1, 0, 0);
        }
        let after = (cursor.segment, cursor.block);
        assert!(before <= after, "the cursor goes back from {before:?} to {after:?}");
        Ok(())
    }

    /// Scrubs a part of a segment; true when nothing more is to be done for all of it.
    fn scrub_part(
        &self,
        segment: &Arc<Segment>,
        mut window: Window,
        cursor: &mut ScrubCursor,
        report: &mut ScrubReport,
    ) -> Result<bool, Error> {
        let placed = segment.placed();
        if segment.is_released() {
            return Ok(true);
        }
        if self.engine.readable_chunks(&placed, &[]) < usize::from(placed.scheme.data) {
            report.unreachable_bytes += segment.live_bytes();
            return Ok(true);
        }
        if *placed != *window.placed {
            // A chunk was moved or filled since: what was read is of the old place.
            window.placed = placed;
            self.read_window(&mut window);
        }
        let Window { placed, blocks, is_last, stretch, .. } = window;
        report.bytes_checked += stretch.as_ref().map_or(0, Stretch::read_bytes);
        if cursor.block == 0 {
            self.scrub_headers(segment, &placed, stretch.as_ref(), report);
            (cursor.block, cursor.live_bytes) = (1, 0);
        }
        while cursor.block < blocks.end {
            let found = match self.scrub_row(segment, &placed, stretch.as_ref(), cursor, blocks.end, report) {
                Ok(Found::Beyond(height)) => self.scrub_long_row(segment, &placed, height, cursor, report),
                Ok(Found::Row(height)) => Ok(height),
                Ok(Found::Nothing) => Ok(1),
                Err(error) => Err(error),
            };
            cursor.block += passing_over(found, segment, report)?.unwrap_or(1);
        }
        if !is_last {
            return Ok(false);
        }
        // Rows that were still under way are for the next pass.
        if cursor.block >= segment.written_blocks() {
            let checked = self.check_account(segment, cursor.live_bytes, report);
            passing_over(checked, segment, report)?;
        }
        report.chunks_checked += segment.chunks().len() as u64;
        Ok(true)
    }

    /// A row that goes on behind the stretch that was read is read by itself; blocks to go on by.
    fn scrub_long_row(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        height: u32,
        cursor: &mut ScrubCursor,
        report: &mut ScrubReport,
    ) -> Result<u32, Error> {
        let blocks = cursor.block..cursor.block + height;
        let stretch = self.engine.log().stripe.read_stretch(segment.id, placed, blocks.clone()).ok();
        report.bytes_checked += stretch.as_ref().map_or(0, Stretch::read_bytes);
        match self.scrub_row(segment, placed, stretch.as_ref(), cursor, blocks.end, report)? {
            Found::Row(height) => Ok(height),
            // It would be another row than was seen a moment ago.
            Found::Nothing | Found::Beyond(_) => Ok(1),
        }
    }

    /// Checks the row at the cursor, mends it where it has to be.
    fn scrub_row(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        stretch: Option<&Stretch>,
        cursor: &mut ScrubCursor,
        end: u32,
        report: &mut ScrubReport,
    ) -> Result<Found, Error> {
        let pool = self.engine.log().pool_id();
        let block = cursor.block;
        let first = stretch.and_then(|stretch| stretch.first_block(block));
        let header = first.and_then(|first| parse_header(segment, pool, block, first));
        let is_possible = |row_height: u32| block + row_height <= segment.written_blocks();
        if let (Some(stretch), Some(header)) = (stretch, &header) {
            // Of a copy that lost a write it may be the row that was there before: the others are asked below.
            if is_possible(header.row_height) {
                if header.row_height > end - block {
                    return Ok(Found::Beyond(header.row_height));
                }
                if let Some(usage) = self.engine.rows().row_at_rest(segment, stretch, block, header.row_height)? {
                    cursor.live_bytes += usage;
                    return Ok(Found::Row(header.row_height));
                }
            } else if is_planted(Bug::HiddenRowPassed) {
                return Ok(Found::Nothing);
            }
        } else if let Some(stretch) = stretch {
            let is_header = |bytes: &[u8]| parse_header(segment, pool, block, bytes).is_some();
            let is_nowhere = match placed.scheme.data {
                // Whether the copies agree does not matter where none of them begins a row.
                1 => !(0..placed.chunks.len()).filter_map(|copy| stretch.read_block(copy, block)).any(is_header),
                _ => stretch.agrees(&self.engine.log().stripe, block..block + 1).map_err(stripe_error)?,
            };
            if stretch.failed == 0 && is_nowhere {
                return Ok(Found::Nothing);
            }
        }
        let Ok(Some(contents)) = self.engine.log().read_row_contents(segment, block) else { return Ok(Found::Nothing) };
        if !is_possible(contents.header.row_height) {
            return Ok(Found::Nothing);
        }
        if contents.header.row_height > end - block {
            return Ok(Found::Beyond(contents.header.row_height));
        }
        let standings = self.engine.rows().standings_of(&contents)?;
        // Nothing to mend, or a row of a future that a crash cut off, whose header alone is left over what is live: what no row tells
        // of is found by the account, and read by itself.
        if standings.iter().all(|standing| matches!(standing, Standing::Dead)) {
            return Ok(Found::Nothing);
        }
        self.engine.rows().mend_row(segment, placed, &contents, &standings, report)?;
        cursor.live_bytes += usage_of(&contents.entries, &standings);
        Ok(Found::Row(contents.header.row_height))
    }

    /// The first block of each chunk says whose it is.
    fn scrub_headers(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        stretch: Option<&Stretch>,
        report: &mut ScrubReport,
    ) {
        let pool: PoolId = self.engine.log().pool_id();
        for (chunk, place) in placed.chunks.iter().enumerate() {
            let is_there = !placed.is_missing(chunk) && self.engine.log().stripe.devices.get(place.device).is_some();
            if !is_there {
                continue;
            }
            let is_own = |header: ChunkHeader| {
                header.pool == pool && header.segment == segment.id && usize::from(header.chunk) == chunk
            };
            let read = stretch.and_then(|stretch| stretch.read_block(chunk, 0));
            if read.is_some_and(|bytes| ChunkHeader::decode(bytes).is_ok_and(is_own)) {
                continue;
            }
            report.bytes_checked += BLOCK_BYTES as u64;
            if self.engine.log().stripe.read_chunk_header(*place).is_ok_and(is_own) {
                continue;
            }
            if !self.engine.log().repairs.are_on() {
                report.findings.push(format!("segment {}: the header of chunk {chunk} is damaged", segment.id));
                continue;
            }
            let header = ChunkHeader {
                pool,
                segment: segment.id,
                sequence: segment.sequence,
                kind: segment.kind,
                class: segment.class,
                chunk: chunk as u8,
                place: placed.clone(),
            };
            match self.engine.log().stripe.restore(segment.id, placed, chunk, 0, &header.encode()) {
                Ok(repair) => {
                    report.repaired_blocks += repair.blocks;
                    self.engine.log().repairs.note(segment.id, &repair);
                }
                Err(error) => tracing::warn!(segment = segment.id, chunk, %error, "a chunk header stays damaged"),
            }
        }
    }

    /// Holds what was found live against what the segment says. Where they differ things may have been moving: then all is
    /// counted at one instant, and only what is found with nothing changing meanwhile is told.
    fn check_account(&self, segment: &Arc<Segment>, found: u64, report: &mut ScrubReport) -> Result<(), Error> {
        if found == segment.live_bytes() {
            return Ok(());
        }
        let _still = (segment.kind == SegmentKind::Meta).then(|| self.engine.hold_checkpoints());
        for _ in 0..ROUNDS_MAX {
            let change = self.engine.change_count();
            // What is in a row that is still open is in no summary yet.
            let is_in_memory = || self.engine.log().segments_in_memory().contains(&segment.id);
            if is_in_memory() {
                return Ok(());
            }
            let count = self.count_live(segment)?;
            if count.said == count.counted {
                return Ok(());
            }
            let (unlisted, found) = self.look_for_unlisted(segment, &count)?;
            if self.engine.change_count() == change && !is_in_memory() {
                report.add(found);
                return unlisted.iter().try_for_each(|handle| self.list_again(handle, report));
            }
        }
        // The next pass may find it at rest.
        Ok(())
    }

    /// Counts the live bytes that the rows tell of, with nothing changing meanwhile.
    fn count_live(&self, segment: &Arc<Segment>) -> Result<Count, Error> {
        let mut rows: Vec<RowContents> = Vec::new();
        let mut block = 1;
        while block < segment.written_blocks() {
            match self.engine.log().read_row_contents(segment, block) {
                Ok(Some(contents)) => {
                    block += contents.header.row_height.max(1);
                    rows.push(contents);
                }
                _ => block += 1,
            }
        }
        let parts = self.engine.checkpoint_parts();
        let part_at = |address: &stere_format::Address| {
            parts.iter().find(|part| part.address == *address).map(|part| part.crc32c)
        };
        self.engine.view(Io::BLOCKING, |view| {
            let (mut counted, mut listed) = (0, FxHashSet::default());
            for contents in &rows {
                for entry in &contents.entries {
                    let standing = standing(view, contents, entry, &part_at)?;
                    counted += standing.usage_bytes(entry);
                    if let (RecordSubject::Blob { blob, .. }, Standing::Blob(_)) = (entry.subject, standing) {
                        listed.insert(blob);
                    }
                }
            }
            let said = segment.live_bytes();
            Ok::<_, Error>(Count { said, counted, listed })
        })
    }

    /// Live blobs that no row tells of any more, and what is wrong with them and with the account.
    fn look_for_unlisted(
        &self,
        segment: &Arc<Segment>,
        count: &Count,
    ) -> Result<(Vec<BlobHandle>, ScrubReport), Error> {
        let (mut unlisted, mut report) = (Vec::new(), ScrubReport::default());
        let mut total = 0;
        let blobs =
            if segment.kind == SegmentKind::Data { self.engine.damage().blobs_in(segment.id)? } else { Vec::new() };
        for blob in blobs {
            let handle = match self.engine.view(Io::BLOCKING, |view| view.blob(blob)) {
                Ok(handle) if handle.value.address.segment == segment.id => handle,
                Ok(_) | Err(Error::UnknownBlob { .. }) => continue,
                Err(error) => return Err(error),
            };
            total += stere_engine::blob_usage_bytes(&handle.value);
            if count.listed.contains(&blob) {
                continue;
            }
            // It may have been released while it was scrubbed.
            if self.engine.volumes().read_record_blocks(self.engine.log(), &handle).is_ok() {
                unlisted.push(handle);
                continue;
            }
            let inode = self.first_file_of(blob)?;
            let length = u64::from(handle.value.logical_bytes);
            report.unrepairable.push(Damage { segment: segment.id, blob: Some(blob), inode, offset: 0, length });
        }
        if total.max(count.counted) != count.said {
            report.findings.push(format!(
                "segment {} says {} live bytes, but {} are; run `stere check --repair`",
                segment.id,
                count.said,
                total.max(count.counted)
            ));
        }
        Ok((unlisted, report))
    }

    /// Appends a blob again that no row tells of: where it is, nobody finds it to compare its copies, to clean its segment or to
    /// rescue it.
    fn list_again(&self, handle: &BlobHandle, report: &mut ScrubReport) -> Result<(), Error> {
        if !self.engine.log().repairs.are_on() {
            let (id, segment) = (handle.id, handle.segment.id);
            report
                .findings
                .push(format!("blob {id} in segment {segment}: no row tells of it; mount read-write to repair"));
            return Ok(());
        }
        match self.engine.cleaning().relocate_blob(handle, None) {
            Ok(()) => report.repaired_blocks += u64::from(handle.value.address.length.div_ceil(BLOCK_BYTES as u32)),
            // It can be read where it is, and the next pass comes.
            Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Goes on where metadata that would tell what is live is damaged itself: that is a finding, and no reason to stand still.
fn passing_over<T>(outcome: Result<T, Error>, segment: &Segment, report: &mut ScrubReport) -> Result<Option<T>, Error> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error @ (Error::DamagedNode { .. } | Error::BadValue { .. })) => {
            let finding = format!("segment {}: it could not be told what is live in it: {error}", segment.id);
            // Many rows may need the same node.
            if report.findings.last() != Some(&finding) {
                report.findings.push(finding);
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Live bytes of a segment: what it says, and what its rows tell.
struct Count {
    said: u64,
    counted: u64,
    /// Blobs that the rows tell of.
    listed: FxHashSet<u64>,
}
