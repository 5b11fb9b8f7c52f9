//! Several machines that use one pool at once, with the real binary (P-238, P-239, P-244): one owns it, the others mount through it, and one
//! that stands by takes over while their programs go on. Needs root and /dev/fuse. Read next: `support/site.rs`.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::site::{Site, Synced, owner_process, owns, signal, take_away};
use crate::support::World;
use crate::support::tier::{content, until};

/// Five seconds of silence, three of grace, and what a busy machine adds.
const CALL_MAX: Duration = Duration::from_secs(30);

#[test]
fn what_one_machine_writes_the_others_see() {
    let Some(site) = Site::new("what_one_machine_writes_the_others_see", 3, 3) else { return };
    let [owner, one, other] = &site.machines[..] else { panic!("three machines") };
    owner.ok("mount lab mount");
    one.ok("mount lab mount");
    other.ok("mount lab mount");
    let all = [owner, one, other];
    for (number, world) in all.iter().enumerate() {
        fs::create_dir(world.mountpoint().join(format!("of{number}"))).unwrap();
        fs::write(world.mountpoint().join(format!("of{number}/file")), content(40 + number)).unwrap();
    }
    for world in all {
        for number in 0..3 {
            assert!(fs::read(world.mountpoint().join(format!("of{number}/file"))).unwrap() == content(40 + number));
        }
    }
    // Close to open, again and again, in turns.
    for round in 0..30 {
        fs::write(all[round % 3].mountpoint().join("turns"), format!("round {round}")).unwrap();
        for world in all {
            assert_eq!(fs::read_to_string(world.mountpoint().join("turns")).unwrap(), format!("round {round}"));
        }
    }
    // Appends of all go one behind the other.
    let lines = |number: usize| {
        let point = all[number].mountpoint();
        move || {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(point.join("journal")).unwrap();
            for line in 0..200 {
                // In one piece: only that is one append.
                file.write_all(format!("{number} {line}\n").as_bytes()).unwrap();
            }
        }
    };
    let writers: Vec<_> = (0..3).map(|number| std::thread::spawn(lines(number))).collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let journal = fs::read_to_string(owner.mountpoint().join("journal")).unwrap();
    assert_eq!(journal.lines().count(), 600);
    for number in 0..3 {
        let of_one: Vec<&str> = journal.lines().filter(|line| line.starts_with(&format!("{number} "))).collect();
        let expected: Vec<String> = (0..200).map(|line| format!("{number} {line}")).collect();
        assert_eq!(of_one, expected);
    }
    // A lock holds on all machines.
    let lock = |world: &World| fs::File::create(world.mountpoint().join("lock")).unwrap();
    let (first, second) = (lock(one), lock(other));
    // SAFETY: locks of files that this test has open.
    let take = |file: &fs::File| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    assert_eq!((take(&first), take(&second)), (0, -1));
    drop(first);
    // The kernel tells of a close when it gets to it.
    until("the lock", || take(&second) == 0);
    drop(second);
    // So does one of fcntl, which ends with the first close of the file by its process.
    let (first, second, again) = (lock(one), lock(other), lock(one));
    assert!(has_locked(&first) && !has_locked(&second));
    drop(again);
    assert!(has_locked(&second), "a close that ends locks is waited for");
    drop((first, second));
    // Names, attributes, and a file that is removed while it is open elsewhere.
    let mut open = fs::File::open(other.mountpoint().join("of1/file")).unwrap();
    fs::remove_file(one.mountpoint().join("of1/file")).unwrap();
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == content(41), "a removed file lives until the last machine closes it");
    drop(open);
    fs::rename(other.mountpoint().join("of2"), other.mountpoint().join("moved")).unwrap();
    assert!(owner.mountpoint().join("moved/file").exists() && !one.mountpoint().join("of2").exists());
    one.refused("umount nowhere", 1, &[]);
    one.ok("umount mount");
    other.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn programs_go_on_when_the_owner_is_killed() {
    let Some(site) = Site::new("programs_go_on_when_the_owner_is_killed", 3, 3) else { return };
    let [owner, standby, client] = &site.machines[..] else { panic!("three machines") };
    owner.ok("mount lab mount --standby");
    until("an owner", || owns(owner));
    standby.ok("mount lab mount --standby");
    client.ok("mount lab mount -o nostandby");
    let mut synced = Synced::default();
    for _ in 0..20 {
        synced.write(client, "a").unwrap();
    }
    // What is open stays open, and what was written and not synced is written again.
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(true);
    let mut open = options.open(client.mountpoint().join("open")).unwrap();
    open.write_all(&content(45)).unwrap();
    let removed = client.mountpoint().join("a0");
    for round in 0..2 {
        let process = until_some("an owner", || owner_of(&[owner, standby]));
        signal(process, libc::SIGKILL);
        let start = Instant::now();
        synced.write(client, "b").unwrap();
        let waited = start.elapsed();
        eprintln!("round {round}: the first call after the kill took {waited:?}");
        assert!(waited < CALL_MAX, "{waited:?}");
        for _ in 0..10 {
            synced.write(client, "b").unwrap();
        }
    }
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == content(45), "an unsynced write came back");
    open.sync_all().unwrap();
    drop(open);
    assert!(removed.exists());
    synced.assert_right(client);
    synced.assert_right(owner);
    synced.assert_right(standby);
    client.ok("umount mount");
    for machine in [owner, standby] {
        machine.ok("umount mount");
        assert_eq!(owner_process(machine), None, "an owner's process ends with its mount");
    }
    owner.ok("check lab");
}

