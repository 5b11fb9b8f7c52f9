//! The processes of an engine: signals for all of them, and their end.
//!
//! Invariant: whatever state they are in, `end` ends them. Read next: `postgresql.rs`.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);
const END: Duration = Duration::from_secs(15);

pub(super) struct Process {
    child: Child,
}

/// The parent of a process, and nothing if it is gone.
fn parent_of(process: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may have anything in it.
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn send(process: i32, signal: i32) {
    // SAFETY: plain system call; the process is our child that is not yet reaped, or was its child a moment ago.
    unsafe { libc::kill(process, signal) };
}

impl Process {
    /// Starts it with what it says in `log`; `user` is the user and the group it runs as.
    pub(super) fn start(mut command: Command, log: &Path, user: Option<(u32, u32)>) -> std::io::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        if let Some((user, group)) = user {
            command.gid(group).uid(user);
        }
        Ok(Process { child: command.spawn()? })
    }

    fn id(&self) -> i32 {
        self.child.id() as i32
    }

    fn children(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|number| parent_of(*number) == Some(self.id())).collect()
    }

    pub(super) fn signal(&self, signal: i32) {
        send(self.id(), signal);
    }

    /// The first goes first, so that it starts no others.
    pub(super) fn signal_all(&self, signal: i32) {
        let children = self.children();
        self.signal(signal);
        children.into_iter().chain(self.children()).for_each(|child| send(child, signal));
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end by a signal; past the limit it is killed.
    pub(super) fn stop(&mut self, signal: i32) {
        self.signal(signal);
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < END {
            sleep(POLL);
        }
        self.end();
    }

    /// Kills it and its children, and waits until they are gone.
    pub(super) fn end(&mut self) {
        if self.has_ended() {
            return;
        }
        let children = self.children();
        self.signal_all(libc::SIGKILL);
        let _ = self.child.wait();
        let begun = Instant::now();
        while children.iter().any(|child| Path::new(&format!("/proc/{child}/exe")).exists()) && begun.elapsed() < END {
            sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// An engine that is started on what it has: what all of them do alike. It has `stop`, `launch`, `data`, and a folder.
macro_rules! server {
    ($server:ty) => {
        impl $server {
            /// Where clients reach it on this machine.
            pub fn port(&self) -> u16 {
                self.port
            }

            /// As if its power failed, but for what the kernel still writes.
            pub fn kill(&mut self) {
                self.process = None;
            }

            /// All its processes stand still.
            pub fn pause(&self) {
                self.process.iter().for_each(|process| process.signal_all(libc::SIGSTOP));
            }

            pub fn resume(&self) {
                self.process.iter().for_each(|process| process.signal_all(libc::SIGCONT));
            }

            /// Stops it as an administrator does.
            pub fn stop(&mut self) {
                if let Some(mut process) = self.process.take() {
                    process.signal_all(libc::SIGCONT);
                    process.stop(Self::STOP);
                }
            }

            /// Starts it again, on what it has; on the same port if nobody has taken it.
            pub fn restart(&mut self) {
                self.stop();
                self.launch();
            }

            /// Keeps what it has now, for `restore_state`.
            pub fn save_state(&mut self) {
                self.stop();
                $crate::test_engines::process::copy(&self.data(), &self.folder.path().join("saved"));
                self.launch();
            }

            /// Goes back to what it had, as one who restores a backup.
            pub fn restore_state(&mut self) {
                self.stop();
                $crate::test_engines::process::copy(&self.folder.path().join("saved"), &self.data());
                self.launch();
            }
        }
    };
}
pub(super) use server;

/// Whether something became so in time.
pub(super) fn becomes(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if condition() {
            return true;
        }
        sleep(POLL);
    }
    false
}

/// Replaces a directory by a copy of another, with owners and modes.
pub(super) fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp is on every machine");
    assert!(status.success(), "{} could not be copied", from.display());
}
