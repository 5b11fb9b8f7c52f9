//! Versions and the rest of policy: encrypted, compressed and copied as their files, found by who may find those (P-53, P-80, P-81, P-117).

use crate::support;

use std::ops::ControlFlow;

use stere_device::Device;
use stere_naming::{
    Error, FileSystem, KeySeed, OpenFlags, PassphraseCost, ROOT, Secret, SetAttributes, SetMode, WrappingSeed,
};
use support::edits::{fact, set};
use support::files::{assert_clean, check, directory, make, mkdir};
use support::{Rig, caller, reconcile};
use zeroize::Zeroizing;

const DEVICE_BYTES: u64 = 96 << 20;
const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

fn create_key(fs: &FileSystem) {
    let wrapping = WrappingSeed { salt: [1; 16], nonce: [2; 24] };
    let seed = KeySeed { key: Zeroizing::new([3; 32]), wrapping };
    fs.encryption().create_key(&caller(2), "main", &secret(), COST, &seed).unwrap();
}

fn find(fs: &FileSystem, directory: u64, name: &str) -> Result<u64, Error> {
    Ok(fs.lookup(&caller(4), directory, name.as_bytes())?.inode)
}

/// The versions of a name, the oldest first.
fn versions(fs: &FileSystem, directory: u64, name: &str) -> Result<Vec<u64>, Error> {
    let drawer = find(fs, find(fs, directory, ".versions")?, name)?;
    let mut inodes = Vec::new();
    fs.readdir(&caller(4), drawer, 0, false, &mut |entry| {
        if !entry.name.starts_with(b".") {
            inodes.push(entry.inode);
        }
        ControlFlow::Continue(())
    })?;
    Ok(inodes)
}

fn write(fs: &FileSystem, inode: u64, at: u64, bytes: &[u8]) {
    let handle = fs.open(&caller(4), inode, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
    assert_eq!(fs.write(&caller(4), inode, at, bytes, false).unwrap(), bytes.len());
    fs.release(&caller(4), inode, handle).unwrap();
}

fn is_on_media(rig: &Rig, wanted: &[u8]) -> bool {
    rig.images().iter().any(|device| {
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read(0, &mut bytes).unwrap();
        bytes.windows(wanted.len()).any(|window| window[0] != 0 && window == wanted)
    })
}

/// P-53, P-80: what is encrypted stays so as a version, its name too; without the key it is not read, and what is removed is removed.
#[test]
fn versions_of_encrypted_files_are_encrypted() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    create_key(&fs);
    let top = directory(&fs, "vault", "encrypt", "yes");
    set(&fs, top, "versions", "10");
    let text = |of: &str| of.bytes().cycle().take(200_000).collect::<Vec<u8>>();
    let (first, second) = (text("WELLKNOWN first "), text("WELLKNOWN second "));
    let file = make(&fs, top, "secretname", &first);
    write(&fs, file, 0, &second);
    fs.unlink(&caller(5), top, b"secretname").unwrap();
    make(&fs, top, "other", &first);
    fs.syncfs(&caller(5)).unwrap();
    while fs.store().step(true).unwrap() {}
    let held = |fs: &FileSystem| {
        let found = versions(fs, top, "secretname").unwrap();
        assert_eq!(found.len(), 2);
        check(fs, found[0], &first);
        check(fs, found[1], &second);
    };
    held(&fs);
    assert!(!is_on_media(&rig, b"WELLKNOWN") && !is_on_media(&rig, b"secretname"));
    assert_clean(&fs);
    let fs = rig.reopen(fs, true);
    // Locked: there is nothing to be found by its name, and nothing in the way of removing.
    assert!(versions(&fs, top, "secretname").is_err());
    let mut other = None;
    fs.readdir(&caller(5), top, 0, false, &mut |entry| {
        other = (!entry.name.starts_with(b".")).then(|| entry.name.to_vec()).or(other.take());
        ControlFlow::Continue(())
    })
    .unwrap();
    fs.unlink(&caller(5), top, &other.unwrap()).unwrap();
    fs.encryption().unlock_keys(None, &secret()).unwrap();
    held(&fs);
    assert!(versions(&fs, top, "other").is_err(), "what was removed while its key was locked is gone");
    // In the clear from now on, and found as before.
    fs.reconciler().pause_reconcile(false);
    set(&fs, top, "encrypt", "no");
    reconcile(&fs);
    held(&fs);
    assert_eq!(fact(&fs, versions(&fs, top, "secretname").unwrap()[0], "state"), "compliant");
    assert_clean(&fs);
}

