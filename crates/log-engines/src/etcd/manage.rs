//! Logs in etcd are opened, made, removed and listed. Read next: `keys.rs`.

use serde_json::json;
use stere_shared_log::Error;

use super::EtcdLog;
use super::keys::{self, POOLS, POOLS_END, has_succeeded, transaction};
use crate::{Pool, has_log, no_log};

/// The first with the gateway at `/v3`.
const VERSION_LEAST: (u32, u32) = (3, 4);

/// The first two parts of a version.
fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl EtcdLog {
    fn check_version(&self) -> Result<(), Error> {
        let version = self.gateway.version(self.limit())?;
        match major_and_minor(&version) {
            Some(known) if known >= VERSION_LEAST => Ok(()),
            _ => Err(self.address().refused(format!("it is etcd {version}, and 3.4 or newer is needed; update it"))),
        }
    }

    /// Looks whether the log is there and this user may write to it.
    pub(crate) fn open(&self) -> Result<(), Error> {
        self.check_version()?;
        self.bounds_of(&self.transact(self.limit(), transaction(vec![], self.get_bounds(), vec![]))?, 0)?;
        // Permissions of a transaction are looked at before its conditions: this one changes nothing.
        let compare = vec![keys::is_absent(&self.keys.first), keys::is_there(&self.keys.first)];
        let success = vec![keys::put(&self.keys.beat, ""), self.keys.delete_records()];
        self.transact(self.limit(), transaction(compare, success, vec![])).map(drop)
    }

    pub(crate) fn create(&self, name: &str) -> Result<(), Error> {
        self.check_version()?;
        let begin = keys::digits(1);
        let success = vec![
            keys::put(&self.keys.name, name),
            keys::put(&self.keys.first, &begin),
            keys::delete(&self.keys.beat),
            self.keys.delete_records(),
            self.keys.delete_machines(),
        ];
        let is_new = transaction(vec![keys::is_absent(&self.keys.first)], success, self.get_bounds());
        let answer = self.transact(self.limit(), is_new)?;
        if has_succeeded(&answer) {
            return Ok(());
        }
        let bounds = self.bounds_of(&answer, 0)?;
        let is_empty = vec![keys::is_equal(&self.keys.first, &begin), keys::is_absent(&self.keys.record(1))];
        let success =
            vec![keys::put(&self.keys.name, name), keys::delete(&self.keys.beat), self.keys.delete_machines()];
        if bounds.next > 1 || !has_succeeded(&self.transact(self.limit(), transaction(is_empty, success, vec![]))?) {
            return Err(has_log(self.address(), self.pool));
        }
        Ok(())
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        let success = vec![
            keys::delete(&self.keys.name),
            keys::delete(&self.keys.first),
            keys::delete(&self.keys.beat),
            self.keys.delete_records(),
            self.keys.delete_machines(),
        ];
        let request = transaction(vec![keys::is_there(&self.keys.first)], success, vec![]);
        match has_succeeded(&self.transact(self.limit(), request)?) {
            true => Ok(()),
            false => Err(no_log(self.address(), self.pool)),
        }
    }

    pub(crate) fn pools(&self) -> Result<Vec<(Pool, String)>, Error> {
        let request = transaction(vec![], vec![json!({ "request_range": keys::range(POOLS, POOLS_END) })], vec![]);
        let answer = self.transact(self.limit(), request)?;
        let mut pools = Vec::new();
        for one in keys::found(&answer, 0) {
            let key = keys::decoded(&one["key"]).and_then(|key| keys::id(key.strip_prefix(POOLS.as_bytes())?));
            let name = keys::decoded(&one["value"]).and_then(|name| String::from_utf8(name).ok());
            pools.push(key.zip(name).ok_or_else(|| self.damaged("the key or the name of a pool cannot be read"))?);
        }
        Ok(pools)
    }
}
