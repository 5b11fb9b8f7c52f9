//! What machines write at once the others see (P-272), with the real binary, each machine and node a host of a network: the checker of
//! `stere-bench coherence`, on the mounts of an owner and its clients. `STERE_TEST_ROUNDS` asks for so many times the work.
//! Needs root, /dev/fuse and iproute2. Read next: `crates/bench/src/coherence.rs`, `support/site.rs`.

use std::path::PathBuf;
use std::time::Duration;

use crate::coherence_check::{HELD_MAX, Plan, run};
use crate::network::Link;
use crate::node_servers::Kind;
use crate::site::{Links, Site, owner_process, owns, signal};
use crate::support::tier::until;

const MACHINES: usize = 3;
const NODES: usize = 3;
/// After this the owner is killed.
const UNDISTURBED: Duration = Duration::from_secs(4);
/// An owner is followed after some eight seconds, in which nobody is told anything; what a busy machine adds.
const TAKEOVER_MAX: Duration = Duration::from_secs(30);

fn times() -> u32 {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn site(test: &str) -> Option<Site> {
    let links = Links { nodes: &[Link::Fast; NODES], machines: &[Link::Fast; MACHINES], ..Links::default() };
    Site::on_network(test, Kind::Stere, &links)
}

/// Reads and writes on all machines for this time, and judges what is read.
fn judge(site: &Site, time: Duration, held_max: Duration) -> serde_json::Value {
    let directories: Vec<PathBuf> = site.machines.iter().map(|machine| machine.mountpoint()).collect();
    let plan = Plan { seed: 1, time, reads_max: u64::MAX, plant: None, grows_in_parts: false, held_max };
    let said = run(&directories, plan).unwrap_or_else(|why| panic!("{why}"));
    println!("{said}");
    said
}

#[test]
fn what_three_machines_write_at_once_all_of_them_see() {
    let Some(site) = site("what_three_machines_write_at_once_all_of_them_see") else { return };
    site.machines[0].ok("mount lab mount");
    site.machines[1..].iter().for_each(|machine| drop(machine.ok("mount lab mount -o nostandby")));
    let said = judge(&site, Duration::from_secs(12) * times(), HELD_MAX);
    assert!(said["blocks_read"].as_u64().unwrap() > 5000 && said["records_read"].as_u64().unwrap() > 100, "{said}");
    site.close();
}

#[test]
fn what_they_see_is_right_when_the_owner_is_killed() {
    let Some(site) = site("what_they_see_is_right_when_the_owner_is_killed") else { return };
    let [first, second, client] = &site.machines[..] else { panic!("three machines") };
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    second.ok("mount lab mount --standby");
    client.ok("mount lab mount -o nostandby");
    for _ in 0..times() {
        std::thread::scope(|scope| {
            let machines = [first, second];
            until("an owner", || machines.iter().any(|machine| owns(machine)));
            let owner = machines.into_iter().find(|machine| owns(machine)).and_then(owner_process).unwrap();
            scope.spawn(move || {
                std::thread::sleep(UNDISTURBED);
                signal(owner, libc::SIGKILL);
            });
            judge(&site, Duration::from_secs(16), TAKEOVER_MAX);
        });
    }
    site.close();
}
