//! Mounts that begin and end beside others (P-184, P-185, P-186): held by other mounts, followed at once by the next command, begun without a device, interrupted.
//! Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::tier::until;
use support::{World, can_mount};

fn umount(world: &World) {
    assert!(Command::new("umount").arg(world.mountpoint()).status().unwrap().success());
}

#[test]
fn a_mount_that_others_hold_is_refused_by_their_names_and_ends_by_force() {
    if !can_mount("a_mount_that_others_hold_is_refused_by_their_names_and_ends_by_force") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    std::fs::create_dir(world.mountpoint().join("below")).unwrap();
    std::fs::write(world.mountpoint().join("below/file"), "kept").unwrap();
    let bound = world.path("bound");
    std::fs::create_dir(&bound).unwrap();
    let mount = Command::new("mount").arg("--bind").arg(world.mountpoint().join("below")).arg(&bound).status();
    assert!(mount.unwrap().success());
    let begun = Instant::now();
    world.refused("umount mount", 1, &["would stay in use", "/bound", "--lazy", "--force"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(
        std::fs::read_to_string(world.mountpoint().join("below/file")).unwrap(),
        "kept",
        "nothing was unmounted"
    );
    // Somebody else unmounts it, and the bind mount keeps the file system.
    umount(&world);
    let begun = Instant::now();
    world.refused("umount tank", 1, &["still in use elsewhere", "/bound"]);
    world.refused("mount tank mount", 1, &["still serves it"]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    world.ok("umount tank --force");
    drop(Command::new("umount").arg("-l").arg(&bound).status());
    world.ok("mount tank mount");
    assert_eq!(std::fs::read_to_string(world.mountpoint().join("below/file")).unwrap(), "kept");
    world.ok("umount mount");
    world.ok("check tank");
}

/// A process that has this world's mount in a mount namespace of its own, until this goes.
struct Holder(std::process::Child);

impl Holder {
    fn start(world: &World) -> Holder {
        // Those of other tests, which run beside this one, are let go of.
        let script = r#"
            awk -v keep="$PWD/mount" '$5 != keep && / - fuse/ { print $5 }' /proc/self/mountinfo | xargs -r -n 1 umount -l
            echo ready; exec sleep 600"#;
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", script]).current_dir(&world.folder);
        let mut holder = Holder(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// P-184: a mount is held by a process in another mount namespace.
#[test]
fn a_mount_that_another_namespace_holds_is_refused_and_ends_with_it() {
    if !can_mount("a_mount_that_another_namespace_holds_is_refused_and_ends_with_it") {
        return;
    }
    let world = World::with_pool();
    let file = world.mountpoint().join("file");
    world.ok("mount tank mount");
    std::fs::write(&file, "kept").unwrap();
    let holder = Holder::start(&world);
    world.refused("umount mount", 1, &["would stay in use", "(sleep)", "in another mount namespace", "--lazy"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept", "nothing was unmounted");
    // Told to let go of it, it ends with the holder.
    let mut lazy = world.command("umount mount --lazy").stderr(Stdio::piped()).spawn().unwrap();
    // Until it says for whom.
    std::thread::sleep(Duration::from_secs(6));
    assert!(lazy.try_wait().unwrap().is_none(), "it waits");
    assert!(!file.exists(), "the mount is gone from here");
    drop(holder);
    let begun = Instant::now();
    let said = lazy.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && told.contains("(sleep)"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    // The service manager ends it while it is held.
    world.ok("mount tank mount");
    let holder = Holder::start(&world);
    let daemon = world.daemon();
    // SAFETY: sends a signal.
    assert_eq!(unsafe { libc::kill(daemon, libc::SIGTERM) }, 0);
    until("the mount to go", || !file.exists());
    // Who comes meanwhile waits, and says for whom.
    let mut check = world.command("check tank").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert!(check.try_wait().unwrap().is_none(), "it waits");
    drop(holder);
    let said = check.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && told.contains("waiting up to 60 s for the daemon"), "{told}");
    until("the daemon to end", || !std::path::Path::new(&format!("/proc/{daemon}")).exists());
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    world.ok("umount mount");
}

#[test]
fn the_next_command_waits_for_a_mount_that_is_ending() {
    if !can_mount("the_next_command_waits_for_a_mount_that_is_ending") {
        return;
    }
    let world = World::with_pool();
    for round in 0..12_u8 {
        world.ok("mount tank mount");
        std::fs::write(world.mountpoint().join("file"), vec![round; 3_000_000]).unwrap();
        umount(&world);
        if round % 2 == 0 {
            world.ok("check tank");
        }
    }
}

/// P-185 and P-186.
#[test]
fn a_device_that_cannot_be_opened_is_missing() {
    if !can_mount("a_device_that_cannot_be_opened_is_missing") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    std::fs::write(world.mountpoint().join("file"), "kept").unwrap();
    world.ok("umount mount");
    std::fs::rename(world.path("b.img"), world.path("b.away")).unwrap();
    std::os::unix::fs::symlink("b.img", world.path("b.img")).unwrap();
    let said = world.run("mount tank mount -o wait=0");
    assert_eq!(said.code, 3, "a link to itself: {}", said.err);
    assert!(said.err.contains("b.img counts as missing") && said.err.contains("symbolic links"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(world.mountpoint().join("file")).unwrap(), "kept");
    world.ok("umount mount");
    std::fs::remove_file(world.path("b.img")).unwrap();
    let node = Command::new("mknod").arg(world.path("b.img")).args(["b", "240", "77"]).status().unwrap();
    assert!(node.success());
    let said = world.run("mount tank mount -o wait=0");
    assert_eq!(said.code, 3, "degraded: {}", said.err);
    assert_eq!(std::fs::read_to_string(world.mountpoint().join("file")).unwrap(), "kept");
    // Of all pools, one of which is nowhere, each is told of; the shape of JSON is the same.
    world.ok("create lake c.img,size=96M");
    std::fs::rename(world.path("c.img"), world.path("c.away")).unwrap();
    let all = world.run("status");
    assert_ne!(all.code, 0);
    assert!(all.out.contains("pool tank: degraded") && all.out.contains("pool lake: unreachable"), "{}", all.out);
    let all = world.json("status --json");
    assert_eq!((all[0]["pool"].as_str(), all[0]["state"].as_str()), (Some("lake"), Some("unreachable")), "{all}");
    assert_eq!((all[1]["pool"].as_str(), all[1]["state"].as_str()), (Some("tank"), Some("at_risk")));
    let one = world.json("status lake --json");
    assert_eq!((one["pool"].as_str(), one["state"].as_str()), (Some("lake"), Some("unreachable")), "{one}");
    assert_ne!(world.run("status lake --json").code, 0);
    let said = world.run("status sea --json");
    assert!(said.code != 0 && said.out.is_empty() && said.err.contains("sea"), "{}{}", said.out, said.err);
    world.ok("pool export lake");
    assert!(world.json("status --json").is_array(), "a list for one pool too");
    assert!(world.json("status tank --json").is_object());
    world.ok("umount mount");
    // Devices that are named by their paths are no different, if one of them opens.
    world.ok("pool export tank");
    let said = world.run("mount a.img b.img mount");
    assert_eq!(said.code, 3, "degraded: {}", said.err);
    assert!(said.err.contains("b.img") && said.err.contains("cannot be opened"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(world.mountpoint().join("file")).unwrap(), "kept");
    world.ok("umount mount");
    let said = world.run("mount b.img mount");
    assert_eq!(said.code, 1, "{}", said.err);
}

#[test]
fn a_mount_that_waits_says_so_and_ends_with_the_command_that_began_it() {
    if !can_mount("a_mount_that_waits_says_so_and_ends_with_the_command_that_began_it") {
        return;
    }
    for signal in [libc::SIGKILL, libc::SIGINT, libc::SIGTERM] {
        let world = World::with_pool();
        std::fs::rename(world.path("b.img"), world.path("b.away")).unwrap();
        let mut command = world.command("mount tank mount -o wait=60s");
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        // SAFETY: a signal to a child that was not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let begun = Instant::now();
        let said = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "signal {signal}: {:?}", begun.elapsed());
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("waiting up to 60 s for device") && said.contains("b.img"), "{said}");
        std::thread::sleep(Duration::from_secs(3));
        std::fs::rename(world.path("b.away"), world.path("b.img")).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert_ne!(world.run("umount mount").code, 0, "nothing was mounted afterwards");
        world.ok("check tank");
    }
}

/// P-288. A directory above a mount is renamed: it is told where it is now, and ended there, by a command and by a signal.
#[test]
fn a_mount_goes_with_the_directory_that_it_is_in() {
    if !can_mount("a_mount_goes_with_the_directory_that_it_is_in") {
        return;
    }
    let world = World::with_pool();
    for by_signal in [false, true] {
        fs::create_dir_all(world.path("above/mount")).unwrap();
        world.ok("mount tank above/mount");
        let process = world.find_daemon_at(&world.path("above/mount").display().to_string()).unwrap();
        fs::write(world.path("above/mount/file"), "content").unwrap();
        fs::rename(world.path("above"), world.path("renamed")).unwrap();
        let place = world.path("renamed/mount").display().to_string();
        assert_eq!(world.json("status tank --json")["mountpoint"], place);
        world.ok("where renamed/mount/file");
        match by_signal {
            // SAFETY: a plain system call on a process that this test started.
            true => assert_eq!(unsafe { libc::kill(process, libc::SIGTERM) }, 0),
            false => drop(world.ok("umount renamed/mount")),
        }
        until("its end", || !Path::new(&format!("/proc/{process}/exe")).exists());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is mounted there");
        fs::remove_dir_all(world.path("renamed")).unwrap();
    }
    world.ok("check tank");
}
