//! The registry of the machines of a pool, in the engine of its shared log: who is in it, who is admitted, and this machine's own entry.
//!
//! Invariants: an entry is changed only by who read what it replaces, so of two who change it one does it again; a machine that was
//! refused stays so until somebody admits it. Who holds the engine's credentials can write all of it: it keeps order among those, and
//! strangers out. Read next: `key.rs`, `docs/design/machines.md`.

use stere_format::{Admission, MachineEntry, MachineState, PoolAdmission};
use stere_machine_tls::{MachineKey, PublicKey};
use stere_shared_log::{ENTRY_BYTES_MAX, Put, SharedLog};

use crate::error::{Error, Result, refused};
use crate::registry::Registry;
use crate::{clock, key};

#[cfg(test)]
mod tests;

/// Others change the registry at the same time; more often than that they do not.
const ATTEMPTS: u32 = 16;
/// Digits of a machine's id that people are shown, and the fewest that they may give.
const SHORT_DIGITS: usize = 8;
const LEAST_DIGITS: usize = 4;

/// What the registry holds.
#[derive(Debug, Clone)]
pub struct Machines {
    pub admission: Admission,
    pub entries: Vec<MachineEntry>,
}

/// This machine, as the registry has it now.
pub struct Registered {
    pub key: MachineKey,
    pub entry: MachineEntry,
}

fn engine(error: stere_shared_log::Error) -> Error {
    Error::Refused(error.to_string())
}

/// An id as people read it.
pub fn id_text(machine: &[u8; 16]) -> String {
    let text: String = machine.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.len() == 2 * machine.len(), "two digits a byte");
    text
}

/// The beginning of an id, for messages and commands.
pub fn short_id(machine: &[u8; 16]) -> String {
    id_text(machine)[..SHORT_DIGITS].to_owned()
}

/// What a machine that may not use the pool is told.
pub fn why_not(pool: &str, entry: &MachineEntry) -> Option<String> {
    let id = short_id(&entry.machine);
    match entry.state {
        MachineState::Admitted => None,
        MachineState::Waiting => Some(format!(
            "machine {id} waits to be admitted: `stere pool admit {pool} {id}` on any machine of the pool"
        )),
        MachineState::Refused => {
            Some(format!("machine {id} was refused: `stere pool admit {pool} {id}` on another machine lets it in"))
        }
    }
}

/// Reads the registry.
pub fn read(log: &dyn SharedLog) -> std::result::Result<Machines, stere_shared_log::Error> {
    Ok(decode(&log.machines()?))
}

/// Entries that cannot be read are nobody's, and a setting that cannot be read lets nobody in unasked.
fn decode(raw: &[([u8; 16], Vec<u8>)]) -> Machines {
    let mut machines = Machines { admission: Admission::Open, entries: Vec::new() };
    for (machine, bytes) in raw {
        if *machine == PoolAdmission::MACHINE {
            machines.admission = PoolAdmission::decode(bytes).map_or(Admission::Ask, |admission| admission.0);
            continue;
        }
        match MachineEntry::decode(bytes) {
            Ok(entry) if entry.machine == *machine => machines.entries.push(entry),
            Ok(_) => tracing::warn!(machine = id_text(machine), "the registry has another machine's entry for it"),
            Err(error) => tracing::warn!(machine = id_text(machine), %error, "an entry of the registry is damaged"),
        }
    }
    machines
}

/// Changes one entry: `change` is told the registry and gives the new entry; `None` leaves all as it is.
fn change(log: &dyn SharedLog, change: impl Fn(&Machines) -> Result<Option<([u8; 16], Vec<u8>)>>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let raw = log.machines().map_err(engine)?;
        let Some((machine, entry)) = change(&decode(&raw))? else { return Ok(()) };
        assert!(entry.len() <= ENTRY_BYTES_MAX, "an entry fits into every engine");
        let before = raw.iter().find(|(known, _)| *known == machine).map(|(_, bytes)| bytes.as_slice());
        if log.put_machine(machine, before, &entry).map_err(engine)? == Put::Mine {
            return Ok(());
        }
    }
    refused("the registry of machines is changed by others all the time; try again")
}

