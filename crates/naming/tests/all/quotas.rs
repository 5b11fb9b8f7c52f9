//! Volumes and quotas, one story each: limits in the middle of a write, what counts where, moves, deletion in the background.

use crate::support;

use stere_naming::{
    Account, AccountValue, AccountsState, Caller, Error, FileSystem, Holder, Io, KEEP_SIZE, Limits, ROOT, SetAttributes,
};
use support::files::{assert_clean, check, create, make, mkdir};
use support::{Rig, caller};

const MIB: u64 = 1 << 20;

fn new() -> (Rig, FileSystem) {
    Rig::new(2, 256 << 20)
}

fn settle(fs: &FileSystem) {
    while fs.step(&caller(5), 100).unwrap() {}
}

fn bytes(limit: u64) -> Limits {
    Limits { bytes: Some(Some(limit)), ..Limits::default() }
}

fn inodes(limit: u64) -> Limits {
    Limits { inodes: Some(Some(limit)), ..Limits::default() }
}

fn user(number: u32) -> Account {
    Account { holder: Holder::User, number }
}

fn limit(fs: &FileSystem, whose: Account, limits: Limits) {
    fs.quotas().set_quota(&caller(2), whose, limits).unwrap();
    settle(fs);
}

fn account(fs: &FileSystem, holder: Holder, number: u32) -> AccountValue {
    let infos = fs.quotas().accounts(Io::BLOCKING, holder).unwrap();
    infos.into_iter().find(|info| info.account.number == number).map(|info| info.value).unwrap_or_default()
}

fn in_volume(fs: &FileSystem, number: u32) -> (u64, u64) {
    let value = account(fs, Holder::Volume, number);
    (value.bytes, value.inodes)
}

/// A directory that is a volume.
fn volume(fs: &FileSystem, parent: u64, name: &str, limits: Limits) -> (u64, u32) {
    let inode = mkdir(fs, parent, name);
    let number = fs.quotas().create_volume(&caller(2), inode, limits).unwrap();
    settle(fs);
    (inode, number)
}

fn is_over<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::OverQuota(_))), "{outcome:?}");
}

/// P-76: a write that hits the limit says how far it came, the next is EDQUOT; what was accepted is there after a crash.
#[test]
fn a_quota_in_the_middle_of_a_write_stops_there() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(MIB));
    let other = make(&fs, ROOT, "other", &[7; 5000]);
    let (inode, handle) = create(&fs, top, "f");
    let data = vec![0x5a; 3 << 20];
    assert_eq!(fs.write(&caller(3), inode, 0, &data, false).unwrap() as u64, MIB);
    is_over(fs.write(&caller(3), inode, MIB, &data[..1], false));
    // What is there can be written over, without end.
    assert_eq!(fs.write(&caller(3), inode, 17, &[1; 70_000], false).unwrap(), 70_000);
    // Nothing is left for others in the volume, everything for those outside.
    let (second, second_handle) = create(&fs, top, "g");
    is_over(fs.write(&caller(3), second, 0, &[1], false));
    assert_eq!(fs.write(&caller(3), other, 5000, &data, false).unwrap(), data.len());
    fs.release(&caller(4), inode, handle).unwrap();
    fs.release(&caller(4), second, second_handle).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(in_volume(&fs, number), (MIB, 3));
    let mut expected = vec![0x5a; MIB as usize];
    expected[17..70_017].fill(1);
    check(&fs, inode, &expected);
    // Room comes back with what is removed.
    fs.unlink(&caller(6), top, b"f").unwrap();
    assert_eq!(fs.write(&caller(6), second, 0, &data[..4096], false).unwrap(), 4096);
    fs.syncfs(&caller(6)).unwrap();
    assert_eq!(in_volume(&fs, number), (4096, 2));
    assert_clean(&fs);
}

