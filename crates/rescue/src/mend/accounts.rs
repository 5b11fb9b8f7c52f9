//! Accounts of users, groups and volumes: where one is not what the inodes come to, all are counted anew by the next mount.
//!
//! So nothing is computed twice here: counting from the first inode on, and looking everywhere for what counts in another volume than it lies in,
//! is what a mount does anyway with a pool that was never counted. Limits stay. Invariant: with nothing counted every account is void.

use std::collections::BTreeMap;

use stere_file::accounts::counted_bytes;
use stere_file::metadata::counted_metadata;
use stere_format::{AccountValue, AccountingValue, FileKind, Holder, Key, key};
use stere_store::{Error, Io, Store};

use super::survey::Survey;
use super::{Mended, ROOT, Step};

/// Volumes in one another beyond which they lie in a circle.
const NESTING_MAX: usize = 1024;

/// Bytes, inodes and stored bytes, by holder and number.
type Sums = BTreeMap<(Holder, u32), (u64, u64, u64)>;

/// Lets accounts be counted anew if one is wrong.
pub(super) fn accounts(store: &Store, survey: &Survey) -> Result<Step, Error> {
    let mut step = Step::default();
    let mut accounts: BTreeMap<(Holder, u32), AccountValue> = BTreeMap::new();
    let mut bad = Vec::new();
    let (from, to) = (Key::new(key::tree::INDEXES, 0, 0, 0), Key::new(key::tree::INDEXES + 1, 0, 0, 0));
    store.for_each_key(from, to, |key, bytes| {
        let whose = Holder::from_code(key.object).zip(u32::try_from(key.position).ok());
        if let Some(whose) = whose.filter(|_| key.kind == key::kind::ACCOUNT) {
            match AccountValue::decode(bytes) {
                Ok(value) => drop(accounts.insert(whose, value)),
                Err(_) => bad.push(*key),
            }
        }
    })?;
    let (accounting, recount) = store
        .view(Io::BLOCKING, |view| Ok::<_, Error>((view.get(&Key::accounting())?, view.get(&Key::recount(ROOT))?)))?;
    let Some(accounting) = accounting else { return Ok(step) };
    if recount.is_none() && is_misplaced(survey, &accounts) {
        step.put(Key::recount(ROOT), 1_u64.to_le_bytes().to_vec());
        let text = "some inodes did not count in the volume that they lie in; the next mount puts that right".into();
        step.mended.push(Mended { inode: None, data_lost: false, text });
    }
    let decoded = AccountingValue::decode(&accounting).ok();
    let volumes = || accounts.keys().filter(|(holder, _)| *holder == Holder::Volume).map(|(_, number)| *number);
    let next_volume = volumes().max().map_or(1, |number| number.saturating_add(1));
    let accounting = decoded.unwrap_or(AccountingValue {
        next_volume,
        counted: AccountingValue::ALL,
        charged: None,
        metadata: AccountingValue::ALL,
    });
    let is_right = sums(survey, &accounts, &accounting) == said(&accounts) && bad.is_empty();
    if is_right && decoded.is_some() {
        return Ok(step);
    }
    bad.into_iter().for_each(|key| step.delete(key));
    for ((holder, number), value) in accounts {
        let value = AccountValue { bytes: 0, inodes: 0, stored: 0, ..value };
        let key = Key::account(holder, number);
        if value.is_void() { step.delete(key) } else { step.put(key, value.encode()) }
    }
    step.put(Key::accounting(), AccountingValue { counted: 0, metadata: AccountingValue::ALL, ..accounting }.encode());
    step.put(Key::recount(ROOT), 1_u64.to_le_bytes().to_vec());
    let text = "accounts of users, groups and volumes were wrong; the next mount counts anew".into();
    step.mended.push(Mended { inode: None, data_lost: false, text });
    Ok(step)
}

fn said(accounts: &BTreeMap<(Holder, u32), AccountValue>) -> Sums {
    let used = accounts.iter().filter(|(_, value)| (value.bytes, value.inodes, value.stored) != (0, 0, 0));
    used.map(|(whose, value)| (*whose, (value.bytes, value.inodes, value.stored))).collect()
}

/// Whether an inode counts in another volume than the directory that it has its one name in.
fn is_misplaced(survey: &Survey, accounts: &BTreeMap<(Holder, u32), AccountValue>) -> bool {
    let value_of = |inode: u64| survey.inodes.get(&inode).and_then(|seen| seen.value.as_ref());
    survey.names.iter().any(|name| {
        let (Some(value), Some(directory)) = (value_of(name.inode), value_of(name.directory)) else { return false };
        let is_only_name = value.kind() == Some(FileKind::Directory) || value.nlink == 1;
        let place = accounts.get(&(Holder::Volume, value.volume)).and_then(|account| account.place);
        let place = place.filter(|place| !place.is_deleted && place.directory == name.inode);
        let counts_in = place.map_or(value.volume, |place| place.parent);
        is_only_name && value.parent == name.directory && counts_in != directory.volume
    })
}

fn sums(survey: &Survey, accounts: &BTreeMap<(Holder, u32), AccountValue>, accounting: &AccountingValue) -> Sums {
    let mut sums = Sums::new();
    for (inode, seen) in survey.inodes.range(..accounting.counted) {
        let Some(value) = &seen.value else { continue };
        let counts_metadata = *inode < accounting.metadata;
        let metadata = if counts_metadata { counted_metadata(value, seen.attribute_bytes) } else { 0 };
        let mut add = |whose| {
            let sum: &mut (u64, u64, u64) = sums.entry(whose).or_default();
            (sum.0, sum.1) = (sum.0.saturating_add(counted_bytes(value) + metadata), sum.1 + 1);
            sum.2 = sum.2.saturating_add(value.charged_bytes + metadata);
        };
        add((Holder::User, value.uid));
        add((Holder::Group, value.gid));
        let mut number = value.volume;
        for _ in 0..NESTING_MAX {
            if number == 0 {
                break;
            }
            add((Holder::Volume, number));
            let place = accounts.get(&(Holder::Volume, number)).and_then(|value| value.place);
            number = place.map_or(0, |place| place.parent);
        }
    }
    sums
}
