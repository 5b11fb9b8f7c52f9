//! Devices that fail or turn slow under a live mount of the real binary: needs root and /dev/fuse, and says loudly when it skips.
//!
//! The daemon is started with `STERE_TEST_FAULTS`, so that files beside the images tell which of them fail.

use crate::support;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{World, can_mount};

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    let mut state = seed as u64 | 1 << 40;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Writes files of this length and gives their contents.
fn write_files(world: &World, name: &str, count: usize, length: usize) -> Vec<(String, Vec<u8>)> {
    let one = |number: usize| {
        let (name, bytes) = (format!("{name}{number}"), content(number + length, length));
        write_synced(&world.mountpoint().join(&name), &bytes);
        (name, bytes)
    };
    (0..count).map(one).collect()
}

fn assert_right(world: &World, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        assert!(fs::read(world.mountpoint().join(name)).unwrap() == *bytes, "{name}");
    }
}

fn mount(world: &World, options: &str) {
    let mut command = world.command(&format!("mount tank mount -o {options}"));
    let output = command.env("STERE_TEST_FAULTS", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn with_devices(count: usize, size: &str) -> World {
    let world = World::new();
    let images: Vec<String> = (0..count).map(|number| format!("d{number}.img,size={size},name=d{number}")).collect();
    world.ok(&format!("create tank {}", images.join(" ")));
    world
}

fn state_of(world: &World, device: &str) -> String {
    let status = world.json("status tank --json");
    let devices = status["devices"].as_array().unwrap();
    let found = devices.iter().find(|one| one["name"] == device).unwrap();
    found["state"].as_str().unwrap().to_owned()
}

/// P-19 and P-20: I/O errors under the mount; the device is let go, the hot spare takes over after `spare=`, and nothing is lost.
#[test]
fn a_device_that_fails_under_the_mount_is_replaced_by_the_spare() {
    if !can_mount("a_device_that_fails_under_the_mount_is_replaced_by_the_spare") {
        return;
    }
    let world = with_devices(3, "96M");
    world.ok("device add tank s.img,size=96M,name=s --spare --yes");
    mount(&world, "spare=2s");
    let before = write_files(&world, "before", 12, 1_500_000);
    fs::write(world.path("d1.img.fail"), "read write flush").unwrap();
    let during = write_files(&world, "during", 12, 700_000);
    assert_right(&world, &before);
    assert_right(&world, &during);
    until("the spare", || state_of(&world, "s") != "spare");
    until("the rebuild", || {
        let status = world.json("status tank --json");
        status["work"]["chunks_left"] == 0 && status["survives"].as_u64().unwrap() > 0
    });
    assert_eq!(state_of(&world, "d1"), "failed");
    let after = write_files(&world, "after", 4, 300_000);
    world.ok("umount mount");
    // Nothing of it is needed any more.
    fs::rename(world.path("d1.img"), world.path("gone")).unwrap();
    world.run("mount tank mount");
    [before, during, after].iter().for_each(|files| assert_right(&world, files));
    world.ok("umount mount");
}

/// P-20: what was written while there was one device for it gets its second copy when the spare has taken over, unasked.
#[test]
fn files_that_were_written_before_the_spare_took_over_get_their_copies() {
    if !can_mount("files_that_were_written_before_the_spare_took_over_get_their_copies") {
        return;
    }
    let world = with_devices(2, "96M");
    world.ok("device add tank s.img,size=96M,name=s --spare --yes");
    world.ok("mount tank mount");
    let before = write_files(&world, "before", 4, 500_000);
    world.ok("umount mount");
    fs::rename(world.path("d1.img"), world.path("dead")).unwrap();
    world.run("mount tank mount -o spare=1h,wait=0s");
    let during = write_files(&world, "during", 6, 700_000);
    let survives = |name: &str| world.json(&format!("policy get mount/{name} --json"))["survives"].clone();
    assert_eq!(survives("during5"), "0", "there was one device to write it to");
    assert!(world.ok("where mount/during5").contains("survives 0"));
    assert_eq!(state_of(&world, "s"), "spare");
    world.ok("umount mount");
    world.run("mount tank mount -o spare=1s,wait=0s");
    until("the spare", || state_of(&world, "s") != "spare");
    until("the second copies", || during.iter().all(|(name, _)| survives(name) == "1"));
    world.ok("umount mount");
    fs::rename(world.path("d0.img"), world.path("gone")).unwrap();
    world.run("mount tank mount -o wait=0s");
    [before, during].iter().for_each(|files| assert_right(&world, files));
    world.ok("umount mount");
}

/// P-5: files with one copy that are being written when their device fails are written elsewhere; fsync keeps its word.
#[test]
fn unreplicated_files_outlive_a_device_that_fails_while_they_are_written() {
    if !can_mount("unreplicated_files_outlive_a_device_that_fails_while_they_are_written") {
        return;
    }
    let world = with_devices(3, "128M");
    mount(&world, "rw");
    world.ok("policy set mount copies=1");
    let before = write_files(&world, "before", 9, 400_000);
    fs::write(world.path("d1.img.fail"), "write flush").unwrap();
    let during = write_files(&world, "during", 40, 400_000);
    assert_right(&world, &before);
    assert_right(&world, &during);
    assert_eq!(world.json("status tank --json")["read_only"], false);
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_right(&world, &before);
    assert_right(&world, &during);
    world.ok("umount mount");
}

/// Reads every file from the devices, not from the kernel's cache.
fn read_all(world: &World, files: &[(String, Vec<u8>)]) -> Duration {
    let start = Instant::now();
    for (name, bytes) in files {
        let mut found = Vec::new();
        fs::File::open(world.mountpoint().join(name)).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == *bytes, "{name}");
    }
    start.elapsed()
}

/// P-23: a device that takes two seconds for everything holds up neither reads of what others have nor writes for which others suffice.
#[test]
fn a_device_that_turns_slow_holds_nobody_up() {
    if !can_mount("a_device_that_turns_slow_holds_nobody_up") {
        return;
    }
    let world = with_devices(5, "128M");
    mount(&world, "rw");
    let files = write_files(&world, "file", 24, 1_000_000);
    world.ok("umount mount");
    mount(&world, "rw");
    fs::write(world.path("d2.img.slow"), "2000").unwrap();
    let reading = read_all(&world, &files);
    // Two fifths of the files have a copy there.
    assert!(reading < Duration::from_secs(19), "reading took {reading:?}");
    let slow = || {
        let status = world.json("status tank --json");
        let findings = status["findings"].as_array().unwrap().clone();
        let told =
            findings.iter().find(|one| one["kind"] == "slow").map(|one| one["what"].as_str().unwrap().to_owned());
        told.filter(|_| status["devices"][2]["state"] == "slow" && status["state"] == "degraded")
    };
    until("status to say that it is slow", || slow().is_some());
    let told = slow().unwrap_or_default();
    assert!(told.contains("many times what the others take, for ") && told.contains(" now"), "{told}");
    let first = Instant::now();
    write_files(&world, "first", 4, 1_000_000);
    let first = first.elapsed();
    until("the journal to move", || {
        let begun = Instant::now();
        write_synced(&world.mountpoint().join("probe"), b"probe");
        begun.elapsed() < Duration::from_secs(1)
    });
    let then = Instant::now();
    let later = write_files(&world, "later", 10, 1_000_000);
    let then = then.elapsed();
    println!("reading {reading:?}, the first writes {first:?}, ten later ones {then:?}");
    assert!(then < Duration::from_secs(19), "writing took {then:?}");
    fs::remove_file(world.path("d2.img.slow")).unwrap();
    assert_right(&world, &later);
    world.ok("umount mount");
}

/// P-23: reads that the ring of a mount makes by itself are not waited for either when a device gives nothing back at all; and where there
/// is no such ring, nothing of the kind happens.
#[test]
fn a_device_that_never_answers_is_read_around() {
    if !can_mount("a_device_that_never_answers_is_read_around") {
        return;
    }
    let has_ring = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.trim() == "Y");
    let world = with_devices(3, "128M");
    for (name, policy) in [("copies", "copies=2"), ("parity", "parity=1")] {
        mount(&world, "rw");
        fs::create_dir(world.mountpoint().join(name)).unwrap();
        world.ok(&format!("policy set mount/{name} {policy}"));
        let file = world.mountpoint().join(format!("{name}/file"));
        let bytes = content(7, 8 << 20);
        write_synced(&file, &bytes);
        world.ok("umount mount");
        for transport in ["auto", "dev"] {
            mount(&world, &format!("transport={transport}"));
            let is_ring = transport == "auto" && has_ring;
            let file = fs::File::open(&file).unwrap();
            // SAFETY: the descriptor is open; the call only gives advice.
            unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 0, libc::POSIX_FADV_RANDOM) };
            // The extents first, from devices that answer.
            let mut block = vec![0; 4096];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).unwrap();
            (0..3).for_each(|number| fs::write(world.path(&format!("d{number}.img.hang")), "").unwrap());
            let mut taken = Vec::new();
            for number in 1..10 {
                let at = number * 801 % 2048 * 4096;
                let begun = Instant::now();
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, at as u64).unwrap();
                taken.push(begun.elapsed());
                assert!(block == bytes[at..at + 4096], "{name} over {transport} at {at}");
            }
            taken.sort();
            let (median, longest) = (taken[taken.len() / 2], taken[taken.len() - 1]);
            println!("{name} over {transport}, ring {is_ring}: at most {longest:?}");
            assert!(longest < Duration::from_secs(30), "{longest:?}");
            // A busy machine makes one of them slow, not most.
            let waited = if is_ring { longest } else { median };
            assert_eq!(waited >= Duration::from_millis(45), is_ring, "{name} over {transport}: {taken:?}");
            (0..3).for_each(|number| fs::remove_file(world.path(&format!("d{number}.img.hang"))).unwrap());
            drop(file);
            world.ok("umount mount");
        }
    }
}

