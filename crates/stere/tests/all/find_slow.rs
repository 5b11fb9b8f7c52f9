//! A search that takes long, beside others, and its end (P-136): needs root and /dev/fuse, and says loudly when it skips.
//!
//! The device is slow, and nothing of the tree of inodes is in memory, so each step of a search waits for it. What others need is in memory.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{World, can_mount};

const FILES: usize = 6000;
/// What anything takes on the device.
const SLOW_MS: u64 = 40;
/// So long others are looked at beside a search.
const BESIDE: Duration = Duration::from_secs(2);

/// A mount in which a search of everything takes long, and a directory in it that is in memory, with a file `f`.
fn slow_mount() -> (World, PathBuf) {
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint();
    for number in 0..FILES {
        if number % 1000 == 0 {
            fs::create_dir(top.join(format!("d{}", number / 1000))).unwrap();
        }
        fs::File::create(top.join(format!("d{}/{number}-{}", number / 1000, "x".repeat(60)))).unwrap();
    }
    world.ok("umount mount");
    let mounted = world.command("mount tank mount").env("STERE_TEST_FAULTS", "1").status().unwrap();
    assert!(mounted.success());
    let warm = top.join("warm");
    fs::create_dir(&warm).unwrap();
    fs::write(warm.join("f"), b"in memory").unwrap();
    for image in ["a.img", "b.img"] {
        fs::write(world.path(&format!("{image}.slow")), SLOW_MS.to_string()).unwrap();
    }
    (world, warm)
}

fn end(world: &World) {
    for image in ["a.img", "b.img"] {
        fs::remove_file(world.path(&format!("{image}.slow"))).unwrap();
    }
    world.ok("umount mount");
}

/// Somebody who lists a search that finds nothing.
fn look(world: &World, search: &str) -> Child {
    let directory = world.mountpoint().join(".find").join(search);
    Command::new("ls").arg(directory).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Makes and reads files for a while: how many, and the longest that one took.
fn work(warm: &Path, name: &str) -> (usize, Duration) {
    let (start, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < BESIDE {
        let begun = Instant::now();
        fs::write(warm.join(format!("{name}-{count}")), b"x").unwrap();
        assert_eq!(fs::read(warm.join("f")).unwrap(), b"in memory");
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    (count, longest)
}

#[test]
fn a_long_search_holds_nobody_up() {
    if !can_mount("a_long_search_holds_nobody_up") {
        return;
    }
    let (world, warm) = slow_mount();
    let start = Instant::now();
    // More than there are threads for searches.
    let mut searches: Vec<Child> = (0..4).map(|number| look(&world, &format!("nothing-{number}"))).collect();
    let (count, longest) = work(&warm, "beside");
    let is_over = searches.iter_mut().any(|search| search.try_wait().unwrap().is_some());
    assert!(longest < Duration::from_secs(1), "of {count} files one took {longest:?} beside searches");
    assert!(!is_over, "a search was over after {:?}: this proves nothing", start.elapsed());
    assert!(count > 20, "{count} files");
    for mut search in searches {
        assert!(search.wait().unwrap().success());
    }
    end(&world);
}

#[test]
fn a_long_search_ends_with_who_asked() {
    if !can_mount("a_long_search_ends_with_who_asked") {
        return;
    }
    let (world, _) = slow_mount();
    let mut search = look(&world, "nothing");
    std::thread::sleep(Duration::from_millis(500));
    assert!(search.try_wait().unwrap().is_none(), "the search was over before it could be ended: this proves nothing");
    let killed = Instant::now();
    search.kill().unwrap();
    search.wait().unwrap();
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(1), "whoever was killed waited for {took:?} more");
    // And its thread is free: those who ask next have theirs.
    let mut others: Vec<Child> = (0..4).map(|_| look(&world, "nothing")).collect();
    std::thread::sleep(Duration::from_millis(200));
    for other in &mut others {
        other.kill().unwrap();
    }
    for other in &mut others {
        other.wait().unwrap();
    }
    assert!(killed.elapsed() < Duration::from_secs(4), "{:?}", killed.elapsed());
    end(&world);
}
