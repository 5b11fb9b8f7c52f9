//! What cannot be read is told, stays where it is, and is forgotten once it reads again: with the real binary; needs root and /dev/fuse,
//! and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use support::{World, can_mount};

const FILE_BYTES: usize = 1_500_000;

fn content(number: usize) -> Vec<u8> {
    let mut state = number as u64 | 1 << 40;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..FILE_BYTES).map(|_| next()).collect()
}

fn mount(world: &World, options: &str) {
    let mut command = world.command(&format!("mount tank mount -o {options}"));
    let output = command.env("STERE_TEST_FAULTS", "1").output().unwrap();
    assert!(output.status.code().is_some_and(|code| code != 1), "{}", String::from_utf8_lossy(&output.stderr));
}

fn write_files(world: &World, count: usize) {
    fs::create_dir(world.mountpoint().join("files")).unwrap();
    world.ok("policy set mount/files class=scratch");
    for number in 0..count {
        fs::write(world.mountpoint().join(format!("files/{number}")), content(number)).unwrap();
    }
}

fn wrong_files(world: &World, count: usize) -> usize {
    let is_wrong = |number: &usize| {
        fs::read(world.mountpoint().join(format!("files/{number}"))).ok().is_none_or(|bytes| bytes != content(*number))
    };
    (0..count).filter(is_wrong).count()
}

fn status_code(world: &World) -> Option<i32> {
    world.command("status tank").output().unwrap().status.code()
}

