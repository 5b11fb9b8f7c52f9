//! The real binary on image files, nothing mounted: creating, refusing, listing, checking.

use crate::support;

use std::os::unix::fs::FileExt;

use support::World;

fn bytes_of(world: &World, name: &str) -> Vec<u8> {
    std::fs::read(world.path(name)).unwrap()
}

fn overwrite(world: &World, name: &str, offset: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(world.path(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

#[test]
fn a_pool_is_made_listed_and_clean() {
    let world = World::with_pool();
    let status = world.json("status tank --json");
    assert_eq!(status["pool"], "tank");
    assert_eq!(status["state"], "healthy");
    assert_eq!(status["survives"], 1);
    assert_eq!(status["next"], "nothing");
    let devices = status["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    for key in ["name", "path", "class", "state", "size_bytes", "used_bytes", "read_errors", "checksum_errors"] {
        assert!(devices[0].get(key).is_some(), "status --json has no {key}");
    }
    assert_eq!(devices[0]["size_bytes"], 96 << 20);
    assert!(world.ok("status tank").contains("healthy"));
    assert!(world.ok("device list tank").contains("b.img"));
    assert!(world.ok("pool list").contains("tank"));
    assert!(world.ok("free tank").contains("precious"));
    assert!(world.ok("check tank").contains("clean"));
    assert!(world.ok("check a.img b.img").contains("clean"));
}

/// A pipe whose reader has gone is no reason for more than to end.
#[test]
fn nobody_reads_what_is_printed() {
    let world = World::with_pool();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = world.command("free tank").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(141), ""));
}

#[test]
fn looking_changes_nothing() {
    let world = World::with_pool();
    let before = [bytes_of(&world, "a.img"), bytes_of(&world, "b.img")];
    for line in ["status tank", "check tank", "device list tank", "free tank", "status a.img b.img"] {
        world.ok(line);
    }
    assert!(before == [bytes_of(&world, "a.img"), bytes_of(&world, "b.img")]);
}

#[test]
fn devices_keep_what_was_said_of_them() {
    let world = World::new();
    world.ok(
        "create tank a.img,size=64M,class=hdd,tag=quiet,tag=old,host=shed,shelf=top,name=left b.img,size=64M,class=ssd",
    );
    let devices = world.json("device list tank --json");
    assert_eq!(devices[0]["name"], "left");
    assert_eq!(devices[0]["class"], "hdd");
    assert_eq!(devices[0]["tags"], serde_json::json!(["quiet", "old"]));
    assert_eq!(devices[0]["host"], "shed");
    assert_eq!(devices[0]["shelf"], "top");
    assert_eq!(devices[1]["name"], "b");
    assert_eq!(devices[1]["class"], "ssd");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let world = World::with_pool();
    let lines = [
        ("create", "required"),
        ("create x", "required"),
        ("create x y.img,colour=red", "no key 'colour'"),
        ("create x y.img,size=huge", "not a size"),
        ("create x y.img,class=tape", "ssd, hdd, object and media"),
        ("create a/b y.img,size=64M", "name of a pool"),
        ("create x y.img,size=64M --default-class best", "scratch, normal, precious and archive"),
        ("create x y.img,size=64M --metadata-copies some", "a number or 'all'"),
        ("create x y.img,size=64M --chunk-size 64M", "1M to 16M"),
        ("mount tank", "2 values required"),
        ("mount tank mount -o turbo", "not a mount option"),
        ("mount tank mount -o degraded=perhaps", "auto, ask or never"),
        ("mount tank mount -o memory=2", "64M"),
        ("policy set mount colour=red", "class, copies, parity"),
        ("frobnicate", "unrecognized"),
    ];
    for (line, words) in lines {
        world.refused(line, 2, &[words]);
    }
    assert!(!world.path("y.img").exists(), "a refusal left a file behind");
}

/// What is wrong on the devices or the machine: each has words of its own, exit code 1, and changes nothing.
#[test]
fn refusals_name_their_finding() {
    let world = World::with_pool();
    std::fs::write(world.path("tiny.img"), vec![0; 1 << 20]).unwrap();
    let file = std::fs::File::create(world.path("ext4.img")).unwrap();
    file.set_len(64 << 20).unwrap();
    overwrite(&world, "ext4.img", 1024 + 56, &[0x53, 0xef]);
    let file = std::fs::File::create(world.path("full.img")).unwrap();
    file.set_len(64 << 20).unwrap();
    overwrite(&world, "full.img", 700, b"letters to a friend");
    std::fs::write(world.path("file"), b"").unwrap();
    std::os::unix::fs::symlink(world.path("a.img"), world.path("link.img")).unwrap();
    world.copy("b.img", "copy.img");
    let lines: &[(&str, &[&str])] = &[
        ("create x nothere.img", &["does not exist", "size="]),
        ("create x tiny.img", &["at least 64 MiB"]),
        ("create x mount", &["file"]),
        ("create x ext4.img", &["ext4.img holds", "--force"]),
        ("create x full.img", &["unknown data", "--force"]),
        ("create x a.img", &["belongs to the pool 'tank'", "--force"]),
        ("create x a.img link.img", &["same device"]),
        ("create x full.img,size=65M", &["exists and has"]),
        ("create x c.img,size=64M --metadata-copies 2", &["2 metadata copies need 2 devices"]),
        ("create x c.img,size=64M --chunk-size 16M", &["slots"]),
        ("create x c.img,size=64M --chunk-size 3M", &["power of two"]),
        ("create tank c.img,size=64M", &["a pool named 'tank' is known"]),
        ("mount nopool mount", &["no pool is named 'nopool'", "tank"]),
        ("mount tank nowhere", &["mount point", "create the directory"]),
        ("mount tank file", &["not a directory"]),
        ("mount a.img mount -o wait=0,degraded=never", &["lacks device 'b'", "degraded=auto"]),
        ("mount full.img mount", &["not a device of a stere pool"]),
        ("mount a.img b.img copy.img mount", &["same device id"]),
        ("mount a.img link.img mount", &["same device"]),
        ("umount mount", &["no stere pool is mounted"]),
        ("umount /proc", &["not of stere"]),
        ("policy get file", &["not on a stere mount"]),
        ("flush file", &["not on a stere mount"]),
        ("pool export nopool", &["no pool is named"]),
    ];
    let images = ["a.img", "b.img", "full.img", "ext4.img", "tiny.img"];
    let before: Vec<Vec<u8>> = images.iter().map(|name| bytes_of(&world, name)).collect();
    for (line, words) in lines {
        world.refused(line, 1, words);
    }
    let after: Vec<Vec<u8>> = images.iter().map(|name| bytes_of(&world, name)).collect();
    assert!(before == after, "a refusal changed a device");
    assert!(!world.path("c.img").exists(), "a refusal left a file behind");
}

#[test]
fn rotten_cut_and_foreign_devices_are_told_apart() {
    let world = World::with_pool();
    world.copy("a.img", "cut.img");
    std::fs::OpenOptions::new().write(true).open(world.path("cut.img")).unwrap().set_len(80 << 20).unwrap();
    world.refused("mount cut.img b.img mount", 1, &["cut.img is cut short", "100663296"]);

    world.copy("a.img", "rotten.img");
    for offset in [0, 64 << 10, (96 << 20) - (128 << 10), (96 << 20) - (64 << 10)] {
        overwrite(&world, "rotten.img", offset + 200, b"rot");
    }
    world.refused("check rotten.img", 1, &["rotten.img", "no copy of its superblock is whole"]);
    // P-13: it counts as missing, each with a finding of its own; who is asked may refuse.
    let lacking = "mount rotten.img b.img mount -o degraded=ask";
    world.refused(lacking, 1, &["lacks device 'a'"]);
    let said = world.run("status rotten.img b.img");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(said.out.contains("rotten.img counts as missing: no copy of its superblock is whole"), "{}", said.out);
    std::fs::write(world.path("zeros.img"), vec![0; 96 << 20]).unwrap();
    let said = world.run("status zeros.img b.img");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(said.out.contains("zeros.img counts as missing: it holds no superblock any more"), "{}", said.out);
    // Nobody is missing, or nobody of that size: it is none of the pool's.
    world.refused("status a.img b.img zeros.img", 1, &["zeros.img", "not a device of a stere pool"]);
    std::fs::write(world.path("other.img"), vec![0; 80 << 20]).unwrap();
    world.refused("status other.img b.img", 1, &["other.img", "not a device of a stere pool"]);

    world.copy("a.img", "spotted.img");
    overwrite(&world, "spotted.img", 200, b"rot");
    let said = world.run("check spotted.img b.img");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("damaged superblock copies (at byte 0"), "{}", said.out);

    world.ok("create other c.img,size=64M d.img,size=64M");
    world.refused("mount a.img c.img mount", 1, &["different pools", "tank", "other"]);
}

