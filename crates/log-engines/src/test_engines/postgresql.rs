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
const LOOPBACK: &str = "127.0.0.1";

pub struct PostgreSql {
    programs: PathBuf,
    folder: tempfile::TempDir,
    host: String,
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
        PostgreSql::start_at(LOOPBACK, options)
    }

    /// At an address of this machine, or of the network namespace that the calling thread is in.
    pub fn start_at(host: &str, options: &[&str]) -> Option<PostgreSql> {
        let mut server = PostgreSql::prepare(host, options)?;
        let words = ["-A", "trust", "-U", "stere", "--no-sync", "-E", "UTF8", "--locale=C", "-D"];
        let mut command = server.command("initdb");
        command.args(words).arg(server.data());
        server.wait_for(command);
        let rules = server.data().join("pg_hba.conf");
        let text = std::fs::read_to_string(&rules).expect("initdb wrote it");
        std::fs::write(rules, format!("{text}host all all samenet trust\n")).expect("root may change it");
        server.launch();
        Some(server)
    }

    /// A standby of this server, perhaps in the place of another one. Commits here wait for it from now on.
    pub fn start_standby(&self, instead: Option<PostgreSql>) -> PostgreSql {
        let mut standby = PostgreSql::prepare(&self.host, &[]).expect("the primary is installed");
        standby.port = instead.map_or(standby.port, |old| old.port);
        let mut command = standby.command("pg_basebackup");
        let from = format!("host={} port={} user=stere application_name=standby", self.host, self.port);
        command
            .args(["-d", &from, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-D"])
            .arg(standby.data());
        standby.wait_for(command);
        standby.launch();
        // Only now, so that the standby does not wait for itself when it is the primary.
        self.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        self.execute("SELECT pg_reload_conf()");
        let follows = "DO $$ BEGIN FOR i IN 1..600 LOOP \
             IF EXISTS (SELECT FROM pg_stat_get_wal_senders() WHERE sync_state = 'sync' AND state = 'streaming') \
             THEN RETURN; END IF; PERFORM pg_sleep(0.05), pg_stat_clear_snapshot(); END LOOP; \
             RAISE 'no standby follows'; END $$";
        self.execute(follows);
        standby
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.execute("SELECT pg_promote()");
    }

    /// Nothing of it runs yet.
    fn prepare(host: &str, options: &[&str]) -> Option<PostgreSql> {
        let Some(programs) = programs() else { return missing("PostgreSQL", "apt-get install postgresql") };
        let (folder, user) = (tempfile::tempdir().expect("a temporary directory"), user());
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).expect("root gives directories away");
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let (host, port) = (host.to_owned(), free_port());
        Some(PostgreSql { programs, folder, host, port, user, options, process: None })
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
            command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
            command.arg("-c").arg(format!("listen_addresses={}", self.host));
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
        command.args(["-h", &self.host, "-p", &self.port.to_string(), "-U", "stere", "-c", statement, "postgres"]);
        let output = command.output().expect("psql is installed with the server");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn address(&self) -> String {
        PostgreSql::address_of(&[self])
    }

    /// Of several that are one: a primary and its standbys.
    pub fn address_of(servers: &[&PostgreSql]) -> String {
        let hosts: Vec<String> = servers.iter().map(|server| format!("{}:{}", server.host, server.port)).collect();
        format!("postgres://stere@{}/postgres?sslmode=disable", hosts.join(","))
    }
}

server!(PostgreSql);
