//! Shared logs in engines that run elsewhere: PostgreSQL 15 or newer, etcd 3.4 or newer.
//!
//! Invariants beside those of the crate `shared-log`: every call ends within its deadline; what went wrong on a connection
//! ends the connection, and the next call connects anew; no message holds a password. Each handle has a random id that lies
//! with its records, so that an answer that was lost is settled by looking whose record has the number.
//! What lies in the engines: `docs/format/shared-log.md`. Read next: `address.rs`, `postgres.rs`, `etcd.rs`.

mod address;
mod deadline;
mod etcd;
mod postgres;
#[cfg(feature = "test-engines")]
pub mod test_engines;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use stere_shared_log::{Error, SharedLog};

use crate::address::{Address, Engine};
pub use crate::address::{first_host, is_address, without_secrets};
use crate::etcd::EtcdLog;
use crate::postgres::PostgresLog;

/// How long a call may take when nothing else is said.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The id of a pool.
pub type Pool = [u8; 16];

/// Tells the address that is remembered by now: passwords change while a log is open.
pub type Renew = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Opens the log of a pool. Where PostgreSQL refuses its user, that of the address which `renew` gives is tried.
pub fn open_renewed(address: &str, pool: Pool, renew: Renew) -> Result<Arc<dyn SharedLog>, Error> {
    let parsed = Address::parse(address)?;
    if parsed.engine != Engine::Postgres {
        return open(address, pool);
    }
    let log = PostgresLog::new(parsed, pool, DEADLINE)?.renewed_by(renew);
    log.open()?;
    Ok(Arc::new(log))
}

/// Opens the log of a pool.
pub fn open(address: &str, pool: Pool) -> Result<Arc<dyn SharedLog>, Error> {
    open_with(address, pool, DEADLINE)
}

/// Opens the log of a pool; each call, and this one, takes no longer than `deadline`.
pub fn open_with(address: &str, pool: Pool, deadline: Duration) -> Result<Arc<dyn SharedLog>, Error> {
    let address = Address::parse(address)?;
    Ok(match address.engine {
        Engine::Postgres => {
            let log = PostgresLog::new(address, pool, deadline)?;
            log.open()?;
            Arc::new(log)
        }
        Engine::Etcd => {
            let log = EtcdLog::new(address, pool, deadline)?;
            log.open()?;
            Arc::new(log)
        }
    })
}

/// Makes an empty log for a pool that has none there; one that is empty is taken over.
pub fn create(address: &str, pool: Pool, name: &str) -> Result<Arc<dyn SharedLog>, Error> {
    let address = Address::parse(address)?;
    Ok(match address.engine {
        Engine::Postgres => {
            let log = PostgresLog::new(address, pool, DEADLINE)?;
            log.create(name)?;
            Arc::new(log)
        }
        Engine::Etcd => {
            let log = EtcdLog::new(address, pool, DEADLINE)?;
            log.create(name)?;
            Arc::new(log)
        }
    })
}

/// Removes the log of a pool with all its records.
pub fn remove(address: &str, pool: Pool) -> Result<(), Error> {
    let address = Address::parse(address)?;
    match address.engine {
        Engine::Postgres => PostgresLog::new(address, pool, DEADLINE)?.remove(),
        Engine::Etcd => EtcdLog::new(address, pool, DEADLINE)?.remove(),
    }
}

/// The pools that have a log there, with their names, by their ids.
pub fn pools(address: &str) -> Result<Vec<(Pool, String)>, Error> {
    let address = Address::parse(address)?;
    match address.engine {
        Engine::Postgres => PostgresLog::new(address, [0; 16], DEADLINE)?.pools(),
        Engine::Etcd => EtcdLog::new(address, [0; 16], DEADLINE)?.pools(),
    }
}

/// Bytes that no other handle has.
fn random_id(address: &Address) -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| address.refused(format!("this machine gives no random bytes: {error}")))?;
    Ok(id)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a handle says when there is no log for its pool.
fn no_log(address: &Address, pool: Pool) -> Error {
    let pool = hexadecimal(&pool);
    address.refused(format!("there is no log of pool {pool}; is it the right address, or was the log removed?"))
}

/// What `create` says when there is one already.
fn has_log(address: &Address, pool: Pool) -> Error {
    let pool = hexadecimal(&pool);
    address.refused(format!(
        "pool {pool} has a log there already, with records in it; open that one, or remove it first if nobody needs it"
    ))
}

fn past_the_end(address: &Address, sequence: u64, next: u64) -> Error {
    address.damaged(format!("record {sequence} is put, and the log ends before {next}: was an older state restored?"))
}
