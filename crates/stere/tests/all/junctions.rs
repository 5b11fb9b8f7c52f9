//! Several owners under one namespace (P-286, P-287): a pool as a directory of another one, with the real binary, each node, the engine and
//! each machine a host of a network. Needs root, /dev/fuse and iproute2. Read next: `support/site.rs`, `growth.rs`.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::network::Link;
use crate::node_servers::{Kind, Node};
use crate::site::{Links, Site, Synced, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::{content, until};

/// A call on the volume of an owner that lives, while another one is lost.
const CALL_MAX: Duration = Duration::from_secs(2);

/// Three machines that have the pool `lab` mounted, the first of which owns it, and a pool `films` on the same nodes.
fn site(test: &str) -> Option<Site> {
    let links = Links { nodes: &[Link::Fast; 3], machines: &[Link::Fast; 3], ..Links::default() };
    let site = Site::on_network(test, Kind::Stere, &links)?;
    site.machines[0].ok("mount lab mount --standby");
    until("an owner", || owns(&site.machines[0]));
    for machine in &site.machines[1..] {
        machine.ok("mount lab mount --standby");
    }
    create(&site, "films");
    Some(site)
}

/// A pool on exports of its own of the nodes, known to the second machine.
fn create(site: &Site, name: &str) {
    let export = |node: &Node| node.device().replace("/disk,", &format!("/{name},"));
    let devices: Vec<String> = site.nodes.iter().map(export).collect();
    site.machines[1].ok(&format!("create {name} {} --log {}", devices.join(" "), site.engine.address()));
}

/// Whether a machine has the pool of a junction mounted where it belongs.
fn has(machine: &World, pool: &str) -> bool {
    let status = machine.json("status lab --json");
    let junctions = status["junctions"].as_array().cloned().unwrap_or_default();
    let is_mounted = junctions.iter().any(|one| one["pool"] == pool && one["is_mounted"] == true);
    assert!(!is_mounted || status["state"] == "healthy", "{status:#}");
    is_mounted
}

/// Ends the junction of the pool `films`, until no machine has it mounted.
fn detach(site: &Site, path: &str) {
    site.machines[2].ok(&format!("volume detach mount/{path}"));
    let is_away = |machine: &World| {
        let pools = machine.json("pool list --json");
        let films = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == "films").cloned().unwrap_or_default();
        films["mountpoint"].is_null()
    };
    until("no volume", || site.machines.iter().all(is_away));
}

/// The process that owns the pool `films` for a machine.
fn owner_of_films(machine: &World) -> Option<i32> {
    machine.find_daemon_at(&machine.path("state/run/films.owned").display().to_string())
}

