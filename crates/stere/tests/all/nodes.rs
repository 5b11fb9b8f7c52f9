//! Pools on devices of other machines, by NBD, with the real binary on a real mount (P-233 to P-235): three servers, nodes that die, stand still, are
//! cut off, come back with an older disk, or lie. Needs root and /dev/fuse, and says loudly when it skips. Read next: `support/nodes.rs`.

use crate::elsewhere::Elsewhere;
use crate::node_servers::{Kind, Node, is_installed};
use crate::site::Synced;
use crate::support;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::tier::until;
use support::{World, can_mount};

const NODE_BYTES: u64 = 256 << 20;
/// A node that falls silent delays a call by the deadline, which is five seconds, and what a busy machine adds.
const CALL_MAX: Duration = Duration::from_secs(6);

/// A pool on so many nodes, mounted.
fn pool_of(test: &str, kind: Kind, count: usize) -> Option<(Vec<Node>, World)> {
    if !can_mount(test) {
        return None;
    }
    let world = World::new();
    let node = |number: usize| Node::start(test, kind, &world.folder, &format!("n{number}"), NODE_BYTES);
    let nodes: Vec<Node> = (1..=count).map(node).collect::<Option<_>>()?;
    create(&world, &nodes);
    // The mount ends before its nodes do, also where a test fails.
    Some((nodes, world))
}

fn create(world: &World, nodes: &[Node]) {
    let devices: Vec<String> = nodes.iter().map(Node::device).collect();
    world.ok(&format!("create tank {}", devices.join(" ")));
    world.ok("mount tank mount");
}

