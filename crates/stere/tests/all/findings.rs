//! What `status` finds beside devices that fail, and what is said when a policy is set that cannot be kept (P-194, P-209): with the real binary on
//! a real mount. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::tier::{content, end_clean, fill, mount_pool, tiered, until};
use support::{World, can_mount};

fn status(world: &World) -> Value {
    world.json("status tank --json")
}

/// What all findings of this kind say, with what to do.
fn findings(status: &Value, kind: &str) -> String {
    let all = status["findings"].as_array().unwrap().iter().filter(|one| one["kind"] == kind);
    all.map(|one| format!("{} {}\n", one["what"].as_str().unwrap(), one["next"].as_str().unwrap())).collect()
}

#[track_caller]
fn assert_found(world: &World, kind: &str, words: &[&str]) {
    let status = status(world);
    let found = findings(&status, kind);
    for word in words {
        assert!(found.contains(word), "'{word}' is not in '{found}': {status}");
    }
    assert_ne!(status["state"], "healthy", "{status}");
    assert_ne!(world.run("status tank").code, 0);
    assert!(world.run("status tank").out.contains(words[0]), "{}", world.run("status tank").out);
}

fn is_well(world: &World) -> bool {
    let status = status(world);
    status["state"] == "healthy" && status["next"] == "nothing" && status["findings"] == Value::Array(Vec::new())
}

#[track_caller]
fn warned(world: &World, line: &str, words: &[&str]) {
    let said = world.run(line);
    assert_eq!(said.code, 0, "stere {line}: {}", said.err);
    for word in words {
        assert!(said.err.contains(word), "stere {line} says '{}', without '{word}'", said.err);
    }
}

#[test]
fn what_cannot_be_kept_is_said_when_it_is_set_and_stays_in_status() {
    if !can_mount("what_cannot_be_kept_is_said_when_it_is_set_and_stays_in_status") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M b.img,size=96M c.img,size=96M");
    world.ok("mount tank mount");
    assert!(is_well(&world), "{}", status(&world));
    for name in ["db", "many", "ruled", "classed"] {
        fs::create_dir(world.mountpoint().join(name)).unwrap();
    }
    warned(&world, "policy set mount/db only=nvme", &["warning", "nvme", "no device has"]);
    assert_found(&world, "policy", &["/db", "nvme", "stere device label"]);
    world.ok("policy unset mount/db only");
    assert!(is_well(&world), "{}", status(&world));
    warned(&world, "policy set mount/many copies=5", &["warning", "needs 5 devices", "the pool has 3"]);
    assert_found(&world, "policy", &["/many", "needs 5 devices"]);
    // After the next mount, too.
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_found(&world, "policy", &["/many", "needs 5 devices"]);
    world.ok("policy unset mount/many copies");
    warned(
        &world,
        "policy set mount/ruled rules=*.db:copies=4;*.o:redundancy=0",
        &["*.db:copies=4", "needs 4 devices"],
    );
    assert_found(&world, "policy", &["*.db:copies=4", "/ruled"]);
    fs::remove_dir(world.mountpoint().join("ruled")).unwrap();
    assert!(is_well(&world), "{}", status(&world));
    warned(&world, "class create tank films parity=2+3", &["warning", "needs 4 devices"]);
    assert!(is_well(&world), "nothing has the class: {}", status(&world));
    warned(&world, "policy set mount/classed class=films", &["needs 4 devices"]);
    assert_found(&world, "policy", &["/classed", "needs 4 devices"]);
    let said = world.run("class change tank films parity=1+1");
    assert!(said.code == 0 && said.err.is_empty(), "{}", said.err);
    // What is set and can be kept is set in silence.
    for line in ["policy set mount/many copies=3", "policy set mount/db compress=zstd"] {
        assert!(world.run(line).err.is_empty());
    }
    world.ok("reconcile wait tank");
    assert!(is_well(&world), "{}", status(&world));
    fs::write(world.path("rules"), "*.iso:copies=4\n").unwrap();
    // Volumes are told of it too, and so is who locks.
    warned(&world, "volume create mount/volume copies=4", &["warning", "needs 4 devices"]);
    warned(&world, "volume set mount/volume copies=5", &["warning", "needs 5 devices"]);
    fs::remove_dir(world.mountpoint().join("volume")).unwrap();
    fs::create_dir(world.mountpoint().join("locked")).unwrap();
    warned(&world, "policy lock mount/locked copies=4", &["warning", "needs 4 devices"]);
    fs::remove_dir(world.mountpoint().join("locked")).unwrap();
    warned(&world, "policy load tank rules --wait", &["warning", "*.iso:copies=4", "needs 4 devices"]);
    assert_found(&world, "policy", &["*.iso:copies=4"]);
    end_clean(&world);
}

