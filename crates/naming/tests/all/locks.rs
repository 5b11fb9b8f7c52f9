//! Locks of the administrator: they hold for everything below, whatever is set, ruled, moved or linked there (P-58).

use crate::support;

use stere_naming::{Caller, FileSystem, OpenFlags, ROOT, SetMode};
use support::files::{make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn try_set(fs: &FileSystem, inode: u64, name: &str, value: &str) -> i32 {
    let set = fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false);
    set.map_or_else(|error| error.errno(), |()| 0)
}

fn set(fs: &FileSystem, inode: u64, name: &str, value: &str) {
    assert_eq!(try_set(fs, inode, name, value), 0, "{name}={value}");
}

fn fact(fs: &FileSystem, inode: u64, name: &str) -> String {
    let value = fs.getxattr(&caller(9), inode, name.as_bytes());
    value.map_or_else(|error| format!("{error:?}"), |value| String::from_utf8(value).unwrap())
}

/// Copies that hold, and who decided that.
fn copies(fs: &FileSystem, inode: u64) -> (String, String) {
    (fact(fs, inode, "user.stere.effective.copies"), fact(fs, inode, "user.stere.source.copies"))
}

fn locked(copies: &str, at: &str) -> (String, String) {
    (copies.into(), format!("locked by the administrator at {at}"))
}

fn stored_as_asked(fs: &FileSystem, inode: u64, survives: &str) {
    assert_eq!(fact(fs, inode, "user.stere.state"), "compliant");
    assert_eq!(fact(fs, inode, "user.stere.survives"), survives);
}

#[test]
fn a_lock_overrides_what_was_set_and_refuses_what_is_set_after_it() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let below = mkdir(&fs, top, "below");
    let (file, ruled) = (make(&fs, below, "a", &[7; 50_000]), make(&fs, below, "a.tmp", &[7; 50_000]));
    set(&fs, file, "user.stere.copies", "1");
    set(&fs, below, "user.stere.rules", "*.tmp: copies=1, compress=lz4");
    fs.policy().load_rules(&caller(3), "! a: copies=2").unwrap();
    reconcile(&fs);
    stored_as_asked(&fs, ruled, "0");
    set(&fs, top, "trusted.stere.copies", "3");
    // A crash comes before anything was stored anew.
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    reconcile(&fs);
    for inode in [file, ruled, below] {
        assert_eq!(copies(&fs, inode), locked("3", "/top"));
    }
    assert_eq!(copies(&fs, top).1, "locked here by the administrator");
    stored_as_asked(&fs, file, "2");
    stored_as_asked(&fs, ruled, "2");
    // What contradicts is refused, the same is not, nor is another key.
    for (name, value) in [("copies", "1"), ("parity", "1"), ("redundancy", "10"), ("rules", "*.tmp: copies=1")] {
        assert_eq!(try_set(&fs, below, &format!("user.stere.{name}"), value), libc::EPERM, "{name}={value}");
    }
    assert_eq!(try_set(&fs, file, "user.attest.copies", "2"), libc::EPERM);
    assert_eq!(
        fact(&fs, below, "user.stere.rules"),
        "*.tmp: copies=1, compress=lz4",
        "what was refused changed nothing"
    );
    set(&fs, below, "user.stere.rules", "*.tmp: copies=3, compress=lz4");
    set(&fs, file, "user.stere.copies", "3");
    set(&fs, file, "user.stere.compress", "zstd");
    set(&fs, file, "user.stere.copies", "");
    // An exception nearer to the files is the administrator's to make.
    set(&fs, below, "trusted.stere.copies", "2");
    reconcile(&fs);
    assert_eq!(copies(&fs, file), locked("2", "/top/below"));
    stored_as_asked(&fs, file, "1");
    fs.removexattr(&caller(5), below, b"trusted.stere.copies").unwrap();
    fs.removexattr(&caller(5), top, b"trusted.stere.copies").unwrap();
    assert_eq!(fs.removexattr(&caller(5), top, b"trusted.stere.copies").unwrap_err().errno(), libc::ENODATA);
    reconcile(&fs);
    assert_eq!(copies(&fs, file), ("2".into(), "rule of the pool: ! a: copies=2".into()));
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
}

#[test]
fn a_locked_class_speaks_for_what_it_sets_and_follows_the_class() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let settings = |copies: &str| [("copies".to_owned(), copies.to_owned())];
    fs.policy().create_class(&caller(2), "photos", &settings("3")).unwrap();
    let top = mkdir(&fs, ROOT, "top");
    let file = make(&fs, top, "a", &[7; 50_000]);
    assert_eq!(try_set(&fs, top, "trusted.stere.class", "gold"), libc::EINVAL);
    set(&fs, top, "trusted.stere.class", "photos");
    assert_eq!(try_set(&fs, file, "user.stere.class", "scratch"), libc::EPERM);
    assert_eq!(try_set(&fs, file, "user.stere.copies", "1"), libc::EPERM, "the class says how many");
    set(&fs, file, "user.stere.class", "photos");
    set(&fs, file, "user.stere.class", "");
    reconcile(&fs);
    assert_eq!(copies(&fs, file), locked("3", "/top"));
    stored_as_asked(&fs, file, "2");
    // Only the lock names it; a change of the class finds what is below all the same.
    fs.policy().change_class(&caller(4), "photos", &settings("1")).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    reconcile(&fs);
    stored_as_asked(&fs, file, "0");
    assert_eq!(fact(&fs, top, "trusted.stere.class"), "photos");
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
    // One name out of the index is a finding.
    let code = 16;
    let forget = |transaction: &mut stere_store::Transaction<'_>| {
        transaction.delete(stere_format::Key::class_member(code, top));
        Ok::<_, stere_store::Error>(())
    };
    fs.store().update(stere_naming::Io::BLOCKING, forget).unwrap();
    let findings = stere_naming::check(fs.store()).unwrap();
    assert!(findings.iter().any(|one| one.text.contains("class 16")), "{findings:?}");
}