/// P-160: whichever verb takes a device that fails reads: what it does not give stays on it and is named, and when the device reads
/// again nothing is lost, which status says soon.
#[test]
fn whichever_verb_takes_a_failing_device_keeps_what_it_does_not_give() {
    if !can_mount("whichever_verb_takes_a_failing_device_keeps_what_it_does_not_give") {
        return;
    }
    let verbs = ["evacuate tank b --wait", "fail tank b --yes --wait", "replace tank b d.img,size=96M --wait"];
    for verb in verbs.into_iter().chain(["remove tank b --yes"]) {
        let world = World::new();
        world.ok("create tank a.img,size=96M,name=a b.img,size=96M,name=b c.img,size=96M,name=c");
        mount(&world, "wait=0");
        write_files(&world, 12);
        world.ok("umount mount");
        // Without a mount, the command opens the devices itself.
        let is_mounted = !verb.starts_with("remove");
        if is_mounted {
            mount(&world, "wait=0");
        }
        fs::write(world.path("b.img.fail"), "read").unwrap();
        let mut command = world.command(&format!("device {verb}"));
        let output = command.env("STERE_TEST_FAULTS", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(4), "{verb}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("lost: /files/") && said.contains("where"), "{verb}: {said}");
        if is_mounted {
            assert_eq!(status_code(&world), Some(4), "{verb}");
            world.ok("umount mount");
        }
        fs::remove_file(world.path("b.img.fail")).unwrap();
        mount(&world, "wait=0");
        let start = Instant::now();
        while status_code(&world) == Some(4) {
            assert!(start.elapsed() < Duration::from_secs(20), "{verb}: {}", world.run("status tank").out);
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(wrong_files(&world, 12), 0, "{verb}");
        world.ok("umount mount");
        let checked = world.ok("check tank");
        assert!(checked.contains("clean"), "{verb}: {checked}");
    }
}

/// P-160: a device that fails reads is asked to go: what it does not give stays on it, the command names the files and ends with 4, and
/// when the device reads again nothing is lost and it goes.
#[test]
fn a_failing_device_that_is_to_go_keeps_what_it_does_not_give() {
    if !can_mount("a_failing_device_that_is_to_go_keeps_what_it_does_not_give") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M,name=a b.img,size=96M,name=b c.img,size=96M,name=c");
    mount(&world, "wait=0");
    write_files(&world, 12);
    world.ok("umount mount");
    mount(&world, "wait=0");
    fs::write(world.path("b.img.fail"), "read").unwrap();
    let output = world.command("device remove tank b --wait --yes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("lost: /files/"), "{said}");
    assert_eq!(status_code(&world), Some(4));
    let found = world.ok("find state=lost mount");
    assert!(found.contains("/files/"), "{found}");
    fs::remove_file(world.path("b.img.fail")).unwrap();
    world.ok("umount mount");
    mount(&world, "wait=0");
    assert_eq!(wrong_files(&world, 12), 0);
    let start = Instant::now();
    while world.json("status tank --json")["devices"].as_array().unwrap().len() == 3 || status_code(&world) != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(120), "{}", world.run("status tank").out);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(wrong_files(&world, 12), 0);
    world.ok("umount mount");
}

/// P-161: names are damaged on every copy. A scrub ends, and not with 0; `status` tells of it.
#[test]
fn damaged_metadata_is_told_and_holds_no_scrub_up() {
    if !can_mount("damaged_metadata_is_told_and_holds_no_scrub_up") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M,name=a");
    mount(&world, "wait=0");
    fs::create_dir(world.mountpoint().join("names")).unwrap();
    for number in 0..6000 {
        fs::write(world.mountpoint().join(format!("names/a-name-in-a-leaf-{number:05}")), b"").unwrap();
    }
    world.ok("umount mount");
    // One leaf of many, in all its copies: the pool can be mounted, and what lies there is gone.
    let mut image = fs::OpenOptions::new().read(true).write(true).open(world.path("a.img")).unwrap();
    let mut bytes = Vec::new();
    image.read_to_end(&mut bytes).unwrap();
    let name = b"a-name-in-a-leaf-03000";
    let slots = u64::from_le_bytes(bytes[72..80].try_into().unwrap()) as usize;
    let found: Vec<usize> = (slots..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert!(!found.is_empty(), "no node names it");
    for at in found {
        image.seek(SeekFrom::Start(at as u64 / 4096 * 4096)).unwrap();
        image.write_all(&[0x5a; 4096]).unwrap();
    }
    drop(image);
    mount(&world, "wait=0");
    let mut scrub = world.command("scrub start tank --wait");
    let mut scrub = scrub.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let code = loop {
        if let Some(ended) = scrub.try_wait().unwrap() {
            break ended.code();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the scrub does not end: {}", world.run("status tank").out);
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    let status = world.json("status tank --json");
    assert_eq!(status["state"], "lost", "{status}");
    assert!(status["next"].as_str().unwrap().contains("names or other metadata are damaged"), "{status}");
    assert_eq!(status_code(&world), Some(4));
    let _whether_whole = world.run("umount mount");
    assert!(!world.run("check tank").out.contains("clean"));
}

/// P-161: what a scrub could not repair stands in `status`, with its path, before and after a new mount, until the files are gone.
#[test]
fn known_loss_stands_in_status_until_it_is_gone() {
    if !can_mount("known_loss_stands_in_status_until_it_is_gone") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M,name=a");
    mount(&world, "wait=0");
    write_files(&world, 4);
    world.ok("umount mount");
    let wanted = content(2)[8192..8192 + 4096].to_vec();
    let mut image = fs::OpenOptions::new().read(true).write(true).open(world.path("a.img")).unwrap();
    let mut bytes = Vec::new();
    image.read_to_end(&mut bytes).unwrap();
    let at = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(&wanted)).unwrap();
    image.seek(SeekFrom::Start(at as u64)).unwrap();
    image.write_all(&[0x5a; 4096]).unwrap();
    drop(image);
    mount(&world, "wait=0");
    let scrubbed = world.command("scrub start tank --wait").output().unwrap();
    assert_eq!(scrubbed.status.code(), Some(4));
    for _ in 0..2 {
        assert_eq!(status_code(&world), Some(4));
        let status = world.json("status tank --json");
        assert_eq!(status["state"], "lost");
        assert_eq!(status["devices"][0]["state"], "sick");
        assert_eq!(status["lost_files"][0]["path"], "/files/2");
        assert_eq!(world.ok("find state=lost mount").trim(), "mount/files/2");
        world.ok("umount mount");
        mount(&world, "wait=0");
    }
    // P-232: what a name tells the terminal is not done.
    let hostile = world.mountpoint().join("files/2\u{1b}[2Jgone");
    fs::rename(world.mountpoint().join("files/2"), &hostile).unwrap();
    let told = world.run("status tank").out;
    assert!(told.contains("lost: /files/2\\u{1b}[2Jgone, ") && !told.contains('\u{1b}'), "{told}");
    fs::remove_file(hostile).unwrap();
    let start = Instant::now();
    while status_code(&world) != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", world.run("status tank").out);
        std::thread::sleep(Duration::from_millis(200));
    }
    world.ok("umount mount");
}

/// P-161: the state of a file whose only device is away is not that it complies.
#[test]
fn a_file_whose_only_device_is_away_is_lost_for_now() {
    if !can_mount("a_file_whose_only_device_is_away_is_lost_for_now") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M,name=a b.img,size=96M,name=b");
    mount(&world, "wait=0");
    write_files(&world, 8);
    // P-164: files with one copy survive nothing, whatever the pool's default is.
    let status = world.json("status tank --json");
    assert_eq!(status["survives"], 0);
    let survives = |class: &str| {
        let classes = status["classes"].as_array().unwrap();
        classes.iter().find(|one| one["class"] == class).unwrap()["survives"].as_u64()
    };
    assert_eq!((survives("scratch"), survives("normal")), (Some(0), Some(1)));
    world.ok("umount mount");
    fs::rename(world.path("b.img"), world.path("gone")).unwrap();
    mount(&world, "wait=0");
    assert_eq!(status_code(&world), Some(4));
    let lost = world.ok("find state=lost mount").lines().count();
    assert!(lost > 0 && lost < 8, "{lost}");
    assert_eq!(
        world.ok("find state=compliant mount").lines().filter(|line| line.contains("/files/")).count(),
        8 - lost
    );
    world.ok("umount mount");
}