#[test]
fn a_missing_device_is_degraded_and_named() {
    let world = World::with_pool();
    std::fs::rename(world.path("b.img"), world.path("away")).unwrap();
    let said = world.run("status tank --json");
    assert_eq!(said.code, 3, "{}", said.err);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(status["state"], "at_risk");
    assert_eq!(status["survives"], 0);
    assert_eq!(status["devices"][1]["state"], "missing");
    assert!(status["next"].as_str().unwrap().contains("attach"));
    world.refused("mount tank mount -o wait=0,degraded=ask", 1, &["lacks device 'b'", "b.img"]);
    let said = world.run("pool import a.img");
    assert_eq!(said.code, 3, "{}", said.err);
    world.ok("pool export tank");
    world.ok("pool import a.img away");
    assert!(world.ok("status tank").contains("away"));
}

/// P-17: names stay while one device with all metadata is left, on as many devices as the pool was told later.
#[test]
fn metadata_lies_on_as_many_devices_as_the_pool_is_told() {
    let world = World::new();
    world.ok("create tank a.img,size=64M b.img,size=64M c.img,size=64M --metadata-copies 1");
    let holders = |world: &World| {
        let alone = |name: &&&str| world.run(&format!("status {name}")).code != 1;
        ["a.img", "b.img", "c.img"].iter().filter(alone).count()
    };
    assert_eq!(holders(&world), 1);
    for (copies, expected) in [("2", 2), ("all", 3), ("1", 1), ("3", 3)] {
        let said = world.ok(&format!("pool change tank --metadata-copies {copies} --wait"));
        assert!(said.contains("metadata of tank lies on"), "{said}");
        assert_eq!(holders(&world), expected, "{copies}");
        assert!(world.ok("check tank").contains("clean"));
    }
    world.refused("pool change tank --metadata-copies 4", 1, &["4 metadata copies need 4 devices"]);
    world.refused("pool change tank --metadata-copies 0", 1, &["1 to"]);
    world.refused("pool change tank --metadata-copies some", 2, &["a number or 'all'"]);
    world.refused("pool change nopool --metadata-copies 2", 1, &["no pool is named"]);
}

