//! Which devices belong together, which are left out and why, and which are missing.
//!
//! The newest superblock of all devices speaks for the pool; its device table says who belongs to it. Reads only.
//!
//! Every mount begins an epoch with a random number, and superblocks list the epochs a device took part in. A device whose last
//! epoch is known to the newest superblock was only away: nothing happened on it that the pool does not know, and what it
//! missed is marked in the segment table, so it is used and caught up. A device with an epoch that the newest does not know
//! went on by itself: nobody but a person can say which half counts. Read next: `history.rs`, `void.rs`, `open.rs`.

use std::sync::Arc;

use stere_device::{BufferPool, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, CheckpointPart, CheckpointRecord, DeviceEntry, DeviceIndex, DeviceState, Superblock};
use stere_journal::Tail;
use stere_stripe::Stripe;

use crate::class::DeviceClass;
use crate::error::Error;
use crate::history::{Relation, age, relation};
use crate::identify::{DamagedCopy, Holds, describe_copies, identify, member};
use crate::void::{is_undecided, take_back_void_epochs};

/// An open device that may belong to the pool.
pub struct Candidate {
    pub path: String,
    pub device: Arc<dyn Device>,
}

/// A device of the pool.
#[derive(Clone)]
pub struct Member {
    pub path: String,
    pub device: Arc<dyn Device>,
    pub superblock: Superblock,
    /// Generation of the newest copy when the device was read, whether that copy counts or not.
    pub read_generation: u64,
    /// Its generation before.
    pub previous: Option<Superblock>,
    pub damaged: Vec<DamagedCopy>,
}

/// Why a device that is there is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLeftOut {
    /// Away for so many mounts that nobody can tell whether it went on by itself.
    AwayTooLong,
    /// It went on without the others, and another half was chosen.
    OtherHistory,
    /// The pool does not know it: it was removed or replaced while it was away, or a crash came while it was added.
    NotInTable,
    /// A person took it offline.
    Offline,
    /// It began a mount without the others and holds nothing of it, and a device that may hold something of it is not there.
    Undecided,
}

impl WhyLeftOut {
    /// In words, after "left out: ".
    pub fn words(self) -> &'static str {
        match self {
            WhyLeftOut::AwayTooLong => "it was away too long to tell whether it was written to without the others",
            WhyLeftOut::OtherHistory => "it was written to without the others, and another half was chosen",
            WhyLeftOut::NotInTable => {
                "it was removed from the pool, or replaced, while it was away, or was not added to its end"
            }
            WhyLeftOut::Undecided => {
                "it began a mount without the others, in which nothing happened as far as it knows; attach the pool's missing devices, and it is taken again if they know of nothing either"
            }
            WhyLeftOut::Offline => "it was taken offline; bring it back with `stere device online`",
        }
    }
}

/// A device that is there and not used.
#[derive(Clone)]
pub struct LeftOut {
    pub member: Member,
    pub why: WhyLeftOut,
}

/// A device without a superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameless {
    pub path: String,
    /// What was found in place of one, in words.
    pub found: String,
}

/// What is known beside the devices.
pub struct AssembleOptions<'a> {
    /// Path, name or id of a device whose history counts, where halves have different ones.
    pub prefer: Option<&'a str>,
    /// What a device with this index was called, and where it was, for refusals that cannot read the table.
    pub name_of: &'a dyn Fn(DeviceIndex) -> Option<String>,
    /// The shared log of the pool, where it has one: its last root speaks for the pool.
    pub tail: Option<Arc<Tail>>,
}

impl Default for AssembleOptions<'_> {
    fn default() -> Self {
        AssembleOptions { prefer: None, name_of: &|_| None, tail: None }
    }
}

/// The devices of one pool, judged.
pub struct Assembly {
    /// The newest superblock.
    pub newest: Superblock,
    /// By index; what can be used.
    pub members: Vec<Member>,
    /// There, and not used.
    pub left_out: Vec<LeftOut>,
    /// Devices that do not say who they are, as a dead disk or one that was written over; they count as missing.
    pub nameless: Vec<Nameless>,
    /// The pool's device table.
    pub entries: Vec<DeviceEntry>,
    /// Where the journal and the roots lie, if not on the devices.
    pub tail: Option<Arc<Tail>>,
}

impl Assembly {
    /// Judges devices that are open. They need not be writable.
    pub fn new(candidates: Vec<Candidate>) -> Result<Assembly, Error> {
        Assembly::with(candidates, &AssembleOptions::default())
    }

