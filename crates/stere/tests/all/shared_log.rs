//! Pools whose log is in an engine, with the real binary, real nodes and a real PostgreSQL (P-240 to P-244): what is acknowledged survives its
//! owner, whoever was replaced writes nothing, and an engine that is away is waited for. Each folder with a state of its own is a machine.
//! Needs root and /dev/fuse. Read next: `support/site.rs`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::site::{Site, Synced, is_dead, signal, take_away};
use crate::support::tier::{content, until};
use crate::support::{World, can_mount};

use stere_log_engines::test_engines::Etcd;

/// Five seconds of silence, and what a busy machine adds.
const TAKEOVER_MAX: Duration = Duration::from_secs(30);

fn is_healthy(world: &World) -> bool {
    world.json("status lab --json")["state"] == "healthy"
}

#[test]
fn the_log_in_postgres_survives_its_owner_and_moves() {
    let Some(site) = Site::new("the_log_in_postgres_survives_its_owner_and_moves", 3, 1) else { return };
    let world = &site.machines[0];
    world.ok("mount lab mount");
    let mut synced = Synced::default();
    for _ in 0..20 {
        synced.write(world, "a").unwrap();
    }
    assert!(is_healthy(world));
    signal(world.daemon(), libc::SIGKILL);
    until("the end of the daemon", || world.find_daemon().is_none());
    take_away(world);
    world.ok("mount lab mount");
    synced.assert_right(world);
    synced.write(world, "b").unwrap();
    world.ok("umount mount");
    world.ok("check lab");
    // To the devices, where any machine finds it, and back.
    world.ok("pool move-log lab --log devices");
    world.ok("mount lab mount");
    synced.assert_right(world);
    synced.write(world, "c").unwrap();
    world.ok("umount mount");
    world.refused("pool take lab", 1, &["move-log"]);
    world.refused("mount lab mount --standby", 1, &["move-log"]);
    world.ok(&format!("pool move-log lab --log {}", site.engine.address()));
    world.ok("mount lab mount");
    synced.assert_right(world);
    world.ok("umount mount");
    world.ok("check lab");
}

#[test]
fn the_log_in_etcd_survives_its_owner() {
    if !can_mount("the_log_in_etcd_survives_its_owner") {
        return;
    }
    let Some(engine) = Etcd::start() else { return };
    let world = World::new();
    world.ok(&format!("create lab a.img,size=128M b.img,size=128M --log {}", engine.address()));
    world.ok("mount lab mount");
    let mut synced = Synced::default();
    for _ in 0..20 {
        synced.write(&world, "a").unwrap();
    }
    signal(world.daemon(), libc::SIGKILL);
    until("the end of the daemon", || world.find_daemon().is_none());
    take_away(&world);
    world.ok("mount lab mount");
    synced.assert_right(&world);
    world.ok("umount mount");
    world.ok("check lab");
}

#[test]
fn a_standby_takes_over_when_the_owner_is_killed() {
    let Some(mut site) = Site::new("a_standby_takes_over_when_the_owner_is_killed", 3, 2) else { return };
    site.machines[0].ok("mount lab mount");
    let mut synced = Synced::default();
    synced.write(&site.machines[0], "a").unwrap();
    site.stand_by(1);
    site.mounted(1, TAKEOVER_MAX);
    for _ in 0..30 {
        synced.write(&site.machines[0], "a").unwrap();
    }
    signal(site.machines[0].daemon(), libc::SIGKILL);
    let begun = Instant::now();
    synced.write(&site.machines[1], "b").unwrap();
    let took = begun.elapsed();
    eprintln!("the standby served after {took:?}");
    assert!(took < TAKEOVER_MAX, "{took:?}");
    synced.assert_right(&site.machines[1]);
    for _ in 0..10 {
        synced.write(&site.machines[1], "b").unwrap();
    }
    take_away(&site.machines[0]);
    // The first machine stands by now, and has the pool back when the other closes it.
    site.stand_by(0);
    site.mounted(0, TAKEOVER_MAX);
    synced.assert_right(&site.machines[0]);
    site.machines[1].ok("umount mount");
    let begun = Instant::now();
    synced.write(&site.machines[0], "c").unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "a pool that was closed in order is not watched: {took:?}");
    synced.assert_right(&site.machines[0]);
    site.machines[0].ok("umount mount");
    site.machines[0].ok("check lab");
}

