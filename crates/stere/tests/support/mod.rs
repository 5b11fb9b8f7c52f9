//! A folder with its own state, and the real binary run in it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::switch;

pub mod tier;
pub mod trees;

/// An ordinary user who owns nothing.
pub const NOBODY: u32 = 65_534;

/// A temporary folder in which `stere` is run; unmounts and goes away when dropped.
pub struct World {
    pub folder: PathBuf,
    /// The network namespace that `stere` is run in; the test's own where there is none.
    pub namespace: Option<PathBuf>,
    /// Beside what the test has.
    pub environment: Vec<(String, String)>,
}

/// What a command said and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl World {
    pub fn new() -> World {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("stere-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(folder.join("mount")).unwrap();
        World { folder, namespace: None, environment: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.path("mount")
    }

    pub fn command(&self, line: &str) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_stere")), line)
    }

    fn command_of(&self, stere: &Path, line: &str) -> Command {
        let mut command = Command::new(stere);
        command.args(line.split_whitespace()).current_dir(&self.folder).env("STERE_STATE", self.path("state"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(namespace) = &self.namespace {
            let namespace = std::fs::File::open(namespace).unwrap();
            // SAFETY: one system call between fork and exec, which allocates nothing.
            unsafe { command.pre_exec(move || switch::enter(&namespace)) };
        }
        command
    }

    /// The same as nobody.
    pub fn command_of_nobody(&self, line: &str) -> Command {
        // Where the tests were built nobody else may be let in.
        let stere = self.path("stere");
        if !stere.exists() {
            // By another process: one that another test begins meanwhile would have this one's file open for writing, and nobody could run it.
            let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_stere")).arg(&stere).status();
            assert!(copied.unwrap().success(), "the program is copied");
        }
        let mut command = self.command_of(&stere, line);
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    pub fn run(&self, line: &str) -> Said {
        said(self.command(line).output().unwrap())
    }

    /// Runs what must succeed.
    pub fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, 0, "stere {line}: {}{}", said.out, said.err);
        said.out
    }

    /// Runs what must be refused with this code, one line, and these words.
    pub fn refused(&self, line: &str, code: i32, words: &[&str]) {
        let said = self.run(line);
        assert_eq!(said.code, code, "stere {line}: {}{}", said.out, said.err);
        for word in words {
            assert!(said.err.contains(word), "stere {line} says '{}', without '{word}'", said.err.trim());
        }
        assert!(said.out.is_empty(), "stere {line} is refused and prints {}", said.out);
    }

    /// Runs what must be refused after its forecast was told.
    pub fn refused_after_forecast(&self, line: &str, words: &[&str]) {
        let said = self.run(line);
        assert_eq!(said.code, 1, "stere {line}: {}{}", said.out, said.err);
        for word in words {
            assert!(said.err.contains(word), "stere {line} says '{}', without '{word}'", said.err.trim());
        }
    }

    /// The same while b.img is somewhere else.
    pub fn refused_without_b(&self, line: &str, words: &[&str]) {
        std::fs::rename(self.path("b.img"), self.path("b.away")).unwrap();
        self.refused(line, 1, words);
        std::fs::rename(self.path("b.away"), self.path("b.img")).unwrap();
    }

    pub fn json(&self, line: &str) -> serde_json::Value {
        let said = self.run(line);
        serde_json::from_str(&said.out)
            .unwrap_or_else(|error| panic!("stere {line}: {error}: {}{}", said.out, said.err))
    }

    /// Two images of a pool named `tank`.
    pub fn with_pool() -> World {
        let world = World::new();
        world.ok("create tank a.img,size=96M b.img,size=160M");
        world
    }

    /// Copies an image, holes left holes.
    pub fn copy(&self, from: &str, to: &str) {
        let status = Command::new("cp").arg("--sparse=always").arg(self.path(from)).arg(self.path(to)).status();
        assert!(status.unwrap().success());
    }

    /// The number of the process that serves this world's mount.
    pub fn daemon(&self) -> i32 {
        self.find_daemon().unwrap_or_else(|| panic!("no process serves {}", self.mountpoint().display()))
    }

    pub fn find_daemon(&self) -> Option<i32> {
        self.find_daemon_at(&self.mountpoint().display().to_string())
    }

    /// The process that serves a mount at this place.
    pub fn find_daemon_at(&self, point: &str) -> Option<i32> {
        std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let process = entry.file_name().to_string_lossy().parse::<i32>().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let is_it = words.any(|word| word == b"--foreground") && words.any(|word| word == point.as_bytes());
            is_it.then_some(process)
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(daemon) = self.find_daemon()
        {
            // A test that failed may have left devices that never answer, and whoever syncs would wait for them: other tests, too.
            // SAFETY: a signal to a process of this test's own.
            let _told = unsafe { libc::kill(daemon, libc::SIGKILL) };
        }
        drop(Command::new("umount").arg("-l").arg(self.mountpoint()).stderr(std::process::Stdio::null()).status());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether this machine lets us mount; says so loudly if not.
pub fn can_mount(test: &str) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !(is_root && has_fuse && Path::new("/proc/self/mountinfo").exists()) {
        eprintln!("SKIPPED: {test} needs root and /dev/fuse, which are not here");
        return false;
    }
    true
}
