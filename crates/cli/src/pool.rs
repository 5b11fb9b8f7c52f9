//! `stere pool`: what is known here, made known, forgotten, and changed.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stere_device::Access;
use stere_format::MachineState;
use stere_pool::{AssembleOptions, Assembly, WhyLeftOut};

use crate::arguments::PoolCommand;
use crate::arguments::device::How;
use crate::json::to_json;
use crate::{change, host, move_log, umount};
use stere_control::change::Change;
use stere_control::connection;
use stere_control::spec::DeviceSpec;
use stere_machine::devices::{absolute, assemble_with, record_of};
use stere_machine::error::{DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry, check_name};

pub fn run(registry: &Registry, command: &PoolCommand) -> Result<u8> {
    match command {
        PoolCommand::List { json } => list(registry, *json),
        PoolCommand::Import { devices, choose, log } => import(registry, devices, choose.as_deref(), log.as_deref()),
        PoolCommand::Take { pool } => move_log::take(registry, pool),
        PoolCommand::MoveLog { pool, log } => move_log::run(registry, pool, log),
        PoolCommand::Export { pool } => export(registry, pool),
        PoolCommand::Admit { pool, machine } => host::set_state(registry, pool, machine, MachineState::Admitted),
        PoolCommand::Refuse { pool, machine } => host::set_state(registry, pool, machine, MachineState::Refused),
        PoolCommand::Change { pool, metadata_copies, cleaner, admission, wait } => {
            if let Some(admission) = admission {
                host::set_admission(registry, pool, *admission)?;
            }
            let how = How { dry_run: false, wait: *wait, yes: true };
            for word in cleaner {
                change::change(registry, pool, &parse_cleaner(word), None, how)?;
            }
            let Some(metadata_copies) = metadata_copies else { return Ok(DONE) };
            let copies = parse_copies(metadata_copies)?;
            change::change(registry, pool, &Change::MetadataCopies { copies }, None, how)
        }
    }
}

/// `POLICY` or `CLASS=POLICY`; `usual` is none.
fn parse_cleaner(text: &str) -> Change {
    let (class, policy) = match text.split_once('=') {
        None => (None, text),
        Some((class, policy)) => (Some(class.to_owned()), policy),
    };
    Change::Cleaner { class, policy: (policy != "usual").then(|| policy.to_owned()) }
}

/// `all` is none.
fn parse_copies(text: &str) -> Result<Option<u8>> {
    let wrong = || Error::Usage(format!("--metadata-copies takes a number or 'all', not '{text}'"));
    match text {
        "all" => Ok(None),
        text => text.parse().map(Some).map_err(|_| wrong()),
    }
}

#[derive(Debug, Serialize)]
struct Known {
    pool: String,
    id: String,
    mountpoint: Option<PathBuf>,
    devices: Vec<PathBuf>,
}

fn list(registry: &Registry, json: bool) -> Result<u8> {
    let daemons = connection::daemons(registry);
    let known: Vec<Known> = registry
        .list()?
        .into_iter()
        .map(|record| Known {
            mountpoint: daemons.iter().find(|about| about.pool_id == record.id).map(|about| about.mountpoint.clone()),
            pool: record.name,
            id: record.id,
            devices: record.devices.into_iter().map(|device| device.path).collect(),
        })
        .collect();
    if json {
        println!("{}", to_json(&known)?);
        return Ok(DONE);
    }
    let width = known.iter().map(|pool| pool.pool.len()).max().unwrap_or(0).max(4);
    println!("{:width$}  {:36}  mounted on", "pool", "id");
    for pool in &known {
        let place = pool.mountpoint.as_ref().map_or_else(|| "-".into(), |path| path.display().to_string());
        println!("{:width$}  {}  {place}", pool.pool, pool.id);
    }
    Ok(DONE)
}

fn import(registry: &Registry, devices: &[PathBuf], choose: Option<&str>, log: Option<&str>) -> Result<u8> {
    let options = AssembleOptions { prefer: choose, ..AssembleOptions::default() };
    let devices = devices.iter().map(|device| place_of(device)).collect::<Result<Vec<_>>>()?;
    let assembly = assemble_with(&devices, Access::ReadOnly, &options, log)?;
    let name = &assembly.newest.pool_name;
    check_name(name)?;
    let old = registry.find(name)?;
    let mut record = record_of(&assembly, old.as_ref());
    remember_other_half(&assembly, &mut record);
    match log {
        Some(_) if assembly.tail.is_none() => {
            return refused(format!("the log of the pool '{name}' is on its devices; leave out --log"));
        }
        Some(log) => record.log = Some(log.to_owned()),
        None => {}
    }
    if let Some(old) = old.filter(|old| old.id != record.id) {
        return refused(format!(
            "another pool is known by the name '{name}' (id {}); forget it first with `stere pool export {name}`",
            old.id
        ));
    }
    let registered = host::register(registry, record.log.as_deref(), assembly.newest.pool)?;
    registry.save(&record)?;
    println!("pool {name} is known now: {} devices", record.devices.len());
    host::tell_registered(name, registered.as_ref());
    if assembly.missing().is_empty() {
        return Ok(DONE);
    }
    eprintln!("stere: it lacks {}", assembly.describe_missing(&|_| None));
    Ok(DEGRADED)
}

/// A device on another machine may be named with the words by which the pool was made; what they say the pool knows.
fn place_of(device: &Path) -> Result<PathBuf> {
    let text = device.to_string_lossy();
    if !stere_nbd::is_address(&text) {
        return Ok(device.to_path_buf());
    }
    text.parse().map(|spec: DeviceSpec| spec.path).map_err(Error::Usage)
}

/// Where the devices of the half that was not chosen are, so that the next mount fills them anew.
fn remember_other_half(assembly: &Assembly, record: &mut PoolRecord) {
    let others: Vec<_> = assembly.left_out.iter().filter(|one| one.why == WhyLeftOut::OtherHistory).collect();
    if others.is_empty() {
        return;
    }
    record.choose = assembly.members.first().map(|member| member.superblock.device.to_string());
    for one in others {
        let id = one.member.superblock.device.to_string();
        println!("what was written only to {} is given up when the pool is mounted next", one.member.path);
        if let Some(device) = record.devices.iter_mut().find(|device| device.id == id) {
            device.path = absolute(Path::new(&one.member.path));
        }
    }
}

fn export(registry: &Registry, pool: &str) -> Result<u8> {
    registry.get(pool)?;
    if let Some(about) = connection::about(registry, pool) {
        umount::run(registry, &about.mountpoint.display().to_string(), false, false)?;
    }
    registry.forget(pool)?;
    println!(
        "pool {pool} is forgotten here; its devices keep everything, and `stere pool import` makes it known again"
    );
    Ok(DONE)
}
