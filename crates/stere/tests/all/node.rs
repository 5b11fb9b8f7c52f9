//! `stere node serve` with the real binary (P-245 to P-247): owners that were replaced, names that are wrong, a file system that is full, a folder
//! of another pool. Needs root and /dev/fuse, and says loudly when it skips. How pools live with nodes that die is in `nodes.rs`.

use crate::cable::Cable;
use crate::node_servers::{Kind, Node, is_installed};
use crate::site::{Synced, signal, take_away};
use crate::support::tier::{forget_cache, until};
use crate::support::{World, can_mount};

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const NODE_BYTES: u64 = 256 << 20;

fn nodes_in(test: &str, folder: &Path, count: usize) -> Vec<Node> {
    (1..=count)
        .map(|number| Node::start(test, Kind::Stere, folder, &format!("n{number}"), NODE_BYTES).unwrap())
        .collect()
}

fn devices(nodes: &[Node]) -> String {
    nodes.iter().map(Node::device).collect::<Vec<_>>().join(" ")
}

fn places(nodes: &[Node]) -> String {
    nodes.iter().map(Node::place).collect::<Vec<_>>().join(" ")
}

/// A node for a machine that reaches it by a cable.
fn behind_a_cable(node: &Node) -> (Cable, String) {
    let cable = Cable::to(([127, 0, 0, 1], node.port).into());
    let line = node.device().replace(&format!(":{}/", node.port), &format!(":{}/", cable.address.port()));
    assert_ne!(line, node.device());
    (cable, line)
}

/// A daemon that stood still, and a mount that somebody may wait for, are gone when this is.
struct Ends<'a>(&'a World);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if let Some(daemon) = self.0.find_daemon() {
            signal(daemon, libc::SIGCONT);
            signal(daemon, libc::SIGKILL);
        }
        take_away(self.0);
    }
}

