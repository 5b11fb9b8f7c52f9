//! The journal as far as it verifies, put over the tree.
//!
//! As at a mount: records count with the right pool, place, epoch and checksum, groups only as a whole, and groups that nothing
//! proves durable only if their data is there. Unlike at a mount, a record that is lost on all mirrors ends nothing: what is
//! left around it is taken (every change has the whole value of its key), and the state is called uncertain. Read next: `state.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_format::{
    BLOCK_BYTES, BlobValue, Epoch, JournalChanges, JournalHeader, JournalPosition, Key, PoolId, SegmentValue, key,
};

use crate::keys::Keys;
use crate::sources::Member;

/// How much of the journal is looked at in one read.
const SEARCH_BYTES: u64 = 1 << 20;

/// What is known of the journal.
pub(crate) struct Plan {
    /// Where replay starts; none where neither a superblock nor a checkpoint is left.
    pub start: Option<JournalPosition>,
    /// What a superblock tells: the circle's size, and the epoch of every sequence.
    pub told: Option<(u64, Vec<Epoch>)>,
    /// The pool was closed in order: nothing is in the journal.
    pub is_clean: bool,
    /// Members whose regions are mirrors of the newest journal.
    pub mirrors: Vec<usize>,
}

/// What replaying did.
#[derive(Default)]
pub(crate) struct Replayed {
    pub groups: u64,
    /// Places where records are lost although later ones show that they had been durable.
    pub gaps: u64,
    /// The newest checkpoint that any record follows.
    pub generation_max: u64,
    /// Whether what was taken for the end of the journal can be nothing else.
    pub is_end_shown: bool,
}

/// A record's header and where it was found.
#[derive(Clone, Copy)]
struct Place {
    header: JournalHeader,
    member: usize,
    offset: u64,
}

type Changes = Vec<(Key, Option<Arc<[u8]>>)>;

impl Plan {
    fn epoch_of(&self, sequence: u64) -> Option<u32> {
        let (_, epochs) = self.told.as_ref()?;
        epochs.iter().rev().find(|epoch| epoch.first_sequence <= sequence).map(|epoch| epoch.epoch)
    }

    fn admits(&self, place: &Place, member: &Member) -> bool {
        let (header, begins) = (&place.header, member.layout.journal_offset);
        assert!(place.offset >= begins, "a record at {} lies before its journal, {begins}", place.offset);
        let is_behind =
            self.start.is_none_or(|start| header.at.sequence >= start.sequence && header.at.position >= start.position);
        let is_placed = self
            .told
            .as_ref()
            .is_none_or(|(circle, _)| *circle > 0 && header.at.position % circle == place.offset - begins);
        is_behind && is_placed && self.epoch_of(header.at.sequence).is_none_or(|epoch| epoch == header.epoch)
    }
}

fn headers_on(members: &[Member], pool: PoolId) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let layout = &member.layout;
        let mut at = 0;
        while at < layout.journal_bytes {
            let length = (layout.journal_bytes - at).min(SEARCH_BYTES);
            let mut bytes = vec![0; length as usize];
            let offset = layout.journal_offset + at;
            if member.device.read(offset, &mut bytes).is_ok() {
                for (block, content) in (0u64..).zip(bytes.chunks(BLOCK_BYTES)) {
                    if let Ok(header) = JournalHeader::decode(content)
                        && header.pool == pool
                    {
                        places.push(Place { header, member: number, offset: offset + block * BLOCK_BYTES as u64 });
                    }
                }
            }
            at += length;
        }
    }
    places
}

/// All records that count, by sequence; mirrors of one record together.
fn admitted(members: &[Member], plan: &Plan, places: &[Place]) -> BTreeMap<u64, Vec<Place>> {
    let mut records: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for place in places.iter().filter(|place| plan.admits(place, &members[place.member])) {
        let mirrors = records.entry(place.header.at.sequence).or_default();
        // Where no superblock tells the epoch, a later mount wrote over what an earlier one had begun.
        let newest = mirrors.first().map_or(0, |other| other.header.epoch);
        if mirrors.is_empty() || place.header.epoch == newest {
            mirrors.push(*place);
        } else if place.header.epoch > newest {
            *mirrors = vec![*place];
        }
    }
    if plan.told.is_none() {
        // An epoch never falls: what is left of an abandoned end does not count.
        let mut epoch = 0;
        let falls = |mirrors: &Vec<Place>, epoch: &mut u32| {
            let own = mirrors.first().map_or(0, |place| place.header.epoch);
            let falls = own < *epoch;
            *epoch = own.max(*epoch);
            falls
        };
        let end = records.iter().find(|(_, mirrors)| falls(mirrors, &mut epoch)).map(|(sequence, _)| *sequence);
        if let Some(end) = end {
            records.split_off(&end);
        }
    }
    records
}

