//! Things that the documents promise of single commands and options, tried as a reader would. Needs root and /dev/fuse, and says loudly when it
//! skips.

use crate::support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use support::{World, can_mount};

/// What a person at a terminal is asked, and answers.
fn at_a_terminal(world: &World, line: &str, answer: &str) -> (bool, String) {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_stere"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(&world.folder).env("STERE_STATE", world.path("state"));
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Not before it is asked: a terminal forgets what was typed earlier.
    std::thread::sleep(Duration::from_secs(1));
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned())
}

/// `create --force` names what it destroys, and asks.
#[test]
fn create_asks_before_it_destroys() {
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: create_asks_before_it_destroys needs script, which is not installed");
        return;
    }
    let world = World::new();
    let somebodys = b"somebody's data ".repeat(1 << 22);
    fs::write(world.path("a.img"), &somebodys).unwrap();
    let (is_done, said) = at_a_terminal(&world, "create tank a.img --force", "n\n");
    assert!(!is_done && said.contains("this is destroyed") && said.contains("a.img"), "{said}");
    assert!(fs::read(world.path("a.img")).unwrap() == somebodys, "nothing was written");
    let (is_done, said) = at_a_terminal(&world, "create tank a.img --force", "y\n");
    assert!(is_done && said.contains("made pool tank"), "{said}");
}

/// `strictatime` notes each read, and the default does not.
#[test]
fn strictatime_notes_each_read() {
    if !can_mount("strictatime_notes_each_read") {
        return;
    }
    let world = World::with_pool();
    let file = world.mountpoint().join("file");
    for (options, is_noted) in [("-o strictatime", true), ("-o noatime", false)] {
        world.ok(&format!("mount tank mount {options}"));
        fs::write(&file, b"read me").unwrap();
        let before = fs::metadata(&file).unwrap().atime();
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(before as u64 - 100);
        let times = fs::FileTimes::new().set_accessed(late);
        fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        fs::read(&file).unwrap();
        world.ok("umount mount");
        world.ok("mount tank mount");
        let noted = fs::metadata(&file).unwrap().atime();
        assert_eq!(noted > before - 100, is_noted, "{options}: {noted}");
        world.ok("umount mount");
    }
}
