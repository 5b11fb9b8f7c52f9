//! Content that machines write to the nodes themselves, past the owner (P-278, P-279, P-295 to P-297), with the real binary, each machine and node a host of a
//! network. Needs root, /dev/fuse and iproute2. Read next: `direct.rs`, `support/site.rs`, `docs/design/direct.md`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::network::{Link, within};
use crate::node_servers::Kind;
use crate::site::{Links, Site, owner_process, owns, signal, take_away};
use crate::support::World;
use crate::support::tier::{forget_cache, until};

const FAST: [Link; 5] = [Link::Fast; 5];
const MIB: usize = 1 << 20;
const FILE_BYTES: usize = 24 * MIB;

/// Bytes of a file that look like no other's.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Bytes that came to the host of a machine so far, and that left it.
fn traffic(site: &Site, machine: usize) -> u64 {
    let namespace = site.network().namespace(site.host_of(machine));
    let text = within(Some(&namespace), || fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let of_line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
        (name.trim() != "lo").then(|| counts[0] + counts[8])
    };
    text.lines().filter_map(of_line).sum()
}

/// So many machines, of which the first owns the pool; the others mount through it.
fn site(test: &str, machines: usize, policy: &str) -> Option<Site> {
    let links = Links { nodes: &FAST, machines: &FAST[..machines], ..Links::default() };
    let site = Site::on_network(test, Kind::Nbdkit, &links)?;
    site.machines[0].ok("mount lab mount");
    site.machines[0].ok(&format!("policy set mount {policy}"));
    site.machines[1..].iter().for_each(|client| drop(client.ok("mount lab mount -o nostandby")));
    Some(site)
}

fn write_in_pieces(file: &File, offset: u64, bytes: &[u8]) {
    for (index, piece) in bytes.chunks(MIB).enumerate() {
        file.write_all_at(piece, offset + (index * MIB) as u64).unwrap();
    }
}

/// Writes a file in pieces of 1 MiB and syncs it.
fn write(machine: &World, name: &str, bytes: &[u8]) {
    let file = File::create(machine.mountpoint().join(name)).unwrap();
    write_in_pieces(&file, 0, bytes);
    file.sync_all().unwrap();
}

