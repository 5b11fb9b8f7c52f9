//! Accounts: what the files of each user, each group and each volume take, kept in the transaction that changes it.
//!
//! Nobody who changes an inode has to think of accounts: every transaction is looked at before it takes effect (`Accounts::settle`), and
//! what its inodes are before and after makes the difference that the accounts get. So they cannot drift, whatever makes the change.
//! A limit refuses a transaction that makes an account greater, unless what it adds was accepted before (`pending_charges.rs`). What was said to be
//! Stored bytes are counted in the same way where somebody limited them (`charge.rs`). What was said to be
//! gone beyond for a while only is such a limit when the while is over; time is what the caller said last (`note_time`).
//! Invariants: an account is the sum over all counted inodes that count in it; inodes are counted in the order of their numbers, and
//! changes of one that is not counted yet change no account.
//! Read next: `pending_charges.rs` (writes that are accepted and not saved), `crates/features/src/volumes.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{
    AccountValue, AccountingValue, FileKind, Holder, InodeValue, Key, SoftLimits, Timestamp, VolumePlace, key,
};
use stere_store::{Error, Io, Store, Transaction};

use crate::block::BLOCK;
use crate::charge;
use crate::keys::Keys;
use crate::metadata::{attributes_of, changed_attributes, counted_metadata};
use crate::pending_charges::Book;

/// Volumes in one another; more is damage.
const NESTING_MAX: usize = 1024;
/// For how long there may be more than a soft limit, where nobody says it.
pub const GRACE_SECONDS: u32 = 7 * 86_400;

/// Whose account it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub holder: Holder,
    /// Number of the user, group or volume.
    pub number: u32,
}

impl std::fmt::Display for Account {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self.holder {
            Holder::User => "user",
            Holder::Group => "group",
            Holder::Volume => "volume",
        };
        write!(formatter, "{word} {}", self.number)
    }
}

/// What something takes, or by how much that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Amount {
    pub bytes: i64,
    pub inodes: i64,
    /// On devices.
    pub stored: i64,
}

impl Amount {
    /// All that an account has.
    pub fn of(value: &AccountValue) -> Amount {
        Amount { bytes: value.bytes as i64, inodes: value.inodes as i64, stored: value.stored as i64 }
    }

    pub fn negative(self) -> Amount {
        Amount { bytes: -self.bytes, inodes: -self.inodes, stored: -self.stored }
    }

    fn add(&mut self, other: Amount) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
        self.stored += other.stored;
    }
}

/// Changes of accounts, or what they come to.
pub type Sums = BTreeMap<Account, Amount>;

/// What an inode counts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted {
    uid: u32,
    gid: u32,
    volume: u32,
    bytes: u64,
    stored: u64,
}

/// The bytes that an inode counts for its content: of a file its size in whole blocks, or what is allocated for it if that is more.
pub fn counted_bytes(value: &InodeValue) -> u64 {
    match value.kind() {
        Some(FileKind::File) => in_blocks(value.size).max(value.blocks_bytes),
        _ => 0,
    }
}

pub(crate) fn in_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

impl Counted {
    /// `attributes`: the bytes of the inode's attributes, where metadata counts.
    fn of(value: &InodeValue, attributes: Option<u64>) -> Counted {
        let InodeValue { uid, gid, volume, charged_bytes, .. } = *value;
        let metadata = attributes.map_or(0, |attributes| counted_metadata(value, attributes));
        Counted { uid, gid, volume, bytes: counted_bytes(value) + metadata, stored: charged_bytes + metadata }
    }

    fn add_to(&self, sums: &mut Sums, sign: i64) {
        let amount = Amount { bytes: sign * self.bytes as i64, inodes: sign, stored: sign * self.stored as i64 };
        let mut add = |holder, number| sums.entry(Account { holder, number }).or_default().add(amount);
        add(Holder::User, self.uid);
        add(Holder::Group, self.gid);
        if self.volume != 0 {
            add(Holder::Volume, self.volume);
        }
    }
}