#[test]
fn metadata_that_no_device_has_right_is_refused() {
    let world = World::new();
    world.ok("create tank a.img,size=64M");
    // Every slot; superblocks and journal stay.
    overwrite(&world, "a.img", (2 << 20) + (256 << 10), &vec![0x5a; 60 << 20]);
    world.refused("check tank", 1, &["metadata of the pool 'tank' cannot be read"]);
    world.refused("mount tank mount", 1, &["metadata of the pool 'tank' cannot be read"]);
}

#[test]
fn force_makes_a_new_pool_of_used_devices() {
    let world = World::with_pool();
    world.ok("pool export tank");
    world.ok("create fresh a.img b.img --force --default-class precious");
    assert!(world.ok("check fresh").contains("clean"));
    world.refused("status tank", 1, &["no pool is named 'tank'"]);
}

#[test]
fn everything_has_help_and_a_man_page() {
    let world = World::new();
    for line in
        ["--help", "create --help", "mount --help", "pool import --help", "policy explain --help", "demo --help"]
    {
        assert!(world.ok(line).contains("Usage: stere"), "{line}");
    }
    assert!(world.ok("mount --help").contains("degraded=auto|ask|never"));
    world.ok("man pages");
    for page in ["stere.1", "stere-mount.1", "stere-pool-import.1"] {
        assert!(world.path("pages").join(page).is_file(), "{page}");
    }
}

/// Nothing is mounted: the command opens the pool, does the work to its end, and closes it.
#[test]
fn devices_come_and_go_while_nothing_is_mounted() {
    let world = World::with_pool();
    assert!(world.ok("device add tank c.img,size=128M --dry-run").contains("afterwards normal survives 1"));
    assert!(!world.path("c.img").exists(), "a dry run left a file behind");
    world.ok("device add tank c.img,size=128M,shelf=top");
    world.ok("device label tank c name=third host=shed");
    let devices = world.json("device list tank --json");
    assert_eq!((devices[2]["name"].as_str(), devices[2]["host"].as_str()), (Some("third"), Some("shed")));
    world.refused("device remove tank nobody --yes", 1, &["no device 'nobody'", "third"]);
    world.ok("device evacuate tank a");
    assert_eq!(world.json("device list tank --json")[0]["state"], "leaving");
    world.ok("device online tank a");
    world.ok("device remove tank a --yes");
    assert_eq!(world.json("device list tank --json").as_array().unwrap().len(), 2);
    assert!(world.ok("check tank").contains("clean"));
    // It is free for anything again.
    world.ok("create other a.img --force");
    world.ok("device replace tank b d.img,size=160M --yes");
    assert!(world.ok("check tank").contains("clean"));
    assert_eq!(world.json("status tank --json")["state"], "healthy");
}