/// Writes the file on a client until the owner hears little of it; how much that was.
pub fn writes_past_owner(site: &Site, name: &str, bytes: &[u8]) -> u64 {
    let begun = Instant::now();
    loop {
        let before = traffic(site, 0);
        write(&site.machines[1], name, bytes);
        let heard = traffic(site, 0) - before;
        // At first no node is open.
        if heard < bytes.len() as u64 / 50 || begun.elapsed() > Duration::from_secs(60) {
            return heard;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Unmounts everywhere; the pool must be right, and every byte of it be where it should.
fn end(site: &Site) {
    site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
    let owner = &site.machines[0];
    owner.ok("check lab");
    owner.ok("mount lab mount");
    owner.ok("scrub start lab --wait");
    // Not a byte that nobody can give, and no chunk that is missing.
    owner.ok("status lab");
    owner.ok("umount mount");
}

#[test]
fn what_is_written_does_not_pass_the_owner() {
    let Some(site) = site("what_is_written_does_not_pass_the_owner", 2, "parity=4+1") else { return };
    let [owner, _] = &site.machines[..] else { panic!("two machines") };
    let heard = writes_past_owner(&site, "large", &content(1, FILE_BYTES));
    println!("of {FILE_BYTES} bytes the owner's host sent and got {heard}");
    assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    assert!(fs::read(owner.mountpoint().join("large")).unwrap() == content(1, FILE_BYTES));
    // As the policy wants it encoded, which the machine learns from the owner. Nothing is there that the owner would store anew by it.
    fs::create_dir(owner.mountpoint().join("packed")).unwrap();
    owner.ok("policy set mount/packed compress=zstd checksum=blake3");
    let text: Vec<u8> = b"words that are the same, and again ".iter().copied().cycle().take(FILE_BYTES).collect();
    let heard = writes_past_owner(&site, "packed/text", &text);
    println!("of {FILE_BYTES} bytes that compress well the owner's host sent and got {heard}");
    assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    assert!(fs::read(owner.mountpoint().join("packed/text")).unwrap() == text);
    // Programs that know nothing of it write in large pieces.
    let before = traffic(&site, 0);
    fs::write(site.machines[1].path("copied"), content(4, FILE_BYTES)).unwrap();
    let copied = site.machines[1].mountpoint().join("packed/copied");
    let done = std::process::Command::new("cp").arg(site.machines[1].path("copied")).arg(&copied).status().unwrap();
    assert!(done.success());
    let heard = traffic(&site, 0) - before;
    println!("of {FILE_BYTES} bytes that cp wrote the owner's host sent and got {heard}");
    assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    assert!(fs::read(owner.mountpoint().join("packed/copied")).unwrap() == content(4, FILE_BYTES));
    // Over what is there, past the end, and with other writes between.
    let file = File::options().write(true).open(site.machines[1].mountpoint().join("large")).unwrap();
    write_in_pieces(&file, 3 * MIB as u64 + 4096, &content(2, 2 * MIB));
    file.write_all_at(b"a few bytes", 4 * MIB as u64 + 77).unwrap();
    write_in_pieces(&file, FILE_BYTES as u64 + 8192, &content(3, MIB));
    drop(file);
    let mut expected = content(1, FILE_BYTES);
    expected.resize(FILE_BYTES + 8192, 0);
    expected.extend(content(3, MIB));
    expected[3 * MIB + 4096..][..2 * MIB].copy_from_slice(&content(2, 2 * MIB));
    expected[4 * MIB + 77..][..11].copy_from_slice(b"a few bytes");
    assert!(fs::read(owner.mountpoint().join("large")).unwrap() == expected);
    end(&site);
}

/// Each of two machines writes its blocks of one file, a third one reads and cuts it; nobody's blocks are lost or torn.
#[test]
fn many_write_one_file() {
    let Some(site) = site("many_write_one_file", 3, "copies=2") else { return };
    write(&site.machines[1], "warm", &content(9, 4 * MIB));
    write(&site.machines[2], "warm", &content(9, 4 * MIB));
    let path = |machine: usize| site.machines[machine].mountpoint().join("file");
    File::create(path(0)).unwrap();
    let rounds = 12_u64;
    std::thread::scope(|scope| {
        for machine in [1, 2] {
            scope.spawn(move || {
                let file = File::options().write(true).open(path(machine)).unwrap();
                for round in 0..rounds {
                    let block = round * 2 + machine as u64 - 1;
                    file.write_all_at(&content(block, MIB), block * MIB as u64).unwrap();
                    // What was written is seen, by its own machine and by the others.
                    let mut read = vec![0; MIB];
                    for reader in [machine, 0] {
                        let seen = File::open(path(reader)).unwrap();
                        assert!(seen.metadata().unwrap().len() >= (block + 1) * MIB as u64, "{block} by {reader}");
                        seen.read_exact_at(&mut read, block * MIB as u64).unwrap();
                        assert!(read == content(block, MIB), "block {block} as machine {reader} sees it");
                    }
                }
            });
        }
    });
    let all: Vec<u8> = (0..2 * rounds).flat_map(|block| content(block, MIB)).collect();
    (0..3).for_each(|machine| assert!(fs::read(path(machine)).unwrap() == all, "machine {machine}"));
    // Cutting against writing: the file is one or the other, and zeros where nothing was written.
    for round in 0..8_u64 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(path(1)).unwrap();
                file.write_all_at(&content(100 + round, MIB), 2 * MIB as u64).unwrap();
            });
            scope.spawn(|| File::options().write(true).open(path(2)).unwrap().set_len(MIB as u64).unwrap());
        });
        let read = fs::read(path(0)).unwrap();
        match read.len() {
            MIB => {}
            length => {
                assert_eq!(length, 3 * MIB, "round {round}");
                let between = &read[MIB..2 * MIB];
                assert!(between.iter().all(|byte| *byte == 0) || between == content(1, MIB), "round {round}");
                assert!(read[2 * MIB..] == content(100 + round, MIB), "round {round}");
            }
        }
        assert!(read[..MIB] == content(0, MIB), "round {round}");
        write_in_pieces(&File::options().write(true).open(path(2)).unwrap(), MIB as u64, &content(1, MIB));
    }
    end(&site);
}

