//! How each kind of file system is made: images, loop devices, mkfs, and the lines that mount and unmount it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Kind, Shape, Subject};
use crate::cleanup::Guard;
use crate::command::{MINUTE, capture, program, quoted, run, shell};
use crate::error::{At, Result, XtaskError};

const POOL: &str = "bench";

/// The programs of this project that subjects and suites run.
#[derive(Debug, Clone)]
pub struct Binaries {
    pub stere: PathBuf,
    pub bench: PathBuf,
    pub null: PathBuf,
}

impl Binaries {
    /// Builds them in release mode; `STERE_BINARY` names another stere to be tried instead, say the one of a package.
    pub fn build(root: &Path, with_null: bool) -> Result<Self> {
        let given = std::env::var_os("STERE_BINARY").map(PathBuf::from);
        let ours: &[&str] =
            if given.is_some() { &["-p", "stere-bench"] } else { &["-p", "stere", "-p", "stere-bench"] };
        build(root, ours)?;
        if with_null {
            run(
                &mut cargo(root, &["build", "--release", "--quiet", "-p", "fuse-wire", "--example", "null"]),
                40 * MINUTE,
            )?;
        }
        let release = target_directory(root).join("release");
        Ok(Binaries {
            stere: given.unwrap_or_else(|| release.join("stere")),
            bench: release.join("stere-bench"),
            null: release.join("examples/null"),
        })
    }
}

/// Builds what is asked for. Among tests all programs are built, with the features that all tests need together: a package
/// that is built by itself is resolved with fewer features, and with all that it depends on compiled a second time.
pub fn build(root: &Path, asked: &[&str]) -> Result<()> {
    let all: &[&str] = &["--workspace", "--bins", "--tests"];
    let words = if IS_FOR_TESTS.load(Ordering::Relaxed) { all } else { asked };
    run(&mut cargo(root, &[&["build", "--release", "--quiet"], words].concat()), 60 * MINUTE)
}

/// A stere that computes and verifies no checksums, for the bench that shows what they cost. Its pools are of no other use.
pub fn build_unchecked(root: &Path) -> Result<PathBuf> {
    let target = target_directory(root).join("unchecked");
    let mut command = cargo(root, &["build", "--release", "--quiet", "-p", "stere", "--features", "unchecked"]);
    run(command.arg("--target-dir").arg(&target), 40 * MINUTE)?;
    Ok(target.join("release/stere"))
}

/// Whether what is built from now on is built to be tested, once, rather than to be used.
static IS_FOR_TESTS: AtomicBool = AtomicBool::new(false);

/// From now on without optimization between the units of a crate: half of the time that a build takes, for some percent of speed.
pub fn build_for_tests() {
    IS_FOR_TESTS.store(true, Ordering::Relaxed);
}

pub fn cargo(root: &Path, words: &[&str]) -> std::process::Command {
    let mut command = program(&["cargo"]);
    command.args(words).current_dir(root);
    if IS_FOR_TESTS.load(Ordering::Relaxed) {
        command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    }
    command
}

pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

pub fn prepare(subject: &mut Subject, shape: &Shape, binaries: &Binaries) -> Result<()> {
    match subject.kind {
        kind if kind.is_stere() => prepare_stere(subject, shape, binaries),
        kind if kind.is_null() => prepare_null(subject, binaries),
        Kind::Tmpfs => {
            let point = quoted(&subject.mount_point);
            subject.mount_lines = vec![format!("mount -t tmpfs tmpfs {point}")];
            subject.unmount_lines = vec![format!("umount {point}")];
            Ok(())
        }
        Kind::Mergerfs => prepare_mergerfs(subject, shape),
        Kind::Gocryptfs => prepare_gocryptfs(subject, shape),
        Kind::Bindfs => prepare_bindfs(subject, shape),
        Kind::Fuse2fs => prepare_on_device(subject, shape, EXT4, "fuse2fs -o allow_other,fakeroot,rw", "fuse2fs"),
        Kind::Ntfs3g => prepare_on_device(subject, shape, NTFS, "ntfs-3g -o allow_other,big_writes", "ntfs-3g"),
        Kind::ZfsFuse => prepare_zfs_fuse(subject, shape),
        Kind::Juicefs => prepare_juicefs(subject, shape),
        _ => prepare_kernel(subject, shape),
    }
}

