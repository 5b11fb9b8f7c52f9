//! Versions with the real binary on a real mount (P-80, P-81): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{World, can_mount};

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn versions(file: &Path) -> Vec<PathBuf> {
    let drawer = file.parent().unwrap().join(".versions").join(file.file_name().unwrap());
    names(&drawer).iter().map(|name| drawer.join(name)).collect()
}

fn held(file: &Path) -> Vec<String> {
    versions(file).iter().map(|version| fs::read_to_string(version).unwrap()).collect()
}

fn is_read_only<T>(outcome: std::io::Result<T>) {
    assert_eq!(outcome.err().and_then(|error| error.raw_os_error()), Some(libc::EROFS));
}

/// The process is killed, as a crash would.
fn kill(world: &World) {
    let killed = Command::new("kill").args(["-9", &world.daemon().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(Command::new("umount").arg("-l").arg(world.mountpoint()).status().unwrap().success());
}

#[test]
fn what_was_overwritten_or_removed_is_read_and_restored() {
    if !can_mount("what_was_overwritten_or_removed_is_read_and_restored") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let docs = world.mountpoint().join("docs");
    fs::create_dir(&docs).unwrap();
    // Asked for before there is any: the kernel must not remember that.
    assert!(!docs.join(".versions").exists());
    world.refused("policy set mount/docs versions=none", 1, &["versions cannot be 'none'", "10,30d"]);
    world.ok("policy set mount/docs versions=10,30d");
    let told = world.ok("policy explain mount/docs");
    assert!(told.contains("versions is 10,30d: set here"), "{told}");
    let report = docs.join("report");
    for text in ["first", "second", "third"] {
        fs::write(&report, text).unwrap();
    }
    fs::set_permissions(&report, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(held(&report), ["first", "second"]);
    assert_eq!(names(&docs), ["report"], "only who asks by name sees them");
    // Editors write a new file and rename it.
    fs::write(docs.join("new"), "fourth").unwrap();
    fs::rename(docs.join("new"), &report).unwrap();
    assert_eq!(held(&report), ["first", "second", "third"]);
    for version in versions(&report) {
        is_read_only(fs::write(&version, "x"));
        is_read_only(fs::remove_file(&version));
        is_read_only(fs::OpenOptions::new().append(true).open(&version));
    }
    is_read_only(fs::write(docs.join(".versions/x"), "x"));
    fs::copy(&versions(&report)[0], &report).unwrap();
    assert_eq!(fs::read_to_string(&report).unwrap(), "first");
    // From here on with the command.
    fs::remove_file(&report).unwrap();
    let all = ["first", "second", "third", "fourth", "first"];
    assert_eq!(held(&report), all);
    world.ok("flush mount --wait");
    kill(&world);
    world.ok("mount tank mount");
    assert_eq!(held(&report), all);
    let listed = world.json("versions list mount/docs/report --json");
    assert_eq!(listed.as_array().map(Vec::len), Some(5), "{listed}");
    let third = listed[2]["until"].as_str().unwrap();
    assert!(world.ok("versions list mount/docs").contains(third));
    assert!(world.ok(&format!("versions restore mount/docs/report --at {third} --dry-run")).contains("would restore"));
    world.ok(&format!("versions restore mount/docs/report --at {third}"));
    assert_eq!(fs::read_to_string(&report).unwrap(), "third");
    assert_eq!(fs::metadata(&report).unwrap().mode() & 0o777, 0o640);
    world.refused(
        "versions restore mount/docs/report --at 1999-01-01",
        1,
        &["did not exist at 1999-01-01", "was made at"],
    );
    assert_eq!(fs::read_to_string(&report).unwrap(), "third");
    let first = listed[0]["until"].as_str().unwrap();
    world.ok(&format!("versions restore mount/docs/report --at {first}"));
    assert_eq!(fs::read_to_string(&report).unwrap(), "first");
    world.refused("versions restore mount/docs/report --at 2199-01-01", 1, &["no version", "so late"]);
    world.refused("versions restore mount/docs/report --at soon", 2, &["is no moment"]);
    world.refused("versions restore mount/docs/other", 1, &["there are no versions"]);
    // Who walks over everything meets none of it.
    let copied = Command::new("cp").arg("-r").arg(&docs).arg(world.path("copy")).status().unwrap();
    assert!(copied.success());
    assert_eq!(names(&world.path("copy")), ["report"]);
    fs::remove_dir_all(&docs).unwrap();
    assert_eq!(names(&world.mountpoint()), [""; 0]);
    let removed = world.mountpoint().join(".versions/docs");
    let moment = &names(&removed)[0];
    assert_eq!(names(&removed.join(moment).join("report")).len(), 7);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn versions_go_when_their_time_is_over() {
    if !can_mount("versions_go_when_their_time_is_over") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    world.ok("policy set mount versions=2s");
    let file = world.mountpoint().join("a");
    fs::write(&file, "one").unwrap();
    fs::write(&file, "two").unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(held(&file), ["one", "two"]);
    let until = Instant::now() + Duration::from_secs(300);
    while world.mountpoint().join(".versions").exists() {
        assert!(Instant::now() < until, "they do not go");
        std::thread::sleep(Duration::from_millis(200));
    }
    world.ok("policy set mount versions=1");
    for text in ["one", "two", "three", "four"] {
        fs::write(&file, text).unwrap();
    }
    while held(&file) != ["three"] {
        assert!(Instant::now() < until, "they do not go");
        std::thread::sleep(Duration::from_millis(200));
    }
    world.ok("policy set mount versions=no --wait");
    while world.mountpoint().join(".versions").exists() {
        assert!(Instant::now() < until, "they do not go");
        std::thread::sleep(Duration::from_millis(200));
    }
    world.ok("umount mount");
    world.ok("check a.img b.img");
}