/// P-81: what is asked of a directory later is asked of the versions in it, too.
#[test]
fn a_changed_policy_moves_versions() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = directory(&fs, "top", "versions", "10");
    let bytes = vec![7; 300_000];
    let file = make(&fs, top, "a", &bytes);
    set(&fs, file, "compress", "lz4");
    write(&fs, file, 0, b"other");
    fs.unlink(&caller(5), top, b"a").unwrap();
    fs.syncfs(&caller(5)).unwrap();
    set(&fs, top, "copies", "3");
    reconcile(&fs);
    for version in versions(&fs, top, "a").unwrap() {
        let facts = ["effective.copies", "effective.compress", "survives", "state"].map(|key| fact(&fs, version, key));
        assert_eq!(facts, ["3", "lz4", "2", "compliant"], "what was set on the file itself is set on its versions");
    }
    check(&fs, versions(&fs, top, "a").unwrap()[0], &bytes);
    assert_clean(&fs);
}

/// P-80: who may not look into a directory may not look into its versions, and those run with nobody's rights.
#[test]
fn versions_are_as_private_as_what_they_are_of() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = directory(&fs, "top", "versions", "10");
    let file = make(&fs, top, "a", b"first");
    let mode = |inode| fs.getattr(&caller(5), inode).unwrap().mode & 0o7777;
    let change = |inode, mode, uid| {
        let set = SetAttributes { mode: Some(mode), uid: Some(uid), ..SetAttributes::default() };
        fs.setattr(&caller(5), inode, &set).unwrap();
    };
    change(file, 0o640, 7);
    fs.setattr(&caller(5), file, &SetAttributes { mode: Some(0o4750), ..SetAttributes::default() }).unwrap();
    write(&fs, file, 0, b"other");
    let version = versions(&fs, top, "a").unwrap()[0];
    assert_eq!((mode(version), fs.getattr(&caller(5), version).unwrap().uid), (0o750, 7));
    let shelf = find(&fs, top, ".versions").unwrap();
    assert_eq!(mode(shelf), 0o555);
    change(top, 0o700, 8);
    assert_eq!((mode(shelf), fs.getattr(&caller(5), shelf).unwrap().uid), (0o500, 8));
    fs.rmdir(&caller(5), ROOT, b"top").unwrap_err();
    assert_clean(&fs);
}

fn settle(fs: &FileSystem) {
    reconcile(fs);
    while fs.step(&caller(9), 1000).unwrap() {}
}

/// P-117: rules say which files have versions; what they say now holds for the versions that there are.
#[test]
fn rules_say_which_files_have_versions() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = directory(&fs, "d", "rules", "*.odt: versions=3; keep*: versions=5,30d; *.tmp: versions=no");
    let make_and_change = |fs: &FileSystem, name: &str, times: u8| {
        let file = make(fs, top, name, b"first");
        (0..times).for_each(|time| write(fs, file, 0, &[b'a' + time; 9]));
        file
    };
    let odt = make_and_change(&fs, "a.odt", 1);
    make_and_change(&fs, "plain", 2);
    assert_eq!((fact(&fs, odt, "effective.versions"), versions(&fs, top, "a.odt").unwrap().len()), ("3".into(), 1));
    assert!(fact(&fs, odt, "source.versions").contains("rule of /d: *.odt: versions=3"));
    assert!(versions(&fs, top, "plain").is_err(), "no rule matches");
    // The number holds, and removal keeps too. A file's own word goes before rules of its directory.
    (0..5).for_each(|time| write(&fs, odt, 0, &[b'k' + time; 9]));
    settle(&fs);
    assert_eq!(versions(&fs, top, "a.odt").unwrap().len(), 3);
    let both = make_and_change(&fs, "keep.odt", 0);
    assert_eq!(fact(&fs, both, "effective.versions"), "5", "as many as one rule keeps, as long as one does");
    fs.unlink(&caller(5), top, b"keep.odt").unwrap();
    assert_eq!(versions(&fs, top, "keep.odt").unwrap().len(), 1);
    fs.syncfs(&caller(6)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(fact(&fs, odt, "effective.versions"), "3");
    check(&fs, versions(&fs, top, "a.odt").unwrap()[0], b"lllllllll");
    // Other rules: of what exists as many stay as they say.
    set(&fs, top, "rules", "*.odt: versions=1");
    settle(&fs);
    assert_eq!((fact(&fs, odt, "effective.versions"), versions(&fs, top, "a.odt").unwrap().len()), ("1".into(), 1));
    set(&fs, odt, "versions", "7");
    settle(&fs);
    (0..3).for_each(|time| write(&fs, odt, 0, &[b's' + time; 9]));
    settle(&fs);
    assert_eq!(versions(&fs, top, "a.odt").unwrap().len(), 4);
    set(&fs, odt, "versions", "no");
    settle(&fs);
    assert!(versions(&fs, top, "a.odt").is_err());
    assert_clean(&fs);
}

fn lock(fs: &FileSystem, inode: u64, value: &str) {
    fs.setxattr(&caller(3), inode, b"trusted.stere.versions", value.as_bytes(), SetMode::Any, false).unwrap();
}

