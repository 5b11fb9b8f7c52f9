//! The real binary with a real mount: needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{World, can_mount};

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_alive(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z'))
}

fn kill(process: i32, signal: i32) {
    // SAFETY: a plain system call on a process that this test started.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

#[test]
fn mounted_used_unmounted_and_found_again() {
    if !can_mount("mounted_used_unmounted_and_found_again") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let process = world.daemon();
    fs::write(world.mountpoint().join("hello"), b"stere").unwrap();
    let status = world.json("status tank --json");
    assert_eq!(status["mountpoint"], world.mountpoint().display().to_string());
    assert!(world.ok("pool list").contains("mount"));
    world.refused("mount tank mount", 1, &["in use"]);
    fs::create_dir(world.path("second")).unwrap();
    world.refused("mount tank second", 1, &["already mounted"]);
    world.refused("mount a.img b.img second", 1, &["in use by another process or mounted"]);
    world.refused("check tank", 1, &["is mounted on"]);
    world.refused("create other a.img --force", 1, &["in use"]);
    world.ok("flush mount --wait");
    world.ok("umount mount");
    assert!(!is_alive(process), "umount returned before the process had ended");
    assert!(!world.mountpoint().join("hello").exists());
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount a.img b.img mount");
    assert_eq!(fs::read(world.mountpoint().join("hello")).unwrap(), b"stere");
    world.ok("umount tank");
}

#[test]
fn a_busy_mount_is_not_unmounted_unless_told_to() {
    if !can_mount("a_busy_mount_is_not_unmounted_unless_told_to") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mut open = fs::File::create(world.mountpoint().join("open")).unwrap();
    world.refused("umount mount", 1, &["in use"]);
    let mut lazy = world.command("umount mount --lazy").spawn().unwrap();
    until("the lazy unmount", || !world.mountpoint().join("open").exists());
    open.write_all(b"still written").unwrap();
    assert!(lazy.try_wait().unwrap().is_none(), "a lazy unmount returns when the last file is closed");
    drop(open);
    assert!(lazy.wait().unwrap().success());
    world.ok("mount tank mount");
    assert_eq!(fs::read(world.mountpoint().join("open")).unwrap(), b"still written");
    world.ok("umount mount");
}

#[test]
fn what_was_synced_survives_a_kill_and_the_dead_mount_is_taken_away() {
    if !can_mount("what_was_synced_survives_a_kill_and_the_dead_mount_is_taken_away") {
        return;
    }
    let world = World::with_pool();
    for round in 0..3 {
        world.ok("mount tank mount");
        let path = world.mountpoint().join(format!("round-{round}"));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(format!("round {round}").repeat(1000).as_bytes()).unwrap();
        file.sync_all().unwrap();
        fs::File::open(world.mountpoint()).unwrap().sync_all().unwrap();
        let process = world.daemon();
        // The kernel remembers what it saw of the mount point, and tells that of a dead mount too.
        fs::metadata(world.mountpoint()).unwrap();
        kill(process, libc::SIGKILL);
        until("the end of the process", || !is_alive(process));
        drop(file);
        assert!(fs::metadata(&path).is_err(), "the mount is dead");
    }
    world.ok("mount tank mount");
    for round in 0..3 {
        let path = world.mountpoint().join(format!("round-{round}"));
        assert_eq!(fs::read(path).unwrap(), format!("round {round}").repeat(1000).as_bytes());
    }
    let process = world.daemon();
    kill(process, libc::SIGKILL);
    until("the end of the process", || !is_alive(process));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// Metadata may end up with fewer copies, where there are fewer devices; content may not.
#[test]
fn a_device_is_emptied_where_metadata_loses_a_copy_and_not_where_content_would() {
    if !can_mount("a_device_is_emptied_where_metadata_loses_a_copy_and_not_where_content_would") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M b.img,size=96M c.img,size=96M");
    world.ok("mount tank mount");
    let content: Vec<u8> = (0..12 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(world.mountpoint().join("kept"), &content).unwrap();
    world.ok("flush mount --wait");
    world.ok("device evacuate tank a --wait");
    // Its slots are free with the checkpoint that follows.
    until("an empty device", || world.json("device list tank --json")[0]["used_bytes"] == 0);
    assert_eq!(world.json("device list tank --json")[0]["state"], "leaving");
    world.ok("device remove tank a --yes --wait");
    let status = world.json("status tank --json");
    assert_eq!((status["state"].as_str(), status["survives"].as_u64()), (Some("healthy"), Some(1)), "{status}");
    // Two copies have two places, and not one.
    for line in ["device evacuate tank b", "device remove tank b --yes"] {
        world.refused_after_forecast(
            line,
            &["stored as 2 copies, which needs 2 devices, and 1 would be left", "device add"],
        );
    }
    assert_eq!(world.json("status tank --json")["state"], "healthy");
    assert_eq!(fs::read(world.mountpoint().join("kept")).unwrap(), content);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    // Either of the two is enough.
    let said = world.run("mount b.img mount -o wait=0");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_eq!(fs::read(world.mountpoint().join("kept")).unwrap(), content);
    world.ok("umount mount");
}

#[test]
fn a_signal_ends_the_mount_in_order() {
    if !can_mount("a_signal_ends_the_mount_in_order") {
        return;
    }
    let world = World::with_pool();
    let manager = std::os::unix::net::UnixDatagram::bind(world.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let mut command = world.command("mount --foreground tank mount");
    let mut child = command.env("NOTIFY_SOCKET", world.path("notify")).stderr(Stdio::null()).spawn().unwrap();
    let mut said = [0; 64];
    let length = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..length], b"READY=1", "a service manager is told");
    assert!(world.run("pool list").out.contains("/mount"));
    fs::write(world.mountpoint().join("unsynced"), b"but closed").unwrap();
    kill(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert_eq!(world.json("status tank --json")["recovery"]["clean"], true, "closed in order, nothing to replay");
    world.ok("mount tank mount");
    assert_eq!(fs::read(world.mountpoint().join("unsynced")).unwrap(), b"but closed");
    world.ok("umount mount");
}

#[test]
fn the_kernels_own_umount_ends_the_process_too() {
    if !can_mount("the_kernels_own_umount_ends_the_process_too") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::write(world.mountpoint().join("hello"), b"stere").unwrap();
    let process = world.daemon();
    assert!(Command::new("umount").arg(world.mountpoint()).status().unwrap().success());
    until("the end of the process", || !is_alive(process));
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_eq!(fs::read(world.mountpoint().join("hello")).unwrap(), b"stere");
    world.ok("umount mount");
}

#[test]
fn read_only_and_degraded_mounts_read() {
    if !can_mount("read_only_and_degraded_mounts_read") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::write(world.mountpoint().join("hello"), b"two copies").unwrap();
    world.ok("umount mount");
    world.ok("mount tank mount -o ro");
    assert_eq!(fs::read(world.mountpoint().join("hello")).unwrap(), b"two copies");
    assert_eq!(fs::write(world.mountpoint().join("new"), b"").unwrap_err().raw_os_error(), Some(libc::EROFS));
    world.ok("flush mount --wait");
    world.ok("umount mount");
    world.refused_without_b("mount tank mount -o degraded=ask,wait=0", &["lacks device 'b'", "degraded=auto"]);
    for away in ["a.img", "b.img"] {
        fs::rename(world.path(away), world.path("away")).unwrap();
        let said = world.run("mount tank mount -o wait=0");
        assert_eq!(said.code, 3, "{}", said.err);
        assert!(said.err.contains("goes on with the others"), "{}", said.err);
        assert_eq!(fs::read(world.mountpoint().join("hello")).unwrap(), b"two copies");
        assert_eq!(world.run("status tank").code, 3);
        fs::write(world.mountpoint().join(away), b"written while one was away").unwrap();
        world.ok("umount mount");
        fs::rename(world.path("away"), world.path(away)).unwrap();
        // It comes back, and is caught up.
        world.ok("mount tank mount");
        until("catching up", || world.run("status tank").code == 0);
        assert_eq!(fs::read(world.mountpoint().join(away)).unwrap(), b"written while one was away");
        world.ok("umount mount");
    }
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn a_late_device_is_waited_for() {
    if !can_mount("a_late_device_is_waited_for") {
        return;
    }
    let world = World::with_pool();
    fs::rename(world.path("b.img"), world.path("away")).unwrap();
    let mut mount = world.command("mount tank mount -o wait=120s").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(mount.try_wait().unwrap().is_none(), "it waits");
    fs::rename(world.path("away"), world.path("b.img")).unwrap();
    assert!(mount.wait().unwrap().success());
    world.ok("umount mount");
}

#[test]
fn policy_is_set_explained_and_unset() {
    if !can_mount("policy_is_set_explained_and_unset") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=64M b.img,size=64M c.img,size=64M --default-class scratch");
    world.ok("mount tank mount");
    assert!(world.ok("policy explain mount").contains("class is scratch"));
    fs::create_dir(world.mountpoint().join("photos")).unwrap();
    world.ok("policy set mount/photos copies=3");
    fs::write(world.mountpoint().join("photos/one"), vec![1; 100_000]).unwrap();
    fs::write(world.mountpoint().join("junk"), vec![1; 100_000]).unwrap();
    world.ok("flush mount --wait");
    assert_eq!(world.json("policy get mount/photos/one --json")["survives"], "2");
    assert_eq!(world.json("policy get mount/junk --json")["survives"], "0");
    world.refused("policy set mount/photos copies=many", 1, &["copies cannot be 'many'"]);
    world.ok("policy unset mount/photos copies");
    assert!(world.ok("policy get mount/photos").contains("effective.copies=1"));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn all_that_is_said_is_explained_the_strongest_first() {
    if !can_mount("all_that_is_said_is_explained_the_strongest_first") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=64M b.img,size=64M c.img,size=64M");
    world.ok("mount tank mount");
    fs::create_dir_all(world.mountpoint().join("house/room")).unwrap();
    fs::write(world.mountpoint().join("house/room/a.c"), vec![1; 10_000]).unwrap();
    fs::write(world.path("house.rules"), "! *.c: checksum=xxh3\n*.c: compress=lz4\n").unwrap();
    world.ok("policy load tank house.rules --wait");
    world.ok("class create tank photos copies=3 compress=zstd:7");
    world.ok("policy set mount/house class=photos rules=*.c:redundancy=10");
    world.ok("policy lock mount/house record=64K");
    world.ok("policy set mount/house/room dedup=yes pin=yes");
    world.ok("policy set mount/house/room/a.c copies=2 --wait");
    let said = world.ok("policy explain mount/house/room/a.c");
    let chain: Vec<&str> =
        said.lines().skip_while(|line| !line.starts_with("all that")).skip(1).map(str::trim).collect();
    let expected = [
        "locked at /house: record=64K",
        "the pool's overriding rules: ! *.c: checksum=xxh3",
        "set at /house/room/a.c: copies=2",
        "set at /house/room: dedup=yes pin=yes",
        "rules of /house: *.c:redundancy=10",
        "set at /house: class=photos (copies=3 compress=zstd:7)",
        "the pool's rules: *.c: compress=lz4",
        "default class of the pool: class=normal (copies=2)",
    ];
    assert_eq!(chain, expected, "{said}");
    assert!(said.contains("copies is 2: set here"), "{said}");
    // What was asked for on the scale, beside what it comes to with the devices that are there.
    world.ok("policy unset mount/house/room/a.c copies");
    let said = world.ok("policy explain mount/house/room/a.c");
    assert!(
        said.contains("redundancy is 10: rule of /house") && said.contains("parity is 1+2: rule of /house"),
        "{said}"
    );
    let chain = world.ok("policy explain mount/house");
    assert!(chain.contains("set at /house: class=photos") && !chain.contains("rules of"), "{chain}");
    fs::create_dir(world.mountpoint().join("shed")).unwrap();
    world.ok("policy set mount/shed dedup=no");
    fs::hard_link(world.mountpoint().join("house/room/a.c"), world.mountpoint().join("shed/b.c")).unwrap();
    let said = world.ok("policy explain mount/shed/b.c");
    assert!(said.contains("it has several names") && said.contains("set at /shed: dedup=no"), "{said}");
    assert!(said.contains("set at /house/room: dedup=yes pin=yes") && said.contains("dedup is yes"), "{said}");
    world.ok("umount mount");
}

#[test]
fn compression_is_set_seen_changed_and_rescued() {
    if !can_mount("compression_is_set_seen_changed_and_rescued") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M b.img,size=128M");
    world.ok("mount tank mount");
    let logs = world.mountpoint().join("logs");
    fs::create_dir(&logs).unwrap();
    world.ok("policy set mount/logs compress=zstd");
    world.refused("policy set mount/logs compress=gzip", 1, &["compress cannot be 'gzip'", "zstd:19"]);
    let text: Vec<u8> = (0..200_000).flat_map(|at| format!("line {at} of the log\n").into_bytes()).collect();
    fs::write(logs.join("one"), &text).unwrap();
    fs::write(world.mountpoint().join("plain"), &text).unwrap();
    world.ok("flush mount --wait");
    let stored = |path: &str| -> u64 {
        let facts = world.json(&format!("policy get {path} --json"));
        assert_eq!(facts["state"], "compliant", "{facts}");
        facts["stored"].as_str().unwrap().parse().unwrap()
    };
    assert!(stored("mount/logs/one") < text.len() as u64 / 3);
    assert_eq!(stored("mount/plain"), text.len() as u64);
    // What is there already follows, and back.
    world.ok("policy set mount/plain compress=lz4");
    world.ok("policy set mount/logs compress=none");
    world.ok("reconcile wait tank");
    assert!(stored("mount/plain") < text.len() as u64 * 3 / 4);
    assert_eq!(stored("mount/logs/one"), text.len() as u64);
    world.ok("policy set mount/logs compress=zstd:9 --wait");
    assert!(stored("mount/logs/one") < text.len() as u64 / 3);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert!(fs::read(logs.join("one")).unwrap() == text);
    assert!(fs::read(world.mountpoint().join("plain")).unwrap() == text);
    world.ok("umount mount");
    assert_eq!(world.run("rescue a.img --to rescued").code, 3);
    assert!(fs::read(world.path("rescued/logs/one")).unwrap() == text, "one device of two has all of it");
}

#[test]
fn rules_are_tested_set_loaded_and_told() {
    if !can_mount("rules_are_tested_set_loaded_and_told") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M b.img,size=128M c.img,size=128M");
    world.ok("mount tank mount");
    let source = world.mountpoint().join("src");
    fs::create_dir(&source).unwrap();
    for name in ["a.c", "b.c", "a.o", "notes"] {
        fs::write(source.join(name), vec![b'x'; 50_000]).unwrap();
    }
    fs::write(world.path("house.rules"), "# of the house\n*.c: compress=zstd, copies=3\n*.o: copies=1\n").unwrap();
    let said = world.ok("policy test mount/src house.rules");
    assert!(said.contains("/src/b.c: class=normal copies=2 parity=1+1 compress=none ->"), "{said}");
    assert!(said.contains("3 of 4 files"), "{said}");
    assert!(said.contains("now (") && said.contains("encoded as now, on a, b, c"), "{said}");
    let tested = world.json("policy test mount/src house.rules --json");
    let (mut now, mut then) = (0, 0);
    for one in tested.as_array().unwrap() {
        now += one["on_devices"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>();
        then += one["would_take_bytes"].as_u64().unwrap();
    }
    assert_eq!(now / 6, then / 7, "two copies of three files, then three of two and one of the third: {tested}");
    world.refused("policy set mount/src rules=*.c", 1, &["line 1, column 1"]);
    world.refused("policy set mount/src/notes rules=*:copies=1", 1, &["directories"]);
    world.ok("policy set mount/src rules=*.c:compress=lz4");
    world.ok("reconcile wait tank");
    assert_eq!(world.json("policy get mount/src/a.c --json")["effective.compress"], "lz4");
    assert_eq!(world.json("policy get mount/src --json")["rules"], "*.c:compress=lz4");
    assert!(world.ok("policy explain mount/src/a.c").contains("rule of /src: *.c:compress=lz4"));
    world.ok("policy load tank house.rules --wait");
    let facts = world.json("policy get mount/src/a.c --json");
    assert_eq!((&facts["effective.copies"], &facts["effective.compress"]), (&"3".into(), &"lz4".into()), "{facts}");
    assert_eq!((&facts["survives"], &facts["state"]), (&"2".into(), &"compliant".into()), "{facts}");
    assert_eq!(world.json("policy get mount/src/a.o --json")["survives"], "0");
    fs::write(world.mountpoint().join("new.c"), vec![b'x'; 50_000]).unwrap();
    assert_eq!(world.json("policy get mount/new.c --json")["effective.compress"], "zstd");
    fs::write(world.path("bad.rules"), "*: copies=2\n*.c: copies=none\n").unwrap();
    world.refused("policy load tank bad.rules", 1, &["line 2, column 6"]);
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert!(world.ok("policy show tank").contains("*.o: copies=1"));
    assert!(world.ok("policy log tank").contains("/src/a.o: *.o: copies=1"));
    assert_eq!(world.json("policy show tank --history --json").as_array().unwrap().len(), 1);
    world.ok("policy unset mount/src rules");
    world.ok("reconcile wait tank");
    assert_eq!(world.json("policy get mount/src/a.c --json")["effective.compress"], "zstd");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn lost_data_is_named_by_path_with_an_exit_code_of_its_own() {
    if !can_mount("lost_data_is_named_by_path_with_an_exit_code_of_its_own") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=64M b.img,size=64M");
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("once")).unwrap();
    world.ok("policy set mount/once copies=1");
    fs::write(world.mountpoint().join("once/fragile"), vec![3; 100_000]).unwrap();
    fs::write(world.mountpoint().join("twice"), vec![4; 100_000]).unwrap();
    world.ok("flush mount --wait");
    let holder = world.json("policy get mount/once/fragile --json")["where"].as_str().unwrap().to_owned();
    world.ok("umount mount");
    let image = fs::OpenOptions::new().write(true).open(world.path(&format!("{holder}.img"))).unwrap();
    // Every slot; superblocks and journal stay.
    std::os::unix::fs::FileExt::write_all_at(&image, &vec![0x5a; 60 << 20], (2 << 20) + (256 << 10)).unwrap();
    let said = world.run("check tank");
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
    assert!(said.out.contains("/once/fragile") && said.out.contains("restore it from a backup"), "{}", said.out);
    assert!(!said.out.contains("/twice"), "{}", said.out);
    world.ok("mount tank mount");
    assert_eq!(fs::read(world.mountpoint().join("twice")).unwrap(), vec![4; 100_000]);
    let lost = fs::read(world.mountpoint().join("once/fragile"));
    assert_eq!(lost.unwrap_err().raw_os_error(), Some(libc::EIO));
    let status: serde_json::Value = serde_json::from_str(&world.run("status tank --json").out).unwrap();
    let devices = status["devices"].as_array().unwrap();
    let rotten = devices.iter().find(|device| device["name"] == holder.as_str()).unwrap();
    assert!(rotten["checksum_errors"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["state"], "lost");
    assert!(status["next"].as_str().unwrap().contains("cannot be read from any device"), "{status}");
    assert!(status["lost_files"].to_string().contains("/once/fragile"), "{status}");
    world.ok("umount mount");
}

#[test]
fn mount_8_can_call_the_program_as_its_helper() {
    if !can_mount("mount_8_can_call_the_program_as_its_helper") {
        return;
    }
    let world = World::with_pool();
    let helper = world.path("mount.stere");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_stere"), &helper).unwrap();
    let call = |words: &[&str]| {
        let mut command = Command::new(&helper);
        command.args(words).env("STERE_STATE", world.path("state")).current_dir(&world.folder);
        command.stderr(Stdio::null()).status().unwrap().code()
    };
    let point = world.mountpoint().display().to_string();
    assert_eq!(call(&["tank", &point, "-f", "-o", "rw"]), Some(0));
    assert!(world.run("umount mount").code == 1, "a fake mount mounts nothing");
    assert_eq!(call(&["tank", &point, "-o", "rw,nofail,_netdev,noatime"]), Some(0));
    assert_eq!(call(&["tank", &point]), Some(32));
    assert_eq!(call(&["tank"]), Some(1));
    world.ok("umount mount");
}

#[test]
fn du_tells_what_files_take_on_each_device() {
    if !can_mount("du_tells_what_files_take_on_each_device") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let directory = world.mountpoint().join("films");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("one"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(directory.join("one"), directory.join("again")).unwrap();
    fs::create_dir(directory.join("single")).unwrap();
    world.ok("policy set mount/films/single copies=1 compress=zstd");
    fs::write(directory.join("single/two"), vec![b'x'; 2 << 20]).unwrap();
    world.ok("flush mount --wait");
    let report = world.json("du mount/films mount/films/single --json");
    let (all, single) = (&report[0], &report[1]);
    assert_eq!((all["files"].as_u64(), all["directories"].as_u64()), (Some(2), Some(2)), "{all}");
    assert_eq!(all["size_bytes"], 5 << 20, "a file with two names counts once");
    assert_eq!(all["schemes"]["1+1"], 3 << 20);
    let compressed = single["stored_bytes"].as_u64().unwrap();
    assert!(compressed > 0 && compressed < 1 << 18, "{single}");
    assert_eq!(single["raw_bytes"].as_u64(), Some(compressed), "one copy");
    assert_eq!(all["raw_bytes"].as_u64(), Some((6 << 20) + compressed));
    let by_device = all["devices"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap());
    assert_eq!(by_device.sum::<u64>(), (6 << 20) + compressed);
    assert!(world.ok("du mount/films").contains("by scheme: 1+0"));
    world.refused("du .", 1, &["is not on a stere mount"]);
    world.ok("umount mount");
}

#[test]
fn metrics_are_served_while_it_is_mounted() {
    if !can_mount("metrics_are_served_while_it_is_mounted") {
        return;
    }
    let world = World::with_pool();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.ok(&format!("mount tank mount --metrics 127.0.0.1:{port}"));
    let ask = |what: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        std::io::read_to_string(stream).unwrap()
    };
    let text = ask("/metrics");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("stere_pool_state{pool=\"tank\",state=\"healthy\"} 1"), "{text}");
    assert!(text.contains("stere_device_size_bytes{pool=\"tank\",device=\"a\"}"), "{text}");
    assert!(ask("/else").starts_with("HTTP/1.1 404"));
    let other = World::with_pool();
    other.refused(
        &format!("mount tank mount -o metrics=127.0.0.1:{port}"),
        1,
        &["metrics cannot be served", "another"],
    );
    assert_eq!(fs::read_dir(other.mountpoint()).unwrap().count(), 0);
    world.ok("umount mount");
}
