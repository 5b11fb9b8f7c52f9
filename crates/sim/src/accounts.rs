//! Accounts in histories: several users and groups make files and give them to one another, directories become volumes within volumes, are
//! moved across them, dissolved and deleted with all they hold, and limits of stored bytes are reached.
//!
//! Who owns what, and in which volumes it lies, the model knows; at checks and after crashes every account is what that comes to (P-75).
//! A limit of stored bytes is set a little above what there is, and a file is written on until that is refused (P-124): neither
//! too early nor too late, for a while if it is a soft one, and cutting, removing and writing over are not refused. Then it is lifted. Files
//! have one name here, so that there is no doubt where they count, and no room is set aside behind their end. Read next: `quotas.rs` (limits
//! that stay while everything goes on), `docs/design/volumes.md`.

use std::collections::{BTreeMap, BTreeSet};

use stere_naming::{Account, AccountInfo, Error, Holder, Io, Limits, OpenFlags, SetAttributes};

use crate::area::{Area, further};
use crate::history::{Budget, History, Plan, Slot, Stop};
use crate::model::{Kind, Model, Node, ROOT};
use crate::operation::{Operation, Path};
use crate::policy_lists::{self, places};
use crate::pool::caller;
use crate::random::Random;
use crate::{
    execute::{contents, names},
    quotas, retention,
};

/// Users and their groups, by number.
pub const OWNERS: [(u32, u32); 4] = [(0, 0), (1001, 2001), (1002, 2001), (1003, 2002)];
const BLOCK: u64 = 4096;
const DAY_SECONDS: u32 = 86_400;
/// The file with which limits are reached, and how it is written.
const REACHES: &[u8] = b"reaches";
const PIECE: usize = 20_000;
const PIECES_MAX: u64 = 40;
/// What a byte takes on devices at most, with copies and parity.
const FACTOR_MAX: u64 = 4;

/// What is done to accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStep {
    /// From now on everything is done by this user.
    Become(u8),
    /// A file or a directory gets this owner.
    Give(Path, u8),
    /// A directory, or with no path the root, becomes a volume.
    MakeVolume(Option<Path>),
    /// A volume becomes an ordinary directory.
    Dissolve(Path),
    /// A volume is deleted with all it holds.
    Delete(Path),
    /// A limit of stored bytes, so many blocks above what a holder has, is reached; a soft one if it is said for how many days.
    ReachStored { holder: u8, blocks: u8, days: Option<u8> },
}

/// What a history knows of accounts.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    is_on: bool,
    /// Directories that are volumes.
    volumes: BTreeSet<u64>,
}

/// Puts users, volumes and limits that are reached into a history.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(6);
    let path = |random: &mut Random| Path { directory: random.below(2) as u8, name: random.below(6) as u8 };
    for _ in 0..random.between(3, 6) {
        for _ in 0..random.between(1, 3) {
            // The directories that histories work in have these names.
            let directory = *random.pick(&[(0, 3), (0, 4), (1, 5)]);
            let directory = Path { directory: directory.0, name: directory.1 };
            let step = match random.below(12) {
                0..3 => AccountStep::Become(random.below(4) as u8),
                3 | 4 => AccountStep::Give(path(random), random.below(4) as u8),
                5 => AccountStep::MakeVolume(None),
                6..9 => AccountStep::MakeVolume(Some(directory)),
                9 => AccountStep::Dissolve(directory),
                10 => AccountStep::Delete(directory),
                _ => AccountStep::Give(directory, random.below(4) as u8),
            };
            operations.insert(at, Operation::Accounts(step));
            at = further(at + 1, 5, operations, random);
        }
        if random.chance(2, 3) {
            let days = random.chance(1, 3).then(|| random.below(3) as u8);
            let (holder, blocks) = (random.below(4) as u8, random.below(40) as u8);
            operations.insert(at, Operation::Accounts(AccountStep::ReachStored { holder, blocks, days }));
            at += 1;
        }
        if random.chance(1, 2) {
            operations.insert(at, Operation::Check);
        }
        at = further(at + 1, 8, operations, random);
    }
}

/// What an account holds: bytes in whole blocks, and inodes.
type Sum = (u64, u64);

impl Plan {
    pub(crate) fn has_accounts(&self) -> bool {
        self.pool.areas.has(Area::Accounts) && !self.may_fill && self.budget != Budget::Beyond
    }
}

pub(crate) fn execute_accounts(history: &mut History, step: AccountStep) -> Result<(), Stop> {
    if !history.plan.has_accounts() {
        return Ok(());
    }
    match step {
        AccountStep::Become(user) => {
            history.machine.set_user(user);
            Ok(())
        }
        AccountStep::Give(path, user) => give(history, path, OWNERS[usize::from(user) % OWNERS.len()]),
        AccountStep::MakeVolume(path) => make_volume(history, path),
        AccountStep::Dissolve(path) => dissolve(history, path),
        AccountStep::Delete(path) => delete(history, path),
        AccountStep::ReachStored { holder, blocks, days } => reach_stored(history, holder, u64::from(blocks), days),
    }
}