/// The entry that a machine should have.
fn wanted(machines: &Machines, machine: [u8; 16], key: PublicKey, host: &str) -> MachineEntry {
    let known = machines.entries.iter().find(|entry| entry.machine == machine);
    let fresh = match machines.admission {
        Admission::Open => MachineState::Admitted,
        Admission::Ask => MachineState::Waiting,
    };
    let state = match known {
        Some(entry) if entry.public_key == key.0 || entry.state == MachineState::Refused => entry.state,
        // A new key is a new machine, as far as anybody can tell.
        _ => fresh,
    };
    let registered = known.filter(|entry| entry.public_key == key.0).map(|entry| entry.registered);
    let registered = registered.unwrap_or_else(|| clock::now().seconds.cast_unsigned());
    MachineEntry { machine, public_key: key.0, host: host.to_owned(), state, registered }
}

fn claimant(registry: &Registry) -> stere_pool::Claimant {
    stere_multihost::claimant(Some(registry.state()))
}

/// Registers this machine, or finds it registered.
pub fn register(registry: &Registry, log: &dyn SharedLog) -> Result<Registered> {
    let key = key::own(registry)?;
    let (before, me) = (claimant(registry), claimant(registry));
    if before.machine != me.machine {
        // Each would be another machine's.
        return refused(format!(
            "{} cannot keep the id of this machine; is it full, or read-only?",
            registry.state().display()
        ));
    }
    register_as(log, key, me.machine, &me.host)
}

fn register_as(log: &dyn SharedLog, key: MachineKey, machine: [u8; 16], host: &str) -> Result<Registered> {
    let public = key.public();
    change(log, |machines| {
        let entry = wanted(machines, machine, public, host);
        let is_known = machines.entries.contains(&entry);
        Ok((!is_known).then(|| (machine, entry.encode())))
    })?;
    let machines = read(log).map_err(engine)?;
    match machines.entries.into_iter().find(|entry| entry.machine == machine) {
        Some(entry) if entry.public_key == public.0 => Ok(Registered { key, entry }),
        _ => refused(
            "this machine was registered, and the registry has another key for it; does another machine use a \
                      copy of its state folder?",
        ),
    }
}

/// The one machine that somebody means: by the beginning of its id, or its host's name.
pub fn find(machines: &Machines, word: &str) -> Result<MachineEntry> {
    let digits = word.replace('-', "").to_ascii_lowercase();
    let is_id = digits.len() >= LEAST_DIGITS;
    let means = |entry: &&MachineEntry| entry.host == word || (is_id && id_text(&entry.machine).starts_with(&digits));
    let found: Vec<&MachineEntry> = machines.entries.iter().filter(means).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            refused(format!("no machine is called '{word}' or has an id that begins so; `stere host list` names all"))
        }
        several => {
            let ids: Vec<String> = several.iter().map(|entry| short_id(&entry.machine)).collect();
            refused(format!("'{word}' may be any of the machines {}; give the beginning of one's id", ids.join(", ")))
        }
    }
}

/// Admits or refuses one machine; gives its entry as it is now.
pub fn set_state(log: &dyn SharedLog, word: &str, state: MachineState) -> Result<MachineEntry> {
    let chosen = find(&read(log).map_err(engine)?, word)?;
    change(log, |machines| {
        let known = machines.entries.iter().find(|entry| entry.machine == chosen.machine);
        // What is admitted is the key that was looked at.
        match known.filter(|entry| entry.public_key == chosen.public_key || state == MachineState::Refused) {
            Some(entry) if entry.state == state => Ok(None),
            Some(entry) => Ok(Some((entry.machine, MachineEntry { state, ..entry.clone() }.encode()))),
            None => refused("the machine registered with another key at this moment; look at it again"),
        }
    })?;
    assert!(chosen.machine != PoolAdmission::MACHINE, "the pool itself is no machine");
    Ok(MachineEntry { state, ..chosen })
}

/// What becomes of machines that register from now on.
pub fn set_admission(log: &dyn SharedLog, admission: Admission) -> Result<()> {
    let entry = PoolAdmission(admission).encode();
    change(log, |_| Ok(Some((PoolAdmission::MACHINE, entry.clone()))))
}

/// Takes all entries over into another log.
pub fn copy(from: &dyn SharedLog, to: &dyn SharedLog) -> Result<()> {
    for (machine, entry) in from.machines().map_err(engine)? {
        if to.put_machine(machine, None, &entry).map_err(engine)? == Put::Taken {
            return refused("the registry of machines is there already, and is another one");
        }
    }
    Ok(())
}