fn prepare_stere(subject: &mut Subject, shape: &Shape, binaries: &Binaries) -> Result<()> {
    let stere = quoted(&binaries.stere);
    let state = quoted(&subject.directory.join("state"));
    let point = quoted(&subject.mount_point);
    let one_copy = if subject.kind == Kind::SterePool { " --default-class scratch" } else { "" };
    for (number, image) in shape.images.iter().enumerate() {
        let link = subject.directory.join(format!("{number}.img"));
        std::fs::hard_link(image, &link).at("link", &link)?;
    }
    let images: Vec<String> =
        (0..subject.kind.devices()).map(|number| quoted(&subject.directory.join(format!("{number}.img")))).collect();
    let (devices, wanted) = if shape.on_loop_devices {
        let devices = loop_devices(subject, shape)?;
        (devices.clone(), devices)
    } else {
        (images.clone(), images.iter().map(|image| format!("{image},size={}", shape.device_size)).collect())
    };
    let force = if shape.images.is_empty() { "" } else { " --force" };
    let environment = format!("STERE_STATE={state}");
    let create = format!("{environment} {stere} create {POOL} {}{one_copy}{force}", wanted.join(" "));
    if !(shape.is_kept && subject.directory.join("0.img").exists()) {
        capture(&mut shell(&create), 5 * MINUTE)?;
    }
    let separator = if shape.options.is_empty() { "" } else { "," };
    let options = format!("allow_other{separator}{}", shape.options);
    subject.mount_lines = vec![format!("{environment} {stere} mount {POOL} {point} -o {options}")];
    subject.unmount_lines = vec![format!("{environment} {stere} umount {point}")];
    subject.check_line = Some(format!("{environment} {stere} check {}", devices.join(" ")));
    subject.status_line = Some(format!("{environment} {stere} status {POOL} --json"));
    subject.daemon = Some("/stere".to_owned());
    if let Some(policy) = subject.kind.policy() {
        set_parity(subject, &format!("{environment} {stere} policy set {point} {policy}"))?;
    }
    Ok(())
}

fn set_parity(subject: &Subject, line: &str) -> Result<()> {
    subject.mount()?;
    let result = capture(&mut shell(line), MINUTE);
    subject.unmount()?;
    result.map(drop)
}

fn prepare_null(subject: &mut Subject, binaries: &Binaries) -> Result<()> {
    let (null, point) = (quoted(&binaries.null), quoted(&subject.mount_point));
    let log = quoted(&subject.directory.join("null.log"));
    let wait =
        format!("for i in $(seq 100); do grep -q ready {log} && exit 0; sleep 0.05; done; cat {log} >&2; exit 1");
    let offered = match subject.kind {
        Kind::Null => "--offer-all ",
        Kind::HeldInMemory => "--offer-all --keep ",
        _ => "",
    };
    let start = format!("{null} {point} {offered}>{log} 2>&1 </dev/null &\n{wait}");
    subject.mount_lines = vec![format!("(setsid sh -c {})", quoted(Path::new(&start)))];
    subject.unmount_lines = vec![format!("umount {point}")];
    subject.daemon = Some("/null".to_owned());
    Ok(())
}

fn prepare_kernel(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let devices = loop_devices(subject, shape)?;
    let (make, file_system) = match subject.kind {
        Kind::Ext4 => (EXT4, "ext4"),
        Kind::Xfs => ("mkfs.xfs -q -f", "xfs"),
        Kind::Btrfs => ("mkfs.btrfs -q -f -d single -m dup", "btrfs"),
        Kind::BtrfsRaid1 => ("mkfs.btrfs -q -f -d raid1 -m raid1", "btrfs"),
        Kind::BtrfsRaid5 => ("mkfs.btrfs -q -f -d raid5 -m raid1", "btrfs"),
        other => return Err(XtaskError::found(format!("{} is not a kernel file system", other.name()))),
    };
    capture(&mut shell(&format!("{make} {}", devices.join(" "))), 5 * MINUTE)?;
    let others: Vec<String> = devices.iter().skip(1).map(|device| format!("device={device}")).collect();
    let options = if others.is_empty() { "defaults".to_owned() } else { others.join(",") };
    let point = quoted(&subject.mount_point);
    subject.mount_lines = vec![format!("mount -t {file_system} -o {options} {} {point}", devices[0])];
    subject.unmount_lines = vec![format!("umount {point}")];
    Ok(())
}

