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
use crate::placement;
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
    /// Whether what is saved was more since then.
    is_saved: bool,
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

impl Quotas {
    /// Whether accounts are kept.
    pub(crate) fn are_on(&self) -> bool {
        self.is_on
    }

    fn account_of(&self, number: usize) -> Account {
        match number {
            0 => Account { holder: Holder::User, number: 0 },
            1 => Account { holder: Holder::Group, number: 0 },
            2 => Account { holder: Holder::Volume, number: self.volume },
            _ => Account { holder: Holder::User, number: AccountValue::OTHERS },
        }
    }

    /// Everything is durable: whiles that began have begun for good.
    pub(crate) fn note_durable(&mut self) {
        self.since_sync = vec![self.held];
    }
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

    /// `saved`: what the account has of what is used. Where that got less while newer writes wait, a while begins anew.
    fn watch(&mut self, used: (u64, u64), saved: (u64, u64), now: i64) {
        self.soft_bytes.watch(used.0, saved.0, now);
        self.soft_inodes.watch(used.1, saved.1, now);
    }
}

impl Soft {
    fn watch(&mut self, used: u64, saved: u64, now: i64) {
        let is_more = |is: u64| self.most.is_some_and(|most| is > most);
        let is_anew = self.is_saved && !is_more(saved);
        self.since = is_more(used).then(|| self.since.filter(|_| !is_anew).unwrap_or(now));
        self.is_saved = self.since.is_some() && is_more(saved);
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

fn account(history: &History, number: usize) -> Result<AccountValue, Error> {
    let whose = history.quotas.account_of(number);
    let accounts = history.mounted().files.quotas().accounts(Io::BLOCKING, whose.holder)?;
    Ok(accounts.into_iter().find(|info| info.account == whose).map(|info| info.value).unwrap_or_default())
}

/// What an inode counts: its content in whole blocks, its names or target, and its attributes.
pub(crate) fn counted_bytes(history: &History, inode: u64, node: &Node) -> u64 {
    let content = node.content().map_or(0, |content| in_blocks(content.size()));
    let (mut names, attributes) = node.metadata_bytes();
    // What an encrypted name takes the model does not know; the pool's own check proves the sizes of directories.
    if let (Kind::Directory(entries), true) = (&node.kind, history.plan.may_be_encrypted())
        && entries.len() as u64 * ENCRYPTED_NAME_MAX > METADATA_FREE
    {
        names = history.mounted().files.getattr(&caller(&history.machine), inode).map_or(names, |found| found.size);
    }
    content + counted_metadata(names) + counted_metadata(attributes)
}

/// What all inodes count, and how many there are.
fn used_of(history: &History, model: &Model) -> (u64, u64) {
    (model.nodes.iter().map(|(inode, node)| counted_bytes(history, *inode, node)).sum(), model.nodes.len() as u64)
}

fn used(history: &History) -> (u64, u64) {
    used_of(history, &history.model)
}

/// Whether an inode may be made that has a name in this directory and so many bytes of metadata itself.
pub(crate) fn check_making(history: &History, named: Option<(u64, &[u8])>, metadata: u64) -> Result<(), Errno> {
    check_inode_room(history)?;
    let of_names =
        named.filter(|_| history.quotas.is_on && !history.plan.may_be_encrypted()).map_or(0, |(directory, name)| {
            let names = history.model.nodes.get(&directory).map_or(0, |node| node.metadata_bytes().0);
            counted_metadata(names + 24 + name.len() as u64) - counted_metadata(names)
        });
    check_more(history, of_names + counted_metadata(metadata))
}

fn check_more(history: &History, more: u64) -> Result<(), Errno> {
    if more > 0 && more > room(history).0 { Err(libc::EDQUOT) } else { Ok(()) }
}

/// Whether a change of names or attributes is within the limits.
pub(crate) fn check_metadata(history: &History, after: &Model) -> Result<(), Errno> {
    if !history.quotas.is_on || history.plan.may_be_encrypted() {
        return Ok(());
    }
    check_more(history, used_of(history, after).0.saturating_sub(used(history).0))
}

/// Whether so little may be added that an encrypted name, or an attribute besides, may be too much.
pub(crate) fn may_have_no_room_for_names(history: &History) -> bool {
    history.quotas.is_on && history.plan.may_be_encrypted() && room(history).0 < ATTRIBUTES_MAX
}

/// What everybody's limits leave, of bytes and of inodes.
fn room(history: &History) -> (u64, u64) {
    if !history.quotas.is_on {
        return (u64::MAX, u64::MAX);
    }
    let (used, now) = (used(history), timestamp(&history.machine).seconds);
    let rooms = history.quotas.held[..3].iter().map(|held| held.room(used, now));
    rooms.fold((u64::MAX, u64::MAX), |least, room| (least.0.min(room.0), least.1.min(room.1)))
}

/// Whether one inode more is allowed.
pub(crate) fn check_inode_room(history: &History) -> Result<(), Errno> {
    if room(history).1 == 0 { Err(libc::EDQUOT) } else { Ok(()) }
}

/// Whether a file may have this size.
pub(crate) fn check_growth(history: &History, before: u64, after: u64) -> Result<(), Errno> {
    check_more(history, in_blocks(after).saturating_sub(in_blocks(before)))
}

/// How much of a write is allowed: up to the block that the limit ends in.
pub(crate) fn granted(history: &History, size: u64, offset: u64, length: usize) -> Result<usize, Errno> {
    let end = offset + length as u64;
    if check_growth(history, size, end).is_ok() {
        return Ok(length);
    }
    let most = (in_blocks(size) + room(history).0) / BLOCK * BLOCK;
    match most.max(size).min(end).saturating_sub(offset) {
        0 => Err(libc::EDQUOT),
        granted => Ok(granted as usize),
    }
}

/// Whether this allocation is left out: the model does not know of room behind the end of a file.
pub(crate) fn leaves_out(history: &mut History, mode: u32) -> bool {
    let sets_aside = matches!(mode, 1 | 0x11 | 0x41);
    history.quotas.is_spoilt |= sets_aside && !history.quotas.is_on;
    sets_aside && (history.quotas.is_on || history.plan.has_accounts())
}

fn begin_quotas(history: &mut History) -> Result<bool, Stop> {
    let may_not = history.plan.may_fill || history.plan.pool.keeps_versions || history.plan.budget == Budget::Beyond;
    // What has no name when the root becomes a volume is not of that volume.
    // Nor does anybody here know the attributes that plugins note.
    let may_not = may_not || history.plan.pool.areas.has(Area::Followers);
    let may_not = may_not || history.model.nodes.values().any(|node| node.nlink == 0);
    if history.quotas.is_on || may_not || history.quotas.is_spoilt {
        return Ok(history.quotas.is_on);
    }
    // With stored bytes counted too, which no limit here is near to.
    let limits = Limits { stored: Some(Some(u64::MAX >> 1)), ..Limits::default() };
    let made = history.command(|files, caller| files.quotas().create_volume(caller, ROOT, limits));
    // Who could tell what of it is there.
    history.quotas.is_spoilt = history.machine.is_off();
    history.quotas.volume = history.must("making the root a volume", made)?;
    history.quotas.is_on = true;
    history.quotas.since_sync = vec![history.quotas.held];
    history.sync_all()?;
    settle_accounts(history)?;
    Ok(true)
}

/// Sets a limit so many blocks, or eighths of inodes, above what there is.
pub(crate) fn limit(history: &mut History, holder: u8, manner: u8, room: u16, days: u8) -> Result<(), Stop> {
    if !begin_quotas(history)? {
        return Ok(());
    }
    history.sync_all()?;
    let (used, now) = (used(history), timestamp(&history.machine).seconds);
    let mut held = history.quotas.held[usize::from(holder)];
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
    held.watch(used, used, now);
    let (whose, before) = (history.quotas.account_of(usize::from(holder)), history.quotas.held);
    let set = history.command(|files, caller| files.quotas().set_quota(caller, whose, limits));
    history.quotas.held[usize::from(holder)] = held;
    history.quotas.since_sync = vec![before, history.quotas.held];
    history.must("setting a quota", set)?;
    history.sync_all()?;
    history.quotas.since_sync = vec![history.quotas.held];
    Ok(())
}

/// Notes since when there is more than allowed but for a while; before each step. What nobody has any more is gone by then.
pub(crate) fn watch_quotas(history: &mut History) -> Result<(), Stop> {
    if history.quotas.is_on {
        finish_background_work(history, look_at_accounts)?;
        // This may have begun segments, before the step changes what words mean.
        placement::watch_places(history)?;
        let last = history.quotas.since_sync.last();
        if last != Some(&history.quotas.held) {
            history.quotas.since_sync.push(history.quotas.held);
        }
    }
    Ok(())
}

/// What is saved may be less than a soft limit for a moment only.
fn look_at_accounts(history: &mut History) -> Result<(), Stop> {
    let (used, now) = (used(history), timestamp(&history.machine).seconds);
    for number in 0..3 {
        let value = account(history, number);
        let value = history.must("an account", value)?;
        history.quotas.held[number].watch(used, (value.bytes, value.inodes), now);
    }
    Ok(())
}

/// Background work, until every inode counts where it lies and what nobody has any more is gone.
pub(crate) fn settle_accounts(history: &mut History) -> Result<(), Stop> {
    finish_background_work(history, |_| Ok(()))
}

/// The same; `look` sees the accounts before each step of it, which saves what is old, and after the last one.
fn finish_background_work(history: &mut History, look: impl Fn(&mut History) -> Result<(), Stop>) -> Result<(), Stop> {
    for _ in 0..10_000 {
        look(history)?;
        let stepped = history.mounted().files.step(&caller(&history.machine), 100);
        if !history.must("step of the files", stepped)? {
            let state = history.mounted().files.quotas().accounts_state(Io::BLOCKING);
            return match history.must("the state of accounts", state)? {
                AccountsState::Exact => look(history),
                state => Err(Stop::Failure(format!("accounts are {state:?} when nothing is left to do"))),
            };
        }
    }
    Err(Stop::Failure("accounts are never exact".into()))
}

/// P-75: accounts are what the model comes to, once everything is saved.
pub(crate) fn check_quotas(history: &mut History) -> Result<(), Stop> {
    if !history.quotas.is_on {
        return Ok(());
    }
    history.sync_all()?;
    settle_accounts(history)?;
    let used = used(history);
    for number in 0..3 {
        let value = account(history, number);
        let value = history.must("an account", value)?;
        if (value.bytes, value.inodes) != used {
            let (whose, is) = (history.quotas.account_of(number), (value.bytes, value.inodes));
            return Err(Stop::Failure(format!("the account of {whose} says {is:?}, and {used:?} is right")));
        }
    }
    check_accounts_of_pool(history)
}

/// What the pool's own check says of accounts.
pub(crate) fn check_accounts_of_pool(history: &mut History) -> Result<(), Stop> {
    let found = stere_naming::check(&history.mounted().store);
    let found = history.must("a check of names", found)?;
    let accounts = found.iter().find(|finding| finding.text.contains("account") || finding.text.contains("stored"));
    accounts.map_or(Ok(()), |finding| Err(Stop::Failure(format!("check: {}", finding.text))))
}

/// After a crash: limits are those of some step since the last sync, and a while that had begun for good goes on (P-114).
pub(crate) fn recover_quotas(history: &mut History) -> Result<(), Stop> {
    if !history.quotas.is_on {
        return Ok(());
    }
    if let Some(kept) = read_quotas(history)? {
        history.quotas.held = kept;
        history.quotas.since_sync = vec![kept];
    }
    check_quotas(history)
}

/// The limits as the pool has them, compared with those that it may have.
fn read_quotas(history: &mut History) -> Result<Option<[Held; HOLDERS as usize]>, Stop> {
    let state = history.mounted().files.quotas().accounts_state(Io::BLOCKING);
    let is_off = history.must("the state of accounts", state)? == AccountsState::Off;
    let volume = account(history, 2);
    if is_off || history.must("the account of the root", volume)?.place.is_none() {
        // The crash was before the first limit was there for good.
        history.quotas = Quotas { is_spoilt: true, ..Quotas::default() };
        return Ok(None);
    }
    let mut held = history.quotas.held;
    let now = timestamp(&history.machine).seconds;
    let used = used_of(history, &history.model.without_handles());
    for (number, held) in held.iter_mut().enumerate() {
        let value = account(history, number);
        let value = history.must("an account", value)?;
        let soft = |most, since: u64| Soft { most, since: (since > 0).then_some(since as i64), is_saved: since > 0 };
        held.bytes = value.bytes_max;
        held.inodes = value.inodes_max;
        held.soft_bytes = soft(value.soft.bytes, value.soft.bytes_since);
        held.soft_inodes = soft(value.soft.inodes, value.soft.inodes_since);
        held.days = (i64::from(value.soft.grace_seconds) - HALF_DAY_SECONDS).max(0) / DAY_SECONDS;
        let possible = &history.quotas.since_sync;
        // What was open and had no name is gone with the crash, and counts until it is cleared away.
        let is_right = |all: &[Held; HOLDERS as usize]| {
            let mut without = all[number];
            without.watch(used, used, now);
            is_as(held, &all[number], now) || is_as(held, &without, now)
        };
        if number < 3 && !possible.iter().any(is_right) {
            let right: Vec<_> = possible.iter().map(|all| all[number]).collect();
            return Err(Stop::Failure(format!("a crash left {held:?}, and one of {right:?} is right")));
        }
    }
    Ok(Some(held))
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