/// P-121: what is locked goes before what was set and ruled, refuses what is set after it, and lets go of both again.
#[test]
fn versions_are_locked() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = directory(&fs, "d", "rules", "*.tmp: versions=no");
    let below = mkdir(&fs, top, "e");
    let (own, ruled) = (make(&fs, below, "own", b"first"), make(&fs, below, "a.tmp", b"first"));
    set(&fs, own, "versions", "no");
    lock(&fs, top, "2");
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    for (inode, name) in [(own, "own"), (ruled, "a.tmp")] {
        assert_eq!(fact(&fs, inode, "effective.versions"), "2");
        assert_eq!(fact(&fs, inode, "source.versions"), "locked by the administrator at /d");
        (0..4).for_each(|time| write(&fs, inode, 0, &[b'a' + time; 9]));
        settle(&fs);
        assert_eq!(versions(&fs, below, name).unwrap().len(), 2, "{name}");
    }
    let refused = |key: &str, value: &str| {
        let name = format!("user.stere.{key}");
        fs.setxattr(&caller(5), below, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap_err().errno()
    };
    assert_eq!((refused("versions", "no"), refused("rules", "*: versions=9")), (libc::EPERM, libc::EPERM));
    set(&fs, below, "versions", "2");
    set(&fs, below, "versions", "");
    assert!(fs.listxattr(&caller(5), top).unwrap().contains(&b"trusted.stere.versions".to_vec()));
    assert_eq!(fs.getxattr(&caller(5), top, b"trusted.stere.versions").unwrap(), b"2");
    fs.removexattr(&caller(6), top, b"trusted.stere.versions").unwrap();
    assert_eq!(
        (fact(&fs, own, "effective.versions"), fact(&fs, ruled, "effective.versions")),
        ("no".into(), "no".into())
    );
    assert!(fs.getxattr(&caller(6), top, b"trusted.stere.versions").is_err());
    settle(&fs);
    assert!(versions(&fs, below, "own").is_err());
    assert_clean(&fs);
}

/// P-117: so do classes, and a changed class holds for what has it.
#[test]
fn classes_say_which_files_have_versions() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let settings = |value: &str| [("versions".to_owned(), value.to_owned())];
    fs.policy().create_class(&caller(2), "papers", &settings("4,30d")).unwrap();
    assert!(fs.policy().create_class(&caller(2), "wrong", &settings("0")).is_err());
    let top = directory(&fs, "d", "class", "papers");
    let file = make(&fs, top, "f", b"first");
    (0..6).for_each(|time| write(&fs, file, 0, &[b'a' + time; 9]));
    settle(&fs);
    assert_eq!((fact(&fs, file, "effective.versions"), versions(&fs, top, "f").unwrap().len()), ("4,30d".into(), 4));
    assert_eq!(fact(&fs, file, "source.versions"), "inherited from /d");
    fs.syncfs(&caller(6)).unwrap();
    let fs = rig.reopen(fs, true);
    assert!(fs.policy().change_class(&caller(3), "papers", &settings("2")).unwrap());
    settle(&fs);
    assert_eq!(versions(&fs, top, "f").unwrap().len(), 2);
    let told = fs.classes().list_classes(stere_naming::Io::BLOCKING).unwrap();
    assert_eq!(told.last().unwrap().settings, [("versions", "2".to_owned())]);
    // A rule that names the class says it too.
    let other = directory(&fs, "other", "rules", "*.pdf: class=papers");
    let pdf = make(&fs, other, "x.pdf", b"first");
    write(&fs, pdf, 0, b"second");
    assert_eq!(versions(&fs, other, "x.pdf").unwrap().len(), 1);
    assert!(
        fs.policy()
            .change_class(&caller(3), "papers", &[settings("")[0].clone(), ("copies".into(), "1".into())])
            .unwrap()
    );
    settle(&fs);
    write(&fs, pdf, 0, b"third");
    assert_eq!(versions(&fs, other, "x.pdf").unwrap().len(), 1, "what is there stays, and nothing new is kept");
    assert_clean(&fs);
}

/// P-121: a lock on a file goes before one further up, for its versions too: they were counted by that of the directory.
#[test]
fn versions_of_a_file_with_a_lock_of_its_own_are_counted_by_that() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = directory(&fs, "d", "versions", "1");
    lock(&fs, top, "1");
    let file = make(&fs, top, "f", b"first");
    lock(&fs, file, "3");
    (0..5).for_each(|time| write(&fs, file, 0, &[b'a' + time; 9]));
    settle(&fs);
    assert_eq!((fact(&fs, file, "effective.versions"), versions(&fs, top, "f").unwrap().len()), ("3".into(), 3));
    fs.syncfs(&caller(6)).unwrap();
    let fs = rig.reopen(fs, true);
    write(&fs, file, 0, b"last");
    settle(&fs);
    assert_eq!(versions(&fs, top, "f").unwrap().len(), 3);
    fs.removexattr(&caller(7), file, b"trusted.stere.versions").unwrap();
    settle(&fs);
    assert_eq!(versions(&fs, top, "f").unwrap().len(), 1, "that of the directory holds again");
    assert_clean(&fs);
}
