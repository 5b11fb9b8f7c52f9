//! A PostgreSQL server for tests. As root it runs as the user `postgres`, because it refuses to run as root.
//!
//! Read next: `process.rs`.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, becomes, server};
use super::{free_port, missing};

const START: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 3;

pub struct PostgreSql {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    user: Option<(u32, u32)>,
    options: Vec<String>,
    process: Option<Process>,
}

/// The newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let programs = numbered.map(|(version, path)| (version, path.join("bin")));
    programs.filter(|(_, path)| path.join("postgres").is_file()).max().map(|(_, path)| path)
}

/// The user and the group that it runs as, if we are root.
fn user() -> Option<(u32, u32)> {
    // SAFETY: geteuid only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("users are listed in /etc/passwd");
    let fields = users.lines().find_map(|line| line.strip_prefix("postgres:")).expect("there is a user postgres");
    let mut numbers = fields.split(':').skip(1).map(|field| field.parse().expect("users have numbers"));
    numbers.next().zip(numbers.next())
}

impl PostgreSql {
    /// The signal that ends it in order.
    const STOP: i32 = libc::SIGINT;

    /// None if it is not installed and tests with engines are to be skipped.
    pub fn start() -> Option<PostgreSql> {
        PostgreSql::start_with(&[])
    }

    /// With settings such as `fsync=off`.
    pub fn start_with(options: &[&str]) -> Option<PostgreSql> {
        let Some(programs) = programs() else { return missing("PostgreSQL", "apt-get install postgresql") };
        let (folder, user) = (tempfile::tempdir().expect("a temporary directory"), user());
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).expect("root gives directories away");
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = PostgreSql { programs, folder, port: free_port(), user, options, process: None };
        let data = server.data();
        let words = ["-A", "trust", "-U", "stere", "--no-sync", "-E", "UTF8", "--locale=C", "-D"];
        let mut command = server.command("initdb");
        command.args(words).arg(&data);
        server.wait_for(command);
        server.launch();
        Some(server)
    }

    /// Waits for a program to end well.
    fn wait_for(&self, command: Command) {
        let log = self.log();
        let mut process = Process::start(command, &log, self.user).expect("the programs of PostgreSQL can be started");
        let has_ended = becomes(START, || process.has_ended());
        assert!(has_ended, "a program of PostgreSQL did not end: {}", self.said());
        assert!(self.data().join("PG_VERSION").exists(), "it failed: {}", self.said());
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        command
    }

    /// Where its files are: tests may add settings there.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn launch(&mut self) {
        // One that was killed left it, and it would look ready.
        let _ = std::fs::remove_file(self.data().join("postmaster.pid"));
        for attempt in 1..=ATTEMPTS {
            let mut command = self.command("postgres");
            command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
            command.arg("-c").arg(format!("unix_socket_directories={}", self.folder.path().display()));
            command.args(["-c", "shared_buffers=16MB", "-c", "max_connections=50"]);
            command.args(self.options.iter().flat_map(|option| ["-c", option]));
            let process = Process::start(command, &self.log(), self.user).expect("postgres can be started");
            let process = self.process.insert(process);
            let pid = self.folder.path().join("data/postmaster.pid");
            let is_ready = || std::fs::read_to_string(&pid).is_ok_and(|text| text.contains("\nready"));
            let mut has_ended = false;
            let is_up = becomes(START, || {
                has_ended = process.has_ended();
                has_ended || is_ready()
            });
            if is_up && !has_ended {
                return;
            }
            self.process = None;
            assert!(attempt < ATTEMPTS, "PostgreSQL did not start: {}", self.said());
            // Somebody may have taken the port.
            self.port = free_port();
        }
    }

    /// Has the server carry out a statement.
    pub fn execute(&self, statement: &str) {
        let mut command = self.command("psql");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "stere", "-c", statement, "postgres"]);
        let output = command.output().expect("psql is installed with the server");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn address(&self) -> String {
        format!("postgres://stere@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}

server!(PostgreSql);
