//! A file system to work on: stere in several shapes, its peers, and the null file system, all set up the same way.
//!
//! Each is made fresh on sparse image files in one folder (loop devices with direct I/O for the kernel's file systems, so
//! that no second page cache helps them), and is described by two lists of shell lines, `mount` and `unmount`; the same
//! lines make the remount script which workloads call before cold phases. Dropping a `Subject` undoes everything.
//! Read next: `subject/setup.rs` (how each kind is made).

mod setup;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::cleanup::{Guard, detach_line, mount_folder};
use crate::command::{MINUTE, capture, is_installed, output, quoted, shell};
use crate::error::{At, Result, XtaskError};
pub use setup::{Binaries, build, build_for_tests, build_unchecked, cargo, target_directory};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// One device, one copy.
    Stere,
    /// Three devices, one copy of everything.
    SterePool,
    /// Three devices, two copies: what `stere create` gives by default.
    StereMirror,
    /// Three devices, two data and one parity.
    StereParity,
    /// Five devices, files striped over all of them without redundancy.
    StereStripe5,
    /// Five devices, four data and one parity.
    StereParity5,
    Ext4,
    Xfs,
    Btrfs,
    BtrfsRaid1,
    BtrfsRaid5,
    /// Three ext4 directories.
    Mergerfs,
    /// Over ext4.
    Gocryptfs,
    /// Over ext4: passes everything through.
    Bindfs,
    /// ext4 in user space, by e2fsprogs.
    Fuse2fs,
    Ntfs3g,
    ZfsFuse,
    /// Over ext4, with its names in a Redis beside it that syncs each change.
    Juicefs,
    /// Holds nothing and is sent what stere is sent: the ceiling of stere's own front end.
    Null,
    /// Tells the kernel not to ask for birth times and extended attributes either: the ceiling of a front end that has none.
    NullTerse,
    /// Like `Null`, and keeps names and content in its memory: what any file system behind this front end could reach at most.
    HeldInMemory,
    Tmpfs,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Stere => "stere",
            Kind::SterePool => "stere-pool",
            Kind::StereMirror => "stere-mirror",
            Kind::StereParity => "stere-parity",
            Kind::StereStripe5 => "stere-5+0",
            Kind::StereParity5 => "stere-4+1",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::BtrfsRaid1 => "btrfs-raid1",
            Kind::BtrfsRaid5 => "btrfs-raid5",
            Kind::Mergerfs => "mergerfs",
            Kind::Gocryptfs => "gocryptfs",
            Kind::Bindfs => "bindfs",
            Kind::Fuse2fs => "fuse2fs",
            Kind::Ntfs3g => "ntfs-3g",
            Kind::ZfsFuse => "zfs-fuse",
            Kind::Juicefs => "juicefs",
            Kind::Null => "null",
            Kind::NullTerse => "null-terse",
            Kind::HeldInMemory => "held-in-memory",
            Kind::Tmpfs => "tmpfs",
        }
    }

    pub fn is_null(self) -> bool {
        matches!(self, Kind::Null | Kind::NullTerse | Kind::HeldInMemory)
    }

    pub fn is_stere(self) -> bool {
        matches!(self, Kind::Stere | Kind::SterePool | Kind::StereMirror) || self.policy().is_some()
    }

    /// How files are to be stored, where that is not a class of its own.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Kind::StereParity => Some("parity=1"),
            Kind::StereStripe5 => Some("parity=5+0"),
            Kind::StereParity5 => Some("parity=4+1"),
            _ => None,
        }
    }

    pub fn devices(self) -> usize {
        match self {
            Kind::Stere | Kind::Ext4 | Kind::Xfs | Kind::Btrfs => 1,
            Kind::Gocryptfs | Kind::Bindfs | Kind::Fuse2fs | Kind::Ntfs3g | Kind::ZfsFuse | Kind::Juicefs => 1,
            Kind::SterePool | Kind::StereMirror | Kind::StereParity => 3,
            Kind::BtrfsRaid1 | Kind::BtrfsRaid5 | Kind::Mergerfs => 3,
            Kind::StereStripe5 | Kind::StereParity5 => 5,
            Kind::Null | Kind::NullTerse | Kind::HeldInMemory | Kind::Tmpfs => 0,
        }
    }

    /// The programs it needs and the Debian package that brings them.
    pub fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Kind::Ext4 => &[("mkfs.ext4", "e2fsprogs")],
            Kind::Xfs => &[("mkfs.xfs", "xfsprogs")],
            Kind::Btrfs | Kind::BtrfsRaid1 | Kind::BtrfsRaid5 => &[("mkfs.btrfs", "btrfs-progs")],
            Kind::Mergerfs => &[("mkfs.ext4", "e2fsprogs"), ("mergerfs", "mergerfs")],
            Kind::Gocryptfs => &[("mkfs.ext4", "e2fsprogs"), ("gocryptfs", "gocryptfs")],
            Kind::Bindfs => &[("mkfs.ext4", "e2fsprogs"), ("bindfs", "bindfs")],
            Kind::Fuse2fs => &[("mkfs.ext4", "e2fsprogs"), ("fuse2fs", "fuse2fs")],
            Kind::Ntfs3g => &[("mkntfs", "ntfs-3g"), ("ntfs-3g", "ntfs-3g")],
            Kind::ZfsFuse => &[("zfs-fuse", "zfs-fuse"), ("zpool", "zfs-fuse")],
            // JuiceFS is in no Debian package: bench/README.md says where it comes from.
            Kind::Juicefs => {
                &[("mkfs.ext4", "e2fsprogs"), ("redis-server", "redis-server"), ("juicefs", "juicefs-from-source")]
            }
            _ => &[],
        }
    }

    pub fn missing_packages(self) -> Vec<&'static str> {
        self.needs().iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect()
    }
}