/// P-245: an owner that stood still while another machine took its pool writes nothing to the nodes when it wakes.
#[test]
fn an_owner_that_was_replaced_is_refused_by_the_nodes() {
    let test = "an_owner_that_was_replaced_is_refused_by_the_nodes";
    if !can_mount(test) {
        return;
    }
    let (folder, old, new) = (World::new(), World::new(), World::new());
    let nodes = nodes_in(test, &folder.folder, 3);
    let (cables, lines): (Vec<Cable>, Vec<String>) = nodes.iter().map(behind_a_cable).unzip();
    old.ok(&format!("create tank {}", lines.join(" ")));
    old.ok("mount tank mount");
    let ends = Ends(&old);
    let mut kept = Synced::default();
    (0..10).for_each(|_| kept.write(&old, "kept").unwrap());
    new.ok(&format!("pool import {}", places(&nodes)));
    // It always has writes on their way: of a stream, too, for those that sync may all be waiting for one answer. A process of its own: children of this one would close its files on the mount, and wait for
    // whoever stands still.
    let acknowledged = folder.path("acknowledged");
    let mut writer = Command::new("sh");
    let loops = "for k in 1 2 3 4; do \
        (n=$k; while echo $n > $0/late$n && sync $0/late$n; do echo $n; n=$((n+4)); done) & done; \
        (while dd if=/dev/urandom of=$0/stream bs=64k count=160 conv=notrunc,fsync 2>/dev/null; do :; done) & wait";
    writer.args(["-c", loops]);
    writer.arg(old.mountpoint()).stdout(fs::File::create(&acknowledged).unwrap()).stderr(Stdio::null());
    let mut writer = writer.spawn().unwrap();
    until("the old owner to sync", || fs::metadata(&acknowledged).unwrap().len() > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    // From now on what it writes stays in the cables.
    cables.iter().for_each(Cable::cut);
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(old.daemon(), libc::SIGSTOP);
    new.ok("mount tank mount");
    let mut synced = Synced::default();
    (0..20).for_each(|_| synced.write(&new, "new").unwrap());
    let refusals = || nodes.iter().filter(|node| node.log().contains("an older owner is refused")).count();
    assert_eq!(refusals(), 0);
    cables.iter().for_each(Cable::mend);
    until("a refusal", || refusals() > 0);
    signal(old.daemon(), libc::SIGCONT);
    (0..20).for_each(|_| synced.write(&new, "new").unwrap());
    drop(writer.kill());
    writer.wait().unwrap();
    drop(ends);
    forget_cache();
    [&kept, &synced].iter().for_each(|written| written.assert_right(&new));
    let late = fs::read_to_string(acknowledged).unwrap();
    assert!(late.lines().count() > 0, "the old owner had synced files");
    for number in late.lines() {
        assert_eq!(fs::read_to_string(new.mountpoint().join(format!("late{number}"))).unwrap(), format!("{number}\n"));
    }
    assert_eq!(new.json("status tank --json")["state"], "healthy");
    new.ok("umount mount");
    new.ok("check tank");
}

/// P-246: nothing is made of a wrong name, and a plain client sees what was made of a right one.
#[test]
fn exports_are_made_by_size_under_plain_names() {
    let test = "exports_are_made_by_size_under_plain_names";
    let world = World::new();
    let mut nodes = nodes_in(test, &world.folder, 1);
    let root = nodes[0].place().strip_suffix("disk").unwrap().to_owned();
    for name in ["../x", ".x", "a/b", "", &"a".repeat(256)] {
        world.refused(&format!("create tank {root}{name},size=128M"), 2, &["is no address", "letters"]);
    }
    world.refused(&format!("create tank {root}disk,size=1000"), 1, &["multiple of 4096"]);
    world.refused(&format!("create tank {root}disk"), 1, &["no such export", "size="]);
    world.refused(&format!("node serve {}", nodes[0].directory().display()), 2, &["--listen"]);
    let twice = format!("node serve {} --listen 127.0.0.1:0", nodes[0].directory().display());
    world.refused(&twice, 1, &["served by another process"]);
    let listed =
        || fs::read_dir(nodes[0].directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(listed(), [".stere-node"]);
    world.ok(&format!("create tank {}", nodes[0].device()));
    assert_eq!(fs::metadata(nodes[0].image()).unwrap().len(), NODE_BYTES);
    world.refused(&format!("create other {root}disk,size=128M"), 1, &["has 268435456 bytes"]);
    // A pool that is made anew on what another one had.
    world.ok(&format!("create other {} --force --yes", nodes[0].device()));
    world.refused(&format!("create third {}", nodes[0].place().replace("stere://", "nbd://")), 1, &["other"]);
    if is_installed(test, "qemu-img") {
        let plain = nodes[0].place().replace("stere://", "nbd://");
        let said = Command::new("qemu-img").args(["info", &plain]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success() && text.contains("256 MiB"), "{text}{}", String::from_utf8_lossy(&said.stderr));
    }
    assert_eq!(nodes[0].end(), Some(0));
}

/// P-247: a node whose file system is full is a device that fails; the pool goes on with the others.
#[test]
fn a_node_whose_file_system_is_full_is_a_device_that_fails() {
    let test = "a_node_whose_file_system_is_full_is_a_device_that_fails";
    if !can_mount(test) {
        return;
    }
    let world = World::new();
    let full = world.path("n1");
    fs::create_dir(&full).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "tmpfs"]).arg(&full).status().unwrap();
    assert!(mounted.success());
    let nodes = nodes_in(test, &world.folder, 3);
    world.ok(&format!("create tank {}", devices(&nodes)));
    world.ok("mount tank mount");
    let mut synced = Synced::default();
    (0..200).for_each(|_| synced.write(&world, "a").unwrap());
    let large = vec![7; 60 << 20];
    fs::write(world.mountpoint().join("large"), &large).unwrap();
    fs::File::open(world.mountpoint().join("large")).unwrap().sync_all().unwrap();
    assert!(nodes[0].log().contains("No space left on device"), "{}", nodes[0].log());
    forget_cache();
    synced.assert_right(&world);
    assert!(fs::read(world.mountpoint().join("large")).unwrap() == large);
    let status = world.run("status tank");
    assert!(status.out.contains("n1"), "{}", status.out);
    world.ok("umount mount");
    drop(nodes);
    drop(Command::new("umount").arg("-l").arg(&full).status());
}

/// P-247: the folder of a pool that is mounted is served by the pool's name.
#[test]
fn a_pool_serves_other_pools() {
    let test = "a_pool_serves_other_pools";
    if !can_mount(test) {
        return;
    }
    let (below, above) = (World::new(), World::new());
    below.ok("create base a.img,size=512M b.img,size=512M");
    below.refused("node serve base --listen 127.0.0.1:0", 1, &["not mounted here"]);
    below.ok("mount base mount");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut serving = below.command(&format!("node serve base --listen 127.0.0.1:{port}")).spawn().unwrap();
    until("the node", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    above.ok(&format!("create tank stere://127.0.0.1:{port}/one,size=128M stere://127.0.0.1:{port}/two,size=128M"));
    above.ok("mount tank mount");
    let mut synced = Synced::default();
    (0..50).for_each(|_| synced.write(&above, "a").unwrap());
    assert!(below.mountpoint().join("node/one").exists());
    above.ok("umount mount");
    above.ok("check tank");
    signal(serving.id() as i32, libc::SIGTERM);
    assert_eq!(serving.wait().unwrap().code(), Some(0));
    below.ok("umount mount");
    below.ok("check base");
}
