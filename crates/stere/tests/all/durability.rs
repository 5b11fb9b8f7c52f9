//! `sync=always|asked|relaxed` with the real binary and a daemon that is killed (P-301, P-302): what a call returned for is there
//! afterwards, or may be lost, as policy says. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use support::tier::{attribute, end_clean, kill, mount_pool, until};
use support::{World, can_mount};

fn world(options: &str) -> World {
    let world = World::new();
    mount_pool(&world, options);
    world
}

/// The daemon is killed, and the pool mounted again.
fn kill_and_mount(world: &World, options: &str) {
    kill(world.daemon());
    rustix::mount::unmount(world.mountpoint(), rustix::mount::UnmountFlags::DETACH).unwrap();
    world.ok(&format!("mount tank mount {options}"));
}

fn append(path: &Path, line: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
}

/// P-301: lines that were appended without fsync, names, times, cuts and links are there after a kill right behind the call.
#[test]
fn what_is_always_durable_is_there_when_the_call_has_returned() {
    if !can_mount("what_is_always_durable_is_there_when_the_call_has_returned") {
        return;
    }
    for options in ["-o commit=60", "-o commit=60,writeback", "-o commit=60,transport=dev"] {
        let world = world(options);
        let directory = world.mountpoint().join("log");
        fs::create_dir(&directory).unwrap();
        world.ok("policy set mount/log sync=always");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = directory.join(writer.to_string());
                scope.spawn(move || (0..50).for_each(|line| append(&path, &format!("{line}\n"))));
            }
        });
        fs::rename(directory.join("0"), directory.join("renamed")).unwrap();
        fs::hard_link(directory.join("1"), directory.join("linked")).unwrap();
        fs::remove_file(directory.join("2")).unwrap();
        fs::create_dir(directory.join("made")).unwrap();
        std::os::unix::fs::symlink("target", directory.join("symbolic")).unwrap();
        OpenOptions::new().write(true).open(directory.join("3")).unwrap().set_len(10).unwrap();
        let copied = File::create(directory.join("copied")).unwrap();
        copied.write_all_at(&[7; 300_000], 5000).unwrap();
        kill_and_mount(&world, options);
        let whole: String = (0..50).map(|line| format!("{line}\n")).collect();
        for name in ["renamed", "1", "linked", "4", "5", "6", "7"] {
            assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), whole, "{options}: {name}");
        }
        assert!(!directory.join("0").exists() && !directory.join("2").exists(), "{options}");
        assert!(directory.join("made").is_dir() && directory.join("symbolic").is_symlink(), "{options}");
        assert_eq!(fs::read_to_string(directory.join("3")).unwrap(), "0\n1\n2\n3\n4\n", "{options}");
        let copied = fs::read(directory.join("copied")).unwrap();
        assert!(copied.len() == 305_000 && copied[5000..].iter().all(|byte| *byte == 7), "{options}");
        end_clean(&world);
    }
}

/// P-301: said by a rule and by a class, and no longer when it is taken back. What nobody said is as before: gone with a kill.
#[test]
fn rules_and_classes_say_when_changes_are_durable() {
    if !can_mount("rules_and_classes_say_when_changes_are_durable") {
        return;
    }
    let options = "-o commit=60";
    let world = world(options);
    let directory = world.mountpoint().join("mixed");
    fs::create_dir_all(directory.join("classed")).unwrap();
    world.ok("class create tank ledger sync=always");
    world.ok("policy set mount/mixed/classed class=ledger");
    let rules = world.command("policy set mount/mixed").arg("rules=*.wal: sync=always").status().unwrap();
    assert!(rules.success());
    assert_eq!(attribute(&directory.join("classed"), "user.stere.effective.sync"), "always");
    File::open(&directory).unwrap().sync_all().unwrap();
    append(&directory.join("classed/a"), "by a class");
    append(&directory.join("b.wal"), "by a rule");
    append(&directory.join("c.tmp"), "nobody says anything");
    kill_and_mount(&world, options);
    assert_eq!(fs::read_to_string(directory.join("classed/a")).unwrap(), "by a class");
    assert_eq!(fs::read_to_string(directory.join("b.wal")).unwrap(), "by a rule");
    assert!(!directory.join("c.tmp").exists(), "with nobody's fsync a kill takes the last seconds");
    world.ok("policy unset mount/mixed rules");
    let effective = || attribute(&directory.join("b.wal"), "user.stere.effective.sync");
    until("what rules decided is not decided anew", || effective() == "asked");
    append(&directory.join("b.wal"), ", and no more");
    kill_and_mount(&world, options);
    assert_eq!(fs::read_to_string(directory.join("b.wal")).unwrap(), "by a rule");
    end_clean(&world);
}

