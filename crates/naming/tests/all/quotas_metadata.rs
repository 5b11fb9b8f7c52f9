//! P-200: metadata counts in quotas (attributes, targets of links, names in directories), one story each way that somebody might take to store
//! more than he may; and pools from before it did.

use crate::support;

use stere_format::{AccountValue, AccountingValue, Holder, Key};
use stere_naming::{Account, AccountsState, Error, FileSystem, Io, Limits, ROOT, SetAttributes, SetMode};
use support::edits::set;
use support::files::{assert_clean, make, mkdir};
use support::{Rig, caller};

const BLOCK: u64 = 4096;

fn new() -> (Rig, FileSystem) {
    Rig::new(2, 256 << 20)
}

fn settle(fs: &FileSystem) {
    while fs.step(&caller(5), 100).unwrap() {}
}

fn bytes(limit: u64) -> Limits {
    Limits { bytes: Some(Some(limit)), ..Limits::default() }
}

fn volume(fs: &FileSystem, parent: u64, name: &str, limits: Limits) -> (u64, u32) {
    let inode = mkdir(fs, parent, name);
    let number = fs.quotas().create_volume(&caller(2), inode, limits).unwrap();
    settle(fs);
    (inode, number)
}

fn account(fs: &FileSystem, holder: Holder, number: u32) -> AccountValue {
    let infos = fs.quotas().accounts(Io::BLOCKING, holder).unwrap();
    infos.into_iter().find(|info| info.account.number == number).map(|info| info.value).unwrap_or_default()
}

fn used(fs: &FileSystem, number: u32) -> u64 {
    let value = account(fs, Holder::Volume, number);
    assert!(value.stored >= value.bytes || value.stored % BLOCK == 0);
    value.bytes
}

fn attribute(fs: &FileSystem, inode: u64, name: &str, length: usize) -> Result<(), Error> {
    fs.setxattr(&caller(3), inode, name.as_bytes(), &vec![7; length], SetMode::Any, false)
}

fn is_over<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::OverQuota(_))), "{outcome:?}");
}

#[test]
fn attributes_count_and_are_refused_beyond_the_limit() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(10 * BLOCK));
    let inode = make(&fs, top, "f", &[1; 10]);
    attribute(&fs, inode, "user.little", 400).unwrap();
    assert_eq!(used(&fs, number), BLOCK, "a little comes with the inode");
    attribute(&fs, inode, "user.big", 5 * BLOCK as usize).unwrap();
    assert_eq!((used(&fs, number), account(&fs, Holder::Volume, number).stored), (7 * BLOCK, 6 * BLOCK));
    is_over(attribute(&fs, inode, "user.more", 4 * BLOCK as usize));
    is_over(attribute(&fs, inode, "user.big", 9 * BLOCK as usize));
    assert!(matches!(fs.getxattr(&caller(3), inode, b"user.more"), Err(Error::NoAttribute)), "nothing was changed");
    // Content and attributes have the same room.
    assert_eq!(fs.write(&caller(3), inode, 0, &[1; 40 * 1024], false).unwrap() as u64, 4 * BLOCK);
    is_over(attribute(&fs, inode, "user.big", 6 * BLOCK as usize));
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(used(&fs, number), 10 * BLOCK);
    assert_clean(&fs);
    // What goes gives back what it counted.
    attribute(&fs, inode, "user.big", 10).unwrap();
    assert_eq!(used(&fs, number), 4 * BLOCK);
    attribute(&fs, inode, "user.big", 5 * BLOCK as usize).unwrap();
    fs.removexattr(&caller(5), inode, b"user.big").unwrap();
    assert_eq!(used(&fs, number), 4 * BLOCK);
    attribute(&fs, inode, "user.big", 5 * BLOCK as usize).unwrap();
    fs.unlink(&caller(5), top, b"f").unwrap();
    settle(&fs);
    assert_eq!(used(&fs, number), 0);
    assert_clean(&fs);
}

