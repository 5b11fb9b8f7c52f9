//! What follows from changes of modes, owners and ACLs.

use crate::support;

use stere_naming::{Caller, Error, FileSystem, OpenFlags, ROOT, SetAttributes, SetMode};
use support::files::acl;
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

const NOBODY: u32 = u32::MAX;

/// Owner rwx, user 7 rw, group r-x, mask and others as given.
fn named(mask: u16, other: u16) -> Vec<u8> {
    acl(&[(1, 7, NOBODY), (2, 6, 7), (4, 5, NOBODY), (0x10, mask, NOBODY), (0x20, other, NOBODY)])
}

fn mode(fs: &FileSystem, inode: u64) -> u32 {
    fs.getattr(&caller(9), inode).expect("attributes").mode & 0o7777
}

fn chmod(fs: &FileSystem, inode: u64, mode: u32) {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    fs.setattr(&caller(9), inode, &set).expect("chmod");
}

fn make(fs: &FileSystem, parent: u64, name: &[u8], mode: u32) -> u64 {
    let (made, handle) = fs.create(&caller(3), parent, name, mode, FLAGS).expect("a new file");
    fs.release(&caller(3), made.inode, handle).expect("closing");
    made.inode
}

/// Who reaches a file by one name is told nothing of directories with others that he cannot enter.
#[test]
fn paths_of_names_that_nobody_may_reach_are_not_told() {
    let (_rig, fs) = Rig::new(3, 64 << 20);
    let mkdir = |name: &[u8], mode| fs.mkdir(&caller(3), ROOT, name, mode).expect("a directory").inode;
    let (open, private, group) = (mkdir(b"open", 0o755), mkdir(b"hidden", 0o700), mkdir(b"shared", 0o705));
    chmod(&fs, group, 0o705);
    let set = |inode, key: &str, value: &str| {
        let name = format!("user.stere.{key}");
        fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).expect("a policy");
    };
    set(open, "copies", "2");
    set(private, "rules", "*.secret: compress=zstd; *.secret: pin=yes");
    set(private, "copies", "3");
    set(private, "retain", "90d");
    set(group, "versions", "7");
    let file = make(&fs, open, b"file", 0o644);
    fs.link(&caller(4), file, group, b"third").expect("a link");
    fs.link(&caller(4), file, private, b"other.secret").expect("a link");
    fs.reconciler().reconcile(&caller(4), ROOT).expect("noted");
    support::reconcile(&fs);
    let told = |who: &Caller<'_>| {
        let of = |key: &str| fs.getxattr(who, file, format!("user.stere.{key}").as_bytes());
        let keys = ["copies", "compress", "pin", "retain", "versions"].map(|key| format!("source.{key}"));
        let all = keys.iter().map(String::as_str).chain(["chain"]).map(|key| of(key).expect("an answer"));
        all.map(|text| String::from_utf8(text).expect("text") + "\n").collect::<String>()
    };
    let root = told(&caller(9));
    assert!(["/hidden", "/shared", "/open", "*.secret"].iter().all(|text| root.contains(text)), "{root}");
    // In what groups somebody is need not be known: he might be in one that may not search.
    let nobody = told(&Caller { uid: 7, gid: 7, ..caller(9) });
    assert!(nobody.contains("/open") && nobody.contains("not shown"), "{nobody}");
    assert!(!["hidden", "shared", "secret", "third"].iter().any(|text| nobody.contains(text)), "{nobody}");
    assert!(nobody.contains("2 directories with names of it are not shown"), "{nobody}");
    let known = told(&Caller { uid: 7, gid: 7, groups: &[8], ..caller(9) });
    assert!(known.contains("/shared") && !known.contains("hidden") && !known.contains("secret"), "{known}");
    // Whoever may enter is told.
    let chown = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    fs.setattr(&caller(9), private, &chown).expect("chown");
    let owner = told(&Caller { uid: 7, gid: 7, ..caller(9) });
    assert!(owner.contains("/hidden: copies=3") && owner.contains("*.secret"), "{owner}");
}

