//! Volumes and quotas: a directory made a volume, limits of users, groups and volumes, and what is told of them.
//!
//! An inode counts in the volume that stands in it: that of the directory it inherits its policy from, where it was named last. A file
//! that gets another name in another volume counts there from the same transaction on; a directory that is moved does, too, and what is below
//! it follows in the background (`accounting.rs`). A volume that is moved takes what it comes to along, at once.
//! Invariants: a volume's account holds what counts in it and in all volumes that lie in it; `VolumePlace::parent` is the volume of the
//! directory that the volume lies in; numbers of volumes are used once.
//! Read next: `stere_file::accounts` (how accounts are kept), `accounting.rs`, `docs/design/volumes.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_faults::{Bug, is_planted};
use stere_file::accounts::{self, Account, Amount, Most, account, accounting, put_account, volume_place, volumes_of};
use stere_file::metadata::{attributes_of, counted_metadata};
use stere_file::{Keys, inode_if_any, own_retain};
use stere_format::{AccountValue, AccountingValue, FileKind, Holder, InodeValue, Key, VolumePlace, key};
use stere_namespace::call::{Caller, FileSystemStatistics, ROOT};
use stere_namespace::error::Error;
use stere_namespace::inode::{directory, living_directory};
use stere_namespace::names::{Form, is_empty};
use stere_namespace::walk::{Walk, path_of};
use stere_policy::Retention;
use stere_store::{Io, Transaction};

use crate::accounting::Quotas;

/// Volumes in one another.
const NESTING_MAX: usize = 32;
/// Of 128 inodes each.
const COUNTED_AT_ONCE_STEPS: usize = 512;
/// Names below a directory that are looked at before it is moved into a volume with a limit.
const LOOKED_AT_MAX: usize = 4096;
/// Directories above one another that are followed before the metadata is taken to be damaged.
const DEPTH_MAX: usize = 65_536;
/// For how long a volume that is to be deleted waits for that.
const CONDEMNED_SECONDS: i64 = 30;

/// Limits to set; `None` leaves one as it is, `Some(None)` takes it away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes.
    pub bytes: Option<Option<u64>>,
    /// Most inodes.
    pub inodes: Option<Option<u64>>,
    /// Most stored bytes.
    pub stored: Option<Option<u64>>,
    /// Most bytes but for a while.
    pub soft_bytes: Option<Option<u64>>,
    /// Most inodes but for a while.
    pub soft_inodes: Option<Option<u64>>,
    /// Most stored bytes but for a while.
    pub soft_stored: Option<Option<u64>>,
    /// How long the while is, in seconds; `Some(None)`: as usual.
    pub grace_seconds: Option<Option<u32>>,
}

impl Limits {
    fn apply_to(self, value: &mut AccountValue) {
        value.bytes_max = self.bytes.unwrap_or(value.bytes_max);
        value.inodes_max = self.inodes.unwrap_or(value.inodes_max);
        value.stored_max = self.stored.unwrap_or(value.stored_max);
        value.soft.bytes = self.soft_bytes.unwrap_or(value.soft.bytes);
        value.soft.inodes = self.soft_inodes.unwrap_or(value.soft.inodes);
        value.soft.stored = self.soft_stored.unwrap_or(value.soft.stored);
        let grace_seconds = self.grace_seconds.map_or(value.soft.grace_seconds, |grace| grace.unwrap_or(0));
        value.soft.grace_seconds = grace_seconds;
    }
}

/// An account, as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountInfo {
    /// Whose.
    pub account: Account,
    /// What it holds.
    pub value: AccountValue,
    /// What it may come to, also where others' limits hold for it.
    pub most: Most,
    /// Of volumes: where they are; none where the directory is gone.
    pub path: Option<Vec<u8>>,
}

/// How far accounts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountsState {
    /// The pool keeps none.
    Off,
    /// What exists is being counted; so far inodes below this number.
    Counting(u64),
    /// Everything is counted but stored bytes, which are still being looked at.
    Charging,
    /// Everything is counted; directories that were moved, or made volumes, may still be on their way.
    Moving,
    /// Every inode counts where it lies.
    Exact,
}

