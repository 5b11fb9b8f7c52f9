//! The registry of machines in etcd: a key for each. Read next: `keys.rs`, `../etcd.rs`.

use stere_shared_log::{Error, MACHINES_MAX, Machine, Put, too_many_machines};

use super::EtcdLog;
use super::keys::{self, found, has_succeeded, transaction};

/// Somebody's entry came between the look and the put; more often than that it does not happen.
const ATTEMPTS: u32 = 8;

impl EtcdLog {
    pub(super) fn read_machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error> {
        let requests = vec![keys::get(&self.keys.first), self.keys.get_machines()];
        let answer = self.transact(self.limit(), transaction(vec![], requests, vec![]))?;
        self.first(&answer, 0)?;
        let one = |found: &serde_json::Value| {
            let machine = self.keys.machine_of(&found["key"]).zip(keys::decoded(&found["value"]));
            machine.ok_or_else(|| self.damaged("the key or the entry of a machine cannot be read"))
        };
        found(&answer, 1).iter().map(one).collect()
    }

    pub(super) fn change_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error> {
        let deadline = self.limit();
        let key = self.keys.machine(machine);
        for _ in 0..ATTEMPTS {
            let requests = vec![keys::get(&self.keys.first), keys::get(&key), self.keys.count_machines()];
            let answer = self.transact(deadline, transaction(vec![], requests, vec![]))?;
            self.first(&answer, 0)?;
            let known = found(&answer, 1).first().map(|found| keys::decoded(&found["value"]));
            let known = match known {
                Some(None) => return Err(self.damaged("the entry of a machine is not in base64")),
                known => known.flatten(),
            };
            if known.as_deref() == Some(entry) {
                return Ok(Put::Mine);
            }
            if known.as_deref() != before {
                return Ok(Put::Taken);
            }
            if known.is_none() && keys::count(&answer, 2) >= MACHINES_MAX as u64 {
                return Err(self.address().refused(too_many_machines()));
            }
            let is_same = match &known {
                None => keys::is_absent(&key),
                Some(known) => keys::is_equal(&key, known),
            };
            let compare = vec![keys::is_there(&self.keys.first), is_same];
            let request = transaction(compare, vec![keys::put(&key, entry)], vec![]);
            if has_succeeded(&self.transact(deadline, request)?) {
                return Ok(Put::Mine);
            }
        }
        Err(self.address().away("the entry of a machine changes all the time"))
    }
}