#[test]
fn many_small_attributes_count_as_one_large_one() {
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(2 * BLOCK));
    let inode = make(&fs, top, "f", &[]);
    let mut accepted = 0;
    while attribute(&fs, inode, &format!("user.{accepted}"), 0).is_ok() {
        accepted += 1;
        assert!(accepted < 1000, "it has no end");
    }
    // 24 bytes and the name each.
    assert!((230..300).contains(&accepted), "{accepted}");
    assert_eq!(used(&fs, number), 2 * BLOCK);
    assert_clean(&fs);
}

#[test]
fn a_new_owner_and_another_volume_get_what_attributes_count() {
    let (_rig, fs) = new();
    let (one, first) = volume(&fs, ROOT, "one", Limits::default());
    let (two, second) = volume(&fs, ROOT, "two", bytes(3 * BLOCK));
    fs.quotas().set_quota(&caller(3), Account { holder: Holder::User, number: 7 }, bytes(3 * BLOCK)).unwrap();
    let own = |uid| SetAttributes { uid: Some(uid), gid: Some(uid), ..SetAttributes::default() };
    let inode = make(&fs, one, "f", &[]);
    attribute(&fs, inode, "user.a", 3 * BLOCK as usize).unwrap();
    is_over(fs.setattr(&caller(3), inode, &own(7)));
    is_over(fs.rename(&caller(3), one, b"f", two, b"f", 0));
    is_over(fs.link(&caller(3), inode, two, b"g"));
    attribute(&fs, inode, "user.a", 2 * BLOCK as usize).unwrap();
    fs.setattr(&caller(3), inode, &own(7)).unwrap();
    for holder in [Holder::User, Holder::Group] {
        assert_eq!(account(&fs, holder, 7).bytes, 3 * BLOCK);
    }
    fs.rename(&caller(3), one, b"f", two, b"f", 0).unwrap();
    assert_eq!((used(&fs, first), used(&fs, second)), (0, 3 * BLOCK));
    is_over(attribute(&fs, inode, "user.b", BLOCK as usize));
    // A directory with such files in it is refused as one with large files.
    let directory = mkdir(&fs, one, "d");
    let below = make(&fs, directory, "f", &[]);
    attribute(&fs, below, "user.a", 10 * BLOCK as usize).unwrap();
    is_over(fs.rename(&caller(3), one, b"d", two, b"d", 0));
    assert_clean(&fs);
}

#[test]
fn targets_and_names_count() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(8 * BLOCK));
    fs.symlink(&caller(3), top, b"short", &[b'x'; 500]).unwrap();
    assert_eq!(used(&fs, number), 0);
    fs.symlink(&caller(3), top, b"long", &[b'x'; 4000]).unwrap();
    assert_eq!(used(&fs, number), BLOCK);
    let directory = mkdir(&fs, top, "d");
    let (mut made, refused) = (
        0,
        loop {
            let name = format!("{:0>250}", fs.getattr(&caller(3), directory).unwrap().size);
            match fs.mknod(&caller(3), directory, name.as_bytes(), 0o644, 0) {
                Ok(_) => {}
                refused => break refused,
            }
        },
    );
    is_over(refused);
    assert_eq!(used(&fs, number), 8 * BLOCK);
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_clean(&fs);
    // Removing is never refused, and a longer name is a longer directory.
    fs.readdir(&caller(4), directory, 0, false, &mut |_| {
        made += 1;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!((100..112).contains(&made), "{made}");
    is_over(fs.rename(&caller(4), top, b"short", directory, &[b'y'; 250], 0));
    fs.unlink(&caller(5), top, b"long").unwrap();
    fs.rename(&caller(5), top, b"short", directory, &[b'y'; 250], 0).unwrap();
    assert_eq!(used(&fs, number), 8 * BLOCK);
    assert_clean(&fs);
}

#[test]
fn versions_count_their_attributes_and_no_removal_is_refused_for_them() {
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(400 * BLOCK));
    set(&fs, top, "versions", "1000");
    let inode = make(&fs, top, "f", &[1; 10]);
    attribute(&fs, inode, "user.a", 2 * BLOCK as usize).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!(used(&fs, number), 4 * BLOCK);
    fs.setattr(&caller(400), inode, &SetAttributes { size: Some(0), ..SetAttributes::default() }).unwrap();
    settle(&fs);
    assert_eq!(used(&fs, number), 3 * BLOCK + 4 * BLOCK, "the file has its attributes, and its version too");
    // Names that lie with versions make a directory larger for which there is no room any more.
    let names: Vec<String> = (0..300).map(|at| format!("{at:0>250}")).collect();
    for name in &names {
        make(&fs, top, name, &[1; 10]);
    }
    fs.syncfs(&caller(401)).unwrap();
    fs.quotas().set_volume(&caller(402), top, bytes(used(&fs, number))).unwrap();
    for (at, name) in names.iter().enumerate() {
        fs.unlink(&caller(500 + at as i64), top, name.as_bytes()).unwrap();
    }
    settle(&fs);
    assert_clean(&fs);
}