#[test]
fn a_node_that_falls_silent_delays_a_write() {
    let Some(site) = site("a_node_that_falls_silent_delays_a_write", 2, "parity=3+1") else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    writes_past_owner(&site, "first", &content(1, FILE_BYTES));
    let file = File::create(client.mountpoint().join("second")).unwrap();
    let bytes = content(2, FILE_BYTES);
    let mut longest = Duration::ZERO;
    for (index, piece) in bytes.chunks(MIB).enumerate() {
        if index == 6 {
            site.network().cut(1);
        }
        let begun = Instant::now();
        file.write_all_at(piece, (index * MIB) as u64).unwrap();
        longest = longest.max(begun.elapsed());
    }
    let begun = Instant::now();
    file.sync_all().unwrap();
    println!("with a node cut off a write took {longest:?} at most, and the sync {:?}", begun.elapsed());
    assert!(longest.max(begun.elapsed()) < Duration::from_secs(25));
    drop(file);
    assert!(fs::read(owner.mountpoint().join("second")).unwrap() == bytes);
    // Past the owner again, round the node that is away.
    let heard = writes_past_owner(&site, "third", &content(3, FILE_BYTES));
    assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    site.network().mend(1);
    until("a healthy pool", || owner.run("status lab").code == 0);
    for (name, seed) in [("first", 1), ("second", 2), ("third", 3)] {
        assert!(fs::read(client.mountpoint().join(name)).unwrap() == content(seed, FILE_BYTES), "{name}");
    }
    end(&site);
}

/// Nothing could be computed of it: whoever writes it flushes it before the owner counts on it (P-295).
#[test]
fn what_has_no_parity_does_not_pass_the_owner_either() {
    let Some(site) = site("what_has_no_parity_does_not_pass_the_owner_either", 2, "copies=1") else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    fs::create_dir(owner.mountpoint().join("striped")).unwrap();
    owner.ok("policy set mount/striped parity=5+0");
    for (number, directory) in [(1, "."), (2, "striped")] {
        let heard = writes_past_owner(&site, &format!("{directory}/first"), &content(number, FILE_BYTES));
        println!("of {FILE_BYTES} bytes in {directory} the owner's host sent and got {heard}");
        assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
        assert!(fs::read(owner.mountpoint().join(directory).join("first")).unwrap() == content(number, FILE_BYTES));
    }
    // A file of one copy lies whole on one device, as if the owner had written it (P-17).
    let told = owner.ok("where mount/first");
    let devices: BTreeSet<&str> =
        told.lines().filter_map(|line| line.split_once("survives 0: ")?.1.split_whitespace().next()).collect();
    assert_eq!(devices.len(), 1, "{told}");
    // What goes to a node that falls silent goes to another one, and what was written before waits for it.
    let files = ["second", "striped/second"].map(|name| File::create(client.mountpoint().join(name)).unwrap());
    let bytes = content(3, FILE_BYTES);
    for (index, piece) in bytes.chunks(MIB).enumerate() {
        if index == 6 {
            site.network().cut(1);
        }
        files.iter().for_each(|file| file.write_all_at(piece, (index * MIB) as u64).unwrap());
    }
    files.iter().for_each(|file| file.sync_all().unwrap());
    drop(files);
    assert_ne!(owner.run("status lab").code, 0, "a node is away");
    write(client, "third", &content(4, FILE_BYTES));
    assert!(fs::read(owner.mountpoint().join("third")).unwrap() == content(4, FILE_BYTES));
    site.network().mend(1);
    until("a healthy pool", || owner.run("status lab").code == 0);
    for machine in [client, owner] {
        for name in ["second", "striped/second"] {
            assert!(fs::read(machine.mountpoint().join(name)).unwrap() == bytes, "{name}");
        }
    }
    end(&site);
}