/// P-164: the least of what files have, of each class, whatever the default is.
#[test]
fn survives_is_the_least_that_files_have() {
    if !can_mount("survives_is_the_least_that_files_have") {
        return;
    }
    let survives = |world: &World, class: &str| {
        let status = status(world);
        let classes = status["classes"].as_array().unwrap().clone();
        let of_class = classes.iter().find(|one| one["class"] == class).unwrap()["survives"].as_u64();
        (status["survives"].as_u64(), of_class)
    };
    let world = tiered("");
    fill(&world.mountpoint().join("d"), 5);
    world.ok("tier archive mount/d --wait");
    assert_eq!(survives(&world, "normal"), (Some(1), Some(1)));
    world.ok("tier release mount/d");
    until("it is not told", || survives(&world, "normal") == (Some(0), Some(0)));
    end_clean(&world);
    // A pool whose default has one copy.
    let world = World::new();
    world.ok("create tank a.img,size=96M b.img,size=96M --default-class scratch");
    world.ok("mount tank mount");
    fs::write(world.mountpoint().join("file"), content(1)).unwrap();
    world.ok("flush mount --wait");
    assert_eq!(survives(&world, "scratch"), (Some(0), Some(0)));
    assert_eq!(survives(&world, "normal").1, Some(1));
    world.ok("umount mount");
    // It is said which files are the least.
    let world = World::with_pool();
    world.ok("mount tank mount");
    assert!(world.ok("status tank").contains("survives the loss of 1 device; next: nothing"));
    fs::create_dir(world.mountpoint().join("d")).unwrap();
    world.ok("policy set mount/d class=scratch");
    fs::write(world.mountpoint().join("d/file"), content(100)).unwrap();
    world.ok("flush mount --wait");
    let told = world.ok("status tank");
    assert!(told.contains("survives the loss of 0 devices (files of class scratch); next: nothing"), "{told}");
    world.ok("umount mount");
    // A disk is missing: what has no files has no more either.
    let world = World::with_pool();
    fs::rename(world.path("b.img"), world.path("b.away")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0").code, 3);
    assert_eq!(survives(&world, "normal"), (Some(0), Some(0)));
    assert_eq!(survives(&world, "archive").1, Some(0));
    world.ok("umount mount");
}

/// Other file systems take such attributes as well: nobody is told that a policy was set there.
#[test]
fn policy_is_not_set_where_nobody_follows_it() {
    if !can_mount("policy_is_not_set_where_nobody_follows_it") {
        return;
    }
    let world = World::with_pool();
    fs::create_dir(world.path("plain")).unwrap();
    for line in ["policy set plain copies=3", "policy lock plain copies=3"] {
        let said = world.run(line);
        assert!(
            said.code == 1 && said.err.contains("not on a stere mount"),
            "stere {line}: {} {}",
            said.code,
            said.err
        );
    }
    world.ok("mount tank mount");
    world.ok("policy set mount copies=2");
    // Who may write a file and not read it sets its policy all the same.
    let file = world.mountpoint().join("file");
    fs::write(&file, b"content").unwrap();
    std::os::unix::fs::chown(&file, Some(support::NOBODY), None).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o200)).unwrap();
    let said = world.command_of_nobody("policy set mount/file compress=zstd").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    world.ok("umount mount");
    let said = world.run("create lake d.img,size=96M e.img,size=96M --default-class precious");
    assert!(said.code == 0 && said.err.contains("cannot be kept with these devices"), "{}{}", said.out, said.err);
}