/// P-76: what two writers were promised and did not save yet is never more than there is.
#[test]
fn promises_count_before_they_are_saved() {
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(10 * 4096));
    let files: Vec<_> = (0..4).map(|at| create(&fs, top, &format!("f{at}"))).collect();
    let mut accepted = 0;
    for round in 0..4 {
        for (inode, _) in &files {
            match fs.write(&caller(3), *inode, round * 4096, &[3; 4096], false) {
                Ok(length) => accepted += length as u64,
                Err(error) => assert!(matches!(error, Error::OverQuota(_)), "{error}"),
            }
        }
    }
    assert_eq!(accepted, 10 * 4096);
    assert_eq!(in_volume(&fs, number).0, 0, "nothing is saved yet");
    // Promises are given back by who cuts a file before it is saved.
    fs.setattr(&caller(3), files[0].0, &SetAttributes { size: Some(0), ..SetAttributes::default() }).unwrap();
    assert_eq!(fs.write(&caller(3), files[3].0, 8 * 4096, &[3], false).map_err(|error| error.errno()), Err(122));
    assert_eq!(fs.write(&caller(3), files[3].0, 2 * 4096, &[3; 4096], false).unwrap(), 4096);
    fs.syncfs(&caller(4)).unwrap();
    assert!(in_volume(&fs, number).0 <= 10 * 4096);
    assert_clean(&fs);
}

/// P-76: all other ways to take more.
#[test]
fn every_way_to_grow_is_refused() {
    let (_rig, fs) = new();
    let (top, number) =
        volume(&fs, ROOT, "v", Limits { bytes: Some(Some(MIB)), inodes: Some(Some(4)), ..Limits::default() });
    let inode = make(&fs, top, "f", &[1; 4096]);
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    is_over(fs.setattr(&caller(3), inode, &size(MIB + 1)));
    fs.setattr(&caller(3), inode, &size(MIB)).unwrap();
    fs.setattr(&caller(3), inode, &size(4096)).unwrap();
    is_over(fs.fallocate(&caller(3), inode, 0, MIB + 1, 0));
    is_over(fs.fallocate(&caller(3), inode, 0, MIB + 1, KEEP_SIZE));
    fs.fallocate(&caller(3), inode, 0, MIB, KEEP_SIZE).unwrap();
    // What is set aside counts at once.
    let second = make(&fs, top, "g", b"");
    is_over(fs.write(&caller(3), second, 0, &[1], false));
    let far = make(&fs, ROOT, "far", &vec![9; 2 << 20]);
    is_over(fs.copy_range(&caller(3), far, 0, second, 0, 2 << 20));
    assert_eq!(in_volume(&fs, number), (MIB, 3));
    fs.setattr(&caller(3), inode, &size(0)).unwrap();
    assert_eq!(fs.copy_range(&caller(3), far, 0, second, 0, 512 << 10).unwrap(), 512 << 10);
    // A fourth inode is there, no fifth: made, linked or moved.
    mkdir(&fs, top, "d");
    is_over(fs.mkdir(&caller(3), top, b"e", 0o755));
    is_over(fs.symlink(&caller(3), top, b"e", b"x"));
    is_over(fs.tmpfile(&caller(3), top, 0o600, Default::default()));
    is_over(fs.link(&caller(3), far, top, b"e"));
    is_over(fs.rename(&caller(3), ROOT, b"far", top, b"e", 0));
    assert_eq!(fs.lookup(&caller(3), ROOT, b"far").unwrap().inode, far);
    assert_clean(&fs);
}

/// P-75: an owner is another one, and so are the accounts; not where the new one has no room.
#[test]
fn a_change_of_owner_moves_what_counts() {
    let (_rig, fs) = new();
    limit(&fs, user(7), bytes(8192));
    let (inode, handle) = create(&fs, ROOT, "f");
    let own = |uid| SetAttributes { uid: Some(uid), gid: Some(uid), ..SetAttributes::default() };
    // Not saved yet.
    fs.write(&caller(3), inode, 0, &[1; 8193], false).unwrap();
    is_over(fs.setattr(&caller(3), inode, &own(7)));
    fs.setattr(&caller(3), inode, &SetAttributes { size: Some(8000), ..SetAttributes::default() }).unwrap();
    fs.setattr(&caller(3), inode, &own(7)).unwrap();
    for holder in [Holder::User, Holder::Group] {
        let value = account(&fs, holder, 7);
        assert_eq!((value.bytes, value.inodes), (8192, 1));
    }
    is_over(fs.write(&caller(3), inode, 8192, &[1], false));
    fs.release(&caller(3), inode, handle).unwrap();
    fs.unlink(&caller(3), ROOT, b"f").unwrap();
    assert_eq!(account(&fs, Holder::Group, 7), AccountValue::default());
    assert_clean(&fs);
}

