//! Accounts in histories: several users and groups make files and give them to one another, directories become volumes within volumes, are
//! moved across them, dissolved and deleted with all they hold, and limits of stored bytes are reached.
//!
//! Who owns what, and in which volumes it lies, the model knows; at checks and after crashes every account is what that comes to (P-75).
//! A limit of stored bytes is set a little above what there is, and a file is written on until that is refused (P-124): neither
//! too early nor too late, for a while if it is a soft one, and cutting, removing and writing over are not refused. Then it is lifted. Files
//! have one name here, so that there is no doubt where they count, and no room is set aside behind their end. Read next: `limits.rs` (limits
//! that stay while everything goes on), `docs/design/volumes.md`.

use std::collections::{BTreeMap, BTreeSet};

use stere_naming::{Account, AccountInfo, Error, Holder, Io, Limits, OpenFlags, SetAttributes};

use crate::area::{Area, further};
use crate::history::{Budget, History, Slot, Stop};
use crate::lists::places;
use crate::model::{Kind, Node, ROOT};
use crate::operation::{Operation, Path};
use crate::pool::caller;
use crate::random::Random;

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

impl History {
    pub(crate) fn has_accounts(&self) -> bool {
        self.plan.pool.areas.has(Area::Accounts) && !self.plan.may_fill && self.plan.budget != Budget::Beyond
    }

    pub(crate) fn execute_accounts(&mut self, step: AccountStep) -> Result<(), Stop> {
        if !self.has_accounts() {
            return Ok(());
        }
        match step {
            AccountStep::Become(user) => {
                self.machine.set_user(user);
                Ok(())
            }
            AccountStep::Give(path, user) => self.give(path, OWNERS[usize::from(user) % OWNERS.len()]),
            AccountStep::MakeVolume(path) => self.make_volume(path),
            AccountStep::Dissolve(path) => self.dissolve(path),
            AccountStep::Delete(path) => self.delete(path),
            AccountStep::ReachStored { holder, blocks, days } => self.reach_stored(holder, u64::from(blocks), days),
        }
    }