#[test]
fn a_limit_of_stored_bytes_counts_metadata_once() {
    let (_rig, fs) = new();
    let stored = Limits { stored: Some(Some(3 * BLOCK)), ..Limits::default() };
    let (top, number) = volume(&fs, ROOT, "v", stored);
    let inode = make(&fs, top, "f", &[]);
    attribute(&fs, inode, "user.a", 2 * BLOCK as usize).unwrap();
    assert_eq!(account(&fs, Holder::Volume, number).stored, 3 * BLOCK);
    is_over(attribute(&fs, inode, "user.b", 2 * BLOCK as usize));
    is_over(fs.symlink(&caller(3), top, b"l", &[b'x'; 600]));
    assert_clean(&fs);
}

/// A pool from before metadata counted: accounts are what they were, and the next mount counts what they lack, in steps, across a crash.
#[test]
fn a_pool_from_before_is_counted_by_its_next_mount() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, ROOT, "v", bytes(1 << 30));
    let mut counted = 0;
    for at in 0..300 {
        let inode = make(&fs, top, &format!("f{at}"), &[1; 10]);
        if at % 3 == 0 {
            attribute(&fs, inode, "user.a", 5000).unwrap();
            counted += 2 * BLOCK;
        }
        counted += BLOCK;
    }
    // The names: 24 and two to four bytes each.
    let names = (300 * 24 + 10 * 2 + 90 * 3 + 200 * 4_u64).next_multiple_of(BLOCK);
    assert_eq!(used(&fs, number), counted + names);
    let before: Vec<_> =
        Holder::ALL.into_iter().flat_map(|holder| fs.quotas().accounts(Io::BLOCKING, holder).unwrap()).collect();
    fs.syncfs(&caller(4)).unwrap();
    fs.store()
        .update(Io::BLOCKING, |transaction| {
            let accounting = AccountingValue::decode(&transaction.get(&Key::accounting())?.unwrap()).unwrap();
            let accounting = AccountingValue { metadata: 0, ..accounting };
            transaction.put(Key::accounting(), &accounting.encode());
            for info in &before {
                let metadata = names + 100 * 2 * BLOCK;
                let value = AccountValue {
                    bytes: info.value.bytes - metadata,
                    stored: info.value.stored - metadata,
                    ..info.value
                };
                transaction.put(Key::account(info.account.holder, info.account.number), &value.encode());
            }
            Ok::<_, stere_store::Error>(())
        })
        .unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
    let fs = rig.reopen(fs, true);
    assert!(matches!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Counting(_)));
    fs.step(&caller(5), 1).unwrap();
    // What is changed meanwhile is counted once.
    let inode = fs.lookup(&caller(5), top, b"f0").unwrap().inode;
    attribute(&fs, inode, "user.a", 100).unwrap();
    let last = fs.lookup(&caller(5), top, b"f299").unwrap().inode;
    attribute(&fs, last, "user.a", 5000).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    assert_clean(&fs);
    let fs = rig.reopen(fs, true);
    settle(&fs);
    assert_eq!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Exact);
    assert_eq!(used(&fs, number), counted + names);
    let after: Vec<_> =
        Holder::ALL.into_iter().flat_map(|holder| fs.quotas().accounts(Io::BLOCKING, holder).unwrap()).collect();
    assert_eq!(before, after);
    assert_clean(&fs);
}
