//! Tape libraries with the real binary and a real mount: one kept in files, and the one that `tgt` emulates. Needs root and /dev/fuse, and
//! says loudly when it skips.

use crate::support;
use crate::tgt;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use support::tier::mount_pool;
use support::{World, can_mount};

const FILES: usize = 24;

fn content(number: usize) -> Vec<u8> {
    let mut state = number as u64 | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(1_000_000 + number * 997).collect()
}

fn assert_right(directory: &Path) {
    for number in 0..FILES {
        let read = fs::read(directory.join(number.to_string())).unwrap();
        assert!(read == content(number), "file {number}");
    }
}

fn forget_cache() {
    // Root may, and these tests need root anyway.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Each run of each released file says on which cartridge it lies and how long that takes; those are cartridges that hold something.
fn assert_names_cartridges(world: &World, directory: &Path) {
    let shown = world.ok("media show tank tapes");
    let mut cartridges = BTreeSet::new();
    for number in 0..FILES {
        let runs = world.json(&format!("where mount/project/{number} --json"));
        let runs = runs.as_array().unwrap();
        let covered: u64 = runs.iter().map(|run| run["end"].as_u64().unwrap() - run["start"].as_u64().unwrap()).sum();
        assert!(covered >= fs::metadata(directory.join(number.to_string())).unwrap().len(), "{runs:?}");
        for run in runs {
            assert_eq!((&run["is_released"], &run["from"]["volume"]), (&true.into(), &"tapes".into()), "{run}");
            assert!(run["from"]["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{run}");
            cartridges.insert(run["from"]["cartridge"].as_str().unwrap().to_owned());
        }
    }
    assert!(cartridges.len() > 1, "they do not fit on one: {cartridges:?}");
    for cartridge in &cartridges {
        let line = shown.lines().find(|line| line.contains(cartridge.as_str())).unwrap();
        assert!(!line.contains("blank"), "{line}");
    }
}

/// Down to the library at this place, released, read, also by the next mount; then from cartridges alone.
fn down_and_back(world: &World, place: &str) {
    mount_pool(world, "");
    world.ok(&format!("device add tank {place},name=tapes"));
    let directory = world.mountpoint().join("project");
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        fs::write(directory.join(number.to_string()), content(number)).unwrap();
    }
    assert!(world.ok("tier archive mount/project --wait").contains("is on tapes"));
    world.ok("tier release mount/project");
    let said = world.ok("where mount/project/3");
    assert!(said.contains("(to be fetched, cartridge ") && said.contains("from cartridge"), "{said}");
    assert_names_cartridges(world, &directory);
    forget_cache();
    assert_right(&directory);
    let shown = world.ok("media show tank tapes");
    assert!(shown.contains("full") && shown.contains("blank") && shown.contains("ours"), "{shown}");
    world.ok("umount mount");
    world.ok("mount tank mount");
    world.ok("tier release mount/project");
    forget_cache();
    assert_right(&directory);
    world.ok("media verify tank tapes");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    for device in ["a.img", "b.img"] {
        fs::remove_file(world.path(device)).unwrap();
    }
    world.ok(&format!("rescue {place} --to out --as-archived"));
    assert_right(&world.path("out/project"));
}

/// P-100, P-101
#[test]
fn files_go_to_cartridges_and_come_back() {
    if !can_mount("files_go_to_cartridges_and_come_back") {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("library")).unwrap();
    let library = "model=instant\ndrives=2\ncartridges=6\ncapacity=12000000\n";
    fs::write(world.path("library/library"), library).unwrap();
    down_and_back(&world, "robot:simulated:library,set=tank");
}

/// P-100, P-101
#[test]
fn files_go_to_a_scsi_library_and_come_back() {
    if !can_mount("files_go_to_a_scsi_library_and_come_back") {
        return;
    }
    let world = World::new();
    let folder = world.path("cartridges");
    fs::create_dir(&folder).unwrap();
    let Some(library) = tgt::start("files_go_to_a_scsi_library_and_come_back", &folder, 12) else { return };
    down_and_back(&world, &format!("robot:{},drive=1,drive=2,set=tank", library.device(3)));
}

/// Seconds to the first byte and to the last, read in pieces of 8 KiB.
fn read_times(path: &Path, expected: &[u8]) -> (f64, f64) {
    let start = Instant::now();
    let (mut file, mut buffer, mut read, mut first) = (fs::File::open(path).unwrap(), [0; 8192], Vec::new(), None);
    loop {
        let length = file.read(&mut buffer).unwrap();
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        if length == 0 {
            break;
        }
        read.extend_from_slice(&buffer[..length]);
    }
    let total = start.elapsed().as_secs_f64();
    assert!(read == expected);
    (first.unwrap_or_default(), total)
}

/// Table 2 of HighLight on a simulated changer with the paper's rates, ten times as fast and without its largest file. With STERE_TABLE_2 set it
/// is all of it, in the paper's time, and prints the table of `docs/performance/robot.md`.
#[test]
fn fetched_files_take_transfer_and_latency() {
    if !can_mount("fetched_files_take_transfer_and_latency") {
        return;
    }
    let is_whole = std::env::var_os("STERE_TABLE_2").is_some();
    let (speed, count) = if is_whole { (1, 4) } else { (10, 3) };
    const READ_BYTES_PER_SECOND: f64 = 451.0 * 1024.0;
    const SEEK_SECONDS: f64 = 0.1;
    let world = World::new();
    fs::create_dir(world.path("library")).unwrap();
    fs::write(world.path("library/library"), format!("model=highlight\ndrives=2\ncartridges=1\nspeed={speed}\n"))
        .unwrap();
    mount_pool(&world, "");
    world.ok("device add tank robot:simulated:library,set=tank,block=65536,name=tapes,metadata=no");
    let sizes = &[10 << 10, 100 << 10, 1 << 20, 10 << 20][..count];
    let bytes = |size: usize| content(size)[..].iter().cycle().take(size).copied().collect::<Vec<u8>>();
    let path = |size: usize| world.mountpoint().join(format!("file-{size}"));
    let measure = |size: usize| {
        forget_cache();
        read_times(&path(size), &bytes(size))
    };
    for &size in sizes {
        fs::write(path(size), bytes(size)).unwrap();
        fs::File::open(path(size)).unwrap().sync_all().unwrap();
    }
    let local: Vec<_> = sizes.iter().map(|size| measure(*size)).collect();
    let begin = Instant::now();
    sizes.iter().for_each(|size| drop(world.ok(&format!("tier archive mount/file-{size} --wait"))));
    println!("archived in {:.1} s", begin.elapsed().as_secs_f64());
    let cached: Vec<_> = sizes.iter().map(|size| measure(*size)).collect();
    for (at, size) in sizes.iter().copied().enumerate() {
        world.ok(&format!("tier release mount/file-{size}"));
        let (first, total) = measure(size);
        let bound = (size as f64 / READ_BYTES_PER_SECOND + SEEK_SECONDS) / f64::from(speed);
        println!(
            "| {} KB | {:.3} | {:.3} | {:.3} | {:.3} | {first:.2} | {total:.2} | {bound:.2} | {:.2} |",
            size >> 10,
            local[at].0,
            local[at].1,
            cached[at].0,
            cached[at].1,
            total / bound
        );
        // P-96: a reader goes on with the first block, not with the last of a segment.
        assert!(size < 1 << 20 || first < total / 2.0, "the first of {size} bytes came after {first} s of {total} s");
        // A tenth more, and what this machine takes beside the changer.
        assert!(total <= 1.1 * bound + 0.5, "{size} bytes took {total} s of {bound} s");
    }
    world.ok("umount mount");
}