/// What a subject is made of, beside its kind.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Size of each image file, as `truncate` and `stere create` read it.
    pub device_size: String,
    /// Mount options for stere, beside `allow_other`.
    pub options: String,
    /// Whether a stere that is there already is used, and stays when the subject goes.
    pub is_kept: bool,
    /// Whether stere gets loop devices, as its peers do, and not the image files themselves.
    pub on_loop_devices: bool,
    /// Files of this size that lie on the same file system: they are used as images, whatever they hold.
    pub images: Vec<PathBuf>,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            device_size: "6G".into(),
            options: String::new(),
            is_kept: false,
            on_loop_devices: false,
            images: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Subject {
    pub kind: Kind,
    pub mount_point: PathBuf,
    directory: PathBuf,
    mount_lines: Vec<String>,
    unmount_lines: Vec<String>,
    /// Proves the unmounted devices sound, where the file system has such a command.
    check_line: Option<String>,
    /// Tells the state of the mounted pool as JSON.
    status_line: Option<String>,
    /// Part of the command line of the process that serves the mount, where there is one.
    daemon: Option<String>,
    guards: Vec<Guard>,
}

impl Subject {
    /// Makes it on fresh image files below `directory` and mounts it.
    pub fn new(kind: Kind, directory: &Path, shape: &Shape, binaries: &Binaries) -> Result<Self> {
        let directory = directory.join(kind.name());
        fs::create_dir_all(&directory).at("mkdir", &directory)?;
        let (mount_point, mount_guard) = mount_folder()?;
        let mut subject = Subject {
            kind,
            mount_point,
            directory: directory.clone(),
            mount_lines: Vec::new(),
            unmount_lines: Vec::new(),
            check_line: None,
            status_line: None,
            daemon: None,
            guards: Vec::new(),
        };
        if !shape.is_kept {
            subject.guards.push(Guard::new(format!("rm -rf --one-file-system {}", quoted(&directory))));
        }
        setup::prepare(&mut subject, shape, binaries)?;
        subject.guards.push(Guard::new(detach_line(&subject.directory.join("branches"))));
        subject.guards.push(mount_guard);
        subject.write_remount_script()?;
        subject.mount()?;
        Ok(subject)
    }

    pub fn mount(&self) -> Result<()> {
        self.mount_lines.iter().try_for_each(|line| capture(&mut shell(line), 5 * MINUTE).map(drop))
    }

    pub fn unmount(&self) -> Result<()> {
        self.unmount_lines.iter().try_for_each(|line| capture(&mut shell(line), 5 * MINUTE).map(drop))
    }

    /// The file system's own proof of its unmounted devices; a peer without one passes.
    pub fn check(&self) -> Result<()> {
        self.check_line.iter().try_for_each(|line| capture(&mut shell(line), 10 * MINUTE).map(drop))
    }

    /// Prints the last lines of the daemon's own logs: called when something failed, before the folder goes.
    pub fn show_logs(&self) {
        let line = format!("find {} -name '*.log*' -exec tail -n 30 {{}} +", quoted(&self.directory.join("state")));
        if self.kind.is_stere()
            && let Ok(said) = output(&mut shell(&line), MINUTE)
        {
            eprintln!("    the daemon's log:\n{}", said.stdout);
        }
    }