    /// The same, with what is known beside the devices.
    pub fn with(candidates: Vec<Candidate>, options: &AssembleOptions<'_>) -> Result<Assembly, Error> {
        let (mut members, unnamed) = identify_all(candidates)?;
        members.sort_by_key(|member| (member.superblock.device_index, age(&member.superblock)));
        check_one_pool(&members)?;
        check_no_copies(&members)?;
        let mut left_out = Vec::new();
        if let Some((tail, newest)) = root_of(&members, options)? {
            return Assembly::judge(newest, members, left_out, unnamed, options, Some(tail));
        }
        take_back_void_epochs(&mut members);
        if let Some(prefer) = options.prefer {
            members = choose_half(members, prefer, &mut left_out)?;
        }
        let undecided: Vec<String> =
            members.iter().filter(|member| is_undecided(member, &members)).map(|member| member.path.clone()).collect();
        let members =
            leave_out(members, &mut left_out, WhyLeftOut::Undecided, |member| undecided.contains(&member.path));
        check_one_history(&members)?;
        let mut newest = members.iter().max_by_key(|member| age(&member.superblock)).ok_or(Error::NoDevices)?.clone();
        if is_planted(Bug::StaleSuperblockWins) {
            newest = members.iter().min_by_key(|member| age(&member.superblock)).ok_or(Error::NoDevices)?.clone();
        }
        let members = leave_out(members, &mut left_out, WhyLeftOut::AwayTooLong, |member| {
            relation(member, &newest) == Relation::Unknown
        });
        Assembly::judge(newest.superblock, members, left_out, unnamed, options, None)
    }

    /// Leaves out who does not belong to the pool, and explains what is left.
    fn judge(
        newest: Superblock,
        members: Vec<Member>,
        mut left_out: Vec<LeftOut>,
        unnamed: Vec<Unnamed>,
        options: &AssembleOptions<'_>,
        tail: Option<Arc<Tail>>,
    ) -> Result<Assembly, Error> {
        // Of two devices of one number one was replaced by the other, or was to be when a crash came: the table knows.
        let entries = read_device_table(&newest, &one_of_each_number(&members), options)?;
        let is_known = |member: &Member| entries.iter().any(|entry| is_entry_of(entry, member));
        let members = leave_out(members, &mut left_out, WhyLeftOut::NotInTable, |member| !is_known(member));
        let is_offline = |member: &Member| {
            entries.iter().any(|entry| {
                is_entry_of(entry, member) && DeviceState::from_code(entry.state) == Some(DeviceState::Offline)
            })
        };
        let members = leave_out(members, &mut left_out, WhyLeftOut::Offline, |member| is_offline(member));
        if members.is_empty() {
            return Err(Error::NoDevices);
        }
        let mut assembly = Assembly { newest, members, left_out, nameless: Vec::new(), entries, tail };
        assembly.nameless = assembly.explain(unnamed)?;
        assembly.assert_invariants();
        Ok(assembly)
    }

    fn assert_invariants(&self) {
        let index = |member: &Member| member.superblock.device_index;
        let is_rising = self.members.is_sorted_by(|one, other| index(one) < index(other));
        assert!(is_rising, "each member has a number of its own, and they rise");
        let pool = self.newest.pool;
        assert!(self.members.iter().all(|member| member.superblock.pool == pool), "all members are of one pool");
    }

    /// Devices without a superblock are taken for missing ones that were written over. If nobody is missing, or nobody whose size they
    /// have, they are foreign, and refused with their finding. Nothing is ever written to either.
    fn explain(&self, unnamed: Vec<Unnamed>) -> Result<Vec<Nameless>, Error> {
        let mut lost: Vec<&DeviceEntry> = self.missing();
        lost.retain(|entry| !self.left_out.iter().any(|one| one.member.superblock.device == entry.id));
        let mut nameless = Vec::with_capacity(unnamed.len());
        for Unnamed { path, size_bytes, holds, finding } in unnamed {
            let fits = |entry: &&DeviceEntry| match &holds {
                Holds::NothingOfStere => entry.size_bytes / BLOCK_BYTES as u64 == size_bytes / BLOCK_BYTES as u64,
                _ => true,
            };
            match lost.iter().position(fits) {
                Some(at) => drop(lost.remove(at)),
                // A dead disk may be anybody's, and whoever it was is not here either way.
                None if holds.is_unreadable() => {}
                None => return Err(finding),
            }
            let found = match holds {
                _ if holds.is_unreadable() => "it cannot be read at all".into(),
                Holds::Damaged(copies) => format!("no copy of its superblock is whole ({})", describe_copies(&copies)),
                _ => "it holds no superblock any more: it was written over".into(),
            };
            nameless.push(Nameless { path, found });
        }
        Ok(nameless)
    }