/// Adds what an inode counts, in the volume itself only. `attributes`: the bytes of its attributes, where its metadata counts.
pub fn add_inode(sums: &mut Sums, value: &InodeValue, attributes: Option<u64>) {
    Counted::of(value, attributes).add_to(sums, 1);
}

/// Adds what the metadata of an inode counts that is counted already.
pub(crate) fn add_metadata(sums: &mut Sums, value: &InodeValue, attributes: u64) {
    Counted::of(value, None).add_to(sums, -1);
    Counted::of(value, Some(attributes)).add_to(sums, 1);
}

/// What the inodes of a transaction that are in the accounts are before and after it, with the bytes of their attributes.
struct Changes {
    accounting: AccountingValue,
    attributes: BTreeMap<u64, i64>,
}

type Seen = Option<InodeValue>;

impl Changes {
    fn add_all(transaction: &Transaction<'_>, accounting: AccountingValue) -> Result<Sums, Error> {
        let mut changes = Changes { accounting, attributes: changed_attributes(transaction)? };
        let mut sums = Sums::new();
        transaction.changed(key::tree::NAMES, key::kind::INODE, |key, before, after| {
            // What does not decode counts nothing; whoever puts it right counts it.
            let decode = |bytes: Option<&[u8]>| bytes.and_then(|bytes| InodeValue::decode(bytes).ok());
            let of_attributes = changes.attributes.remove(&key.object).unwrap_or(0);
            changes.add(transaction, key.object, (decode(before), decode(after)), of_attributes, &mut sums)
        })?;
        for (inode, of_attributes) in std::mem::take(&mut changes.attributes) {
            let value = charge::value(transaction, inode)?;
            changes.add(transaction, inode, (value.clone(), value), of_attributes, &mut sums)?;
        }
        Ok(sums)
    }

    fn add(
        &self,
        transaction: &Transaction<'_>,
        inode: u64,
        (before, after): (Seen, Seen),
        of_attributes: i64,
        sums: &mut Sums,
    ) -> Result<(), Error> {
        if inode >= self.accounting.counted {
            return Ok(());
        }
        let counts_metadata = inode < self.accounting.metadata;
        let owner = |seen: &Seen| seen.as_ref().map(|value| (value.uid, value.gid, value.volume));
        // Where the owner and the attributes are the same these count the same before and after.
        let attributes = match &after {
            Some(value) if counts_metadata && (owner(&before) != owner(&after) || of_attributes != 0) => {
                attributes_of(transaction, inode, value)?
            }
            _ => 0,
        };
        let attributes_before = attributes.saturating_add_signed(-of_attributes);
        let counted =
            |seen: &Seen, bytes: u64| seen.as_ref().map(|value| Counted::of(value, counts_metadata.then_some(bytes)));
        let (before, after) = (counted(&before, attributes_before), counted(&after, attributes));
        if before != after {
            before.inspect(|counted| counted.add_to(sums, -1));
            after.inspect(|counted| counted.add_to(sums, 1));
        }
        Ok(())
    }
}

/// Adds what counts in volumes to those above them; `above` tells which volume one lies in, 0 for none.
pub fn with_volumes_above<E>(sums: Sums, mut above: impl FnMut(u32) -> Result<u32, E>) -> Result<Sums, E> {
    let holder = Holder::Volume;
    assert!(!sums.contains_key(&Account { holder, number: 0 }), "number 0 stands for no volume");
    let mut all = sums.clone();
    for (account, amount) in sums.into_iter().filter(|(account, _)| account.holder == holder) {
        let mut number = above(account.number)?;
        for _ in 0..NESTING_MAX {
            if number == 0 {
                break;
            }
            all.entry(Account { holder, number }).or_default().add(amount);
            number = above(number)?;
        }
    }
    Ok(all)
}