    fn give(&mut self, path: Path, owner: (u32, u32)) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let set = SetAttributes { uid: Some(owner.0), gid: Some(owner.1), ..SetAttributes::default() };
        let real = self.mounted().files.setattr(&caller(&self.machine), inode, &set);
        let after = self.changed_node(inode, |node| node.owner = owner);
        self.expect_names("chown", real, self.model.check_changeable(inode).map(|()| after)).map(drop)
    }

    fn make_volume(&mut self, path: Option<Path>) -> Result<(), Stop> {
        let inode = match path {
            None => Some(ROOT),
            Some(path) => self.plain_inode(path)?,
        };
        let Some(inode) = inode.filter(|inode| self.model.is_directory(*inode)) else { return Ok(()) };
        // Stored bytes count as well, which no limit here is near to.
        let limits = Limits { stored: Some(Some(u64::MAX >> 1)), ..Limits::default() };
        let made = self.mounted().files.quotas().create_volume(&caller(&self.machine), inode, limits);
        match made {
            Err(Error::Invalid(_)) if self.accounts.volumes.contains(&inode) => return Ok(()),
            made => self.must("making a volume", made)?,
        };
        self.accounts.is_on = true;
        self.accounts.volumes.insert(inode);
        self.sync_all()
    }

    fn dissolve(&mut self, path: Path) -> Result<(), Stop> {
        let inode = self.plain_inode(path)?.filter(|inode| self.accounts.volumes.contains(inode));
        let Some(inode) = inode else { return Ok(()) };
        let dissolved = self.mounted().files.quotas().dissolve_volume(&caller(&self.machine), inode);
        self.must("dissolving a volume", dissolved)?;
        self.accounts.volumes.remove(&inode);
        self.sync_all()
    }

    fn delete(&mut self, path: Path) -> Result<(), Stop> {
        let inode = self.plain_inode(path)?.filter(|inode| self.accounts.volumes.contains(inode));
        let Some(inode) = inode else { return Ok(()) };
        let Some((directory, name)) = places(&self.model).remove(&inode) else { return Ok(()) };
        for slot in 0..self.slots.len() {
            self.close(slot as u8)?;
        }
        let below = self.below(inode);
        let user = caller(&self.machine);
        match self.mounted().files.quotas().condemn_volume(&user, inode) {
            Err(Error::NotPermitted(_) | Error::Retained(_))
                if below.iter().any(|inode| self.model.retained_until(*inode).is_some()) =>
            {
                return Ok(());
            }
            condemned => self.must("asking to delete a volume", condemned)?,
        }
        let real = self.mounted().files.rmdir(&user, directory, &name);
        let mut after = self.model.clone();
        after.nodes.retain(|inode, _| !below.contains(inode));
        if let Some(above) = after.nodes.get_mut(&directory) {
            above.nlink -= 1;
            if let Kind::Directory(names) = &mut above.kind {
                names.remove(&name);
            }
        }
        self.expect_names("deleting a volume", real, Ok(after))?;
        self.sync_all()
    }

    /// An inode and all below it.
    fn below(&self, above: u64) -> BTreeSet<u64> {
        let (mut found, mut left) = (BTreeSet::from([above]), vec![above]);
        while let Some(inode) = left.pop() {
            if let Some(Kind::Directory(names)) = self.model.nodes.get(&inode).map(|node| &node.kind) {
                left.extend(names.values());
                found.extend(names.values());
            }
        }
        found
    }

    fn account_infos(&mut self, holder: Holder) -> Result<Vec<AccountInfo>, Stop> {
        let infos = self.mounted().files.quotas().accounts(Io::BLOCKING, holder);
        self.must("reading accounts", infos)
    }

    /// The directories that the pool has for volumes, with their accounts.
    fn volumes_told(&mut self) -> Result<BTreeMap<u64, AccountInfo>, Stop> {
        let infos = self.account_infos(Holder::Volume)?.into_iter();
        let there = infos.filter_map(|info| {
            let place = info.value.place.filter(|place| !place.is_deleted)?;
            Some((place.directory, info))
        });
        Ok(there.collect())
    }

    /// After a crash: limits that were being reached are lifted, and the volumes are those that are told.
    pub(crate) fn recover_accounts(&mut self) -> Result<(), Stop> {
        if !self.has_accounts() || !self.accounts.is_on {
            return Ok(());
        }
        self.accounts.volumes = self.volumes_told()?.into_keys().collect();
        let state = self.mounted().files.quotas().accounts_state(Io::BLOCKING);
        self.accounts.is_on = self.must("the state of accounts", state)? != stere_naming::AccountsState::Off;
        for holder in [Holder::User, Holder::Group, Holder::Volume] {
            for info in self.account_infos(holder)? {
                if holder != Holder::Volume || info.value.place.is_some_and(|place| !place.is_deleted) {
                    self.lift(info.account)?;
                }
            }
        }
        self.check_accounts()
    }

    fn lift(&mut self, whose: Account) -> Result<(), Stop> {
        let limits = Limits { stored: Some(None), soft_stored: Some(None), ..Limits::default() };
        let lifted = self.mounted().files.quotas().set_quota(&caller(&self.machine), whose, limits);
        self.must("lifting a limit", lifted)
    }

    /// P-75: accounts are what the model comes to, once everything is saved and counted.
    pub(crate) fn check_accounts(&mut self) -> Result<(), Stop> {
        if !self.has_accounts() || !self.accounts.is_on {
            return Ok(());
        }
        // What has no name counts where it was named last, which nobody remembers here.
        for slot in 0..self.slots.len() {
            let inode = self.slots[slot].as_ref().map(|slot| slot.inode);
            if inode.is_some_and(|inode| self.model.nodes.get(&inode).is_none_or(|node| node.nlink == 0)) {
                self.close(slot as u8)?;
            }
        }
        self.sync_all()?;
        self.settle_accounts()?;
        let is_there = |inode: &u64| self.model.nodes.contains_key(inode);
        self.accounts.volumes = self.accounts.volumes.iter().copied().filter(is_there).collect();
        let told = self.volumes_told()?;
        let numbers: BTreeSet<u64> = told.keys().copied().collect();
        if numbers != self.accounts.volumes {
            let text = format!("volumes are {numbers:?}, and {:?} is right", self.accounts.volumes);
            return Err(Stop::Failure(text));
        }
        for (directory, info) in told {
            let right = self.sum(&self.below(directory));
            self.must_hold(&info, right)?;
        }
        for (holder, of) in [(Holder::User, true), (Holder::Group, false)] {
            let mut rights: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
            for (inode, node) in &self.model.nodes {
                let number = if of { node.owner.0 } else { node.owner.1 };
                rights.entry(number).or_default().insert(*inode);
            }
            for info in self.account_infos(holder)? {
                let inodes = rights.remove(&info.account.number).unwrap_or_default();
                let right = self.sum(&inodes);
                self.must_hold(&info, right)?;
            }
            if let Some((number, _)) = rights.pop_first() {
                return Err(Stop::Failure(format!("{holder:?} {number} has no account")));
            }
        }
        self.check_accounts_of_pool()?;
        self.summary.accounts_compared += 1;
        Ok(())
    }

    fn sum(&self, inodes: &BTreeSet<u64>) -> Sum {
        let nodes = inodes.iter().filter_map(|inode| Some((*inode, self.model.nodes.get(inode)?)));
        nodes.fold((0, 0), |sum, (inode, node)| (sum.0 + self.counted_bytes(inode, node), sum.1 + 1))
    }

    fn must_hold(&self, info: &AccountInfo, right: Sum) -> Result<(), Stop> {
        let is = (info.value.bytes, info.value.inodes);
        match is == right {
            true => Ok(()),
            false => Err(Stop::Failure(format!("the account of {} says {is:?}, and {right:?} is right", info.account))),
        }
    }

    /// Somebody whose limit a file of this owner in this directory meets.
    fn holder_of(&mut self, holder: u8, directory: u64, owner: (u32, u32)) -> Result<Option<Account>, Stop> {
        let told = self.volumes_told()?;
        let mut around: Vec<Account> = Vec::new();
        let mut at = directory;
        loop {
            around.extend(told.get(&at).map(|info| info.account));
            if at == ROOT {
                break;
            }
            at = self.model.nodes[&at].parent;
        }
        Ok(match holder {
            0 => Some(Account { holder: Holder::User, number: owner.0 }),
            1 => Some(Account { holder: Holder::Group, number: owner.1 }),
            2 => around.first().copied(),
            _ => around.last().copied(),
        })
    }

    fn stored(&mut self, whose: Account) -> Result<u64, Stop> {
        self.sync_all()?;
        self.settle_accounts()?;
        let infos = self.account_infos(whose.holder)?;
        Ok(infos.into_iter().find(|info| info.account == whose).map_or(0, |info| info.value.stored))
    }

    /// P-124: a limit of stored bytes refuses what would go beyond it, and nothing else.
    fn reach_stored(&mut self, holder: u8, blocks: u64, days: Option<u8>) -> Result<(), Stop> {
        if !self.accounts.is_on || !self.is_undisturbed() {
            return Ok(());
        }
        let is_directory = |node: &Node| matches!(node.kind, Kind::Directory(_)) && node.nlink > 0;
        let nodes = self.model.nodes.iter().filter(|(_, node)| is_directory(node));
        let directories: Vec<u64> = nodes.map(|(inode, _)| *inode).collect();
        let directory = *self.random.pick(&directories);
        let owner = self.machine.owner();
        let Some(whose) = self.holder_of(holder, directory, owner)? else { return Ok(()) };
        if self.model.lookup(directory, REACHES).is_ok() {
            return Ok(());
        }
        self.machine.disarm();
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = self.mounted().files.create(&caller(&self.machine), directory, REACHES, 0o666, flags);
        let (attributes, handle) = self.must("create", created)?;
        let inode = attributes.inode;
        self.made(directory, REACHES, inode, Node::new(Kind::File(Default::default()), 0o644))?;
        self.model.open(inode);
        let limit = self.stored(whose)? + blocks * BLOCK;
        let limits = match days {
            None => Limits { stored: Some(Some(limit)), ..Limits::default() },
            Some(days) => {
                let grace_seconds = Some(Some(u32::from(days) * DAY_SECONDS + DAY_SECONDS / 2));
                Limits { soft_stored: Some(Some(limit)), grace_seconds, ..Limits::default() }
            }
        };
        let set = self.mounted().files.quotas().set_quota(&caller(&self.machine), whose, limits);
        self.must("setting a limit of stored bytes", set)?;
        match days {
            None => self.write_until_refused(inode, whose, limit)?,
            Some(days) => self.write_beyond(inode, whose, limit, days)?,
        }
        self.truncate(inode, 5000)?;
        self.lift(whose)?;
        self.release(Slot { inode, handle })?;
        self.verify_file(inode)?;
        self.remove_name(directory, REACHES, false)?;
        self.summary.stored_reached += 1;
        self.check_accounts()
    }

    /// Writes one piece behind the end; how much of it was taken, nothing if it was refused.
    fn append(&mut self, inode: u64, length: usize) -> Result<Option<usize>, Stop> {
        let end = self.model.nodes[&inode].content().map_or(0, |content| content.size());
        let mut data = vec![0; length];
        data.iter_mut().for_each(|byte| *byte = self.random.next_u64() as u8);
        let real = self.mounted().files.write(&caller(&self.machine), inode, end, &data, false);
        if matches!(real, Err(Error::OverQuota(_))) {
            self.summary.over_quota += 1;
            return Ok(None);
        }
        let taken = self.must("write below a limit of stored bytes", real)?;
        let mut after = (*self.content(inode)).clone();
        after.write(end, &data[..taken]);
        self.put_content(inode, after);
        Ok(Some(taken))
    }

    fn write_until_refused(&mut self, inode: u64, whose: Account, limit: u64) -> Result<(), Stop> {
        for _ in 0..PIECES_MAX {
            match self.append(inode, PIECE)? {
                Some(taken) if taken == PIECE => {}
                Some(_) | None => break,
            }
        }
        let most = PIECES_MAX * PIECE as u64;
        if self.content(inode).size() >= most {
            return Err(Stop::Failure(format!("{whose} is to store {limit} bytes, and {most} more were taken")));
        }
        let stored = self.stored(whose)?;
        // Of what is compressed one write is taken whole; what it is worth with its copies is known then.
        if stored > limit + FACTOR_MAX * PIECE as u64 {
            return Err(Stop::Failure(format!("{whose} stores {stored} bytes, and {limit} is the limit")));
        }
        // One block more is refused only where it has no room.
        if self.append(inode, BLOCK as usize)?.is_none() {
            if stored + (FACTOR_MAX + 1) * 2 * BLOCK + PIECE as u64 * FACTOR_MAX <= limit {
                return Err(Stop::Failure(format!("{whose} stores {stored} bytes of {limit}, and is refused a block")));
            }
            return Ok(());
        }
        // What is beyond takes nothing more.
        let stored = self.stored(whose)?;
        match stored >= limit && self.append(inode, PIECE)?.is_some_and(|taken| taken >= 2 * BLOCK as usize) {
            true => Err(Stop::Failure(format!("{whose} stores {stored} bytes of {limit}, and more was taken"))),
            false => Ok(()),
        }
    }

    fn write_beyond(&mut self, inode: u64, whose: Account, limit: u64, days: u8) -> Result<(), Stop> {
        for _ in 0..PIECES_MAX {
            if self.append(inode, PIECE)? != Some(PIECE) {
                return Err(Stop::Failure(format!("{whose} may store more than {limit} for a while, and is refused")));
            }
            if self.stored(whose)? > limit {
                break;
            }
        }
        self.pass_days(days + 1);
        self.tell_time();
        match self.append(inode, PIECE)?.is_some_and(|taken| taken >= 2 * BLOCK as usize) {
            true => Err(Stop::Failure(format!("the while is over in which {whose} may store more than {limit}"))),
            false => Ok(()),
        }
    }
}
