//! A machine that is killed while it writes, alone or at the same instant as a node, the owner, or both (P-285): what its programs had
//! synced is there, nothing is there that they did not write, its locks are free again, and others go on. Needs root, /dev/fuse and iproute2.
//! `STERE_TEST_ROUNDS` asks for more rounds. Read next: `owner_and_node.rs`, which has the same without clients that die.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::network::Link;
use crate::node_servers::Kind;
use crate::owner_and_node::{any_moment, is_healthy, rounds};
use crate::site::{Links, Site, Synced, owner_process, owns, signal, take_away};
use crate::support::World;
use crate::support::tier::until;

/// Ten seconds are promised; the rest is for a machine that runs other tests.
const CALL_MAX: Duration = Duration::from_secs(25);
/// A session ends ten seconds after its machine; locks wait for the next owner, too.
const LOCK_MAX: Duration = Duration::from_secs(30);
const NODES: usize = 5;
/// Large enough to be written past the owner.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// What is written as the `write`th, in any round.
fn block(round: usize, write: usize) -> Vec<u8> {
    let seed = (round * 100_000 + write) as u32 + 1;
    (0..BLOCK as u32 / 4).flat_map(|at| (at.wrapping_mul(2_654_435_761) ^ seed).to_ne_bytes()).collect()
}

/// The blocks of one file, written one behind the other, over and over, and each synced.
fn write_blocks(world: &World, round: usize, synced: &AtomicUsize) {
    let Ok(file) = File::create(world.mountpoint().join(format!("parity/large-{round}"))) else { return };
    for write in 0.. {
        let is_written = file.write_all_at(&block(round, write), (write % BLOCKS * BLOCK) as u64).is_ok();
        if !is_written || file.sync_data().is_err() {
            return;
        }
        synced.store(write + 1, Ordering::Release);
    }
}

/// Each block is what was synced there last. Only the one that was being written may be that, or what was there before.
fn assert_blocks(world: &World, round: usize, synced: usize) {
    let path = world.mountpoint().join(format!("parity/large-{round}"));
    if synced == 0 && !path.exists() {
        return;
    }
    let found = std::fs::read(path).unwrap();
    assert!(
        found.len() >= synced.min(BLOCKS) * BLOCK,
        "round {round}: {synced} writes, {} bytes are there",
        found.len()
    );
    for (number, part) in found.chunks(BLOCK).enumerate() {
        let last = (0..synced).rev().find(|write| write % BLOCKS == number);
        let is_last = match last {
            Some(write) => part == block(round, write),
            None => part.iter().all(|byte| *byte == 0),
        };
        let is_next = synced % BLOCKS == number && part == &block(round, synced)[..part.len()];
        assert!(is_last || is_next, "round {round}: block {number} is another, of {synced} writes that were synced");
    }
}

fn lock(world: &World, operation: rustix::fs::FlockOperation) -> std::io::Result<File> {
    let file = File::options().create(true).append(true).open(world.mountpoint().join("copies/lock"))?;
    rustix::fs::flock(&file, operation)?;
    Ok(file)
}

struct Drill {
    site: Site,
    waits: Vec<Duration>,
    locks: Vec<Duration>,
    files: usize,
}

impl Drill {
    fn new() -> Option<Drill> {
        let links = Links { nodes: &[Link::Fast; NODES], machines: &[Link::Fast; 4], ..Links::default() };
        let site = Site::on_network("a_client_is_killed_while_it_writes", Kind::Nbdkit, &links)?;
        let [first, second, doomed, other] = &site.machines[..] else { panic!("four machines") };
        first.ok("mount lab mount --standby");
        until("an owner", || owns(first));
        second.ok("mount lab mount --standby");
        [doomed, other].iter().for_each(|client| drop(client.ok("mount lab mount -o nostandby")));
        for (name, policy) in [("copies", "copies=2"), ("parity", "parity=4+1")] {
            std::fs::create_dir(other.mountpoint().join(name)).unwrap();
            other.ok(&format!("policy set mount/{name} {policy}"));
        }
        Some(Drill { site, waits: Vec::new(), locks: Vec::new(), files: 0 })
    }