/// Tables are written by mkfs, so that no lazy initialisation runs beside the measurement.
const EXT4: &str = "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0";

fn prepare_mergerfs(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let branches = ext4_branches(subject, shape)?;
    let point = quoted(&subject.mount_point);
    let joined = branches.iter().map(|branch| branch.display().to_string()).collect::<Vec<_>>().join(":");
    let options =
        "allow_other,use_ino,cache.files=auto-full,dropcacheonclose=true,category.create=mfs,minfreespace=64M";
    subject.mount_lines.push(format!("mergerfs -o {options} '{joined}' {point}"));
    subject.unmount_lines.insert(0, format!("umount {point}"));
    subject.daemon = Some("mergerfs".to_owned());
    Ok(())
}

fn prepare_gocryptfs(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let branch = ext4_branches(subject, shape)?.remove(0);
    let cipher = branch.join("cipher");
    let password = subject.directory.join("password");
    subject.mount()?;
    let (cipher, password) = (quoted(&cipher), quoted(&password));
    let init = format!(
        "mkdir {cipher} && echo bench >{password} && gocryptfs -q -init -scryptn 10 -passfile {password} {cipher}"
    );
    let result = capture(&mut shell(&init), 5 * MINUTE);
    subject.unmount()?;
    result?;
    let point = quoted(&subject.mount_point);
    subject
        .mount_lines
        .push(format!("gocryptfs -q -allow_other -passfile {password} {cipher} {point} >/dev/null 2>&1"));
    subject.unmount_lines.insert(0, format!("umount {point}"));
    subject.daemon = Some("gocryptfs".to_owned());
    Ok(())
}

fn prepare_bindfs(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let branch = quoted(&ext4_branches(subject, shape)?.remove(0));
    let point = quoted(&subject.mount_point);
    subject.mount_lines.push(format!("bindfs -o allow_other --multithreaded {branch} {point}"));
    subject.unmount_lines.insert(0, format!("umount {point}"));
    subject.daemon = Some("bindfs".to_owned());
    Ok(())
}

/// `mkntfs` complains of loop devices, which have no geometry, and works.
const NTFS: &str = "mkntfs -q -f -F";

/// A daemon that works on the device itself, and lets go of it a moment after its mount is gone.
fn prepare_on_device(subject: &mut Subject, shape: &Shape, make: &str, start: &str, daemon: &str) -> Result<()> {
    let device = loop_devices(subject, shape)?.remove(0);
    capture(&mut shell(&format!("{make} {device}")), 5 * MINUTE)?;
    let point = quoted(&subject.mount_point);
    subject.mount_lines = vec![format!("{start} {device} {point} >/dev/null 2>&1")];
    let is_held = format!("ps -eo args | grep -q '^[^ ]*{daemon} .*{device} '");
    let wait = format!("i=0; while {is_held}; do i=$((i+1)); [ $i -lt 500 ] || exit 1; sleep 0.02; done");
    subject.unmount_lines = vec![format!("umount {point}"), wait];
    subject.daemon = Some(daemon.to_owned());
    Ok(())
}

/// One daemon serves all pools of the machine; it is started here, and unmounting exports the pool, so that it forgets it.
fn prepare_zfs_fuse(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let device = loop_devices(subject, shape)?.remove(0);
    let process = quoted(&subject.directory.join("zfs-fuse.pid"));
    let pool = format!("stere-bench-{}", std::process::id());
    let point = quoted(&subject.mount_point);
    let wait = "i=0; until zpool list >/dev/null 2>&1; do i=$((i+1)); [ $i -lt 500 ] || exit 1; sleep 0.02; done";
    subject.guards.push(Guard::new(format!("kill $(cat {process}); sleep 0.5")));
    capture(&mut shell(&format!("zfs-fuse --pidfile {process} >/dev/null 2>&1; {wait}")), MINUTE)?;
    capture(&mut shell(&format!("zpool create -f -m {point} {pool} {device} && zpool export {pool}")), MINUTE)?;
    let folder = quoted(&subject.directory.join("devices"));
    capture(&mut shell(&format!("mkdir {folder} && ln -s {device} {folder}/")), MINUTE)?;
    subject.mount_lines = vec![format!("zpool import -d {folder} {pool}")];
    subject.unmount_lines = vec![format!("zpool export {pool}")];
    subject.daemon = Some("zfs-fuse".to_owned());
    Ok(())
}

