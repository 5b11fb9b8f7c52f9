//! What nodes are told (P-282, P-283): keys `node.*` reach the files in which stere nodes keep the data, and are followed there. With the real binary;
//! needs root and /dev/fuse, and says loudly when it skips. Read next: `node.rs`, `docs/design/nodes.md`.

use crate::direct_writes::{content, writes_past_owner};
use crate::network::Link;
use crate::node_servers::{Kind, Node};
use crate::site::{Links, Site};
use crate::support::tier::{forget_cache, until};
use crate::support::{World, can_mount};

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const NODE_BYTES: u64 = 256 << 20;
const MIB: usize = 1 << 20;

/// What is told a file, by key.
fn settings(path: &Path) -> BTreeMap<String, String> {
    let (mut names, mut value) = (vec![0; 4096], vec![0; 4096]);
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names: Vec<String> =
        names[..length].split(|byte| *byte == 0).map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    let keys = names.iter().filter_map(|name| name.strip_prefix("user.stere."));
    keys.map(|key| {
        let length = rustix::fs::getxattr(path, format!("user.stere.{key}"), &mut value[..]).unwrap();
        (key.to_owned(), String::from_utf8(value[..length].to_vec()).unwrap())
    })
    .collect()
}

/// The ranges of a node that were told something.
fn ranges(node: &Node) -> Vec<(PathBuf, BTreeMap<String, String>)> {
    let Ok(entries) = fs::read_dir(node.directory().join("disk.ranges")) else { return Vec::new() };
    let all = entries.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), settings(&path)));
    all.filter(|(_, told)| !told.is_empty()).collect()
}