#[test]
fn no_further_name_takes_a_file_out_of_a_lock() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let (top, outside) = (mkdir(&fs, ROOT, "top"), mkdir(&fs, ROOT, "outside"));
    set(&fs, top, "trusted.stere.copies", "3");
    let file = make(&fs, top, "a", &[7; 50_000]);
    fs.link(&caller(4), file, outside, b"b").unwrap();
    assert_eq!(copies(&fs, file), locked("3", "/top"));
    fs.rename(&caller(4), outside, b"b", ROOT, b"c", 0).unwrap();
    assert_eq!(copies(&fs, file), locked("3", "/top"));
    // A name within the lock that leaves it, while another one stays.
    fs.link(&caller(4), file, top, b"d").unwrap();
    fs.rename(&caller(4), top, b"d", outside, b"d", 0).unwrap();
    assert_eq!(copies(&fs, file), locked("3", "/top"));
    // And one from outside comes under it.
    let stranger = make(&fs, outside, "s", &[7; 50_000]);
    assert_eq!(copies(&fs, stranger).0, "2");
    fs.link(&caller(4), stranger, top, b"s").unwrap();
    assert_eq!(copies(&fs, stranger), locked("3", "/top"));
    // What leaves by its only name leaves the lock.
    let only = make(&fs, top, "only", &[7; 50_000]);
    fs.rename(&caller(4), top, b"only", outside, b"only", 0).unwrap();
    assert_eq!(copies(&fs, only).0, "2");
    reconcile(&fs);
    stored_as_asked(&fs, stranger, "2");
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
}

#[test]
fn locks_are_listed_for_the_administrator_alone() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "trusted.stere.compress", "zstd:7");
    set(&fs, top, "user.stere.copies", "1");
    let list = |uid: u32| fs.listxattr(&stere_naming::Caller { uid, ..caller(4) }, top).unwrap();
    assert_eq!(list(0), [b"trusted.stere.compress".to_vec(), b"user.stere.copies".to_vec()]);
    assert_eq!(list(1000), [b"user.stere.copies".to_vec()]);
    assert_eq!(fact(&fs, top, "trusted.stere.compress"), "zstd:7");
    for (name, value) in
        [("copies", "0"), ("rules", "*: copies=1"), ("retain", "30d"), ("versions", "x"), ("effective.copies", "1")]
    {
        assert_eq!(try_set(&fs, top, &format!("trusted.stere.{name}"), value), libc::EINVAL, "{name}");
    }
    set(&fs, top, "trusted.other", "an ordinary attribute");
    let link = fs.symlink(&caller(4), top, b"l", b"target").unwrap().inode;
    assert_eq!(try_set(&fs, link, "trusted.stere.copies", "2"), libc::EPERM);
}

fn user(uid: u32) -> Caller<'static> {
    Caller { uid, gid: uid, ..caller(4) }
}

fn of_user(fs: &FileSystem, uid: u32, inode: u64, name: &str, value: &str) -> i32 {
    let set = fs.setxattr(&user(uid), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false);
    set.map_or_else(|error| error.errno(), |()| 0)
}

/// P-179. The kernel lets whoever may write set attributes; what weakens a file is for its owner and root.
#[test]
fn who_may_write_a_file_does_not_say_how_it_is_kept() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = fs.mkdir(&user(7), ROOT, b"shared", 0o777).unwrap().inode;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (file, handle) = fs.create(&user(7), top, b"file", 0o666, flags).unwrap();
    fs.release(&user(7), file.inode, handle).unwrap();
    let keys = [
        ("encrypt", "no"),
        ("copies", "1"),
        ("checksum", "crc32c"),
        ("class", "scratch"),
        ("compress", "zstd"),
        ("versions", "no"),
        ("plugins", "none"),
        ("pin", "no"),
        ("backup", "no"),
        ("only", "any"),
    ];
    for (key, value) in keys {
        let name = format!("user.stere.{key}");
        for inode in [file.inode, top] {
            assert_eq!(of_user(&fs, 8, inode, &name, value), libc::EPERM, "{key}={value}");
            assert_eq!(of_user(&fs, 7, inode, &name, value), 0, "{key}={value}");
            let removed = fs.removexattr(&user(8), inode, name.as_bytes());
            assert_eq!(removed.unwrap_err().errno(), libc::EPERM, "{key} is removed");
            assert_eq!(try_set(&fs, inode, &name, value), 0, "{key}={value}");
        }
    }
    assert_eq!(of_user(&fs, 8, top, "user.stere.rules", "*: copies=1"), libc::EPERM);
    assert_eq!(of_user(&fs, 8, file.inode, "user.note", "may be written"), 0);
    // In the directory of another: root can keep it from becoming something that cannot be removed.
    let (own, handle) = fs.create(&user(8), top, b"own", 0o644, flags).unwrap();
    fs.release(&user(8), own.inode, handle).unwrap();
    assert_eq!(try_set(&fs, top, "trusted.stere.retain", "9h"), libc::EINVAL);
    set(&fs, top, "trusted.stere.retain", "none");
    assert_eq!(of_user(&fs, 8, own.inode, "user.stere.retain", "2100-01-01"), libc::EPERM);
    assert_eq!(of_user(&fs, 7, top, "user.stere.retain", "9h"), libc::EPERM);
    fs.unlink(&user(7), top, b"own").unwrap();
    fs.removexattr(&caller(5), top, b"trusted.stere.retain").unwrap();
    assert_eq!(of_user(&fs, 7, file.inode, "user.stere.retain", "2100-01-01"), 0);
}