fn volume(number: u32) -> Account {
    Account { holder: Holder::Volume, number }
}

/// Which volume a directory is, if it is one.
fn volume_at(keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Option<u32>, Error> {
    let place = volume_place(keys, value.volume)?;
    let is_here = place.is_some_and(|place| place.directory == inode && !place.is_deleted);
    Ok(is_here.then_some(value.volume))
}

fn is_below(keys: &impl Keys, inode: u64, above: u64) -> Result<bool, Error> {
    let mut at = inode;
    for _ in 0..DEPTH_MAX {
        if at == above {
            return Ok(true);
        }
        match inode_if_any(keys, at)? {
            Some(value) if at != ROOT => at = value.parent,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

impl Quotas {
    /// From now on the pool keeps accounts; what exists is counted, the most of a large pool in the background.
    fn keep_accounts(&self, caller: &Caller<'_>, limits: &Limits) -> Result<(), Error> {
        if !self.core.files.accounts().is_on() {
            self.begin_accounts(caller)?;
        }
        let of_stored = [limits.stored, limits.soft_stored];
        if of_stored.iter().any(Option::is_some) && !self.core.files.accounts().keeps_stored() {
            self.core.files.charging.keep_stored(caller.io)?;
            for _ in 0..COUNTED_AT_ONCE_STEPS {
                if !self.core.files.charging.charge_some(caller.io)? {
                    break;
                }
            }
        }
        let accounts = self.core.files.accounts();
        assert!(accounts.is_on(), "a limit is set where accounts are kept");
        assert!(
            accounts.keeps_stored() || of_stored.iter().all(Option::is_none),
            "stored bytes are counted from now on"
        );
        Ok(())
    }

    fn begin_accounts(&self, caller: &Caller<'_>) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            if accounting(transaction)?.is_none() {
                let value =
                    AccountingValue { next_volume: 1, counted: 0, charged: None, metadata: AccountingValue::ALL };
                transaction.put(Key::accounting(), &value.encode());
            }
            Ok::<_, Error>(())
        })?;
        self.core.files.accounts().turn_on();
        // What is not too much is counted at once, so that limits hold from the beginning.
        for _ in 0..COUNTED_AT_ONCE_STEPS {
            if !self.count_some(caller)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes a directory a volume. What is in it counts in the volume from now on, after a while.
    pub fn create_volume(&self, caller: &Caller<'_>, inode: u64, limits: Limits) -> Result<u32, Error> {
        self.keep_accounts(caller, &limits)?;
        self.core.store.update(caller.io, |transaction| {
            let mut value = living_directory(transaction, inode)?;
            let accounting = accounting(transaction)?.ok_or(Error::Stale)?;
            if volume_at(transaction, inode, &value)?.is_some() {
                return Err(Error::Invalid("the directory is a volume already"));
            }
            let (parent, number) = (value.volume, accounting.next_volume);
            if volumes_of(transaction, parent)?.len() >= NESTING_MAX {
                return Err(Error::Invalid("32 volumes can lie in each other, not more"));
            }
            let next_volume = number.checked_add(1).ok_or(Error::Invalid("all numbers of volumes were used"))?;
            transaction.put(Key::accounting(), &AccountingValue { next_volume, ..accounting }.encode());
            let place = VolumePlace { parent, directory: inode, is_deleted: false };
            let mut account = AccountValue { place: Some(place), ..AccountValue::default() };
            limits.apply_to(&mut account);
            put_account(transaction, volume(number), &account)?;
            // What is there already is not refused.
            transaction.set_charge_pending();
            self.hand_over(transaction, parent, number, Some(inode))?;
            value.volume = number;
            stere_file::put_inode(transaction, inode, &value);
            if !is_empty(transaction, inode)? {
                self.note_recount(transaction, inode)?;
            }
            Ok(number)
        })
    }

    /// Makes a volume an ordinary directory again; what it held counts in the volume above, after a while.
    pub fn dissolve_volume(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            let mut value = directory(transaction, inode)?;
            let number = volume_at(transaction, inode, &value)?.ok_or(Error::Invalid(NO_VOLUME))?;
            let above = self.close_volume(transaction, number)?;
            transaction.set_charge_pending();
            self.hand_over(transaction, number, above, None)?;
            value.volume = above;
            stere_file::put_inode(transaction, inode, &value);
            if !is_empty(transaction, inode)? {
                self.note_recount(transaction, inode)?;
            }
            Ok(())
        })
    }

    /// Notes that a volume's directory is none any more; gives the volume it lay in.
    fn close_volume(&self, transaction: &mut Transaction<'_>, number: u32) -> Result<u32, Error> {
        let mut value = account(transaction, volume(number))?;
        let Some(place) = value.place else { return Ok(0) };
        value.place = Some(VolumePlace { is_deleted: true, ..place });
        put_account(transaction, volume(number), &value)?;
        Ok(place.parent)
    }

    /// A directory goes: if it was a volume, that goes with what counts in it.
    pub fn close_volume_at(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        if value.volume != 0
            && let Some(number) = volume_at(transaction, inode, value)?
        {
            self.close_volume(transaction, number)?;
        }
        Ok(())
    }

    /// Volumes that lie in `from` lie in `to` from now on: all, when `from` is dissolved into `to`, or those below a directory, when that becomes
    /// the volume `to` in `from`. Either way the outer of the two holds them before and after.
    fn hand_over(
        &self,
        transaction: &mut Transaction<'_>,
        from: u32,
        to: u32,
        below: Option<u64>,
    ) -> Result<(), Error> {
        for info in read_accounts(transaction, Holder::Volume)? {
            let (whose, mut value) = info;
            let Some(place) = value.place.filter(|place| place.parent == from && whose.number != to) else { continue };
            let is_concerned = match below {
                Some(above) => is_below(transaction, place.directory, above)?,
                None => true,
            };
            if !is_concerned {
                continue;
            }
            value.place = Some(VolumePlace { parent: to, ..place });
            put_account(transaction, whose, &value)?;
            let (inner, amount) = match below {
                Some(_) => (to, Amount::of(&value)),
                None => (from, Amount::of(&value).negative()),
            };
            self.core.files.accounts().change(transaction, volume(inner), amount)?;
        }
        Ok(())
    }

    /// To be called when an inode's `parent` is another directory: it counts in the volume of that one. The caller puts the inode.
    pub fn count_where_it_lies(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: &mut InodeValue,
    ) -> Result<(), Error> {
        if !self.core.files.accounts().is_on() {
            return Ok(());
        }
        let Some(home) = inode_if_any(transaction, value.parent)?.map(|directory| directory.volume) else {
            return Ok(());
        };
        if let Some(number) = volume_at(transaction, inode, value)? {
            return self.move_volume(transaction, number, home);
        }
        if value.volume != home {
            value.volume = home;
            if value.kind() == Some(FileKind::Directory) && !is_empty(transaction, inode)? {
                self.note_recount(transaction, inode)?;
            }
        }
        Ok(())
    }

    /// Before a name is moved from one volume to another: what is not saved of a file is, and a directory that has more in it than there
    /// is room for is refused, as far as that is seen in a bounded look.
    pub fn prepare_move(&self, caller: &Caller<'_>, inode: u64, kind: FileKind, new_parent: u64) -> Result<(), Error> {
        if !self.core.files.accounts().is_on() {
            return Ok(());
        }
        let (is_far, is_volume, left) = self.core.store.view(caller.io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok((false, false, Vec::new())) };
            let home = inode_if_any(view, new_parent)?.map_or(value.volume, |directory| directory.volume);
            let is_volume = volume_at(view, inode, &value)?.is_some();
            let from = volumes_of(view, value.volume)?;
            let entered = volumes_of(view, home)?.into_iter().filter(|number| !from.contains(number));
            let now = self.core.files.accounts().now_seconds();
            let left = entered.map(|number| Ok(accounts::limited_now(view, volume(number), now)?));
            let left = left.collect::<Result<Vec<_>, Error>>()?;
            Ok::<_, Error>((value.volume != home, is_volume, left))
        })?;
        if !is_far || is_volume {
            return Ok(());
        }
        match kind {
            FileKind::File => Ok(self.core.files.writeback.save(&caller.context(), inode)?),
            FileKind::Directory => self.check_fits(caller, inode, &left),
            _ => Ok(()),
        }
    }

    fn check_fits(&self, caller: &Caller<'_>, inode: u64, volumes: &[AccountValue]) -> Result<(), Error> {
        let least = |of: fn(&AccountValue) -> Option<u64>| volumes.iter().filter_map(of).min().unwrap_or(u64::MAX);
        let bytes_left = least(|value| Some(value.bytes_max?.saturating_sub(value.bytes)));
        let inodes_left = least(|value| Some(value.inodes_max?.saturating_sub(value.inodes)));
        let stored_left = least(|value| Some(value.stored_max?.saturating_sub(value.stored)));
        if [bytes_left, inodes_left, stored_left] == [u64::MAX; 3] {
            return Ok(());
        }
        let mut walk = Walk::new(inode, FileKind::Directory, Vec::new(), Form::Plain);
        let (mut bytes, mut inodes, mut stored) = (0_u64, 0, 0_u64);
        for _ in 0..LOOKED_AT_MAX {
            let Some(met) = walk.next(&self.core.store, &self.core.names, caller.io)? else { return Ok(()) };
            if let Some(value) = self.core.files.attributes(caller.io, met.inode)? {
                let attributes = self.core.store.view(caller.io, |view| attributes_of(view, met.inode, &value))?;
                let metadata = counted_metadata(&value, attributes);
                bytes = bytes.saturating_add(accounts::counted_bytes(&value) + metadata);
                stored = stored.saturating_add(value.charged_bytes + metadata);
            }
            inodes += 1;
            if bytes > bytes_left || inodes > inodes_left || stored > stored_left {
                return Err(Error::OverQuota("the volume that it would lie in".into()));
            }
        }
        Ok(())
    }

    /// A volume lies in another one from now on.
    fn move_volume(&self, transaction: &mut Transaction<'_>, number: u32, to: u32) -> Result<(), Error> {
        let mut value = account(transaction, volume(number))?;
        let Some(place) = value.place.filter(|place| place.parent != to) else { return Ok(()) };
        let amount = if is_planted(Bug::VolumeMovedAlone) { Amount::default() } else { Amount::of(&value) };
        let mut changes: BTreeMap<u32, i64> = BTreeMap::new();
        for (above, sign) in [(place.parent, -1), (to, 1)] {
            for number in volumes_of(transaction, above)? {
                *changes.entry(number).or_default() += sign;
            }
        }
        value.place = Some(VolumePlace { parent: to, ..place });
        put_account(transaction, volume(number), &value)?;
        for (number, sign) in changes.into_iter().filter(|(_, sign)| *sign != 0) {
            assert_eq!(sign.abs(), 1, "volume {number} is left or entered once");
            let amount = if sign > 0 { amount } else { amount.negative() };
            self.core.files.accounts().change(transaction, volume(number), amount)?;
        }
        Ok(())
    }

    /// Sets limits of a user or a group.
    pub fn set_quota(&self, caller: &Caller<'_>, whose: Account, limits: Limits) -> Result<(), Error> {
        self.keep_accounts(caller, &limits)?;
        self.core.files.accounts().note_time(caller.now);
        self.core.store.update(caller.io, |transaction| {
            let mut value = account(transaction, whose)?;
            if whose.holder == Holder::Volume && value.place.is_none_or(|place| place.is_deleted) {
                return Err(Error::Invalid(NO_VOLUME));
            }
            limits.apply_to(&mut value);
            Most::of(transaction, whose, &value)?.watch(&mut value, self.core.files.accounts().now_seconds());
            put_account(transaction, whose, &value)?;
            Ok(())
        })
    }

    /// Sets limits of the volume that a directory is.
    pub fn set_volume(&self, caller: &Caller<'_>, inode: u64, limits: Limits) -> Result<(), Error> {
        let number = self.core.store.view(caller.io, |view| volume_at(view, inode, &directory(view, inode)?))?;
        self.set_quota(caller, volume(number.ok_or(Error::Invalid(NO_VOLUME))?), limits)
    }

    /// All accounts of users, of groups or of volumes.
    pub fn accounts(&self, io: Io<'_>, holder: Holder) -> Result<Vec<AccountInfo>, Error> {
        let accounts = self.core.store.view(io, |view| {
            let found = read_accounts(view, holder)?;
            let with_limits =
                found.into_iter().map(|(whose, value)| Ok((whose, value, Most::of(view, whose, &value)?)));
            with_limits.collect::<Result<Vec<_>, Error>>()
        })?;
        let infos = accounts.into_iter().map(|(account, value, most)| {
            let path = match value.place.filter(|place| !place.is_deleted) {
                Some(place) => path_of(&self.core.store, &self.core.names, io, place.directory)?,
                None => None,
            };
            Ok(AccountInfo { account, value, most, path })
        });
        infos.collect()
    }

    /// Whether stored bytes are counted: somebody limited them once.
    pub fn keeps_stored(&self) -> bool {
        self.core.files.accounts().keeps_stored()
    }

    /// How far accounts are kept.
    pub fn accounts_state(&self, io: Io<'_>) -> Result<AccountsState, Error> {
        let Some(accounting) = self.core.store.view(io, |view| accounting(view))? else {
            return Ok(AccountsState::Off);
        };
        Ok(match accounting.counted.min(accounting.metadata) {
            AccountingValue::ALL if self.has_recounts(io)? => AccountsState::Moving,
            AccountingValue::ALL if accounting.charged.is_some_and(|to| to.inode != AccountingValue::ALL) => {
                AccountsState::Charging
            }
            AccountingValue::ALL => AccountsState::Exact,
            counted => AccountsState::Counting(counted),
        })
    }

    /// The next removal of this directory, if it comes soon, takes all that is in it: it is a volume that is to be deleted.
    pub fn condemn_volume(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        let value = self.core.store.view(caller.io, |view| {
            let value = directory(view, inode)?;
            volume_at(view, inode, &value)?.ok_or(Error::Invalid(NO_VOLUME))?;
            Ok::<_, Error>(value)
        })?;
        if inode == ROOT {
            return Err(Error::Busy);
        }
        if self.retention.is_used() {
            self.check_none_retained(caller, inode, &value)?;
        }
        *self.condemned.lock() = Some((inode, caller.now.seconds));
        Ok(())
    }

    /// Takes `condemn_volume` back.
    pub fn spare_volume(&self) {
        *self.condemned.lock() = None;
    }

    pub fn is_condemned(&self, caller: &Caller<'_>, inode: u64) -> bool {
        let age = |since: i64| caller.now.seconds.saturating_sub(since);
        let condemned = *self.condemned.lock();
        condemned.is_some_and(|(other, since)| other == inode && (0..CONDEMNED_SECONDS).contains(&age(since)))
    }

    fn check_none_retained(&self, caller: &Caller<'_>, inode: u64, _value: &InodeValue) -> Result<(), Error> {
        let mut walk = Walk::new(inode, FileKind::Directory, Vec::new(), Form::Plain);
        while let Some(met) = walk.next(&self.core.store, &self.core.names, caller.io)? {
            let Some(value) = self.core.store.view(caller.io, |view| inode_if_any(view, met.inode))? else {
                continue;
            };
            stere_file::check_changeable(&value, caller.now)?;
            if own_retain(&value).is_some_and(|retain| retain.retention != Retention::Nothing)
                && met.kind == FileKind::Directory
            {
                return Err(Error::NotPermitted("files below a directory in it are to be retained; delete it by hand"));
            }
        }
        Ok(())
    }

    /// Totals as they are seen from an inode: where volumes set limits, what is left within them.
    pub fn statfs_at(&self, io: Io<'_>, inode: u64) -> Result<FileSystemStatistics, Error> {
        // What was removed is free, though its pieces may be given back one after the other.
        self.core.files.reservations.free_removed(io, false)?;
        let totals = self.core.statfs();
        if !self.core.files.accounts().is_on() {
            return Ok(totals);
        }
        let volumes = self.core.store.view(io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok(Vec::new()) };
            let numbers = volumes_of(view, value.volume)?;
            let now = self.core.files.accounts().now_seconds();
            let held = numbers.into_iter().map(|number| Ok(accounts::limited_now(view, volume(number), now)?));
            held.collect::<Result<Vec<_>, Error>>()
        })?;
        Ok(within(totals, &volumes))
    }
}