fn give(history: &mut History, path: Path, owner: (u32, u32)) -> Result<(), Stop> {
    let Some(inode) = names::plain_inode(history, path)? else { return Ok(()) };
    let set = SetAttributes { uid: Some(owner.0), gid: Some(owner.1), ..SetAttributes::default() };
    let real = history.mounted().files.setattr(&caller(&history.machine), inode, &set);
    let after = history.model.changed_node(inode, |node| node.owner = owner);
    history.expect_names("chown", real, history.model.check_changeable(inode).map(|()| after)).map(drop)
}

fn make_volume(history: &mut History, path: Option<Path>) -> Result<(), Stop> {
    let inode = match path {
        None => Some(ROOT),
        Some(path) => names::plain_inode(history, path)?,
    };
    let Some(inode) = inode.filter(|inode| history.model.is_directory(*inode)) else { return Ok(()) };
    // Stored bytes count as well, which no limit here is near to.
    let limits = Limits { stored: Some(Some(u64::MAX >> 1)), ..Limits::default() };
    let made = history.command(|files, caller| files.quotas().create_volume(caller, inode, limits));
    match made {
        Err(Error::Invalid(_)) if history.accounts.volumes.contains(&inode) => return Ok(()),
        made => history.must("making a volume", made)?,
    };
    history.accounts.is_on = true;
    history.accounts.volumes.insert(inode);
    history.sync_all()
}

fn dissolve(history: &mut History, path: Path) -> Result<(), Stop> {
    let inode = names::plain_inode(history, path)?.filter(|inode| history.accounts.volumes.contains(inode));
    let Some(inode) = inode else { return Ok(()) };
    let dissolved = history.mounted().files.quotas().dissolve_volume(&caller(&history.machine), inode);
    history.must("dissolving a volume", dissolved)?;
    history.accounts.volumes.remove(&inode);
    history.sync_all()
}

fn delete(history: &mut History, path: Path) -> Result<(), Stop> {
    let inode = names::plain_inode(history, path)?.filter(|inode| history.accounts.volumes.contains(inode));
    let Some(inode) = inode else { return Ok(()) };
    let Some((directory, name)) = places(&history.model).remove(&inode) else { return Ok(()) };
    for slot in 0..history.slots.len() {
        history.close(slot as u8)?;
    }
    let below = below(&history.model, inode);
    let user = caller(&history.machine);
    match history.mounted().files.quotas().condemn_volume(&user, inode) {
        Err(Error::NotPermitted(_) | Error::Retained(_))
            if below.iter().any(|inode| history.model.retained_until(*inode).is_some()) =>
        {
            return Ok(());
        }
        condemned => history.must("asking to delete a volume", condemned)?,
    }
    let real = history.mounted().files.rmdir(&user, directory, &name);
    let mut after = history.model.clone();
    after.nodes.retain(|inode, _| !below.contains(inode));
    if let Some(above) = after.nodes.get_mut(&directory) {
        above.nlink -= 1;
        if let Kind::Directory(names) = &mut above.kind {
            names.remove(&name);
        }
    }
    history.expect_names("deleting a volume", real, Ok(after))?;
    history.sync_all()
}

/// An inode and all below it.
fn below(model: &Model, above: u64) -> BTreeSet<u64> {
    let (mut found, mut left) = (BTreeSet::from([above]), vec![above]);
    while let Some(inode) = left.pop() {
        if let Some(Kind::Directory(names)) = model.nodes.get(&inode).map(|node| &node.kind) {
            left.extend(names.values());
            found.extend(names.values());
        }
    }
    found
}

fn account_infos(history: &mut History, holder: Holder) -> Result<Vec<AccountInfo>, Stop> {
    let infos = history.mounted().files.quotas().accounts(Io::BLOCKING, holder);
    history.must("reading accounts", infos)
}

/// The directories that the pool has for volumes, with their accounts.
fn volumes_told(history: &mut History) -> Result<BTreeMap<u64, AccountInfo>, Stop> {
    let infos = account_infos(history, Holder::Volume)?.into_iter();
    let there = infos.filter_map(|info| {
        let place = info.value.place.filter(|place| !place.is_deleted)?;
        Some((place.directory, info))
    });
    Ok(there.collect())
}

