//! Content that machines read from the nodes, past the owner (P-270), with the real binary, each machine and node a host of a network.
//! Needs root, /dev/fuse and iproute2. Read next: `support/site.rs`, `docs/design/direct.md`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::network::{Link, within};
use crate::node_servers::Kind;
use crate::site::{Links, Site, owner_process, owns, signal, take_away};
use crate::support::World;
use crate::support::tier::{forget_cache, until};

const FAST: [Link; 5] = [Link::Fast; 5];
const FILE_BYTES: usize = 24 << 20;

fn large(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) | 1;
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    while bytes.len() < FILE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Bytes that a machine's host has sent so far.
fn sent(site: &Site, machine: usize) -> u64 {
    let namespace = site.network().namespace(site.host_of(machine));
    let text = within(Some(&namespace), || fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let of_line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() != "lo").then(|| counts.split_whitespace().nth(8).and_then(|count| count.parse::<u64>().ok()))?
    };
    text.lines().filter_map(of_line).sum()
}

/// A site with an owner, and a client that reads nodes by now.
fn site(test: &str) -> Option<Site> {
    let links = Links { nodes: &FAST, machines: &FAST[..2], ..Links::default() };
    let site = Site::on_network(test, Kind::Nbdkit, &links)?;
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    owner.ok("policy set mount parity=4+1");
    client.ok("mount lab mount -o nostandby");
    Some(site)
}

/// Nothing of it is in the memory of kernels or daemons.
fn forget(site: &Site) {
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    forget_cache();
}

/// Reads a file on the client until the owner sends little for it; how much that was.
fn reads_past_owner(site: &Site, name: &str, expected: &[u8]) -> u64 {
    let path = site.machines[1].mountpoint().join(name);
    let begun = Instant::now();
    loop {
        let before = sent(site, 0);
        assert!(fs::read(&path).unwrap() == expected, "{name}");
        let sent = sent(site, 0) - before;
        // At first no node is open.
        if sent < FILE_BYTES as u64 / 50 || begun.elapsed() > Duration::from_secs(60) {
            return sent;
        }
        forget_cache();
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn what_is_read_does_not_pass_the_owner() {
    let Some(site) = site("what_is_read_does_not_pass_the_owner") else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    fs::write(owner.mountpoint().join("large"), large(1)).unwrap();
    owner.ok("policy set mount compress=lz4");
    let text: Vec<u8> = b"words that are the same, and again ".iter().copied().cycle().take(FILE_BYTES).collect();
    fs::write(owner.mountpoint().join("text"), &text).unwrap();
    forget(&site);
    let by_owner = reads_past_owner(&site, "large", &large(1));
    println!("of {FILE_BYTES} bytes the owner sent {by_owner}");
    assert!(by_owner < FILE_BYTES as u64 / 50, "{by_owner}");
    assert!(reads_past_owner(&site, "text", &text) < FILE_BYTES as u64 / 50);
    // Parts, holes, and the end.
    let file = fs::File::options().write(true).open(owner.mountpoint().join("large")).unwrap();
    file.set_len(FILE_BYTES as u64 + 300_000).unwrap();
    file.write_all_at(b"a new word", FILE_BYTES as u64 + 200_001).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut expected = large(1);
    expected.resize(FILE_BYTES + 300_000, 0);
    expected[FILE_BYTES + 200_001..][..10].copy_from_slice(b"a new word");
    forget(&site);
    assert!(fs::read(client.mountpoint().join("large")).unwrap() == expected);
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn a_node_that_is_away_or_wrong_is_computed() {
    let Some(site) = site("a_node_that_is_away_or_wrong_is_computed") else { return };
    fs::write(site.machines[0].mountpoint().join("large"), large(2)).unwrap();
    forget(&site);
    assert!(reads_past_owner(&site, "large", &large(2)) < FILE_BYTES as u64 / 50);
    // A cable is cut: the next read computes what that node has.
    forget_cache();
    site.network().cut(1);
    let begun = Instant::now();
    assert!(fs::read(site.machines[1].mountpoint().join("large")).unwrap() == large(2));
    println!("read with a node that fell silent in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    site.network().mend(1);
    until("a healthy pool", || site.machines[0].run("status lab").code == 0);
    // A node gives other bytes.
    site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
    site.nodes[2].spoil(16 << 20..40 << 20);
    site.machines[0].ok("mount lab mount");
    site.machines[1].ok("mount lab mount -o nostandby");
    forget_cache();
    assert!(fs::read(site.machines[1].mountpoint().join("large")).unwrap() == large(2));
    site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
}

/// What one machine writes the next read of another sees, also while it reads past the owner.
#[test]
fn what_was_written_over_is_never_read_again() {
    let Some(site) = site("what_was_written_over_is_never_read_again") else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    let round = |number: u8| vec![number; 4 << 20];
    fs::write(owner.mountpoint().join("file"), round(0)).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..40 {
                let file = fs::File::options().write(true).open(owner.mountpoint().join("file")).unwrap();
                file.write_all_at(&round(number), 0).unwrap();
                file.sync_all().unwrap();
                drop(file);
                // Opened after that close, it is that round or a later one.
                let read = fs::read(client.mountpoint().join("file")).unwrap();
                assert_eq!(read.len(), 4 << 20);
                assert!(read.iter().all(|byte| *byte >= number), "round {number} reads an older one");
            }
        });
        // Others read all the time.
        while !writer.is_finished() {
            let read = fs::read(client.mountpoint().join("file")).unwrap();
            assert_eq!(read.len(), 4 << 20);
        }
    });
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn an_owner_that_dies_under_readers_is_followed() {
    let test = "an_owner_that_dies_under_readers_is_followed";
    let links = Links { nodes: &FAST, machines: &FAST[..3], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [first, second, client]: [&World; 3] = [&site.machines[0], &site.machines[1], &site.machines[2]];
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    first.ok("policy set mount parity=4+1");
    second.ok("mount lab mount --standby");
    client.ok("mount lab mount -o nostandby");
    fs::write(client.mountpoint().join("large"), large(5)).unwrap();
    for round in 0..3 {
        forget_cache();
        let reader = std::thread::spawn({
            let path = client.mountpoint().join("large");
            move || fs::read(path).unwrap() == large(5)
        });
        if round == 1 {
            signal(owner_process(first).unwrap(), libc::SIGKILL);
        }
        assert!(reader.join().unwrap(), "round {round}");
    }
    for machine in [client, second, first] {
        take_away(machine);
    }
}
