//! Plugins that are told afterwards, with the real binary and the kernel: killed between a change and its service, failing, with many
//! files, taken away while things wait (P-128, P-129).

use crate::support;

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::{World, can_mount};

/// What the plugin of these tests notes: the sum of all bytes.
fn note(content: &[u8]) -> Vec<u8> {
    content.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_le_bytes().to_vec()
}

fn noted(path: &Path) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = [0u8; 64];
    // SAFETY: both texts end with a zero byte, and the kernel writes at most so many bytes as it is told.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), c"user.plugin.sum".as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    usize::try_from(length).ok().map(|length| value[..length].to_vec())
}

/// A mounted pool with a folder whose files are followed.
fn world() -> (World, PathBuf) {
    let world = World::with_pool();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/tests/sum.wat");
    fs::copy(plugin, world.path("sum.wat")).unwrap();
    world.ok("mount tank mount");
    world.ok("plugin add tank sum sum.wat");
    let folder = world.mountpoint().join("folder");
    fs::create_dir(&folder).unwrap();
    world.ok("policy set mount/folder plugins=sum");
    (world, folder)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what} within five minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(world: &World) {
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(world.daemon(), libc::SIGKILL) }, 0);
    // Nobody serves the mount any more.
    until("the mount is dead", || fs::metadata(world.mountpoint()).is_err());
    drop(std::process::Command::new("umount").arg("-l").arg(world.mountpoint()).status());
}

fn waiting(world: &World) -> u64 {
    world.json("plugin queue tank --json")["waiting"].as_u64().unwrap()
}

#[test]
fn what_was_changed_before_a_kill_is_told_after_the_next_mount() {
    if !can_mount("what_was_changed_before_a_kill_is_told_after_the_next_mount") {
        return;
    }
    let (world, folder) = world();
    assert!(world.ok("plugin list tank").contains("sum: is told after: create, close, rename, delete"));
    // While it is open it waits, so the kill comes between the change and its service.
    let mut open = fs::File::create(folder.join("open")).unwrap();
    open.write_all(b"written and synced").unwrap();
    open.sync_all().unwrap();
    let queue = world.json("plugin queue tank --json");
    assert_eq!((&queue["waiting"], &queue["files"][0]["path"]), (&1.into(), &"/folder/open".into()));
    assert_eq!(queue["files"][0]["events"], serde_json::json!(["create", "close"]));
    kill(&world);
    drop(open);
    world.ok("mount tank mount");
    until("it is told of", || noted(&folder.join("open")) == Some(note(b"written and synced")));
    until("nothing waits", || waiting(&world) == 0);
    assert!(world.ok("plugin queue tank").contains("0 files wait for plugins; 0 were given up"));
    // The same over an unmount.
    let open = fs::File::create(folder.join("again")).unwrap();
    (&open).write_all(b"abc").unwrap();
    drop(open);
    world.ok("umount mount");
    world.ok("mount tank mount");
    until("it is told of", || noted(&folder.join("again")) == Some(note(b"abc")));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn many_files_are_told_of_and_what_fails_holds_nobody_up() {
    if !can_mount("many_files_are_told_of_and_what_fails_holds_nobody_up") {
        return;
    }
    // Done well before those that fail are given up, also on a slow machine.
    const FILES: u32 = 3000;
    let (world, folder) = world();
    fs::write(folder.join("bad"), b"X is refused").unwrap();
    fs::write(folder.join("endless"), b"L never ends").unwrap();
    for number in 0..FILES {
        fs::write(folder.join(format!("file{number}")), format!("content {number}")).unwrap();
    }
    until("all others are told of", || waiting(&world) == 2);
    for number in (0..FILES).step_by(97) {
        let content = format!("content {number}");
        assert_eq!(noted(&folder.join(format!("file{number}"))), Some(note(content.as_bytes())), "file{number}");
    }
    let queue = world.json("plugin queue tank --json");
    let bad = queue["files"].as_array().unwrap().iter().find(|file| file["path"] == "/folder/bad").unwrap().clone();
    assert!(bad["failures"].as_u64() >= Some(1) && bad["cause"].as_str().unwrap().contains("no X here"), "{bad}");
    assert!(world.ok("plugin queue tank").contains("/folder/bad: create, close since"));
    assert!(world.ok("plugin queue tank --retry").contains("2 files are tried again now"));
    fs::write(folder.join("bad"), b"is good").unwrap();
    until("the good one is told of", || noted(&folder.join("bad")) == Some(note(b"is good")));
    assert!(world.ok("plugin queue tank --drop").contains("0 files are forgotten"), "nothing was given up yet");
    assert!(world.ok("plugin queue tank --drop-all").contains("1 files are forgotten"));
    assert_eq!((waiting(&world), noted(&folder.join("endless"))), (0, None));
    world.refused("plugin queue tank --drop --retry", 2, &["cannot be used with"]);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn a_plugin_can_be_taken_away_while_things_wait_for_it() {
    if !can_mount("a_plugin_can_be_taken_away_while_things_wait_for_it") {
        return;
    }
    let (world, folder) = world();
    let open = fs::File::create(folder.join("open")).unwrap();
    (&open).write_all(b"abc").unwrap();
    open.sync_all().unwrap();
    assert_eq!(waiting(&world), 1);
    world.refused("plugin remove tank sum", 1, &["in use", "policies"]);
    world.ok("policy set mount/folder plugins=none --wait");
    world.ok("plugin remove tank sum");
    drop(open);
    until("nothing waits", || waiting(&world) == 0);
    assert_eq!(noted(&folder.join("open")), None);
    fs::write(folder.join("later"), b"abc").unwrap();
    assert_eq!(waiting(&world), 0);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
