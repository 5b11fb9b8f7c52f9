//! Which machines may use a pool whose log is shared, with the real binary (P-250, P-251, P-253, P-254): they register, wait where the
//! pool asks, are admitted, and are cut off when they are refused. Needs root and /dev/fuse. Read next: `support/site.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::site::Site;
use crate::support::World;
use crate::support::tier::{content, until};

/// What the registry says of a machine.
fn listed(by: &World, id: &str) -> serde_json::Value {
    let hosts = by.json("host list lab --json");
    let machines = hosts["machines"].as_array().unwrap();
    machines.iter().find(|machine| machine["id"] == id).cloned().unwrap_or_default()
}

/// The id of a machine, as its state folder holds it.
fn id_of(world: &World) -> String {
    fs::read_to_string(world.path("state/machine-id")).unwrap().trim().replace('-', "")
}

fn is_mounted(world: &World) -> bool {
    let point = world.mountpoint().display().to_string();
    fs::read_to_string("/proc/mounts").unwrap().contains(&format!(" {point} fuse"))
}

/// Begins a mount that is expected to wait; what it says goes to a file.
fn begin_mount(world: &World) -> Child {
    let said = fs::File::create(world.path("said")).unwrap();
    world.command("mount lab mount").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

fn log_of(world: &World) -> String {
    fs::read_to_string(world.path("state/log/lab.log")).unwrap_or_default()
}

#[test]
fn a_machine_waits_until_it_is_admitted() {
    let Some(mut site) = Site::new("a_machine_waits_until_it_is_admitted", 2, 2) else { return };
    site.machines[0].ok("mount lab mount");
    site.machines[1].ok("mount lab mount");
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    assert_eq!(client.json("host list lab --json")["admission"], "open");
    assert_eq!(listed(client, &id_of(owner))["owner"], true);
    assert_eq!(
        (&listed(owner, &id_of(client))["owner"], &listed(owner, &id_of(client))["state"]),
        (&false.into(), &"admitted".into())
    );
    assert_eq!(owner.json("host list lab --json")["nodes"], serde_json::json!(["127.0.0.1"]));
    fs::write(owner.mountpoint().join("file"), content(40)).unwrap();
    client.ok("pool change lab --admission=ask");
    let third = World::new();
    site.import(&third);
    site.machines.push(third);
    let [owner, client, third] = &site.machines[..] else { panic!("three machines") };
    let id = id_of(third);
    let (key, short) = (listed(owner, &id)["key"].clone(), &id[..8]);
    assert_eq!(listed(owner, &id)["state"], "waiting");
    let mut mount = begin_mount(third);
    let why = format!("machine {short} waits to be admitted: `stere pool admit lab {short}`");
    until("it says that it waits", || fs::read_to_string(third.path("said")).unwrap().contains(&why));
    until("its log says so", || log_of(third).contains(&why));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!is_mounted(third) && mount.try_wait().unwrap().is_none());
    // All are on one host here: its name says too little.
    let host = listed(owner, &id)["host"].as_str().unwrap().to_owned();
    client.refused(&format!("pool admit lab {host}"), 1, &["may be any of the machines", short]);
    client.refused("pool admit lab nobody", 1, &["stere host list"]);
    client.ok(&format!("pool admit lab {short}"));
    assert!(mount.wait().unwrap().success(), "{}", fs::read_to_string(third.path("said")).unwrap());
    assert!(fs::read(third.mountpoint().join("file")).unwrap() == content(40));
    let now = listed(owner, &id);
    assert_eq!((&now["state"], &now["key"]), (&"admitted".into(), &key), "what is admitted is the key that waited");
    let shown = owner.ok("host list lab");
    assert!(shown.contains(short) && shown.contains("wait to be admitted"), "{shown}");
    site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
}

#[test]
fn a_machine_that_is_refused_is_cut_off_and_others_go_on() {
    let Some(site) = Site::new("a_machine_that_is_refused_is_cut_off_and_others_go_on", 2, 3) else { return };
    let [owner, other, third] = &site.machines[..] else { panic!("three machines") };
    site.machines.iter().for_each(|machine| drop(machine.ok("mount lab mount")));
    fs::write(owner.mountpoint().join("file"), content(41)).unwrap();
    let open = fs::File::open(third.mountpoint().join("file")).unwrap();
    let short = id_of(third)[..8].to_owned();
    owner.refused(&format!("pool refuse lab {}", id_of(owner)), 1, &["owns the pool now"]);
    owner.ok(&format!("pool refuse lab {short}"));
    let begun = Instant::now();
    let error = loop {
        match fs::metadata(third.mountpoint().join("another")) {
            Err(error) if error.raw_os_error() == Some(libc::EKEYREJECTED) => break error,
            _ => assert!(begun.elapsed() < Duration::from_secs(5), "it is cut off within five seconds"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    eprintln!("cut off after {:?}: {error}", begun.elapsed());
    // What was open before gets the same answer, and the log says what it means.
    assert_eq!(open.sync_all().unwrap_err().raw_os_error(), Some(libc::EKEYREJECTED));
    assert!(log_of(third).contains(&format!("machine {short} was refused")), "{}", log_of(third));
    for machine in [owner, other] {
        fs::write(machine.mountpoint().join("goes on"), content(42)).unwrap();
        assert!(fs::read(machine.mountpoint().join("goes on")).unwrap() == content(42));
    }
    drop(open);
    third.ok("umount mount");
    third.refused("mount lab mount", 1, &["was refused", "stere pool admit lab"]);
    other.ok(&format!("pool admit lab {short}"));
    third.ok("mount lab mount");
    assert!(fs::read(third.mountpoint().join("goes on")).unwrap() == content(42));
    site.machines.iter().rev().for_each(|machine| drop(machine.ok("umount mount")));
}

#[test]
fn a_log_of_before_gets_its_registry_when_machines_mount() {
    let Some(site) = Site::new("a_log_of_before_gets_its_registry_when_machines_mount", 2, 2) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    site.engine.execute("DROP TABLE stere_log_machine");
    for machine in &site.machines {
        fs::remove_file(machine.path("state/machine-key")).unwrap();
        machine.ok("mount lab mount");
    }
    fs::write(client.mountpoint().join("file"), content(43)).unwrap();
    assert!(fs::read(owner.mountpoint().join("file")).unwrap() == content(43));
    assert_eq!(owner.json("host list lab --json")["machines"].as_array().unwrap().len(), 2);
    client.ok("umount mount");
    // A key that others may read, or that is damaged, is not used.
    let key = client.path("state/machine-key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let mut bytes = fs::read(&key).unwrap();
    bytes[20] ^= 1;
    fs::write(&key, &bytes).unwrap();
    client.refused("mount lab mount", 1, &["machine-key", "put it back from a copy, or remove it"]);
    fs::remove_file(&key).unwrap();
    client.ok("mount lab mount");
    assert!(fs::read(client.mountpoint().join("file")).unwrap() == content(43));
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}
