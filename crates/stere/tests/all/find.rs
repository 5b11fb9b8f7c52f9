//! `stere find` with the real binary on a real mount (P-85): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use support::tier::tiered;
use support::{NOBODY, World, can_mount};

fn find(world: &World, words: &[&str]) -> Output {
    world.command("find").args(words).output().unwrap()
}

fn lines(output: &Output) -> BTreeSet<String> {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

fn found(world: &World, words: &[&str]) -> BTreeSet<String> {
    lines(&find(world, words))
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    words.iter().for_each(|word| assert!(told.contains(word), "says '{}', without '{word}'", told.trim()));
    assert!(output.stdout.is_empty());
}

#[test]
fn what_is_found_is_printed_for_people_and_for_programs() {
    if !can_mount("what_is_found_is_printed_for_people_and_for_programs") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint();
    fs::create_dir_all(top.join("films/old")).unwrap();
    fs::write(top.join("films/new.mkv"), vec![7; 300_000]).unwrap();
    fs::write(top.join("films/old/city.mkv"), vec![7; 100_000]).unwrap();
    fs::hard_link(top.join("films/new.mkv"), top.join("again")).unwrap();
    symlink("films", top.join("link")).unwrap();
    let strange = [&b"li\nne"[..], b"\xff\xfe"];
    strange.iter().for_each(|name| fs::write(top.join(OsStr::from_bytes(name)), b"x").unwrap());
    assert_eq!(found(&world, &["size>150K", "mount"]), set(&["mount/again", "mount/films/new.mkv"]));
    assert_eq!(found(&world, &["size>50K and not depth>0", "mount/films/"]), set(&["mount/films/new.mkv"]));
    assert_eq!(
        found(&world, &["type=d or type=l", "mount"]),
        set(&["mount", "mount/films", "mount/films/old", "mount/link"])
    );
    assert_eq!(found(&world, &["*.mkv", "mount/films/new.mkv"]), set(&["mount/films/new.mkv"]));
    let inside = world.command("find").arg("old/*").current_dir(top.join("films")).output().unwrap();
    assert_eq!(lines(&inside), set(&["./old/city.mkv"]));
    drop(inside);
    let output = find(&world, &["size=1", "mount", "--print0"]);
    let paths: BTreeSet<&[u8]> = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    assert_eq!(paths, BTreeSet::from([&b"mount/li\nne"[..], b"mount/\xff\xfe"]));
    assert_eq!(find(&world, &["type=file", "mount", "--count"]).stdout, b"5\n");
    world.ok("policy set mount/films/old class=precious --wait");
    let output = find(&world, &["city*", "mount", "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = fs::metadata(top.join("films/old/city.mkv")).unwrap();
    assert_eq!(facts["path"], "mount/films/old/city.mkv");
    assert_eq!(
        (facts["inode"].as_u64(), facts["size_bytes"].as_u64(), facts["allocated_bytes"].as_u64()),
        (Some(file.ino()), Some(file.size()), Some(file.blocks() * 512))
    );
    assert_eq!((&facts["class"], &facts["survives"], &facts["mode"]), (&"precious".into(), &1.into(), &"0644".into()));
    assert!(facts["state"].as_str().unwrap().starts_with("impossible"), "{facts}");
    assert_eq!(facts["where"], serde_json::json!(["a", "b"]));
    // What was written and is not on a device yet is known as well.
    let mut open = fs::File::options().append(true).open(top.join("films/old/city.mkv")).unwrap();
    std::io::Write::write_all(&mut open, &vec![7; 100_000]).unwrap();
    assert_eq!(found(&world, &["size=200000", "mount"]), set(&["mount/films/old/city.mkv"]));
    drop(open);
    refused(&find(&world, &["size>1G and\n szie<3", "mount"]), 2, &["line 2, column 2", "no 'szie'"]);
    refused(&find(&world, &["on=c", "mount"]), 2, &["devices: a, b"]);
    refused(&find(&world, &["*", "."]), 1, &["not on a stere mount"]);
    refused(&find(&world, &["*", "mount/none"]), 1, &["mount/none", "look at"]);
    world.ok("umount mount");
}

/// `stere find` by an ordinary user, in a directory that it may be in.
fn by_nobody(world: &World, words: &[&str]) -> Output {
    world.command_of_nobody("find").args(words).output().unwrap()
}

#[test]
fn ordinary_users_find_what_they_could_list() {
    if !can_mount("ordinary_users_find_what_they_could_list") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount -o allow_other");
    let top = world.mountpoint();
    for (directory, mode) in [("open", 0o755), ("search", 0o711), ("read", 0o744), ("closed", 0o700), ("mine", 0o700)] {
        let path = top.join(directory);
        fs::create_dir_all(path.join("deep")).unwrap();
        fs::write(path.join("deep/file"), b"x").unwrap();
        fs::write(path.join("secret"), b"x").unwrap();
        fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(top.join("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
    // A name that may be listed, of a file whose other name may not.
    fs::hard_link(top.join("closed/deep/file"), top.join("open/other")).unwrap();
    let mine =
        ["mount/open/deep/file", "mount/open/other", "mount/open/secret", "mount/mine/deep/file", "mount/mine/secret"];
    assert_eq!(lines(&by_nobody(&world, &["type=file", "mount"])), set(&mine));
    let walked =
        Command::new("find").args(["mount", "-type", "f"]).current_dir(&world.folder).uid(NOBODY).gid(NOBODY).output();
    let walked = String::from_utf8(walked.unwrap().stdout).unwrap();
    // Names in what may be listed and not searched find(1) tells, and nothing else of them.
    let walked = walked.lines().filter(|path| *path != "mount/read/secret").map(str::to_owned);
    assert_eq!(walked.collect::<BTreeSet<_>>(), set(&mine), "find(1) finds the same");
    // Below what may be searched and not listed, one who knows a name goes on from there.
    assert_eq!(lines(&by_nobody(&world, &["type=file", "mount/search"])), set(&[]));
    assert_eq!(lines(&by_nobody(&world, &["type=file", "mount/search/deep"])), set(&["mount/search/deep/file"]));
    refused(&by_nobody(&world, &["type=file", "mount/closed/deep"]), 1, &["Permission denied"]);
    assert_eq!(lines(&by_nobody(&world, &["*", "mount/closed"])), set(&["mount/closed"]));
    // What is written on a file, and how it is stored, is for those who may read it.
    assert_eq!(lines(&by_nobody(&world, &["secret class=normal", "mount"])), set(&[]));
    assert_eq!(found(&world, &["secret class=normal", "mount/open"]), set(&["mount/open/secret"]));
    let facts = by_nobody(&world, &["secret", "mount/open", "--json"]).stdout;
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    assert_eq!((&facts["size_bytes"], facts.get("class")), (&1.into(), None));
    world.ok("umount mount");
    // Nobody gets past a directory above the mount.
    fs::create_dir(world.path("private")).unwrap();
    fs::create_dir(world.path("private/mount")).unwrap();
    world.ok("mount tank private/mount -o allow_other");
    fs::set_permissions(world.path("private"), fs::Permissions::from_mode(0o700)).unwrap();
    refused(&by_nobody(&world, &["*", "private/mount"]), 1, &["Permission denied"]);
    assert!(found(&world, &["secret", "private/mount"]).len() == 5);
    world.ok("umount private/mount");
}

fn size_of(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks()).sum()
}

#[test]
fn searching_recalls_nothing() {
    if !can_mount("searching_recalls_nothing") {
        return;
    }
    let world = tiered("");
    let old = world.mountpoint().join("old");
    fs::create_dir(&old).unwrap();
    for number in 0..20 {
        fs::write(old.join(number.to_string()), vec![number; 100_000]).unwrap();
    }
    fs::write(world.mountpoint().join("hot"), vec![7; 100_000]).unwrap();
    world.ok("policy set mount/old tier=cold --wait");
    world.ok("tier archive mount/old --wait");
    world.ok("tier release mount/old");
    // A file that has data anywhere tells one block.
    assert_eq!(size_of(&old), 20);
    let read = fs::metadata(old.join("1")).unwrap().atime();
    for (search, count) in [
        ("type=file residency=nearline", 20),
        ("tier=cold type=file", 20),
        ("type=file on=cold and not on=a", 20),
        ("type=file residency=online", 1),
        ("type=file tier=none", 1),
        ("size>50K and state=compliant and survives<9 and stored>50K", 21),
    ] {
        assert_eq!(found(&world, &[search, "mount"]).len(), count, "{search}");
    }
    let facts = find(&world, &["type=file", "mount/old", "--json"]);
    assert_eq!(facts.stdout.iter().filter(|byte| **byte == b'\n').count(), 20);
    assert_eq!(size_of(&old), 20, "what was released is still only on the volume");
    assert_eq!(fs::metadata(old.join("1")).unwrap().atime(), read);
    refused(&find(&world, &["tier=warm", "mount"]), 2, &["no medium 'warm'", "cold"]);
    world.ok("umount mount");
}
