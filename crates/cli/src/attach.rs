//! `stere volume attach` and `detach`: a pool with an owner of its own as a directory of another one.
//!
//! The pool's daemon keeps the junction; each machine's mount follows it. Read next: `crates/daemon/src/junctions.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::move_log::refuse_mounted;
use crate::quota::{done, make_directory};
use stere_control::connection::{self, Connection};
use stere_control::junction::{JunctionLine, JunctionReport, Order};
use stere_control::locate;
use stere_control::message::{About, Answer, Request};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry};

/// How long the mount on this machine is waited for.
const MOUNT_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Mounts a pool at a directory, which is made if it is not there.
pub fn attach(registry: &Registry, path: &Path, pool: &str) -> Result<u8> {
    let record = registry.get(pool)?;
    refuse_mounted(registry, pool)?;
    let is_new = make_directory(path)?;
    let attached = locate::connect(registry, path).and_then(|(about, mut connection, inode)| {
        refuse_other_engine(registry, &about.pool, &record)?;
        let places = record.devices.iter().map(|device| device.path.display().to_string()).collect();
        let order = Order::Attach { inode, pool: pool.to_owned(), pool_id: record.id.clone(), places };
        connection.wait_without_limit()?;
        done(connection.ask(Request::Junctions { order })?)?;
        Ok(about)
    });
    if attached.is_err() && is_new {
        let _as_it_was = std::fs::remove_dir(path);
    }
    wait_until_mounted(registry, &attached?, pool)
}

/// Makes the directory of a junction an ordinary one again.
pub fn detach(registry: &Registry, path: &Path) -> Result<u8> {
    let path = stere_machine::mountinfo::canonical(path);
    // What is there is the root of the other pool, or nothing at all: the directory is asked for by its path in the pool above.
    let daemons = connection::daemons(registry);
    let about = locate::mount_of(&daemons, path.parent().unwrap_or(&path))?;
    let within = path.strip_prefix(&about.mountpoint).unwrap_or(&path);
    let wanted = format!("/{}", within.display());
    let mut connection = locate::open(registry, about)?;
    let Some(line) = lines(&mut connection)?.into_iter().find(|line| line.path == wanted) else {
        return refused(format!(
            "no other pool is mounted at {}; `stere volume list {}` tells where one is",
            path.display(),
            about.pool
        ));
    };
    done(connection.ask(Request::Junctions { order: Order::Detach { inode: line.inode } })?)?;
    let begun = Instant::now();
    while connection::about(registry, &line.pool).is_some_and(|about| about.mountpoint == path) {
        if begun.elapsed() > MOUNT_MAX {
            return refused(format!(
                "it is no junction any more, and still in use: end it with `stere umount {}`",
                path.display()
            ));
        }
        std::thread::sleep(POLL);
    }
    println!(
        "{} is an ordinary directory again; the pool {} keeps everything: stere mount {1} MOUNTPOINT",
        path.display(),
        line.pool
    );
    Ok(DONE)
}

/// The junctions of a pool.
pub fn lines(connection: &mut Connection) -> Result<Vec<JunctionLine>> {
    match connection.ask(Request::Junctions { order: Order::List })? {
        Answer::Junctions { junctions } => Ok(junctions),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

/// Every machine finds the log of the one pool where it has that of the other.
fn refuse_other_engine(registry: &Registry, above: &str, record: &PoolRecord) -> Result<()> {
    let log = registry.get(above)?.log;
    match (&log, &record.log) {
        (Some(one), Some(other)) if one == other => Ok(()),
        (None, _) => refused(format!(
            "the log of the pool '{above}' is on its devices: only pools whose logs are in an engine can be mounted in each other; `stere pool move-log` moves it there"
        )),
        _ => refused(format!(
            "the log of the pool '{0}' has to be in the same engine as that of '{above}', and by the same address: `stere pool move-log {0} --log URL` moves it there",
            record.name
        )),
    }
}

/// Returns when this machine has it, or with what keeps it.
fn wait_until_mounted(registry: &Registry, above: &About, pool: &str) -> Result<u8> {
    let begun = Instant::now();
    loop {
        let reports = connection::about(registry, &above.pool).map(|about| about.junctions).unwrap_or_default();
        match reports.into_iter().find(|report| report.pool == pool) {
            Some(JunctionReport { is_mounted: true, .. }) => return Ok(DONE),
            report if begun.elapsed() > MOUNT_MAX => {
                let why = report.and_then(|report| report.why).unwrap_or_else(|| "see the log of the mount".to_owned());
                return Err(Error::Refused(format!(
                    "the pool '{pool}' is a directory of '{}' now, and not mounted on this machine yet: {why}",
                    above.pool
                )));
            }
            _ => std::thread::sleep(POLL),
        }
    }
}
