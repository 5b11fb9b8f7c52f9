//! P-157: one pool, two machines that reach its devices: two loop devices for each image, and two folders of state. Needs root,
//! /dev/fuse and loop devices, and says loudly when it skips.

use crate::site::is_dead;
use crate::support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Said, World, can_mount};

/// A machine's own ways to the devices, and its own state and mount point.
struct Machine<'a> {
    world: &'a World,
    state: PathBuf,
    mountpoint: PathBuf,
    devices: Vec<String>,
}

impl<'a> Machine<'a> {
    /// None where no loop devices can be made.
    fn new(world: &'a World, name: &str) -> Option<Machine<'a>> {
        let mut machine = Machine {
            world,
            state: world.path(name),
            mountpoint: world.path(&format!("mount-{name}")),
            devices: Vec::new(),
        };
        fs::create_dir(&machine.mountpoint).unwrap();
        for image in ["a.img", "b.img"] {
            let made = Command::new("losetup").args(["--find", "--show"]).arg(world.path(image)).output().ok()?;
            if !made.status.success() {
                eprintln!("SKIPPED: no loop devices can be made here");
                return None;
            }
            machine.devices.push(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        }
        Some(machine)
    }

    fn run(&self, line: &str) -> Said {
        let output = self.world.command(line).env("STERE_STATE", &self.state).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    fn mount(&self, options: &str) -> Said {
        self.run(&format!("mount {} {} -o wait=0{options}", self.devices.join(" "), self.mountpoint.display()))
    }

    fn umount(&self) {
        let said = self.run(&format!("umount {}", self.mountpoint.display()));
        assert_eq!(said.code, 0, "{}", said.err);
    }

    fn daemon(&self) -> i32 {
        let point = self.mountpoint.display().to_string();
        let mut processes = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        let serves = |process: &i32| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == b"--foreground") && words.any(|word| word == point.as_bytes())
        };
        processes.find(serves).expect("a process serves the mount")
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes numbers only; the process is this test's own daemon.
        assert_eq!(unsafe { libc::kill(self.daemon(), signal) }, 0);
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.mountpoint).stderr(std::process::Stdio::null()).status());
        for device in &self.devices {
            drop(Command::new("losetup").arg("--detach").arg(device).status());
        }
    }
}

fn write_synced(path: &Path, byte: u8) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(&[byte; 300_000]).unwrap();
    file.sync_all().unwrap();
}

fn assert_holds(path: &Path, byte: u8) {
    assert!(fs::read(path).unwrap() == [byte; 300_000], "{}", path.display());
}

#[test]
fn a_pool_in_use_on_one_machine_is_refused_on_another() {
    if !can_mount("two machines") {
        return;
    }
    let world = World::with_pool();
    let (Some(first), Some(second)) = (Machine::new(&world, "first"), Machine::new(&world, "second")) else { return };
    assert_eq!(first.mount("").code, 0);
    write_synced(&first.mountpoint.join("one"), 1);
    for options in ["", ",ro"] {
        let said = second.mount(options);
        assert_eq!(said.code, 1, "{}{}", said.out, said.err);
        assert!(said.err.contains("in use by process") && said.err.contains("heartbeat"), "{}", said.err);
    }
    for line in ["device resize tank a", "check --repair"] {
        let said = match line.starts_with("check") {
            true => second.run(&format!("{line} {}", second.devices.join(" "))),
            false => {
                second.run(&format!("pool import {}", second.devices.join(" ")));
                second.run(line)
            }
        };
        assert_eq!(said.code, 1, "{line}: {}{}", said.out, said.err);
        assert!(said.err.contains("in use by process"), "{line}: {}", said.err);
    }
    // Nor is it destroyed from there.
    let said = second.run(&format!("create other {} --force --yes", second.devices.join(" ")));
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.err.contains("in use by process"), "{}", said.err);
    let created = second.run(&format!("create other {}", world.path("c.img,size=96M").display()));
    assert_eq!(created.code, 0, "{}", created.err);
    let said = second.run(&format!("device add other {} --force --yes", second.devices[0]));
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.err.contains("in use by process"), "{}", said.err);
    write_synced(&first.mountpoint.join("two"), 2);
    first.umount();
    // What was closed in order is had without a watch.
    let start = Instant::now();
    assert_eq!(second.mount("").code, 0);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_holds(&second.mountpoint.join("one"), 1);
    assert_holds(&second.mountpoint.join("two"), 2);
    second.umount();
}

#[test]
fn a_killed_owner_is_known_on_its_machine_and_watched_on_another() {
    if !can_mount("two machines") {
        return;
    }
    let world = World::with_pool();
    let (Some(first), Some(second)) = (Machine::new(&world, "first"), Machine::new(&world, "second")) else { return };
    for expect_watch in [false, true] {
        assert_eq!(first.mount("").code, 0);
        write_synced(&first.mountpoint.join("one"), 1);
        first.signal(libc::SIGKILL);
        drop(Command::new("umount").arg("-l").arg(&first.mountpoint).status());
        let next = if expect_watch { &second } else { &first };
        let start = Instant::now();
        let said = next.mount("");
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(start.elapsed() >= Duration::from_secs(6), expect_watch, "{:?}", start.elapsed());
        assert_holds(&next.mountpoint.join("one"), 1);
        next.umount();
    }
}

/// A machine that stood still (a paused virtual machine) finds out that another took over before it does harm.
#[test]
fn an_owner_that_stood_still_stops_when_it_goes_on() {
    if !can_mount("two machines") {
        return;
    }
    let world = World::with_pool();
    let (Some(first), Some(second)) = (Machine::new(&world, "first"), Machine::new(&world, "second")) else { return };
    assert_eq!(first.mount("").code, 0);
    write_synced(&first.mountpoint.join("one"), 1);
    first.signal(libc::SIGSTOP);
    let said = second.mount("");
    assert_eq!(said.code, 0, "{}", said.err);
    for number in 0..20 {
        write_synced(&second.mountpoint.join(format!("second{number}")), number);
    }
    first.signal(libc::SIGCONT);
    let start = Instant::now();
    // Its mount answers nothing more, and stays, so that nobody writes into the directory below it.
    while !is_dead(&first.mountpoint) {
        assert!(start.elapsed() < Duration::from_secs(20), "the old owner goes on");
        std::thread::sleep(Duration::from_millis(100));
    }
    for number in 0..20 {
        assert_holds(&second.mountpoint.join(format!("second{number}")), number);
    }
    second.umount();
    let said = second.run(&format!("check {}", second.devices.join(" ")));
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}