/// P-75: files and volumes that are moved count elsewhere at once, directories after a while; nothing is EXDEV.
#[test]
fn what_is_moved_counts_where_it_lies() {
    let (rig, fs) = new();
    let (one, first) = volume(&fs, ROOT, "one", Limits::default());
    let (two, second) = volume(&fs, ROOT, "two", bytes(MIB));
    let (inner, third) = volume(&fs, one, "inner", Limits::default());
    make(&fs, inner, "f", &[1; 4096]);
    let directory = mkdir(&fs, one, "d");
    for at in 0..700 {
        make(&fs, directory, &format!("f{at}"), &[1; 10]);
    }
    // 700 files, and their names, of 24 bytes and up to four letters each.
    let of_directory = 700 * 4096 + (700 * 24 + 2690_u64).next_multiple_of(4096);
    assert_eq!((in_volume(&fs, first), in_volume(&fs, third)), ((of_directory + 4096, 704), (4096, 2)));
    // A volume, at once.
    fs.rename(&caller(3), one, b"inner", two, b"inner", 0).unwrap();
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((of_directory, 702), (4096, 3)));
    // A file that is not saved yet.
    let (dirty, handle) = create(&fs, one, "dirty");
    fs.write(&caller(3), dirty, 0, &[1; 4096], false).unwrap();
    fs.rename(&caller(3), one, b"dirty", inner, b"dirty", 0).unwrap();
    assert_eq!((in_volume(&fs, second), in_volume(&fs, third)), ((8192, 4), (8192, 3)));
    fs.release(&caller(3), dirty, handle).unwrap();
    // A directory that is too much is refused as far as that is seen quickly.
    is_over(fs.rename(&caller(3), one, b"d", two, b"d", 0));
    fs.quotas().set_volume(&caller(3), two, bytes(8 * MIB)).unwrap();
    fs.rename(&caller(3), one, b"d", two, b"d", 0).unwrap();
    assert_eq!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Moving);
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_clean(&fs);
    settle(&fs);
    assert_eq!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Exact);
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((0, 1), (of_directory + 8192, 705)));
    assert_clean(&fs);
}

/// P-75: a file counts where it was named last, and when that name goes where another one is, whatever that one's limit is.
#[test]
fn a_further_name_takes_what_counts_along() {
    let (_rig, fs) = new();
    let (one, first) = volume(&fs, ROOT, "one", Limits::default());
    let (two, second) = volume(&fs, ROOT, "two", Limits::default());
    let inode = make(&fs, one, "f", &[1; 4096]);
    fs.link(&caller(3), inode, two, b"g").unwrap();
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((0, 1), (4096, 2)));
    fs.unlink(&caller(3), one, b"f").unwrap();
    fs.link(&caller(3), inode, one, b"h").unwrap();
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((4096, 2), (0, 1)));
    let whose = Account { holder: Holder::Volume, number: second };
    limit(&fs, whose, inodes(1));
    fs.unlink(&caller(3), one, b"h").unwrap();
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((0, 1), (4096, 2)));
    is_over(fs.mknod(&caller(3), two, b"more", 0o644, 0));
    fs.rename(&caller(3), two, b"g", two, b"k", 0).unwrap();
    assert_eq!((in_volume(&fs, first), in_volume(&fs, second)), ((0, 1), (4096, 2)));
    assert_clean(&fs);
}

/// P-75: a directory with something in it becomes a volume around others, and none again.
#[test]
fn a_full_directory_becomes_a_volume() {
    let (_rig, fs) = new();
    let top = mkdir(&fs, ROOT, "top");
    let (inner, first) = volume(&fs, top, "inner", Limits::default());
    make(&fs, inner, "f", &[1; 4096]);
    make(&fs, top, "g", &[1; 4096]);
    // A limit that is too small already refuses only what is new.
    let number = fs.quotas().create_volume(&caller(3), top, bytes(4096)).unwrap();
    settle(&fs);
    assert_eq!((in_volume(&fs, number), in_volume(&fs, first)), ((8192, 4), (4096, 2)));
    let (inode, _) = create(&fs, inner, "h");
    is_over(fs.write(&caller(3), inode, 0, &[1], false));
    assert!(matches!(fs.quotas().create_volume(&caller(3), top, Limits::default()), Err(Error::Invalid(_))));
    fs.quotas().dissolve_volume(&caller(3), top).unwrap();
    assert_eq!(fs.write(&caller(3), inode, 0, &[1], false).unwrap(), 1);
    settle(&fs);
    let numbers: Vec<u32> =
        fs.quotas().accounts(Io::BLOCKING, Holder::Volume).unwrap().iter().map(|info| info.account.number).collect();
    assert_eq!(numbers, [first]);
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
}