fn told(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn is_told(node: &Node, pairs: &[(&str, &str)]) -> bool {
    ranges(node).iter().any(|(_, told_here)| *told_here == told(pairs))
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

fn devices(nodes: &[Node]) -> String {
    nodes.iter().map(Node::device).collect::<Vec<_>>().join(" ")
}

/// A node that was away is told when it gets what it missed.
fn a_node_that_was_away_is_told(world: &World, nodes: &mut [Node]) {
    nodes[2].kill();
    until("the node to be missed", || world.json("status tank --json")["state"] != "healthy");
    fs::create_dir(world.mountpoint().join("late")).unwrap();
    world.ok("policy set mount/late copies=3 node.compress=lz4");
    fs::write(world.mountpoint().join("late/file"), bytes(6, 4 * MIB)).unwrap();
    world.ok("flush mount --wait");
    nodes[2].start_again();
    until("the node to be back", || world.json("status tank --json")["state"] == "healthy");
    until("the node to be told", || is_told(&nodes[2], &[("compress", "lz4")]));
}

/// P-283: what is said of a directory, by a rule, or by a class reaches the nodes with the data, and nothing else is told.
#[test]
fn what_nodes_are_told_comes_with_the_data() {
    let test = "what_nodes_are_told_comes_with_the_data";
    if !can_mount(test) {
        return;
    }
    let world = World::new();
    let mut nodes: Vec<Node> =
        (1..=3).map(|n| Node::start(test, Kind::Stere, &world.folder, &format!("n{n}"), NODE_BYTES).unwrap()).collect();
    world.ok(&format!("create tank {}", devices(&nodes)));
    world.ok("mount tank mount");
    let at = |name: &str| world.mountpoint().join(name);
    ["a", "b", "b/c"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    world.ok("policy set mount/a node.compress=zstd node.copies=2");
    fs::write(at("plain"), bytes(1, 2 * MIB)).unwrap();
    world.ok("flush mount --wait");
    assert!(nodes.iter().all(|node| ranges(node).is_empty()), "nobody is told what nobody said");
    fs::write(at("a/file"), bytes(2, 4 * MIB)).unwrap();
    world.ok("flush mount --wait");
    let both = [("compress", "zstd"), ("copies", "2")];
    assert!(nodes.iter().filter(|node| is_told(node, &both)).count() >= 2, "on the nodes of both copies");
    let others = |node: &Node| ranges(node).iter().any(|(_, here)| *here != told(&both));
    assert!(!nodes.iter().any(others), "nothing else is told");
    // It is shown as it is said, by whom, and one by one.
    let explained = world.ok("policy explain mount/a/file");
    assert!(explained.contains("node is compress=zstd,copies=2"), "{explained}");
    assert_eq!(settings(&at("a"))["node.copies"], "2");
    assert_eq!(world.json("policy get mount/a/file --json")["state"], "compliant");
    // The paper's name for it; rules; classes; nearest as a whole.
    rustix::fs::setxattr(at("b"), "user.pvfs.copies", b"3", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(settings(&at("b")), told(&[("node.copies", "3")]));
    world.ok("policy set mount/b rules=*.raw:node.compress=none,node.dedup=yes");
    world.ok("class create tank far node.backup=yes");
    world.ok("policy set mount/b/c class=far");
    fs::write(at("b/x"), bytes(3, MIB)).unwrap();
    fs::write(at("b/x.raw"), bytes(4, MIB)).unwrap();
    fs::write(at("b/c/y"), bytes(5, MIB)).unwrap();
    world.ok("flush mount --wait");
    for pairs in [&[("copies", "3")][..], &[("compress", "none"), ("dedup", "yes")], &[("backup", "yes")]] {
        assert!(nodes.iter().any(|node| is_told(node, pairs)), "{pairs:?}");
    }
    // What is said later is followed by what is stored.
    world.ok("policy set mount/a node.copies=3 --wait");
    until("the nodes to be told", || nodes.iter().any(|node| is_told(node, &[("compress", "zstd"), ("copies", "3")])));
    until("the old to go", || world.json("policy get mount/a/file --json")["state"] == "compliant");
    // What is not understood is refused, and says how it is written.
    world.refused("policy set mount/a node.copies=a;b", 1, &["node.copies cannot be 'a;b'", "compress=zstd|copies=2"]);
    world.refused("policy set mount/a node.=2", 2, &["not a key of policy"]);
    a_node_that_was_away_is_told(&world, &mut nodes);
    // None of this changes a byte, also where nodes are started again.
    world.ok("umount mount");
    nodes.iter_mut().for_each(|node| assert_eq!(node.end(), Some(0)));
    nodes.iter_mut().for_each(Node::start_again);
    world.ok("mount tank mount");
    forget_cache();
    for (name, seed, length) in [
        ("plain", 1, 2 * MIB),
        ("a/file", 2, 4 * MIB),
        ("b/x", 3, MIB),
        ("b/x.raw", 4, MIB),
        ("b/c/y", 5, MIB),
        ("late/file", 6, 4 * MIB),
    ] {
        assert!(fs::read(at(name)).unwrap() == bytes(seed, length), "{name}");
    }
    world.ok("policy unset mount/a node.copies");
    assert_eq!(settings(&at("a")), told(&[("node.compress", "zstd")]));
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-278, P-283: what a machine writes past the owner is for nodes what the owner's own writes are, and they refuse whoever owned it before.
#[test]
fn content_past_the_owner_has_its_settings_too() {
    let links = Links { nodes: &[Link::Fast; 4], machines: &[Link::Fast; 2], ..Links::default() };
    let test = "content_past_the_owner_has_its_settings_too";
    let Some(site) = Site::on_network(test, Kind::Stere, &links) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    owner.ok("policy set mount parity=3+1 node.copies=2");
    client.ok("mount lab mount -o nostandby");
    let bytes = content(1, 24 * MIB);
    let heard = writes_past_owner(&site, "large", &bytes);
    assert!(heard < bytes.len() as u64 / 50, "the owner's host sent and got {heard} bytes");
    let is_told = |node: &&Node| is_told(node, &[("copies", "2")]);
    assert_eq!(site.nodes.iter().filter(is_told).count(), 4, "data and parity");
    forget_cache();
    assert!(fs::read(owner.mountpoint().join("large")).unwrap() == bytes);
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

/// P-283: a node that is a pool stores what it keeps as it is told: its own copies, and its own compression.
#[test]
fn a_node_that_is_a_pool_follows_what_it_is_told() {
    let test = "a_node_that_is_a_pool_follows_what_it_is_told";
    if !can_mount(test) {
        return;
    }
    let (cellar, world) = (World::new(), World::new());
    cellar.ok("create cellar a.img,size=512M,name=a b.img,size=512M,name=b c.img,size=512M,name=c");
    cellar.ok("mount cellar mount");
    cellar.ok("policy set mount copies=1");
    let mut node = Node::start(test, Kind::Stere, &cellar.mountpoint(), "n1", NODE_BYTES).unwrap();
    world.ok(&format!("create tank {}", node.device()));
    world.ok("mount tank mount");
    let at = |name: &str| world.mountpoint().join(name);
    fs::create_dir(at("safe")).unwrap();
    world.ok("policy set mount/safe node.copies=3 node.compress=zstd compress=none");
    let text: Vec<u8> = b"words that are the same, and again ".iter().copied().cycle().take(4 * MIB).collect();
    fs::write(at("safe/file"), &text).unwrap();
    world.ok("flush mount --wait");
    cellar.ok("flush mount --wait");
    let all = ranges(&node);
    assert!(!all.is_empty());
    let fact = |path: &Path, key: &str| {
        let mut value = vec![0; 256];
        let length = rustix::fs::getxattr(path, format!("user.stere.{key}"), &mut value[..]).unwrap();
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    for (path, told_here) in &all {
        assert_eq!(*told_here, told(&[("compress", "zstd"), ("copies", "3")]));
        // On all three disks of the node, and small there.
        assert_eq!(fact(path, "where"), "a b c");
        let stored: u64 = fact(path, "stored").parse().unwrap();
        assert!(stored < MIB as u64 / 2, "{stored} bytes are stored of {}", path.display());
    }
    assert_eq!(fact(&node.directory().join("disk"), "survives"), "0");
    // What the node does not know it says, and keeps the data all the same.
    world.ok("policy set mount/safe node.nonsense=1");
    fs::write(at("safe/other"), bytes(7, MIB)).unwrap();
    world.ok("flush mount --wait");
    until("the node to say so", || node.log().contains("does not take a setting"));
    let status = world.ok("status tank");
    assert!(status.contains("nonsense=1"), "{status}");
    forget_cache();
    assert!(fs::read(at("safe/file")).unwrap() == text);
    assert!(fs::read(at("safe/other")).unwrap() == bytes(7, MIB));
    world.ok("umount mount");
    world.ok("check tank");
    assert_eq!(node.end(), Some(0));
    cellar.ok("umount mount");
    cellar.ok("check cellar");
}

/// P-283: which devices and which plugins are decided on both sides, each by its own names: the pool chooses the node, and the node its disk.
#[test]
fn devices_and_plugins_are_chosen_on_both_sides() {
    let test = "devices_and_plugins_are_chosen_on_both_sides";
    if !can_mount(test) {
        return;
    }
    let (cellar, world) = (World::new(), World::new());
    cellar.ok("create cellar a.img,size=512M,name=a b.img,size=512M,name=b");
    cellar.ok("mount cellar mount");
    cellar.ok("policy set mount copies=1");
    let rotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    cellar.ok(&format!("plugin add cellar rotate {}", rotate.display()));
    let mut node = Node::start(test, Kind::Stere, &cellar.mountpoint(), "n1", NODE_BYTES).unwrap();
    world.ok(&format!("create tank {} near.img,size=256M,name=near", node.device()));
    world.ok("mount tank mount");
    let at = |name: &str| world.mountpoint().join(name);
    for (name, keys) in [("far", "on=n1 node.on=b node.plugins=rotate:3"), ("near", "on=near plugins=none")] {
        fs::create_dir(at(name)).unwrap();
        world.ok(&format!("policy set mount/{name} copies=1 compress=none {keys}"));
        fs::write(at(name).join("file"), bytes(8, 4 * MIB)).unwrap();
    }
    world.ok("flush mount --wait");
    cellar.ok("flush mount --wait");
    // The pool's own choice.
    let devices_of = |name: &str| world.ok(&format!("where mount/{name}/file"));
    assert!(devices_of("far").contains("n1") && !devices_of("far").contains("near"), "{}", devices_of("far"));
    assert!(devices_of("near").contains("near") && !devices_of("near").contains("n1"), "{}", devices_of("near"));
    // And the node's.
    let ranges = ranges(&node);
    assert!(!ranges.is_empty());
    let mut rotated = bytes(8, 4096);
    rotated.iter_mut().for_each(|byte| *byte = byte.wrapping_add(3));
    for (path, told_here) in &ranges {
        assert_eq!(*told_here, told(&[("on", "b"), ("plugins", "rotate:3")]));
        let range = path.strip_prefix(cellar.mountpoint()).unwrap().display();
        let (places, explained) =
            (cellar.ok(&format!("where mount/{range}")), cellar.ok(&format!("policy explain mount/{range}")));
        assert!(places.contains(" b") && !places.contains(" a "), "{places}");
        assert!(explained.contains("plugins is rotate:3"), "{explained}");
    }
    forget_cache();
    assert!(fs::read(at("far/file")).unwrap() == bytes(8, 4 * MIB));
    world.ok("umount mount");
    cellar.ok("umount mount --force");
    // On the node's disk the bytes are what its plugin made of them.
    let has = |image: &str, wanted: &[u8]| {
        let image = fs::read(cellar.path(image)).unwrap();
        image.windows(64).step_by(1).any(|window| window == &wanted[..64])
    };
    assert!(has("b.img", &rotated) && !has("b.img", &bytes(8, 4096)) && !has("a.img", &rotated));
    let _ended = node.end();
}
