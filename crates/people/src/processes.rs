//! Processes as `/proc` of this machine tells of them. A daemon of an ordinary user does not learn what others' processes run.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use stere_policy::{Process, Processes};

/// Bytes of a command that are of interest.
const COMMAND_BYTES_MAX: u64 = 4096;

/// The processes of this machine.
#[derive(Debug, Default)]
pub struct System;

/// For a mount.
pub fn system() -> Option<Arc<dyn Processes>> {
    Some(Arc::new(System))
}

impl Processes for System {
    fn process(&self, thread: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let started = started(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)?;
        let executable = fs::read_link(format!("/proc/{number}/exe")).unwrap_or_default().into_os_string().into_vec();
        let mut command = Vec::new();
        if let Ok(file) = fs::File::open(format!("/proc/{number}/cmdline")) {
            // What could be read of it is better than nothing.
            drop(file.take(COMMAND_BYTES_MAX).read_to_end(&mut command));
        }
        Some(Process { number, started, executable, command })
    }

    fn names(&self, thread: u32) -> Vec<Vec<u8>> {
        let Some(process) = self.process(thread) else { return Vec::new() };
        let mut names = stere_policy::names_of(&process);
        if let Ok(own) = fs::read(format!("/proc/{}/comm", process.number)) {
            names.push(own.strip_suffix(b"\n").unwrap_or(&own).to_vec());
        }
        names
    }
}

/// The 22nd field; the second one is a name in parentheses that may hold anything.
fn started(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known_and_none_is_made_up() {
        let own = System.process(std::process::id()).unwrap();
        assert_eq!(own.number, std::process::id());
        assert_eq!(own.executable, std::env::current_exe().unwrap().into_os_string().into_vec());
        let first = own.command.split(|byte| *byte == 0).next().unwrap().to_vec();
        assert_eq!(first, std::env::args_os().next().unwrap().into_vec());
        assert!(own.started > 0);
        // A thread is its process.
        // SAFETY: takes nothing and cannot fail.
        let thread = std::thread::spawn(|| System.process(unsafe { libc::gettid() } as u32)).join().unwrap();
        assert_eq!(thread, Some(own));
        assert_eq!(System.process(u32::MAX), None);
        let names = System.names(std::process::id());
        let file = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(stere_policy::is_named(&names, &file), "{names:?}");
        assert_eq!((names.len(), System.names(u32::MAX)), (3, Vec::new()));
    }

    #[test]
    fn names_with_parentheses_do_not_mislead() {
        let fields: Vec<String> = (4..=24).map(|field| field.to_string()).collect();
        assert_eq!(started(&format!("7 (a) b) S {}", fields.join(" "))), Some(22));
        assert_eq!(started("7 (a S"), None);
    }
}
