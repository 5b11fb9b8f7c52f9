//! A pool of several machines that grows and shrinks by machines while a client writes (P-275, P-276), with the real binary, each node, the
//! engine and each machine a host of a network. Needs root, /dev/fuse and iproute2. Read next: `support/site.rs`, `failure_domains.rs`.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::network::Link;
use crate::node_servers::Kind;
use crate::site::{Links, Site, Synced, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::{content, forget_cache, until};

const NODES: usize = 5;
/// Between two files, so that a pool of this size holds those of a session.
const PAUSE: Duration = Duration::from_millis(20);
/// A file of 24 MB, so that emptying a host takes a while.
const LARGE: usize = 25_000;
/// So many bytes a second are repaired where somebody is to come in between.
const SLOWLY: &str = "repair_rate=2M";

/// Two machines that may own the pool and a client, and a pool with files of two copies and of 3+1.
fn site(test: &str, options: &str) -> Option<Site> {
    let links = Links { nodes: &[Link::Fast; NODES], machines: &[Link::Fast; 3], ..Links::default() };
    let site = Site::on_network(test, Kind::Stere, &links)?;
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    first.ok(&format!("mount lab mount --standby -o {options}"));
    until("an owner", || owns(first));
    second.ok(&format!("mount lab mount --standby -o {options}"));
    client.ok("mount lab mount -o nostandby");
    for (name, policy) in [("copies", "copies=2"), ("parity", "parity=3+1")] {
        std::fs::create_dir(client.mountpoint().join(name)).unwrap();
        client.ok(&format!("policy set mount/{name} {policy}"));
        std::fs::write(client.mountpoint().join(name).join("large"), content(LARGE)).unwrap();
    }
    client.ok("flush mount --wait");
    Some(site)
}

/// Does the work while the client writes and syncs one file after the other; all of them.
fn while_writing(site: &Site, name: &str, work: impl FnOnce(&Mutex<Synced>)) -> Synced {
    let (synced, is_over) = (Mutex::new(Synced::default()), AtomicBool::new(false));
    let client = &site.machines[2];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let mut synced = synced.lock().unwrap();
                let folder = if synced.names.len() % 2 == 0 { "copies" } else { "parity" };
                synced.write(client, &format!("{folder}/{name}")).unwrap();
                drop(synced);
                std::thread::sleep(PAUSE);
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&synced)));
        is_over.store(true, Ordering::Release);
        writer.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    synced.into_inner().unwrap()
}

fn device(status: &serde_json::Value, name: &str) -> serde_json::Value {
    let devices = status["devices"].as_array().unwrap();
    devices.iter().find(|device| device["name"] == name).cloned().unwrap_or_default()
}

fn is_healthy(world: &World) -> bool {
    world.json("status lab --json")["state"] == "healthy"
}

/// Nothing names the host any more, on any machine.
#[track_caller]
fn assert_gone(site: &Site, host: &str) {
    let client = &site.machines[2];
    for machine in &site.machines {
        let status = machine.json("status lab --json");
        assert!(device(&status, host).is_null(), "{status:#}");
        let hosts = machine.json("host list lab --json");
        let names =
            hosts["device_hosts"].as_array().unwrap().iter().map(|one| one["host"].as_str().unwrap().to_owned());
        assert!(!names.collect::<Vec<_>>().contains(&host.to_owned()), "{hosts:#}");
    }
    for file in ["copies/large", "parity/large"] {
        let places = client.ok(&format!("where mount/{file}"));
        assert!(places.contains("hosts n") && !places.split_whitespace().any(|word| word == host), "{places}");
    }
}

/// All files, on all machines, from the nodes and not from memory.
#[track_caller]
fn assert_right(site: &Site, sessions: &[&Synced]) {
    forget_cache();
    for machine in &site.machines {
        sessions.iter().for_each(|synced| synced.assert_right(machine));
        for name in ["copies/large", "parity/large"] {
            assert!(std::fs::read(machine.mountpoint().join(name)).unwrap() == content(LARGE), "{name}");
        }
    }
}

/// Unmounts the pool everywhere, the owner last, and checks it with all of its nodes.
fn close(site: &Site) {
    until("a healthy pool", || is_healthy(&site.machines[2]));
    let (owners, others): (Vec<&World>, Vec<&World>) = site.machines.iter().partition(|machine| owns(machine));
    for machine in others.iter().chain(&owners) {
        machine.ok("umount mount");
    }
    site.machines[0].ok("check lab");
}

