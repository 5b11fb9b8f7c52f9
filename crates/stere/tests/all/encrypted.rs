//! Encryption with the real binary on a real mount (P-53, P-56): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;

use support::{World, can_mount};

const NO_KEY: i32 = libc::ENOKEY;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn names(path: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

fn with_keys() -> World {
    let world = World::with_pool();
    fs::write(world.path("pass"), "open sesame\n").unwrap();
    fs::write(world.path("pass2"), "another one").unwrap();
    fs::write(world.path("key"), (0..32).map(|byte| byte * 7 + 1).collect::<Vec<u8>>()).unwrap();
    world.ok("mount tank mount");
    world
}

#[test]
fn an_encrypted_directory_is_locked_and_unlocked() {
    if !can_mount("an_encrypted_directory_is_locked_and_unlocked") {
        return;
    }
    let world = with_keys();
    let mount = world.mountpoint();
    let vault = mount.join("vault");
    fs::create_dir(&vault).unwrap();
    world.refused("policy set mount/vault encrypt=yes", 1, &["stere key create"]);
    world.ok("key create tank family --passphrase-file pass");
    world.refused("key create tank family --passphrase-file pass", 1, &["exists"]);
    world.ok("policy set mount/vault encrypt=yes");
    let content = "TOP-SECRET content, which nobody else may read. ".repeat(20_000);
    fs::create_dir(vault.join("hidden-directory")).unwrap();
    fs::write(vault.join("hidden-directory/hidden-name"), &content).unwrap();
    std::os::unix::fs::symlink("hidden-target", vault.join("hidden-link")).unwrap();
    fs::write(mount.join("visible-name"), "VISIBLE content").unwrap();
    let mut open = fs::File::open(vault.join("hidden-directory/hidden-name")).unwrap();
    let mut bytes = String::new();
    open.read_to_string(&mut bytes).unwrap();
    assert!(bytes == content);
    world.ok("flush mount --wait");
    let keys = world.json("key list tank --json");
    assert_eq!((keys[0]["state"].as_str(), keys[0]["is_default"].as_bool()), (Some("unlocked"), Some(true)));
    assert!(world.ok("policy get mount/vault/hidden-directory").contains("effective.encrypt=yes"));

    world.ok("key lock tank");
    assert_eq!(world.json("key list tank --json")[0]["state"], "locked");
    // Not from the kernel's memory either: by name, through what is open, in lists.
    assert_eq!(errno(fs::read(vault.join("hidden-directory/hidden-name"))), NO_KEY);
    assert_eq!(errno(open.read_at(&mut [0; 100], 0)), NO_KEY);
    assert_eq!(errno(fs::write(vault.join("new"), "x")), NO_KEY);
    assert_eq!(errno(fs::read_link(vault.join("hidden-link"))), NO_KEY);
    assert!(names(&vault).iter().all(|name| name.starts_with("locked-")), "{:?}", names(&vault));
    assert_eq!(names(&vault).len(), 2);
    assert_eq!(fs::read(mount.join("visible-name")).unwrap(), b"VISIBLE content");
    fs::write(world.path("wrong"), "open sesam").unwrap();
    world.refused("key unlock tank --passphrase-file wrong", 1, &["does not open the key 'family'"]);
    world.refused("key unlock tank --key-file key", 1, &["no key file opens the key 'family'"]);
    world.ok("key unlock tank --passphrase-file pass");
    assert_eq!(names(&vault), ["hidden-directory", "hidden-link"]);
    assert!(fs::read_to_string(vault.join("hidden-directory/hidden-name")).unwrap() == content);
    assert_eq!(fs::read_link(vault.join("hidden-link")).unwrap(), std::path::Path::new("hidden-target"));
    assert!(open.read_at(&mut [0; 100], 0).is_ok());
    drop(open);

    // Other secrets, and a mount that unlocks with one of them.
    world.ok("key add tank family --key-file key");
    world.ok("key change tank family --passphrase-file pass --new-passphrase-file pass2");
    world.refused("key unlock tank family --passphrase-file pass", 1, &["does not open"]);
    world.ok("umount mount");
    for image in ["a.img", "b.img"] {
        let bytes = fs::read(world.path(image)).unwrap();
        let is_there = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(is_there(b"visible-name") || image == "b.img", "the search finds what is not encrypted");
        for hidden in [&b"TOP-SECRET"[..], b"hidden-name", b"hidden-directory", b"hidden-target", b"open sesame"] {
            assert!(!is_there(hidden), "{image} has {} in the clear", String::from_utf8_lossy(hidden));
        }
    }
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_eq!(errno(fs::read_dir(vault.join("hidden-directory")).map(drop)), NO_KEY);
    world.ok("umount mount");
    world.ok(&format!("mount tank mount -o keyfile={}", world.path("key").display()));
    assert!(fs::read_to_string(vault.join("hidden-directory/hidden-name")).unwrap() == content);
    world.ok("key lock tank family");
    world.ok("key unlock tank family --passphrase-file pass2");
    assert!(fs::read_to_string(vault.join("hidden-directory/hidden-name")).unwrap() == content);
    // All of it goes without the key.
    world.ok("key lock tank");
    fs::remove_dir_all(&vault).unwrap();
    assert_eq!(names(&mount), ["visible-name"]);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn existing_files_are_encrypted_with_a_key_of_their_own_and_back() {
    if !can_mount("existing_files_are_encrypted_with_a_key_of_their_own_and_back") {
        return;
    }
    let world = with_keys();
    let photos = world.mountpoint().join("photos");
    fs::create_dir(&photos).unwrap();
    for number in 0..40 {
        fs::write(photos.join(format!("photo {number}.jpg")), vec![number as u8; 100_000 + number * 3000]).unwrap();
    }
    world.ok("key create tank family --key-file key");
    world.ok("key create tank photos --passphrase-file pass");
    for setting in ["photos", "no", "yes"] {
        world.ok(&format!("policy set mount/photos encrypt={setting} --wait"));
        let facts = world.json("policy get mount/photos --json");
        assert_eq!((facts["encrypt"].as_str(), facts["state"].as_str()), (Some(setting), Some("compliant")));
        for number in 0..40 {
            let bytes = fs::read(photos.join(format!("photo {number}.jpg"))).unwrap();
            assert!(bytes == vec![number as u8; 100_000 + number * 3000], "{setting} {number}");
        }
        world.ok("key lock tank photos");
        let is_locked = fs::read(photos.join("photo 3.jpg")).is_err();
        assert_eq!(is_locked, setting == "photos");
        world.ok("key unlock tank photos --passphrase-file pass");
    }
    world.refused("key remove tank family", 1, &["40 names", "--yes"]);
    world.ok("key remove tank photos");
    world.ok("key remove tank family --yes");
    assert_eq!(errno(fs::read(photos.join("photo 3.jpg"))), NO_KEY);
    fs::remove_dir_all(&photos).unwrap();
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// A pool with an encrypted directory, unmounted, and what was in it.
fn with_secrets() -> (World, Vec<u8>) {
    let world = with_keys();
    let vault = world.mountpoint().join("vault");
    fs::create_dir(&vault).unwrap();
    world.ok("key create tank family --passphrase-file pass");
    world.ok("key add tank family --key-file key");
    world.ok("policy set mount/vault encrypt=yes compress=zstd");
    fs::create_dir(vault.join("inner")).unwrap();
    let content: Vec<u8> = (0..500_000u32).flat_map(|at| (at / 7).to_le_bytes()).collect();
    fs::write(vault.join("inner/hidden name"), &content).unwrap();
    fs::write(vault.join("short"), "a few words").unwrap();
    std::os::unix::fs::symlink("inner/hidden name", vault.join("link")).unwrap();
    fs::write(world.mountpoint().join("clear"), "not encrypted").unwrap();
    (world, content)
}

fn assert_rescued(world: &World, to: &str, content: &[u8]) {
    let vault = world.path(to).join("vault");
    assert_eq!(names(&vault), ["inner", "link", "short"]);
    assert!(fs::read(vault.join("inner/hidden name")).unwrap() == content);
    assert_eq!(fs::read(vault.join("short")).unwrap(), b"a few words");
    assert_eq!(fs::read_link(vault.join("link")).unwrap(), std::path::Path::new("inner/hidden name"));
    assert_eq!(fs::read(world.path(to).join("clear")).unwrap(), b"not encrypted");
}

/// P-40: with the passphrase or the key file, what is encrypted is rescued like anything else.
#[test]
fn a_rescue_opens_what_is_encrypted() {
    if !can_mount("a_rescue_opens_what_is_encrypted") {
        return;
    }
    let (world, content) = with_secrets();
    world.ok("umount mount");
    world.ok("rescue a.img b.img --to by-passphrase --passphrase-file pass");
    assert_rescued(&world, "by-passphrase", &content);
    world.ok("rescue tank --to by-file --key-file key");
    assert_rescued(&world, "by-file", &content);
    // A wrong one is told before anything is copied.
    fs::write(world.path("wrong"), "open sesam").unwrap();
    world.refused(
        "rescue tank --to out --passphrase-file wrong",
        1,
        &["does not open the key 'family'", "leave it out"],
    );
    world.refused("rescue tank --to out --key-file wrong", 1, &["32 bytes"]);
    fs::write(world.path("wrong-key"), [8; 32]).unwrap();
    world.refused("rescue tank --to out --key-file key --key-file wrong-key", 1, &["does not open the key 'family'"]);
    // Without one the rest is copied.
    let said = world.run("rescue tank --to without");
    assert_eq!(said.code, 4, "{}", said.out);
    assert!(said.out.contains("their key was not given"), "{}", said.out);
    assert_eq!(fs::read(world.path("without/clear")).unwrap(), b"not encrypted");
    assert!(names(&world.path("without/vault")).iter().all(|name| name.starts_with("locked-")));
    // Damage of all superblocks, and of one device, changes nothing.
    for image in ["a.img", "b.img"] {
        let file = fs::OpenOptions::new().write(true).open(world.path(image)).unwrap();
        let size = file.metadata().unwrap().len();
        for offset in [0, 64 << 10, size - (128 << 10), size - (64 << 10)] {
            file.write_all_at(&[0x5a; 4096], offset).unwrap();
        }
    }
    let said = world.run("rescue b.img --to damaged --passphrase-file pass");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_rescued(&world, "damaged", &content);
    // A pool that has no key.
    let other = World::with_pool();
    fs::write(other.path("pass"), "open sesame").unwrap();
    other.refused("rescue tank --to out --passphrase-file pass", 1, &["no record of a key"]);
}

/// P-40, P-73: the same from a volume alone.
#[test]
fn a_rescue_from_a_volume_opens_what_is_encrypted() {
    if !can_mount("a_rescue_from_a_volume_opens_what_is_encrypted") {
        return;
    }
    let (world, content) = with_secrets();
    fs::create_dir(world.path("volume")).unwrap();
    let place = format!("dir:{}", world.path("volume").display());
    world.ok(&format!("device add tank {place},name=cold"));
    world.ok("tier archive mount --wait");
    world.ok("umount mount");
    world.ok(&format!("rescue {place} --to out --key-file key"));
    assert_rescued(&world, "out", &content);
    world.refused(&format!("rescue {place} --to wrong --key-file pass"), 1, &["32 bytes"]);
    // Names as the catalogue has them; contents all the same.
    world.run(&format!("rescue {place} --to archived --as-archived --passphrase-file pass"));
    let mut found = Vec::new();
    let mut folders = vec![world.path("archived")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(fs::read(entry.path()).unwrap()),
            }
        }
    }
    assert!(found.contains(&content), "the content is there, under whatever name");
}

/// P-204: a daemon that holds keys leaves no core dump, and keys are in memory that is locked and in no dump, until they are locked.
#[test]
fn keys_are_in_locked_memory_and_in_no_dump() {
    if !can_mount("keys_are_in_locked_memory_and_in_no_dump") {
        return;
    }
    let world = with_keys();
    let daemon = world.daemon();
    let locked_pages = || {
        let maps = fs::read_to_string(format!("/proc/{daemon}/smaps")).unwrap();
        let flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags: "));
        let has = |flags: &str, flag: &str| flags.split(' ').any(|one| one == flag);
        flags.filter(|flags| has(flags, "lo") && has(flags, "dd")).count()
    };
    assert_eq!(locked_pages(), 0, "there is no key yet");
    world.ok("key create tank main --key-file key");
    assert!(locked_pages() > 0, "the key is locked");
    let limits = fs::read_to_string(format!("/proc/{daemon}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    world.ok("policy set mount encrypt=yes");
    fs::write(world.mountpoint().join("secret"), vec![7; 100_000]).unwrap();
    world.ok("key lock tank main");
    assert_eq!(errno(fs::read(world.mountpoint().join("secret"))), NO_KEY);
    assert_eq!(locked_pages(), 0, "the key is let go");
    world.ok("key unlock tank main --key-file key");
    assert!(locked_pages() > 0);
    assert_eq!(fs::read(world.mountpoint().join("secret")).unwrap(), vec![7; 100_000]);
}
