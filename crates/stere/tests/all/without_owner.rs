//! Several machines and one pool, while nobody owns it or its log takes nothing: what each machine does, and what it says, with the real
//! binary. Needs root, /dev/fuse and PostgreSQL. Read next: `support/site.rs`, `clients.rs`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::network::{Link, within};
use crate::node_servers::Kind;
use crate::site::{Links, Site, Synced, owner_process, owns, signal, take_away};
use crate::support::World;
use crate::support::tier::{content, until};

/// What the engine says when its disk is full.
const FULL: &str = "CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; \
     CREATE TRIGGER is_full BEFORE INSERT ON stere_log_record FOR EACH ROW EXECUTE FUNCTION is_full()";
const FULL_NO_MORE: &str = "DROP TRIGGER is_full ON stere_log_record";
/// Longer than the silence after which an owner is followed.
const LONG: Duration = Duration::from_secs(15);

/// P-267: a mount for reading that found no owner reads the devices; with an owner it reads through that one.
#[test]
fn a_mount_for_reading_gives_way_to_the_first_owner() {
    let Some(site) = Site::new("a_mount_for_reading_gives_way_to_the_first_owner", 3, 2) else { return };
    let [owner, reader] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    let mut synced = Synced::default();
    (0..10).for_each(|_| synced.write(owner, "a").unwrap());
    owner.ok("umount mount");
    reader.ok("mount lab mount -o ro");
    synced.assert_right(reader);
    assert!(reader.json("status lab --json")["through"].is_null());
    owner.ok("mount lab mount");
    (0..10).for_each(|_| synced.write(owner, "b").unwrap());
    until("what the owner wrote", || fs::read(reader.mountpoint().join("b19")).is_ok_and(|bytes| bytes == content(19)));
    synced.assert_right(reader);
    assert_eq!(reader.json("status lab --json")["through"]["state"], "connected");
    let refused = fs::write(reader.mountpoint().join("mine"), b"no").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    // What the owner moves and overwrites is read all the same.
    (0..10).for_each(|number| fs::remove_file(owner.mountpoint().join(format!("a{number}"))).unwrap());
    synced.names.drain(..10);
    (10..20).for_each(|number| {
        assert!(fs::read(reader.mountpoint().join(format!("b{number}"))).unwrap() == content(number))
    });
    reader.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

fn metrics_at(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_client_says_that_the_owner_and_the_log_are_away() {
    let Some(site) = Site::new("a_client_says_that_the_owner_and_the_log_are_away", 3, 2) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    owner.ok("mount lab mount");
    client.ok(&format!("mount lab mount -o nostandby,metrics=127.0.0.1:{port}"));
    let text = metrics_at(port);
    assert!(text.contains("stere_owner_answers{pool=\"lab\"} 1") && text.contains("stere_pool_state"), "{text}");
    site.engine.pause();
    signal(owner.find_daemon().unwrap(), libc::SIGKILL);
    let why = || {
        let said = client.run("status lab");
        said.out + &said.err
    };
    until("both reasons", || why().contains("has not been reached") && why().contains("log at"));
    let text = metrics_at(port);
    assert!(text.contains("stere_owner_answers{pool=\"lab\"} 0") && !text.contains("stere_pool_state"), "{text}");
    site.engine.resume();
    take_away(owner);
    owner.ok("mount lab mount");
    until("the owner", || metrics_at(port).contains("stere_owner_answers{pool=\"lab\"} 1"));
    client.ok("umount mount");
    owner.ok("umount mount");
}

/// What is written and not synced when the engine is away cannot be made durable at the end of a mount; its owner is there all the same.
#[test]
fn a_client_that_ends_without_the_engine_blames_what_is_away() {
    let Some(site) = Site::new("a_client_that_ends_without_the_engine_blames_what_is_away", 3, 2) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    // Its name needs the engine; its bytes do not.
    let mut file = fs::File::create(client.mountpoint().join("unsynced")).unwrap();
    site.engine.pause();
    file.write_all(&content(3)).unwrap();
    drop(file);
    client.refused("umount mount", 1, &["the pool's owner has not made everything durable", "may be lost"]);
    site.engine.resume();
    // Nothing was lost after all: its owner lives.
    assert!(fs::read(owner.mountpoint().join("unsynced")).unwrap() == content(3));
    owner.ok("umount mount");
}

/// P-269: an engine that takes no records keeps a pool from everybody, and nobody takes it from its owner.
#[test]
fn an_engine_that_is_full_leaves_the_pool_to_its_owner() {
    let Some(site) = Site::new("an_engine_that_is_full_leaves_the_pool_to_its_owner", 3, 2) else { return };
    let [owner, standby] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount --standby");
    until("an owner", || owns(owner));
    standby.ok("mount lab mount --standby");
    let mut synced = Synced::default();
    synced.write(owner, "a").unwrap();
    let process = owner_process(owner);
    site.engine.execute(FULL);
    let point = owner.mountpoint();
    let writer = std::thread::spawn(move || {
        let mut waiting = Synced::default();
        waiting.write_at(&point, "w").map(|()| waiting)
    });
    std::thread::sleep(LONG);
    assert!(!writer.is_finished(), "nothing is acknowledged that is not in the log");
    assert_eq!(owner_process(owner), process);
    let status = owner.run("status lab");
    assert!(status.code == 3 && status.out.contains("No space left"), "{}", status.out);
    site.engine.execute(FULL_NO_MORE);
    let waited = writer.join().unwrap().unwrap();
    assert_eq!((owner_process(owner), owner_process(standby)), (process, None));
    synced.write(standby, "b").unwrap();
    for machine in [owner, standby] {
        synced.assert_right(machine);
        waited.assert_right(machine);
        machine.ok("umount mount");
    }
    owner.ok("check lab");
}

/// P-268: a machine that was told of one node learns of the others, and of one that joins later, while it is a client.
#[test]
fn a_machine_learns_where_the_nodes_are() {
    let Some(mut site) = Site::new("a_machine_learns_where_the_nodes_are", 3, 1) else { return };
    let mut synced = Synced::default();
    site.machines.push(World::new());
    let [owner, other] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount --standby");
    until("an owner", || owns(owner));
    let said = other.run(&format!("pool import {} --log {}", site.nodes[0].device(), site.engine.address()));
    assert!(said.code == 3 && said.err.contains("it lacks"), "{}{}", said.out, said.err);
    other.ok("mount lab mount --standby");
    synced.write(other, "a").unwrap();
    let known = || {
        let record = fs::read_to_string(other.path("state/pools/lab.json")).unwrap();
        site.nodes.iter().filter(|node| record.contains(&node.place())).count()
    };
    until("all nodes", || known() == 3);
    for process in [owner_process(owner), owner.find_daemon()] {
        signal(process.unwrap(), libc::SIGKILL);
    }
    synced.write(other, "b").unwrap();
    assert!(owns(other));
    until("a healthy pool", || other.run("status lab").code == 0);
    synced.assert_right(other);
    take_away(owner);
    other.ok("umount mount");
    other.ok("check lab");
}

/// A machine that was never told of most nodes leaves the pool to others, and says nothing of loss.
#[test]
fn a_machine_that_knows_too_few_nodes_does_not_own_the_pool() {
    let Some(mut site) = Site::new("a_machine_that_knows_too_few_nodes_does_not_own_the_pool", 3, 1) else { return };
    site.machines.push(World::new());
    let [owner, other] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    let mut synced = Synced::default();
    synced.write(owner, "a").unwrap();
    // Of several segments some lie on the two other nodes.
    fs::write(owner.mountpoint().join("large"), vec![7; 16 << 20]).unwrap();
    owner.ok("umount mount");
    assert_eq!(other.run(&format!("pool import {} --log {}", site.nodes[0].device(), site.engine.address())).code, 3);
    other.ok("mount lab mount --standby");
    let said = || {
        let said = other.run("status lab");
        said.out + &said.err
    };
    until("its word about itself", || said().contains("tried to become the owner and failed"));
    assert!(!said().contains("lost"), "{}", said());
    let log = fs::read_to_string(other.path("state/log/lab.log")).unwrap();
    assert!(log.contains("never told where device"), "{log}");
    owner.ok("mount lab mount --standby");
    synced.assert_right(other);
    other.ok("umount mount");
    owner.ok("umount mount");
}

/// P-271: what was full and was emptied is free for the next owner, if only when nobody writes there any more: calls wait for that.
#[test]
fn a_pool_that_was_full_when_its_owner_died_has_room() {
    let Some(site) = Site::new("a_pool_that_was_full_when_its_owner_died_has_room", 3, 2) else { return };
    let [owner, other] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount --standby");
    until("an owner", || owns(owner));
    other.ok("mount lab mount --standby");
    let large = vec![3; 8 << 20];
    let file = |number: usize| other.mountpoint().join(format!("fill{number}"));
    let count = (0..100).take_while(|number| fs::write(file(*number), &large).is_ok()).count();
    assert!(count > 20, "{count} files of 8 MiB fill the pool");
    (0..=count).for_each(|number| drop(fs::remove_file(file(number))));
    signal(owner_process(owner).unwrap(), libc::SIGKILL);
    let mut synced = Synced::default();
    for number in 0..count / 2 {
        fs::write(file(number), &large).unwrap_or_else(|error| panic!("file {number}: {error}"));
        synced.write(other, "a").unwrap();
    }
    println!("the longest call took {:?}", synced.longest);
    synced.assert_right(owner);
    for machine in [owner, other] {
        machine.ok("umount mount");
    }
    owner.ok("check lab");
}

/// A machine whose processes were all killed left the place of its owner's process mounted and dead.
#[test]
fn a_machine_whose_processes_died_mounts_again() {
    let Some(site) = Site::new("a_machine_whose_processes_died_mounts_again", 3, 1) else { return };
    let world = &site.machines[0];
    world.ok("mount lab mount --standby");
    until("an owner", || owns(world));
    let mut synced = Synced::default();
    synced.write(world, "a").unwrap();
    for process in [owner_process(world), world.find_daemon()] {
        signal(process.unwrap(), libc::SIGKILL);
    }
    until("their end", || owner_process(world).is_none() && world.find_daemon().is_none());
    take_away(world);
    world.ok("mount lab mount --standby");
    until("an owner", || owns(world));
    synced.write(world, "b").unwrap();
    synced.assert_right(world);
    world.ok("umount mount");
    world.ok("check lab");
}

/// Machines that are cut off again and again would use up what the engine has of connections.
#[test]
fn an_engine_lets_go_of_a_machine_that_was_cut_off() {
    let test = "an_engine_lets_go_of_a_machine_that_was_cut_off";
    let links = Links { nodes: &[Link::Fast; 3], machines: &[Link::Fast; 2], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Nbdkit, &links) else { return };
    let owner: &World = &site.machines[0];
    owner.ok("mount lab mount");
    Synced::default().write(owner, "a").unwrap();
    let namespace = site.network().namespace(site.nodes.len());
    let sessions = |wanted: &str| {
        let statement = format!(
            "DO $$ BEGIN FOR i IN 1..800 LOOP PERFORM pg_stat_clear_snapshot(); IF (SELECT count(*) {wanted} FROM \
             pg_stat_activity WHERE client_addr IS NOT NULL AND pid <> pg_backend_pid()) THEN RETURN; END IF; \
             PERFORM pg_sleep(0.05); END LOOP; RAISE 'it is not {wanted} sessions after 40 s'; END $$"
        );
        within(Some(&namespace), || site.engine.execute(&statement));
    };
    sessions("> 0");
    site.network().cut(site.host_of(0));
    // It says goodbye to nobody.
    signal(owner.find_daemon().unwrap(), libc::SIGKILL);
    sessions("= 0");
    site.network().mend(site.host_of(0));
    take_away(owner);
}

/// An owner that leaves tells what is durable first, so that nobody needs another one to leave, too.
#[test]
fn all_machines_are_unmounted_one_after_the_other() {
    let test = "all_machines_are_unmounted_one_after_the_other";
    let links = Links { nodes: &[Link::Fast; 3], machines: &[Link::Fast; 2], ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Stere, &links) else { return };
    let [owner, standby] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount --standby");
    until("an owner", || owns(owner));
    standby.ok("mount lab mount --standby");
    fs::write(standby.mountpoint().join("file"), "not synced").unwrap();
    owner.ok("umount mount");
    let begun = Instant::now();
    let said = standby.run("umount mount");
    println!("unmounted in {:?}: {} {}", begun.elapsed(), said.out, said.err);
    assert!(begun.elapsed() < Duration::from_secs(25) && said.code == 0, "{}", said.err);
    assert!(!said.err.contains("lost") && !said.out.contains("lost"), "{} {}", said.out, said.err);
    owner.ok("mount lab mount");
    assert_eq!(fs::read(owner.mountpoint().join("file")).unwrap(), b"not synced");
    owner.ok("umount mount");
}
