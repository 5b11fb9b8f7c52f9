//! Running other programs: with a limit in time, so that a file system that hangs fails a suite and does not hang it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Result, XtaskError};

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a process may take to end that was killed.
const KILLED_MAX: Duration = Duration::from_secs(10);
pub const MINUTE: Duration = Duration::from_secs(60);

/// What a program said, and how it ended.
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A program of `words`, split by the caller.
pub fn program(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// A line for the shell.
pub fn shell(line: &str) -> Command {
    program(&["sh", "-c", line])
}

/// Quotes a path for the shell.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

pub fn is_installed(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(name).is_file())
    })
}

/// Runs with output to our own, and fails unless it succeeds.
pub fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let text = describe(command);
    let mut child = start(command, &text)?;
    let status = wait(&mut child, limit, &text)?;
    succeed(status, &text, "")
}

/// Runs and returns what it wrote to stdout; fails, with the end of stderr, unless it succeeds.
pub fn capture(command: &mut Command, limit: Duration) -> Result<String> {
    let text = describe(command);
    let output = output(command, limit)?;
    let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    succeed(output.status, &text, said)?;
    Ok(output.stdout)
}

/// Runs and returns everything, whatever the exit code.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output> {
    let text = describe(command);
    let mut child = start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()), &text)?;
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let status = wait(&mut child, limit, &text)?;
    Ok(Output { status, stdout: collect(stdout), stderr: collect(stderr) })
}

/// Process groups that run now; None once we have been interrupted and nothing may be started any more.
static GROUPS: Mutex<Option<Vec<u32>>> = Mutex::new(Some(Vec::new()));

fn groups() -> MutexGuard<'static, Option<Vec<u32>>> {
    GROUPS.lock().unwrap_or_else(|poison| poison.into_inner())
}

pub fn is_stopping() -> bool {
    groups().is_none()
}

/// Ends all programs that were started and are not yet waited for, and lets no other start.
pub fn stop_children() {
    for group in groups().take().unwrap_or_default() {
        // SAFETY: plain system call; the group's leader is our child and not yet reaped.
        unsafe { libc::kill(-(group as i32), libc::SIGKILL) };
    }
}

/// Starts in a process group of its own, so that a limit ends its children too.
pub fn start(command: &mut Command, text: &str) -> Result<Child> {
    let mut groups = groups();
    let Some(list) = groups.as_mut() else { return Err(failed(text, "was not started: interrupted")) };
    let child =
        command.process_group(0).spawn().map_err(|error| failed(text, format!("cannot be started: {error}")))?;
    list.push(child.id());
    Ok(child)
}

fn forget(child: &Child) {
    if let Some(list) = groups().as_mut() {
        list.retain(|group| *group != child.id());
    }
}

/// Waits for the end; past the limit the whole process group is killed and it is an error.
pub fn wait(child: &mut Child, limit: Duration, text: &str) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                forget(child);
                return Ok(status);
            }
            Ok(None) if start.elapsed() < limit => thread::sleep(POLL_INTERVAL),
            Ok(None) => {
                kill_group(child);
                return Err(failed(text, format!("did not end within {} s and was killed", limit.as_secs())));
            }
            Err(error) => return Err(failed(text, format!("cannot be waited for: {error}"))),
        }
    }
}

pub fn kill_group(child: &mut Child) {
    forget(child);
    // SAFETY: plain system call; the group is the child's own, which we have not reaped yet.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    // One that waits for a mount which answers nobody cannot be killed, and is left behind.
    let begun = Instant::now();
    while begun.elapsed() < KILLED_MAX && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL_INTERVAL);
    }
}

pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

pub fn failed(command: &str, what: impl Into<String>) -> XtaskError {
    XtaskError::Command { command: command.to_owned(), what: what.into() }
}

fn succeed(status: ExitStatus, text: &str, said: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = said.trim().lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n    ");
    Err(failed(text, format!("failed ({status}){}{tail}", if tail.is_empty() { "" } else { ":\n    " })))
}

/// Reads in a thread of its own. It ends when the last holder of the pipe does; a daemon may hold it for long.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut pipe = pipe.expect("the pipe was asked for when the child was started");
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Everything until the end of the pipe, or until it has been silent for a moment after the program's end.
fn collect(receiver: std::sync::mpsc::Receiver<Vec<u8>>) -> String {
    let mut bytes = Vec::new();
    while let Ok(piece) = receiver.recv_timeout(Duration::from_millis(300)) {
        bytes.extend(piece);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