    /// The image file below one of its devices.
    pub fn image(&self, device: usize) -> PathBuf {
        self.directory.join(format!("{device}.img"))
    }

    /// A command that unmounts and mounts again, for workloads that want nothing cached.
    pub fn remount_hook(&self) -> String {
        format!("sh {}", quoted(&self.remount_script()))
    }

    /// A command like the one above, after which one of stere's devices is gone.
    pub fn loss_hook(&self, device: usize) -> Result<String> {
        let image = self.image(device);
        let lost = format!("if [ -e {0} ]; then mv {0} {1}; fi", quoted(&image), quoted(&image.with_extension("lost")));
        let mut lines: Vec<String> = self.unmount_lines.clone();
        lines.push(lost);
        // Degraded mounts answer with the exit code for that.
        lines.extend(self.mount_lines.iter().map(|line| format!("{line},degraded=auto,wait=0s || [ $? = 3 ]")));
        let path = self.directory.join("lose.sh");
        fs::write(&path, format!("set -e\n{}\n", lines.join("\n"))).at("write", &path)?;
        Ok(format!("sh {}", quoted(&path)))
    }

    /// What `stere status --json` says of the mounted pool.
    pub fn status(&self) -> Result<serde_json::Value> {
        let Some(line) = &self.status_line else {
            return Err(XtaskError::found(format!("{} tells no status", self.kind.name())));
        };
        // The exit code tells health, which is not what is asked for here.
        let said = output(&mut shell(line), MINUTE)?.stdout;
        serde_json::from_str(&said).map_err(|error| XtaskError::found(format!("`{line}` is not JSON: {error}")))
    }

    /// The process that serves the mount; only file systems in user space have one.
    pub fn daemon_process(&self) -> Result<u32> {
        let Some(marker) = &self.daemon else {
            return Err(XtaskError::found(format!("{} has no process of its own", self.kind.name())));
        };
        find_process(marker, &self.mount_point)
            .ok_or_else(|| XtaskError::found(format!("no process serves {}", self.mount_point.display())))
    }

    /// `kill -9` of the daemon, and the dead mount taken away. Everything below it (an ext4, say) is unmounted too.
    pub fn kill(&self) -> Result<()> {
        let process = self.daemon_process()?;
        // SAFETY: plain system call on a process that serves our own mount.
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
        self.wait_for_end(process)?;
        let branches = detach_line(&self.directory.join("branches"));
        let point = quoted(&self.mount_point);
        capture(&mut shell(&format!("umount -l {point}; {branches}")), MINUTE).map(drop)
    }

    fn wait_for_end(&self, process: u32) -> Result<()> {
        let start = Instant::now();
        while is_running(process) {
            if start.elapsed() > 2 * MINUTE {
                return Err(XtaskError::found(format!("process {process} did not end after kill -9")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn remount_script(&self) -> PathBuf {
        self.directory.join("remount.sh")
    }

    fn write_remount_script(&self) -> Result<()> {
        let lines: Vec<&str> = self.unmount_lines.iter().chain(&self.mount_lines).map(String::as_str).collect();
        let path = self.remount_script();
        fs::write(&path, format!("set -e\n{}\n", lines.join("\n"))).at("write", &path)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            let _ = self.unmount();
        }
        while self.guards.pop().is_some() {}
    }
}

fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z') | Some('X'))
}

/// The newest running process whose command line holds both the marker and the mount point.
fn find_process(marker: &str, mount_point: &Path) -> Option<u32> {
    let point = mount_point.display().to_string();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let serves = |number: &u32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let is_program = words.first().is_some_and(|word| word.ends_with(marker));
        is_program && words.contains(&point) && is_running(*number)
    };
    numbers.filter(serves).max()
}

/// Peak and present memory of a process, in bytes: (VmHWM, Pss).
pub fn memory_of(process: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.at("read", Path::new("/proc/PID/status"))?;
    let rollup = output(&mut shell(&format!("cat /proc/{process}/smaps_rollup")), MINUTE)?.stdout;
    Ok((kilobytes(&status, "VmHWM:") * 1024, kilobytes(&rollup, "Pss:") * 1024))
}

/// Processor time a process has used, in all its threads.
pub fn processor_time_of(process: u32) -> Result<Duration> {
    let path = PathBuf::from(format!("/proc/{process}/stat"));
    let stat = fs::read_to_string(&path).at("read", &path)?;
    // User and system time are the 14th and 15th field; the second, in brackets, may hold anything.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // SAFETY: plain system call.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 1000 / ticks_per_second))
}

fn kilobytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(key));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|word| word.parse().ok()).unwrap_or(0)
}