fn errno(outcome: std::io::Result<()>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// Writes and syncs files below an open directory for a while, and tells how long the longest took: paths from further above would ask
/// the owner above as well.
fn write_for(machine: &World, prefix: &str, time: Duration) -> (Synced, Duration) {
    let films = fs::File::open(machine.mountpoint().join("films")).unwrap();
    let place = PathBuf::from(format!("/proc/self/fd/{}", films.as_raw_fd()));
    let (begun, mut synced) = (Instant::now(), Synced::default());
    while begun.elapsed() < time {
        synced.write_at(&place, prefix).unwrap();
    }
    let longest = synced.longest;
    synced.names.iter_mut().for_each(|name| name.insert_str(0, "films/"));
    (synced, longest)
}

/// P-286.
#[test]
fn a_directory_has_an_owner_of_its_own() {
    let Some(site) = site("a_directory_has_an_owner_of_its_own") else { return };
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    second.ok("volume attach mount/films films");
    until("the volume on all machines", || site.machines.iter().all(|machine| has(machine, "films")));
    assert_eq!(third.json("pool list --json")[0]["pool"], "films", "the third was never told of it");

    // One tree.
    fs::write(third.mountpoint().join("films/new"), content(45)).unwrap();
    assert_eq!(fs::read(first.mountpoint().join("films/new")).unwrap(), content(45));
    assert!(third.ok("volume list lab").contains("/films: the pool films, with an owner of its own"));
    assert!(third.ok("where mount/films/new").contains("n1"), "commands find the pool that a path is in");
    let (outside, inside) = (third.mountpoint().join("there"), third.mountpoint().join("films/new"));
    for outcome in [fs::rename(&inside, &outside), fs::hard_link(&inside, &outside)] {
        assert_eq!(errno(outcome), Some(libc::EXDEV));
    }
    assert_ne!(fs::metadata(third.mountpoint()).unwrap().dev(), fs::metadata(&inside).unwrap().dev());
    assert!(std::process::Command::new("mv").args([&inside, &outside]).status().unwrap().success());
    assert_eq!(fs::read(first.mountpoint().join("there")).unwrap(), content(45));

    // It goes with the directory that it is in, on all machines.
    detach(&site, "films");
    fs::create_dir(third.mountpoint().join("year")).unwrap();
    second.ok("volume attach mount/year/films films");
    until("the volume on all machines", || site.machines.iter().all(|machine| has(machine, "films")));
    fs::rename(third.mountpoint().join("year"), third.mountpoint().join("old")).unwrap();
    let moved =
        |machine: &World| fs::read(machine.mountpoint().join("old/films/kept")).is_ok_and(|read| read == content(7));
    fs::write(third.mountpoint().join("old/films/kept"), content(7)).unwrap();
    until("the volume in its new place", || {
        site.machines.iter().all(|machine| has(machine, "films") && moved(machine))
    });
    assert!(third.ok("where mount/old/films/kept").contains("n1"));
    detach(&site, "old/films");
    second.ok("volume attach mount/films films");
    until("the volume on all machines", || site.machines.iter().all(|machine| has(machine, "films")));

    // Each has its owner, and a machine takes one of them.
    second.ok("pool take films");
    until("an owner of the volume", || owner_of_films(second).is_some());
    assert!(owner_process(first).is_some() && owner_of_films(first).is_none());
    let (kept, _) = write_for(third, "before", Duration::from_millis(500));
    assert!(third.ok("pool take films").contains("this machine owns the pool films now"));
    assert!(third.ok("pool take films").contains("already"));
    until("the owner before has ended", || owner_of_films(second).is_none());
    kept.assert_right(first);

    // The loss of one owner stops only what it owns.
    let owner = owner_process(first).unwrap();
    let (synced, longest) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_for(second, "during", Duration::from_secs(6)));
        std::thread::sleep(Duration::from_secs(1));
        signal(owner, libc::SIGKILL);
        writing.join().unwrap()
    });
    assert!(longest < CALL_MAX, "{longest:?} while another owner was lost");
    until("the next owner", || site.machines.iter().any(owns));
    synced.assert_right(first);
    kept.assert_right(second);

    // A mount is ended with those in it, and comes back with them.
    let open = fs::File::open(second.mountpoint().join("films/during0")).unwrap();
    second.refused("umount mount", 1, &["films"]);
    drop(open);
    assert!(has(second, "films"), "it goes on with what is in it");
    second.ok("umount mount");
    second.ok("mount lab mount --standby");
    until("the volume again", || has(second, "films"));
    synced.assert_right(second);

    // They are found where it is now.
    second.ok("umount mount");
    fs::create_dir_all(second.path("above/mount")).unwrap();
    second.ok("mount lab above/mount --standby");
    until("the volume below", || second.path("above/mount/films/during0").exists());
    fs::rename(second.path("above"), second.path("moved")).unwrap();
    // It is looked for every two seconds.
    std::thread::sleep(Duration::from_secs(5));
    let places = second.ok("where moved/mount/films/during0");
    assert!(["n1", "n2", "n3"].iter().any(|host| places.contains(host)), "{places}");
    assert!(!second.ok("status lab --json").contains("pool_not_mounted"));
    second.ok("umount moved/mount");
    assert!(fs::read_dir(second.path("moved/mount")).unwrap().next().is_none());
    second.ok("mount lab mount --standby");
    until("the volume again", || has(second, "films"));

    third.ok("volume detach mount/films");
    until("no volume", || site.machines.iter().all(|machine| !machine.mountpoint().join("films/during0").exists()));
    assert_eq!(fs::read_dir(first.mountpoint().join("films")).unwrap().count(), 0);
    fs::write(first.mountpoint().join("films/plain"), "an ordinary directory").unwrap();
    site.close();
    second.ok("check films");
}

