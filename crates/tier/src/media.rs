//! The table of volumes: keys of the pool, so that every mount knows them; and which of them can be reached now.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_device::{Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{
    ClassValue, InodeValue, Key, Succession, TERTIARY_MAX, Tertiary, TierMarks, VolumeEntry, VolumeLabel, key,
};
use stere_log::{Io, Segment};

use super::metadata::Copies;
use stere_engine::{Engine, Error};
use stere_recall::{Known, Volumes, object_bytes, read_label, stranger};

/// How a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    pub entry: VolumeEntry,
    /// Somebody knows how to reach it.
    pub is_attached: bool,
    /// What it said last, where that was bad.
    pub complaint: Option<String>,
    /// That is that it is full.
    pub is_full: bool,
    /// Segments it has, and their live bytes.
    pub segments: u64,
    pub live_bytes: u64,
    /// Bytes of their objects; what of them is not alive can be had back by repacking.
    pub stored_bytes: u64,
    /// Of those, what is nowhere else.
    pub only_here_bytes: u64,
    /// Segments that it is known to lack, or to have wrong.
    pub damaged_segments: u64,
    /// Segments that are to be copied to it.
    pub waiting_segments: u64,
    pub waiting_bytes: u64,
    /// The checkpoint whose metadata is there; none that is known.
    pub metadata_generation: Option<u64>,
}

fn failed(error: VolumeError) -> Error {
    Error::Pool(error.to_string())
}

/// The volumes of a pool: which there are, what they cost, and who takes over from whom.
pub struct Media {
    pub(crate) engine: Arc<Engine>,
    pub(crate) volumes: Arc<Volumes>,
    copies: Arc<Copies>,
}

impl Media {
    pub(super) fn new(engine: &Arc<Engine>, copies: &Arc<Copies>) -> Media {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        Media { engine, volumes, copies: copies.clone() }
    }