/// Who says `copies=1` has the usual class, of which there is room: what takes nothing more is the redundancy.
#[test]
fn a_redundancy_that_takes_nothing_more_is_a_finding() {
    if !can_mount("a_redundancy_that_takes_nothing_more_is_a_finding") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M d.img,size=256M");
    world.ok("mount tank mount");
    let single = world.mountpoint().join("single");
    fs::create_dir(&single).unwrap();
    world.ok("policy set mount/single copies=1");
    fs::write(world.mountpoint().join("double"), content(1)).unwrap();
    let block = content(1000).into_iter().cycle().take(1 << 20).collect::<Vec<u8>>();
    let mut file = fs::File::create(single.join("all")).unwrap();
    while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
    drop(file);
    assert_found(&world, "full", &["pool is full", "scratch", "as redundant"]);
    fs::remove_file(single.join("all")).unwrap();
    until("it stays full", || findings(&status(&world), "full").is_empty());
    end_clean(&world);
}

#[test]
fn a_full_pool_and_work_without_room_are_findings() {
    if !can_mount("a_full_pool_and_work_without_room_are_findings") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M,tag=one b.img,size=96M c.img,size=512M");
    world.ok("mount tank mount");
    let directory = world.mountpoint().join("d");
    fs::create_dir(&directory).unwrap();
    let block = content(1000);
    let full = |path: &Path| {
        let mut file = fs::File::create(path).unwrap();
        while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
    };
    // More than one device has room for, so that it cannot all go there.
    fs::write(directory.join("big"), block.iter().cycle().take(60 << 20).copied().collect::<Vec<u8>>()).unwrap();
    world.ok("policy set mount/d copies=1");
    world.ok("policy set mount copies=1");
    world.ok("reconcile wait tank");
    full(&world.mountpoint().join("rest"));
    assert_found(&world, "full", &["pool is full", "normal", "stere device add tank"]);
    fs::remove_file(world.mountpoint().join("rest")).unwrap();
    until("it stays full", || findings(&status(&world), "full").is_empty());
    // Room on c only, and all is to lie on a.
    fs::write(directory.join("more"), block.iter().cycle().take(60 << 20).copied().collect::<Vec<u8>>()).unwrap();
    world.ok("policy set mount/d only=one");
    until("it does not stand still", || !findings(&status(&world), "reconcile").is_empty());
    assert_found(&world, "reconcile", &["/d", "stere reconcile"]);
    world.ok("umount mount");
}

#[test]
fn a_device_that_catches_up_is_a_finding() {
    if !can_mount("a_device_that_catches_up_is_a_finding") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M,name=b");
    world.ok("mount tank mount -o repair_rate=1M");
    world.ok("device offline tank b");
    fill(&world.mountpoint().join("d"), 3);
    let big = content(1).into_iter().cycle().take(100 << 20).collect::<Vec<u8>>();
    fs::write(world.mountpoint().join("big"), big).unwrap();
    world.ok("flush mount --wait");
    world.ok("device online tank b");
    // From the first moment on.
    let now = status(&world);
    assert!(now["state"] != "healthy" || now["survives"] == 1, "{now}");
    until("it is not told", || !findings(&status(&world), "catching_up").is_empty() || is_well(&world));
    assert_found(&world, "catching_up", &["device b is catching up", "lacks", "device list tank"]);
    until("it never catches up", || is_well(&world));
    assert_eq!(status(&world)["survives"], 1);
    world.ok("umount mount");
}

#[test]
fn a_medium_that_is_away_and_who_waits_for_it_are_findings() {
    if !can_mount("a_medium_that_is_away_and_who_waits_for_it_are_findings") {
        return;
    }
    let world = tiered("");
    fill(&world.mountpoint().join("d"), 5);
    world.ok("tier archive mount/d --wait");
    assert!(is_well(&world), "{}", status(&world));
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    fs::write(world.mountpoint().join("d/more"), content(9)).unwrap();
    assert!(world.run("tier archive mount/d --wait").code != 0);
    assert_found(&world, "medium_away", &["cold is away", "wait to be copied"]);
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    world.ok("tier archive mount/d --wait");
    world.ok("tier release mount/d");
    until("it stays away", || is_well(&world));
    // What was written last is in memory still.
    world.ok("umount mount");
    world.ok("mount tank mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    // Nobody has asked for anything since.
    assert_found(&world, "medium_away", &["cold is away", "nowhere else", "stere device online tank cold"]);
    let mut reader =
        Command::new("cat").arg(world.mountpoint().join("d/4")).stdout(std::process::Stdio::null()).spawn().unwrap();
    until("nobody waits", || !findings(&status(&world), "medium_waits").is_empty());
    assert_found(&world, "medium_waits", &["wait", "cold"]);
    assert_eq!(world.json("media list tank --json")[0]["state"], "away");
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    assert!(reader.wait().unwrap().success());
    until("it stays away", || is_well(&world));
    // Taken away on purpose: worth a word, and nothing is wrong.
    world.ok("device offline tank cold");
    let now = status(&world);
    assert_eq!(now["state"], "healthy", "{now}");
    assert!(now["next"].as_str().unwrap().contains("nowhere else"), "{now}");
    world.ok("umount mount");
}

/// A small file system in memory, which goes with this.
struct Small(PathBuf);

impl Small {
    fn new(at: PathBuf, size: &str) -> Small {
        fs::create_dir(&at).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success());
        Small(at)
    }

    fn grow(&self, size: &str) {
        let grown = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).status().unwrap();
        assert!(grown.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg("-l").arg(&self.0).status().unwrap().success());
    }
}

