//! `stere host evacuate`: the devices of a host are emptied and leave the pool, so that its machine can be switched off.
//!
//! The daemon (or this command, on a pool that is not mounted) judges and does it as one change. Devices that leave stand in the pool's table,
//! so a command that ends early, or an owner that dies, changes nothing: whoever owns the pool next goes on, and the command given again
//! follows it. Read next: `change.rs`, `crates/online/src/evacuate.rs`.

use std::time::{Duration, Instant};

use stere_control::change::Change;
use stere_control::connection::{self, Connection};
use stere_control::message::Request;
use stere_control::status::DeviceReport;
use stere_format::MachineState;
use stere_machine::admission;
use stere_machine::error::{DEGRADED, DONE, Error, Result, refused};
use stere_machine::places::host_in_address;
use stere_machine::registry::{DeviceRecord, PoolRecord, Registry};

use crate::arguments::device::How;
use crate::change::{self, Place};
use crate::status;

/// So long a daemon that ended may be followed by another, while somebody waits.
const NEXT_OWNER_WITHIN: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_secs(1);

/// The part of a host in a pool beside its devices.
enum Role {
    Owner,
    Member,
}

pub fn run(registry: &Registry, host: &str, pool: Option<&str>, how: How) -> Result<u8> {
    let pool = match pool {
        Some(pool) => pool.to_owned(),
        None => pool_on(registry, host)?,
    };
    let role = role_of(registry, &pool, host);
    let beside = beside(registry, &pool, host);
    let about = match role {
        Some(Role::Owner) => format!("host {host} owns the pool now: only its devices leave, its mount stays"),
        Some(Role::Member) => {
            format!("host {host} is a machine of the pool, too: only its devices leave, its mounts stay")
        }
        None => String::new(),
    };
    if !about.is_empty() {
        println!("{about}");
    }
    let warning = format!("the devices on host {host} are emptied and taken out of {pool}");
    let asked = Change::EvacuateHost { host: host.to_owned() };
    let place = match change::begin(registry, &pool, &asked, Some(warning), how) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(DONE),
        Err(error) => {
            // Only the machines of a pool are known by their names when they have no device.
            if role.is_some() && devices_of(registry, &pool, host).is_ok_and(|devices| devices.is_empty()) {
                tell_gone(&pool, host, role.as_ref(), &[]);
                return Ok(DONE);
            }
            return Err(error);
        }
    };
    let code = match place {
        Place::Daemon(connection) if how.wait => follow(registry, &pool, connection)?,
        Place::Daemon(_) => {
            println!("`stere host list {pool}` tells what is left; with --wait this command returns when it is done");
            return Ok(DONE);
        }
        place @ Place::Here(_) => change::finish_work(place, &pool, how)?,
    };
    tell_end(registry, &pool, host, (role.as_ref(), &beside), code)
}

/// Devices that the addresses of this host lead to, and that another one's label is on: nobody can tell whose they are.
fn beside(registry: &Registry, pool: &str, host: &str) -> Vec<String> {
    let Ok(record) = registry.get(pool) else { return Vec::new() };
    let address = |device: &DeviceRecord| host_in_address(&device.path.display().to_string());
    let (own, others): (Vec<_>, Vec<_>) = record.devices.iter().partition(|device| device.host() == host);
    let addresses: Vec<String> = own.into_iter().filter_map(address).collect();
    let is_there = |device: &&&DeviceRecord| address(device).is_some_and(|address| addresses.contains(&address));
    others.iter().filter(is_there).map(|device| format!("device {} is", device.name)).collect()
}

/// The one pool known here with devices on this host.
fn pool_on(registry: &Registry, host: &str) -> Result<String> {
    let records = registry.list()?;
    let has = |record: &&PoolRecord| record.devices.iter().any(|device| device.host() == host);
    let mut pools: Vec<String> = records.iter().filter(has).map(|record| record.name.clone()).collect();
    if pools.is_empty() && records.len() == 1 {
        pools.extend(records.first().map(|record| record.name.clone()));
    }
    match pools.as_slice() {
        [pool] => Ok(pool.clone()),
        [] => {
            refused(format!("no pool that is known here has a device on host '{host}'; name the pool behind the host"))
        }
        several => Err(Error::Usage(format!(
            "the pools {} have devices on host '{host}'; name one behind the host",
            several.join(", ")
        ))),
    }
}

