//! Undoing what was set up (mounts, loop devices, folders), whatever way we end.
//!
//! Every undo is a line for the shell, held in one list: a guard runs its line when dropped, a signal runs all of them in
//! reverse, and what an earlier run left after `kill -9` is found by its folder and undone at the next start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command::{MINUTE, is_stopping, output, quoted, shell, stop_children};
use crate::error::{At, Result};

const MOUNT_PREFIX: &str = "stere-mount-";

static UNDO: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Runs its line of shell when dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    pub fn new(line: String) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock().push((number, line));
        Guard(number)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let line = {
            let mut list = lock();
            list.iter().position(|(number, _)| *number == self.0).map(|index| list.remove(index).1)
        };
        if let Some(line) = line {
            undo(&line);
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<(u64, String)>> {
    UNDO.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn undo(line: &str) {
    let result = shell(line).stdin(Stdio::null()).stdout(Stdio::null()).output();
    match result {
        Ok(output) if output.status.success() => (),
        Ok(output) => eprintln!("xtask: while cleaning up: {line}: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => eprintln!("xtask: while cleaning up: {line}: {error}"),
    }
}

/// From now on SIGINT and SIGTERM undo everything before they end us. They are handled and not blocked: the programs we start
/// inherit what is blocked and what is ignored, but not handlers, so they end on these signals however we were started.
pub fn on_signals() {
    // SAFETY: the set is initialised by sigemptyset before use.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, SIGINT);
        libc::sigaddset(&mut signals, SIGTERM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
    };
    let mut signals = match Signals::new([SIGINT, SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => return eprintln!("xtask: nothing will be cleaned up after an interrupt: {error}"),
    };
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        eprintln!("xtask: interrupted, cleaning up");
        stop_children();
        // What the main thread set up while it was being stopped comes in later rounds.
        for _ in 0..3 {
            let lines: Vec<_> = lock().drain(..).rev().collect();
            lines.iter().for_each(|(_, line)| undo(line));
            thread::sleep(Duration::from_millis(100));
        }
        std::process::exit(128 + signal);
    });
}

/// Called at the end of the main thread: after a signal the thread above ends the process, not we.
pub fn wait_if_interrupted() {
    while is_stopping() {
        thread::park();
    }
}

/// A folder of this process below `target/work`, with everything mounted in it undone at the end.
#[derive(Debug)]
pub struct Place {
    pub directory: PathBuf,
    _guard: Guard,
}

impl Place {
    pub fn new(root: &Path) -> Result<Self> {
        let parent = root.join("target/work");
        fs::create_dir_all(&parent).at("mkdir", &parent)?;
        clear_leftovers(&parent)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("{}-{number}", std::process::id()));
        fs::create_dir(&directory).at("mkdir", &directory)?;
        let guard = Guard::new(format!("rm -rf --one-file-system {}", quoted(&directory)));
        Ok(Place { directory, _guard: guard })
    }
}

/// A short path for a mount point (sockets below it must fit in 108 bytes), removed when the guard is dropped.
pub fn mount_folder() -> Result<(PathBuf, Guard)> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("{MOUNT_PREFIX}{}-{number}", std::process::id()));
    fs::create_dir(&directory).at("mkdir", &directory)?;
    let guard = Guard::new(detach_line(&directory));
    Ok((directory, guard))
}

/// Takes away the mount on the folder and all below it, the innermost first, dead or alive, then the folder if it is empty.
pub fn detach_line(directory: &Path) -> String {
    let (name, quoted) = (directory.display(), quoted(directory));
    format!(
        "cut -d' ' -f2 /proc/self/mounts | grep -E '^{name}(/|$)' | tac | while read -r point; do \
         umount \"$point\" 2>/dev/null || umount -l \"$point\"; done; rmdir {quoted} 2>/dev/null || true"
    )
}

/// Undoes what dead processes left: their mounts, then their loop devices, then their folders.
fn clear_leftovers(parent: &Path) -> Result<()> {
    for (folder, prefix) in [(std::env::temp_dir(), MOUNT_PREFIX), (parent.to_owned(), "")] {
        for entry in fs::read_dir(&folder).at("list", &folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if let Some(process) = process
                && !Path::new("/proc").join(process.to_string()).exists()
            {
                eprintln!("xtask: an earlier run left {}; cleaning up", entry.path().display());
                clear_directory(&entry.path());
            }
        }
    }
    Ok(())
}

fn clear_directory(directory: &Path) {
    undo(&detach_line(directory));
    let inside = format!("{}/", directory.display());
    let loops = output(&mut shell("losetup --list --noheadings --output NAME,BACK-FILE"), MINUTE);
    for line in loops.map(|output| output.stdout).unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        if let (Some(device), Some(file)) = (words.next(), words.next())
            && file.starts_with(&inside)
        {
            undo(&format!("losetup -d {device}"));
        }
    }
    undo(&format!("rm -rf --one-file-system {}", quoted(directory)));
}
