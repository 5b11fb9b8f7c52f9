//! Making caches cold: sync, an optional remount by the caller's command, then the kernel's caches dropped.
//!
//! Dropping the kernel's caches leaves a daemon's own cache warm; only the remount hook is fair between file systems.
//! Nothing in this program keeps a file or directory open across `make`, so that the hook can unmount.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::BenchError;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

pub struct Cold {
    hook: Option<String>,
}

impl Cold {
    pub fn new(hook: Option<String>) -> Self {
        Cold { hook }
    }

    pub fn description(&self) -> String {
        match self.hook {
            Some(_) => "remounted, kernel caches dropped".to_owned(),
            None => "kernel caches dropped, daemons keep theirs".to_owned(),
        }
    }

    pub fn make(&self) -> Result<(), BenchError> {
        // SAFETY: sync takes no argument and cannot fail.
        unsafe { libc::sync() };
        if let Some(hook) = &self.hook {
            run_shell(hook)?;
        }
        fs::write(Path::new(DROP_CACHES), "3\n").map_err(BenchError::NoDropCaches)
    }
}

/// The kernel forgets names and inodes, but keeps the contents of files.
pub fn forget_names() -> Result<(), BenchError> {
    fs::write(Path::new(DROP_CACHES), "2\n").map_err(BenchError::NoDropCaches)
}

fn run_shell(command: &str) -> Result<(), BenchError> {
    let failed = |what: String| BenchError::Command { command: command.to_owned(), what };
    let output = Command::new("sh").arg("-c").arg(command).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}
