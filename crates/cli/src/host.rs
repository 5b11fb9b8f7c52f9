//! The machines of a pool whose log is shared: `stere host list`, `stere pool admit`, `refuse`, and this machine's own registration.
//!
//! Everything is asked of the log's engine, with the credentials that this machine has: no daemon is needed. Read next: `admission.rs` of
//! the crate `machine`.

use std::sync::Arc;

use serde::Serialize;
use stere_format::{Admission, MachineEntry, MachineState, OwnerBeat, PoolId};
use stere_machine::admission::{self, Registered};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry};
use stere_machine::shared_log;
use stere_machine_tls::PublicKey;
use stere_shared_log::SharedLog;

use crate::arguments::{AdmissionWord, HostCommand};
use crate::json::to_json;

pub fn run(registry: &Registry, command: &HostCommand) -> Result<u8> {
    match command {
        HostCommand::List { pool, json } => list(registry, pool, *json),
    }
}

/// The log of a pool that is known here.
fn log_of(registry: &Registry, pool: &str) -> Result<(PoolRecord, Arc<dyn SharedLog>)> {
    let record = registry.get(pool)?;
    let Some((log, _)) = shared_log::open_of(&record)? else {
        return refused(format!(
            "the log of the pool '{pool}' is on its devices, so one machine at a time uses it and none is admitted; \
             `stere pool move-log` changes that"
        ));
    };
    Ok((record, log))
}

fn engine(error: stere_shared_log::Error) -> Error {
    Error::Refused(error.to_string())
}

/// Registers this machine where the log is in an engine.
pub fn register(registry: &Registry, address: Option<&str>, pool: PoolId) -> Result<Option<Registered>> {
    let Some(address) = address else { return Ok(None) };
    admission::register(registry, &*shared_log::open_log(address, pool)?).map(Some)
}

/// Says what became of the registration.
pub fn tell_registered(pool: &str, registered: Option<&Registered>) {
    let Some(Registered { key, entry }) = registered else { return };
    let (id, fingerprint) = (admission::short_id(&entry.machine), key.public().fingerprint());
    println!("this machine is {id}, key {fingerprint}");
    if let Some(why) = admission::why_not(pool, entry) {
        println!("{why}");
    }
}

/// The beat of whoever owns the pool now.
fn owner(log: &dyn SharedLog) -> Result<Option<OwnerBeat>> {
    let beat = OwnerBeat::decode(&log.last_beat().map_err(engine)?).ok();
    Ok(beat.filter(|beat| !beat.is_closed))
}

/// `stere pool admit` and `stere pool refuse`.
pub fn set_state(registry: &Registry, pool: &str, word: &str, state: MachineState) -> Result<u8> {
    let (_, log) = log_of(registry, pool)?;
    let machines = admission::read(&*log).map_err(engine)?;
    let chosen = admission::find(&machines, word)?;
    let owner = owner(&*log)?;
    if state == MachineState::Refused && owner.is_some_and(|beat| beat.machine == chosen.machine) {
        return refused(format!(
            "machine {} owns the pool now: unmount it there, or take the pool from it first with `stere pool take {pool}`",
            admission::short_id(&chosen.machine)
        ));
    }
    let entry = admission::set_state(&*log, &admission::id_text(&chosen.machine), state)?;
    let (id, fingerprint) = (admission::short_id(&entry.machine), PublicKey(entry.public_key).fingerprint());
    println!("machine {id} on {}, key {fingerprint}, is {} now", entry.host, state.text());
    Ok(DONE)
}

/// `stere pool change --admission`.
pub fn set_admission(registry: &Registry, pool: &str, word: AdmissionWord) -> Result<()> {
    let (_, log) = log_of(registry, pool)?;
    let wanted = match word {
        AdmissionWord::Open => Admission::Open,
        AdmissionWord::Ask => Admission::Ask,
    };
    admission::set_admission(&*log, wanted)?;
    match wanted {
        Admission::Open => println!("machines that come to know the pool {pool} are admitted at once"),
        Admission::Ask => {
            println!("machines that come to know the pool {pool} wait until `stere pool admit` lets them in")
        }
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Machine {
    host: String,
    id: String,
    state: &'static str,
    key: String,
    owner: bool,
    /// Seconds since 1970, by the machine's own clock.
    registered: u64,
}

#[derive(Debug, Serialize)]
struct Hosts {
    pool: String,
    admission: &'static str,
    machines: Vec<Machine>,
    /// Those with the pool's devices, where they are reached over the network.
    nodes: Vec<String>,
}

fn list(registry: &Registry, pool: &str, json: bool) -> Result<u8> {
    let (record, log) = log_of(registry, pool)?;
    let machines = admission::read(&*log).map_err(engine)?;
    let owner = owner(&*log)?;
    let is_owner = |entry: &MachineEntry| owner.as_ref().is_some_and(|beat| beat.machine == entry.machine);
    let line = |entry: &MachineEntry| Machine {
        host: entry.host.clone(),
        id: admission::id_text(&entry.machine),
        state: entry.state.text(),
        key: PublicKey(entry.public_key).fingerprint(),
        owner: is_owner(entry),
        registered: entry.registered,
    };
    let hosts = Hosts {
        pool: record.name.clone(),
        admission: machines.admission.text(),
        machines: machines.entries.iter().map(line).collect(),
        nodes: nodes(&record),
    };
    if json {
        println!("{}", to_json(&hosts)?);
        return Ok(DONE);
    }
    print(&hosts);
    Ok(DONE)
}

fn print(hosts: &Hosts) {
    let width = hosts.machines.iter().map(|machine| machine.host.chars().count()).max().unwrap_or(0).max(4);
    println!("{:width$}  id        state     owner  key", "host");
    for machine in &hosts.machines {
        let owner = if machine.owner { "yes" } else { "-" };
        println!("{:width$}  {}  {:8}  {owner:5}  {}", machine.host, &machine.id[..8], machine.state, machine.key);
    }
    let how = if hosts.admission == Admission::Ask.text() { "wait to be admitted" } else { "are admitted at once" };
    println!("machines that come to know the pool {how}");
    if !hosts.nodes.is_empty() {
        println!("its devices are on {}", hosts.nodes.join(", "));
    }
}

/// The hosts of devices that are reached over the network.
fn nodes(record: &PoolRecord) -> Vec<String> {
    let paths = record.devices.iter().filter_map(|device| device.path.to_str());
    let addresses = paths.filter_map(|path| stere_nbd::Address::parse(path).ok());
    let mut hosts: Vec<String> = addresses.map(|address| address.host).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}
