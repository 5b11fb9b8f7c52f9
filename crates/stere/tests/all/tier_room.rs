//! Room on devices that have a medium: what goes by itself, what stays, and how fast; with the real binary and a real mount. Needs root
//! and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use support::can_mount;
use support::tier::{assert_right, attribute, content, end_clean, fill, forget_cache, tiered, until};

/// P-74: what is pinned stays on devices whatever releases, comes back when it is pinned, and goes again when it is not; across mounts.
#[test]
fn what_is_pinned_stays() {
    if !can_mount("what_is_pinned_stays") {
        return;
    }
    let world = tiered("");
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
    // An inode goes when the kernel has forgotten it, which a busy machine may do late.
    until("what is gone stays pinned", || !world.ok("tier queue tank").contains("stays"));
    end_clean(&world);
}

/// P-231: a copy by reference that is archived takes nothing from the file it is a copy of.
#[test]
fn what_is_shared_with_a_file_that_stays_is_not_released() {
    if !can_mount("what_is_shared_with_a_file_that_stays_is_not_released") {
        return;
    }
    let world = tiered("");
    let (here, there) = (world.mountpoint().join("here"), world.mountpoint().join("there"));
    fs::create_dir(&here).unwrap();
    fs::create_dir(&there).unwrap();
    world.ok("policy set mount/here copies=2");
    let bytes: Vec<u8> = content(3).into_iter().cycle().take(6 << 20).collect();
    fs::write(here.join("file"), &bytes).unwrap();
    fs::File::open(here.join("file")).unwrap().sync_all().unwrap();
    // `std::fs::copy` asks the kernel for copy_file_range.
    fs::copy(here.join("file"), there.join("file")).unwrap();
    world.ok("tier archive mount/there --wait");
    let said = world.ok("tier release mount/there");
    assert!(said.contains("share content with files that do not go to media"), "{said}");
    let tells = |name: &str| attribute(&here.join("file"), &format!("user.stere.{name}"));
    assert_eq!((tells("residency").as_str(), tells("state").as_str()), ("online", "compliant"));
    assert_eq!(tells("survives"), "2", "two copies here, and the medium's");
    fs::remove_file(here.join("file")).unwrap();
    let residency = || attribute(&there.join("file"), "user.stere.residency");
    until("the only file that is left does not go", || {
        world.ok("tier release mount/there");
        residency() == "nearline"
    });
    forget_cache();
    assert!(fs::read(there.join("file")).unwrap() == bytes);
    end_clean(&world);
}

/// P-97: above the high mark devices get room by themselves, down to the low one; what is pinned or on no volume stays, and all of it is
/// read as before.
#[test]
fn devices_that_fill_up_get_room_by_themselves() {
    if !can_mount("devices_that_fill_up_get_room_by_themselves") {
        return;
    }
    const FILES: usize = 9;
    let world = tiered("");
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
    until("devices stay full", || used() <= before - 8);
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
    end_clean(&world);
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
    let world = tiered("");
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
    end_clean(&world);
}

/// P-111: what is mostly dead on a volume is repacked by itself, and all that is alive stays.
#[test]
fn volumes_are_repacked_by_themselves() {
    if !can_mount("volumes_are_repacked_by_themselves") {
        return;
    }
    let world = tiered("");
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
    until("nothing is repacked", || stored() * 3 <= before);
    forget_cache();
    (0..200).step_by(10).for_each(|number| {
        assert!(fs::read(path(number)).unwrap() == small(number), "{number}");
    });
    world.ok("media verify tank cold");
    end_clean(&world);
}

/// P-112: while the mount is in use copying out keeps to the rate that was asked for.
#[test]
fn copying_out_keeps_to_its_rate() {
    if !can_mount("copying_out_keeps_to_its_rate") {
        return;
    }
    let world = tiered("-o tier_rate=2M");
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
