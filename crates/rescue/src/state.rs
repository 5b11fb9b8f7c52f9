//! The state of the pool that is rescued: the newest whose tree has a readable root, with the journal on top.
//!
//! Roots are tried in this order: what superblocks name, newest generation first; checkpoints whose metadata is on volumes;
//! checkpoint records found in segments; none at all, and then leaves found in segments stand in for the whole tree. Read next: `journal.rs`, `keys.rs`.

use serde::Serialize;
use stere_format::{CheckpointPart, CheckpointRecord, JournalPosition, Superblock};

use crate::journal::{Plan, Replayed};
use crate::keys::{Keys, Root};
use crate::media::Media;
use crate::sources::Member;

/// Which state of the pool was found.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// The pool's name, or its id where no superblock tells the name.
    pub pool: String,
    /// `superblock`, `volume` (a copy of the metadata), `checkpoint` (found in a segment), or `segments` (no root is left).
    pub root: &'static str,
    pub generation: u64,
    pub journal_groups: u64,
    /// Whether it is certain that there was no newer state.
    pub is_newest: bool,
    /// Why not, and what else is to be known.
    pub notes: Vec<String>,
    /// Devices of the pool that were not given.
    pub missing: Vec<String>,
}

/// A root that can be tried.
struct Candidate {
    origin: &'static str,
    superblock: Option<Superblock>,
    record: CheckpointRecord,
    sequence_max: Option<u64>,
}

impl Media {
    /// The checkpoint record in these parts.
    fn checkpoint(&mut self, superblock: &Superblock) -> Option<CheckpointRecord> {
        let mut bytes = Vec::new();
        for part in &superblock.checkpoint {
            let is_right = |bytes: &[u8]| CheckpointRecord::part_checksum(bytes) == part.crc32c;
            bytes.extend(self.record(&part.address, Some(&part.place), &is_right)?);
        }
        let record = CheckpointRecord::decode(&bytes).ok()?;
        (record.pool == superblock.pool && record.generation <= superblock.generation).then_some(record)
    }

    /// The sequence of the row that a part lies in: no row behind it belongs to this checkpoint.
    fn sequence_of(&self, part: Option<&CheckpointPart>) -> Option<u64> {
        let part = part?;
        let header = self.row_header(part.address.segment, &part.place, part.address.row_block);
        header.map(|header| header.sequence)
    }

    fn adopt(&mut self, record: &CheckpointRecord) {
        self.meta = record.meta_segments.iter().map(|(id, value)| (*id, value.place.clone())).collect();
    }

    /// Superblocks of all devices, each generation once, newest first.
    fn superblocks(&self) -> Vec<Superblock> {
        let mut all: Vec<Superblock> = Vec::new();
        for superblock in self.members.members.iter().flat_map(|member| &member.superblocks) {
            if !all.iter().any(|other| says_the_same(other, superblock)) {
                all.push(superblock.clone());
            }
        }
        all.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
        all
    }

    /// The first root that can be read; else the newest record, whose tree then has to be patched from its top.
    fn choose(&mut self) -> (Option<Candidate>, bool) {
        let mut first: Option<Candidate> = None;
        let mut is_first = true;
        for superblock in self.superblocks() {
            let record = self.checkpoint(&superblock);
            let is_newest = std::mem::take(&mut is_first);
            let Some(record) = record else { continue };
            let sequence_max = self.sequence_of(superblock.checkpoint.last());
            let candidate = Candidate { origin: "superblock", superblock: Some(superblock), record, sequence_max };
            if self.has_root(&candidate.record) {
                return (Some(candidate), is_newest);
            }
            first = first.or(Some(candidate));
        }
        for record in std::mem::take(&mut self.members.records) {
            let candidate = Candidate { origin: "volume", superblock: None, record, sequence_max: None };
            if self.has_root(&candidate.record) {
                return (Some(candidate), false);
            }
            first = first.or(Some(candidate));
        }
        if first.is_none() {
            for (record, sequence) in self.checkpoints() {
                let (origin, sequence_max) = ("checkpoint", Some(sequence));
                let candidate = Candidate { origin, superblock: None, record, sequence_max };
                if self.has_root(&candidate.record) {
                    return (Some(candidate), false);
                }
                first = first.or(Some(candidate));
            }
        }
        (first, false)
    }

    fn has_root(&mut self, record: &CheckpointRecord) -> bool {
        self.adopt(record);
        record.root.is_none_or(|root| self.node(&root).is_some())
    }
}

fn says_the_same(one: &Superblock, other: &Superblock) -> bool {
    one.generation == other.generation && one.checkpoint == other.checkpoint && one.epochs == other.epochs
}

