//! Tertiary volumes with the real binary and a real mount: needs root and /dev/fuse, and says loudly when it skips.

#[path = "support/s3.rs"]
mod s3;
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{World, can_mount};

/// A mounted pool with a volume named `cold` in the directory `volume`.
fn world() -> World {
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M");
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("mount tank mount");
    world.ok("device add tank dir:volume,name=cold");
    world
}

fn content(number: usize) -> Vec<u8> {
    let mut state = number as u64 | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(number * 997 + 10).collect()
}

fn fill(directory: &Path, count: usize) {
    fs::create_dir_all(directory).unwrap();
    for number in 0..count {
        fs::write(directory.join(number.to_string()), content(number)).unwrap();
    }
}

fn assert_right(directory: &Path, count: usize) {
    for number in 0..count {
        let read = fs::read(directory.join(number.to_string())).unwrap();
        assert!(read == content(number), "file {number}");
    }
}

fn forget_cache() {
    // Root may, and these tests need root anyway.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

fn blocks(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks()).sum()
}

fn attribute(path: &Path, name: &str) -> String {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}

fn kill(process: i32) {
    // SAFETY: a plain system call on a process that this test started.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    let start = Instant::now();
    while Path::new(&format!("/proc/{process}/exe")).exists() && start.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn files_go_down_and_come_back() {
    if !can_mount("files_go_down_and_come_back") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    assert!(world.ok("tier archive mount/project --wait").contains("is on cold"));
    let file = directory.join("150");
    assert_eq!(attribute(&directory, "user.stere.tier"), "cold");
    assert_eq!(attribute(&file, "user.stere.effective.tier"), "cold");
    assert_eq!(attribute(&file, "user.stere.state"), "compliant");
    assert_eq!(attribute(&file, "user.stere.residency"), "online");
    assert!(attribute(&file, "user.stere.where").contains("cold"));
    let before = blocks(&directory);
    world.ok("tier release mount/project");
    assert_eq!(attribute(&file, "user.stere.residency"), "nearline");
    assert_eq!(blocks(&directory), 0, "{before} before");
    forget_cache();
    assert_right(&directory, 200);
    let queue = world.json("tier queue tank --json");
    assert!(queue["fetches"].as_u64().unwrap() > 0, "{queue}");
    world.ok("tier stage mount/project --wait");
    assert_eq!(attribute(&file, "user.stere.residency"), "online");
    assert_eq!(blocks(&directory), before);
    // Changes of a file that is down.
    world.ok("tier release mount/project");
    fs::write(directory.join("7"), content(8)).unwrap();
    fs::remove_file(directory.join("8")).unwrap();
    fs::rename(directory.join("7"), directory.join("8")).unwrap();
    fs::write(directory.join("7"), content(7)).unwrap();
    assert_right(&directory, 200);
    world.ok("umount mount");
    let checked = world.ok("check tank");
    assert!(checked.contains("clean"), "{checked}");
    world.ok("mount tank mount");
    forget_cache();
    assert_right(&directory, 200);
    let volume = &world.json("tier list tank --json")["volumes"][0];
    assert_eq!((volume["name"].as_str(), volume["state"].as_str()), (Some("cold"), Some("online")));
    world.ok("media verify tank cold");
    world.ok("umount mount");
}

#[test]
fn a_volume_that_is_away_is_waited_for_or_not() {
    if !can_mount("a_volume_that_is_away_is_waited_for_or_not") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    world.ok("mount tank mount -o recall_timeout=1");
    let error = fs::read(directory.join("50")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert_eq!(attribute(&directory.join("50"), "user.stere.residency"), "offline");
    // Everything local goes on.
    fill(&world.mountpoint().join("other"), 60);
    assert_right(&world.mountpoint().join("other"), 60);
    let late = world.run("tier archive mount/other --wait");
    assert_eq!(late.code, 3, "{}{}", late.out, late.err);
    assert!(late.out.contains("goes on by itself"), "{}", late.out);
    let shown = world.run("media show tank cold");
    assert!(shown.code == 3 && shown.out.contains("bring cold to"), "{}", shown.out);
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    assert_right(&directory, 60);
    world.ok("tier archive mount/other --wait");
    world.ok("tier release mount/other");
    forget_cache();
    assert_right(&world.mountpoint().join("other"), 60);
    world.ok("umount mount");
    // Readers that must not wait.
    world.ok("mount tank mount -o recall=deny");
    let released = directory.join("59");
    world.ok("tier release mount/project");
    forget_cache();
    assert_eq!(fs::read(&released).unwrap_err().raw_os_error(), Some(libc::EPERM));
    world.ok("umount mount");
    world.ok("mount tank mount -o recall=nowait");
    assert_eq!(fs::read(&released).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    let start = Instant::now();
    for file in (0..10).map(|number| directory.join(number.to_string())).chain([released]) {
        while let Err(error) = fs::read(&file) {
            assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
            assert!(start.elapsed() < Duration::from_secs(300), "the bytes come meanwhile");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_right(&directory, 10);
    world.ok("umount mount");
}

#[test]
fn a_medium_that_was_exchanged_is_not_taken_for_the_right_one() {
    if !can_mount("a_medium_that_was_exchanged_is_not_taken_for_the_right_one") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 30);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("right")).unwrap();
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("mount tank mount -o recall_timeout=1");
    assert!(fs::read(directory.join("20")).is_err());
    fill(&world.mountpoint().join("more"), 30);
    assert_eq!(world.run("tier archive mount/more --wait").code, 3);
    assert_eq!(fs::read_dir(world.path("volume")).unwrap().count(), 0, "nothing is written to a stranger");
    world.refused("device online tank cold", 1, &["no label"]);
    world.ok(&format!("device online tank cold {}", world.path("right").display()));
    assert_right(&directory, 30);
    world.ok("tier archive mount/more --wait");
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_right(&directory, 30);
    world.ok("umount mount");
}

/// Most of what was archived is removed: repacking gives the room back, and what is left is read as before.
#[test]
fn what_is_dead_on_a_volume_gives_its_room_back() {
    if !can_mount("what_is_dead_on_a_volume_gives_its_room_back") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    (0..200).filter(|number| number % 8 != 0).for_each(|number| {
        fs::remove_file(directory.join(number.to_string())).unwrap();
    });
    let volume = || world.json("media list tank --json")[0].clone();
    let before = volume();
    let told = world.ok("media repack tank cold");
    assert!(told.contains("became"), "{told}");
    let after = volume();
    let stored = |volume: &serde_json::Value| volume["stored_bytes"].as_u64().unwrap();
    assert!(stored(&after) * 2 < stored(&before), "{before} {after}");
    let files = |name: &str| -> u64 {
        let entries = fs::read_dir(world.path("volume").join(name)).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    assert_eq!(files("segments"), stored(&after), "the old objects are gone");
    forget_cache();
    for number in (0..200).step_by(8) {
        assert!(fs::read(directory.join(number.to_string())).unwrap() == content(number), "file {number}");
    }
    world.ok("media verify tank cold");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-145: the first recall of any file of a unit brings all of it back, by itself.
#[test]
fn a_unit_comes_back_by_itself() {
    if !can_mount("a_unit_comes_back_by_itself") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("policy set mount/project unit=yes");
    assert!(world.ok("policy explain mount/project/7").contains("unit is yes"));
    // Several segments of it.
    let (big, large) = (directory.join("big"), content(9000));
    fs::write(&big, &large).unwrap();
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    // What the daemon still has in memory would be read without any recall.
    world.ok("umount mount");
    world.ok("mount tank mount -o prefetch=cluster");
    assert!(fs::read(directory.join("30")).unwrap() == content(30));
    let is_online = |path: &Path| attribute(path, "user.stere.residency") == "online";
    let start = Instant::now();
    while !is_online(&big) || (0..60).any(|number| !is_online(&directory.join(number.to_string()))) {
        assert!(start.elapsed() < Duration::from_secs(300), "it does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fs::read(&big).unwrap() == large);
    assert_right(&directory, 60);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-74: what is pinned stays on devices whatever releases, comes back when it is pinned, and goes again when it is not; across mounts.
#[test]
fn what_is_pinned_stays() {
    if !can_mount("what_is_pinned_stays") {
        return;
    }
    let world = world();
    let (kept, other) = (world.mountpoint().join("kept"), world.mountpoint().join("other"));
    fill(&other, 30);
    world.ok("tier archive mount/other --wait");
    fill(&kept, 30);
    world.ok("tier archive mount/kept --wait");
    let residency = |directory: &Path| attribute(&directory.join("29"), "user.stere.residency");
    world.ok("tier release mount/kept");
    assert_eq!(residency(&kept), "nearline");
    assert!(world.ok("tier pin mount/kept --wait").contains("stays on devices"));
    assert_eq!(residency(&kept), "online", "it comes back");
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert!(world.ok("tier queue tank").contains("stays on devices: /kept"));
    let said = world.ok("tier release mount");
    assert!(said.contains("pinned"), "{said}");
    assert_eq!((residency(&kept).as_str(), residency(&other).as_str()), ("online", "nearline"));
    assert_right(&kept, 30);
    world.ok("tier unpin mount/kept");
    world.ok("tier release mount/kept");
    assert_eq!(residency(&kept), "nearline");
    assert_right(&kept, 30);
    world.ok("tier pin mount/kept");
    fs::remove_dir_all(&kept).unwrap();
    assert!(!world.ok("tier queue tank").contains("stays"), "what is gone is not pinned");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// A pool with a released directory on a volume that is away, and another on one that is there.
fn half_away() -> World {
    let world = world();
    fs::create_dir(world.path("other")).unwrap();
    world.ok("device add tank dir:other,name=warm");
    for (directory, volume) in [("project", "cold"), ("near", "warm")] {
        fill(&world.mountpoint().join(directory), 60);
        world.ok(&format!("tier archive mount/{directory} --to {volume} --wait"));
        world.ok(&format!("tier release mount/{directory}"));
    }
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    world.ok("mount tank mount");
    world
}

/// P-95: who waits for a volume that is away and is killed ends, and so does the wait: others find the threads for it free.
#[test]
fn a_wait_ends_with_who_waits() {
    if !can_mount("a_wait_ends_with_who_waits") {
        return;
    }
    let world = half_away();
    // More than there are threads for waiting, with and without the kernel's cache.
    let reader = |number: usize| {
        let flag = if number.is_multiple_of(2) { "iflag=direct" } else { "iflag=fullblock" };
        let mut command = std::process::Command::new("dd");
        command.arg(format!("if=mount/project/{}", number + 20)).args(["of=/dev/null", "bs=4k", flag]);
        command.current_dir(&world.folder).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut readers: Vec<_> = (0..40).map(reader).collect();
    std::thread::sleep(Duration::from_secs(1));
    assert!(readers.iter_mut().all(|reader| reader.try_wait().unwrap().is_none()), "they wait");
    let start = Instant::now();
    for reader in &mut readers {
        // SAFETY: a plain system call on a process that this test started.
        assert_eq!(unsafe { libc::kill(reader.id() as i32, libc::SIGTERM) }, 0);
    }
    assert!(readers.iter_mut().all(|reader| !reader.wait().unwrap().success()));
    assert_right(&world.mountpoint().join("near"), 60);
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    world.ok("umount mount");
}

extern "C" fn nothing(_signal: i32) {}

/// A process that handles its signals gets its bytes all the same.
#[test]
fn a_signal_that_does_not_kill_ends_no_wait() {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::thread::JoinHandleExt;
    if !can_mount("a_signal_that_does_not_kill_ends_no_wait") {
        return;
    }
    let world = half_away();
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
    let path = world.mountpoint().join("project/50");
    let reader = std::thread::spawn(move || {
        let mut file = fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        let mut bytes = vec![0; 4096];
        file.read_exact(&mut bytes).map(|()| bytes)
    });
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: the thread was not joined yet.
        assert_eq!(unsafe { libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR1) }, 0);
    }
    assert!(!reader.is_finished(), "it waits");
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), content(50)[..4096]);
    world.ok("umount mount");
}

/// `tier cancel` stops both: what was to come back stays where it is, and what was to go down goes no further.
#[test]
fn what_is_under_way_is_stopped() {
    if !can_mount("what_is_under_way_is_stopped") {
        return;
    }
    let world = half_away();
    let queue = || world.json("tier queue tank --json");
    world.ok("tier stage mount/project");
    assert!(queue()["staging_segments"].as_u64().unwrap() > 0, "{}", queue());
    let other = world.mountpoint().join("other");
    fill(&other, 60);
    assert_eq!(world.run("tier archive mount/other --to cold --wait").code, 3);
    let waiting = |volume: usize| queue()["volumes"][volume]["waiting_bytes"].as_u64().unwrap();
    assert!(waiting(0) > 0);
    let said = world.ok("tier cancel mount/project mount/other");
    assert!(said.contains("to come back") && said.contains("to be copied out"), "{said}");
    assert_eq!(queue()["staging_segments"], 0);
    assert_eq!(waiting(0), 0);
    assert_eq!(attribute(&other.join("59"), "user.stere.residency"), "online");
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert_ne!(attribute(&world.mountpoint().join("project/59"), "user.stere.residency"), "online");
    assert_right(&other, 60);
    assert_right(&world.mountpoint().join("project"), 60);
    assert!(world.ok("tier cancel mount/near").contains("no further"));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-97: above the high mark devices get room by themselves, down to the low one; what is pinned or on no volume stays, and all of it is
/// read as before.
#[test]
fn devices_that_fill_up_get_room_by_themselves() {
    if !can_mount("devices_that_fill_up_get_room_by_themselves") {
        return;
    }
    const FILES: usize = 9;
    let world = world();
    let big = |number: usize| content(number).into_iter().cycle().take(4 << 20).collect::<Vec<u8>>();
    let directory = |name: &str| world.mountpoint().join(name);
    let make = |name: &str| {
        fs::create_dir(directory(name)).unwrap();
        (1..=FILES).for_each(|number| fs::write(directory(name).join(number.to_string()), big(number)).unwrap());
    };
    let residency = |name: &str| -> Vec<String> {
        (1..=FILES).map(|number| attribute(&directory(name).join(number.to_string()), "user.stere.residency")).collect()
    };
    let are_online = |name: &str| residency(name).iter().all(|word| word == "online");
    world.ok("tier policy tank --high 99 --low 98");
    for name in ["pinned", "old", "recent", "plain"] {
        make(name);
        if name == "pinned" {
            world.ok("tier pin mount/pinned");
        }
        if name != "plain" {
            world.ok(&format!("tier archive mount/{name} --wait"));
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    let used = || world.json("tier queue tank --json")["used_percent"].as_u64().unwrap();
    let before = used();
    assert!(before > 45 && ["pinned", "old", "recent", "plain"].iter().all(|name| are_online(name)), "{before}");
    world.ok(&format!("tier policy tank --high {} --low {}", before - 2, before - 8));
    let start = Instant::now();
    while used() > before - 8 {
        assert!(start.elapsed() < Duration::from_secs(300), "{} of {before}", used());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!are_online("old"), "{:?}", residency("old"));
    for name in ["pinned", "plain"] {
        assert!(are_online(name), "{name}: {:?}", residency(name));
    }
    forget_cache();
    for name in ["pinned", "old", "recent", "plain"] {
        for number in 1..=FILES {
            assert!(fs::read(directory(name).join(number.to_string())).unwrap() == big(number), "{name}/{number}");
        }
    }
    // P-138: what is said of the order stays said.
    world.refused("tier policy tank order=fifo", 2, &["stp, lru, once or size"]);
    world.ok("tier policy tank order=once exponent=1.4 cache=1G");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    let policy = world.json("tier policy tank --json");
    assert_eq!((policy["order"].as_str(), policy["exponent"].as_f64()), (Some("once"), Some(1.4)));
    assert_eq!((policy["cache_bytes"].as_u64(), policy["low"].as_u64()), (Some(1 << 30), Some(before - 8)));
    world.ok("umount mount");
}

/// P-110: a writer that finds no room gets it from archived files, whatever the marks say; when nothing is left that may go, it is told so.
#[test]
fn a_writer_gets_room_from_archived_files() {
    if !can_mount("a_writer_gets_room_from_archived_files") {
        return;
    }
    let world = world();
    let big = |number: usize| content(number).into_iter().cycle().take(4 << 20).collect::<Vec<u8>>();
    let file = |name: &str, number: usize| world.mountpoint().join(name).join(number.to_string());
    // Nothing goes by itself.
    world.ok("tier policy tank --high 100 --low 99");
    for (name, count) in [("pinned", 6), ("archived", 20)] {
        fs::create_dir(world.mountpoint().join(name)).unwrap();
        (1..=count).for_each(|number| fs::write(file(name, number), big(number)).unwrap());
    }
    world.ok("tier pin mount/pinned");
    world.ok("tier archive mount/pinned --wait");
    world.ok("tier archive mount/archived --wait");
    fs::create_dir(world.mountpoint().join("new")).unwrap();
    let residency = |name: &str, number: usize| attribute(&file(name, number), "user.stere.residency");
    let mut written = 0;
    let refused = loop {
        match fs::write(file("new", written + 1), big(written + 1)) {
            Ok(()) => written += 1,
            Err(error) => break error.raw_os_error(),
        }
        assert!(written < 200, "the pool does not fill up");
    };
    assert_eq!(refused, Some(libc::ENOSPC));
    (1..=20).for_each(|number| assert_ne!(residency("archived", number), "online", "{number} could have gone"));
    (1..=6).for_each(|number| assert_eq!(residency("pinned", number), "online"));
    fs::remove_file(file("new", written + 1)).unwrap();
    forget_cache();
    for (name, count) in [("pinned", 6), ("archived", 20), ("new", written)] {
        (1..=count).for_each(|number| assert!(fs::read(file(name, number)).unwrap() == big(number), "{name}/{number}"));
    }
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-111: what is mostly dead on a volume is repacked by itself, and all that is alive stays.
#[test]
fn volumes_are_repacked_by_themselves() {
    if !can_mount("volumes_are_repacked_by_themselves") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    // Each object has some of those that stay, so none goes away whole.
    let small = |number: usize| content(number + 1).into_iter().cycle().take(40_000).collect::<Vec<u8>>();
    let path = |number: usize| directory.join(number.to_string());
    fs::create_dir(&directory).unwrap();
    (0..200).for_each(|number| fs::write(path(number), small(number)).unwrap());
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    let stored = || world.json("media list tank --json")[0]["stored_bytes"].as_u64().unwrap();
    let before = stored();
    (0..200).filter(|number| number % 10 != 0).for_each(|number| fs::remove_file(path(number)).unwrap());
    let start = Instant::now();
    while stored() * 3 > before {
        assert!(start.elapsed() < Duration::from_secs(300), "{} of {before}", stored());
        std::thread::sleep(Duration::from_millis(300));
    }
    forget_cache();
    (0..200).step_by(10).for_each(|number| {
        assert!(fs::read(path(number)).unwrap() == small(number), "{number}");
    });
    world.ok("media verify tank cold");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-112: while the mount is in use copying out keeps to the rate that was asked for.
#[test]
fn copying_out_keeps_to_its_rate() {
    if !can_mount("copying_out_keeps_to_its_rate") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M");
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("mount tank mount -o tier_rate=2M");
    world.ok("device add tank dir:volume,name=cold");
    let big: Vec<u8> = content(1000).into_iter().cycle().take(10 << 20).collect();
    fs::write(world.mountpoint().join("big"), &big).unwrap();
    let in_use = std::sync::atomic::AtomicBool::new(true);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while in_use.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(world.mountpoint().join("used"), b"x").unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        world.ok("tier archive mount/big --wait");
        in_use.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    // The last object of at most 4 MiB is not waited for.
    assert!(start.elapsed() > Duration::from_millis(2900), "{:?} for 10 MiB at 2 MiB/s", start.elapsed());
    world.ok("tier release mount/big");
    forget_cache();
    assert!(fs::read(world.mountpoint().join("big")).unwrap() == big);
    world.ok("umount mount");
}

/// P-64 with the real binary: killed at some time of each step, again and again.
#[test]
fn a_kill_at_any_time_loses_nothing() {
    if !can_mount("a_kill_at_any_time_loses_nothing") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 120);
    fs::File::open(world.mountpoint()).unwrap().sync_all().unwrap();
    world.ok("flush mount --wait");
    for round in 0..8u64 {
        let process = world.daemon();
        let what =
            ["tier archive mount/project --wait", "tier release mount/project", "tier stage mount/project --wait"];
        let mut child = world.command(what[(round % 3) as usize]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + 170 * (round % 5)));
        kill(process);
        drop(child.wait());
        world.run("umount mount");
        world.ok("mount tank mount");
        forget_cache();
        assert_right(&directory, 120);
        if round % 2 == 1 {
            world.ok("tier archive mount/project --wait");
            world.ok("tier release mount/project");
        }
    }
    world.ok("umount mount");
    let checked = world.ok("check tank");
    assert!(checked.contains("clean") && checked.contains("on volumes only"), "{checked}");
    world.ok(&format!("rescue dir:{} --to out", world.path("volume").display()));
    assert_right(&world.path("out").join("project"), 120);
}

/// A bucket as a volume, with a server that goes away for a while.
fn go_down_to_a_bucket_and_come_back(name: &str, kind: s3::Kind) {
    if !can_mount(name) {
        return;
    }
    let world = World::new();
    let Some(mut server) = s3::Server::start(name, kind, &world.path("server")) else { return };
    world.ok("create tank a.img,size=256M b.img,size=256M");
    world.ok("mount tank mount -o recall_timeout=2");
    world.ok(&format!("device add tank {},name=bucket", server.place()));
    let directory = world.mountpoint().join("project");
    fill(&directory, 100);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    assert_right(&directory, 100);
    world.ok("tier stage mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    server.stop();
    assert_eq!(fs::read(directory.join("90")).unwrap_err().raw_os_error(), Some(libc::EIO));
    let other = world.mountpoint().join("other");
    fill(&other, 40);
    assert_eq!(world.run("tier archive mount/other --wait").code, 3);
    assert_right(&other, 40);
    server.start_again();
    let start = Instant::now();
    while fs::read(directory.join("90")).is_err() {
        assert!(start.elapsed() < Duration::from_secs(300), "the server is back");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_right(&directory, 100);
    world.ok("tier archive mount/other --wait");
    world.ok("tier release mount/other");
    forget_cache();
    assert_right(&other, 40);
    world.ok("media verify tank bucket");
    world.ok("umount mount");
    world.ok(&format!("rescue {} --to out", server.place()));
    assert_right(&world.path("out").join("project"), 100);
    assert_right(&world.path("out").join("other"), 40);
}

#[test]
fn files_go_down_to_a_bucket_of_seaweedfs_and_come_back() {
    go_down_to_a_bucket_and_come_back("files_go_down_to_a_bucket_of_seaweedfs_and_come_back", s3::Kind::Seaweed);
}

#[test]
fn files_go_down_to_a_bucket_of_rclone_and_come_back() {
    go_down_to_a_bucket_and_come_back("files_go_down_to_a_bucket_of_rclone_and_come_back", s3::Kind::Rclone);
}

/// P-116. A volume is retired on a mount, with a daemon that is killed meanwhile; what asked for it goes to its heir.
#[test]
fn a_volume_is_retired() {
    if !can_mount("a_volume_is_retired") {
        return;
    }
    let world = world();
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.refused("media retire tank cold", 1, &["no other volume"]);
    fs::create_dir(world.path("newer")).unwrap();
    world.ok("device add tank dir:newer,name=newer");
    let would = world.ok("media retire tank cold --dry-run");
    assert!(would.contains("from cold to newer"), "{would}");
    world.ok("media retire tank cold");
    kill(world.daemon());
    world.run("umount mount --force");
    world.ok("mount tank mount");
    let said = world.ok("media retire tank cold --to newer --wait");
    assert!(said.contains("newer has all of it"), "{said}");
    let volumes = world.json("media list tank --json");
    assert_eq!((volumes.as_array().unwrap().len(), &volumes[0]["name"]), (1, &"newer".into()), "{volumes}");
    assert_eq!(blocks(&directory), 0, "nothing came back to devices for it");
    fs::remove_dir_all(world.path("volume")).unwrap();
    assert_eq!(attribute(&directory, "user.stere.tier"), "newer");
    fs::create_dir(directory.join("later")).unwrap();
    fill(&directory.join("later"), 20);
    world.ok("tier archive mount/project/later --wait");
    assert!(attribute(&directory.join("later/15"), "user.stere.where").contains("newer"));
    world.ok("media verify tank newer");
    forget_cache();
    assert_right(&directory, 200);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