/// P-297: plugins have content on the machine that writes and reads it; those that fail, and machines that have none yet, ask the owner.
#[test]
fn what_has_plugins_passes_the_owner() {
    let Some(site) = site("what_has_plugins_passes_the_owner", 3, "parity=4+1") else { return };
    let [owner, client, other] = &site.machines[..] else { panic!("three machines") };
    let rotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    fs::copy(rotate, owner.path("rotate.wat")).unwrap();
    fs::write(owner.path("own.wat"), crate::plugins::PLUGIN).unwrap();
    owner.ok("plugin add lab rotate rotate.wat");
    owner.ok("plugin add lab own own.wat");
    for (name, policy) in [("turned", "plugins=rotate:13 compress=zstd"), ("own", "plugins=own,rotate:7")] {
        fs::create_dir(owner.mountpoint().join(name)).unwrap();
        owner.ok(&format!("policy set mount/{name} {policy}"));
    }
    // Warm: nodes are open, and encoding is known.
    writes_past_owner(&site, "plain", &content(9, FILE_BYTES));
    // The machine has no module yet: the owner encodes, and the machine asks for it meanwhile.
    for name in ["turned/zero", "own/zero"] {
        write(client, name, &content(1, 4 * MIB));
    }
    std::thread::sleep(Duration::from_secs(3));
    for (name, seed) in [("turned/first", 2), ("own/first", 3)] {
        let heard = writes_past_owner(&site, name, &content(seed, FILE_BYTES));
        println!("{name}: of {FILE_BYTES} bytes the owner's host sent and got {heard}");
        assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    }
    // Nothing of it lies on a node as it is.
    let part = content(2, FILE_BYTES)[5 * MIB..5 * MIB + 64].to_vec();
    assert!(!site.nodes.iter().any(|node| is_in(&node.image(), &part)), "content lies on a node as it is");
    let all = [
        ("turned/zero", 1, 4 * MIB),
        ("own/zero", 1, 4 * MIB),
        ("turned/first", 2, FILE_BYTES),
        ("own/first", 3, FILE_BYTES),
    ];
    for machine in [owner, other] {
        for (name, seed, length) in all {
            assert!(fs::read(machine.mountpoint().join(name)).unwrap() == content(seed, length), "{name}");
        }
    }
    // Read again from the nodes, when the modules are there.
    other.ok("umount mount");
    other.ok("mount lab mount -o nostandby");
    until("a read past the owner", || {
        other.ok("umount mount");
        other.ok("mount lab mount -o nostandby");
        fs::read(other.mountpoint().join("own/zero")).unwrap();
        fs::read(other.mountpoint().join("turned/zero")).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let before = traffic(&site, 0);
        for (name, seed) in [("turned/first", 2), ("own/first", 3)] {
            assert!(fs::read(other.mountpoint().join(name)).unwrap() == content(seed, FILE_BYTES), "{name}");
        }
        traffic(&site, 0) - before < FILE_BYTES as u64 / 20
    });
    // One of several records that a plugin does not take: what is answered is kept, and said to be lost; the rest stays.
    let mut refused = content(4, 4 * MIB);
    refused[2 * MIB] = b'X';
    let file = File::create(client.mountpoint().join("own/refused")).unwrap();
    let written = write_all_of(&file, &refused);
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EIO), "the plugin traps");
    drop(file);
    assert!(fs::read(client.mountpoint().join("own/first")).unwrap() == content(3, FILE_BYTES));
    owner.ok("policy set mount/own plugins=none");
    write(client, "own/second", &refused);
    assert!(fs::read(owner.mountpoint().join("own/second")).unwrap() == refused);
    end(&site);
}

