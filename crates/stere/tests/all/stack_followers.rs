//! `stere stack` follows changes up afterwards, with the real binary and the kernel: plugins are told and files are copied, also of what was
//! changed before a kill (P-130).

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{World, can_mount};

const RULES: [&str; 10] = [
    "--rule",
    "*.c: encrypt=yes, compress=zstd, follow=sum, backup=yes; *.t: follow=sum; *.b: backup=yes",
    "--plugin",
    "sum=sum.wat",
    "--key-file",
    "key",
    "--backup",
    "backup",
    "--rule",
    "*.x: compress=lz4",
];

fn world() -> World {
    let world = World::new();
    for directory in ["source", "backup", "again"] {
        fs::create_dir(world.path(directory)).unwrap();
    }
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/tests/sum.wat");
    fs::copy(plugin, world.path("sum.wat")).unwrap();
    fs::write(world.path("key"), [7; 64]).unwrap();
    world
}

fn mount(world: &World, source: &str, arguments: &[&str]) -> Child {
    let mut command = world.command(&format!("stack {source} mount"));
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is mounted on"), "{line:?}");
    child
}

fn unmount(world: &World, mut child: Child) {
    assert!(Command::new("umount").arg(world.mountpoint()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what} within five minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn noted(path: &PathBuf) -> Option<u64> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, "user.plugin.sum", &mut value).ok()?;
    Some(u64::from_le_bytes(value[..length].try_into().ok()?))
}

fn sum(content: &[u8]) -> u64 {
    content.iter().map(|byte| u64::from(*byte)).sum()
}

fn waiting(world: &World) -> u64 {
    world.json("plugin queue mount --json")["waiting"].as_u64().unwrap()
}

#[test]
fn changes_of_a_directory_are_followed_up_by_plugins_and_copies() {
    if !can_mount("changes_of_a_directory_are_followed_up_by_plugins_and_copies") {
        return;
    }
    let world = world();
    let (source, mounted, backup) = (world.path("source"), world.mountpoint(), world.path("backup"));
    let child = mount(&world, "source", &RULES);
    fs::create_dir_all(mounted.join("deep/er")).unwrap();
    let secret = b"PLAIN-TEXT of a secret\n".repeat(20_000);
    fs::write(mounted.join("deep/er/a.c"), &secret).unwrap();
    fs::write(mounted.join("a.t"), b"told").unwrap();
    fs::write(mounted.join("a.b"), b"copied").unwrap();
    fs::write(mounted.join("a.x"), b"neither").unwrap();
    until("nothing waits", || waiting(&world) == 0);
    assert_eq!(noted(&mounted.join("deep/er/a.c")), Some(sum(&secret)), "plugins are told of the content");
    assert_eq!((noted(&mounted.join("a.t")), noted(&mounted.join("a.b"))), (Some(sum(b"told")), None));
    assert_eq!(fs::read(backup.join("a.b")).unwrap(), b"copied");
    assert!(!backup.join("a.t").exists() && !backup.join("a.x").exists());
    let copy = fs::read(backup.join("deep/er/a.c")).unwrap();
    assert!(!copy.windows(10).any(|window| window == b"PLAIN-TEXT"), "what is encrypted is so in the copy");
    assert!(!mounted.join(".stere-stack-queue").exists() && source.join(".stere-stack-queue").exists());
    // Changed, renamed, removed: the last copy of what went stays.
    fs::write(mounted.join("a.b"), b"copied anew").unwrap();
    fs::rename(mounted.join("deep/er/a.c"), mounted.join("deep/er/b.c")).unwrap();
    fs::remove_file(mounted.join("a.t")).unwrap();
    until("nothing waits", || waiting(&world) == 0);
    assert_eq!(fs::read(backup.join("a.b")).unwrap(), b"copied anew");
    assert!(fs::read(backup.join("deep/er/b.c")).unwrap() == copy && backup.join("deep/er/a.c").exists());
    unmount(&world, child);
    // The copy can be mounted like the source.
    let child = mount(&world, "backup", &["--key-file", "key"]);
    assert!(fs::read(mounted.join("deep/er/b.c")).unwrap() == secret);
    unmount(&world, child);
    world.refused("stack source mount --rule *:backup=yes", 1, &["--backup DIRECTORY"]);
    world.refused("stack source mount --rule *:follow=sum", 1, &["--plugin sum=FILE"]);
    world.refused("stack source mount --rule *:backup=yes --backup source", 1, &["lie in one another"]);
}

#[test]
fn what_was_changed_before_a_kill_is_followed_up_and_failures_are_named() {
    if !can_mount("what_was_changed_before_a_kill_is_followed_up_and_failures_are_named") {
        return;
    }
    let world = world();
    let (mounted, backup) = (world.mountpoint(), world.path("backup"));
    let mut child = mount(&world, "source", &RULES);
    // While it is open it waits, so the kill comes between the change and its service.
    let mut open = fs::File::create(mounted.join("open.c")).unwrap();
    open.write_all(b"written and synced").unwrap();
    open.sync_all().unwrap();
    fs::write(mounted.join("bad.t"), b"X is refused").unwrap();
    until("it failed", || world.json("plugin queue mount --json")["files"][0]["failures"].as_u64() >= Some(1));
    let queue = world.json("plugin queue mount --json");
    assert_eq!((&queue["waiting"], &queue["files"][0]["path"]), (&2.into(), &"bad.t".into()));
    assert!(queue["files"][0]["cause"].as_str().unwrap().contains("no X here"), "{queue}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(open);
    assert!(Command::new("umount").arg("-l").arg(&mounted).status().unwrap().success());
    let child = mount(&world, "source", &RULES);
    until("it is told of", || noted(&mounted.join("open.c")) == Some(sum(b"written and synced")));
    until("it is copied", || backup.join("open.c").exists());
    until("one waits", || waiting(&world) == 1);
    assert!(world.ok("plugin queue mount --retry").contains("1 files are tried again now"));
    assert!(world.ok("plugin queue mount --drop-all").contains("1 files are forgotten"));
    assert_eq!(waiting(&world), 0);
    unmount(&world, child);
}