    /// Devices of the table that cannot be used, because they are not there or are left out.
    pub fn missing(&self) -> Vec<&DeviceEntry> {
        let is_there = |entry: &&DeviceEntry| !self.members.iter().any(|member| member.superblock.device == entry.id);
        self.entries.iter().filter(is_there).collect()
    }

    /// Those of the missing that nobody took away on purpose.
    pub fn unexpectedly_missing(&self) -> Vec<&DeviceEntry> {
        let mut missing = self.missing();
        missing.retain(|entry| DeviceState::from_code(entry.state) != Some(DeviceState::Offline));
        missing
    }

    /// Members that were away while the pool changed.
    pub fn returning(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !is_up_to_date(member, &self.newest))
    }

    /// The missing devices in words; `path_of` may know where they were last.
    pub fn describe_missing(&self, path_of: &dyn Fn(&DeviceEntry) -> Option<String>) -> String {
        let describe = |entry: &DeviceEntry| {
            let place = path_of(entry).map(|path| format!(", last at {path}")).unwrap_or_default();
            let labels = [("host", &entry.host), ("shelf", &entry.shelf)];
            let labels: String = labels
                .iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(what, text)| format!(", {what} {text}"))
                .collect();
            let left_out = self.left_out.iter().find(|one| one.member.superblock.device == entry.id);
            let left_out = left_out
                .map(|one| format!("; {} is that device, but it is left out: {}", one.member.path, one.why.words()));
            format!("device '{}' (id {}{place}{labels}{})", entry.name, entry.id, left_out.unwrap_or_default())
        };
        self.missing().into_iter().map(describe).collect::<Vec<_>>().join(" and ")
    }

    /// What is not as it should be, although the pool can be used.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for member in self.members.iter().filter(|member| !member.damaged.is_empty()) {
            let detail = describe_copies(&member.damaged);
            warnings.push(format!("{}: damaged superblock copies ({detail}); a good one was used", member.path));
        }
        for member in self.returning() {
            warnings
                .push(format!("{} was away while the pool changed; it is caught up on what it missed", member.path));
        }
        warnings.extend(self.warnings_of_absent());
        warnings
    }

    /// Those about devices that are not used: they are true until these are back.
    pub(crate) fn warnings_of_absent(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for Nameless { path, found } in &self.nameless {
            warnings.push(format!(
                "{path} counts as missing: {found}; `stere device replace` fills it, or another one, with what the others have"
            ));
        }
        for LeftOut { member, why } in &self.left_out {
            warnings.push(format!("{} is left out: {}", member.path, why.words()));
        }
        warnings
    }

    /// The class of a member.
    pub fn class_of(&self, member: &Member) -> DeviceClass {
        let entry = self.entries.iter().find(|entry| entry.id == member.superblock.device);
        entry.map_or(DeviceClass::Unknown, |entry| DeviceClass::from_code(entry.class))
    }

    /// Gives a member all of the device that it is on by now; tells how many bytes it had and has. Nothing is written.
    pub fn grow(&mut self, index: DeviceIndex) -> Option<(u64, u64)> {
        let member = self.members.iter_mut().find(|member| member.superblock.device_index == index)?;
        let before = member.superblock.layout;
        member.superblock.layout = before.grown(member.device.size_bytes())?;
        assert!(member.superblock.layout.slot_count >= before.slot_count, "a device that grew keeps its slots");
        Some((before.size_bytes, member.superblock.layout.size_bytes))
    }

    /// The newest superblock in the words of a device.
    pub fn newest_for(&self, member: &Member) -> Superblock {
        let own = &member.superblock;
        let newest = &self.newest;
        Superblock {
            generation: newest.generation,
            journal_start: newest.journal_start,
            journal_bytes: newest.journal_bytes,
            journal_devices: newest.journal_devices.clone(),
            epochs: newest.epochs.clone(),
            clean: newest.clean,
            checkpoint: newest.checkpoint.clone(),
            is_log_shared: newest.is_log_shared,
            ..own.clone()
        }
    }
}

