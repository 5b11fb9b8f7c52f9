//! A pool whose nodes, engine and machines are hosts of a network (P-260 to P-262), with the real binary: cables that go down and tell nobody.
//! Needs root, /dev/fuse and iproute2. Read next: `support/network.rs`, `support/site.rs`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::network::Link;
use crate::node_servers::{Kind, is_installed};
use crate::site::{Links, Site, Synced, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::until;

/// A device is given up after five seconds. Six seconds are promised; the rest is for a machine that runs other tests.
const SILENT_NODE_MAX: Duration = Duration::from_secs(10);
/// Ten seconds are promised, likewise.
const SILENT_OWNER_MAX: Duration = Duration::from_secs(20);
const FAST: [Link; 4] = [Link::Fast; 4];

/// So many rounds, unless `STERE_TEST_ROUNDS` asks for others.
fn rounds(usual: usize) -> usize {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The first becomes the owner, the second stands by, and the client never owns the pool.
fn mount_on([first, second]: [&World; 2], client: &World) {
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    second.ok("mount lab mount --standby");
    client.ok("mount lab mount -o nostandby");
}

/// Unmounts the pool everywhere, and checks it.
fn close_on(machines: &[&World]) {
    for machine in machines {
        machine.ok("umount mount");
    }
    machines[0].ok("check lab");
}

fn tell(what: &str, mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{what}: {} rounds, median {median:?}, worst {worst:?}", waits.len());
    worst
}

fn is_healthy(world: &World) -> bool {
    let status = world.run("status lab --json");
    status.code == 0 && status.out.contains("\"state\": \"healthy\"")
}

/// P-260.
#[test]
fn no_call_waits_long_for_a_node_whose_cable_is_cut() {
    let test = "no_call_waits_long_for_a_node_whose_cable_is_cut";
    let links = Links { nodes: &FAST[..3], machines: &FAST[..2], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    let (mut synced, mut waits) = (Synced::default(), Vec::new());
    for round in 0..rounds(2) {
        synced.write(client, "a").unwrap();
        synced.longest = Duration::ZERO;
        let node = round % site.nodes.len();
        site.network().cut(node);
        // Files lie on some of the nodes: one of these needs the one that is silent.
        (0..20).for_each(|number| synced.write(if number % 2 == 0 { client } else { owner }, "b").unwrap());
        waits.push(synced.longest);
        site.network().mend(node);
        until("a healthy pool", || is_healthy(owner));
    }
    [client, owner].iter().for_each(|machine| synced.assert_right(machine));
    let worst = tell("a silent node", waits);
    assert!(worst < SILENT_NODE_MAX, "{worst:?}");
    close_on(&[client, owner]);
}

/// P-261.
#[test]
fn an_owner_whose_cable_is_cut_is_followed() {
    let test = "an_owner_whose_cable_is_cut_is_followed";
    let links = Links { nodes: &FAST[..3], machines: &FAST[..3], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    mount_on([first, second], client);
    let (mut synced, mut waits) = (Synced::default(), Vec::new());
    for round in 0..rounds(2) {
        (0..10).for_each(|_| synced.write(client, "a").unwrap());
        until("an owner", || owns(first) || owns(second));
        let owner = if owns(first) { 0 } else { 1 };
        let (old, process) = (&site.machines[owner], owner_process(&site.machines[owner]));
        site.network().cut(site.host_of(owner));
        let begun = Instant::now();
        synced.write(client, "b").unwrap();
        waits.push(begun.elapsed());
        println!("round {round}: {:?}", begun.elapsed());
        (0..10).for_each(|_| synced.write(client, "b").unwrap());
        synced.assert_right(client);
        site.network().mend(site.host_of(owner));
        until("the end of the owner that was cut off", || owner_process(old) != process);
        synced.write(old, "c").unwrap();
        until("one owner", || owner_process(&site.machines[1 - owner]).is_some());
    }
    [first, second, client].iter().for_each(|machine| synced.assert_right(machine));
    let worst = tell("an owner that was cut off", waits);
    assert!(worst < SILENT_OWNER_MAX, "{worst:?}");
    close_on(&[client, first, second]);
}

/// Of a packet with its headers; what is longer vanishes.
const NARROW_BYTES: usize = 1000;
/// A link that can become narrow.
const NARROWING: Link = Link::Delay(Duration::ZERO);

/// P-262: a node that small packets reach and large ones do not is a node that is silent.
#[test]
fn a_node_that_large_packets_do_not_reach_is_given_up() {
    let test = "a_node_that_large_packets_do_not_reach_is_given_up";
    let nodes = [NARROWING, Link::Fast, Link::Fast];
    let links = Links { nodes: &nodes, machines: &FAST[..2], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    let mut synced = Synced::default();
    (0..10).for_each(|_| synced.write(client, "a").unwrap());
    synced.longest = Duration::ZERO;
    site.network().switch(0).eat_longer_than(NARROW_BYTES);
    (0..100).for_each(|_| synced.write(client, "b").unwrap());
    println!("the longest call beside a node with a narrow way: {:?}", synced.longest);
    assert!(synced.longest < SILENT_NODE_MAX, "{:?}", synced.longest);
    let status = owner.json("status lab --json");
    assert_ne!(status["state"], "healthy", "{status:#}");
    assert_eq!(status["devices"][0]["state"], "silent", "{status:#}");
    assert!(status["next"].as_str().unwrap_or_default().contains("device n1"), "{status:#}");
    // It is tried again and again meanwhile, and harms nobody.
    synced.longest = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        synced.write(client, "c").unwrap();
    }
    println!("and later: {:?}", synced.longest);
    assert!(synced.longest < SILENT_NODE_MAX, "{:?}", synced.longest);
    site.network().switch(0).eat_nothing();
    until("a healthy pool", || is_healthy(owner));
    synced.assert_right(client);
    close_on(&[client, owner]);
}

/// P-262: a client on a way that large packets do not pass waits, and goes on when they do; others wait for it once.
#[test]
fn a_client_whose_large_packets_vanish_delays_others_once() {
    let test = "a_client_whose_large_packets_vanish_delays_others_once";
    let machines = [Link::Fast, NARROWING];
    let links = Links { nodes: &FAST[..3], machines: &machines, ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    let (mut synced, mut of_owner) = (Synced::default(), Synced::default());
    (0..10).for_each(|_| synced.write(client, "a").unwrap());
    let narrow = site.network().switch(site.host_of(1));
    narrow.eat_longer_than(NARROW_BYTES);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let begun = Instant::now();
            (0..10).for_each(|_| synced.write(client, "b").unwrap());
            begun.elapsed()
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            of_owner.write(owner, "owner").unwrap();
        }
        assert!(!writer.is_finished(), "its packets vanish");
        narrow.eat_nothing();
        let mended = Instant::now();
        let waited = writer.join().unwrap();
        println!("the client waited {waited:?}, {:?} after the way was wide", mended.elapsed());
        assert!(mended.elapsed() < CLIENT_BACK_MAX, "{:?}", mended.elapsed());
    });
    println!("the owner's longest call meanwhile: {:?}", of_owner.longest);
    assert!(of_owner.longest < SILENT_MAX, "{:?}", of_owner.longest);
    assert!(of_owner.second_longest < Duration::from_secs(2), "{:?}", of_owner.second_longest);
    for machine in [client, owner] {
        synced.assert_right(machine);
        of_owner.assert_right(machine);
    }
    close_on(&[client, owner]);
}

/// For so long who changes what a silent client may believe waits for it, and once; a second is for other tests (P-284).
const SILENT_MAX: Duration = Duration::from_secs(7);

/// A session that ends after ten seconds of silence, and a new one.
const CLIENT_BACK_MAX: Duration = Duration::from_secs(15);

/// Times that somebody waits for an answer while a pool is opened and a client comes back.
const ROUND_TRIPS_OF_A_TAKEOVER: u32 = 100;

/// P-264: a site with a delay on the way of every machine works as any other.
fn works_with_delay(test: &str, delay: Duration) {
    let machines = [Link::Delay(delay); 3];
    let links = Links { nodes: &FAST[..3], machines: &machines, ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    mount_on([first, second], client);
    let mut synced = Synced::default();
    let begun = Instant::now();
    (0..20).for_each(|_| synced.write(client, "a").unwrap());
    println!("{delay:?} each way: a file created, written and synced in {:?}", begun.elapsed() / 20);
    assert!(begun.elapsed() > 20 * 2 * delay, "the way is as long as it should be");
    for (number, machine) in site.machines.iter().enumerate() {
        std::fs::write(machine.mountpoint().join("shared"), format!("{number}")).unwrap();
        for reader in &site.machines {
            assert_eq!(std::fs::read_to_string(reader.mountpoint().join("shared")).unwrap(), format!("{number}"));
        }
    }
    signal(owner_process(first).unwrap(), libc::SIGKILL);
    let begun = Instant::now();
    synced.write(client, "b").unwrap();
    println!("the first call after the owner's death took {:?}", begun.elapsed());
    assert!(begun.elapsed() < SILENT_OWNER_MAX + ROUND_TRIPS_OF_A_TAKEOVER * 2 * delay, "{:?}", begun.elapsed());
    site.machines.iter().for_each(|machine| synced.assert_right(machine));
    close_on(&[client, first, second]);
}

#[test]
fn a_site_with_a_millisecond_of_delay_works() {
    works_with_delay("a_site_with_a_millisecond_of_delay_works", Duration::from_millis(1));
}

#[test]
fn a_site_with_twenty_milliseconds_of_delay_works() {
    works_with_delay("a_site_with_twenty_milliseconds_of_delay_works", Duration::from_millis(20));
}

/// Shifts the time of day of whoever loads it, and no other clock.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    const char *shift = getenv("SHIFT_SECONDS");
    if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += atol(shift);
    return code;
}
"#;

/// P-264: clocks hours apart; neither who owns the pool nor what clients see depends on them.
#[test]
fn clocks_that_differ_by_hours_change_nothing() {
    let test = "clocks_that_differ_by_hours_change_nothing";
    if !is_installed(test, "cc") {
        return;
    }
    let links = Links { nodes: &FAST[..3], machines: &FAST[..3], ..Links::default() };
    let Some(mut site) = Site::on_network(test, Kind::Stere, &links) else { return };
    let tools = World::new();
    std::fs::write(tools.path("clock.c"), SHIFTED_CLOCK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"]).current_dir(&tools.folder);
    assert!(compiler.status().unwrap().success());
    const HOUR: i64 = 3600;
    let shifts = [5 * HOUR, -3 * HOUR, -24 * HOUR];
    for (machine, shift) in site.machines.iter_mut().zip(shifts) {
        let library = tools.path("clock.so").display().to_string();
        machine.environment = vec![("LD_PRELOAD".into(), library), ("SHIFT_SECONDS".into(), shift.to_string())];
    }
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    mount_on([first, second], client);
    let mut synced = Synced::default();
    let mut waits = Vec::new();
    for round in 0..rounds(2) {
        (0..10).for_each(|_| synced.write(client, "a").unwrap());
        until("an owner", || owns(first) || owns(second));
        let owner = if owns(first) { 0 } else { 1 };
        if round == 0 {
            let made = std::fs::metadata(client.mountpoint().join(&synced.names[0])).unwrap().modified().unwrap();
            let now = std::time::SystemTime::now();
            let is_shifted = made.duration_since(now).is_ok() || now.duration_since(made).unwrap().as_secs() > 3000;
            assert!(is_shifted, "the clocks differ");
        }
        let process = owner_process(&site.machines[owner]).unwrap();
        // In every second round the owner stands still, and wakes when it was replaced.
        signal(process, if round % 2 == 0 { libc::SIGKILL } else { libc::SIGSTOP });
        let begun = Instant::now();
        synced.write(client, "b").unwrap();
        waits.push(begun.elapsed());
        signal(process, libc::SIGCONT);
        until("the end of the old owner", || owner_process(&site.machines[owner]) != Some(process));
        until("one that stands by", || {
            let machine = &site.machines[owner];
            std::fs::metadata(machine.mountpoint().join(&synced.names[0])).is_ok()
        });
        // What one wrote the next reads, whatever time it is there.
        for number in 0..10 {
            for writer in [second, client, first] {
                std::fs::write(writer.mountpoint().join("shared"), format!("{number}")).unwrap();
                for reader in [first, client, second] {
                    assert_eq!(
                        std::fs::read_to_string(reader.mountpoint().join("shared")).unwrap(),
                        format!("{number}")
                    );
                }
            }
        }
    }
    [first, second, client].iter().for_each(|machine| synced.assert_right(machine));
    let worst = tell("clocks hours apart", waits);
    assert!(worst < SILENT_OWNER_MAX, "{worst:?}");
    close_on(&[client, first, second]);
}