/// `repair_rate=` bounds what repair takes while the mount is in use.
#[test]
fn repair_keeps_to_its_rate_while_the_mount_is_in_use() {
    if !can_mount("repair_keeps_to_its_rate_while_the_mount_is_in_use") {
        return;
    }
    let world = with_devices(3, "128M");
    mount(&world, "repair_rate=4M");
    let files = write_files(&world, "file", 24, 1_000_000);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                write_synced(&world.mountpoint().join("busy"), b"in use");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let start = Instant::now();
        world.ok("device replace tank d1 new.img,size=128M,name=new --yes --wait");
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let status = world.json("status tank --json");
        let moved = status["work"]["bytes_done"].as_u64().unwrap();
        println!("{moved} bytes in {took:?}");
        assert!(moved > 10_000_000, "{moved}");
        assert!(moved as f64 / took.as_secs_f64() < 6e6, "{moved} bytes in {took:?}");
    });
    assert_right(&world, &files);
    world.ok("umount mount");
}

/// `add --rebalance` moves what is there; a device that has grown is used while the pool is mounted; who paused work finds it paused.
#[test]
fn the_life_of_a_device_under_the_mount() {
    if !can_mount("the_life_of_a_device_under_the_mount") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "scrub=1s");
    let files = write_files(&world, "file", 30, 1_500_000);
    world.ok("device add tank n.img,size=96M,name=n --rebalance --yes --wait");
    let status = world.json("status tank --json");
    let part = |name: &str| {
        let device = status["devices"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
        device["used_bytes"].as_u64().unwrap() * 100 / device["size_bytes"].as_u64().unwrap()
    };
    let parts = ["d0", "d1", "d2", "n"].map(part);
    let apart = parts.iter().max().unwrap() - parts.iter().min().unwrap();
    assert!(apart <= 12, "{parts:?}");
    // In use, and larger than before.
    fs::OpenOptions::new().write(true).open(world.path("d1.img")).unwrap().set_len(160 << 20).unwrap();
    world.refused("device resize tank d0 --yes", 1, &["not larger"]);
    let said = world.ok("device resize tank d1 --yes");
    assert!(said.contains("device d1 grows from 96"), "{said}");
    assert_right(&world, &files);
    until("the catching up", || world.json("status tank --json")["work"]["chunks_left"] == 0);
    world.ok("reconcile pause tank");
    world.ok("scrub pause tank");
    world.ok("umount mount");
    mount(&world, "scrub=1s");
    let size = |name: &str| {
        let status = world.json("status tank --json");
        let devices = status["devices"].as_array().unwrap().clone();
        devices.iter().find(|one| one["name"] == name).unwrap()["size_bytes"].as_u64().unwrap()
    };
    assert_eq!(size("d1"), 160 << 20);
    assert!(world.ok("reconcile status tank").contains("paused"));
    std::thread::sleep(Duration::from_secs(4));
    assert_ne!(world.json("scrub status tank --json")["state"], "running");
    assert_right(&world, &files);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-20: a pool that begins with one device is safe with two: names and files get their second copy by themselves.
#[test]
fn a_pool_that_grows_gets_the_copies_that_it_could_not_have() {
    if !can_mount("a_pool_that_grows_gets_the_copies_that_it_could_not_have") {
        return;
    }
    let world = with_devices(1, "96M");
    mount(&world, "scrub=never");
    let files = write_files(&world, "file", 6, 1_500_000);
    assert_eq!(world.json("status tank --json")["survives"], 0);
    world.ok("device add tank n.img,size=96M,name=n --yes --wait");
    world.ok("reconcile wait tank");
    until("the second copies", || world.json("status tank --json")["survives"] == 1);
    world.ok("umount mount");
    fs::remove_file(world.path("d0.img")).unwrap();
    world.refused("mount tank mount -o wait=0,degraded=auto", 3, &["lacks device 'd0'", "everything can be read"]);
    assert_right(&world, &files);
    world.ok("umount mount");
}

/// P-20: what is lost with a device is named by `status`.
#[test]
fn status_names_the_files_that_cannot_be_read() {
    if !can_mount("status_names_the_files_that_cannot_be_read") {
        return;
    }
    let world = with_devices(2, "96M");
    mount(&world, "rw");
    world.ok("policy set mount copies=1");
    write_files(&world, "single", 8, 300_000);
    world.ok("umount mount");
    fs::rename(world.path("d1.img"), world.path("away")).unwrap();
    world.run("mount tank mount");
    let said = world.run("status tank");
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
    let readable = |name: &str| fs::read(world.mountpoint().join(name)).is_ok();
    for number in 0..8 {
        let name = format!("single{number}");
        assert_eq!(said.out.contains(&format!("lost: /{name},")), !readable(&name), "{name}: {}", said.out);
    }
    assert!((0..8).any(|number| !readable(&format!("single{number}"))));
    world.run("umount mount");
}

/// P-162: a device that says nothing any more, to writes, to flushes or to all, stops no writer: no fsync takes longer than ten seconds,
/// `status` names it, and when it answers again it is caught up.
#[test]
fn a_silent_device_stops_no_writer() {
    if !can_mount("a_silent_device_stops_no_writer") {
        return;
    }
    for words in ["write", "flush", "write flush read"] {
        let world = with_devices(3, "96M");
        mount(&world, "device_timeout=2s");
        let before = write_files(&world, "before", 6, 200_000);
        fs::write(world.path("d2.img.hang"), words).unwrap();
        let begun = Instant::now();
        let (mut longest, mut number) = (Duration::ZERO, 0);
        let mut during = Vec::new();
        while begun.elapsed() < Duration::from_secs(8) {
            let (name, bytes) = (format!("during{number}"), content(number, 150_000));
            let start = Instant::now();
            write_synced(&world.mountpoint().join(&name), &bytes);
            longest = longest.max(start.elapsed());
            during.push((name, bytes));
            number += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("hanging {words}: {number} files, longest fsync {longest:?}");
        assert!(longest < Duration::from_secs(10), "{words}: {longest:?}");
        assert!(number > 20, "{words}: {number}");
        assert_eq!(state_of(&world, "d2"), "silent", "{words}");
        let status = world.run("status tank");
        assert!(status.code == 3 && status.out.contains("device d2: it has not answered"), "{}", status.out);
        fs::remove_file(world.path("d2.img.hang")).unwrap();
        until("catching up", || state_of(&world, "d2") == "online" && world.run("status tank").code == 0);
        assert_right(&world, &before);
        assert_right(&world, &during);
        world.ok("umount mount");
        world.ok("check tank");
        // What was caught up is there without any one of the others.
        fs::rename(world.path("d0.img"), world.path("gone")).unwrap();
        world.run("mount tank mount -o wait=0");
        assert_right(&world, &before);
        assert_right(&world, &during);
        world.run("umount mount");
    }
}

/// P-162: a disk with forty seconds for everything, in a pool of five with two copies and the deadline that a mount has by itself, stops no
/// writer: it is silent by then, and comes back when it is well.
#[test]
fn a_disk_of_forty_seconds_stops_no_writer() {
    if !can_mount("a_disk_of_forty_seconds_stops_no_writer") {
        return;
    }
    let world = with_devices(5, "128M");
    mount(&world, "rw");
    let before = write_files(&world, "before", 10, 200_000);
    fs::write(world.path("d3.img.slow"), "40000").unwrap();
    let (begun, mut longest, mut during) = (Instant::now(), Duration::ZERO, Vec::new());
    while begun.elapsed() < Duration::from_secs(15) {
        let start = Instant::now();
        during.extend(write_files(&world, &format!("during{}-", during.len()), 1, 150_000));
        longest = longest.max(start.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{} files, longest fsync {longest:?}", during.len());
    assert!(longest < Duration::from_secs(15), "{longest:?}");
    assert!(during.len() > 20, "{}", during.len());
    assert_eq!(state_of(&world, "d3"), "silent");
    assert!(world.run("status tank").code != 0);
    fs::remove_file(world.path("d3.img.slow")).unwrap();
    until("catching up", || state_of(&world, "d3") == "online" && world.run("status tank").code == 0);
    assert_right(&world, &before);
    assert_right(&world, &during);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-236: where all devices hang at once, nothing fails: who writes waits, `status` says so, and all goes on when they answer.
#[test]
fn when_everything_hangs_writers_wait() {
    if !can_mount("when_everything_hangs_writers_wait") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "device_timeout=1s");
    let before = write_files(&world, "before", 6, 200_000);
    let images = ["d0", "d1", "d2"].map(|image| world.path(&format!("{image}.img.hang")));
    images.iter().for_each(|image| fs::write(image, "write flush").unwrap());
    let during = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&world, "during", 3, 150_000));
        std::thread::sleep(Duration::from_secs(5));
        std::thread::sleep(Duration::from_secs(3));
        let (said, is_finished) = (world.run("status tank"), writer.is_finished());
        // Before anything is asserted: nobody waits for a test that has failed.
        images.iter().for_each(|image| fs::remove_file(image).unwrap());
        let during = writer.join().unwrap();
        assert!(!is_finished, "nothing was durable");
        assert!(said.code != 0 && said.out.contains("no other device answers"), "{}", said.out);
        during
    });
    until("catching up", || world.run("status tank").code == 0);
    write_files(&world, "after", 3, 150_000);
    assert_right(&world, &before);
    assert_right(&world, &during);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-236: where all devices hang for good, a mount that is ended by force ends, and what was synced is there.
#[test]
fn a_mount_ends_although_everything_hangs() {
    if !can_mount("a_mount_ends_although_everything_hangs") {
        return;
    }
    let world = with_devices(2, "96M");
    mount(&world, "device_timeout=1s");
    let before = write_files(&world, "before", 6, 200_000);
    let images = ["d0", "d1"].map(|image| world.path(&format!("{image}.img.hang")));
    images.iter().for_each(|image| fs::write(image, "write flush").unwrap());
    let mut writer = std::process::Command::new("sh");
    let script = format!("echo lost > {0}/lost && sync {0}/lost", world.mountpoint().display());
    let mut writer = writer.args(["-c", &script]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(writer.try_wait().unwrap().is_none(), "nothing was durable");
    let daemon = world.daemon();
    let begun = Instant::now();
    let said = world.run("umount mount --force");
    println!("{} {} {} after {:?}", said.code, said.out, said.err, begun.elapsed());
    until("the end of the daemon", || !Path::new(&format!("/proc/{daemon}/maps")).exists());
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    images.iter().for_each(|image| fs::remove_file(image).unwrap());
    drop(writer.wait());
    mount(&world, "rw");
    assert_right(&world, &before);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-6: a copy that takes long ends when it is killed.
#[test]
fn a_copy_ends_when_it_is_killed() {
    if !can_mount("a_copy_ends_when_it_is_killed") {
        return;
    }
    let world = with_devices(2, "256M");
    mount(&world, "device_timeout=60s");
    write_files(&world, "from", 1, 40_000_000);
    world.ok("umount mount");
    mount(&world, "device_timeout=60s");
    for image in ["d0", "d1"] {
        fs::write(world.path(&format!("{image}.img.slow")), "500").unwrap();
    }
    // The first is by reference where it can be; the other moves bytes.
    for (at, to) in [(0, "whole"), (1, "odd")] {
        let (from, to) = (world.mountpoint().join("from0"), world.mountpoint().join(to));
        let program = format!(
            "import os\na, b = os.open({from:?}, os.O_RDONLY), os.open({to:?}, os.O_CREAT | os.O_WRONLY)\n\
             at = {at}\nwhile True:\n    n = os.copy_file_range(a, b, 40_000_000, 0, at)\n    os.fsync(b)"
        );
        let mut copy = std::process::Command::new("python3").args(["-c", &program]).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        assert!(copy.try_wait().unwrap().is_none(), "it was to take long");
        let start = Instant::now();
        copy.kill().unwrap();
        copy.wait().unwrap();
        println!("gone after {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
    for image in ["d0", "d1"] {
        fs::remove_file(world.path(&format!("{image}.img.slow"))).unwrap();
    }
    world.ok("umount mount");
    world.ok("check tank");
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == point.to_str())
}

/// P-229: a device that hangs before the pool is mounted counts as missing after a bounded time: the pool comes up without it, and it is
/// caught up when it answers.
#[test]
fn a_device_that_hangs_from_the_start_holds_no_mount_up() {
    if !can_mount("a_device_that_hangs_from_the_start_holds_no_mount_up") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "rw");
    let before = write_files(&world, "before", 6, 200_000);
    world.ok("umount mount");
    fs::write(world.path("d1.img.hang"), "read").unwrap();
    let start = Instant::now();
    let output = world.command("mount tank mount -o wait=0").env("STERE_TEST_FAULTS", "1").output().unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("d1"), "{said}");
    assert_ne!(state_of(&world, "d1"), "online");
    assert_eq!(world.run("status tank").code, 3);
    assert_right(&world, &before);
    let during = write_files(&world, "during", 6, 200_000);
    fs::remove_file(world.path("d1.img.hang")).unwrap();
    until("catching up", || state_of(&world, "d1") == "online" && world.run("status tank").code == 0);
    assert_right(&world, &before);
    assert_right(&world, &during);
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-162: unmounting does not wait for a device that says nothing.
#[test]
fn a_silent_device_holds_no_unmount_up() {
    if !can_mount("a_silent_device_holds_no_unmount_up") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "device_timeout=1s");
    let files = write_files(&world, "f", 6, 200_000);
    fs::write(world.path("d2.img.hang"), "write flush").unwrap();
    write_synced(&world.mountpoint().join("last"), b"last");
    let begun = Instant::now();
    let unmounting = world.command("umount mount").spawn().unwrap();
    until("the end of the mount", || !is_mounted(&world.mountpoint()));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    fs::remove_file(world.path("d2.img.hang")).unwrap();
    drop(unmounting.wait_with_output());
    until("mounting again", || world.run("mount tank mount -o wait=1").code != 1);
    assert_right(&world, &files);
    assert_eq!(fs::read(world.mountpoint().join("last")).unwrap(), b"last");
    world.run("umount mount");
}

/// P-167: `device replace OLD --spare` names no new device and takes the hot spare.
#[test]
fn a_device_is_replaced_by_the_spare_when_it_is_asked_for() {
    if !can_mount("a_device_is_replaced_by_the_spare_when_it_is_asked_for") {
        return;
    }
    let world = with_devices(2, "96M");
    world.refused("device replace tank d1 --spare --yes", 1, &["no hot spare", "device add tank DEVICE --spare"]);
    world.refused("device replace tank d1", 2, &["NEW"]);
    world.ok("device add tank s.img,size=96M,name=s --spare --yes");
    world.ok("mount tank mount");
    let before = write_files(&world, "before", 4, 500_000);
    assert!(world.ok("device replace tank d1 --spare --dry-run").contains("afterwards"));
    assert_eq!(state_of(&world, "s"), "spare", "a dry run changes nothing");
    let said = world.ok("device replace tank d1 --spare --wait --yes");
    assert!(said.contains("hot spare s joins"), "{said}");
    let status = world.json("status tank --json");
    assert!(status["devices"].as_array().unwrap().iter().all(|device| device["name"] != "d1"), "{status}");
    assert_eq!(status["survives"], 1, "{status}");
    world.ok("umount mount");
    fs::rename(world.path("d0.img"), world.path("gone")).unwrap();
    world.run("mount tank mount -o wait=0s");
    assert_right(&world, &before);
    world.ok("umount mount");
}

/// P-162: a device that takes no write from the beginning holds up neither a mount nor a command without one.
#[test]
fn a_device_that_hangs_while_the_pool_opens_holds_nobody_up() {
    if !can_mount("a_device_that_hangs_while_the_pool_opens_holds_nobody_up") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "rw");
    let before = write_files(&world, "before", 6, 300_000);
    world.ok("umount mount");
    let hang = world.path("d1.img.hang");
    fs::write(&hang, "write flush").unwrap();
    let within_a_minute = |line: &str| {
        let begun = Instant::now();
        let output = world.command(line).env("STERE_TEST_FAULTS", "1").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 3)), "stere {line}: {told}");
        assert!(begun.elapsed() < Duration::from_secs(60), "stere {line} took {:?}: {told}", begun.elapsed());
    };
    within_a_minute("mount tank mount");
    let during = write_files(&world, "during", 6, 300_000);
    until("status to say it", || world.run("status tank").out.contains("has not answered for"));
    assert_right(&world, &before);
    within_a_minute("umount mount");
    within_a_minute("device add tank d3.img,size=96M,name=d3 --yes");
    fs::remove_file(&hang).unwrap();
    mount(&world, "rw");
    until("all to be caught up", || world.json("status tank --json")["state"] == "healthy");
    [before, during].iter().for_each(|files| assert_right(&world, files));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-185: a device that gives nothing from the beginning counts as missing, and is caught up when it reads again.
#[test]
fn a_device_that_fails_all_reads_while_the_pool_opens_is_missing() {
    if !can_mount("a_device_that_fails_all_reads_while_the_pool_opens_is_missing") {
        return;
    }
    let world = with_devices(3, "96M");
    mount(&world, "rw");
    let files = write_files(&world, "file", 6, 300_000);
    world.ok("umount mount");
    fs::write(world.path("d1.img.fail"), "read").unwrap();
    let output = world.command("mount tank mount -o wait=0").env("STERE_TEST_FAULTS", "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("d1.img counts as missing"), "{told}");
    assert_right(&world, &files);
    world.ok("umount mount");
    fs::remove_file(world.path("d1.img.fail")).unwrap();
    mount(&world, "rw");
    until("all to be caught up", || world.json("status tank --json")["state"] == "healthy");
    assert_right(&world, &files);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
