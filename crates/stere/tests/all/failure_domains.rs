//! Hosts as failure domains, and hosts that leave a pool (P-275, P-277), with the real binary on images that are labelled. Needs root and
//! /dev/fuse. Read next: `growth.rs`, where hosts are machines.

use std::fs;
use std::io::Write;

use crate::node_servers::{Kind, Node};
use crate::support::tier::{content, until};
use crate::support::{World, can_mount};

const FILES: usize = 20;
const NODE_BYTES: u64 = 128 << 20;

/// Two disks on the host h1 and one on each of h2 and h3, mounted, with files of two copies.
fn four_disks(test: &str) -> Option<World> {
    if !can_mount(test) {
        return None;
    }
    let world = World::new();
    world.ok(
        "create tank a.img,size=128M,host=h1 b.img,size=128M,host=h1 c.img,size=128M,host=h2 d.img,size=128M,host=h3",
    );
    world.ok("mount tank mount");
    fill(&world, "");
    Some(world)
}

fn fill(world: &World, folder: &str) {
    fs::create_dir_all(world.mountpoint().join(folder)).unwrap();
    for number in 0..FILES {
        fs::write(world.mountpoint().join(folder).join(number.to_string()), content(number + 1000)).unwrap();
    }
    world.ok("flush mount --wait");
}

#[track_caller]
fn assert_right(world: &World, folder: &str) {
    for number in 0..FILES {
        let read = fs::read(world.mountpoint().join(folder).join(number.to_string())).unwrap();
        assert!(read == content(number + 1000), "{folder}/{number}");
    }
}

/// The runs of a file, and how many hosts the worst of them survives.
fn places(world: &World, file: &str) -> (serde_json::Value, u64) {
    let runs = world.json(&format!("where mount/{file} --json"));
    let survives = runs.as_array().unwrap().iter().map(|run| run["survives_hosts"].as_u64().unwrap()).min().unwrap();
    (runs, survives)
}