/// Metadata lies on more devices than are left then; it is written anew on those.
#[test]
fn one_of_three_devices_goes_although_metadata_lies_on_all() {
    let world = World::new();
    world.ok("create tank a.img,size=96M b.img,size=96M c.img,size=96M");
    for line in ["device evacuate tank a", "device remove tank a --yes"] {
        assert!(world.ok(&format!("{line} --dry-run")).contains("survives 1"));
        world.ok(line);
        let status = world.json("status tank --json");
        assert_eq!(status["survives"], 1, "{line}: {status}");
        assert!(world.ok("check tank").contains("clean"));
    }
    assert_eq!(world.json("status tank --json")["state"], "healthy");
    assert_eq!(world.json("device list tank --json").as_array().unwrap().len(), 2);
    // Nothing of the pool is on it any more.
    world.ok("create other a.img --force");
    assert!(world.ok("check b.img c.img").contains("clean"));
    world.ok("device remove tank b --yes");
    assert!(world.ok("check tank").contains("clean"));
    world.refused_after_forecast("device remove tank c --yes", &["'c' is the last device"]);
}

#[test]
fn what_cannot_end_well_is_refused_before_it_begins() {
    let world = World::with_pool();
    let before = [bytes_of(&world, "a.img"), bytes_of(&world, "b.img")];
    std::fs::write(world.path("letters.img"), vec![7; 70 << 20]).unwrap();
    let lines: &[(&str, &[&str])] = &[
        ("device add tank letters.img", &["letters.img holds", "--force"]),
        ("device add tank b.img", &["in use"]),
        ("device add tank c.img,size=1M", &["at least 64 MiB"]),
        ("device add tank c.img,size=64M,name=a", &["a device named 'a' already"]),
        ("device label tank a name=b", &["a device named 'b' already"]),
        ("device resize tank a", &["not larger"]),
        ("scrub pause tank", &["not mounted"]),
    ];
    for (line, words) in lines {
        world.refused_after_forecast(line, words);
    }
    let said = world.run("device offline tank a --force");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--yes"), "{}", said.err);
    assert!(!world.path("c.img").exists(), "a refusal left a file behind");
    drop(before);
    world.refused("device label tank a colour=red", 2, &["no label 'colour'"]);
    assert_eq!(world.json("status tank --json")["state"], "healthy");
}

#[test]
fn a_device_that_has_grown_is_used_whole() {
    let world = World::with_pool();
    let image = std::fs::OpenOptions::new().write(true).open(world.path("a.img")).unwrap();
    image.set_len(200 << 20).unwrap();
    drop(image);
    assert!(world.ok("device resize tank a --dry-run").contains("grows from 96.0 MiB to 200 MiB"));
    assert_eq!(world.json("device list tank --json")[0]["size_bytes"], 96 << 20);
    world.ok("device resize tank a --yes");
    assert_eq!(world.json("device list tank --json")[0]["size_bytes"], 200 << 20);
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn a_scrub_repairs_what_rotted_on_one_device() {
    let world = World::with_pool();
    assert!(world.ok("scrub status tank").contains("never scrubbed"));
    world.ok("scrub start tank");
    overwrite(&world, "a.img", (3 << 20) + (256 << 10), &vec![0x5a; 8 << 20]);
    let said = world.ok("scrub start tank --restart");
    assert!(said.contains("scrub done") && said.contains("0 not repairable"), "{said}");
    assert!(!said.contains(" 0 blocks repaired"), "{said}");
    let report = world.json("scrub status tank --json");
    assert_eq!(report["state"], "done");
    assert_eq!(report["passes"], 2);
    assert!(world.ok("check tank").contains("clean"));
    // What was repaired stands on its own.
    std::fs::remove_file(world.path("b.img")).unwrap();
    assert_eq!(world.run("status tank").code, 3);
    assert_eq!(world.run("check a.img").code, 1, "a missing device is a finding, and the only one");
    assert!(!world.run("check a.img").out.contains("lost"));
}