    fn round(&mut self, number: usize) {
        until("an owner", || self.site.machines[..2].iter().any(owns));
        let owner = (0..2).find(|machine| owns(&self.site.machines[*machine])).unwrap();
        let process = owner_process(&self.site.machines[owner]).unwrap();
        let (with_node, with_owner) = (number % 2 == 1, number % 4 >= 2);
        let node = number % NODES;
        let (doomed, other) = (&self.site.machines[2], &self.site.machines[3]);
        let (blocks, count, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let held = lock(doomed, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let small = || {
            let mut synced = Synced::default();
            while synced.write_at(&doomed.mountpoint(), &format!("copies/d{number}-")).is_ok() {
                std::thread::sleep(PAUSE);
            }
            synced
        };
        let on_other = || {
            let mut synced = Synced::default();
            while !is_over.load(Ordering::Acquire) {
                let folder = if synced.names.len() % 2 == 0 { "copies" } else { "parity" };
                synced.write_at(&other.mountpoint(), &format!("{folder}/o{number}-")).unwrap();
                count.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(PAUSE);
            }
            synced
        };
        let (lost, kept) = std::thread::scope(|scope| {
            let lost = scope.spawn(small);
            let kept = scope.spawn(on_other);
            scope.spawn(|| write_blocks(doomed, number, &blocks));
            until("some files", || count.load(Ordering::Acquire) > 5);
            std::thread::sleep(any_moment());
            signal(doomed.daemon(), libc::SIGKILL);
            if with_node {
                self.site.nodes[node].kill();
            }
            if with_owner {
                signal(process, libc::SIGKILL);
            }
            let begun = Instant::now();
            let taken = lock(other, rustix::fs::FlockOperation::LockExclusive).unwrap();
            let took = begun.elapsed();
            drop(taken);
            let before = count.load(Ordering::Acquire);
            until("files after that", || count.load(Ordering::Acquire) > before + 10);
            is_over.store(true, Ordering::Release);
            self.locks.push(took);
            let (lost, kept) = (lost.join().unwrap(), kept.join().unwrap());
            println!(
                "round {number}, node {with_node}, owner {with_owner}: {} files and {} synced writes of the killed machine, {} of the other, its longest call {:?}, the lock after {took:?}",
                lost.names.len(),
                blocks.load(Ordering::Acquire),
                kept.names.len(),
                kept.longest
            );
            (lost, kept)
        });
        drop(held);
        take_away(doomed);
        if with_node {
            self.site.nodes[node].start_again();
        }
        until("a healthy pool", || self.site.machines[..2].iter().any(is_healthy));
        doomed.ok("mount lab mount -o nostandby");
        for machine in &self.site.machines {
            lost.assert_right(machine);
            kept.assert_right(machine);
            assert_blocks(machine, number, blocks.load(Ordering::Acquire));
        }
        for name in lost.names.iter().chain(&kept.names).chain([&format!("parity/large-{number}")]) {
            drop(std::fs::remove_file(other.mountpoint().join(name)));
        }
        self.files += lost.names.len() + kept.names.len();
        self.waits.push(kept.longest);
    }
}

#[test]
fn a_client_is_killed_while_it_writes() {
    let Some(mut drill) = Drill::new() else { return };
    // Alone, and with each of what else may be lost.
    (0..4 * rounds()).for_each(|number| drill.round(number));
    drill.waits.sort();
    drill.locks.sort();
    let middle = |times: &[Duration]| (times[times.len() / 2], times[times.len() - 1]);
    let (waits, locks) = (middle(&drill.waits), middle(&drill.locks));
    println!("{} files, none lost: the longest call (median, worst) {waits:?}, a lock {locks:?}", drill.files);
    assert!(waits.1 < CALL_MAX && locks.1 < LOCK_MAX, "{waits:?}, {locks:?}");
    drill.site.close();
}
