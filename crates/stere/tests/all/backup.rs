//! Backups with the real binary on a real mount (P-104, P-105, P-106): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{World, can_mount};

fn kill(world: &World) {
    let killed = Command::new("kill").args(["-9", &world.daemon().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(Command::new("umount").arg("-l").arg(world.mountpoint()).status().unwrap().success());
}

fn destination(world: &World) -> Value {
    world.json("backup status tank --json")[0].clone()
}

/// Waits until this holds of the only destination.
fn wait_until(world: &World, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        let line = destination(world);
        if holds(&line) {
            return line;
        }
        assert!(Instant::now() < until, "{what} does not come: {line}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// P-104, P-105.
#[test]
fn chosen_files_are_copied_once_proven_and_restored() {
    if !can_mount("chosen_files_are_copied_once_proven_and_restored") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let (mount, vault) = (world.mountpoint(), world.path("vault"));
    fs::create_dir(&vault).unwrap();
    fs::create_dir_all(mount.join("docs/deep")).unwrap();
    let large: String = (0..400_000).map(|number| format!("{number}\n")).collect();
    for (name, content) in [("docs/a", "one"), ("docs/deep/b", &large), ("docs/c.tmp", "t"), ("other", "o")] {
        fs::write(mount.join(name), content).unwrap();
    }
    world.refused("policy set mount/docs backup=perhaps", 1, &["backup cannot be 'perhaps'"]);
    world.ok("policy set mount/docs backup=yes");
    world.ok("policy set mount/docs/c.tmp backup=no");
    assert!(world.ok("policy explain mount/docs/a").contains("backup is yes: inherited from /docs"));
    assert_eq!(world.ok("find backup=yes --count mount").trim(), "4", "two files and two directories");
    world.refused("backup add tank usb vault", 2, &["dir:/PATH"]);
    world.refused("backup add tank usb dir:mount/docs", 1, &["cannot lie in the pool"]);
    world.refused("backup add tank usb dir:vault --only size>", 1, &["not understood"]);
    world.ok("backup add tank usb dir:vault,keep=2");
    world.refused("backup add tank usb dir:vault", 1, &["already"]);
    // What was just written may change at the same moment of the clock: it is looked at again then.
    std::thread::sleep(Duration::from_secs(3));
    let said = world.ok("backup run tank usb --wait");
    assert!(said.contains("2 copied"), "{said}");
    assert_eq!(read(&vault.join("current/docs/deep/b")), large);
    assert!(!vault.join("current/other").exists() && !vault.join("current/docs/c.tmp").exists());
    assert!(world.ok("backup run tank --wait").contains(" 0 copied"));
    fs::write(mount.join("docs/a"), "changed").unwrap();
    fs::rename(mount.join("docs/deep/b"), mount.join("docs/moved")).unwrap();
    let said = world.ok("backup run tank usb --wait");
    assert!(said.contains("2 files, 1 copied") && said.contains("1 renamed, 1 taken away"), "{said}");
    assert_eq!(read(&vault.join("current/docs/a")), "changed");
    assert_eq!(read(&vault.join("current/docs/moved")), large);
    let kept = fs::read_dir(vault.join("kept")).unwrap().map(|entry| entry.unwrap().path().join("docs/deep/b"));
    let number = |path: &Path| fs::metadata(path).map(|found| found.ino()).ok();
    let numbers: Vec<_> = kept.filter_map(|path| number(&path)).collect();
    assert_eq!(numbers, [number(&vault.join("current/docs/moved")).unwrap()], "one copy under both names");
    fs::write(mount.join("docs/a"), "again").unwrap();
    let said = world.ok("backup run tank usb --wait");
    assert!(said.contains(" 1 copied"), "only what changed: {said}");
    // The only destination needs no name, and a pool's name is never taken for a directory.
    world.ok("backup verify tank");
    world.ok("backup verify tank usb");
    world.ok("umount mount");
    // Without the pool: what is there, an earlier state, and what rotted.
    let listed = world.ok("backup list vault");
    let until = listed.lines().nth(1).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(world.ok("backup list vault --files").contains("/docs/moved"));
    world.ok("backup restore vault --to out");
    assert_eq!((read(&world.path("out/docs/a")), read(&world.path("out/docs/moved"))), ("again".into(), large.clone()));
    world.ok(&format!("backup restore vault --path docs/a --until {until} --to earlier"));
    assert_eq!(read(&world.path("earlier/docs/a")), "changed");
    fs::write(vault.join("current/docs/moved"), large.replace("77\n", "78\n")).unwrap();
    let said = world.run("backup verify vault");
    assert!(said.code == 4 && said.out.contains("current/docs/moved: its content is not"), "{}{}", said.out, said.err);
    assert_eq!(world.run("backup restore vault --path docs/moved --to lost").code, 3);
    world.ok("mount tank mount");
    let said = world.ok("backup run tank usb --wait");
    assert!(said.contains(" 1 copied"), "{said}");
    world.ok("backup verify tank usb");
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-106: and what a crash interrupts goes on by itself.
#[test]
fn a_destination_that_is_away_is_told_and_goes_on_when_it_is_back() {
    if !can_mount("a_destination_that_is_away_is_told_and_goes_on_when_it_is_back") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let (mount, vault, away) = (world.mountpoint(), world.path("vault"), world.path("away"));
    fs::create_dir(&vault).unwrap();
    world.ok("policy set mount backup=yes");
    fs::write(mount.join("a"), "one").unwrap();
    fs::write(mount.join("b.big"), vec![7; 300_000]).unwrap();
    world.ok("backup add tank usb dir:vault,every=2s,keep=0 --only size<100K");
    wait_until(&world, "the first run", |line| line["done_seconds"].is_number() && vault.join("current/a").exists());
    assert!(!vault.join("current/b.big").exists());
    fs::rename(&vault, &away).unwrap();
    fs::create_dir(&vault).unwrap();
    let line = wait_until(&world, "that it is away", |line| {
        line["is_attached"] == false && line["last"]["problem"].is_string()
    });
    assert!(line["last"]["problem"].as_str().unwrap().contains("attach"), "{line}");
    assert_eq!(world.run("backup status tank").code, 3);
    fs::write(mount.join("a"), "two").unwrap();
    assert!(fs::read_dir(&vault).unwrap().next().is_none(), "nothing is written to what is in its place");
    Command::new("sync").arg("-f").arg(mount.join("a")).status().unwrap();
    kill(&world);
    world.ok("mount tank mount");
    fs::remove_dir(&vault).unwrap();
    fs::rename(&away, &vault).unwrap();
    wait_until(&world, "the copy", |_| fs::read(vault.join("current/a")).is_ok_and(|bytes| bytes == b"two"));
    let line = wait_until(&world, "the end", |line| line["last"]["problem"].is_null() && line["is_running"] == false);
    assert_eq!(line["is_attached"], true, "{line}");
    world.ok("backup remove tank usb");
    assert_eq!(world.json("backup status tank --json").as_array().unwrap().len(), 0);
    assert_eq!(read(&vault.join("current/a")), "two");
    world.ok("umount mount");
    world.ok("backup verify vault");
}

/// P-106.
#[test]
fn what_cannot_be_copied_is_named_and_what_is_encrypted_stays_within() {
    if !can_mount("what_cannot_be_copied_is_named_and_what_is_encrypted_stays_within") {
        return;
    }
    let world = World::with_pool();
    fs::write(world.path("key"), [9; 32]).unwrap();
    fs::set_permissions(world.path("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    world.ok("mount tank mount");
    let (mount, vault) = (world.mountpoint(), world.path("vault"));
    fs::create_dir(&vault).unwrap();
    world.ok("key create tank family --key-file key");
    fs::create_dir(mount.join("private")).unwrap();
    world.ok("policy set mount/private encrypt=yes");
    fs::write(mount.join("private/diary"), "secret").unwrap();
    fs::write(mount.join("plain"), "open").unwrap();
    // Rules and classes choose too.
    world.ok("class create tank worth backup=yes");
    world.ok("policy set mount rules=*.worth:class=worth;*.too:backup=yes");
    for name in ["x.worth", "y.too", "z"] {
        fs::write(mount.join(name), name).unwrap();
    }
    assert_eq!(world.ok("find backup=yes mount").lines().count(), 2);
    world.ok("policy lock mount backup=no");
    assert_eq!(world.ok("find backup=yes mount").lines().count(), 0);
    world.ok("policy unlock mount backup");
    world.ok("policy set mount backup=yes");
    world.ok("backup add tank usb dir:vault");
    let said = world.run("backup run tank usb --wait");
    assert!(said.code == 3 && said.out.contains("/private/diary: it is encrypted"), "{}{}", said.out, said.err);
    assert_eq!(read(&vault.join("current/plain")), "open");
    assert!(!vault.join("current/private").exists());
    world.ok("umount mount");
}

/// P-104: directories, symbolic links and extended attributes.
#[test]
fn links_directories_and_attributes_come_back_too() {
    if !can_mount("links_directories_and_attributes_come_back_too") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let (mount, vault) = (world.mountpoint(), world.path("vault"));
    fs::create_dir(&vault).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let attribute = |path: &Path| {
        let mut value = [0; 64];
        rustix::fs::lgetxattr(path, "user.colour", &mut value[..]).map(|length| value[..length].to_vec())
    };
    let set = |path: &Path, value: &[u8]| {
        rustix::fs::lsetxattr(path, "user.colour", value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    fs::create_dir_all(mount.join("docs/empty")).unwrap();
    fs::write(mount.join("docs/a"), "one").unwrap();
    std::os::unix::fs::symlink("../nowhere", mount.join("docs/link")).unwrap();
    std::os::unix::fs::chown(mount.join("docs/a"), Some(1234), Some(1235)).unwrap();
    fs::set_permissions(mount.join("docs/a"), fs::Permissions::from_mode(0o4755)).unwrap();
    set(&mount.join("docs/a"), b"blue");
    set(&mount.join("docs/empty"), b"red");
    fs::set_permissions(mount.join("docs/empty"), fs::Permissions::from_mode(0o1751)).unwrap();
    // All of the mount: its top is chosen too.
    world.ok("policy set mount backup=yes");
    world.ok("backup add tank usb dir:vault,keep=2");
    std::thread::sleep(Duration::from_secs(3));
    let said = world.ok("backup run tank usb --wait");
    assert!(said.contains("2 files, 2 copied"), "a file and a link: {said}");
    assert_eq!(fs::read_link(vault.join("current/docs/link")).unwrap(), Path::new("../nowhere"));
    assert_eq!(attribute(&vault.join("current/docs/a")).unwrap(), b"blue", "the copy has it too");
    assert!(world.ok("backup run tank usb --wait").contains(" 0 copied"));
    world.ok("backup verify tank usb");
    // What gives rights stays away, and that is told.
    fs::create_dir(world.path("plain")).unwrap();
    fs::set_permissions(world.path("plain"), fs::Permissions::from_mode(0o700)).unwrap();
    let said = world.ok("backup restore vault --to plain");
    assert_eq!(mode(&world.path("plain")), 0o700, "the target's own mode stays");
    assert!(said.contains("--preserve owners") && said.contains("of 1 file (--preserve setid)"), "{said}");
    let plain = fs::symlink_metadata(world.path("plain/docs/a")).unwrap();
    assert_eq!((plain.uid(), plain.mode() & 0o7777), (rustix::process::geteuid().as_raw(), 0o755));
    let check = |to: &str, colour: &[u8]| {
        let said = world.ok(&format!("backup restore vault --to {to} --preserve owners"));
        assert!(!said.contains("--preserve owners") && said.contains("--preserve setid"), "{said}");
        let docs = world.path(to).join("docs");
        assert_eq!(attribute(&docs.join("a")).unwrap(), colour);
        assert_eq!(attribute(&docs.join("empty")).unwrap(), b"red");
        assert!(rustix::fs::lgetxattr(docs.join("a"), "user.stere.backup", &mut [0; 64][..]).is_err());
        assert_eq!(mode(&docs.join("empty")), 0o1751);
        let time = |path: &Path| fs::symlink_metadata(path).unwrap().mtime();
        assert_eq!(time(&docs.join("empty")), time(&mount.join("docs/empty")));
        assert_eq!(fs::symlink_metadata(docs.join("a")).unwrap().uid(), 1234);
        assert_eq!(fs::read_link(docs.join("link")).unwrap(), Path::new("../nowhere"));
    };
    check("out", b"blue");
    // Only the attribute changes: nothing is copied, and it is known.
    set(&mount.join("docs/a"), b"green");
    assert!(world.ok("backup run tank usb --wait").contains(" 0 copied"));
    check("again", b"green");
    // A link gives way to a directory.
    fs::remove_file(mount.join("docs/link")).unwrap();
    fs::create_dir(mount.join("docs/link")).unwrap();
    fs::write(mount.join("docs/link/within"), "x").unwrap();
    assert!(world.ok("backup run tank usb --wait").contains(" 1 copied"));
    assert_eq!(read(&vault.join("current/docs/link/within")), "x");
    world.ok("backup verify tank usb");
    world.ok("umount mount");
    world.ok("check tank");
}
