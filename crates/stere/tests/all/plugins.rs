//! Users' plugins with the real binary and the kernel: added while mounted, given to a directory, failing, taken away (P-66).

use crate::support;

use std::fs;
use std::path::Path;

use support::{World, can_mount};

const IO: i32 = 5;
const NOT_PERMITTED: i32 = 1;

/// Stores records as they are, but traps on those that begin with 'X'; denies that anything is removed.
pub const PLUGIN: &str = r#"(module (memory (export "memory") 16) (global $top (mut i32) (i32.const 1024))
    (func (export "stere_abi") (result i32) (i32.const 1))
    (func (export "stere_allocate") (param $bytes i32) (result i32) (local $at i32)
      (local.set $at (global.get $top))
      (global.set $top (i32.add (global.get $top) (local.get $bytes)))
      (local.get $at))
    (func $same (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
      (i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.extend_i32_u (local.get $n))))
    (func (export "stere_encode") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
      (if (i32.eq (i32.load8_u (local.get $i)) (i32.const 88)) (then unreachable))
      (call $same (local.get $p) (local.get $pn) (local.get $i) (local.get $n)))
    (func (export "stere_decode") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
      (call $same (local.get $p) (local.get $pn) (local.get $i) (local.get $n)))
    (data (i32.const 16) "\01stays")
    (func (export "stere_events") (result i32) (i32.const 0x40))
    (func (export "stere_event") (param i32 i32 i32 i32) (result i64) (i64.const 0x0000_0010_0000_0006)))"#;

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("it was not refused").raw_os_error().expect("it comes from the system")
}

/// Written and on its way to the devices.
fn write_through(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::write(path, content)?;
    fs::File::open(path)?.sync_all()
}

#[test]
fn a_plugin_is_added_to_a_mounted_pool_and_given_to_a_directory() {
    if !can_mount("a_plugin_is_added_to_a_mounted_pool_and_given_to_a_directory") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let rotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    fs::copy(rotate, world.path("rotate.wat")).unwrap();
    fs::write(world.path("own.wat"), PLUGIN).unwrap();
    fs::write(world.path("importing.wat"), "(module (import \"env\" \"open\" (func)) (memory (export \"memory\") 1))")
        .unwrap();
    assert!(world.ok("plugin list tank").contains("has no plugin yet"));
    world.refused("plugin add tank importing importing.wat", 1, &["'importing'", "imports env.open"]);
    world.refused("plugin add tank text Cargo.toml", 1, &["Cargo.toml"]);
    world.refused("policy set mount plugins=rotate", 1, &["plugins cannot be 'rotate'", "stere plugin list"]);
    world.ok("plugin add tank rotate rotate.wat");
    world.ok("plugin add tank own own.wat");
    assert!(world.ok("plugin list tank").contains("rotate: turns records"));
    assert_eq!(world.json("plugin list tank --json")[1]["events"][0], "delete");

    let folder = world.mountpoint().join("folder");
    fs::create_dir(&folder).unwrap();
    let secret = b"PLAIN-TEXT-OF-THE-FILE ".repeat(20_000);
    fs::write(folder.join("before"), &secret).unwrap();
    world.ok("policy set mount/folder plugins=rotate:3 --wait");
    assert!(world.ok("policy explain mount/folder/before").contains("plugins is rotate:3: inherited from /folder"));
    assert_eq!(world.json("policy get mount/folder/before --json")["state"], "compliant");
    write_through(&folder.join("after"), &secret).unwrap();
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    for name in ["before", "after"] {
        assert!(fs::read(folder.join(name)).unwrap() == secret, "{name}");
    }
    world.refused("plugin remove tank rotate", 1, &["in use", "1 policies"]);
    world.ok("policy set mount/folder plugins=none --wait");
    world.ok("plugin remove tank rotate");
    for name in ["before", "after"] {
        assert!(fs::read(folder.join(name)).unwrap() == secret, "{name}");
    }
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn a_plugin_that_fails_fails_its_own_files_only() {
    if !can_mount("a_plugin_that_fails_fails_its_own_files_only") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::write(world.path("own.wat"), PLUGIN).unwrap();
    world.ok("plugin add tank own own.wat");
    let folder = world.mountpoint().join("folder");
    fs::create_dir(&folder).unwrap();
    world.ok("policy set mount/folder plugins=own");
    write_through(&folder.join("good"), b"good content").unwrap();
    assert_eq!(errno(write_through(&folder.join("bad"), b"X marks what traps")), IO);
    write_through(&world.mountpoint().join("elsewhere"), b"X does not matter here").unwrap();
    assert_eq!(fs::read(folder.join("good")).unwrap(), b"good content");
    assert_eq!(errno(fs::remove_file(folder.join("good"))), NOT_PERMITTED);
    fs::remove_file(world.mountpoint().join("elsewhere")).unwrap();
    // Taken away, everything goes on: also what was accepted and could not be stored.
    world.ok("policy set mount/folder plugins=none --wait");
    fs::File::open(folder.join("bad")).unwrap().sync_all().unwrap();
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(fs::read(folder.join("bad")).unwrap(), b"X marks what traps");
    fs::remove_file(folder.join("good")).unwrap();
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-205: compression that changes behind plugins reaches all records of a file, and its state ends.
#[test]
fn compression_changes_behind_plugins_to_the_end_of_a_file() {
    if !can_mount("compression_changes_behind_plugins_to_the_end_of_a_file") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let rotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    fs::copy(rotate, world.path("rotate.wat")).unwrap();
    world.ok("plugin add tank rotate rotate.wat");
    fs::create_dir(world.mountpoint().join("d")).unwrap();
    world.ok("policy set mount/d plugins=rotate:3 record=16K");
    let content: Vec<u8> = (0..4_000_000_u32).flat_map(|at| (at / 7).to_le_bytes()).take(4_000_000).collect();
    write_through(&world.mountpoint().join("d/file"), &content).unwrap();
    for compress in ["zstd", "none"] {
        world.ok(&format!("policy set mount/d compress={compress} --wait"));
        let state = world.json("policy get mount/d/file --json")["state"].clone();
        assert_eq!(state, "compliant", "compress={compress}");
    }
    assert!(fs::read(world.mountpoint().join("d/file")).unwrap() == content);
}