const NO_VOLUME: &str = "the directory is no volume; `stere volume list POOL` tells which there are";

/// Totals within volumes, from the innermost on: the use of the innermost that has a limit, and the least that any leaves.
fn within(totals: FileSystemStatistics, volumes: &[AccountValue]) -> FileSystemStatistics {
    let mut totals = totals;
    let block = u64::from(totals.block_bytes);
    let seen = |free: u64, unit: u64, is: fn(&AccountValue) -> u64, most: fn(&AccountValue) -> Option<u64>| {
        let limited = || volumes.iter().filter_map(|volume| Some((is(volume), most(volume)?)));
        let used = limited().next()?.0.div_ceil(unit);
        let least = limited().map(|(is, most)| most.saturating_sub(is) / unit).min()?;
        Some((used, free.min(least)))
    };
    if let Some((used, free)) = seen(totals.blocks_free, block, |volume| volume.bytes, |volume| volume.bytes_max) {
        (totals.blocks, totals.blocks_free) = (used + free, free);
    }
    assert!(totals.blocks_free <= totals.blocks, "{} blocks are free of {}", totals.blocks_free, totals.blocks);
    if let Some((used, free)) = seen(totals.files_free, 1, |volume| volume.inodes, |volume| volume.inodes_max) {
        (totals.files, totals.files_free) = (used + free, free);
    }
    totals
}

