//! The drills of `docs/drills`, with this binary: whatever a user can repeat is repeated here (P-68: from volumes alone). They need
//! root and /dev/fuse.

use crate::support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::can_mount;

/// Longer is a failure, even if everything came back. A drill takes some seconds; a machine may be slow and busy.
const DURATION_MAX: Duration = Duration::from_secs(240);

fn drill(name: &str) {
    drill_on(name, "0");
}

/// On image files, or with "1" on loop devices.
fn drill_on(name: &str, loops: &str) {
    if !can_mount(name) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drills").join(name);
    let start = Instant::now();
    let said =
        Command::new("sh").arg(&script).env("STERE", env!("CARGO_BIN_EXE_stere")).env("LOOP", loops).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{name}:\n{text}");
    assert!(text.contains("the drill went well"), "{name}:\n{text}");
    assert!(start.elapsed() < DURATION_MAX, "{name} took {:?}", start.elapsed());
}

/// Block devices: another way to lock, to tell the size and to discard.
#[test]
fn on_loop_devices() {
    let probe = std::env::temp_dir().join(format!("stere-loop-{}", std::process::id()));
    std::fs::File::create(&probe).unwrap().set_len(1 << 20).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&probe).output();
    let device = made.ok().filter(|made| made.status.success());
    let device = device.map(|made| String::from_utf8_lossy(&made.stdout).trim().to_owned());
    if let Some(device) = &device {
        assert!(Command::new("losetup").arg("-d").arg(device).status().unwrap().success());
    }
    std::fs::remove_file(&probe).unwrap();
    if device.is_none() {
        return eprintln!("SKIPPED: on_loop_devices needs loop devices, which are not here");
    }
    for name in ["lose-a-disk.sh", "replace-a-disk.sh", "hot-spare.sh", "return-a-stale-disk.sh"] {
        drill_on(name, "1");
    }
}

macro_rules! drills {
    ($($test:ident: $script:literal,)*) => {
        $(#[test]
        fn $test() {
            drill($script);
        })*

        #[test]
        fn every_drill_is_tried() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drills");
            let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
            let known = [$($script),*];
            for entry in std::fs::read_dir(&folder).unwrap().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".sh") && name != "drill.sh" {
                    assert!(known.contains(&name.as_str()), "{name} is not tried here");
                    assert!(index.contains(&name), "{name} is not in the index");
                }
            }
        }
    };
}

drills! {
    lose_a_disk: "lose-a-disk.sh",
    lose_the_owner_and_a_node: "lose-the-owner-and-a-node.sh",
    replace_a_disk: "replace-a-disk.sh",
    rot_a_disk: "rot-a-disk.sh",
    return_a_stale_disk: "return-a-stale-disk.sh",
    lose_two_of_three: "lose-two-of-three.sh",
    two_halves: "two-halves.sh",
    hot_spare: "hot-spare.sh",
    empty_a_disk: "empty-a-disk.sh",
    from_volumes_alone: "from-volumes-alone.sh",
    move_in: "move-in.sh",
}