/// Writes synced files for so long.
fn go_on(synced: &mut Synced, world: &World, name: &str, how_long: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < how_long {
        synced.write(world, name).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn assert_right(synced: &Synced, world: &World) {
    support::tier::forget_cache();
    synced.assert_right(world);
}

fn state_of(world: &World, device: &str) -> (String, String) {
    let status = world.json("status tank --json");
    let devices = status["devices"].as_array().unwrap();
    let found = devices.iter().find(|one| one["name"] == device).unwrap();
    (found["state"].as_str().unwrap().to_owned(), found["why"].as_str().unwrap_or_default().to_owned())
}

fn is_healthy(world: &World) -> bool {
    let status = world.json("status tank --json");
    status["state"] == "healthy"
}

fn works_with(test: &str, kind: Kind) {
    let Some((mut nodes, world)) = pool_of(test, kind, 3) else { return };
    let mut written = Synced::default();
    go_on(&mut written, &world, "one", Duration::from_millis(500));
    // Freed room is told to the servers, and a rewrite finds it.
    fs::write(world.mountpoint().join("large"), vec![7; 40_000_000]).unwrap();
    fs::remove_file(world.mountpoint().join("large")).unwrap();
    world.ok("umount mount");
    world.ok("check tank");
    world.ok("mount tank mount");
    assert_right(&written, &world);
    // A server that is started again is the same node.
    nodes[1].kill();
    go_on(&mut written, &world, "two", Duration::from_secs(1));
    assert_eq!(state_of(&world, "n2").0, "silent");
    nodes[1].start_again();
    until("its return", || is_healthy(&world));
    assert!(written.longest < CALL_MAX, "{:?}", written.longest);
    // Each loss is borne again.
    nodes[0].kill();
    assert_right(&written, &world);
    nodes[0].start_again();
    until("its return", || is_healthy(&world));
    world.ok("umount mount");
    world.ok("check tank");
}

#[test]
fn a_pool_is_on_nodes_of_nbdkit() {
    works_with("a_pool_is_on_nodes_of_nbdkit", Kind::Nbdkit);
}

/// P-246: their exports are made by `size=`.
#[test]
fn a_pool_is_on_nodes_of_stere() {
    works_with("a_pool_is_on_nodes_of_stere", Kind::Stere);
}

#[test]
fn a_pool_is_on_nodes_of_qemu() {
    works_with("a_pool_is_on_nodes_of_qemu", Kind::QemuNbd);
}

/// P-233: a node that stands still delays an fsync by the deadline at most; `status` says so; it is caught up when it goes on.
#[test]
fn a_node_that_stands_still_delays_nobody_for_long() {
    stands_still("a_node_that_stands_still_delays_nobody_for_long", Kind::Nbdkit);
}

/// P-233: the same of stere itself.
#[test]
fn a_stere_node_that_stands_still_delays_nobody_for_long() {
    stands_still("a_stere_node_that_stands_still_delays_nobody_for_long", Kind::Stere);
}

fn stands_still(test: &str, kind: Kind) {
    let Some((nodes, world)) = pool_of(test, kind, 4) else { return };
    let mut written = Synced::default();
    go_on(&mut written, &world, "before", Duration::from_millis(300));
    nodes[2].pause(true);
    go_on(&mut written, &world, "during", Duration::from_secs(9));
    assert!(written.longest < CALL_MAX, "{:?}", written.longest);
    let (state, why) = state_of(&world, "n3");
    assert!(state == "silent" && why.contains("has not answered"), "{state}: {why}");
    let said = world.run("status tank");
    assert!(said.code != 0 && said.out.contains("device n3: it has not answered"), "{}", said.out);
    nodes[2].pause(false);
    until("its return", || is_healthy(&world));
    world.ok("umount mount");
    world.ok("check tank");
    // What was caught up is there without any other one.
    world.ok("mount tank mount");
    nodes[0].pause(true);
    assert_right(&written, &world);
    nodes[0].pause(false);
    until("its return", || is_healthy(&world));
    world.ok("umount mount");
}

/// P-20: a node that is away is nothing to fall back on, also before anybody has written without it.
#[test]
fn what_an_idle_pool_survives_counts_no_node_that_is_away() {
    let Some((mut nodes, world)) = pool_of("what_an_idle_pool_survives_counts_no_node_that_is_away", Kind::Nbdkit, 2)
    else {
        return;
    };
    let mut written = Synced::default();
    go_on(&mut written, &world, "before", Duration::from_millis(300));
    assert_eq!(world.json("status tank --json")["survives"], 1);
    nodes[1].kill();
    until("a node that is away", || state_of(&world, "n2").0 == "silent");
    let status: serde_json::Value = serde_json::from_str(&world.run("status tank --json").out).unwrap();
    assert_eq!((&status["survives"], &status["lost_files"]), (&0.into(), &serde_json::json!([])), "{status}");
    nodes[1].start_again();
    until("its return", || is_healthy(&world));
    world.ok("umount mount");
}

/// P-233: the same where the network is cut, also while nothing is asked of it.
#[test]
fn a_node_that_is_cut_off_delays_nobody_for_long() {
    let test = "a_node_that_is_cut_off_delays_nobody_for_long";
    if !can_mount(test) {
        return;
    }
    let Some(elsewhere) = Elsewhere::new(test) else { return };
    let world = World::new();
    let place = (elsewhere.address.as_str(), Some(elsewhere.name.as_str()));
    let far = Node::start_at(test, Kind::Nbdkit, &world.folder, ("far", NODE_BYTES), place);
    let near = |name: &str| Node::start(test, Kind::Nbdkit, &world.folder, name, NODE_BYTES);
    let (Some(far), Some(one), Some(two)) = (far, near("one"), near("two")) else { return };
    let (nodes, world) = ([far, one, two], world);
    create(&world, &nodes);
    let mut written = Synced::default();
    let rounds = std::env::var("STERE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        go_on(&mut written, &world, &format!("before{round}-"), Duration::from_millis(300));
        elsewhere.pull_the_cable(true);
        go_on(&mut written, &world, &format!("during{round}-"), Duration::from_secs(8));
        assert_eq!(state_of(&world, "far").0, "silent");
        elsewhere.pull_the_cable(false);
        until("its return", || is_healthy(&world));
        assert_right(&written, &world);
        for name in written.names.drain(..) {
            fs::remove_file(world.mountpoint().join(name)).unwrap();
        }
    }
    go_on(&mut written, &world, "after", Duration::from_millis(300));
    println!("{rounds} times cut off, longest call {:?}", written.longest);
    assert!(written.longest < CALL_MAX, "{:?}", written.longest);
    assert_right(&written, &world);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-235: a node that comes back with the disk of yesterday is not believed; the right one is, and so is one that was looked at as a whole.
#[test]
fn a_node_with_an_older_disk_is_not_believed() {
    let Some((mut nodes, world)) = pool_of("a_node_with_an_older_disk_is_not_believed", Kind::Nbdkit, 3) else {
        return;
    };
    let mut written = Synced::default();
    go_on(&mut written, &world, "old", Duration::from_millis(500));
    nodes[1].kill();
    fs::copy(nodes[1].image(), world.path("yesterday")).unwrap();
    nodes[1].start_again();
    until("its return", || is_healthy(&world));
    go_on(&mut written, &world, "new", Duration::from_millis(1500));
    nodes[1].kill();
    fs::rename(nodes[1].image(), world.path("today")).unwrap();
    fs::copy(world.path("yesterday"), nodes[1].image()).unwrap();
    nodes[1].start_again();
    until("it to be told", || state_of(&world, "n2").1.contains("older"));
    go_on(&mut written, &world, "newer", Duration::from_millis(500));
    assert_right(&written, &world);
    nodes[1].kill();
    fs::rename(world.path("today"), nodes[1].image()).unwrap();
    nodes[1].start_again();
    until("its return", || is_healthy(&world));
    assert_right(&written, &world);
    world.ok("umount mount");
    world.ok("check tank");
}

/// Wrong bytes from a node are found, counted and written right again.
#[test]
fn a_node_that_gives_wrong_bytes_is_found_out() {
    let Some((nodes, world)) = pool_of("a_node_that_gives_wrong_bytes_is_found_out", Kind::Nbdkit, 2) else { return };
    let mut written = Synced::default();
    go_on(&mut written, &world, "file", Duration::from_secs(2));
    world.ok("umount mount");
    // Past the superblocks; every second block.
    let mut image = fs::OpenOptions::new().read(true).write(true).open(nodes[0].image()).unwrap();
    for at in (32 << 20..NODE_BYTES).step_by(64 << 10) {
        let mut block = [0; 4096];
        image.seek(SeekFrom::Start(at)).unwrap();
        image.read_exact(&mut block).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            block.iter_mut().for_each(|byte| *byte ^= 0x55);
            image.seek(SeekFrom::Start(at)).unwrap();
            image.write_all(&block).unwrap();
        }
    }
    world.ok("mount tank mount");
    assert_right(&written, &world);
    let scrubbed = world.run("scrub start tank --wait");
    assert!(scrubbed.code == 0, "{}{}", scrubbed.out, scrubbed.err);
    let status = world.json("status tank --json");
    let errors = status["devices"][0]["checksum_errors"].as_u64().unwrap();
    assert!(errors > 0, "{status}");
    assert_right(&written, &world);
    world.ok("umount mount");
    world.ok("check tank");
}

fn openssl(folder: &Path, line: &str) {
    let said = Command::new("openssl").args(line.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(said.status.success(), "{line}: {}", String::from_utf8_lossy(&said.stderr));
}

/// Over TLS, with a certificate of our own that the server asks for; who has none, or trusts another authority, is refused.
#[test]
fn nodes_are_reached_by_tls() {
    let test = "nodes_are_reached_by_tls";
    if !can_mount(test) || !is_installed(test, "openssl") {
        return;
    }
    let world = World::new();
    let tls = world.path("tls");
    fs::create_dir(&tls).unwrap();
    fs::write(tls.join("names"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").unwrap();
    for authority in ["ca", "other"] {
        openssl(
            &tls,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={authority} -keyout {authority}-key.pem -out {authority}-cert.pem"
            ),
        );
    }
    for who in ["server", "client"] {
        openssl(&tls, &format!("req -newkey rsa:2048 -nodes -subj /CN={who} -keyout {who}-key.pem -out {who}.csr"));
        openssl(
            &tls,
            &format!(
                "x509 -req -in {who}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out {who}-cert.pem"
            ),
        );
    }
    let node = |name: &str| Node::start(test, Kind::NbdkitTls, &world.folder, name, NODE_BYTES);
    let (Some(mut one), Some(two)) = (node("one"), node("two")) else { return };
    let world = world;
    let device = |node: &Node, ca: &str| format!("{},ca={}", node.place(), tls.join(ca).display());
    world.refused(&format!("create tank {}", device(&one, "other-cert.pem")), 1, &["cannot be reached", "certificate"]);
    world.refused(&format!("create tank {}", one.place()), 2, &["ca=FILE is missing"]);
    let plain = one.place().replace("nbds://", "nbd://");
    world.refused(&format!("create tank {plain}"), 1, &["asks for TLS"]);
    world.ok(&format!("create tank {},name=one {},name=two", device(&one, "ca-cert.pem"), device(&two, "ca-cert.pem")));
    world.ok("mount tank mount");
    let mut written = Synced::default();
    go_on(&mut written, &world, "file", Duration::from_secs(1));
    fs::write(world.mountpoint().join("large"), vec![7; 20_000_000]).unwrap();
    one.kill();
    go_on(&mut written, &world, "more", Duration::from_millis(500));
    one.start_again();
    until("its return", || is_healthy(&world));
    assert_right(&written, &world);
    assert!(fs::read(world.mountpoint().join("large")).unwrap() == vec![7; 20_000_000]);
    world.ok("umount mount");
    world.ok("check tank");
}

/// Wrong addresses, wrong exports and nodes that cannot be used are refused with what to do, and nothing is changed.
#[test]
fn what_is_no_node_is_refused() {
    let test = "what_is_no_node_is_refused";
    if !can_mount(test) {
        return;
    }
    let world = World::new();
    let Some(node) = Node::start(test, Kind::QemuNbd, &world.folder, "n1", NODE_BYTES) else { return };
    let place = node.place();
    let before = fs::read(node.image()).unwrap();
    world.refused(&format!("create tank {}", place.replace("/disk", "/other")), 1, &["no such export"]);
    world.refused(&format!("create tank {place},size=1G"), 2, &["leave out size="]);
    world.refused("create tank nbd://127.0.0.1:1/disk", 1, &["cannot be reached", "refused"]);
    world.refused("create tank nbd:///disk", 2, &["no host"]);
    world.refused(&format!("create tank {place} {place}"), 1, &["same device"]);
    assert!(fs::read(node.image()).unwrap() == before, "what is refused changes nothing");
    // Somebody's data is not written over.
    fs::write(node.image(), vec![5; NODE_BYTES as usize]).unwrap();
    world.refused(&format!("create tank {place}"), 1, &["unknown data"]);
    world.ok(&format!("create tank {place} --force"));
    world.refused("mount nbd://127.0.0.1:1/disk mount", 1, &["cannot be reached"]);
    world.ok(&format!("mount {place} mount"));
    world.ok("umount mount");
}

/// P-157: a pool on nodes that one machine has mounted is refused on another that reaches them.
#[test]
fn two_machines_do_not_write_to_the_same_nodes() {
    let test = "two_machines_do_not_write_to_the_same_nodes";
    let Some((nodes, world)) = pool_of(test, Kind::Nbdkit, 2) else { return };
    let places: Vec<String> = nodes.iter().map(Node::place).collect();
    let other = World::new();
    // Another machine is another state; it is told apart by the kernel's id of the boot, so this one is taken for a second daemon at least.
    let said = other.run(&format!("mount {} mount", places.join(" ")));
    assert!(said.code != 0, "{}", said.out);
    assert!(said.err.contains("in use"), "{}", said.err);
    fs::write(world.mountpoint().join("file"), b"kept").unwrap();
    world.ok("umount mount");
    other.ok(&format!("mount {} mount", places.join(" ")));
    assert_eq!(fs::read(other.mountpoint().join("file")).unwrap(), b"kept");
    other.ok("umount mount");
}