/// After a crash: limits that were being reached are lifted, and the volumes are those that are told.
pub(crate) fn recover_accounts(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_accounts() || !history.accounts.is_on {
        return Ok(());
    }
    history.accounts.volumes = volumes_told(history)?.into_keys().collect();
    let state = history.mounted().files.quotas().accounts_state(Io::BLOCKING);
    history.accounts.is_on = history.must("the state of accounts", state)? != stere_naming::AccountsState::Off;
    for holder in [Holder::User, Holder::Group, Holder::Volume] {
        for info in account_infos(history, holder)? {
            if holder != Holder::Volume || info.value.place.is_some_and(|place| !place.is_deleted) {
                lift(history, info.account)?;
            }
        }
    }
    check_accounts(history)
}

fn lift(history: &mut History, whose: Account) -> Result<(), Stop> {
    let limits = Limits { stored: Some(None), soft_stored: Some(None), ..Limits::default() };
    let lifted = history.command(|files, caller| files.quotas().set_quota(caller, whose, limits));
    history.must("lifting a limit", lifted)
}

/// P-75: accounts are what the model comes to, once everything is saved and counted.
pub(crate) fn check_accounts(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_accounts() || !history.accounts.is_on {
        return Ok(());
    }
    // What has no name counts where it was named last, which nobody remembers here.
    for slot in 0..history.slots.len() {
        let inode = history.slots[slot].as_ref().map(|slot| slot.inode);
        if inode.is_some_and(|inode| history.model.nodes.get(&inode).is_none_or(|node| node.nlink == 0)) {
            history.close(slot as u8)?;
        }
    }
    quotas::watch_quotas(history)?;
    history.sync_all()?;
    quotas::settle_accounts(history)?;
    let is_there = |inode: &u64| history.model.nodes.contains_key(inode);
    history.accounts.volumes = history.accounts.volumes.iter().copied().filter(is_there).collect();
    let told = volumes_told(history)?;
    let numbers: BTreeSet<u64> = told.keys().copied().collect();
    if numbers != history.accounts.volumes {
        let text = format!("volumes are {numbers:?}, and {:?} is right", history.accounts.volumes);
        return Err(Stop::Failure(text));
    }
    for (directory, info) in told {
        let right = sum(history, &below(&history.model, directory));
        must_hold(&info, right)?;
    }
    for (holder, of) in [(Holder::User, true), (Holder::Group, false)] {
        let mut rights: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (inode, node) in &history.model.nodes {
            let number = if of { node.owner.0 } else { node.owner.1 };
            rights.entry(number).or_default().insert(*inode);
        }
        for info in account_infos(history, holder)? {
            let inodes = rights.remove(&info.account.number).unwrap_or_default();
            let right = sum(history, &inodes);
            must_hold(&info, right)?;
        }
        if let Some((number, _)) = rights.pop_first() {
            return Err(Stop::Failure(format!("{holder:?} {number} has no account")));
        }
    }
    quotas::check_accounts_of_pool(history)?;
    history.summary.accounts_compared += 1;
    Ok(())
}

fn sum(history: &History, inodes: &BTreeSet<u64>) -> Sum {
    let nodes = inodes.iter().filter_map(|inode| Some((*inode, history.model.nodes.get(inode)?)));
    nodes.fold((0, 0), |sum, (inode, node)| (sum.0 + quotas::counted_bytes(history, inode, node), sum.1 + 1))
}

fn must_hold(info: &AccountInfo, right: Sum) -> Result<(), Stop> {
    let is = (info.value.bytes, info.value.inodes);
    match is == right {
        true => Ok(()),
        false => Err(Stop::Failure(format!("the account of {} says {is:?}, and {right:?} is right", info.account))),
    }
}

/// Somebody whose limit a file of this owner in this directory meets.
fn holder_of(history: &mut History, holder: u8, directory: u64, owner: (u32, u32)) -> Result<Option<Account>, Stop> {
    let told = volumes_told(history)?;
    let mut around: Vec<Account> = Vec::new();
    let mut at = directory;
    loop {
        around.extend(told.get(&at).map(|info| info.account));
        if at == ROOT {
            break;
        }
        at = history.model.nodes[&at].parent;
    }
    Ok(match holder {
        0 => Some(Account { holder: Holder::User, number: owner.0 }),
        1 => Some(Account { holder: Holder::Group, number: owner.1 }),
        2 => around.first().copied(),
        _ => around.last().copied(),
    })
}

fn stored_bytes(history: &mut History, whose: Account) -> Result<u64, Stop> {
    history.sync_all()?;
    quotas::settle_accounts(history)?;
    let infos = account_infos(history, whose.holder)?;
    Ok(infos.into_iter().find(|info| info.account == whose).map_or(0, |info| info.value.stored))
}