/// Whether this host uses the pool itself. Without a log that machines share, this machine is the only one.
fn role_of(registry: &Registry, pool: &str, host: &str) -> Option<Role> {
    let Ok((_, log)) = super::log_of(registry, pool) else {
        let own = stere_multihost::own_host();
        return (own == host && connection::about(registry, pool).is_some()).then_some(Role::Owner);
    };
    let machines = admission::read(&*log).ok()?.entries;
    let of_host: Vec<_> = machines.iter().filter(|entry| entry.host == host).collect();
    let owner = super::owner(&*log).ok().flatten();
    if owner.is_some_and(|beat| of_host.iter().any(|entry| entry.machine == beat.machine)) {
        return Some(Role::Owner);
    }
    of_host.iter().any(|entry| entry.state == MachineState::Admitted).then_some(Role::Member)
}

/// Waits for the end of the work, whoever does it: an owner that dies is followed by another.
fn follow(registry: &Registry, pool: &str, connection: Connection) -> Result<u8> {
    let mut connection = Some(connection);
    let mut since = None;
    loop {
        let error = match connection.take() {
            Some(connection) => match change::wait(connection, pool) {
                Ok(code) => return Ok(code),
                Err(error) => error,
            },
            None => Error::Refused(format!("the pool '{pool}' is not mounted here")),
        };
        let begun: Instant = *since.get_or_insert_with(|| {
            eprintln!("stere: {error}; waiting for the pool's next owner, who goes on");
            Instant::now()
        });
        if begun.elapsed() > NEXT_OWNER_WITHIN {
            return refused(format!(
                "{error}; whoever owns the pool next goes on, and so does this command given again"
            ));
        }
        std::thread::sleep(AGAIN);
        if let Some(mut next) = Connection::open(registry, pool) {
            next.wait_without_limit()?;
            // One that answers was found: the next failure is another one.
            if next.ask(Request::Status).is_ok() {
                since = None;
            }
            connection = Some(next);
        }
    }
}

fn devices_of(registry: &Registry, pool: &str, host: &str) -> Result<Vec<DeviceReport>> {
    let report = status::of(registry, &[pool.to_owned()])?;
    Ok(report.devices.into_iter().filter(|device| device.host == host).collect())
}

/// Says whether the machine may be switched off.
fn tell_end(
    registry: &Registry,
    pool: &str,
    host: &str,
    (role, beside): (Option<&Role>, &[String]),
    code: u8,
) -> Result<u8> {
    let left = devices_of(registry, pool, host)?;
    if left.is_empty() {
        tell_gone(pool, host, role, beside);
        return Ok(code);
    }
    assert!(left.iter().all(|device| device.host == host), "others may stay");
    let names: Vec<&str> = left.iter().map(|device| device.name.as_str()).collect();
    println!("host {host} still has {} of the pool {pool}: do not switch its machine off yet", names.join(", "));
    Ok(code.max(DEGRADED))
}

fn tell_gone(pool: &str, host: &str, role: Option<&Role>, beside: &[String]) {
    let so = match role {
        _ if !beside.is_empty() => format!(
            "{} at the same address, and labelled with another host: if it is on this machine, too, do not switch it off",
            beside.join(" and ")
        ),
        None => "its machine may be switched off".to_owned(),
        Some(Role::Owner) => "it owns the pool; unmount it there before its machine is switched off".to_owned(),
        Some(Role::Member) => {
            "if it has the pool mounted, unmount it there before its machine is switched off".to_owned()
        }
    };
    assert!(!host.is_empty(), "a host has a name");
    println!("no device of the pool {pool} is on host {host}: {so}");
}
