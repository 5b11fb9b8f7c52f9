//! Quotas in histories: limits of bytes and inodes, some only for a while, and what they must refuse.
//!
//! Everything belongs to user 0, group 0 and, from the first limit on, to the volume that the root is made: so what counts for each of
//! them is all that the model has, and the least that one of them leaves is what there may be more. What holds for all other users
//! holds for nobody here. Whatever a crash leaves, accounts must be what is there, and a while that had begun for good goes on.
//! Not where the pool may get full, keeps versions or is damaged beyond what copies bear. Read next: `model.rs`, `docs/design/volumes.md`.

use stere_naming::{Account, AccountValue, AccountsState, Error, Holder, Io, Limits};

use crate::area::Area;
use crate::history::{Budget, History, Stop};
use crate::model::{Errno, Kind, Model, Node, ROOT};
use crate::operation::Operation;
use crate::pool::{caller, timestamp};
use crate::random::Random;

const BLOCK: u64 = 4096;
/// Of names or a target, and of attributes, of each inode.
const METADATA_FREE: u64 = 512;
/// What an encrypted name takes in a directory.
const ENCRYPTED_NAME_MAX: u64 = 24 + 271;
/// More than one call adds to names and attributes.
const ATTRIBUTES_MAX: u64 = 80 << 10;
const DAY_SECONDS: i64 = 86_400;
/// Whiles end in the middle of days, and days go by at once: so nothing comes near the end of one.
const HALF_DAY_SECONDS: i64 = DAY_SECONDS / 2;
/// Between a change in memory and when it is saved.
const SAVED_SECONDS_MAX: i64 = 4 * 3600;

/// What is limited, by whom, and how. A history has the numbers of these.
pub const HOLDERS: u8 = 4;
/// Bytes, inodes, bytes for a while, inodes for a while, nothing any more.
pub const MANNERS: u8 = 5;

/// One limit that may be gone beyond for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Soft {
    most: Option<u64>,
    /// Since when there is more.
    since: Option<i64>,
}

/// The limits of one holder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    bytes: Option<u64>,
    inodes: Option<u64>,
    soft_bytes: Soft,
    soft_inodes: Soft,
    days: i64,
}

/// All limits of a history.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    is_on: bool,
    /// Room was set aside behind the end of a file, which the model does not know.
    is_spoilt: bool,
    volume: u32,
    held: [Held; HOLDERS as usize],
    /// What was held after each step since the last acknowledged sync.
    since_sync: Vec<[Held; HOLDERS as usize]>,
}

impl Held {
    fn grace_seconds(&self) -> i64 {
        self.days * DAY_SECONDS + HALF_DAY_SECONDS
    }

    /// How much more there may be, of bytes and of inodes.
    fn room(&self, (bytes, inodes): (u64, u64), now: i64) -> (u64, u64) {
        let is_over = |soft: &Soft| soft.since.is_some_and(|since| now >= since + self.grace_seconds());
        let least = |hard: Option<u64>, soft: &Soft, is: u64| {
            let late = soft.most.filter(|_| is_over(soft));
            [hard, late].into_iter().flatten().map(|most| most.saturating_sub(is)).min().unwrap_or(u64::MAX)
        };
        (least(self.bytes, &self.soft_bytes, bytes), least(self.inodes, &self.soft_inodes, inodes))
    }

    fn watch(&mut self, (bytes, inodes): (u64, u64), now: i64) {
        for (soft, is) in [(&mut self.soft_bytes, bytes), (&mut self.soft_inodes, inodes)] {
            soft.since = soft.most.filter(|most| is > *most).map(|_| soft.since.unwrap_or(now));
        }
    }
}

/// Puts limits into a history, and days that go by after some.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(12);
    for _ in 0..random.between(2, 6) {
        let (holder, manner) = (random.below(u64::from(HOLDERS)) as u8, random.below(u64::from(MANNERS)) as u8);
        let room = *random.pick(&[0, 1, 7, 40, 200]);
        let days = random.below(3) as u8;
        operations.insert(at, Operation::Limit { holder, manner, room, days });
        at += 1;
        if random.chance(1, 2) {
            at = (at + random.below(10) as usize).min(operations.len());
            operations.insert(at, Operation::PassDays { days: random.between(1, 4) as u8 });
            at += 1;
        }
        at = (at + random.below(20) as usize).min(operations.len());
    }
    operations.insert(at, Operation::Check);
}