/// P-77: a volume goes at once, what is in it in the background, across crashes; files with names elsewhere stay.
#[test]
fn a_deleted_volume_is_emptied_in_the_background() {
    let (rig, fs) = new();
    let (outer, above) = volume(&fs, ROOT, "outer", Limits::default());
    let (top, number) = volume(&fs, outer, "v", inodes(2000));
    let (nested, _) = volume(&fs, top, "nested", Limits::default());
    let linked = make(&fs, nested, "linked", &[5; 4096]);
    fs.link(&caller(3), linked, ROOT, b"kept").unwrap();
    // Its name in the volume is the last it got.
    fs.rename(&caller(3), nested, b"linked", nested, b"moved", 0).unwrap();
    let open = make(&fs, top, "open", &[6; 4096]);
    let handle = fs.open(&caller(3), open, Default::default()).unwrap();
    let directory = mkdir(&fs, top, "d");
    for at in 0..600 {
        make(&fs, directory, &format!("f{at}"), &[1; 10]);
    }
    // Only a volume, only when it was said, and not for long.
    assert!(matches!(fs.quotas().condemn_volume(&caller(3), directory), Err(Error::Invalid(_))));
    assert!(matches!(fs.rmdir(&caller(3), outer, b"v"), Err(Error::NotEmpty)));
    fs.quotas().condemn_volume(&caller(3), top).unwrap();
    assert!(matches!(fs.rmdir(&caller(40), outer, b"v"), Err(Error::NotEmpty)));
    fs.quotas().condemn_volume(&caller(3), top).unwrap();
    fs.hold_removed();
    fs.rmdir(&caller(4), outer, b"v").unwrap();
    assert!(matches!(fs.lookup(&caller(4), outer, b"v"), Err(Error::NotFound)));
    assert!(matches!(fs.mkdir(&caller(4), top, b"new", 0o755), Err(Error::NotFound)));
    let before = in_volume(&fs, above);
    assert_eq!(before.1, 606);
    fs.step(&caller(5), 100).unwrap();
    assert!(in_volume(&fs, above).1 < before.1, "what goes is counted as gone");
    assert_clean(&fs);
    settle(&fs);
    // What is open is there.
    let mut out = [0; 4096];
    assert_eq!(fs.read(&caller(5), open, 0, &mut out).unwrap(), 4096);
    fs.release(&caller(5), open, handle).unwrap();
    fs.forget(&caller(5), open).unwrap();
    assert_eq!(in_volume(&fs, above), (0, 1), "the volume above; the file has its other name elsewhere");
    assert_eq!(in_volume(&fs, number), (0, 0));
    assert_clean(&fs);
    check(&fs, linked, &[5; 4096]);
    drop(rig);
}

/// P-77: the same, begun before a crash.
#[test]
fn emptying_goes_on_after_a_crash() {
    let (rig, fs) = new();
    let (top, _) = volume(&fs, ROOT, "v", Limits::default());
    for at in 0..700 {
        make(&fs, top, &format!("f{at}"), &[1; 10]);
    }
    fs.quotas().condemn_volume(&caller(3), top).unwrap();
    fs.rmdir(&caller(4), ROOT, b"v").unwrap();
    fs.step(&caller(5), 100).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_clean(&fs);
    settle(&fs);
    assert_eq!(fs.quotas().accounts(Io::BLOCKING, Holder::Volume).unwrap(), []);
    assert_eq!(account(&fs, Holder::User, 0).inodes, 1);
    assert_clean(&fs);
    let used = fs.statfs();
    assert!(used.blocks_free * 10 > used.blocks * 9, "the room is back: {used:?}");
}

/// P-77: an empty volume is removed as any directory, and its limit with it.
#[test]
fn an_empty_volume_is_removed_as_any_directory() {
    let (_rig, fs) = new();
    volume(&fs, ROOT, "v", inodes(1));
    fs.rmdir(&caller(3), ROOT, b"v").unwrap();
    settle(&fs);
    assert_eq!(fs.quotas().accounts(Io::BLOCKING, Holder::Volume).unwrap(), []);
    assert_clean(&fs);
}