/// Whether and how far accounts are kept.
pub fn accounting(keys: &impl Keys) -> Result<Option<AccountingValue>, Error> {
    let Some(bytes) = keys.value(&Key::accounting())? else { return Ok(None) };
    Ok(Some(AccountingValue::decode(&bytes).map_err(|error| bad("accounting", &error))?))
}

/// What an account holds.
pub fn account(keys: &impl Keys, account: Account) -> Result<AccountValue, Error> {
    match keys.value(&Key::account(account.holder, account.number))? {
        Some(bytes) => AccountValue::decode(&bytes).map_err(|error| bad("an account", &error)),
        None => Ok(AccountValue::default()),
    }
}

/// Puts an account, or lets it go when it tells of nothing.
pub fn put_account(transaction: &mut Transaction<'_>, whose: Account, value: &AccountValue) -> Result<(), Error> {
    let key = Key::account(whose.holder, whose.number);
    // In a volume inodes may count that are not counted yet.
    let is_known = || Ok::<_, Error>(accounting(transaction)?.is_some_and(|it| it.counted == AccountingValue::ALL));
    if value.is_void() && (value.place.is_none() || is_known()?) {
        transaction.delete(key);
    } else {
        transaction.put(key, &value.encode());
    }
    Ok(())
}

/// What an account may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Most {
    pub bytes: Option<u64>,
    pub inodes: Option<u64>,
    pub stored: Option<u64>,
    pub soft: SoftLimits,
}

impl Most {
    fn said(value: &AccountValue) -> Most {
        Most { bytes: value.bytes_max, inodes: value.inodes_max, stored: value.stored_max, soft: value.soft }
    }

    /// The limits of an account: its own, or of users and groups those of all who have none of their own. Root has none unless
    /// it is said.
    pub fn of(keys: &impl Keys, whose: Account, value: &AccountValue) -> Result<Most, Error> {
        let is_other = matches!(whose.holder, Holder::User | Holder::Group)
            && (whose.number != 0 || is_planted(Bug::OthersIncludeRoot));
        if value.has_limits() || !is_other {
            return Ok(Most::said(value));
        }
        let of_others = account(keys, Account { number: AccountValue::OTHERS, ..whose })?;
        Ok(Most::said(&of_others).since(value))
    }

    fn grace_seconds(&self) -> u64 {
        u64::from(if self.soft.grace_seconds == 0 { GRACE_SECONDS } else { self.soft.grace_seconds })
    }

    /// How many seconds there may still be more than a soft limit since this moment; none if that is over.
    pub fn left_seconds(&self, since: u64, now: u64) -> Option<u64> {
        since.saturating_add(self.grace_seconds()).checked_sub(now).filter(|left| *left > 0)
    }

    /// What may not be gone beyond now, of bytes: the soft limit too, when there was more for too long.
    fn bytes_now(&self, is: u64, now: u64) -> Option<u64> {
        self.now(self.bytes, self.soft.bytes, is, self.soft.bytes_since, now)
    }

    fn inodes_now(&self, is: u64, now: u64) -> Option<u64> {
        self.now(self.inodes, self.soft.inodes, is, self.soft.inodes_since, now)
    }

    fn stored_now(&self, is: u64, now: u64) -> Option<u64> {
        let soft = self.soft.stored.filter(|_| !is_planted(Bug::StoredWhileEndless));
        self.now(self.stored, soft, is, self.soft.stored_since, now)
    }

    fn now(&self, most: Option<u64>, soft: Option<u64>, is: u64, since: u64, now: u64) -> Option<u64> {
        let is_late = |soft: &u64| is > *soft && since != 0 && self.left_seconds(since, now).is_none();
        [most, soft.filter(is_late)].into_iter().flatten().min()
    }

    /// The same limits, gone beyond since when the account says.
    fn since(self, value: &AccountValue) -> Most {
        let SoftLimits { bytes_since, inodes_since, stored_since, .. } = value.soft;
        Most { soft: SoftLimits { bytes_since, inodes_since, stored_since, ..self.soft }, ..self }
    }