/// Writes and syncs, if it can.
fn write_all_of(file: &File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// P-296: each key is where it was unlocked, and with it content passes the owner.
#[test]
fn what_is_encrypted_passes_where_its_key_is_unlocked() {
    let Some(site) = site("what_is_encrypted_passes_where_its_key_is_unlocked", 3, "parity=4+1") else { return };
    let [owner, client, other] = &site.machines[..] else { panic!("three machines") };
    for machine in [owner, client] {
        fs::write(machine.path("keyfile"), [7_u8; 64]).unwrap();
    }
    owner.ok("key create lab family --key-file keyfile");
    fs::create_dir(owner.mountpoint().join("vault")).unwrap();
    owner.ok("policy set mount/vault encrypt=yes compress=zstd");
    // Warm: nodes are open, and encoding is known.
    writes_past_owner(&site, "plain", &content(9, FILE_BYTES));
    let heard_for = |name: &str, seed: u64| {
        let before = traffic(&site, 0);
        write(client, name, &content(seed, FILE_BYTES));
        traffic(&site, 0) - before
    };
    let heard = heard_for("vault/first", 1);
    println!("without the key: of {FILE_BYTES} bytes the owner's host sent and got {heard}");
    assert!(heard > FILE_BYTES as u64, "{heard}");
    client.ok("key unlock lab --key-file keyfile");
    let heard = writes_past_owner(&site, "vault/second", &content(2, FILE_BYTES));
    println!("with it: {heard}");
    assert!(heard < FILE_BYTES as u64 / 50, "{heard}");
    // Nothing of it lies on a node in the clear, and what every machine reads is right.
    let part = content(2, FILE_BYTES)[5 * MIB..5 * MIB + 64].to_vec();
    assert!(!site.nodes.iter().any(|node| is_in(&node.image(), &part)), "content lies on a node as it is");
    for machine in [owner, client, other] {
        for (name, seed) in [("first", 1), ("second", 2)] {
            assert!(fs::read(machine.mountpoint().join("vault").join(name)).unwrap() == content(seed, FILE_BYTES));
        }
    }
    // Read again from the nodes, by the machine with the key and by one without.
    for (machine, is_past) in [(client, true), (other, false)] {
        machine.ok("umount mount");
        machine.ok("mount lab mount -o nostandby");
        if is_past {
            machine.ok("key unlock lab --key-file keyfile");
        }
        until("open nodes", || {
            let before = traffic(&site, 0);
            forget_cache();
            assert!(fs::read(machine.mountpoint().join("plain")).unwrap() == content(9, FILE_BYTES));
            traffic(&site, 0) - before < FILE_BYTES as u64 / 20
        });
        let before = traffic(&site, 0);
        assert!(fs::read(machine.mountpoint().join("vault/second")).unwrap() == content(2, FILE_BYTES));
        let heard = traffic(&site, 0) - before;
        println!("read with the key unlocked there {is_past}: {heard}");
        assert_eq!(heard < FILE_BYTES as u64 / 20, is_past, "{heard}");
    }
    // Locked at the owner it is of no use anywhere, and is wiped on the machine that had it.
    owner.ok("key lock lab");
    let refused = fs::read(client.mountpoint().join("vault/second")).err().and_then(|error| error.raw_os_error());
    assert!(matches!(refused, Some(libc::ENOKEY | libc::ENOENT)), "{refused:?}");
    std::thread::sleep(Duration::from_secs(11));
    owner.ok("key unlock lab --key-file keyfile");
    let heard = heard_for("vault/third", 3);
    println!("with the key wiped: {heard}");
    assert!(heard > FILE_BYTES as u64, "{heard}");
    for (name, seed) in [("second", 2), ("third", 3)] {
        assert!(fs::read(other.mountpoint().join("vault").join(name)).unwrap() == content(seed, FILE_BYTES), "{name}");
    }
    // Nobody has looked at anything yet: there is nothing for kernels to forget. Then with the key file at the mount.
    for option in [String::new(), format!(",keyfile={}", client.path("keyfile").display())] {
        site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
        owner.ok("mount lab mount");
        client.ok(&format!("mount lab mount -o nostandby{option}"));
        if option.is_empty() {
            client.ok("key unlock lab --key-file keyfile");
        }
        until("an unlocked key", || fs::metadata(client.mountpoint().join("vault/second")).is_ok());
        assert!(fs::read(client.mountpoint().join("vault/second")).unwrap() == content(2, FILE_BYTES), "{option}");
        other.ok("mount lab mount -o nostandby");
    }
    end(&site);
}

/// Whether a file has these bytes somewhere.
fn is_in(path: &std::path::Path, bytes: &[u8]) -> bool {
    let content = fs::read(path).unwrap();
    content.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn an_owner_that_dies_under_writers_is_followed() {
    follow_owner("an_owner_that_dies_under_writers_is_followed", "parity=4+1");
}

#[test]
fn an_owner_that_dies_under_writers_without_parity_is_followed() {
    follow_owner("an_owner_that_dies_under_writers_without_parity_is_followed", "copies=1");
}

fn follow_owner(test: &str, policy: &str) {
    let links = Links { nodes: &FAST, machines: &FAST[..3], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let [first, second, client]: [&World; 3] = [&site.machines[0], &site.machines[1], &site.machines[2]];
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    first.ok(&format!("policy set mount {policy}"));
    second.ok("mount lab mount --standby");
    client.ok("mount lab mount -o nostandby");
    write(client, "warm", &content(9, 8 * MIB));
    std::thread::sleep(Duration::from_secs(2));
    let owner = owner_process(first).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        signal(owner, libc::SIGKILL);
    });
    // Some synced, some not; the owner dies in between.
    for number in 0..6 {
        let file = File::create(client.mountpoint().join(format!("file{number}"))).unwrap();
        write_in_pieces(&file, 0, &content(number, 8 * MIB));
        if number % 2 == 0 {
            file.sync_all().unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    killer.join().unwrap();
    for number in 0..6 {
        let path = client.mountpoint().join(format!("file{number}"));
        assert!(fs::read(path).unwrap() == content(number, 8 * MIB), "file {number}");
    }
    client.ok("umount mount");
    for number in 0..6 {
        let path = second.mountpoint().join(format!("file{number}"));
        assert!(fs::read(path).unwrap() == content(number, 8 * MIB), "file {number} at the next owner");
    }
    for machine in [second, first] {
        take_away(machine);
    }
}

/// A machine that stops in the middle of writing delays others until its session is over, and harms nobody when it goes on.
#[test]
fn a_writer_that_stood_still_harms_nobody() {
    let Some(site) = site("a_writer_that_stood_still_harms_nobody", 3, "copies=2") else { return };
    let [owner, client, other] = &site.machines[..] else { panic!("three machines") };
    writes_past_owner(&site, "warm", &content(9, FILE_BYTES));
    let process = client.find_daemon().unwrap();
    let writer = std::thread::spawn({
        let path = client.mountpoint().join("stopped");
        move || {
            let file = File::create(path).unwrap();
            // Until the machine stops, and then until it goes on; what comes of it nobody promised.
            for (index, piece) in content(1, 64 * MIB).chunks(MIB).enumerate() {
                if file.write_all_at(piece, (index * MIB) as u64).is_err() {
                    return false;
                }
            }
            file.sync_all().is_ok()
        }
    });
    std::thread::sleep(Duration::from_millis(150));
    signal(process, libc::SIGSTOP);
    let begun = Instant::now();
    let seen = fs::read(other.mountpoint().join("stopped")).unwrap();
    println!("{} bytes of a machine that stands still were read after {:?}", seen.len(), begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    // Others use the room meanwhile.
    for number in 0..4 {
        write(other, &format!("file{number}"), &content(10 + number, FILE_BYTES));
    }
    fs::remove_file(other.mountpoint().join("file0")).unwrap();
    // Its session is over by then.
    std::thread::sleep(Duration::from_secs(14).saturating_sub(begun.elapsed()));
    signal(process, libc::SIGCONT);
    let is_synced = writer.join().unwrap();
    let read = fs::read(owner.mountpoint().join("stopped")).unwrap();
    println!("after it went on: synced {is_synced}, {} bytes", read.len());
    if is_synced {
        assert!(read == content(1, 64 * MIB), "what was synced is there");
    }
    for number in 1..4 {
        let path = owner.mountpoint().join(format!("file{number}"));
        assert!(fs::read(path).unwrap() == content(10 + number, FILE_BYTES), "file {number}");
    }
    end(&site);
}