/// P-78: statfs within a volume tells of the volume.
#[test]
fn statfs_tells_of_the_volume() {
    let (_rig, fs) = new();
    let (top, _) =
        volume(&fs, ROOT, "v", Limits { bytes: Some(Some(MIB)), inodes: Some(Some(9)), ..Limits::default() });
    let (inner, _) = volume(&fs, top, "inner", bytes(64 * MIB));
    make(&fs, inner, "f", &[1; 8192]);
    let seen = fs.quotas().statfs_at(Io::BLOCKING, top).unwrap();
    assert_eq!((seen.blocks, seen.blocks_free, seen.files, seen.files_free), (256, 254, 9, 6));
    let seen = fs.quotas().statfs_at(Io::BLOCKING, inner).unwrap();
    assert_eq!((seen.blocks, seen.blocks_free), (256, 254), "the volume above leaves less");
    assert_eq!(fs.quotas().statfs_at(Io::BLOCKING, ROOT).unwrap(), fs.statfs());
}

/// A pool that keeps no accounts has not one key of them.
#[test]
fn nothing_is_kept_where_nobody_asks() {
    let (_rig, fs) = new();
    make(&fs, ROOT, "f", &[1; 8192]);
    let who = Caller { uid: 7, ..caller(3) };
    fs.mkdir(&who, ROOT, b"d", 0o755).unwrap();
    assert_eq!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Off);
    for holder in Holder::ALL {
        assert_eq!(fs.quotas().accounts(Io::BLOCKING, holder).unwrap(), []);
    }
}

/// P-114: what goes beyond a soft limit is taken for as long as was said, and then nothing more until it is less again; across a crash.
#[test]
fn soft_limits_hold_when_the_while_is_over() {
    let (rig, fs) = new();
    let soft = Limits {
        bytes: Some(Some(MIB)),
        soft_bytes: Some(Some(8192)),
        soft_inodes: Some(Some(3)),
        grace_seconds: Some(Some(100)),
        ..Limits::default()
    };
    let (top, number) = volume(&fs, ROOT, "v", soft);
    let inode = make(&fs, top, "f", &[1; 4096]);
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 0);
    let at = |fs: &FileSystem, seconds: i64| {
        fs.step(&caller(seconds), 0).unwrap();
    };
    let write = |fs: &FileSystem, seconds, offset| fs.write(&caller(seconds), inode, offset, &[2; 4096], false);
    at(&fs, 50);
    for block in 1..4 {
        assert_eq!(write(&fs, 50, block * 4096).unwrap(), 4096);
    }
    fs.syncfs(&caller(50)).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 50);
    assert_eq!(fs.quotas().statfs_at(Io::BLOCKING, top).unwrap().blocks_free, 256 - 4);
    assert_eq!(write(&fs, 149, 4 * 4096).unwrap(), 4096, "the while is not over");
    fs.syncfs(&caller(149)).unwrap();
    let fs = rig.reopen(fs, true);
    at(&fs, 150);
    is_over(write(&fs, 150, 5 * 4096));
    is_over(fs.setattr(&caller(150), inode, &SetAttributes { size: Some(MIB), ..SetAttributes::default() }));
    assert_eq!(fs.quotas().statfs_at(Io::BLOCKING, top).unwrap().blocks_free, 0);
    // What is there can be written over and cut; when it is less, all begins anew.
    assert_eq!(write(&fs, 151, 4096).unwrap(), 4096);
    fs.setattr(&caller(152), inode, &SetAttributes { size: Some(8192), ..SetAttributes::default() }).unwrap();
    fs.syncfs(&caller(152)).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 0);
    assert_eq!(write(&fs, 200, 8192).unwrap(), 4096);
    fs.syncfs(&caller(200)).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 200);
    // Inodes: the directory itself, the file, and two more.
    at(&fs, 210);
    mkdir(&fs, top, "one");
    mkdir(&fs, top, "two");
    assert_eq!(account(&fs, Holder::Volume, number).soft.inodes_since, 210);
    at(&fs, 310);
    is_over(fs.mkdir(&caller(310), top, b"three", 0o755));
    // Whoever gets a higher limit may go on at once.
    let higher = Limits { soft_inodes: Some(Some(9)), soft_bytes: Some(None), ..Limits::default() };
    fs.quotas().set_volume(&caller(311), top, higher).unwrap();
    mkdir(&fs, top, "three");
    assert_eq!(write(&fs, 312, 5 * 4096).unwrap(), 4096);
    fs.syncfs(&caller(312)).unwrap();
    let soft = account(&fs, Holder::Volume, number).soft;
    assert_eq!((soft.bytes_since, soft.inodes_since), (0, 0));
    assert_clean(&fs);
}