/// Contents as files of an ext4, names in a Redis on the same ext4 whose every change is durable: what an fsync should mean.
fn prepare_juicefs(subject: &mut Subject, shape: &Shape) -> Result<()> {
    let branch = ext4_branches(subject, shape)?.remove(0);
    let (socket, log) = (subject.directory.join("redis.sock"), quoted(&subject.directory.join("juicefs.log")));
    let (names, point) = (quoted(&branch), quoted(&subject.mount_point));
    let ask = format!("redis-cli -s {}", quoted(&socket));
    let wait =
        format!("i=0; until {ask} ping >/dev/null 2>&1; do i=$((i+1)); [ $i -lt 500 ] || exit 1; sleep 0.02; done");
    let begin = format!(
        "redis-server --port 0 --unixsocket {} --dir {names} --appendonly yes --appendfsync always --save '' \
         --daemonize yes >/dev/null; {wait}",
        quoted(&socket)
    );
    let end = format!("{ask} shutdown");
    let address = format!("'unix://{}?db=0'", socket.display());
    let format = format!(
        "juicefs format --storage file --bucket {names}/objects/ --trash-days 0 {address} bench >/dev/null 2>&1"
    );
    let mount = subject.mount_lines.concat();
    capture(&mut shell(&format!("{mount}; {begin} && {format}; result=$?; {end}; exit $result")), MINUTE)?;
    capture(&mut shell(&patient_umount(&names)), MINUTE)?;
    subject.mount_lines.push(begin);
    // No cache on disk: the objects are on the same one. The program that starts it returns before the mount is there.
    subject.mount_lines.push(format!(
        "juicefs mount -d --no-usage-report --no-syslog --log {log} --cache-size 0 --backup-meta 0 -o allow_other \
         {address} {point} >/dev/null 2>&1 && mountpoint -q {point}"
    ));
    subject.unmount_lines.insert(0, end);
    subject.unmount_lines.insert(0, juicefs_umount(&subject.mount_point));
    subject.daemon = Some("juicefs".to_owned());
    Ok(())
}

/// Its process writes what it holds after its mount is gone.
fn juicefs_umount(point: &Path) -> String {
    let is_there = format!("ps -eo args | grep -q '^[^ ]*juicefs mount .*{}$'", point.display());
    let point = quoted(point);
    format!("umount {point}; i=0; while {is_there}; do i=$((i+1)); [ $i -lt 1000 ] || exit 1; sleep 0.02; done")
}

/// An ext4 on every device, mounted beside the mount point; the lines of the subject mount and unmount them.
fn ext4_branches(subject: &mut Subject, shape: &Shape) -> Result<Vec<PathBuf>> {
    let mut branches = Vec::new();
    for (number, device) in loop_devices(subject, shape)?.iter().enumerate() {
        capture(&mut shell(&format!("{EXT4} {device}")), 5 * MINUTE)?;
        let branch = subject.directory.join(format!("branches/{number}"));
        let point = quoted(&branch);
        subject.mount_lines.push(format!("mkdir -p {point} && mount -t ext4 {device} {point}"));
        subject.unmount_lines.push(patient_umount(&point));
        branches.push(branch);
    }
    Ok(branches)
}

/// The daemon above may need a moment to let go after its own mount is gone.
fn patient_umount(point: &str) -> String {
    format!("i=0; until umount {point}; do i=$((i+1)); [ $i -lt 200 ] || exit 1; sleep 0.02; done 2>/dev/null")
}

fn loop_devices(subject: &mut Subject, shape: &Shape) -> Result<Vec<String>> {
    (0..subject.kind.devices())
        .map(|number| {
            let image = quoted(&subject.directory.join(format!("{number}.img")));
            capture(&mut shell(&format!("truncate -s {} {image}", shape.device_size)), MINUTE)?;
            let attach = format!("losetup --direct-io=on --find --show {image}");
            let device = capture(&mut shell(&attach), MINUTE)?.trim().to_owned();
            subject.guards.push(Guard::new(format!("losetup -d {device}")));
            Ok(device)
        })
        .collect()
}
