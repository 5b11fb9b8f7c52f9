//! An owner and one of five nodes that are lost at the same instant, at any moment of synced writes (P-265): the owner is killed, stopped or
//! cut off, the node is killed.
//! Another machine goes on, nothing acknowledged is lost, and whoever was away harms nobody when it is back. Needs root, /dev/fuse and
//! iproute2. `STERE_TEST_ROUNDS` asks for more rounds. Read next: `support/site.rs`, `site_of_hosts.rs`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::network::Link;
use crate::node_servers::Kind;
use crate::site::{Links, Site, Synced, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::until;

/// Ten seconds are promised; the rest is for a machine that runs other tests.
const CALL_MAX: Duration = Duration::from_secs(25);
/// Between two files, so that a pool of this size holds those of a round.
const PAUSE: Duration = Duration::from_millis(10);
const NODES: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Killed,
    Stopped,
    CutOff,
}

/// Two machines that may own the pool, and a client.
struct Drill {
    site: Site,
    loss: Loss,
    waits: Vec<Duration>,
    files: usize,
}

/// Some time below half a second.
pub fn any_moment() -> Duration {
    Duration::from_micros(RandomState::new().build_hasher().finish() % 500_000)
}

pub fn rounds() -> usize {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

impl Drill {
    fn new(test: &str, loss: Loss) -> Option<Drill> {
        let links = Links { nodes: &[Link::Fast; NODES], machines: &[Link::Fast; 3], ..Links::default() };
        let site = Site::on_network(test, Kind::Nbdkit, &links)?;
        let [first, second, client] = &site.machines[..] else { panic!("three machines") };
        first.ok("mount lab mount --standby");
        until("an owner", || owns(first));
        second.ok("mount lab mount --standby");
        client.ok("mount lab mount -o nostandby");
        for (name, policy) in [("copies", "copies=2"), ("parity", "parity=4+1")] {
            std::fs::create_dir(client.mountpoint().join(name)).unwrap();
            client.ok(&format!("policy set mount/{name} {policy}"));
        }
        Some(Drill { site, loss, waits: Vec::new(), files: 0 })
    }

    fn owner(&self) -> Option<usize> {
        (0..2).find(|number| owns(&self.site.machines[*number]))
    }

    /// Both at once. The node is killed.
    fn lose(&mut self, process: i32, owner: usize, node: usize) {
        match self.loss {
            Loss::Killed => signal(process, libc::SIGKILL),
            Loss::Stopped => signal(process, libc::SIGSTOP),
            Loss::CutOff => self.site.network().cut(self.site.host_of(owner)),
        }
        self.site.nodes[node].kill();
    }

    fn bring_back(&mut self, process: i32, owner: usize, node: usize) {
        match self.loss {
            Loss::Killed => {}
            Loss::Stopped => signal(process, libc::SIGCONT),
            Loss::CutOff => self.site.network().mend(self.site.host_of(owner)),
        }
        self.site.nodes[node].start_again();
        let old = &self.site.machines[owner];
        until("the end of the owner that was replaced", || owner_process(old) != Some(process));
    }

    /// Files synced one after the other while both are lost. All are there afterwards, also for a machine that did not write them.
    fn round(&mut self, number: usize) {
        let owner = {
            until("an owner", || self.owner().is_some());
            self.owner().unwrap()
        };
        let process = owner_process(&self.site.machines[owner]).unwrap();
        let node = number % NODES;
        let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let client = self.site.machines[2].mountpoint();
        let writer = || {
            let mut synced = Synced::default();
            while !is_over.load(Ordering::Acquire) {
                let folder = if synced.names.len() % 2 == 0 { "copies" } else { "parity" };
                synced.write_at(&client, &format!("{folder}/r{number}-")).unwrap();
                count.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(PAUSE);
            }
            synced
        };
        let synced = std::thread::scope(|scope| {
            let writer = scope.spawn(writer);
            std::thread::sleep(any_moment());
            let begun = Instant::now();
            self.lose(process, owner, node);
            // It may be the same machine, which has begun another process.
            let is_next = |machine: &World| owns(machine) && owner_process(machine) != Some(process);
            until("the next owner", || self.site.machines[..2].iter().any(is_next));
            let before = count.load(Ordering::Acquire);
            until("files of the next owner", || count.load(Ordering::Acquire) > before + 10);
            let took = begun.elapsed();
            self.bring_back(process, owner, node);
            is_over.store(true, Ordering::Release);
            let synced = writer.join().unwrap();
            println!(
                "round {number}: {} files, the longest call {:?}, all {took:?}",
                synced.names.len(),
                synced.longest
            );
            synced
        });
        until("a healthy pool", || self.site.machines[..2].iter().any(is_healthy));
        self.site.machines.iter().for_each(|machine| synced.assert_right(machine));
        for name in &synced.names {
            std::fs::remove_file(client.join(name)).unwrap();
        }
        self.files += synced.names.len();
        self.waits.push(synced.longest);
    }

    fn run(mut self, what: &str) {
        (0..rounds()).for_each(|number| self.round(number));
        self.waits.sort();
        let (median, worst) = (self.waits[self.waits.len() / 2], self.waits[self.waits.len() - 1]);
        println!("{what}: {} rounds, {} files, none lost: median {median:?}, worst {worst:?}", rounds(), self.files);
        assert!(worst < CALL_MAX, "{worst:?}");
        for machine in self.site.machines.iter().rev() {
            machine.ok("umount mount");
        }
        self.site.machines[0].ok("check lab");
    }
}

pub fn is_healthy(machine: &World) -> bool {
    let status = machine.run("status lab --json");
    status.code == 0 && status.out.contains("\"state\": \"healthy\"")
}

#[test]
fn an_owner_and_a_node_die_at_once() {
    let Some(drill) = Drill::new("an_owner_and_a_node_die_at_once", Loss::Killed) else { return };
    drill.run("an owner and a node that were killed");
}

#[test]
fn an_owner_stands_still_and_a_node_dies() {
    let Some(drill) = Drill::new("an_owner_stands_still_and_a_node_dies", Loss::Stopped) else { return };
    drill.run("an owner that was stopped and a node that was killed");
}

#[test]
fn an_owner_is_cut_off_and_a_node_dies() {
    let Some(drill) = Drill::new("an_owner_is_cut_off_and_a_node_dies", Loss::CutOff) else { return };
    drill.run("an owner that was cut off and a node that was killed");
}