/// Chooses the state, replays the journal, and says how certain it all is.
pub(crate) fn find(mut media: Media) -> (Keys, State) {
    let superblocks = media.superblocks();
    let (candidate, is_first_choice) = media.choose();
    let newest = superblocks.first();
    let mut state = State {
        pool: newest.map_or_else(|| media.members.pool.to_string(), |superblock| superblock.pool_name.clone()),
        root: candidate.as_ref().map_or("segments", |candidate| candidate.origin),
        generation: 0,
        journal_groups: 0,
        is_newest: is_first_choice,
        notes: Vec::new(),
        missing: Vec::new(),
    };
    // Of volumes alone all is said already.
    let has_devices = newest.is_some() || state.root != "volume";
    if has_devices {
        judge_superblocks(&media, &superblocks, &mut state);
    }
    let (root, sequence_max) = match &candidate {
        Some(candidate) => {
            media.adopt(&candidate.record);
            let generation = candidate.superblock.as_ref().map(|superblock| superblock.generation);
            state.generation = generation.unwrap_or(candidate.record.generation);
            state.missing = missing(&media, &candidate.record);
            (candidate.record.root.map_or(Root::Empty, Root::Node), candidate.sequence_max)
        }
        None => (Root::Unknown, None),
    };
    if candidate.is_none() {
        state.is_newest = false;
        state.notes.push("no root of the tree is left; names and contents are put together from segments".into());
    } else if state.root == "volume" {
        state.notes.push(
            "names and the map of contents are those of a medium's copy; what was changed later is not in it".into(),
        );
    } else if !is_first_choice {
        state.notes.push("the newest root cannot be read; an older one is used".into());
    }
    let plan = plan(&media, candidate.as_ref(), newest);
    let mut keys = Keys::new(media, root, sequence_max);
    let replayed = keys.replay(&plan);
    if has_devices {
        judge_journal(&replayed, &mut state);
    }
    (keys, state)
}

fn plan(media: &Media, candidate: Option<&Candidate>, newest: Option<&Superblock>) -> Plan {
    let superblock = candidate.and_then(|candidate| candidate.superblock.as_ref()).or(newest);
    // Whatever superblock is newest knows the epochs of all; replay starts where the chosen root's does.
    let epochs = newest.or(superblock).map(|superblock| superblock.epochs.clone());
    let start: Option<JournalPosition> = match candidate {
        Some(Candidate { superblock: Some(superblock), .. }) => Some(superblock.journal_start),
        Some(candidate) => Some(candidate.record.journal_start),
        None => None,
    };
    let told = superblock.zip(epochs).map(|(superblock, epochs)| (superblock.journal_bytes, epochs));
    let is_clean = newest.is_some_and(|newest| newest.clean);
    let is_mirror = |member: &Member| {
        let own = member.superblocks.first();
        own.zip(newest).is_some_and(|(own, newest)| {
            own.generation == newest.generation && newest.journal_devices.contains(&member.index)
        })
    };
    let members = media.members.members.iter().enumerate();
    let mirrors = members.filter(|(_, member)| is_mirror(member)).map(|(number, _)| number).collect();
    Plan { start, told, is_clean, mirrors }
}

fn judge_superblocks(media: &Media, superblocks: &[Superblock], state: &mut State) {
    let Some(newest) = superblocks.first() else {
        state.is_newest = false;
        state.notes.push("no superblock is left".into());
        return;
    };
    if superblocks.iter().skip(1).any(|other| other.generation == newest.generation) {
        state.is_newest = false;
        state.notes.push("the devices went on apart from each other; one side's newest state is used".into());
    }
    let shows = |member: &Member| {
        member.is_newest_shown && member.superblocks.first().is_some_and(|own| own.generation == newest.generation)
    };
    if !media.members.members.iter().any(shows) {
        state.is_newest = false;
        state.notes.push("superblocks are damaged where a newer one may have been".into());
    }
}

fn judge_journal(replayed: &Replayed, state: &mut State) {
    state.journal_groups = replayed.groups;
    if replayed.gaps > 0 {
        state.is_newest = false;
        state.notes.push(format!("journal records are lost in {} places; what is left of it is used", replayed.gaps));
    }
    if !replayed.is_end_shown {
        state.is_newest = false;
        state.notes.push("the end of the journal cannot be told from damage; the last changes may be lost".into());
    }
    if replayed.generation_max > state.generation {
        state.is_newest = false;
        let newer = replayed.generation_max;
        state.notes.push(format!("the journal follows generation {newer}, whose root is not found"));
    }
}

fn missing(media: &Media, record: &CheckpointRecord) -> Vec<String> {
    let is_here = |index: u16| media.members.members.iter().any(|member| member.index == index);
    record.devices.iter().filter(|entry| !is_here(entry.index)).map(|entry| entry.name.clone()).collect()
}