#[test]
fn an_acl_and_the_mode_are_kept_in_step() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let c = caller(5);
    let file = make(&fs, ROOT, b"file", 0o644);
    fs.setxattr(&c, file, ACCESS, &named(7, 0), SetMode::Any, false).expect("an ACL");
    assert_eq!(mode(&fs, file), 0o770, "the mask is the mode's group");
    chmod(&fs, file, 0o604);
    let wanted = acl(&[(1, 6, NOBODY), (2, 6, 7), (4, 5, NOBODY), (0x10, 0, NOBODY), (0x20, 4, NOBODY)]);
    assert_eq!(fs.getxattr(&c, file, ACCESS).expect("the ACL"), wanted);
    // One that says no more than the mode is not kept.
    fs.setxattr(&c, file, ACCESS, &acl(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)]), SetMode::Any, false)
        .expect("an ACL");
    assert_eq!(mode(&fs, file), 0o640);
    assert!(matches!(fs.getxattr(&c, file, ACCESS), Err(Error::NoAttribute)));
    for wrong in [&b"xx"[..], &acl(&[(1, 6, NOBODY)])[..], &acl(&[(1, 8, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)])] {
        if wrong.len() > 4 {
            let refused = fs.setxattr(&c, file, ACCESS, wrong, SetMode::Any, false).expect_err("not an ACL");
            assert_eq!(refused.errno(), libc::EINVAL);
        }
    }
}

#[test]
fn a_default_acl_is_inherited_and_replaces_the_umask() {
    let (rig, fs) = Rig::new(1, 64 << 20);
    let c = Caller { umask: 0o077, ..caller(5) };
    let directory = fs.mkdir(&c, ROOT, b"directory", 0o755).expect("a directory").inode;
    assert_eq!(mode(&fs, directory), 0o700);
    let default = named(5, 4);
    fs.setxattr(&c, directory, DEFAULT, &default, SetMode::Any, false).expect("a default ACL");
    let (made, _handle) = fs.create(&c, directory, b"file", 0o666, FLAGS).expect("a new file");
    assert_eq!(made.mode & 0o7777, 0o644, "the ACL's bits that were asked for, whatever the umask");
    let wanted = acl(&[(1, 6, NOBODY), (2, 6, 7), (4, 5, NOBODY), (0x10, 4, NOBODY), (0x20, 4, NOBODY)]);
    assert_eq!(fs.getxattr(&c, made.inode, ACCESS).expect("the ACL"), wanted);
    assert!(matches!(fs.getxattr(&c, made.inode, DEFAULT), Err(Error::NoAttribute)));
    let inner = fs.mkdir(&c, directory, b"inner", 0o777).expect("a directory").inode;
    assert_eq!(fs.getxattr(&c, inner, DEFAULT).expect("the default ACL"), default);
    assert_eq!(mode(&fs, inner), 0o754);
    fs.syncfs(&c).expect("sync");
    let fs = rig.reopen(fs, true);
    fs.removexattr(&c, directory, DEFAULT).expect("removing");
    assert_eq!(mode(&fs, make(&fs, directory, b"plain", 0o666)), 0o644, "the umask counts again");
}

#[test]
fn set_group_id_directories_hand_their_group_down() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let directory = fs.mkdir(&caller(5), ROOT, b"directory", 0o755).expect("a directory").inode;
    let set = SetAttributes { gid: Some(42), mode: Some(0o2755), ..SetAttributes::default() };
    fs.setattr(&caller(5), directory, &set).expect("chown");
    let file = fs.getattr(&caller(6), make(&fs, directory, b"file", 0o644)).expect("attributes");
    assert_eq!((file.gid, file.mode & 0o7777), (42, 0o644));
    let inner = fs.mkdir(&caller(6), directory, b"inner", 0o755).expect("a directory");
    assert_eq!((inner.gid, inner.mode & 0o7777), (42, 0o2755));
}

#[test]
fn writes_and_new_owners_clear_set_id_bits() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let file = make(&fs, ROOT, b"file", 0o644);
    chmod(&fs, file, 0o6755);
    fs.write(&caller(6), file, 0, b"by root", false).expect("a write");
    assert_eq!(mode(&fs, file), 0o6755);
    fs.write(&caller(6), file, 0, b"by somebody", true).expect("a write");
    assert_eq!(mode(&fs, file), 0o755);
    chmod(&fs, file, 0o6745);
    let set = SetAttributes { size: Some(0), kill_suid_sgid: true, ..SetAttributes::default() };
    fs.setattr(&caller(7), file, &set).expect("truncating");
    assert_eq!(mode(&fs, file), 0o2745, "set-group-id without group execution stays");
    chmod(&fs, file, 0o6755);
    fs.setxattr(&caller(7), file, b"security.capability", b"caps", SetMode::Any, false).expect("capabilities");
    let set = SetAttributes { uid: Some(5), ..SetAttributes::default() };
    fs.setattr(&caller(8), file, &set).expect("chown");
    assert_eq!(mode(&fs, file), 0o755);
    assert!(matches!(fs.getxattr(&caller(8), file, b"security.capability"), Err(Error::NoAttribute)));
}