pub fn read_accounts(keys: &impl Keys, holder: Holder) -> Result<Vec<(Account, AccountValue)>, Error> {
    let (mut found, mut failure) = (Vec::new(), None);
    let (from, to) =
        (Key::account(holder, 0), Key::new(key::tree::INDEXES, holder as u64, key::kind::ACCOUNT, u64::MAX));
    keys.visit(from, to, &mut |key, bytes| {
        let number = u32::try_from(key.position).ok();
        match (number, AccountValue::decode(bytes)) {
            (Some(number), Ok(value)) => found.push((Account { holder, number }, value)),
            _ => failure = Some(Error::Damaged("an account does not decode; unmount and run `stere check`".into())),
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok(found), Err)
}

/// What the check finds wrong with accounts, when it counted them itself.
pub fn compare_accounts(
    counted: accounts::Sums,
    stored: &BTreeMap<Account, AccountValue>,
    mut tell: impl FnMut(String),
) {
    let above = |number: u32| {
        let place = stored.get(&volume(number)).and_then(|value| value.place);
        Ok::<_, std::convert::Infallible>(place.map_or(0, |place| place.parent))
    };
    let Ok(all) = accounts::with_volumes_above(counted, above);
    for (account, amount) in &all {
        let value = stored.get(account).copied().unwrap_or_default();
        if Amount::of(&value) != *amount {
            tell(format!(
                "the account of {account} says {} bytes, {} stored, and {} inodes, and comes to {}, {} and {}",
                value.bytes, value.stored, value.inodes, amount.bytes, amount.stored, amount.inodes
            ));
        }
        if account.holder == Holder::Volume && value.place.is_none() {
            tell(format!("inodes count in {account}, which does not exist"));
        }
    }
    for (account, value) in stored.iter().filter(|(account, _)| !all.contains_key(account)) {
        if Amount::of(value) != Amount::default() {
            tell(format!("the account of {account} says {} inodes, and there are none", value.inodes));
        }
    }
}