/// P-276.
#[test]
fn a_pool_grows_and_shrinks_by_machines_while_a_client_writes() {
    let test = "a_pool_grows_and_shrinks_by_machines_while_a_client_writes";
    let Some(mut site) = site(test, "rw") else { return };
    if site.add_node(test, Kind::Stere, "n6").is_none() {
        return;
    }
    let sixth = site.added[0].0.device();
    // A machine with a disk comes: what is written from then on lies there, too.
    let grown = while_writing(&site, "a", |synced| {
        let client = &site.machines[2];
        client.ok(&format!("device add lab {sixth} --wait"));
        until("new data on the new machine", || {
            let Some(newest) = synced.lock().unwrap().names.last().cloned() else { return false };
            client.ok(&format!("where mount/{newest}")).contains("n6")
        });
    });
    // A machine with a disk goes while another one is away.
    let shrunk = while_writing(&site, "b", |_| {
        let client = &site.machines[2];
        site.network().cut(2);
        until("a node that is away", || device(&client.json("status lab --json"), "n3")["state"] == "silent");
        let said = client.ok("host evacuate n1 lab --yes --wait");
        assert!(said.contains("no device of the pool lab is on host n1: its machine may be switched off"), "{said}");
        assert_gone(&site, "n1");
    });
    site.nodes[0].kill();
    site.network().mend(2);
    until("a healthy pool", || is_healthy(&site.machines[2]));
    assert_right(&site, &[&grown, &shrunk]);
    // A disk dies, and another one takes its place in the same machine.
    site.nodes[3].change_disk();
    let new = site.nodes[3].device();
    let replaced = while_writing(&site, "c", |_| {
        let client = &site.machines[2];
        until("a disk that is another one", || {
            device(&client.json("status lab --json"), "n4")["state"].as_str() != Some("online")
        });
        client.ok(&format!("device replace lab n4 {new} --yes --wait"));
        until("a healthy pool", || is_healthy(client));
    });
    assert_right(&site, &[&grown, &shrunk, &replaced]);
    // Any one of those that are left may be lost.
    site.nodes[4].kill();
    assert_right(&site, &[&grown, &shrunk, &replaced]);
    site.nodes[4].start_again();
    println!("the longest calls: {:?} {:?} {:?}", grown.longest, shrunk.longest, replaced.longest);
    let count = grown.names.len() + shrunk.names.len() + replaced.names.len();
    println!("{count} files were synced meanwhile, and none was lost");
    close(&site);
}

/// P-275: what the host had alone in its hands is rebuilt from the others when it does not answer any more.
#[test]
fn a_host_that_is_dead_leaves() {
    let Some(mut site) = site("a_host_that_is_dead_leaves", "rw") else { return };
    site.nodes[1].kill();
    let synced = while_writing(&site, "a", |_| {
        let client = &site.machines[2];
        until("a node that is away", || device(&client.json("status lab --json"), "n2")["state"] != "online");
        let forecast = client.ok("host evacuate n2 lab --dry-run");
        assert!(forecast.contains("host n2, device n2"), "{forecast}");
        assert!(!device(&client.json("status lab --json"), "n2").is_null(), "a forecast changes nothing");
        client.ok("host evacuate n2 lab --yes --wait");
        assert_gone(&site, "n2");
    });
    until("a healthy pool", || is_healthy(&site.machines[2]));
    // It comes back, and is no part of the pool.
    site.nodes[1].start_again();
    site.nodes[2].kill();
    assert_right(&site, &[&synced]);
    assert_gone(&site, "n2");
    site.nodes[2].start_again();
    close(&site);
}

/// P-275: the owner dies in the middle; the next one goes on, the command that waits follows it, and one that is given again does, too.
#[test]
fn a_host_is_emptied_to_the_end_by_the_next_owner() {
    let Some(mut site) = site("a_host_is_emptied_to_the_end_by_the_next_owner", SLOWLY) else { return };
    let synced = while_writing(&site, "a", |_| {
        let [first, second, client] = &site.machines[..] else { panic!("three machines") };
        let mut command = client.command("host evacuate n1 lab --yes --wait");
        let waiting = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the beginning", || device(&client.json("status lab --json"), "n1")["state"] == "removing");
        let shown = client.ok("host list lab");
        assert!(shown.contains("n1 (n1, leaving)"), "{shown}");
        let again = client.ok("host evacuate n1 lab --yes");
        assert!(again.contains("emptying goes on of host n1"), "{again}");
        // The command has told its forecast by then, and waits for what takes seconds at this rate.
        assert!(!device(&client.json("status lab --json"), "n1").is_null(), "it is in the middle of it");
        signal(owner_process(first).unwrap(), libc::SIGKILL);
        until("the next owner", || owns(second) || owns(first));
        let ended = waiting.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
        assert!(said.contains("its machine may be switched off"), "{said}");
        assert_gone(&site, "n1");
    });
    site.nodes[0].kill();
    assert_right(&site, &[&synced]);
    close(&site);
}