/// P-114: saved bytes decide. What is removed before newer writes are saved takes the account below the limit in between.
#[test]
fn a_grace_period_begins_anew_when_saved_bytes_were_below_the_limit() {
    let (_rig, fs) = new();
    let soft = Limits { soft_bytes: Some(Some(8192)), grace_seconds: Some(Some(100)), ..Limits::default() };
    let (top, number) = volume(&fs, ROOT, "v", soft);
    let old = make(&fs, top, "old", b"");
    assert_eq!(fs.write(&caller(50), old, 0, &[1; 16_384], false).unwrap(), 16_384);
    fs.syncfs(&caller(50)).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 50);
    let new = make(&fs, top, "new", b"");
    assert_eq!(fs.write(&caller(60), new, 0, &[2; 16_384], false).unwrap(), 16_384);
    fs.setattr(&caller(60), old, &SetAttributes { size: Some(0), ..SetAttributes::default() }).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).soft.bytes_since, 0);
    fs.syncfs(&caller(60)).unwrap();
    let AccountValue { bytes, soft, .. } = account(&fs, Holder::Volume, number);
    assert_eq!((bytes, soft.bytes_since), (16_384, 60));
    assert_clean(&fs);
}

/// P-115: limits of all who have none of their own: for each of them, but root.
#[test]
fn who_has_no_limit_of_his_own_has_that_of_the_others() {
    let (_rig, fs) = new();
    let others = |holder| Account { holder, number: AccountValue::OTHERS };
    limit(&fs, others(Holder::User), Limits { soft_inodes: Some(Some(1)), ..bytes(8192) });
    limit(&fs, user(8), bytes(MIB));
    let own = |uid| SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    make(&fs, ROOT, "of-root", &[1; 100_000]);
    for (uid, is_limited) in [(7, true), (8, false), (9, true)] {
        let inode = make(&fs, ROOT, &format!("f{uid}"), &[1; 4096]);
        fs.setattr(&caller(3), inode, &own(uid)).unwrap();
        let grown = fs.write(&caller(3), inode, 4096, &[1; 8192], false).unwrap();
        assert_eq!(grown, if is_limited { 4096 } else { 8192 }, "user {uid}");
        let second = make(&fs, ROOT, &format!("g{uid}"), &[1; 4096]);
        let outcome = fs.setattr(&caller(3), second, &own(uid));
        match is_limited {
            true => is_over(outcome),
            false => assert!(outcome.is_ok(), "{outcome:?}"),
        }
    }
    // The soft limit is one of them, and each has a while of his own.
    let empty = make(&fs, ROOT, "e7", &[]);
    fs.setattr(&caller(4), empty, &own(7)).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_ne!(account(&fs, Holder::User, 7).soft.inodes_since, 0);
    assert_eq!(account(&fs, Holder::User, 9).soft.inodes_since, 0);
    let infos = fs.quotas().accounts(Io::BLOCKING, Holder::User).unwrap();
    let most = |number| infos.iter().find(|info| info.account.number == number).unwrap().most;
    assert_eq!((most(7).bytes, most(8).bytes, most(0).bytes), (Some(8192), Some(MIB), None));
    limit(&fs, others(Holder::User), Limits { bytes: Some(None), soft_inodes: Some(None), ..Limits::default() });
    let third = make(&fs, ROOT, "h9", &[1; 50_000]);
    fs.setattr(&caller(5), third, &own(9)).unwrap();
    assert_clean(&fs);
}

/// P-76: zeroing to beyond the limit is refused before anything is zeroed.
#[test]
fn what_a_limit_refuses_has_changed_nothing() {
    const ZERO_RANGE: u32 = 0x10;
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(MIB));
    let inode = make(&fs, top, "f", &[7; 100_000]);
    is_over(fs.fallocate(&caller(3), inode, 5_000, 2 * MIB, ZERO_RANGE));
    check(&fs, inode, &[7; 100_000]);
    fs.fallocate(&caller(3), inode, 5_000, MIB / 2, ZERO_RANGE).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!(in_volume(&fs, number).0, (5_000 + MIB / 2).next_multiple_of(4096));
    assert_clean(&fs);
}
