//! The machines of a pool whose log is shared: `stere host list`, `stere pool admit`, `refuse`, and this machine's own registration.
//!
//! Machines are asked of the log's engine, with the credentials that this machine has: no daemon is needed. The hosts of devices are asked of
//! the daemon where there is one, else they are those that this machine remembers. Read next: `host/evacuate.rs`, `admission.rs` of the crate
//! `machine`.

mod evacuate;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use stere_control::connection::Connection;
use stere_control::message::{Answer, Request};
use stere_control::status::DeviceReport;
use stere_format::{Admission, MachineEntry, MachineState, OwnerBeat, PoolId};
use stere_machine::admission::{self, Registered};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::places::host_in_address;
use stere_machine::registry::{DeviceRecord, PoolRecord, Registry};
use stere_machine::shared_log;
use stere_machine_tls::PublicKey;
use stere_shared_log::SharedLog;

use crate::arguments::{AdmissionWord, HostCommand};
use crate::json::to_json;

pub fn run(registry: &Registry, command: &HostCommand) -> Result<u8> {
    match command {
        HostCommand::List { pool, json } => list(registry, pool, *json),
        HostCommand::Evacuate { host, pool, how } => evacuate::run(registry, host, pool.as_deref(), *how),
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
    /// Devices of the pool that stand on this host.
    devices: usize,
    /// Seconds since 1970, by the machine's own clock.
    registered: u64,
}

#[derive(Debug, Serialize)]
struct Hosts {
    pool: String,
    admission: &'static str,
    machines: Vec<Machine>,
    /// The addresses of those with the pool's devices, where they are reached over the network.
    nodes: Vec<String>,
    /// The hosts that devices stand on, by their labels or else their addresses.
    device_hosts: Vec<DeviceHost>,
}

/// A host with devices of the pool.
#[derive(Debug, Serialize)]
struct DeviceHost {
    host: String,
    devices: Vec<String>,
    /// Those of them that are being emptied, to leave the pool.
    leaving: Vec<String>,
}

/// A device as it is told here.
struct Standing {
    name: String,
    path: String,
    host: String,
    leaves: bool,
}

/// The devices of a pool: as its daemon tells, else as they are remembered.
fn standing(registry: &Registry, record: &PoolRecord) -> Vec<Standing> {
    let told = Connection::open(registry, &record.name).and_then(|mut daemon| daemon.ask(Request::Status).ok());
    if let Some(Answer::Status(report)) = told {
        let device = |device: DeviceReport| {
            let DeviceReport { name, path, host, leaves, .. } = device;
            Standing { name, path, host, leaves }
        };
        return report.devices.into_iter().map(device).collect();
    }
    let device = |device: &DeviceRecord| {
        let (name, path) = (device.name.clone(), device.path.display().to_string());
        Standing { name, path, host: device.host(), leaves: false }
    };
    record.devices.iter().map(device).collect()
}

/// By host. Devices of this machine that no label tells the host of are left out.
fn by_host(devices: &[Standing]) -> Vec<DeviceHost> {
    let mut hosts: BTreeMap<&str, DeviceHost> = BTreeMap::new();
    for device in devices.iter().filter(|device| !device.host.is_empty()) {
        let fresh = || DeviceHost { host: device.host.clone(), devices: Vec::new(), leaving: Vec::new() };
        let host = hosts.entry(&device.host).or_insert_with(fresh);
        host.devices.push(device.name.clone());
        if device.leaves {
            host.leaving.push(device.name.clone());
        }
    }
    let hosts: Vec<DeviceHost> = hosts.into_values().collect();
    assert!(hosts.iter().all(|host| host.leaving.len() <= host.devices.len()), "those that leave are some of them");
    hosts
}

fn list(registry: &Registry, pool: &str, json: bool) -> Result<u8> {
    let (record, log) = log_of(registry, pool)?;
    let machines = admission::read(&*log).map_err(engine)?;
    let owner = owner(&*log)?;
    let is_owner = |entry: &MachineEntry| owner.as_ref().is_some_and(|beat| beat.machine == entry.machine);
    let devices = standing(registry, &record);
    let line = |entry: &MachineEntry| Machine {
        host: entry.host.clone(),
        id: admission::id_text(&entry.machine),
        state: entry.state.text(),
        key: PublicKey(entry.public_key).fingerprint(),
        owner: is_owner(entry),
        devices: devices.iter().filter(|device| device.host == entry.host).count(),
        registered: entry.registered,
    };
    let hosts = Hosts {
        pool: record.name.clone(),
        admission: machines.admission.text(),
        machines: machines.entries.iter().map(line).collect(),
        nodes: nodes(&devices),
        device_hosts: by_host(&devices),
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
    println!("{:width$}  id        state     owner  devices  key", "host");
    for machine in &hosts.machines {
        let owner = if machine.owner { "yes" } else { "-" };
        let Machine { host, id, state, devices, key, .. } = machine;
        println!("{host:width$}  {}  {state:8}  {owner:5}  {devices:7}  {key}", &id[..8]);
    }
    let how = if hosts.admission == Admission::Ask.text() { "wait to be admitted" } else { "are admitted at once" };
    println!("machines that come to know the pool {how}");
    let of_host = |one: &DeviceHost| {
        let leaving = if one.leaving.is_empty() { "" } else { ", leaving" };
        format!("{} ({}{leaving})", one.host, one.devices.join(" "))
    };
    if !hosts.device_hosts.is_empty() {
        let told: Vec<String> = hosts.device_hosts.iter().map(of_host).collect();
        println!("its devices are on {}", told.join(", "));
    }
}

/// The addresses of devices that are reached over the network.
fn nodes(devices: &[Standing]) -> Vec<String> {
    let mut hosts: Vec<String> = devices.iter().filter_map(|device| host_in_address(&device.path)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}
