//! PostgreSQL: pgbench's transactions of five statements by four clients, each durable when its commit returns.
//!
//! The server's own programs are found in PATH or where Debian puts them; as root they run as the user `postgres`. Afterwards, cold:
//! every page's checksum is verified, and the balances of accounts, branches and tellers must each add up to what the history says.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::tree::shell;
use super::{Run, warm};
use crate::error::{At, BenchError};
use crate::report::Metric;

/// A scale of 10 is a million accounts and some 150 MB.
const SCALE: u64 = 10;
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 8_000;
const DEBIAN: &str = "/usr/lib/postgresql";
const USER: &str = "postgres";

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let socket = std::env::temp_dir().join(format!("stere-bench-postgres-{}", std::process::id()));
    let server = Server { run, programs: programs()?, data: run.path("postgres"), socket };
    for folder in [&server.data, &server.socket] {
        fs::create_dir(folder).at("mkdir", folder)?;
        server.give_away(folder)?;
    }
    let metrics = server.measure();
    // A server that runs would keep the file system busy.
    let _ = server.stop();
    fs::remove_dir_all(&server.socket).at("remove", &server.socket)?;
    metrics
}

/// The folder with PostgreSQL's programs, the newest if there are several; none if they are in PATH.
fn programs() -> Result<Option<PathBuf>, BenchError> {
    let mut versions: Vec<PathBuf> = fs::read_dir(DEBIAN)
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.retain(|folder| folder.join("initdb").exists());
    versions.sort();
    let is_in_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("initdb").exists()));
    match versions.pop() {
        None if !is_in_path => Err(BenchError::Command {
            command: "initdb".into(),
            what: "there is no PostgreSQL; on Debian: apt-get install postgresql".into(),
        }),
        newest => Ok(newest),
    }
}

struct Server<'a> {
    run: &'a Run,
    programs: Option<PathBuf>,
    data: PathBuf,
    socket: PathBuf,
}

impl Server<'_> {
    fn measure(&self) -> Result<Vec<Metric>, BenchError> {
        self.call("initdb", "--data-checksums --auth trust --no-sync --username bench")?;
        self.start()?;
        self.call("pgbench", &format!("--initialize --quiet --scale {SCALE} bench"))?;
        self.run.sync_file_system()?;
        let each = self.run.scaled(TRANSACTIONS) / CLIENTS;
        let line = format!("--client {CLIENTS} --jobs 2 --transactions {each} --no-vacuum bench");
        let (spent, _) = self.run.time(|| self.call("pgbench", &line))?;
        self.stop()?;
        self.run.cold.make()?;
        self.call("pg_checksums", "--check")?;
        self.start()?;
        let (select_spent, _) = self.run.time(|| self.call("pgbench", &format!("--select-only {line}")))?;
        self.check(each * CLIENTS)?;
        self.stop()?;
        let transactions = each * CLIENTS;
        let select = Metric::count("pgbench_select", transactions, select_spent);
        Ok(vec![
            warm(Metric::count("pgbench", transactions, spent).durable("every transaction, by its commit")),
            select.cached("nothing at the beginning"),
        ])
    }

    fn start(&self) -> Result<(), BenchError> {
        let options = format!("-c listen_addresses= -c unix_socket_directories={}", self.socket.display());
        self.call(
            "pg_ctl",
            &format!("--wait --silent --log '{}/server.log' -o \"{options}\" start", self.socket.display()),
        )?;
        self.call("createdb", "bench 2>/dev/null || true").map(drop)
    }

    fn stop(&self) -> Result<(), BenchError> {
        self.call("pg_ctl", "--wait --silent --mode fast stop").map(drop)
    }

    /// What was committed is there, and nothing else.
    fn check(&self, transactions: u64) -> Result<(), BenchError> {
        let sums = "select count(*), sum(delta), (select sum(abalance) from pgbench_accounts), \
                    (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches) \
                    from pgbench_history";
        let said = self.call("psql", &format!("--tuples-only --no-align --command '{sums}' bench"))?;
        let numbers: Vec<&str> = said.trim().split('|').collect();
        let is_right = matches!(numbers[..], [count, history, accounts, tellers, branches]
            if count == transactions.to_string() && [accounts, tellers, branches].iter().all(|sum| *sum == history));
        if is_right {
            return Ok(());
        }
        let what = format!("of {transactions} committed transactions the tables say: {}", said.trim());
        Err(BenchError::WrongData { path: self.data.clone(), what })
    }

    fn call(&self, program: &str, line: &str) -> Result<String, BenchError> {
        let program = match &self.programs {
            Some(folder) => folder.join(program),
            None => PathBuf::from(program),
        };
        let user =
            if is_root() { format!("setpriv --reuid {USER} --regid {USER} --init-groups ") } else { String::new() };
        let environment =
            format!("env PGDATA='{}' PGHOST='{}' PGUSER=bench", self.data.display(), self.socket.display());
        // A server that is started inherits the output, and would keep it open.
        let output = format!("'{}/output'", self.socket.display());
        let command = format!("cd / && {user}{environment} {} {line} >{output} 2>&1", program.display());
        let result = shell(self.run, &command);
        let said = shell(self.run, &format!("cat {output} 2>/dev/null || true"))?;
        match result {
            Ok(_) => Ok(said),
            Err(_) => Err(BenchError::Command { command, what: said }),
        }
    }

    fn give_away(&self, folder: &Path) -> Result<(), BenchError> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).at("chmod", folder)?;
        if !is_root() {
            return Ok(());
        }
        let ids = shell(self.run, &format!("id -u {USER} && id -g {USER}"))?;
        let mut ids = ids.lines().filter_map(|line| line.parse().ok());
        chown(folder, ids.next(), ids.next()).at("chown", folder)
    }
}

fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}