    /// Notes since when there is more than the soft limits.
    pub fn watch(&self, value: &mut AccountValue, now: u64) {
        let since = |is: u64, soft: Option<u64>, since: u64| match soft.is_some_and(|soft| is > soft) {
            true if since == 0 || is_planted(Bug::GraceBeginsAnew) => now.max(1),
            true => since,
            false => 0,
        };
        value.soft.bytes_since = since(value.bytes, self.soft.bytes, value.soft.bytes_since);
        value.soft.inodes_since = since(value.inodes, self.soft.inodes, value.soft.inodes_since);
        value.soft.stored_since = since(value.stored, self.soft.stored, value.soft.stored_since);
    }
}

/// An account's limits as they hold now: what was gone beyond for too long is one of them.
pub fn limited_now(keys: &impl Keys, whose: Account, now: u64) -> Result<AccountValue, Error> {
    let value = account(keys, whose)?;
    let most = Most::of(keys, whose, &value)?;
    Ok(AccountValue {
        bytes_max: most.bytes_now(value.bytes, now),
        inodes_max: most.inodes_now(value.inodes, now),
        stored_max: most.stored_now(value.stored, now),
        ..value
    })
}

/// Where a volume is, if there is such a volume.
pub fn volume_place(keys: &impl Keys, number: u32) -> Result<Option<VolumePlace>, Error> {
    if number == 0 {
        return Ok(None);
    }
    Ok(account(keys, Account { holder: Holder::Volume, number })?.place)
}

fn volume_above(keys: &impl Keys, number: u32) -> Result<u32, Error> {
    Ok(volume_place(keys, number)?.map_or(0, |place| place.parent))
}

/// A volume and all that it lies in, from the innermost on.
pub fn volumes_of(keys: &impl Keys, number: u32) -> Result<Vec<u32>, Error> {
    let (mut volumes, mut at) = (Vec::new(), number);
    while at != 0 {
        if volumes.len() == NESTING_MAX {
            return Err(Error::BadValue { what: "volumes", detail: "they lie in each other".into() });
        }
        volumes.push(at);
        at = volume_above(keys, at)?;
    }
    Ok(volumes)
}

/// Everybody for whom an inode counts.
pub(crate) fn accounts_of(keys: &impl Keys, value: &InodeValue) -> Result<Vec<Account>, Error> {
    let owners = [(Holder::User, value.uid), (Holder::Group, value.gid)];
    let volumes = volumes_of(keys, value.volume)?.into_iter().map(|number| (Holder::Volume, number));
    Ok(owners.into_iter().chain(volumes).map(|(holder, number)| Account { holder, number }).collect())
}

fn bad(what: &'static str, error: &stere_format::DecodeError) -> Error {
    Error::BadValue { what, detail: error.to_string() }
}

/// The accounts of a mounted pool.
#[derive(Default)]
pub struct Accounts {
    is_on: AtomicBool,
    keeps_stored: AtomicBool,
    /// What the caller's clock said last, in seconds since 1970.
    now_seconds: AtomicU64,
    pub(crate) book: Mutex<Book>,
}

impl Accounts {
    /// Those of a store, which has to show every transaction to `settle`. A pool that keeps no accounts pays one look at a flag for each.
    pub(crate) fn load(store: &Store) -> Result<Arc<Accounts>, Error> {
        let accounts = Arc::new(Accounts::default());
        let kept = store.view(Io::BLOCKING, |view| accounting(view))?;
        accounts.is_on.store(kept.is_some(), Ordering::Release);
        accounts.keeps_stored.store(kept.is_some_and(|kept| kept.charged.is_some()), Ordering::Release);
        Ok(accounts)
    }

