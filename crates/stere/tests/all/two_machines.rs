//! Two machines that mount one pool through its owner are each a POSIX file system, also at the same time (P-273): pjdfstest and fsx run on
//! both at once, on one tree. Then each reads what the other's fsx has left.
//!
//! Needs root, /dev/fuse, iproute2, and the two programs in PATH, which `cargo xtask test` brings. `STERE_TEST_ROUNDS` asks for so many
//! times the operations of fsx. Read next: `xtask/src/suites/conformance.rs` (the same on one machine), `support/site.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::network::Link;
use crate::node_servers::{Kind, is_installed};
use crate::site::{Links, Site};
use crate::support::World;

const FAST: [Link; 3] = [Link::Fast; 3];
const FSX_OPERATIONS: u64 = 6_000;
/// pjdfstest 0.2.2 computes a name of length 0 for folders whose path has this length (modulo 127), and fails by itself.
const PJDFSTEST_BAD_LENGTH: usize = 9;

fn times() -> u64 {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Another file system, for tests of what cannot cross from one to the other.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn on(point: PathBuf) -> Tmpfs {
        fs::create_dir(&point).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&point).status();
        assert!(mounted.unwrap().success());
        Tmpfs(point)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Runs it to its end; what it said, and whether it succeeded.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// Those that remount read-only run alone, as files are open in the others.
fn pjdfstest(machine: &World, folder: &str, allow_remount: bool) {
    let mut path = machine.mountpoint().join(folder);
    while path.as_os_str().len() % 127 == PJDFSTEST_BAD_LENGTH {
        path = path.join("x");
    }
    fs::create_dir_all(&path).unwrap();
    let second = Tmpfs::on(machine.path(&format!("second-{allow_remount}")));
    let configuration = machine.path("pjdfstest.toml");
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         stat_st_birthtime = {{}}\n[settings]\nnaptime = 0.02\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    fs::write(&configuration, text).unwrap();
    let begun = Instant::now();
    let mut command = Command::new("pjdfstest");
    // Where FUSE's helper of mount(8) is installed it looks for a stere that is installed, too: the kernel alone is asked.
    let programs = machine.path("programs");
    fs::create_dir_all(&programs).unwrap();
    fs::write(programs.join("mount"), "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount -i \"$@\"\n").unwrap();
    fs::set_permissions(programs.join("mount"), fs::Permissions::from_mode(0o755)).unwrap();
    let places = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&places))).unwrap();
    command.env("PATH", places).arg("-c").arg(&configuration).arg("-p").arg(&path).arg("-s").arg(&second.0);
    let (is_right, said) = run(command.args(allow_remount.then_some("erofs")));
    let summary = said.lines().find(|line| line.contains("Summary")).unwrap_or("no summary: it ended early");
    let failed: Vec<&str> = said.lines().filter(|line| line.contains("FAILED")).collect();
    println!("{folder}: pjdfstest in {:?}: {summary}", begun.elapsed());
    // Not the frames of stacks.
    let is_frame = |line: &str| {
        line.trim_start().starts_with("at ")
            || line.trim_start().split(": ").next().is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let told: Vec<&str> = said.lines().filter(|line| !is_frame(line) && !line.trim().is_empty()).collect();
    let end = told[told.len().saturating_sub(25)..].join("\n");
    assert!(is_right && failed.is_empty(), "{folder}: {summary}\n{}\n{end}", failed.join("\n"));
    assert!(!said.contains(" 0 passed"), "{summary}");
}

fn fsx(machine: &World, file: &Path, settings: &str, seed: u64) {
    let configuration = machine.path("fsx.toml");
    let text = format!(
        "flen = 262144\n{settings}[opsize]\nmax = 65536\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
         mapread = {maps}\nmapwrite = {maps}\n{invalidate}truncate = 5\nfsync = 1\nfdatasync = 1\nposix_fallocate = 3\n\
         punch_hole = 5\nsendfile = 3\nposix_fadvise = 1\ncopy_file_range = 5\n",
        maps = if settings.is_empty() { 0 } else { 10 },
        invalidate = if settings.is_empty() { "" } else { "invalidate = 1\n" },
    );
    fs::write(&configuration, text).unwrap();
    let (count, begun) = (FSX_OPERATIONS * times(), Instant::now());
    let mut command = Command::new("fsx");
    command.arg("-f").arg(&configuration).args(["-N", &count.to_string(), "-S", &seed.to_string()]);
    let (is_right, said) = run(command.arg("-P").arg(&machine.folder).arg(file));
    println!("{}: {count} operations of fsx in {:?}", file.display(), begun.elapsed());
    let lines: Vec<&str> = said.lines().collect();
    assert!(is_right, "fsx with seed {seed}: {}", lines[lines.len().saturating_sub(25)..].join("\n"));
}

#[test]
fn two_machines_pass_pjdfstest_and_fsx_at_once() {
    let test = "two_machines_pass_pjdfstest_and_fsx_at_once";
    if !is_installed(test, "pjdfstest") || !is_installed(test, "fsx") {
        return;
    }
    let links = Links { nodes: &FAST, machines: &FAST, ..Links::default() };
    let Some(site) = Site::on_network(test, Kind::Stere, &links) else { return };
    let [owner, clients @ ..] = &site.machines[..] else { panic!("three machines") };
    owner.ok("mount lab mount -o allow_other");
    clients.iter().for_each(|client| drop(client.ok("mount lab mount -o nostandby,allow_other")));
    fs::create_dir(owner.mountpoint().join("shared")).unwrap();
    let file = |machine: &World, number: usize| machine.mountpoint().join(format!("shared/fsx-{number}"));
    std::thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            scope.spawn(move || pjdfstest(client, &format!("tree-{number}"), false));
            // Without mappings on one machine, with them on the other.
            let settings = if number == 0 { "" } else { "nomsyncafterwrite = true\n" };
            scope.spawn(move || fsx(client, &file(client, number), settings, 1 + number as u64));
        }
    });
    for (number, client) in clients.iter().enumerate() {
        let own = fs::read(file(client, number)).unwrap();
        assert!(!own.is_empty());
        for other in &site.machines {
            assert!(fs::read(file(other, number)).unwrap() == own, "fsx-{number} is another file elsewhere");
        }
    }
    std::thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            scope.spawn(move || pjdfstest(client, &format!("tree-{number}"), true));
        }
    });
    for machine in site.machines.iter().rev() {
        machine.ok("umount mount");
    }
    owner.ok("check lab");
}