/// P-302: fsync does not wait where policy says `relaxed`; what is durable later does not come without it; it is told.
#[test]
fn a_relaxed_fsync_orders_and_does_not_wait() {
    if !can_mount("a_relaxed_fsync_orders_and_does_not_wait") {
        return;
    }
    let options = "-o commit=60";
    let world = world(options);
    let (fast, slow) = (world.mountpoint().join("fast"), world.mountpoint().join("slow"));
    fs::create_dir(&fast).unwrap();
    fs::create_dir(&slow).unwrap();
    assert!(world.json("status tank --json")["findings"].as_array().is_none_or(Vec::is_empty));
    world.ok("policy set mount/fast sync=relaxed");
    let said = world.json("status tank --json").to_string();
    assert!(said.contains("relaxed") && said.contains("/fast"), "{said}");
    assert_eq!(world.run("status tank").code, 0, "it is a choice, and nothing is wrong");
    assert!(world.ok("policy explain mount/fast").contains("a crash may lose"));
    let file = |directory: &Path, name: &str| {
        let file = File::create(directory.join(name)).unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
        file.sync_all().unwrap();
    };
    let time = |directory: &Path| {
        let begun = Instant::now();
        (0..200).for_each(|number| file(directory, &number.to_string()));
        begun.elapsed()
    };
    let (relaxed, asked) = (time(&fast), time(&slow));
    eprintln!("200 files made and synced: {relaxed:?} relaxed, {asked:?} asked");
    assert!(relaxed < asked, "who waits for nothing is done earlier");
    // What was synced earlier, relaxed, is there if anything later is.
    file(&fast, "before");
    file(&slow, "after");
    file(&fast, "lost");
    kill_and_mount(&world, options);
    for number in 0..200 {
        assert_eq!(fs::read_to_string(fast.join(number.to_string())).unwrap(), number.to_string());
    }
    assert_eq!(fs::read_to_string(fast.join("before")).unwrap(), "before");
    assert_eq!(fs::read_to_string(slow.join("after")).unwrap(), "after");
    assert!(!fast.join("lost").exists(), "nothing was to make it durable");
    end_clean(&world);
}

/// P-302: the time that a relaxed fsync may lose is bounded by `commit=`, and the administrator may bound who says it.
#[test]
fn what_is_relaxed_is_durable_soon_and_can_be_forbidden() {
    if !can_mount("what_is_relaxed_is_durable_soon_and_can_be_forbidden") {
        return;
    }
    let options = "-o commit=1";
    let world = world(options);
    let directory = world.mountpoint().join("fast");
    fs::create_dir(&directory).unwrap();
    world.ok("policy set mount/fast sync=relaxed");
    append(&directory.join("a"), "soon");
    File::open(directory.join("a")).unwrap().sync_all().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    kill_and_mount(&world, options);
    assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "soon");
    world.ok("policy lock mount/ sync=asked");
    assert_eq!(attribute(&directory, "user.stere.effective.sync"), "asked", "a lock goes before what is said");
    world.refused("policy set mount/fast sync=always", 1, &["lock"]);
    world.ok("policy unlock mount/ sync");
    assert_eq!(attribute(&directory, "user.stere.effective.sync"), "relaxed");
    until("it is told no more", || {
        world.ok("policy unset mount/fast sync");
        !world.json("status tank --json").to_string().contains("relaxed")
    });
    end_clean(&world);
}