/// P-287.
#[test]
fn a_volume_that_is_not_mounted_is_told_and_is_no_empty_directory() {
    let Some(mut site) = site("a_volume_that_is_not_mounted_is_told_and_is_no_empty_directory") else { return };
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    // A name that means another pool there.
    third.ok("create films other.img,size=256M");
    fs::create_dir(first.mountpoint().join("full")).unwrap();
    fs::write(first.mountpoint().join("full/file"), "x").unwrap();
    second.refused("volume attach mount/full films", 1, &["not empty"]);
    second.refused("volume attach mount films", 1, &["root"]);
    third.refused("volume attach mount/films films", 1, &["engine"]);
    assert!(!third.mountpoint().join("films").exists(), "what was made for it is gone");
    second.ok("volume attach mount/films films");
    create(&site, "more");
    second.ok("volume attach mount/films/more more");
    second.refused("volume attach mount/again films", 1, &["mounted"]);
    until("two of three have it", || has(first, "films") && has(second, "films"));

    // On the third.
    let films = third.mountpoint().join("films");
    let said = third.run("status lab");
    assert_eq!(said.code, 3, "{}", said.out);
    assert!(said.out.contains("next: /films is the pool films"), "{}", said.out);
    assert!(said.out.contains("/films is the pool films, which is not mounted on this machine"), "{}", said.out);
    assert!(said.out.contains("another pool is known here by the name 'films'"), "{}", said.out);
    assert_eq!(errno(fs::read_dir(&films).map(drop)), Some(libc::ENOTCONN));
    assert_eq!(errno(fs::write(films.join("new"), "x")), Some(libc::ENOTCONN));
    assert_eq!(errno(fs::metadata(films.join("more")).map(drop)), Some(libc::ENOTCONN));
    assert_eq!(errno(fs::rename(third.mountpoint().join("full/file"), films.join("file"))), Some(libc::ENOTCONN));
    assert_eq!(errno(fs::remove_dir(&films)), Some(libc::EBUSY));
    assert_eq!(errno(fs::rename(&films, third.mountpoint().join("elsewhere"))), Some(libc::EBUSY));
    fs::create_dir(third.mountpoint().join("empty")).unwrap();
    assert_eq!(errno(fs::rename(third.mountpoint().join("empty"), &films)), Some(libc::EBUSY));

    // It comes by itself when nothing keeps it, also while a node is away.
    site.nodes[0].kill();
    third.ok("pool export films");
    until("the volume on the third", || is_mount(&third.mountpoint().join("films")));
    site.nodes[0].start_again();
    let nested = third.mountpoint().join("films/more");
    until("the volume in the volume", || is_mount(&nested));
    fs::write(nested.join("deep"), content(45)).unwrap();
    assert_eq!(fs::read(first.mountpoint().join("films/more/deep")).unwrap_or_default(), content(45));

    // A process of a volume that dies is replaced, and so is that of the mount above it.
    for mountpoint in [nested, films] {
        let daemon = third.find_daemon_at(&mountpoint.display().to_string()).unwrap();
        signal(daemon, libc::SIGKILL);
        until("its mount again", || {
            fs::read(third.mountpoint().join("films/more/deep")).is_ok_and(|read| read == content(45))
        });
    }
    for machine in [third, second, first] {
        machine.ok("umount mount");
    }
    for pool in ["lab", "films", "more"] {
        second.ok(&format!("check {pool}"));
    }
}

fn is_mount(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| fs::metadata(parent).ok());
    fs::metadata(path).is_ok_and(|facts| parent.is_some_and(|parent| parent.dev() != facts.dev()))
}