    /// Whether accounts are kept.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The pool has the record: from now on transactions are looked at. Nothing may be counted before.
    pub fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Whether stored bytes are counted.
    pub fn keeps_stored(&self) -> bool {
        self.keeps_stored.load(Ordering::Acquire)
    }

    /// The pool's record says so.
    pub(crate) fn turn_stored_on(&self) {
        self.keeps_stored.store(true, Ordering::Release);
    }

    /// To be told now and then, as soft limits ask for it: at least once a second while anything is done.
    pub fn note_time(&self, now: Timestamp) {
        self.now_seconds.store(now.seconds.try_into().unwrap_or(0), Ordering::Release);
    }

    /// What was noted last.
    pub fn now_seconds(&self) -> u64 {
        self.now_seconds.load(Ordering::Acquire)
    }

    /// Brings the accounts in line with what a transaction does to inodes; refuses what goes beyond a limit.
    pub(crate) fn settle(&self, transaction: &mut Transaction<'_>) -> Result<(), Error> {
        if !self.is_on() {
            return Ok(());
        }
        let Some(accounting) = accounting(transaction)? else { return Ok(()) };
        let gets_more = accounting.charged.is_none() || charge::settle(transaction)?;
        let sums = Changes::add_all(transaction, accounting)?;
        if sums.is_empty() {
            return Ok(());
        }
        self.enter_all(transaction, sums, gets_more)
    }

    /// Enters changes that are told of the innermost volumes only.
    pub fn enter(&self, transaction: &mut Transaction<'_>, sums: Sums) -> Result<(), Error> {
        self.enter_all(transaction, sums, true)
    }

    fn enter_all(&self, transaction: &mut Transaction<'_>, sums: Sums, gets_more: bool) -> Result<(), Error> {
        let all = with_volumes_above(sums, |number| volume_above(transaction, number))?;
        for (account, amount) in all {
            self.change_by(transaction, account, amount, gets_more)?;
        }
        Ok(())
    }

    /// Changes one account by an amount, if its limits allow that.
    pub fn change(&self, transaction: &mut Transaction<'_>, whose: Account, amount: Amount) -> Result<(), Error> {
        self.change_by(transaction, whose, amount, true)
    }

    /// `gets_more`: whether files got content; else more stored bytes come of how that lies, and are not refused.
    fn change_by(
        &self,
        transaction: &mut Transaction<'_>,
        whose: Account,
        amount: Amount,
        gets_more: bool,
    ) -> Result<(), Error> {
        if amount == Amount::default() {
            return Ok(());
        }
        let mut value = account(transaction, whose)?;
        let most = Most::of(transaction, whose, &value)?;
        let now = self.now_seconds();
        // Limits may have been raised since.
        most.watch(&mut value, now);
        // Less than nothing is damage that the check tells of; nothing is refused for it.
        value.bytes = value.bytes.saturating_add_signed(amount.bytes);
        value.inodes = value.inodes.saturating_add_signed(amount.inodes);
        value.stored = value.stored.saturating_add_signed(amount.stored);
        if !transaction.is_charge_pending() && value.place.is_none_or(|place| !place.is_deleted) {
            let most = most.since(&value);
            let pending = self.book.lock().pending(whose);
            let exceeds = |grows: i64, is: u64, most: Option<u64>| grows > 0 && most.is_some_and(|most| is > most);
            let bytes = value.bytes.saturating_add(pending);
            let (bytes_most, inodes_most) = (most.bytes_now(bytes, now), most.inodes_now(value.inodes, now));
            let stored_most = most.stored_now(value.stored, now).filter(|_| gets_more);
            if exceeds(amount.bytes, bytes, bytes_most)
                || exceeds(amount.inodes, value.inodes, inodes_most)
                || exceeds(amount.stored, value.stored, stored_most)
            {
                return Err(Error::OverLimit { holder: whose.to_string() });
            }
        }
        most.watch(&mut value, now);
        put_account(transaction, whose, &value)
    }
}