/// P-209: a full medium is a finding that says what waits and what to do, until there is room.
#[test]
fn a_medium_that_is_full_is_a_finding() {
    if !can_mount("a_medium_that_is_full_is_a_finding") {
        return;
    }
    let world = World::new();
    mount_pool(&world, "");
    let small = Small::new(world.path("small"), "1M");
    world.ok("device add tank dir:small,name=cold");
    fill(&world.mountpoint().join("d"), 80);
    assert_eq!(world.run("tier archive mount/d --wait").code, 3);
    assert_found(
        &world,
        "medium_full",
        &["medium cold is full", "wait to be copied to it", "stere media repack tank cold"],
    );
    assert!(findings(&status(&world), "medium_away").is_empty(), "it is there: {}", status(&world));
    assert_eq!(world.json("media list tank --json")[0]["state"], "full");
    // After the next mount, too.
    world.ok("umount mount");
    world.ok("mount tank mount");
    until("it is forgotten", || !findings(&status(&world), "medium_full").is_empty());
    small.grow("64M");
    world.ok("tier archive mount/d --wait");
    until("it stays full", || is_well(&world));
    assert_eq!(world.json("media list tank --json")[0]["state"], "online");
    end_clean(&world);
}

/// P-209: of a device that fails too often and is not given up, `status` says why, and what to do.
#[test]
fn why_a_sick_device_is_not_given_up_is_said() {
    if !can_mount("why_a_sick_device_is_not_given_up_is_said") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M,name=a b.img,size=128M,name=b");
    let mut mount = world.command("mount tank mount -o sick_errors=2,retire_errors=4,scrub=never");
    assert!(mount.env("STERE_TEST_FAULTS", "1").status().unwrap().success());
    fill(&world.mountpoint().join("d"), 40);
    world.ok("flush mount --wait");
    let told = || {
        let status = status(&world);
        let sick = status["devices"].as_array().unwrap().iter().find(|device| device["name"] == "b").unwrap();
        (sick["state"].as_str().unwrap().to_owned(), sick["why"].as_str().unwrap_or_default().to_owned())
    };
    fs::write(world.path("b.img.fail"), "read").unwrap();
    world.run("scrub start tank --wait");
    // The other device has all of it, and there is none that could have its second copies.
    until("it is not sick", || told().0 == "sick");
    until("nothing is said of it", || told().1.contains("the other devices have no room for what it holds"));
    let (_, why) = told();
    assert!(why.contains("retire_errors=4") && why.contains("add or replace one"), "{why}");
    let said = world.run("status tank");
    assert!(said.code == 3 && said.out.contains(&format!("b: {why}")), "{}", said.out);
    // Something is on it alone.
    fs::create_dir(world.mountpoint().join("single")).unwrap();
    world.ok("policy set mount/single copies=1");
    for number in 0..12 {
        fs::write(world.mountpoint().join(format!("single/{number}")), content(500)).unwrap();
    }
    world.ok("flush mount --wait");
    until("the reason stays", || told().1.contains("not all that it holds can be read without it"));
    assert!(told().1.contains("while it still answers"), "{}", told().1);
    fs::remove_file(world.path("b.img.fail")).unwrap();
    world.ok("umount mount");
}
