//! Shared logs as this machine reaches them: an address that was given or is remembered, opened for a pool.
//!
//! Invariant: an address is told to people without its secrets. Read next: the crate `log-engines`, the journal's `tail.rs`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use stere_device::Device;
use stere_format::{PoolId, Superblock};
use stere_journal::{Tail, TailWorld};
use stere_multihost::{FOREIGN_SLOTS_MS, LEASE_MS, boot_ms};
use stere_pool::{Holds, identify};
use stere_shared_log::SharedLog;

use crate::error::{Error, Result, refused};
use crate::random;
use crate::registry::{PoolRecord, Registry};

/// How long whoever puts a record waits before the next try, at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_STEP: Duration = Duration::from_millis(100);

pub use stere_log_engines::{is_address, without_secrets};

fn engine(error: stere_shared_log::Error) -> Error {
    match error {
        stere_shared_log::Error::Address { .. } => Error::Usage(error.to_string()),
        error => Error::Refused(error.to_string()),
    }
}

fn world() -> TailWorld {
    let pause = |why: &str, tries: u32| {
        if tries == 1 {
            tracing::warn!("{why}; what is to be durable waits for it");
        }
        std::thread::sleep((PAUSE_STEP * tries).min(PAUSE_MAX));
        true
    };
    TailWorld { now_ms: Arc::new(boot_ms), pause: Box::new(pause), lease_ms: LEASE_MS, hold_ms: FOREIGN_SLOTS_MS }
}

fn tail_of(log: Arc<dyn SharedLog>, pool: PoolId) -> Result<Arc<Tail>> {
    Tail::open(log, pool, random::random(), world()).map_err(|error| Error::Refused(error.to_string()))
}

/// Opens the log of a pool that has one there.
pub fn open(address: &str, pool: PoolId) -> Result<Arc<Tail>> {
    tail_of(open_log(address, pool)?, pool)
}

/// The log of a pool as it is remembered, if that is shared.
pub fn open_of(record: &PoolRecord) -> Result<Option<(Arc<dyn SharedLog>, PoolId)>> {
    let Some(address) = &record.log else { return Ok(None) };
    let Ok(id) = record.id.parse::<PoolId>() else {
        return refused(format!(
            "the record of the pool '{}' holds no id of a pool; import the pool again",
            record.name
        ));
    };
    Ok(Some((open_remembered(address, id)?, id)))
}

/// At the address that is remembered: when its user is refused, what is remembered by then is tried.
fn open_remembered(address: &str, pool: PoolId) -> Result<Arc<dyn SharedLog>> {
    let id = pool.to_string();
    let renew = move || Registry::open().list().ok()?.into_iter().find(|record| record.id == id)?.log;
    stere_log_engines::open_renewed(address, pool.0, Box::new(renew)).map_err(engine)
}

/// The log alone, to see who has the pool.
pub fn open_log(address: &str, pool: PoolId) -> Result<Arc<dyn SharedLog>> {
    stere_log_engines::open(address, pool.0).map_err(engine)
}

/// Makes an empty log for a pool.
pub fn create(address: &str, pool: PoolId, name: &str) -> Result<Arc<Tail>> {
    if !is_address(address) {
        return Err(Error::Usage(format!(
            "'{}' is no address of a shared log; there are postgres://USER@HOST/DATABASE and etcd://HOST:PORT",
            without_secrets(address)
        )));
    }
    tail_of(stere_log_engines::create(address, pool.0, name).map_err(engine)?, pool)
}

/// Removes the log of a pool. What cannot be removed is told, and harms nobody.
pub fn remove(address: &str, pool: PoolId) {
    if let Err(error) = stere_log_engines::remove(address, pool.0) {
        eprintln!("stere: the old log is left where it is: {error}");
    }
}

/// The address by which other machines reach this one: that of the way to the log, or to anywhere else where the log is on this machine.
pub fn own_address(log: Option<&str>) -> IpAddr {
    let towards = |place: (&str, u16)| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
        // Nothing is sent: the kernel only chooses a way.
        socket.connect(place).ok()?;
        socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
    };
    let log = log.and_then(stere_log_engines::first_host);
    let to_log = log.as_ref().and_then(|(host, port)| towards((host.as_str(), *port)));
    to_log.or_else(|| towards(("192.0.2.1", 9))).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The superblock of the first of these devices that has one.
pub(crate) fn any_superblock<'a>(devices: impl IntoIterator<Item = &'a Arc<dyn Device>>) -> Option<Superblock> {
    devices.into_iter().find_map(|device| match identify(&**device) {
        Holds::Member(identity) => Some(identity.superblock),
        _ => None,
    })
}

/// The log of the pool that these devices are of, if it is shared: at the address that is given, or the one that is remembered.
pub(crate) fn tail_for(superblock: &Superblock, given: Option<&str>) -> Result<Option<Arc<Tail>>> {
    if !superblock.is_log_shared {
        return Ok(None);
    }
    let id = superblock.pool.to_string();
    let remembered = || Registry::open().list().ok()?.into_iter().find(|record| record.id == id)?.log;
    match (given, remembered()) {
        // As it is remembered, mostly.
        (Some(address), remembered) if remembered.as_deref() != Some(address) => {
            open(address, superblock.pool).map(Some)
        }
        (_, Some(address)) => tail_of(open_remembered(&address, superblock.pool)?, superblock.pool).map(Some),
        (_, None) => {
            let pool = &superblock.pool_name;
            refused(stere_pool::Error::LogNeeded { pool: pool.clone() }.to_string())
        }
    }
}
