//! `kill -9` of the process that serves the mount, while programs work: nothing acknowledged may be lost (P-1), what was
//! under way happened wholly or not at all (P-2), and the devices prove sound after every kill (P-8).

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::Job;
use crate::command::{MINUTE, capture, kill_group, program, start, wait};
use crate::error::{At, Result, XtaskError};
use crate::packages::require;

const ROUNDS: u64 = 8;
/// What the writers' acknowledgements rest on, in turn.
const PROMISES: [&str; 4] = ["fsync", "syncfs", "osync", "msync"];
const SQLITE_ROUNDS: u64 = 5;

/// Writers that sync and note what was acknowledged; after each kill every round so far is verified.
pub fn kill_loop(job: &Job) -> Result<()> {
    let rounds = ROUNDS * job.times;
    let mut acknowledged = 0;
    for round in 0..rounds {
        let seed = job.seed * 1000 + round;
        let directory = job.subject.mount_point.join(format!("round-{round}"));
        fs::create_dir(&directory).at("mkdir", &directory)?;
        let mut writer = start_writer(job, round, seed)?;
        thread::sleep(pause(seed));
        job.subject.kill()?;
        // Death by a signal is fine (SIGBUS in a mapping); an exit code means that a living file system refused a change.
        let status = wait(&mut writer, MINUTE, "stere-bench acknowledge")?;
        if status.code().is_some_and(|code| code != 0) {
            return Err(XtaskError::found("a writer was refused a change before the kill, as it says above"));
        }
        job.subject.check()?;
        job.subject.mount()?;
        acknowledged = verify_rounds(job, round)?;
    }
    println!("    {acknowledged} acknowledged operations held through {rounds} kills");
    if acknowledged > 0 { Ok(()) } else { Err(XtaskError::found("nothing was acknowledged: the loop proves nothing")) }
}

fn start_writer(job: &Job, round: u64, seed: u64) -> Result<Child> {
    let mut command = Command::new(&job.world.binaries.bench);
    command.arg("acknowledge").arg(job.subject.mount_point.join(format!("round-{round}")));
    command.arg(job.scratch.join(format!("round-{round}.log"))).args(["--seed", &seed.to_string()]);
    command.args(["--promise", PROMISES[round as usize % PROMISES.len()]]);
    start(command.stdout(Stdio::null()).stderr(Stdio::inherit()), "stere-bench acknowledge")
}

fn verify_rounds(job: &Job, last: u64) -> Result<u64> {
    let mut acknowledged = 0;
    for round in 0..=last {
        let log = job.scratch.join(format!("round-{round}.log"));
        let seed = (job.seed * 1000 + round).to_string();
        let mut command = Command::new(&job.world.binaries.bench);
        command.arg("verify").arg(job.subject.mount_point.join(format!("round-{round}"))).arg(&log);
        let said = capture(command.args(["--seed", &seed]), 10 * MINUTE)?;
        acknowledged += said.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(acknowledged)
}

/// Between 0.2 and 1.7 s, different in every round.
fn pause(seed: u64) -> Duration {
    let scrambled = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    Duration::from_millis(200 + scrambled % 1500)
}

/// Rows inserted one by one; those that the program said were committed must be there, and the database sound.
pub fn sqlite(job: &Job) -> Result<()> {
    require(&["sqlite3"])?;
    let database = job.subject.mount_point.join("database.sqlite");
    let setup = "pragma journal_mode=WAL; create table rows (number integer primary key, text text not null);";
    capture(program(&["sqlite3"]).arg(&database).arg(setup), MINUTE)?;
    let mut committed = 0;
    for round in 0..SQLITE_ROUNDS * job.times {
        let log = job.scratch.join("sqlite.log");
        let mut shell = start_sqlite(&database, &log, committed)?;
        thread::sleep(pause(job.seed * 777 + round));
        job.subject.kill()?;
        kill_group(&mut shell);
        job.subject.check()?;
        committed = committed.max(last_number(&log)?);
        job.subject.mount()?;
        check_database(&database, committed)?;
    }
    println!("    {committed} rows committed and found");
    if committed > 0 { Ok(()) } else { Err(XtaskError::found("no row was committed: the loop proves nothing")) }
}

/// A shell that inserts rows and prints each number after its commit.
fn start_sqlite(database: &Path, log: &Path, committed: u64) -> Result<Child> {
    let out = fs::File::create(log).at("create", log)?;
    let mut command = program(&["sqlite3", "-bail"]);
    command.arg(database).stdin(Stdio::piped()).stdout(out).stderr(Stdio::null());
    let mut child = start(&mut command, "sqlite3")?;
    let mut input = child.stdin.take().expect("stdin was asked for");
    thread::spawn(move || {
        let first = "pragma synchronous=FULL;\n".to_owned();
        let rows = (committed + 1..).map(|number| {
            format!(
                "insert or replace into rows values ({number}, hex(randomblob({})));\nselect {number};\n",
                number % 900
            )
        });
        for line in std::iter::once(first).chain(rows) {
            if input.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
    });
    Ok(child)
}

/// The highest number that was printed, and so committed.
fn last_number(log: &Path) -> Result<u64> {
    let text = fs::read_to_string(log).at("read", log)?;
    let whole_lines = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole_lines.lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0))
}

fn check_database(database: &Path, committed: u64) -> Result<()> {
    let query = format!("pragma integrity_check; select count(*) from rows where number <= {committed};");
    let said = capture(program(&["sqlite3"]).arg(database).arg(query), 5 * MINUTE)?;
    let expected = format!("ok\n{committed}");
    if said.trim() == expected {
        return Ok(());
    }
    Err(XtaskError::found(format!("sqlite: integrity and rows up to {committed}: {}", said.trim())))
}
