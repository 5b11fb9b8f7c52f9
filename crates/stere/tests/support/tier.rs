//! Pools with media for tests with the real binary: made, filled, and waited for.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{World, can_mount};

/// A pool of two devices that volumes can be added to, mounted in this world; `options` as behind `mount tank mount`.
pub fn mount_pool(world: &World, options: &str) {
    world.ok("create tank a.img,size=256M b.img,size=256M");
    world.ok(&format!("mount tank mount {options}"));
}

/// The same in a world of its own, with volumes of these names in directories of these names.
pub fn with_volumes(volumes: &[&str]) -> World {
    let world = World::new();
    mount_pool(&world, "");
    for name in volumes {
        fs::create_dir(world.path(name)).unwrap();
        world.ok(&format!("device add tank dir:{name},name={name}"));
    }
    world
}

/// The same with a volume named `cold` in the directory `volume`.
pub fn tiered(options: &str) -> World {
    tiered_with(options, "")
}

/// The same, and keys behind the volume's name.
pub fn tiered_with(options: &str, keys: &str) -> World {
    let world = World::new();
    mount_pool(&world, options);
    fs::create_dir(world.path("volume")).unwrap();
    world.ok(&format!("device add tank dir:volume,name=cold{keys}"));
    world
}

/// The same with a server that `start` starts in a folder, and that is no volume yet; none, which is said, where one cannot be mounted or started.
pub fn beside_server<S>(test: &str, options: &str, start: impl FnOnce(&Path) -> Option<S>) -> Option<(World, S)> {
    if !can_mount(test) {
        return None;
    }
    let world = World::new();
    let server = start(&world.path("server"))?;
    mount_pool(&world, options);
    Some((world, server))
}

/// It unmounts, and what is left is whole.
pub fn end_clean(world: &World) {
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// Waits for it; `what` says what was waited for in vain.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a file of this number holds, and how long it is.
pub fn content(number: usize) -> Vec<u8> {
    let mut state = number as u64 | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(number * 997 + 10).collect()
}

/// Files of these numbers in a directory.
pub fn fill(directory: &Path, count: usize) {
    fs::create_dir_all(directory).unwrap();
    for number in 0..count {
        fs::write(directory.join(number.to_string()), content(number)).unwrap();
    }
}

/// They hold what `fill` wrote.
pub fn assert_right(directory: &Path, count: usize) {
    for number in 0..count {
        let read = fs::read(directory.join(number.to_string())).unwrap();
        assert!(read == content(number), "file {number}");
    }
}

pub fn forget_cache() {
    // Root may, and these tests need root anyway.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// What the files of a directory take, as `stat` tells.
pub fn blocks(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks()).sum()
}

pub fn attribute(path: &Path, name: &str) -> String {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}

/// A process that the test started is killed, and is gone.
pub fn kill(process: i32) {
    // SAFETY: a plain system call on a process that this test started.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    until("it does not end", || !Path::new(&format!("/proc/{process}/exe")).exists());
}
