//! Locks of the administrator and named owners with the real binary on a real mount (P-58, P-52): needs root and /dev/fuse, and
//! says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use support::{NOBODY, World, can_mount};

/// What an ordinary user is told who tries this.
fn refused_for_nobody(world: &World, line: &str, words: &[&str]) {
    let output = world.command_of_nobody(line).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "stere {line}: {told}");
    words.iter().for_each(|word| assert!(told.contains(word), "stere {line} says '{told}', without '{word}'"));
}

#[test]
fn locks_are_set_shown_and_lifted_by_root_alone() {
    if !can_mount("locks_are_set_shown_and_lifted_by_root_alone") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount -o allow_other");
    let (home, file) = (world.mountpoint().join("home"), world.mountpoint().join("home/a"));
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    world.ok("policy set mount/home/a copies=1 --wait");
    assert_eq!(world.json("policy get mount/home/a --json")["survives"], "0");
    refused_for_nobody(&world, "policy lock mount/home/a copies=1", &["run this as root"]);
    world.refused("policy lock mount/home rules=*:copies=2", 2, &["'rules' cannot be locked"]);
    world.refused("policy lock mount/home copies=99", 1, &["1 to 32"]);
    world.ok("policy lock mount/home copies=2 --wait");
    let facts = world.json("policy get mount/home/a --json");
    assert_eq!(
        (&facts["survives"], &facts["state"], &facts["copies"]),
        (&"1".into(), &"compliant".into(), &"1".into())
    );
    assert!(world.ok("policy explain mount/home/a").contains("copies is 2: locked by the administrator at /home"));
    assert_eq!(world.json("policy get mount/home --json")["lock.copies"], "2");
    let told = ["contradicts a lock", "copies is 2: locked by the administrator at /home"];
    refused_for_nobody(&world, "policy set mount/home/a copies=3", &told);
    refused_for_nobody(&world, "policy set mount/home/a redundancy=0", &told);
    refused_for_nobody(&world, "policy unlock mount/home copies", &["run this as root"]);
    world.refused("policy set mount/home rules=*.tmp:copies=1", 1, &["contradicts a lock"]);
    world.ok("policy set mount/home rules=*.tmp:compress=lz4");
    world.ok("umount mount");
    world.ok("mount tank mount -o allow_other");
    assert!(world.ok("policy explain mount/home/a").contains("locked by the administrator at /home"));
    world.ok("policy unlock mount/home copies");
    world.ok("policy apply mount/home --wait");
    assert_eq!(world.json("policy get mount/home/a --json")["survives"], "0", "what was set below holds again");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn rules_name_owners_as_the_machine_does() {
    if !can_mount("rules_name_owners_as_the_machine_does") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    world.refused("policy set mount rules=owner=nosuchuser:copies=1", 1, &["column 1", "no user 'nosuchuser'"]);
    world.ok("policy set mount rules=owner=nobody:copies=1;group!=root:compress=lz4");
    let file = world.mountpoint().join("a");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(world.mountpoint().join("b"), b"root's").unwrap();
    world.ok("umount mount");
    world.ok("mount tank mount");
    world.ok("policy apply mount --wait");
    let facts = world.json("policy get mount/a --json");
    assert_eq!((&facts["effective.copies"], &facts["effective.compress"]), (&"1".into(), &"lz4".into()));
    let facts = world.json("policy get mount/b --json");
    assert_eq!((&facts["effective.copies"], &facts["effective.compress"]), (&"2".into(), &"none".into()));
    world.ok("umount mount");
}

/// P-147: hard links, renames and removals on a mount; what is stored follows, and the pool is right.
#[test]
fn a_file_with_several_names_is_stored_by_the_strictest() {
    if !can_mount("a_file_with_several_names_is_stored_by_the_strictest") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let at = |path: &str| world.mountpoint().join(path);
    for (directory, settings) in [("loose", "copies=1"), ("strict", "class=precious checksum=blake3")] {
        fs::create_dir(at(directory)).unwrap();
        world.ok(&format!("policy set mount/{directory} {settings}"));
    }
    fs::write(at("loose/a"), vec![7; 1 << 20]).unwrap();
    let says = |path: &str, word: &str| world.ok(&format!("policy explain mount/{path}")).contains(word);
    assert!(says("loose/a", "copies is 1: inherited from /loose"));
    fs::hard_link(at("loose/a"), at("strict/b")).unwrap();
    // By whichever name.
    for path in ["loose/a", "strict/b"] {
        assert!(says(path, "copies is 2: inherited from /strict") && says(path, "checksum is blake3"), "{path}");
    }
    let found = || world.ok("find class=precious mount --json").lines().count();
    assert_eq!(found(), 3, "the directory, and the file by both of its names");
    world.ok("umount mount");
    world.ok("mount tank mount");
    fs::rename(at("strict/b"), at("loose/b")).unwrap();
    assert!(says("loose/a", "copies is 1: inherited from /loose") && says("loose/a", "checksum is crc32c"));
    assert_eq!(found(), 1);
    fs::hard_link(at("loose/a"), at("strict/c")).unwrap();
    fs::remove_file(at("strict/c")).unwrap();
    fs::remove_file(at("loose/a")).unwrap();
    world.ok("policy apply mount --wait");
    let facts = world.json("policy get mount/loose/b --json");
    assert_eq!((&facts["survives"], &facts["state"]), (&"0".into(), &"compliant".into()));
    assert!(fs::read(at("loose/b")).unwrap() == [7; 1 << 20]);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

/// P-203: help and errors name every key, with its values.
#[test]
fn help_and_errors_name_every_key() {
    let world = World::new();
    let names = |text: &str, word: &str| text.split([' ', ',', '\n']).any(|one| one == word);
    let (set, lock) = (world.ok("policy set --help"), world.ok("policy lock --help"));
    let class = world.ok("class create --help");
    let unknown = world.run("policy set mount compression=zstd");
    let unlockable = world.run("policy lock mount rules=*:copies=2");
    assert_eq!((unknown.code, unlockable.code), (2, 2));
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in stere_policy::policy_keys() {
        assert!(names(&set, key.word) && one_line(&set).contains(&one_line(key.expected)), "{} in {set}", key.word);
        assert!(names(&unknown.err, key.word), "{} in {}", key.word, unknown.err);
        assert_eq!(names(&unlockable.err, key.word), key.is_lockable, "{} in {}", key.word, unlockable.err);
        assert_eq!(class.contains(&format!("\n  {:<11} ", key.word)), key.is_for_classes, "{} in {class}", key.word);
        assert_eq!(lock.contains(&format!("\n  {:<11} ", key.word)), key.is_lockable, "{} in {lock}", key.word);
    }
}
