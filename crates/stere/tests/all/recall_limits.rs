//! P-139 with the real binary and a real mount: programs that are refused what is on volumes only, and turns among users. Needs root and
//! /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{NOBODY, World, can_mount};

const BYTES: usize = 30_000;

fn content(number: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 64 * 7 + at) as u8 ^ number).collect()
}

/// Files on volume `near`, which is there, and on `far`, which is away; none of them on devices.
fn world(options: &str) -> World {
    let world = World::new();
    world.ok("create tank a.img,size=192M");
    world.ok("mount tank mount");
    for name in ["near", "far"] {
        fs::create_dir(world.path(&format!("volume-{name}"))).unwrap();
        world.ok(&format!("device add tank dir:volume-{name},name={name},metadata=no"));
        let directory = world.mountpoint().join(name);
        fs::create_dir(&directory).unwrap();
        (0..8).for_each(|number| fs::write(directory.join(number.to_string()), content(number)).unwrap());
        world.ok(&format!("tier archive mount/{name} --to {name} --wait"));
        world.ok(&format!("tier release mount/{name}"));
    }
    fs::write(world.mountpoint().join("local"), content(9)).unwrap();
    world.ok("umount mount");
    fs::rename(world.path("volume-far"), world.path("away")).unwrap();
    world.ok(&format!("mount tank mount -o {options}"));
    // Others get to the mount through it.
    fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
    world
}

fn reader(world: &World, path: &str, user: u32) -> Child {
    let mut command = Command::new("dd");
    command.arg(format!("if=mount/{path}")).args(["of=/dev/null", "bs=64k"]).current_dir(&world.folder);
    command.uid(user).stderr(Stdio::null()).spawn().unwrap()
}

fn ends(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("a reader that may go on does not");
}

fn is_waiting(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

/// Waits until so many reads are under way at volumes, and wait for their turn.
fn until_reads(world: &World, under_way: u64, waiting: u64) {
    let start = Instant::now();
    loop {
        let queue = world.json("tier queue tank --json");
        if (queue["reads_under_way"].as_u64(), queue["reads_waiting"].as_u64()) == (Some(under_way), Some(waiting)) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{queue}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn fetches(world: &World) -> u64 {
    world.json("tier queue tank --json")["fetches"].as_u64().unwrap()
}

/// A program that is named gets EPERM at once, also for what is away, and starts nothing; what is on devices it reads; others read all.
#[test]
fn programs_that_are_named_start_no_recall() {
    if !can_mount("programs_that_are_named_start_no_recall") {
        return;
    }
    let world = world("recall_deny=head:updatedb");
    let head = |path: &str| {
        let mut command = Command::new("head");
        command.args(["-c", "20000", &format!("mount/{path}")]).current_dir(&world.folder).output().unwrap()
    };
    for path in ["near/1", "far/1"] {
        let refused = head(path);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("not permitted"), "{path}: {said}");
    }
    assert_eq!(fetches(&world), 0);
    assert_eq!(head("local").stdout, content(9)[..20_000]);
    assert_eq!(fs::read(world.mountpoint().join("near/1")).unwrap(), content(1));
    assert!(fetches(&world) > 0);
    world.ok("umount mount");
}

/// One user has so many reads at volumes at a time; others go on, nothing local waits, and who is killed gives his turn to the next.
#[test]
fn a_user_beyond_his_turns_keeps_nobody_waiting() {
    if !can_mount("a_user_beyond_his_turns_keeps_nobody_waiting") {
        return;
    }
    let world = world("recall_user=1");
    let mut first = reader(&world, "far/1", NOBODY);
    until_reads(&world, 1, 0);
    let mut near: Vec<Child> = (2..4).map(|number| reader(&world, &format!("near/{number}"), NOBODY)).collect();
    let mut given_up = reader(&world, "far/4", NOBODY);
    until_reads(&world, 1, 3);
    // Others, and what is on devices, go on; in all that time the user's other reads wait.
    assert!(ends(&mut reader(&world, "near/5", NOBODY + 1)));
    assert!(ends(&mut reader(&world, "near/6", 0)));
    assert!(ends(&mut reader(&world, "local", NOBODY)));
    assert!(is_waiting(&mut first) && near.iter_mut().all(is_waiting) && is_waiting(&mut given_up));
    // Killed while it waits for its turn.
    given_up.kill().unwrap();
    given_up.wait().unwrap();
    until_reads(&world, 1, 2);
    assert!(is_waiting(&mut first) && near.iter_mut().all(is_waiting));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(near.iter_mut().all(ends), "their turn has come");
    world.ok("umount mount");
}