/// Locks the whole file by fcntl, if nobody else has.
fn has_locked(file: &fs::File) -> bool {
    // SAFETY: all zeros are a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: a lock of a file that this test has open.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) == 0 }
}

/// P-244: nobody has to be asked to stand by.
#[test]
fn who_mounts_later_stands_by_unless_told_otherwise() {
    let Some(site) = Site::new("who_mounts_later_stands_by_unless_told_otherwise", 2, 3) else { return };
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    // One that never owns it waits for somebody who does.
    client.ok("mount lab mount -o nostandby");
    let (point, begun) = (client.mountpoint(), Instant::now());
    let waits = std::thread::spawn(move || fs::create_dir(point.join("made")).map(|()| begun.elapsed()));
    std::thread::sleep(Duration::from_secs(3));
    assert!(!waits.is_finished() && owner_process(client).is_none());
    first.ok("mount lab mount");
    assert_eq!(owner_process(first), None, "the first one has the pool itself");
    assert!(waits.join().unwrap().unwrap() >= Duration::from_secs(3));
    second.ok("mount lab mount");
    let mut synced = Synced::default();
    (0..5).for_each(|_| synced.write(client, "a").unwrap());
    signal(first.daemon(), libc::SIGKILL);
    let start = Instant::now();
    synced.write(client, "b").unwrap();
    assert!(start.elapsed() < CALL_MAX, "{:?}", start.elapsed());
    assert!(owner_process(second).is_some() && owner_process(client).is_none());
    take_away(first);
    first.ok("mount lab mount");
    [client, first, second].iter().for_each(|machine| synced.assert_right(machine));
    for machine in [client, first, second] {
        machine.ok("umount mount");
    }
    first.ok("check lab");
}

/// The process that owns the pool, where one of these machines has it.
fn owner_of(machines: &[&World]) -> Option<i32> {
    machines.iter().find(|machine| owns(machine)).and_then(|machine| owner_process(machine))
}

fn until_some<T>(what: &str, find: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_owner_that_closes_in_order_is_followed_at_once() {
    let Some(site) = Site::new("an_owner_that_closes_in_order_is_followed_at_once", 3, 2) else { return };
    let [first, second] = &site.machines[..] else { panic!("two machines") };
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    second.ok("mount lab mount --standby");
    let mut synced = Synced::default();
    synced.write(second, "a").unwrap();
    let status = first.json("status lab --json");
    assert_eq!(status["state"], "healthy");
    second.ok("scrub start lab");
    first.ok("umount mount");
    let start = Instant::now();
    synced.write(second, "b").unwrap();
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    until("an owner on the second machine", || owns(second));
    synced.assert_right(second);
    second.ok("umount mount");
    second.ok("check lab");
    take_away(first);
}
