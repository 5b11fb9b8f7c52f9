//! Pools remembered by name: a small JSON file each, under `$STERE_STATE/pools`.
//!
//! It is only a memory of where devices were: what a pool is stands on its devices, and `stere pool import` writes the file
//! again. Beside it lie the control sockets (`run`) and the logs (`log`) of mounted pools.

use std::fs;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{At, Error, Result, refused};

/// Where a device was, and which it was.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct DeviceRecord {
    pub id: String,
    /// Its number in the pool's table, for when the table cannot be read.
    #[serde(default)]
    pub index: u16,
    pub name: String,
    pub path: PathBuf,
    /// The host it is labelled with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// What the maker calls it, where the kernel knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

impl DeviceRecord {
    /// Where it was last, and its serial number.
    pub fn describe(&self) -> String {
        let serial = self.serial.as_ref().map(|serial| format!(", serial {serial}")).unwrap_or_default();
        format!("{}{serial}", self.path.display())
    }

    /// The host that it stands on, if one is known.
    pub fn host(&self) -> String {
        crate::places::host_of(&self.host, &self.path.display().to_string())
    }
}

/// A place of a volume, as it stands in the pool, whose named files somebody on this machine agreed to use for it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct AgreedPlace {
    /// Id of the volume.
    pub volume: String,
    pub place: String,
}

/// A pool as it is remembered.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct PoolRecord {
    pub name: String,
    pub id: String,
    pub devices: Vec<DeviceRecord>,
    /// Id of the device whose files count, chosen by `stere pool import --choose` and good for the next mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choose: Option<String>,
    #[serde(default)]
    pub scrub: ScrubRecord,
    /// Whether bringing files in line with their policy rests until somebody says `resume`.
    #[serde(default)]
    pub is_reconcile_paused: bool,
    /// Whose named files are used (`agreement.rs`). None in a record from before anybody was asked: all that the pool has was added here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Vec<AgreedPlace>>,
    /// Where the shared log is, secrets and all, if the pool has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// What is remembered of scrubbing between mounts; how far it is stands in the pool itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Whether a pass is under way.
    pub is_wanted: bool,
    /// Whether somebody stopped it, so that the schedule does not begin it again.
    #[serde(default)]
    pub is_paused: bool,
    /// Seconds since 1970 when the last pass ended; none if there was none yet.
    pub ended: Option<i64>,
}

/// The directory of all that is remembered.
#[derive(Debug, Clone)]
pub struct Registry {
    state: PathBuf,
}

const NAME_BYTES_MAX: usize = 63;

/// Names become parts of paths and of /proc/mounts, so they are plain.
pub fn check_name(name: &str) -> Result<()> {
    if stere_format::is_pool_name(name) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "'{name}' cannot be the name of a pool: use at most {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores, beginning with a letter or digit"
    )))
}

impl Registry {
    /// `$STERE_STATE`, or `/var/lib/stere` for root, or `$XDG_STATE_HOME/stere`.
    pub fn open() -> Registry {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = variable("STERE_STATE").unwrap_or_else(|| match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/var/lib/stere"),
            false => variable("XDG_STATE_HOME")
                .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
                .unwrap_or_else(|| PathBuf::from("/tmp"))
                .join("stere"),
        });
        Registry::at(state)
    }

    /// In this directory.
    pub fn at(state: PathBuf) -> Registry {
        Registry { state: std::path::absolute(&state).unwrap_or(state) }
    }

    /// The directory itself.
    pub fn state(&self) -> &Path {
        &self.state
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.state.join(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).at("create this directory", &path)?;
        Ok(path)
    }

    /// Where control sockets are.
    pub fn run_directory(&self) -> Result<PathBuf> {
        self.directory("run")
    }

    pub fn log_path(&self, pool: &str) -> Result<PathBuf> {
        Ok(self.directory("log")?.join(format!("{pool}.log")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.join("pools").join(format!("{name}.json"))
    }

    /// A pool by name, if it is remembered.
    pub fn find(&self, name: &str) -> Result<Option<PoolRecord>> {
        if check_name(name).is_err() {
            return Ok(None);
        }
        let path = self.path(name);
        match fs::read(&path) {
            Ok(bytes) => read_record(&path, &bytes).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// A pool that must be remembered.
    pub fn get(&self, name: &str) -> Result<PoolRecord> {
        match self.find(name)? {
            Some(record) => Ok(record),
            None => {
                let known = self.list()?.into_iter().map(|record| record.name).collect::<Vec<_>>().join(", ");
                let known =
                    if known.is_empty() { "no pool is known here".into() } else { format!("known are: {known}") };
                refused(format!(
                    "no pool is named '{name}' ({known}); name its devices instead, or let `stere pool import DEVICE...` find it"
                ))
            }
        }
    }

    pub fn list(&self) -> Result<Vec<PoolRecord>> {
        let directory = self.state.join("pools");
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.at("read", &directory)?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.at("read", &directory)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.push(read_record(&path, &fs::read(&path).at("read", &path)?)?);
            }
        }
        records.sort_by(|one: &PoolRecord, other| one.name.cmp(&other.name));
        Ok(records)
    }

    /// Writes a record so that a crash leaves the old or the new one.
    pub fn save(&self, record: &PoolRecord) -> Result<()> {
        check_name(&record.name)?;
        self.directory("pools")?;
        let path = self.path(&record.name);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(|error| Error::System(error.into()))?;
        // The address of a shared log may hold a password.
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.at("write", &new)?;
        fs::rename(&new, &path).at("rename to", &path)
    }

    fn served_path(&self, pool: &str) -> PathBuf {
        self.state.join("served").join(format!("{pool}.json"))
    }

    /// Places of media on this machine that other machines of a pool may use through it.
    pub fn served_media(&self, pool: &str) -> Vec<String> {
        let bytes = fs::read(self.served_path(pool)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// The same from now on, made of what it was.
    pub fn serve_media(&self, pool: &str, change: impl FnOnce(&mut Vec<String>)) -> Result<()> {
        let (path, before) = (self.served_path(pool), self.served_media(pool));
        let mut places = before.clone();
        change(&mut places);
        if places == before {
            return Ok(());
        }
        let directory = self.state.join("served");
        fs::create_dir_all(&directory).at("make", &directory)?;
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let text = serde_json::to_vec_pretty(&places).map_err(|error| Error::System(error.into()))?;
        fs::write(&new, text).at("write", &new)?;
        fs::rename(&new, &path).at("rename to", &path)
    }

    pub fn forget(&self, name: &str) -> Result<()> {
        self.serve_media(name, Vec::clear)?;
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.at("remove", &path),
        }
    }

    /// Where a device of a pool was last.
    pub fn path_of(&self, pool: &str, id: &str) -> Option<String> {
        let record = self.find(pool).ok().flatten()?;
        let device = record.devices.into_iter().find(|device| device.id == id)?;
        Some(device.path.display().to_string())
    }

    /// The same with its serial number, for refusals.
    pub fn place_of(&self, pool: &str, id: &str) -> Option<String> {
        let record = self.find(pool).ok().flatten()?;
        record.devices.iter().find(|device| device.id == id).map(DeviceRecord::describe)
    }
}

fn read_record(path: &Path, bytes: &[u8]) -> Result<PoolRecord> {
    serde_json::from_slice(bytes).or_else(|error| {
        refused(format!(
            "{} is not readable as a record of a pool ({error}); remove it, then `stere pool import DEVICE...`",
            path.display()
        ))
    })
}