/// P-124: a limit of stored bytes refuses what would go beyond it, and nothing else.
fn reach_stored(history: &mut History, holder: u8, blocks: u64, days: Option<u8>) -> Result<(), Stop> {
    if !history.accounts.is_on || !policy_lists::is_undisturbed(history) {
        return Ok(());
    }
    let is_directory = |node: &Node| matches!(node.kind, Kind::Directory(_)) && node.nlink > 0;
    let nodes = history.model.nodes.iter().filter(|(_, node)| is_directory(node));
    let directories: Vec<u64> = nodes.map(|(inode, _)| *inode).collect();
    let directory = *history.random.pick(&directories);
    let owner = history.machine.owner();
    let Some(whose) = holder_of(history, holder, directory, owner)? else { return Ok(()) };
    if history.model.lookup(directory, REACHES).is_ok() {
        return Ok(());
    }
    history.machine.disarm();
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), directory, REACHES, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, directory, REACHES, inode, Node::new(Kind::File(Default::default()), 0o644))?;
    history.model.open(inode);
    let limit = stored_bytes(history, whose)? + blocks * BLOCK;
    let limits = match days {
        None => Limits { stored: Some(Some(limit)), ..Limits::default() },
        Some(days) => {
            let grace_seconds = Some(Some(u32::from(days) * DAY_SECONDS + DAY_SECONDS / 2));
            Limits { soft_stored: Some(Some(limit)), grace_seconds, ..Limits::default() }
        }
    };
    let set = history.command(|files, caller| files.quotas().set_quota(caller, whose, limits));
    history.must("setting a limit of stored bytes", set)?;
    match days {
        None => write_until_refused(history, inode, whose, limit)?,
        Some(days) => write_beyond(history, inode, whose, limit, days)?,
    }
    contents::truncate(history, inode, 5000)?;
    lift(history, whose)?;
    history.release(Slot { inode, handle })?;
    history.verify_file(inode)?;
    names::remove_name(history, directory, REACHES, false)?;
    history.summary.stored_reached += 1;
    check_accounts(history)
}

/// Writes one piece behind the end; how much of it was taken, nothing if it was refused.
fn append(history: &mut History, inode: u64, length: usize) -> Result<Option<usize>, Stop> {
    let end = history.model.nodes[&inode].content().map_or(0, |content| content.size());
    let mut data = vec![0; length];
    data.iter_mut().for_each(|byte| *byte = history.random.next_u64() as u8);
    let real = history.mounted().files.write(&caller(&history.machine), inode, end, &data, false);
    if matches!(real, Err(Error::OverQuota(_))) {
        history.summary.over_quota += 1;
        return Ok(None);
    }
    let taken = history.must("write below a limit of stored bytes", real)?;
    let mut after = (*history.model.content(inode)).clone();
    after.write(end, &data[..taken]);
    history.put_content(inode, after);
    Ok(Some(taken))
}

fn write_until_refused(history: &mut History, inode: u64, whose: Account, limit: u64) -> Result<(), Stop> {
    for _ in 0..PIECES_MAX {
        match append(history, inode, PIECE)? {
            Some(taken) if taken == PIECE => {}
            Some(_) | None => break,
        }
    }
    let most = PIECES_MAX * PIECE as u64;
    if history.model.content(inode).size() >= most {
        return Err(Stop::Failure(format!("{whose} is to store {limit} bytes, and {most} more were taken")));
    }
    let stored = stored_bytes(history, whose)?;
    // Of what is compressed one write is taken whole; what it is worth with its copies is known then.
    if stored > limit + FACTOR_MAX * PIECE as u64 {
        return Err(Stop::Failure(format!("{whose} stores {stored} bytes, and {limit} is the limit")));
    }
    // One block more is refused only where it has no room.
    if append(history, inode, BLOCK as usize)?.is_none() {
        if stored + (FACTOR_MAX + 1) * 2 * BLOCK + PIECE as u64 * FACTOR_MAX <= limit {
            return Err(Stop::Failure(format!("{whose} stores {stored} bytes of {limit}, and is refused a block")));
        }
        return Ok(());
    }
    // What is beyond takes nothing more.
    let stored = stored_bytes(history, whose)?;
    match stored >= limit && append(history, inode, PIECE)?.is_some_and(|taken| taken >= 2 * BLOCK as usize) {
        true => Err(Stop::Failure(format!("{whose} stores {stored} bytes of {limit}, and more was taken"))),
        false => Ok(()),
    }
}

fn write_beyond(history: &mut History, inode: u64, whose: Account, limit: u64, days: u8) -> Result<(), Stop> {
    for _ in 0..PIECES_MAX {
        if append(history, inode, PIECE)? != Some(PIECE) {
            return Err(Stop::Failure(format!("{whose} may store more than {limit} for a while, and is refused")));
        }
        if stored_bytes(history, whose)? > limit {
            break;
        }
    }
    retention::pass_days(history, days + 1);
    retention::tell_time(history);
    match append(history, inode, PIECE)?.is_some_and(|taken| taken >= 2 * BLOCK as usize) {
        true => Err(Stop::Failure(format!("the while is over in which {whose} may store more than {limit}"))),
        false => Ok(()),
    }
}
