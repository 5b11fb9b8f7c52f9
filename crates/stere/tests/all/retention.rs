//! Retention with the real binary on a real mount (P-59): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use support::{World, can_mount};

fn refused<T>(outcome: std::io::Result<T>) {
    assert_eq!(outcome.err().and_then(|error| error.raw_os_error()), Some(libc::EPERM));
}

#[test]
fn retained_files_stay_as_they_are_whoever_asks() {
    if !can_mount("retained_files_stay_as_they_are_whoever_asks") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let (records, file) = (world.mountpoint().join("records"), world.mountpoint().join("records/a"));
    fs::create_dir(&records).unwrap();
    fs::write(&file, b"as it was").unwrap();
    world.refused("policy set mount/records/a retain=soon", 1, &["retain cannot be 'soon'", "30d"]);
    world.ok("policy set mount/records/a retain=2099-12-31");
    let told = world.ok("policy explain mount/records/a");
    assert!(told.contains("retain is 2099-12-31T00:00:00Z: set here"), "{told}");
    let is_as_it_was = || {
        refused(fs::write(&file, b"other"));
        refused(fs::OpenOptions::new().append(true).open(&file));
        refused(fs::remove_file(&file));
        refused(fs::rename(&file, records.join("b")));
        fs::write(records.join("c"), b"over it").unwrap();
        refused(fs::rename(records.join("c"), &file));
        refused(fs::hard_link(&file, records.join("d")));
        refused(fs::set_permissions(&file, fs::Permissions::from_mode(0o777)));
        assert_eq!(fs::read(&file).unwrap(), b"as it was");
    };
    is_as_it_was();
    let words = ["is retained until 2099-12-31T00:00:00Z", "never earlier"];
    world.refused("policy set mount/records/a retain=2098-01-01", 1, &words);
    world.refused("policy unset mount/records/a retain", 1, &words);
    world.ok("policy set mount/records/a copies=1 --wait");
    world.ok("policy set mount/records/a retain=2100-01-01");
    // The process is killed, as a crash would.
    world.ok("flush mount --wait");
    let killed = std::process::Command::new("kill").args(["-9", &world.daemon().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(std::process::Command::new("umount").arg("-l").arg(world.mountpoint()).status().unwrap().success());
    world.ok("mount tank mount");
    is_as_it_was();
    assert_eq!(world.json("policy get mount/records/a --json")["retain"], "2100-01-01T00:00:00Z");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn files_of_a_retained_directory_are_retained_when_left_alone() {
    if !can_mount("files_of_a_retained_directory_are_retained_when_left_alone") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let records = world.mountpoint().join("records");
    fs::create_dir(&records).unwrap();
    world.ok("policy set mount/records retain=30d,after=1s");
    fs::write(records.join("a"), b"as it was").unwrap();
    let told = world.ok("policy explain mount/records/a");
    assert!(told.contains("retain is 30d,after=1s: inherited from /records, when it has been left alone"), "{told}");
    let until = Instant::now() + Duration::from_secs(300);
    while !world.ok("policy explain mount/records/a").contains("set here") {
        assert!(Instant::now() < until, "its retention does not begin");
        std::thread::sleep(Duration::from_millis(200));
    }
    refused(fs::write(records.join("a"), b"other"));
    refused(fs::remove_dir_all(&records));
    assert_eq!(fs::read(records.join("a")).unwrap(), b"as it was");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}
