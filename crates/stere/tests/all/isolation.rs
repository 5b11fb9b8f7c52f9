//! Fault isolation with the real binary and real mounts: P-17; needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;

use support::{World, can_mount};

const FILE_BYTES: usize = 32 << 10;

fn content(name: &str, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    (0..length as u64).map(|at| (at / 512 * 7 + at + seed) as u8).collect()
}

/// A pool of three images; directories of every kind of redundancy with files in them, all durable.
fn with_files() -> (World, BTreeMap<String, Vec<u8>>) {
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M");
    world.ok("mount tank mount");
    let mut files = BTreeMap::new();
    for (directory, settings) in
        [("single", "class=scratch"), ("two", "copies=2"), ("stripes", "parity=2+1"), ("three", "class=precious")]
    {
        let folder = world.mountpoint().join(directory).join("deeper");
        fs::create_dir_all(&folder).unwrap();
        world.ok(&format!("policy set mount/{directory} {settings}"));
        for number in 0..30 {
            let name = format!("/{directory}/deeper/f{number}");
            let bytes = content(&name, if number % 10 == 0 { 600_000 } else { FILE_BYTES });
            fs::write(folder.join(format!("f{number}")), &bytes).unwrap();
            files.insert(name, bytes);
        }
    }
    world.ok("flush mount --wait");
    (world, files)
}

/// Lost ranges by path.
fn lost(world: &World, line: &str) -> BTreeMap<String, Vec<(u64, u64)>> {
    let report = world.json(line);
    let files = report["files"].as_array().unwrap();
    assert_eq!(report["lost_files"], files.len(), "{report}");
    let mut lost = BTreeMap::new();
    for file in files {
        let ranges = file["ranges"].as_array().unwrap().iter();
        let ranges: Vec<(u64, u64)> =
            ranges.map(|range| (range[0].as_u64().unwrap(), range[1].as_u64().unwrap())).collect();
        let bytes: u64 = ranges.iter().map(|(start, end)| end - start).sum();
        assert_eq!(file["lost_bytes"], bytes);
        lost.insert(file["path"].as_str().unwrap().to_owned(), ranges);
    }
    lost
}

/// Reads every block of every file: what was named fails with EIO, everything else is right.
fn check_readable(world: &World, files: &BTreeMap<String, Vec<u8>>, lost: &BTreeMap<String, Vec<(u64, u64)>>) {
    let none = Vec::new();
    for (path, bytes) in files {
        let file = fs::File::open(world.mountpoint().join(&path[1..])).unwrap();
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64, "names and sizes stay");
        let ranges = lost.get(path).unwrap_or(&none);
        for (block, expected) in bytes.chunks(4096).enumerate() {
            let start = block as u64 * 4096;
            let is_lost = ranges.iter().any(|(from, to)| *from <= start && start < *to);
            let mut found = vec![0; expected.len()];
            match file.read_exact_at(&mut found, start) {
                Ok(()) => assert!(!is_lost && found == *expected, "{path} at {start}: named as lost: {is_lost}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{path} at {start}");
                    assert!(is_lost, "{path} fails at {start} and was not named");
                }
            }
        }
    }
}

#[test]
fn losing_devices_fails_exactly_the_named_ranges_and_names_stay() {
    if !can_mount("losing_devices_fails_exactly_the_named_ranges_and_names_stay") {
        return;
    }
    let (world, files) = with_files();
    let one = lost(&world, "lose b.img --json");
    // By the room that each device has: copies of other files may lie on two of the three at the moment.
    let third = one.len();
    assert!((9..=11).contains(&third), "a third of the unreplicated files: {:?}", one.keys());
    assert!(one.keys().all(|path| path.starts_with("/single/")));
    let two = lost(&world, "lose b.img c.img --json");
    let singles = two.keys().filter(|path| path.starts_with("/single/")).count();
    assert!((19..=21).contains(&singles), "two thirds of the unreplicated files: {singles}");
    assert!(two.keys().any(|path| path.starts_with("/stripes/")) && two.keys().any(|path| path.starts_with("/two/")));
    assert!(two.keys().all(|path| !path.starts_with("/three/")));
    assert!(world.ok("lose b.img").contains(&format!("in {third} files")));
    world.ok("umount mount");
    assert_eq!(lost(&world, "lose b.img --json"), one, "offline the same is told");
    assert_eq!(lost(&world, "lose b.img c.img --json"), two);

    for (gone, told) in [("b.img", &one), ("c.img", &two)] {
        fs::rename(world.path(gone), world.path(&format!("{gone}.away"))).unwrap();
        world.run("mount tank mount -o degraded=auto,wait=0s,ro");
        check_readable(&world, &files, told);
        let now = world.run("lose tank --json");
        assert_eq!(now.code, 4, "data is lost, not only forecast: {}", now.err);
        assert_eq!(&lost(&world, "lose tank --json"), told);
        world.ok("umount mount");
    }
}

#[test]
fn files_say_where_they_lie_and_move_to_another_redundancy_while_they_are_used() {
    if !can_mount("files_say_where_they_lie_and_move_to_another_redundancy_while_they_are_used") {
        return;
    }
    let (world, files) = with_files();
    let devices = |path: &str| {
        let runs = world.json(&format!("where mount{path} --json"));
        let runs = runs.as_array().unwrap().clone();
        let names = |run: &serde_json::Value| -> Vec<String> {
            run["devices"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let covered: u64 = runs.iter().map(|run| run["end"].as_u64().unwrap() - run["start"].as_u64().unwrap()).sum();
        assert_eq!(covered, files[path].len() as u64);
        runs.iter().flat_map(names).collect::<BTreeSet<String>>()
    };
    assert_eq!(devices("/single/deeper/f0").len(), 1);
    assert_eq!(devices("/two/deeper/f3").len(), 2);
    assert_eq!(devices("/three/deeper/f3").len(), 3);
    assert!(world.ok("where mount/stripes/deeper/f1").contains("2+1   survives 1"));
    let mut open = fs::File::open(world.mountpoint().join("two/deeper/f10")).unwrap();
    for settings in ["copies=3", "parity=2+1", "copies=2", "copies=1"] {
        let parity = settings.starts_with("parity");
        drop(world.run(&format!("policy unset mount/two {}", if parity { "copies" } else { "parity" })));
        world.ok(&format!("policy set mount/two {settings}"));
        world.ok("policy apply mount/two --wait");
        let facts = world.json("policy get mount/two/deeper/f3 --json");
        assert_eq!(facts["state"], "compliant", "{settings}");
        let survives = match settings {
            "copies=3" => "2",
            "copies=1" => "0",
            _ => "1",
        };
        assert_eq!(facts["survives"], survives, "{settings}");
        check_readable(&world, &files, &BTreeMap::new());
    }
    assert_eq!(devices("/two/deeper/f3").len(), 1);
    assert!(world.ok("policy explain mount/two/deeper/f3").contains("inherited from /two"));
    let mut whole = Vec::new();
    open.read_to_end(&mut whole).unwrap();
    assert_eq!(whole, files["/two/deeper/f10"]);
    drop(open);
    let status = world.json("reconcile status tank --json");
    assert_eq!(status["state"], "done", "{status}");
    assert!(status["moved_bytes"].as_u64().unwrap() > 4 * 30 * FILE_BYTES as u64);
    assert!(world.ok("reconcile pause tank").contains("paused"));
    assert!(world.ok("reconcile resume tank").contains("done"));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.refused("lose nothing-of-that-name", 1, &["no pool that is known here has a device"]);
}