#[test]
fn an_owner_that_stood_still_writes_nothing_when_it_wakes() {
    let Some(mut site) = Site::new("an_owner_that_stood_still_writes_nothing_when_it_wakes", 3, 2) else { return };
    site.machines[0].ok("mount lab mount");
    let mut synced = Synced::default();
    for _ in 0..10 {
        synced.write(&site.machines[0], "a").unwrap();
    }
    // What is under way when it stops is not acknowledged.
    fs::write(site.machines[0].mountpoint().join("unsynced"), vec![7; 3_000_000]).unwrap();
    let old = site.machines[0].daemon();
    // Somebody syncs all the time, so that a commit finds it out, before the next beat. A process of its own: children of this one would
    // close its files, and wait for whoever stands still.
    let busy = site.machines[0].mountpoint().join("busy");
    let mut writer = Command::new("sh");
    writer.args(["-c", "while echo more >> $0 && sync $0; do :; done"]).arg(busy).stderr(Stdio::null());
    let mut writer = writer.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(old, libc::SIGSTOP);
    site.stand_by(1);
    site.mounted(1, TAKEOVER_MAX);
    let begun = Instant::now();
    synced.assert_right(&site.machines[1]);
    eprintln!("the standby served after {:?}", begun.elapsed());
    for _ in 0..20 {
        synced.write(&site.machines[1], "b").unwrap();
    }
    signal(old, libc::SIGCONT);
    until("the end of the owner that was replaced", || site.machines[0].find_daemon().is_none());
    writer.wait().unwrap();
    // Nobody writes below it without knowing.
    assert!(is_dead(&site.machines[0].mountpoint()));
    take_away(&site.machines[0]);
    for _ in 0..20 {
        synced.write(&site.machines[1], "b").unwrap();
    }
    assert!(is_healthy(&site.machines[1]));
    synced.assert_right(&site.machines[1]);
    site.machines[1].ok("umount mount");
    site.machines[1].ok("check lab");
}

#[test]
fn a_pool_is_taken_from_an_owner_that_lives() {
    let Some(site) = Site::new("a_pool_is_taken_from_an_owner_that_lives", 3, 2) else { return };
    let [first, second] = &site.machines[..] else { panic!("two machines") };
    first.ok("mount lab mount");
    let mut synced = Synced::default();
    for _ in 0..10 {
        synced.write(first, "a").unwrap();
    }
    second.ok("pool take lab");
    // It acknowledges nothing more, and ends.
    assert!((0..3).any(|_| synced.write(first, "lost").is_err()), "who was replaced acknowledges nothing");
    until("the end of the owner that was replaced", || first.find_daemon().is_none());
    assert!(is_dead(&first.mountpoint()));
    // Its place is taken away by the next mount on it.
    second.ok("mount lab mount");
    synced.assert_right(second);
    synced.write(second, "b").unwrap();
    // And at once into a mount.
    first.ok("mount lab mount -o take");
    synced.assert_right(first);
    until("the end of the second owner", || second.find_daemon().is_none());
    take_away(second);
    first.ok("umount mount");
    first.ok("check lab");
}

#[test]
fn an_engine_that_is_away_is_waited_for() {
    let Some(site) = Site::new("an_engine_that_is_away_is_waited_for", 2, 1) else { return };
    let world = &site.machines[0];
    world.ok("mount lab mount");
    let mut synced = Synced::default();
    synced.write(world, "a").unwrap();
    site.engine.pause();
    let (point, begun) = (world.mountpoint(), Instant::now());
    let writer = std::thread::spawn(move || {
        let file = fs::File::create(point.join("waits")).unwrap();
        fs::write(point.join("waits"), b"here").unwrap();
        file.sync_all().map(|()| begun.elapsed())
    });
    until("its word about the log", || {
        let status = world.json("status lab --json");
        status["state"] == "degraded" && status["next"].as_str().unwrap_or_default().contains("the log at")
    });
    // Who reads goes on, also what is not in memory.
    assert!(fs::read(world.mountpoint().join("a0")).unwrap() == content(0));
    std::thread::sleep(Duration::from_secs(8));
    assert!(!writer.is_finished(), "nothing is acknowledged that is not in the log");
    site.engine.resume();
    let took = writer.join().unwrap().unwrap();
    assert!(took > Duration::from_secs(8), "{took:?}");
    until("a healthy pool", || is_healthy(world));
    synced.write(world, "b").unwrap();
    synced.assert_right(world);
    world.ok("umount mount");
    world.ok("check lab");
}