/// The shared log and its last root, where the devices say that they do not speak for themselves.
fn root_of(members: &[Member], options: &AssembleOptions<'_>) -> Result<Option<(Arc<Tail>, Superblock)>, Error> {
    let Some(newest) = members.iter().max_by_key(|member| age(&member.superblock)) else { return Ok(None) };
    if !newest.superblock.is_log_shared {
        return Ok(None);
    }
    let pool = newest.superblock.pool_name.clone();
    let Some(tail) = options.tail.clone() else { return Err(Error::LogNeeded { pool }) };
    let Some(root) = tail.root() else { return Err(Error::LogOlder { pool, device: newest.path.clone() }) };
    assert_eq!(root.pool, newest.superblock.pool, "a log is opened for the pool whose devices are there");
    let is_beyond = |member: &&Member| member.superblock.generation > root.generation;
    if let Some(beyond) = members.iter().find(is_beyond) {
        return Err(Error::LogOlder { pool, device: beyond.path.clone() });
    }
    Ok(Some((tail, root)))
}

fn is_entry_of(entry: &DeviceEntry, member: &Member) -> bool {
    entry.id == member.superblock.device && entry.index == member.superblock.device_index
}

/// Takes those out of the members that are not to be used.
fn leave_out(
    members: Vec<Member>,
    left_out: &mut Vec<LeftOut>,
    why: WhyLeftOut,
    is_out: impl Fn(&Member) -> bool,
) -> Vec<Member> {
    let (out, kept): (Vec<Member>, Vec<Member>) = members.into_iter().partition(is_out);
    left_out.extend(out.into_iter().map(|member| LeftOut { member, why }));
    kept
}

/// The devices that share the history of the one that a person chose.
fn choose_half(members: Vec<Member>, prefer: &str, left_out: &mut Vec<LeftOut>) -> Result<Vec<Member>, Error> {
    let is_chosen = |member: &&Member| {
        member.path == prefer
            || member.superblock.device.to_string() == prefer
            || member.path.ends_with(&format!("/{prefer}"))
    };
    let Some(chosen) = members.iter().find(is_chosen).cloned() else {
        let present = members.iter().map(|member| member.path.clone()).collect::<Vec<_>>().join(", ");
        return Err(Error::ChosenNotThere { chosen: prefer.to_owned(), present });
    };
    let is_other = |member: &Member| relation(member, &chosen) == Relation::Split;
    Ok(leave_out(members, left_out, WhyLeftOut::OtherHistory, is_other))
}

/// A device that does not say who it is.
struct Unnamed {
    path: String,
    size_bytes: u64,
    holds: Holds,
    finding: Error,
}

/// The members, and the devices that do not say who they are; where all are such, that is the finding.
fn identify_all(candidates: Vec<Candidate>) -> Result<(Vec<Member>, Vec<Unnamed>), Error> {
    let mut members: Vec<Member> = Vec::with_capacity(candidates.len());
    let mut unnamed: Vec<Unnamed> = Vec::new();
    for Candidate { path, device } in candidates {
        if let Some(other) = members.iter().find(|other| other.path == path) {
            return Err(Error::SameDevice { first: other.path.clone(), second: path });
        }
        let holds = identify(&*device);
        match member(&path, &*device, holds.clone()) {
            Ok(identity) => members.push(Member {
                path,
                device,
                read_generation: identity.superblock.generation,
                superblock: identity.superblock,
                previous: identity.previous,
                damaged: identity.damaged,
            }),
            Err(finding) if matches!(holds, Holds::Damaged(_) | Holds::NothingOfStere) => {
                unnamed.push(Unnamed { path, size_bytes: device.size_bytes(), holds, finding });
            }
            Err(error) => return Err(error),
        }
    }
    match (members.is_empty(), unnamed.pop()) {
        (true, Some(last)) => Err(last.finding),
        (true, None) => Err(Error::NoDevices),
        (false, last) => {
            unnamed.extend(last);
            Ok((members, unnamed))
        }
    }
}

fn check_one_pool(members: &[Member]) -> Result<(), Error> {
    let Some(first) = members.first() else { return Ok(()) };
    match members.iter().find(|member| member.superblock.pool != first.superblock.pool) {
        None => Ok(()),
        Some(second) => Err(Error::TwoPools {
            first: first.path.clone(),
            first_pool: first.superblock.pool_name.clone(),
            second: second.path.clone(),
            second_pool: second.superblock.pool_name.clone(),
        }),
    }
}

