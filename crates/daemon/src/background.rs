//! The mount in a process of its own: this program again, in a new session, with a pipe on which it says that it is ready.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::mount_request::MountRequest;
use stere_machine::devices::Target;
use stere_machine::error::{At, DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::Registry;

/// Names the descriptor of the pipe to the child.
const READY_VARIABLE: &str = "STERE_READY_FD";
const LOG_BYTES_MAX: u64 = 16 << 20;

/// What the child says: at most once what it waits for, and then how it went.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Not yet: what is waited for.
    Waiting {
        text: String,
    },
    Ready {
        degraded: bool,
        warnings: Vec<String>,
    },
    Failed {
        message: String,
        exit_code: u8,
    },
}

/// The child's end of the pipe; nothing where nobody listens.
pub struct Ready {
    pipe: Option<File>,
}

impl Ready {
    /// Takes the pipe from the environment. Call once, before any other thread exists.
    pub fn from_environment() -> Ready {
        let number = std::env::var(READY_VARIABLE).ok().and_then(|text| text.parse::<i32>().ok());
        // SAFETY: this process still has one thread only.
        unsafe { std::env::remove_var(READY_VARIABLE) };
        let pipe = number.filter(|number| *number > 2).map(|number| {
            // SAFETY: the parent handed this descriptor over for this purpose, and nobody else here knows it.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            // Processes that this one starts do not get it.
            let _whether_set = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
            File::from(descriptor)
        });
        Ready { pipe }
    }

    /// Whether this process is the one in the background.
    pub fn is_background(&self) -> bool {
        self.pipe.is_some()
    }

    pub fn tell(&mut self, outcome: &Outcome) {
        if let Some(pipe) = self.pipe.take() {
            say(&pipe, outcome);
        }
    }

    /// To the command that waits, or to the terminal.
    pub fn tell_waiting(&self, text: &str) {
        match &self.pipe {
            Some(pipe) => say(pipe, &Outcome::Waiting { text: text.to_owned() }),
            None => eprintln!("stere: {text}"),
        }
    }

    /// Whether the command that began the mount has gone before it was told anything.
    pub fn is_abandoned(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(pipe) = &self.pipe else { return false };
        let mut ends = [PollFd::new(pipe, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ends, Some(&now)).is_ok() && ends[0].revents().contains(PollFlags::ERR)
    }
}

/// A parent that has gone does not wait for this.
fn say(mut pipe: &File, outcome: &Outcome) {
    if let Ok(mut bytes) = serde_json::to_vec(outcome) {
        bytes.push(b'\n');
        drop(pipe.write_all(&bytes));
    }
}

/// Starts the process and waits until its mount answers.
pub fn start(registry: &Registry, request: &MountRequest) -> Result<u8> {
    let name = match &request.target {
        Target::Remembered(record) => record.name.clone(),
        Target::Devices(_) => "devices".into(),
    };
    let log_path = registry.log_path(&name)?;
    let log = open_log(&log_path)?;
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| Error::System(error.into()))?;
    let mut command = command(registry, request)?;
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(Error::System)?).stderr(log);
    command.env(READY_VARIABLE, writer.as_raw_fd().to_string());
    let number = writer.as_raw_fd();
    // SAFETY: setsid and fcntl are async-signal-safe, and the descriptor is open in the child.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 || libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(Error::System)?;
    drop(writer);
    let mut said = String::new();
    for line in BufReader::new(File::from(reader)).lines() {
        said = line.map_err(Error::System)?;
        match serde_json::from_str(&said) {
            Ok(Outcome::Waiting { text }) => eprintln!("stere: {text}"),
            _ => break,
        }
    }
    match serde_json::from_str(&said) {
        Ok(Outcome::Ready { degraded, warnings }) => {
            warnings.iter().for_each(|warning| eprintln!("stere: {warning}"));
            Ok(if degraded { DEGRADED } else { DONE })
        }
        Ok(Outcome::Failed { message, exit_code }) => {
            drop(child.wait());
            match exit_code {
                stere_machine::error::USAGE => Err(Error::Usage(message)),
                _ => refused(message),
            }
        }
        Ok(Outcome::Waiting { .. }) | Err(_) => {
            let ended = child.wait().map_err(Error::System)?;
            refused(format!(
                "the process of the mount ended before it was ready ({ended}); its last words are in {}",
                log_path.display()
            ))
        }
    }
}

fn command(registry: &Registry, request: &MountRequest) -> Result<Command> {
    let program = std::env::current_exe().map_err(Error::System)?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--foreground");
    for text in &request.option_texts {
        command.arg("-o").arg(text);
    }
    match &request.target {
        Target::Remembered(record) => drop(command.arg(&record.name)),
        Target::Devices(paths) => drop(command.args(paths)),
    }
    command.arg(&request.mountpoint).env("STERE_STATE", registry.state()).current_dir("/");
    Ok(command)
}

fn open_log(path: &Path) -> Result<File> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        let old = path.with_extension("log.old");
        std::fs::rename(path, &old).at("rename to", &old)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).at("write", path)
}
