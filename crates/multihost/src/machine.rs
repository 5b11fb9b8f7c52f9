//! Who this process is, so that others can tell, and so that the next one on this machine can prove that it has ended.
//!
//! Where something cannot be found out a random value stands for it: then nothing is proven, and a watch decides.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use stere_format::Heartbeat;
use stere_pool::Claimant;

const MACHINE_FILE: &str = "machine-id";
const HOST_BYTES_MAX: usize = Heartbeat::HOST_FIELD_BYTES - 1;

/// This process, about to open a pool. The machine is known again by a file in `state`, stere's own directory.
pub fn claimant(state: Option<&Path>) -> Claimant {
    Claimant {
        owner: random(),
        machine: state.and_then(machine_of).unwrap_or_else(random),
        boot: boot().unwrap_or_else(random),
        process_namespace: process_namespace(),
        process: std::process::id(),
        process_start_ticks: start_ticks(std::process::id()).unwrap_or(0),
        host: own_host(),
    }
}

/// Whether the process behind a heartbeat was one of this machine, since its last start, and is no more.
pub fn has_ended(me: &Claimant, beat: &Heartbeat) -> bool {
    let is_of_here =
        beat.machine == me.machine && beat.boot == me.boot && beat.process_namespace == me.process_namespace;
    is_of_here && start_ticks(beat.process) != Some(beat.process_start_ticks)
}

/// Milliseconds since the machine was started, those in which it slept among them.
pub fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Reads the machine's number, or draws one; none where it cannot be kept.
fn machine_of(state: &Path) -> Option<[u8; 16]> {
    let path = state.join(MACHINE_FILE);
    if let Some(known) = fs::read_to_string(&path).ok().and_then(|text| from_hex(&text)) {
        return Some(known);
    }
    fs::create_dir_all(state).ok()?;
    let new = random();
    let text: String = new.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
    match file {
        Ok(mut file) => file.write_all(text.as_bytes()).ok().map(|()| new),
        // Another process was faster; a number that is half written proves nothing, and so does none.
        Err(_) => fs::read_to_string(&path).ok().and_then(|text| from_hex(&text)),
    }
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<char> = text.trim().chars().filter(|character| *character != '-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let high = pair[0].to_digit(16)?;
        *byte = (high * 16 + pair[1].to_digit(16)?) as u8;
    }
    Some(bytes)
}

fn boot() -> Option<[u8; 16]> {
    from_hex(&fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

fn process_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// When a process was started; none if there is no such process any more, or only its remains.
fn start_ticks(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, start) = (fields.first()?, fields.get(19)?);
    (!matches!(*state, "Z" | "X")).then(|| start.parse().ok()).flatten()
}

/// What this machine is called, for people.
pub fn own_host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut name = name.trim().to_owned();
    while name.len() > HOST_BYTES_MAX {
        name.pop();
    }
    assert!(name.len() <= HOST_BYTES_MAX, "a name fits its place");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat_of(me: &Claimant) -> Heartbeat {
        Heartbeat {
            pool: stere_format::PoolId([0; 16]),
            device: stere_format::DeviceId([0; 16]),
            owner: me.owner,
            sequence: 1,
            is_live: true,
            machine: me.machine,
            boot: me.boot,
            process_namespace: me.process_namespace,
            process: me.process,
            process_start_ticks: me.process_start_ticks,
            interval_ms: 1000,
            host: me.host.clone(),
        }
    }

    /// P-157: only what can be known is taken for proof.
    #[test]
    fn a_process_is_proven_ended_on_its_own_machine_only() {
        let state = tempfile::tempdir().unwrap();
        let me = claimant(Some(state.path()));
        let again = claimant(Some(state.path()));
        assert_eq!(me.machine, again.machine);
        assert_ne!(me.owner, again.owner);
        let mut beat = beat_of(&me);
        assert!(!has_ended(&again, &beat), "this process is alive");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        beat.process = child.id();
        child.wait().unwrap();
        assert!(has_ended(&again, &beat));
        beat.process = me.process;
        beat.process_start_ticks += 1;
        assert!(has_ended(&again, &beat), "the number belongs to another process now");
        for change in [
            |beat: &mut Heartbeat| beat.machine[0] ^= 1,
            |beat: &mut Heartbeat| beat.boot[0] ^= 1,
            |beat: &mut Heartbeat| beat.process_namespace ^= 1,
        ] {
            let mut elsewhere = beat.clone();
            change(&mut elsewhere);
            assert!(!has_ended(&again, &elsewhere));
        }
        assert_ne!(claimant(None).machine, claimant(None).machine);
    }
}