fn check_no_copies(members: &[Member]) -> Result<(), Error> {
    for (at, second) in members.iter().enumerate() {
        if let Some(first) = members[..at].iter().find(|first| first.superblock.device == second.superblock.device) {
            return Err(Error::CopiedDevice {
                first: first.path.clone(),
                second: second.path.clone(),
                id: second.superblock.device.to_string(),
            });
        }
    }
    Ok(())
}

/// Refuses halves that were both written to without the other: no order of their generations means anything.
fn check_one_history(members: &[Member]) -> Result<(), Error> {
    for (at, second) in members.iter().enumerate() {
        if let Some(first) = members[..at].iter().find(|first| relation(first, second) == Relation::Split) {
            return Err(Error::SplitHistories { first: first.path.clone(), second: second.path.clone() });
        }
    }
    Ok(())
}

/// Whether a device was there when the newest superblock was written, even if a crash kept its own copy from it.
fn is_up_to_date(member: &Member, newest: &Superblock) -> bool {
    match newest.generation.checked_sub(member.superblock.generation) {
        Some(0) => member.superblock.epochs == newest.epochs,
        Some(1) => holds_checkpoint(member, newest),
        _ => false,
    }
}

/// Whether a device holds its copy of every checkpoint part that it should hold.
fn holds_checkpoint(member: &Member, newest: &Superblock) -> bool {
    let index = member.superblock.device_index;
    let is_here = |part: &&CheckpointPart| {
        let place = &part.place;
        place.scheme.data == 1
            && (0..place.chunks.len()).any(|chunk| place.chunks[chunk].device == index && !place.is_missing(chunk))
    };
    let Ok(stripe) = stripe_of(newest, std::slice::from_ref(member)) else { return false };
    newest.checkpoint.iter().filter(is_here).all(|part| read_part(&stripe, part).is_ok())
}

fn stripe_of(newest: &Superblock, members: &[Member]) -> Result<Stripe, String> {
    let stripe = Stripe::new(newest.layout.chunk_bytes, BufferPool::new(1 << 20));
    for Member { superblock, device, .. } in members {
        stripe
            .attach(superblock.device_index, device.clone(), superblock.layout, stere_stripe::READ_COST_FAST)
            .map_err(|error| error.to_string())?;
    }
    Ok(stripe)
}

fn read_part(stripe: &Stripe, part: &CheckpointPart) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; part.address.length as usize];
    let verify = |bytes: &[u8]| stere_format::CheckpointRecord::part_checksum(bytes) == part.crc32c;
    stere_log::read_whole(stripe, &part.place, &part.address, &mut bytes, &verify)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// The newest device of each number.
fn one_of_each_number(members: &[Member]) -> Vec<Member> {
    let number = |member: &Member| member.superblock.device_index;
    let is_newest = |member: &&Member| {
        let mut others = members.iter().filter(|other| number(other) == number(member));
        others.all(|other| age(&other.superblock) <= age(&member.superblock))
    };
    let mut newest: Vec<Member> = members.iter().filter(is_newest).cloned().collect();
    newest.dedup_by_key(|member| number(member));
    newest
}

/// Reads the device table from the checkpoint that the newest superblock names.
fn read_device_table(
    newest: &Superblock,
    members: &[Member],
    options: &AssembleOptions<'_>,
) -> Result<Vec<DeviceEntry>, Error> {
    let damaged = |detail: String| {
        // What is missing cannot be named by more than its place in the table: the names are in what cannot be read.
        let wanted = newest.checkpoint.iter().flat_map(|part| part.place.chunks.iter().map(|place| place.device));
        let mut absent: Vec<u16> = wanted
            .chain(newest.journal_devices.iter().copied())
            .filter(|index| !members.iter().any(|member| member.superblock.device_index == *index))
            .collect();
        absent.sort_unstable();
        absent.dedup();
        let pool = newest.pool_name.clone();
        match absent.is_empty() {
            true => Error::MetadataDamaged { pool, detail },
            false => {
                let name = |index: &DeviceIndex| {
                    (options.name_of)(*index).unwrap_or_else(|| format!("device number {}", index + 1))
                };
                let missing: Vec<String> = absent.iter().map(name).collect();
                Error::MetadataMissing { pool, missing: missing.join(", "), detail }
            }
        }
    };
    let stripe = stripe_of(newest, members).map_err(damaged)?;
    let mut bytes = Vec::new();
    for part in &newest.checkpoint {
        bytes.extend(read_part(&stripe, part).map_err(damaged)?);
    }
    let record = CheckpointRecord::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.pool != newest.pool {
        return Err(damaged("its checkpoint is of another pool".into()));
    }
    Ok(record.devices)
}
