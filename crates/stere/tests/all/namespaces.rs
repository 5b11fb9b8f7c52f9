//! The death of a daemon never harms the host (P-166), shown by what is mounted. Nobody is killed here: where the
//! promise is broken, a kill would hang sync(2) of this machine until it is booted anew.

use crate::support;

use std::process::Command;

use support::{World, can_mount};

/// Runs `script` as the last process but the daemon of a mount namespace of its own, and returns what it printed.
fn in_own_namespace(world: &World, script: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]).current_dir(&world.folder);
    command.env("STERE_STATE", world.path("state")).env("STERE", env!("CARGO_BIN_EXE_stere"));
    let output = command.output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The type of the mount on `mount`, as /proc/self/mountinfo of the namespace tells it.
const KIND: &str = r#"awk -v at="$PWD/mount" '$5 == at { for (i = 7; i <= NF; i++) if ($i == "-") print "kind", $(i + 1) }' /proc/self/mountinfo"#;

#[test]
fn a_mount_in_a_namespace_that_may_end_waits_for_no_answer_of_a_dead_daemon() {
    if !can_mount("a_mount_in_a_namespace_that_may_end_waits_for_no_answer_of_a_dead_daemon") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M");
    let said = in_own_namespace(
        &world,
        &format!(
            r#""$STERE" mount tank mount || exit 1
            {KIND}
            echo kept >mount/file && sync -f mount && "$STERE" umount mount && echo ended"#
        ),
    );
    assert!(said.contains("kind fuse.stere"), "{said}");
    assert!(said.contains("ended"), "{said}");
    // The same pool in the namespace that lasts: what was written is there, and sync(2) arrives.
    world.ok("mount tank mount");
    assert_eq!(std::fs::read_to_string(world.mountpoint().join("file")).unwrap(), "kept\n");
    world.ok("umount mount");
}

#[test]
fn sync_requests_are_refused_in_a_namespace_that_may_end() {
    if !can_mount("sync_requests_are_refused_in_a_namespace_that_may_end") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M");
    let script = format!(
        r#""$STERE" mount tank mount -o sync_requests=yes; echo "code $?"
        {KIND}
        "$STERE" umount mount >ignored 2>&1"#
    );
    let said = in_own_namespace(&world, &script);
    assert!(said.contains("code 1"), "{said}");
    assert!(said.contains("mount namespace can end"), "{said}");
    assert!(!said.contains("kind "), "{said}");
}