/// What so many bytes of metadata count: a little is free.
fn counted_metadata(bytes: u64) -> u64 {
    if bytes <= METADATA_FREE { 0 } else { in_blocks(bytes) }
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

impl History {
    fn holder(&self, number: usize) -> Account {
        match number {
            0 => Account { holder: Holder::User, number: 0 },
            1 => Account { holder: Holder::Group, number: 0 },
            2 => Account { holder: Holder::Volume, number: self.quotas.volume },
            _ => Account { holder: Holder::User, number: AccountValue::OTHERS },
        }
    }

    fn account(&self, number: usize) -> Result<AccountValue, Error> {
        let whose = self.holder(number);
        let accounts = self.mounted().files.quotas().accounts(Io::BLOCKING, whose.holder)?;
        Ok(accounts.into_iter().find(|info| info.account == whose).map(|info| info.value).unwrap_or_default())
    }

    /// What an inode counts: its content in whole blocks, its names or target, and its attributes.
    pub(crate) fn counted_bytes(&self, inode: u64, node: &Node) -> u64 {
        let content = node.content().map_or(0, |content| in_blocks(content.size()));
        let (mut names, attributes) = node.metadata_bytes();
        // What an encrypted name takes the model does not know; the pool's own check proves the sizes of directories.
        if let (Kind::Directory(entries), true) = (&node.kind, self.may_be_encrypted())
            && entries.len() as u64 * ENCRYPTED_NAME_MAX > METADATA_FREE
        {
            names = self.mounted().files.getattr(&caller(&self.machine), inode).map_or(names, |found| found.size);
        }
        content + counted_metadata(names) + counted_metadata(attributes)
    }

    /// What all inodes count, and how many there are.
    fn used_of(&self, model: &Model) -> (u64, u64) {
        (model.nodes.iter().map(|(inode, node)| self.counted_bytes(*inode, node)).sum(), model.nodes.len() as u64)
    }

    fn used(&self) -> (u64, u64) {
        self.used_of(&self.model)
    }

    /// Whether an inode may be made that has a name in this directory and so many bytes of metadata itself.
    pub(crate) fn check_making(&self, named: Option<(u64, &[u8])>, metadata: u64) -> Result<(), Errno> {
        self.check_inode_room()?;
        let of_names =
            named.filter(|_| self.quotas.is_on && !self.may_be_encrypted()).map_or(0, |(directory, name)| {
                let names = self.model.nodes.get(&directory).map_or(0, |node| node.metadata_bytes().0);
                counted_metadata(names + 24 + name.len() as u64) - counted_metadata(names)
            });
        self.check_more(of_names + counted_metadata(metadata))
    }

    fn check_more(&self, more: u64) -> Result<(), Errno> {
        if more > 0 && more > self.room().0 { Err(libc::EDQUOT) } else { Ok(()) }
    }

    /// Whether a change of names or attributes is within the limits.
    pub(crate) fn check_metadata(&self, after: &Model) -> Result<(), Errno> {
        if !self.quotas.is_on || self.may_be_encrypted() {
            return Ok(());
        }
        self.check_more(self.used_of(after).0.saturating_sub(self.used().0))
    }

    /// Whether so little may be added that an encrypted name, or an attribute besides, may be too much.
    pub(crate) fn may_have_no_room_for_names(&self) -> bool {
        self.quotas.is_on && self.may_be_encrypted() && self.room().0 < ATTRIBUTES_MAX
    }

    /// What everybody's limits leave, of bytes and of inodes.
    fn room(&self) -> (u64, u64) {
        if !self.quotas.is_on {
            return (u64::MAX, u64::MAX);
        }
        let (used, now) = (self.used(), timestamp(&self.machine).seconds);
        let rooms = self.quotas.held[..3].iter().map(|held| held.room(used, now));
        rooms.fold((u64::MAX, u64::MAX), |least, room| (least.0.min(room.0), least.1.min(room.1)))
    }

    /// Whether one inode more is allowed.
    pub(crate) fn check_inode_room(&self) -> Result<(), Errno> {
        if self.room().1 == 0 { Err(libc::EDQUOT) } else { Ok(()) }
    }

    /// Whether a file may have this size.
    pub(crate) fn check_growth(&self, before: u64, after: u64) -> Result<(), Errno> {
        self.check_more(in_blocks(after).saturating_sub(in_blocks(before)))
    }

    /// How much of a write is allowed: up to the block that the limit ends in.
    pub(crate) fn granted(&self, size: u64, offset: u64, length: usize) -> Result<usize, Errno> {
        let end = offset + length as u64;
        if self.check_growth(size, end).is_ok() {
            return Ok(length);
        }
        let most = (in_blocks(size) + self.room().0) / BLOCK * BLOCK;
        match most.max(size).min(end).saturating_sub(offset) {
            0 => Err(libc::EDQUOT),
            granted => Ok(granted as usize),
        }
    }

    /// Whether this allocation is left out: the model does not know of room behind the end of a file.
    pub(crate) fn leaves_out(&mut self, mode: u32) -> bool {
        let sets_aside = matches!(mode, 1 | 0x11 | 0x41);
        self.quotas.is_spoilt |= sets_aside && !self.quotas.is_on;
        sets_aside && (self.quotas.is_on || self.has_accounts())
    }

    /// Whether accounts are kept.
    pub(crate) fn has_quotas(&self) -> bool {
        self.quotas.is_on
    }

    fn begin_quotas(&mut self) -> Result<bool, Stop> {
        let may_not = self.plan.may_fill || self.plan.pool.keeps_versions || self.plan.budget == Budget::Beyond;
        // What has no name when the root becomes a volume is not of that volume.
        // Nor does anybody here know the attributes that plugins note.
        let may_not = may_not || self.plan.pool.areas.has(Area::Followers);
        let may_not = may_not || self.model.nodes.values().any(|node| node.nlink == 0);
        if self.quotas.is_on || may_not || self.quotas.is_spoilt {
            return Ok(self.quotas.is_on);
        }
        // With stored bytes counted too, which no limit here is near to.
        let limits = Limits { stored: Some(Some(u64::MAX >> 1)), ..Limits::default() };
        let made = self.mounted().files.quotas().create_volume(&caller(&self.machine), ROOT, limits);
        // Who could tell what of it is there.
        self.quotas.is_spoilt = self.machine.is_off();
        self.quotas.volume = self.must("making the root a volume", made)?;
        self.quotas.is_on = true;
        self.quotas.since_sync = vec![self.quotas.held];
        self.sync_all()?;
        self.settle_accounts()?;
        Ok(true)
    }

    /// Sets a limit so many blocks, or eighths of inodes, above what there is.
    pub(crate) fn limit(&mut self, holder: u8, manner: u8, room: u16, days: u8) -> Result<(), Stop> {
        if !self.begin_quotas()? {
            return Ok(());
        }
        self.sync_all()?;
        let (used, now) = (self.used(), timestamp(&self.machine).seconds);
        let mut held = self.quotas.held[usize::from(holder)];
        let (bytes, inodes) = (used.0 + u64::from(room) * BLOCK, used.1 + u64::from(room) / 8);
        // Other users are none, whatever they may have.
        let (bytes, inodes) = if holder == 3 { (0, 0) } else { (bytes, inodes) };
        match manner {
            0 => held.bytes = Some(bytes),
            1 => held.inodes = Some(inodes),
            2 => held.soft_bytes.most = Some(bytes),
            3 => held.soft_inodes.most = Some(inodes),
            _ => held = Held::default(),
        }
        held.days = i64::from(days);
        let limits = Limits {
            bytes: Some(held.bytes),
            inodes: Some(held.inodes),
            soft_bytes: Some(held.soft_bytes.most),
            soft_inodes: Some(held.soft_inodes.most),
            grace_seconds: Some((manner < 4).then_some(held.grace_seconds() as u32)),
            ..Limits::default()
        };
        held.watch(used, now);
        let (whose, before) = (self.holder(usize::from(holder)), self.quotas.held);
        let set = self.mounted().files.quotas().set_quota(&caller(&self.machine), whose, limits);
        self.quotas.held[usize::from(holder)] = held;
        self.quotas.since_sync = vec![before, self.quotas.held];
        self.must("setting a quota", set)?;
        self.sync_all()?;
        self.quotas.since_sync = vec![self.quotas.held];
        Ok(())
    }

    /// Notes since when there is more than allowed but for a while; before each step. What nobody has any more is gone by then.
    pub(crate) fn watch_quotas(&mut self) -> Result<(), Stop> {
        if self.quotas.is_on {
            self.settle_accounts()?;
            // This may have begun segments, before the step changes what words mean.
            self.watch_places()?;
            let (used, now) = (self.used(), timestamp(&self.machine).seconds);
            self.quotas.held.iter_mut().take(3).for_each(|held| held.watch(used, now));
            let last = self.quotas.since_sync.last();
            if last != Some(&self.quotas.held) {
                self.quotas.since_sync.push(self.quotas.held);
            }
        }
        Ok(())
    }

    /// Background work, until every inode counts where it lies and what nobody has any more is gone.
    pub(crate) fn settle_accounts(&mut self) -> Result<(), Stop> {
        for _ in 0..10_000 {
            let stepped = self.mounted().files.step(&caller(&self.machine), 100);
            if !self.must("step of the files", stepped)? {
                let state = self.mounted().files.quotas().accounts_state(Io::BLOCKING);
                return match self.must("the state of accounts", state)? {
                    AccountsState::Exact => Ok(()),
                    state => Err(Stop::Failure(format!("accounts are {state:?} when nothing is left to do"))),
                };
            }
        }
        Err(Stop::Failure("accounts are never exact".into()))
    }

    /// P-75: accounts are what the model comes to, once everything is saved.
    pub(crate) fn check_quotas(&mut self) -> Result<(), Stop> {
        if !self.quotas.is_on {
            return Ok(());
        }
        self.sync_all()?;
        self.settle_accounts()?;
        let used = self.used();
        for number in 0..3 {
            let value = self.account(number);
            let value = self.must("an account", value)?;
            if (value.bytes, value.inodes) != used {
                let (whose, is) = (self.holder(number), (value.bytes, value.inodes));
                return Err(Stop::Failure(format!("the account of {whose} says {is:?}, and {used:?} is right")));
            }
        }
        self.check_accounts_of_pool()
    }

    /// What the pool's own check says of accounts.
    pub(crate) fn check_accounts_of_pool(&mut self) -> Result<(), Stop> {
        let found = stere_naming::check(&self.mounted().store);
        let found = self.must("a check of names", found)?;
        let accounts = found.iter().find(|finding| finding.text.contains("account") || finding.text.contains("stored"));
        accounts.map_or(Ok(()), |finding| Err(Stop::Failure(format!("check: {}", finding.text))))
    }

    /// After a crash: limits are those of some step since the last sync, and a while that had begun for good goes on (P-114).
    pub(crate) fn recover_quotas(&mut self) -> Result<(), Stop> {
        if !self.quotas.is_on {
            return Ok(());
        }
        if let Some(kept) = self.read_quotas()? {
            self.quotas.held = kept;
            self.quotas.since_sync = vec![kept];
        }
        self.check_quotas()
    }

    /// The limits as the pool has them, compared with those that it may have.
    fn read_quotas(&mut self) -> Result<Option<[Held; HOLDERS as usize]>, Stop> {
        let state = self.mounted().files.quotas().accounts_state(Io::BLOCKING);
        let is_off = self.must("the state of accounts", state)? == AccountsState::Off;
        let volume = self.account(2);
        if is_off || self.must("the account of the root", volume)?.place.is_none() {
            // The crash was before the first limit was there for good.
            self.quotas = Quotas { is_spoilt: true, ..Quotas::default() };
            return Ok(None);
        }
        let mut held = self.quotas.held;
        let now = timestamp(&self.machine).seconds;
        let used = self.used_of(&self.model.without_handles());
        for (number, held) in held.iter_mut().enumerate() {
            let value = self.account(number);
            let value = self.must("an account", value)?;
            let soft = |most, since: u64| Soft { most, since: (since > 0).then_some(since as i64) };
            held.bytes = value.bytes_max;
            held.inodes = value.inodes_max;
            held.soft_bytes = soft(value.soft.bytes, value.soft.bytes_since);
            held.soft_inodes = soft(value.soft.inodes, value.soft.inodes_since);
            held.days = (i64::from(value.soft.grace_seconds) - HALF_DAY_SECONDS).max(0) / DAY_SECONDS;
            let possible = &self.quotas.since_sync;
            // What was open and had no name is gone with the crash, and counts until it is cleared away.
            let is_right = |all: &[Held; HOLDERS as usize]| {
                let mut without = all[number];
                without.watch(used, now);
                is_as(held, &all[number], now) || is_as(held, &without, now)
            };
            if number < 3 && !possible.iter().any(is_right) {
                let right: Vec<_> = possible.iter().map(|all| all[number]).collect();
                return Err(Stop::Failure(format!("a crash left {held:?}, and one of {right:?} is right")));
            }
        }
        Ok(Some(held))
    }

    /// Everything is durable: whiles that began have begun for good.
    pub(crate) fn note_quotas_durable(&mut self) {
        self.quotas.since_sync = vec![self.quotas.held];
    }
}

/// Whether limits are the same, and whiles began at about the same time.
fn is_as(found: &Held, right: &Held, now: i64) -> bool {
    let since = |found: Option<i64>, right: Option<i64>| match (found, right) {
        (Some(found), Some(right)) => (found - right).abs() <= SAVED_SECONDS_MAX,
        (None, None) => true,
        // It comes when the change is saved.
        (None, Some(right)) => now - right <= SAVED_SECONDS_MAX,
        (Some(_), None) => false,
    };
    let is_as = |found: &Soft, right: &Soft| found.most == right.most && since(found.since, right.since);
    (found.bytes, found.inodes) == (right.bytes, right.inodes)
        && is_as(&found.soft_bytes, &right.soft_bytes)
        && is_as(&found.soft_inodes, &right.soft_inodes)
}