fn payload(members: &[Member], mirrors: &[Place]) -> Option<(JournalHeader, Changes)> {
    mirrors.iter().find_map(|place| {
        let mut bytes = vec![0; place.header.record_bytes()];
        members[place.member].device.read(place.offset, &mut bytes).ok()?;
        let header = JournalHeader::decode(&bytes).ok()?;
        let payload = header.payload(&bytes).ok()?;
        let changes: Result<Changes, _> =
            JournalChanges::new(payload).map(|change| change.map(|(key, value)| (key, value.map(Arc::from)))).collect();
        Some((header, changes.ok()?))
    })
}

impl Keys {
    /// Puts the journal's changes into the overlay.
    pub fn replay(&mut self, plan: &Plan) -> Replayed {
        let places = headers_on(&self.media.members.members, self.media.members.pool);
        let records = admitted(&self.media.members.members, plan, &places);
        let mut replayed = Replayed {
            generation_max: places.iter().map(|place| place.header.checkpoint_generation).max().unwrap_or(0),
            ..Replayed::default()
        };
        let start = plan.start.map(|start| start.sequence);
        let proven = records.values().flatten().map(|place| place.header.durable_sequence).max();
        let proven = proven.unwrap_or(0).max(start.unwrap_or(0).saturating_sub(1));
        let mut expected = start;
        let mut group = Changes::new();
        let mut end = plan.start;
        let mut is_cut = false;
        for (sequence, mirrors) in &records {
            let read = payload(&self.media.members.members, mirrors);
            if expected.is_some_and(|expected| expected != *sequence) || read.is_none() {
                let first_lost = expected.unwrap_or(*sequence).min(*sequence);
                if first_lost > proven {
                    is_cut = true;
                    break;
                }
                replayed.gaps += 1;
            }
            expected = Some(sequence + 1);
            let Some((header, changes)) = read else { continue };
            let position = header.at.position.saturating_add(header.record_bytes() as u64);
            end = Some(JournalPosition { position, sequence: sequence.saturating_add(1) });
            group.extend(changes);
            if header.group_end {
                let changes = std::mem::take(&mut group);
                if *sequence > proven && !self.data_is_there(&changes) {
                    is_cut = true;
                    break;
                }
                replayed.groups += 1;
                self.overlay.extend(changes);
            }
        }
        // A proof of what no record is left of, behind all that are.
        if expected.is_some_and(|expected| expected <= proven) {
            replayed.gaps += 1;
        }
        let is_empty = plan.is_clean && records.is_empty();
        replayed.is_end_shown = is_empty || (!is_cut && group.is_empty() && self.end_is_shown(plan, end));
        replayed
    }

    /// Whether the places where the next record would be show that none was written: they are as empty as they were made, hold
    /// an older record, or hold the same on two mirrors (what was torn or has rotted differs).
    fn end_is_shown(&self, plan: &Plan, end: Option<JournalPosition>) -> bool {
        let (Some((circle, _)), Some(end)) = (&plan.told, end) else { return false };
        let Some(turn) = end.position.checked_next_multiple_of(*circle) else { return false };
        [end.position, turn].into_iter().all(|position| {
            let blocks: Vec<Vec<u8>> =
                plan.mirrors.iter().filter_map(|mirror| self.journal_block(*mirror, position % circle)).collect();
            let is_older = |block: &Vec<u8>| {
                JournalHeader::decode(block).is_ok_and(|header| header.at.sequence < end.sequence)
                    || block.iter().all(|byte| *byte == 0)
            };
            let is_doubled = |(at, block): (usize, &Vec<u8>)| blocks[..at].contains(block);
            blocks.iter().any(is_older) || blocks.iter().enumerate().any(is_doubled)
        })
    }

    fn journal_block(&self, mirror: usize, at: u64) -> Option<Vec<u8>> {
        let member = self.media.members.members.get(mirror)?;
        let mut block = vec![0; BLOCK_BYTES];
        member.device.read(member.layout.journal_offset + at, &mut block).ok()?;
        Some(block)
    }

    /// Whether every blob that a group names can be read and verified.
    fn data_is_there(&mut self, changes: &Changes) -> bool {
        let mut is_there = |blob: &BlobValue| {
            let segment = Key::segment(blob.address.segment);
            let own = changes.iter().rev().find(|(changed, _)| *changed == segment).map(|(_, value)| value.clone());
            let value = own.unwrap_or_else(|| self.get(&segment).0)?;
            let place = SegmentValue::decode(&value).ok()?.place;
            let is_right = |bytes: &[u8]| blob.checksums.are_of(bytes);
            self.media.record_at(&blob.address, &place, &is_right)
        };
        changes.iter().filter(|(changed, _)| changed.tree == key::tree::BLOBS).all(|(_, value)| match value {
            None => true,
            Some(bytes) => BlobValue::decode(bytes).ok().is_some_and(|blob| is_there(&blob).is_some()),
        })
    }
}
