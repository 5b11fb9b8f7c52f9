//! `stere pool take` and `stere pool move-log`: a pool taken from another machine, and its journal and roots moved elsewhere.
//!
//! Invariant: a log is moved while the pool is closed. Read next: `move_log.rs` of the crate `pool`.

use std::time::{Duration, Instant};

use stere_device::Access;
use stere_multihost::Multihost;
use stere_online::open::open_claimed;

use stere_control::connection::{self, Connection};
use stere_control::message::{Answer, Request};
use stere_machine::admission;
use stere_machine::devices::Target;
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry};
use stere_machine::shared_log;

/// How long a machine that stands by may take to own a pool.
const TAKE_MAX: Duration = Duration::from_secs(60);
const TAKE_POLL: Duration = Duration::from_millis(100);

/// Opens the pool and closes it, so that its last root says that nothing is left to be replayed.
fn open_and_close(registry: &Registry, pool: &str, mode: Multihost) -> Result<()> {
    let running = open_claimed(registry, pool, false, mode)?;
    Ok(running.store.close()?)
}

/// Refuses what needs the pool to be mounted nowhere here.
pub fn refuse_mounted(registry: &Registry, pool: &str) -> Result<()> {
    match connection::about(registry, pool) {
        None => Ok(()),
        Some(about) => refused(format!(
            "the pool '{pool}' is mounted on {0}; unmount it first with `stere umount {0}`",
            about.mountpoint.display()
        )),
    }
}

/// Makes this machine the owner of a pool, whoever has it.
pub fn take(registry: &Registry, pool: &str) -> Result<u8> {
    let record = registry.get(pool)?;
    if record.log.is_none() {
        return refused(format!(
            "the log of the pool '{pool}' is on its devices, so no machine can take it from another; `stere pool move-log` changes that"
        ));
    }
    if let Some(mut connection) = Connection::open(registry, pool) {
        return take_mounted(registry, pool, &mut connection);
    }
    open_and_close(registry, pool, Multihost::Take)?;
    println!(
        "the pool {pool} is nobody's now; whoever had it writes nothing any more. Mount it: stere mount {pool} MOUNTPOINT"
    );
    Ok(DONE)
}

/// A mount that stands by takes the pool itself, and those who use it only wait.
fn take_mounted(registry: &Registry, pool: &str, connection: &mut Connection) -> Result<u8> {
    match connection.ask(Request::Take)? {
        Answer::Said { said } => {
            println!("{said}");
            return Ok(DONE);
        }
        Answer::Done => {}
        _ => return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
    let begun = Instant::now();
    while begun.elapsed() < TAKE_MAX {
        if connection::about(registry, pool).is_some_and(|about| about.through.is_none()) {
            println!("this machine owns the pool {pool} now");
            return Ok(DONE);
        }
        std::thread::sleep(TAKE_POLL);
    }
    refused(format!(
        "this machine does not own the pool '{pool}' yet; `stere status {pool}` and the log of its mount tell why"
    ))
}

/// Moves the log of a pool that is mounted nowhere.
pub fn run(registry: &Registry, pool: &str, log: &str) -> Result<u8> {
    let record = registry.get(pool)?;
    refuse_mounted(registry, pool)?;
    let to_devices = log == "devices";
    if !to_devices && !shared_log::is_address(log) {
        return Err(Error::Usage(format!(
            "'{}' is no place of a log; there are postgres://USER@HOST/DATABASE, etcd://HOST:PORT and devices",
            shared_log::without_secrets(log)
        )));
    }
    if record.log.as_deref() == Some(log) || (to_devices && record.log.is_none()) {
        return refused(format!("the log of the pool '{pool}' is there already"));
    }
    open_and_close(registry, pool, Multihost::default())?;
    let assembly = Target::Remembered(record.clone()).assemble(Access::ReadWrite, Duration::ZERO, None)?;
    let id = assembly.newest.pool;
    let tail = (!to_devices).then(|| shared_log::create(log, id, pool)).transpose()?;
    if let Some(tail) = &tail {
        // Who is admitted, and who is not, goes with the log.
        if let Some(old) = &record.log {
            admission::copy(&*shared_log::open_log(old, id)?, &**tail.log())?;
        }
        admission::register(registry, &**tail.log())?;
    }
    assembly.move_log(tail.as_deref())?;
    let (new, old) = (if to_devices { None } else { Some(log.to_owned()) }, record.log.clone());
    registry.save(&PoolRecord { log: new, ..record })?;
    if let Some(old) = old {
        shared_log::remove(&old, id);
    }
    if to_devices {
        println!(
            "which machines are admitted lay with the old log and is forgotten: refuse them again, and set `--admission=ask` again, if the log moves back to an engine"
        );
    }
    let place = if to_devices { "its devices".to_owned() } else { shared_log::without_secrets(log) };
    println!("the log of pool {pool} is on {place} now; other machines have to import the pool anew");
    Ok(DONE)
}
