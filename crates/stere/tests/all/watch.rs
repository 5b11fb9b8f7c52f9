//! Provenance and audit with the real binary on a real mount (P-92, P-93): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{NOBODY, World, can_mount};

/// Runs a line in the mount.
fn shell(directory: &Path, line: &str) {
    let status = Command::new("sh").arg("-c").arg(line).current_dir(directory).status().unwrap();
    assert!(status.success(), "{line}");
}

/// The process is killed, as a crash would.
fn kill(world: &World) {
    let killed = Command::new("kill").args(["-9", &world.daemon().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(Command::new("umount").arg("-l").arg(world.mountpoint()).status().unwrap().success());
}

fn paths(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap_or("")).collect()
}

#[test]
fn where_a_file_comes_from_is_told_after_a_crash_and_only_to_whom_it_concerns() {
    if !can_mount("where_a_file_comes_from_is_told_after_a_crash_and_only_to_whom_it_concerns") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let lab = world.mountpoint().join("lab");
    fs::create_dir(&lab).unwrap();
    fs::write(lab.join("unnoted"), "b\na\n").unwrap();
    world.refused("policy set mount/lab provenance=perhaps", 1, &["provenance cannot be 'perhaps'", "yes"]);
    world.ok("policy set mount/lab provenance=yes");
    assert!(world.ok("policy explain mount/lab").contains("provenance is yes: set here"));
    shell(&lab, "printf 'b\\na\\n' > raw; sort raw > sorted; cat sorted raw > both; sync both");
    kill(&world);
    world.ok("mount tank mount");
    let told = world.json("provenance mount/lab/both --json");
    assert_eq!(told["path"], "/lab/both");
    let record = &told["written"][0];
    assert_eq!(record["command"], serde_json::json!(["cat", "sorted", "raw"]));
    assert!(record["executable"].as_str().unwrap().ends_with("/cat"), "{told}");
    assert_eq!((record["uid"].as_u64(), record["user"].as_str()), (Some(0), Some("root")));
    assert_eq!(paths(&told["from"]), ["/lab/sorted", "/lab/raw"]);
    assert_eq!(told["from"][0]["written"][0]["command"][0], "sort");
    assert!(paths(&told["made"]).is_empty());
    assert_eq!(paths(&world.json("provenance mount/lab/raw --json")["made"]), ["/lab/sorted", "/lab/both"]);
    // What is gone is still between what is there.
    fs::remove_file(lab.join("sorted")).unwrap();
    let text = world.ok("provenance mount/lab/both");
    assert!(text.contains("made from: /lab/sorted (removed since)") && text.contains(": cat sorted raw"), "{text}");
    assert!(world.ok("provenance mount/lab/unnoted").contains("nothing is known"));
    // Another user may read the file, and is told nothing of who made it.
    fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let asked = world.command_of_nobody("provenance mount/lab/both").output().unwrap();
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    assert!(String::from_utf8_lossy(&asked.stderr).contains("owner"), "{asked:?}");
    chown(lab.join("both"), Some(NOBODY), None).unwrap();
    let asked = world.command_of_nobody("provenance mount/lab/both --json").output().unwrap();
    let told: Value = serde_json::from_slice(&asked.stdout).unwrap_or_else(|_| panic!("{asked:?}"));
    assert_eq!((told["written"].as_array().unwrap().len(), paths(&told["from"]).len()), (0, 0), "{told}");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn what_happened_is_told_of_a_pool_a_directory_and_a_file() {
    if !can_mount("what_happened_is_told_of_a_pool_a_directory_and_a_file") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let books = world.mountpoint().join("books");
    fs::create_dir(&books).unwrap();
    fs::create_dir(world.mountpoint().join("else")).unwrap();
    world.ok("policy set mount/books audit=yes");
    shell(&books, "echo 1 > ledger; cat ledger > /dev/null; mv ledger old; rm old; echo 2 > kept");
    shell(&world.mountpoint(), "echo 3 > else/quiet");
    world.ok("policy set mount/books/kept retain=2100-01-01");
    assert!(fs::write(books.join("kept"), "x").is_err());
    let events = |place: &str| -> Vec<(String, String)> {
        let told = world.ok(&format!("audit {place} --json"));
        let lines = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let pair = |one: Value| (one["event"].as_str().unwrap().into(), one["path"].as_str().unwrap_or("").into());
        lines.map(pair).collect()
    };
    let expected = [
        ("create", "/books/ledger"),
        ("write", "/books/ledger"),
        ("open", "/books/ledger"),
        ("rename", "/books/ledger"),
        ("delete", "/books/old"),
        ("create", "/books/kept"),
        ("write", "/books/kept"),
        ("open to write", "/books/kept"),
    ];
    let expected: Vec<(String, String)> =
        expected.iter().map(|(event, path)| ((*event).into(), (*path).into())).collect();
    assert_eq!(events("tank"), expected);
    assert_eq!(events("mount/books"), expected);
    assert!(events("mount/else").is_empty());
    assert_eq!(events("mount/books/kept"), expected[5..]);
    let told = world.ok("audit tank");
    assert!(told.contains("rename /books/ledger to /books/old by root with /"), "{told}");
    assert!(told.contains("REFUSED: Operation not permitted"), "{told}");
    // Nobody else is told.
    fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let asked = world.command_of_nobody("audit mount").output().unwrap();
    assert!(asked.status.success() && asked.stdout.is_empty(), "{asked:?}");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn encrypted_names_are_in_no_record_on_media() {
    if !can_mount("encrypted_names_are_in_no_record_on_media") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::write(world.path("key"), [7; 32]).unwrap();
    world.ok("key create tank vault --key-file key");
    let vault = world.mountpoint().join("vault");
    fs::create_dir(&vault).unwrap();
    world.ok("policy set mount audit=yes provenance=yes");
    world.ok("policy set mount/vault encrypt=vault");
    shell(&world.mountpoint(), "echo x > vault/MrsSmithsDiagnosis; cat vault/MrsSmithsDiagnosis > public; sync .");
    shell(&world.mountpoint(), "echo y > plain; mv plain vault/MrsSmithsMoved");
    shell(&world.mountpoint(), "mv vault/MrsSmithsDiagnosis vault/MrsSmithsOther; rm vault/MrsSmithsOther; sync .");
    let told = world.json("provenance mount/public --json");
    assert_eq!((&told["written"][0]["command"], told["from"].as_array().unwrap().len()), (&Value::Null, 1), "{told}");
    assert!(world.ok("audit tank --json").lines().count() >= 6);
    world.ok("umount mount");
    for image in ["a.img", "b.img"] {
        let bytes = fs::read(world.path(image)).unwrap();
        assert!(!bytes.windows(9).any(|window| window == b"MrsSmiths"), "{image}");
    }
}

/// P-176. Of a file with several names the one is told that was used, also when the kernel knows both.
#[test]
fn of_hard_links_the_name_is_told_that_was_used() {
    if !can_mount("of_hard_links_the_name_is_told_that_was_used") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let books = world.mountpoint().join("books");
    fs::create_dir(&books).unwrap();
    world.ok("policy set mount/books audit=yes provenance=yes");
    shell(&books, "echo 1 > first; mkdir deep; ln first deep/second; ln first third");
    for (at, name) in ["first", "deep/second", "first", "third", "deep/second"].iter().enumerate() {
        shell(&books, &format!("cat {name} > /dev/null; echo {at} >> {name}"));
    }
    let told = world.ok("audit tank --json");
    let events: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| -> Vec<&str> {
        let of_kind = events.iter().filter(|one| one["event"] == event);
        of_kind.filter_map(|one| one["path"].as_str()?.strip_prefix("/books/")).collect()
    };
    assert_eq!(of("open"), ["first", "deep/second", "first", "third", "deep/second"], "{told}");
    assert_eq!(of("open to write"), ["first", "deep/second", "first", "third", "deep/second"], "{told}");
    let written = of("write");
    assert_eq!(written[written.len() - 5..], ["first", "deep/second", "first", "third", "deep/second"], "{told}");
    // What was made from it names the link that was opened for it, and another one when that is gone.
    for name in ["first", "deep/second", "third"] {
        shell(&books, &format!("cp {name} from"));
        let told = world.json("provenance mount/books/from --json");
        assert_eq!(told["from"][0]["path"], format!("/books/{name}"), "{told}");
        shell(&books, "rm from");
    }
    shell(&books, "cp third from; rm third");
    let told = world.json("provenance mount/books/from --json");
    assert_eq!(told["from"][0]["path"], "/books/first", "{told}");
    world.ok("umount mount");
}