#[test]
fn an_engine_that_was_restored_is_refused() {
    let Some(mut site) = Site::new("an_engine_that_was_restored_is_refused", 2, 1) else { return };
    site.machines[0].ok("mount lab mount");
    let mut synced = Synced::default();
    synced.write(&site.machines[0], "a").unwrap();
    site.machines[0].ok("umount mount");
    site.engine.save_state();
    site.machines[0].ok("mount lab mount");
    for _ in 0..10 {
        synced.write(&site.machines[0], "a").unwrap();
    }
    site.machines[0].ok("umount mount");
    site.engine.restore_state();
    site.machines[0].refused("mount lab mount", 1, &["older than", "restored"]);
    site.machines[0].refused("pool take lab", 1, &["restored"]);
}

/// P-243: an owner that finds out tells the devices, so that whoever comes next is refused.
#[test]
fn an_engine_that_was_restored_below_an_owner_is_refused() {
    let Some(mut site) = Site::new("an_engine_that_was_restored_below_an_owner_is_refused", 2, 1) else { return };
    site.machines[0].ok("mount lab mount");
    let mut synced = Synced::default();
    synced.write(&site.machines[0], "a").unwrap();
    site.engine.save_state();
    for _ in 0..10 {
        synced.write(&site.machines[0], "a").unwrap();
    }
    site.engine.restore_state();
    until("the end of an owner whose log lacks records", || site.machines[0].find_daemon().is_none());
    until("a dead mount", || is_dead(&site.machines[0].mountpoint()));
    site.machines[0].refused("mount lab mount", 1, &["older than", "restored"]);
    site.machines[0].refused("pool take lab", 1, &["restored"]);
    take_away(&site.machines[0]);
}

#[test]
fn what_is_wrong_with_a_log_is_said_before_anything_is_changed() {
    let Some(site) = Site::new("what_is_wrong_with_a_log_is_said_before_anything_is_changed", 2, 1) else { return };
    let world = &site.machines[0];
    let create = |log: &str| format!("create other a.img,size=128M b.img,size=128M --log {log}");
    world.refused(&create("mysql://root@h/d"), 2, &["postgres://", "etcd://"]);
    world.refused(&create("postgres://postgres@h:4243x/d"), 2, &["no address of a shared log", "4243x is no port"]);
    world.refused(&create("postgres://postgres@h"), 2, &["it names no database"]);
    world.refused(
        &create("postgres://postgres:geheim@127.0.0.1:1/lab"),
        1,
        &["does not answer", "whether the engine runs"],
    );
    let said = world.run(&create("postgres://postgres:geheim@127.0.0.1:1/lab"));
    assert!(!said.err.contains("geheim"), "{}", said.err);
    let nowhere = site.engine.address().rsplit_once('/').map(|(front, _)| format!("{front}/nowhere")).unwrap();
    world.refused(&create(&nowhere), 1, &["nowhere"]);
    assert!(!world.path("a.img").exists(), "nothing is left of a pool that was not made");
    // Nothing is begun in an engine for devices that are of another pool, and that pool is named.
    site.engine.execute("CREATE DATABASE empty ALLOW_CONNECTIONS false");
    let empty = site.engine.address().replace("/postgres?", "/empty?");
    let taken = format!("create other {} --log {empty}", site.nodes[0].device());
    world.refused(&taken, 1, &["belongs to the pool 'lab'"]);
    let words = ["destroyed", "a device of the pool 'lab'", "not currently accepting connections"];
    world.refused(&format!("{taken} --force --yes"), 1, &words);
    // Another machine that does not say where the log is.
    let stranger = World::new();
    let places: Vec<String> = site.nodes.iter().map(|node| node.place()).collect();
    stranger.refused(&format!("pool import {}", places.join(" ")), 1, &["--log URL"]);
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("state/pools/lab.json"), 0o600, "it holds the address with its password");
}