    /// Reads the table; whether there is anything in it.
    pub(super) fn load(&self) -> Result<bool, Error> {
        let entries = self.engine.view(Io::BLOCKING, |view| {
            let mut entries = Vec::new();
            let (from, to) =
                (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM, TERTIARY_MAX as u64, 0, 0));
            view.scan(from, to, |key, bytes| {
                if key.kind == key::kind::VOLUME {
                    entries.push(VolumeEntry::decode(key.object, bytes));
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(entries)
        })?;
        let mut table = self.volumes.table.write();
        for entry in entries {
            let bad =
                |error: stere_format::DecodeError| Error::BadValue { what: "a medium", detail: error.to_string() };
            let entry = entry.map_err(bad)?;
            if let Succession::Retired(_) = entry.succession {
                self.volumes.retired.write().insert(entry.number, entry);
                continue;
            }
            table.insert(entry.number, Known { entry, volume: None, complaint: None, is_full: false });
        }
        let is_any = !table.is_empty();
        drop(table);
        Ok(is_any)
    }

    /// The volumes of the pool.
    pub fn volumes(&self) -> Vec<VolumeEntry> {
        self.volumes.table.read().values().map(|known| known.entry.clone()).collect()
    }

    /// Those that have a segment and give it, as far as is known.
    pub fn good_of(&self, segment: &Segment) -> u16 {
        self.volumes.good(segment)
    }

    /// How each of them is; goes through the segment table.
    pub fn volume_statuses(&self) -> Vec<VolumeStatus> {
        let known: BTreeMap<u8, Known> = self.volumes.table.read().clone();
        let segments = self.engine.log().segments.everywhere();
        let status = |known: &Known| {
            let bit = known.entry.bit();
            let mut status = VolumeStatus {
                entry: known.entry.clone(),
                is_attached: known.volume.is_some(),
                complaint: known.complaint.clone(),
                is_full: known.is_full,
                segments: 0,
                live_bytes: 0,
                stored_bytes: 0,
                only_here_bytes: 0,
                damaged_segments: 0,
                waiting_segments: 0,
                waiting_bytes: 0,
                metadata_generation: self.copies.generation_on(known.entry.number),
            };
            for segment in segments.iter().filter(|segment| segment.live_bytes() > 0) {
                let Tertiary { wanted, there } = segment.tertiary();
                let live_bytes = segment.live_bytes();
                if there & bit != 0 {
                    status.segments += 1;
                    status.damaged_segments += u64::from(self.volumes.is_bad(segment, bit));
                    status.live_bytes += live_bytes;
                    status.stored_bytes += object_bytes(segment);
                    status.only_here_bytes += if there == bit && segment.is_released() { live_bytes } else { 0 };
                } else if wanted & bit != 0 {
                    status.waiting_segments += 1;
                    status.waiting_bytes += live_bytes;
                }
            }
            status
        };
        known.values().map(status).collect()
    }

    /// The set that a name, or several with `+` between them, stand for.
    pub fn tiers_of(&self, names: &str) -> Option<u16> {
        let table = self.volumes.table.read();
        let bit = |name: &str| table.values().find(|known| known.entry.name == name).map(|known| known.entry.bit());
        names.split('+').map(bit).try_fold(0, |set, bit| Some(set | bit?))
    }

    /// The names of a set; of volumes that were retired, those of their heirs.
    pub fn tier_names(&self, set: u16) -> String {
        let set = self.volumes.with_heirs(set);
        let table = self.volumes.table.read();
        let names = (0..TERTIARY_MAX as u8).filter(|number| set >> number & 1 == 1);
        let name =
            |number: u8| table.get(&number).map_or_else(|| format!("#{number}"), |known| known.entry.name.clone());
        names.map(name).collect::<Vec<_>>().join("+")
    }

    /// Where files go whose policy says no more than that they go down: the first volume.
    pub fn usual_tier(&self) -> u16 {
        let table = self.volumes.table.read();
        let is_taking = |known: &&Known| !known.entry.is_offline && known.entry.succession == Succession::Stays;
        table.values().find(is_taking).map_or(0, |known| known.entry.bit())
    }

    /// When archived files are released by themselves.
    pub fn tier_marks(&self, io: Io<'_>) -> Result<TierMarks, Error> {
        let value = self.engine.view(io, |view| view.get(&Key::tier_marks()))?;
        let marks = value.and_then(|bytes| TierMarks::decode(&bytes).ok());
        Ok(marks.unwrap_or_default())
    }

    pub fn set_tier_marks(&self, marks: TierMarks) -> Result<(), Error> {
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::tier_marks(), &marks.encode());
            Ok::<_, Error>(())
        })?;
        self.engine.commit(Io::BLOCKING)
    }

    /// Whether the pool has volumes.
    #[inline]
    pub fn has_volumes(&self) -> bool {
        !self.volumes.table.read().is_empty()
    }

    /// The numbers of volumes that policies name, each with how many inodes do; in place of one that was retired its heir. A volume that
    /// was removed may be among them.
    pub fn numbers_in_policies(&self) -> Result<BTreeMap<u8, u64>, Error> {
        let mut numbers = BTreeMap::new();
        for set in self.sets_in_policies()? {
            let set = self.volumes.with_heirs(set);
            for number in (0..TERTIARY_MAX as u8).filter(|number| set >> number & 1 == 1) {
                *numbers.entry(number).or_default() += 1;
            }
        }
        Ok(numbers)
    }

    /// The set of volumes that each inode names whose policy or rules name any, and each class, as it is stored.
    pub(super) fn sets_in_policies(&self) -> Result<Vec<u16>, Error> {
        self.engine.view(Io::BLOCKING, |view| {
            let (mut inodes, mut sets) = (Vec::new(), Vec::new());
            let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
            view.scan(from, to, |key, bytes| {
                inodes.extend((key.kind == key::kind::TIERED).then_some(key.object));
                if key.kind == key::kind::CLASS
                    && let Ok(class) = ClassValue::decode(bytes)
                {
                    let tiers = class.media.tiers;
                    sets.extend((tiers != 0 && tiers >> TERTIARY_MAX == 0).then_some(tiers));
                }
                ControlFlow::Continue(())
            })?;
            for inode in inodes {
                // Those that are gone name nothing.
                let Some(bytes) = view.get(&Key::inode(inode))? else { continue };
                let value = InodeValue::decode(&bytes)
                    .map_err(|error| Error::BadValue { what: "an inode", detail: error.to_string() })?;
                sets.push(value.policy.map_or(0, |policy| policy.tiers | policy.locked.tiers));
            }
            for number in 0..TERTIARY_MAX as u8 {
                let mut directories = Vec::new();
                view.scan(Key::media_rules(number, 0), Key::media_rules(number, u64::MAX), |key, _| {
                    directories.push(key.position);
                    ControlFlow::Continue(())
                })?;
                for directory in directories {
                    // The pool's rules have no directory; one that is gone has no rules.
                    if directory == 0 || view.get(&Key::inode(directory))?.is_some() {
                        sets.push(1 << number);
                    }
                }
            }
            Ok(sets)
        })
    }

    /// A number for a newcomer: one that nothing names, or what was meant for another volume would go to it.
    fn free_number(&self, known: &[VolumeEntry]) -> Result<u8, Error> {
        let segments = self.engine.log().segments.everywhere();
        let in_policies = self.sets_in_policies()?;
        let is_taken = |number: &u8| known.iter().any(|known| known.number == *number);
        let is_named = |number: &u8| {
            segments.iter().any(|segment| segment.tertiary().wanted >> number & 1 == 1)
                || (self.volumes.is_named_by(&in_policies, *number) && !is_planted(Bug::NumberReused))
        };
        let mut numbers = 0..TERTIARY_MAX as u8;
        if let Some(number) = numbers.clone().find(|number| !is_taken(number) && !is_named(number)) {
            return Ok(number);
        }
        Err(Error::Pool(match numbers.find(|number| !is_taken(number)) {
            None => format!("a pool has at most {TERTIARY_MAX} media; remove one first"),
            Some(number) => format!(
                "every number that is free was a removed medium's and is still asked for; `stere find 'tier=#{number}' PATH` lists what asks for one of them, and `stere find 'tier=NAME' PATH` what asks for one whose heir is NAME: set their user.stere.tier to another medium or to none"
            ),
        }))
    }

    /// Makes a volume part of the pool: labels it, and lists it. `name` and `place` are in the entry, its number is given here.
    /// Durable when it returns. A volume that belongs to somebody is taken only with `force`.
    pub fn add_volume(
        &self,
        mut entry: VolumeEntry,
        volume: Arc<dyn Volume>,
        pool_name: &str,
        force: bool,
    ) -> Result<u8, Error> {
        self.engine.check_writable()?;
        let refused = |text: String| Err(Error::Pool(text));
        let known = self.volumes();
        if known.iter().any(|known| known.name == entry.name) {
            return refused(format!("the pool has a medium named '{}' already; give another name", entry.name));
        }
        if entry.name.is_empty() || entry.name == "none" || entry.name.contains(['+', '/', ' ', ',']) {
            return refused(format!(
                "'{}' cannot be the name of a medium; use letters, digits and hyphens",
                entry.name
            ));
        }
        let number = self.free_number(&known)?;
        let label = read_label(&*volume).map_err(failed)?;
        if let Some(label) = label.filter(|_| !force) {
            return refused(format!(
                "{} is medium '{}' of the pool '{}' already; use `stere device online` if it has moved, another directory or prefix, or --force to take it",
                volume.describe(),
                label.name,
                label.pool_name
            ));
        }
        assert!(usize::from(number) < TERTIARY_MAX, "a number has a bit in every set");
        entry.number = number;
        let (pool, pool_name, name) = (self.engine.log().pool_id(), pool_name.to_owned(), entry.name.clone());
        let label = VolumeLabel { pool, pool_name, volume: entry.id, name };
        volume.put(VolumeLabel::OBJECT, &label.encode()).map_err(failed)?;
        // One that lies from the start would be a stranger the next time.
        if read_label(&*volume).map_err(failed)?.is_none_or(|found| found != label) {
            return refused(format!(
                "{} does not give back the label that was written; try another place",
                volume.describe()
            ));
        }
        let bytes = entry.encode();
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::volume(number), &bytes);
            Ok::<_, Error>(())
        })?;
        self.copies.forget(number);
        self.volumes.retired.write().remove(&number);
        self.volumes
            .table
            .write()
            .insert(number, Known { entry, volume: Some(volume), complaint: None, is_full: false });
        self.engine.commit(Io::BLOCKING)?;
        Ok(number)
    }

    /// Tells how a volume of the table is reached. With `checks` it must be there and be the one it should be.
    pub fn attach_volume(
        &self,
        number: u8,
        volume: Arc<dyn Volume>,
        place: Option<&str>,
        checks: bool,
    ) -> Result<(), Error> {
        let known = self.volumes.table.read().get(&number).map(|known| known.entry.clone());
        let Some(mut entry) = known else { return Err(Error::Pool("the pool has no such medium".into())) };
        if checks {
            let found = stranger(read_label(&*volume).map_err(failed)?, entry.id);
            if let Some(found) = found {
                let volume = format!("{} (for medium {})", volume.describe(), entry.name);
                return Err(failed(VolumeError::Stranger { volume, found }));
            }
        }
        let is_moved = place.is_some_and(|place| place != entry.place);
        if (is_moved || entry.is_offline) && checks {
            entry.place = place.unwrap_or(&entry.place).to_owned();
            entry.is_offline = false;
            self.put_volume(&entry)?;
        }
        self.copies.forget(number);
        self.volumes
            .table
            .write()
            .insert(number, Known { entry, volume: Some(volume), complaint: None, is_full: false });
        self.volumes.stuck.lock().clear();
        Ok(())
    }

    pub(super) fn put_volume(&self, entry: &VolumeEntry) -> Result<(), Error> {
        let bytes = entry.encode();
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::volume(entry.number), &bytes);
            Ok::<_, Error>(())
        })?;
        self.engine.commit(Io::BLOCKING)
    }

    /// Somebody looked whether a volume is there, for nobody in particular.
    pub fn note_looked_for(&self, number: u8, error: Option<&VolumeError>) {
        self.volumes.note_looked_for(number, error);
    }

    /// Goes on without a volume until it is attached again.
    pub fn take_volume_away(&self, number: u8) -> Result<(), Error> {
        self.engine.check_writable()?;
        let known = self.volumes.table.read().get(&number).map(|known| known.entry.clone());
        let Some(entry) = known else { return Err(Error::Pool("the pool has no such medium".into())) };
        let entry = VolumeEntry { is_offline: true, ..entry };
        self.put_volume(&entry)?;
        self.copies.forget(number);
        self.volumes.table.write().insert(number, Known { entry, volume: None, complaint: None, is_full: false });
        Ok(())
    }

    /// Forgets a volume. Refused while something is only there. Volumes that were being retired to it are not any more.
    pub fn remove_volume(&self, number: u8) -> Result<(), Error> {
        self.engine.check_writable()?;
        let _alone = (self.volumes.work.lock(), self.volumes.uploads.write());
        let bit = 1u16 << number;
        let segments = self.engine.log().segments.everywhere();
        let is_only_here = |segment: &&Arc<stere_log::Segment>| {
            segment.is_released() && segment.tertiary().there == bit && segment.live_bytes() > 0
        };
        let only_here: Vec<_> = segments.iter().filter(is_only_here).collect();
        if !only_here.is_empty() {
            let bytes: u64 = only_here.iter().map(|segment| segment.live_bytes()).sum();
            return Err(Error::Pool(format!(
                "{bytes} bytes in {} segments are on this medium only; copy them to another one (`stere media retire`) or bring them back (`stere tier stage`) first",
                only_here.len()
            )));
        }
        self.end_retirements_to(number)?;
        self.forget_volume(number, None)
    }

    /// Takes a volume out of all sets and out of the table; what is left of it there is the entry that names its heir, if it has one. The
    /// caller lets nobody copy out meanwhile.
    pub(super) fn forget_volume(&self, number: u8, left: Option<VolumeEntry>) -> Result<(), Error> {
        let bit = 1u16 << number;
        self.engine.log().end_segments(&|segment| segment.tertiary().wanted & bit != 0);
        let segments = self.engine.log().segments.everywhere();
        {
            let mut change = self.engine.change_segments();
            for segment in segments.iter().filter(|segment| segment.tertiary().wanted & bit != 0) {
                let Tertiary { wanted, there } = segment.tertiary();
                if segment.is_released() && there == bit {
                    // It has no live bytes, and goes with the next commit.
                    continue;
                }
                segment.set_tertiary(Tertiary { wanted: wanted & !bit, there: there & !bit });
                change.enter(segment);
            }
            change.take_effect();
        }
        self.engine.update(Io::BLOCKING, |transaction| {
            match &left {
                Some(entry) => transaction.put(Key::volume(number), &entry.encode()),
                None => transaction.delete(Key::volume(number)),
            }
            Ok::<_, Error>(())
        })?;
        if let Some(entry) = left {
            self.volumes.retired.write().insert(number, entry);
        }
        self.volumes.table.write().remove(&number);
        self.engine.commit(Io::BLOCKING)
    }

    /// Whether a volume of this set can be asked, and answered when it was asked last.
    pub fn can_reach(&self, set: u16) -> bool {
        self.volumes.is_answering(set)
    }

    /// The volumes that have known damage on them, as a set.
    pub fn damaged_volumes(&self) -> u16 {
        let segments = self.engine.damage().segments_on_volumes();
        segments
            .iter()
            .filter_map(|id| self.engine.log().segments.get(*id))
            .fold(0, |set, segment| set | segment.tertiary().there)
    }

    /// What the pool knows of damage on volumes says which are to blame.
    pub(crate) fn load_bad_objects(&self) {
        for id in self.engine.damage().segments_on_volumes() {
            if let Some(segment) = self.engine.log().segments.get(id) {
                self.volumes.note_bad(id, segment.tertiary().there);
            }
        }
    }

    /// The volumes that a set stands for now: each that was retired is its heir.
    pub fn in_place_of(&self, set: u16) -> u16 {
        self.volumes.with_heirs(set)
    }
}