/// P-277: copies are on different hosts where they may be, so a host with two disks is lost without loss; where policy holds them on one host
/// they are lost with it, and that is told.
#[test]
fn the_disks_of_a_host_are_one_failure_domain() {
    let Some(world) = four_disks("the_disks_of_a_host_are_one_failure_domain") else { return };
    let (runs, survives) = places(&world, "7");
    assert_eq!(survives, 1, "{runs:#}");
    assert_eq!(world.json("status tank --json")["survives_hosts"], 1);
    for host in ["h1", "h2", "h3"] {
        let said = world.ok(&format!("lose --host {host}"));
        assert!(said.contains(&format!("without host {host} (")) && said.contains("loses no file"), "{said}");
    }
    assert!(world.ok("lose --host h2 --host h1").contains("without hosts h2, h1 (a, b, c) the pool tank loses"));
    // Held on one host, as two copies on two disks.
    world.ok("device label tank a tag=near");
    world.ok("device label tank b tag=near");
    fs::create_dir(world.mountpoint().join("held")).unwrap();
    world.ok("policy set mount/held only=near");
    fill(&world, "held");
    let (runs, survives) = places(&world, "held/7");
    assert_eq!((runs[0]["survives"].as_u64(), survives), (Some(1), 0), "{runs:#}");
    assert_eq!(runs[0]["hosts"], serde_json::json!(["h1"]), "{runs:#}");
    let shown = world.ok("where mount/held/7");
    assert!(shown.contains("survives 1: ") && shown.contains("(hosts h1: survives 0)"), "{shown}");
    let told = world.json("lose --host h1 --json");
    let files: Vec<&str> =
        told["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(files.len(), FILES, "{files:?}");
    assert!(files.iter().all(|path| path.contains("held/")), "{files:?}");
    assert_eq!(
        (told["hosts"].as_array().unwrap().len(), told["devices"].as_array().unwrap().len()),
        (1, 2),
        "{told:#}"
    );
    for disk in ["a", "b"] {
        assert!(world.ok(&format!("lose {disk}")).contains("loses no file"), "each disk alone may be lost");
    }
    let status = world.json("status tank --json");
    assert_eq!((status["survives"].as_u64(), status["survives_hosts"].as_u64()), (Some(1), Some(0)), "{status:#}");
    assert!(world.ok("status tank").contains("survives the loss of 1 device, and of 0 hosts; next"));
    world.refused("lose --host h4", 1, &["no pool that is known here has a device on host 'h4'"]);
    // The same of a pool that is not mounted.
    world.ok("umount mount");
    assert!(world.ok("lose --host h1").contains("held/7"));
    assert!(world.ok("lose --host h3").contains("loses no file"));
}

/// P-277: where nobody said on which host a device stands, its address does.
#[test]
fn the_host_of_an_address_is_known() {
    let test = "the_host_of_an_address_is_known";
    if !can_mount(test) {
        return;
    }
    let world = World::new();
    let node = |(at, host): (usize, i32)| {
        let place = format!("127.0.0.{host}");
        Node::start_at(test, Kind::Stere, &world.folder, (&format!("d{at}"), NODE_BYTES), (&place, None))
    };
    let Some(mut nodes) = [1, 1, 2, 3].into_iter().enumerate().map(node).collect::<Option<Vec<Node>>>() else { return };
    let device = |(at, node): (usize, &Node)| format!("{},size={NODE_BYTES},name=d{at}", node.place());
    let devices: Vec<String> = nodes.iter().enumerate().map(device).collect();
    world.ok(&format!("create tank {}", devices.join(" ")));
    world.ok("mount tank mount");
    fill(&world, "");
    let status = world.json("status tank --json");
    let hosts: Vec<&str> =
        status["devices"].as_array().unwrap().iter().map(|one| one["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    assert!(world.ok("lose --host 127.0.0.1").contains("without host 127.0.0.1 (d0, d1) the pool tank loses no file"));
    assert_eq!(places(&world, "7").1, 1);
    // A label goes before the address, which leads to it.
    world.ok("device label tank d2 host=shed");
    world.refused(
        "host evacuate 127.0.0.2 tank --yes",
        1,
        &["'d2' at 127.0.0.2 is labelled with the host 'shed'", "stere host evacuate shed tank"],
    );
    // One whose label is another one's may be on that machine all the same.
    world.ok("device label tank d1 host=shed");
    let said = world.ok("host evacuate 127.0.0.1 --yes --wait");
    assert!(said.contains("emptying host 127.0.0.1: device d0"), "{said}");
    assert!(said.contains("device d1 is at the same address") && !said.contains("may be switched off"), "{said}");
    world.ok("device label tank d1 host=");
    let said = world.ok("host evacuate 127.0.0.1 --yes --wait");
    assert!(said.contains("emptying host 127.0.0.1: device d1") && said.contains("may be switched off"), "{said}");
    assert_right(&world, "");
    world.ok("umount mount");
    nodes[..2].iter_mut().for_each(Node::kill);
    world.ok("mount tank mount");
    assert_right(&world, "");
    world.ok("umount mount");
}

/// P-275: both disks of a host go in one act, and nothing of one is moved to the other; also where the pool is not mounted.
#[test]
fn all_disks_of_a_host_leave_together() {
    let Some(world) = four_disks("all_disks_of_a_host_leave_together") else { return };
    let forecast = world.ok("host evacuate h1 --dry-run");
    assert!(forecast.contains("host h1, devices a, b: needs") && forecast.contains("normal survives 1"), "{forecast}");
    let said = world.run("host evacuate h1 tank");
    assert!(said.code == 1 && said.err.contains("repeat with --yes"), "{}", said.err);
    assert_eq!(world.json("status tank --json")["devices"].as_array().unwrap().len(), 4);
    let said = world.ok("host evacuate h1 tank --yes --wait");
    assert!(said.contains("emptying host h1: devices a, b"), "{said}");
    assert!(said.contains("no device of the pool tank is on host h1: its machine may be switched off"), "{said}");
    let status = world.json("status tank --json");
    assert_eq!((status["devices"].as_array().unwrap().len(), &status["state"]), (2, &"healthy".into()), "{status:#}");
    assert_right(&world, "");
    world.refused(
        "host evacuate h1 tank --yes",
        1,
        &["no device of the pool 'tank' stands on host 'h1', or none any more", "they stand on h2, h3"],
    );
    world.ok("umount mount");
    fs::remove_file(world.path("a.img")).unwrap();
    fs::remove_file(world.path("b.img")).unwrap();
    assert!(world.ok("check tank").contains("clean"));
    // The owner's own host is told about, and leaves all the same.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    world.ok(&format!("device label tank c host={host}"));
    world.ok("mount tank mount");
    world.ok("device add tank e.img,size=128M,host=h5");
    let said = world.ok(&format!("host evacuate {host} --yes --wait"));
    assert!(
        said.contains(&format!("host {host} owns the pool now: only its devices leave, its mount stays")),
        "{said}"
    );
    assert!(said.contains("it owns the pool; unmount it there before"), "{said}");
    assert_right(&world, "");
    assert!(world.ok(&format!("host evacuate {host} tank --yes")).contains("no device of the pool tank is on host"));
    world.ok("umount mount");
    // Nobody has it mounted: the command does it to the end.
    world.ok("device add tank f.img,size=128M,host=h6");
    assert!(world.ok("host evacuate h5 --yes").contains("its machine may be switched off"));
    world.ok("mount tank mount");
    assert_right(&world, "");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-275: what is in the way is told before anything moves, with the ways out.
#[test]
fn a_host_that_cannot_leave_stays() {
    let Some(world) = four_disks("a_host_that_cannot_leave_stays") else { return };
    world.ok("class create tank films parity=3+1");
    fs::create_dir(world.mountpoint().join("films")).unwrap();
    world.ok("policy set mount/films class=films");
    fill(&world, "films");
    let wide =
        ["class films are stored as 3+1, which needs 4 devices, and 2 would be left", "copies=2", "or add a device"];
    world.refused_after_forecast("host evacuate h1 tank --yes", &wide);
    world.refused_after_forecast("host evacuate h2 tank --yes", &["and 3 would be left", "parity=2+1"]);
    let forecast = world.run("host evacuate h2 tank --dry-run");
    assert!(forecast.out.contains("host h2, device c: needs"), "{}{}", forecast.out, forecast.err);
    world.ok("class change tank films copies=2 --wait");
    // Too little room for what is there.
    let mut full = fs::File::create(world.mountpoint().join("full")).unwrap();
    let block = content(2000);
    while full.write_all(&block).and_then(|()| full.sync_data()).is_ok() {}
    drop(full);
    let words =
        ["on host 'h1' find no room on the devices that would be left", "add a device of another host", "delete files"];
    world.refused_after_forecast("host evacuate h1 tank --yes", &words);
    let status = world.json("status tank --json");
    assert!(status["devices"].as_array().unwrap().iter().all(|device| device["state"] == "online"), "{status:#}");
    // A file that is on media, too, needs no room. Archiving needs some.
    let file = fs::File::options().write(true).open(world.mountpoint().join("full")).unwrap();
    file.set_len(file.metadata().unwrap().len() * 3 / 4).unwrap();
    drop(file);
    world.ok("flush mount --wait");
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("device add tank dir:volume,name=cold");
    assert!(!world.run("host evacuate h1 tank --yes").err.contains("release"), "nothing is archived yet");
    world.ok("policy set mount/full tier=cold");
    world.ok("tier archive mount/full --wait");
    world.refused_after_forecast("host evacuate h1 tank --yes", &["release archived files (`stere tier release PATH`"]);
    world.ok("tier release mount/full");
    until("room", || world.run("host evacuate h1 tank --yes --wait").code == 0);
    assert_right(&world, "");
    assert_right(&world, "films");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-275: a disk of the host that is gone had something alone: that is told, and the way on.
#[test]
fn what_only_a_dead_disk_had_keeps_its_host() {
    let Some(world) = four_disks("what_only_a_dead_disk_had_keeps_its_host") else { return };
    fs::create_dir(world.mountpoint().join("single")).unwrap();
    world.ok("policy set mount/single copies=1");
    fill(&world, "single");
    world.ok("umount mount");
    fs::rename(world.path("a.img"), world.path("a.away")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0").code, 3);
    let lost = world.json("lose tank --json");
    let lost: Vec<String> =
        lost["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect();
    assert!(!lost.is_empty(), "some of them lie on it alone");
    let words =
        ["of files lie nowhere else than on a, which is away; bring it back", "stere lose --host h1 --pool tank"];
    world.refused_after_forecast("host evacuate h1 tank --yes", &words);
    fs::remove_dir_all(world.mountpoint().join("single")).unwrap();
    world.ok("flush mount --wait");
    let said = world.run("host evacuate h1 tank --yes --wait");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("emptying host h1: devices a (away), b"), "{}", said.out);
    assert_right(&world, "");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
