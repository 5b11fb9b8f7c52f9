//! Opening devices by path: in order, once each, and later if they are late.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stere_device::{Access, Device, DeviceError, FileOptions};
use stere_format::DeviceIndex;
use stere_pool::{AssembleOptions, Assembly, Candidate, Holds, Nameless, identify};

use crate::at_once::at_once;
use crate::error::{At, Error, Result, refused};
use crate::registry::{DeviceRecord, PoolRecord, Registry};
use crate::shared_log;

const LATE_DEVICES_POLL: Duration = Duration::from_millis(500);

/// What makes two paths the same device.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Block(u64),
    File(u64, u64),
    Node(String, u16, String),
}

fn identity_of(path: &Path) -> Option<Identity> {
    if let Some(text) = path.to_str().filter(|text| stere_nbd::is_address(text)) {
        let address = stere_nbd::Address::parse(text).ok()?;
        return Some(Identity::Node(address.host, address.port, address.export));
    }
    let metadata = fs::metadata(path).ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => Identity::Block(metadata.rdev()),
        false => Identity::File(metadata.dev(), metadata.ino()),
    })
}

/// Refuses two paths to one device, whatever they look like.
pub fn check_distinct(paths: &[PathBuf]) -> Result<()> {
    let mut seen: HashMap<Identity, &Path> = HashMap::new();
    for path in paths {
        let Some(identity) = identity_of(path) else { continue };
        if let Some(first) = seen.insert(identity, path) {
            let (first, second) = (first.display().to_string(), path.display().to_string());
            return Err(stere_pool::Error::SameDevice { first, second }.into());
        }
    }
    Ok(())
}

pub fn open_device(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    let options = FileOptions { access, ..FileOptions::default() };
    let name = path.display();
    match stere_nbd::open(path, &options) {
        Ok(device) => {
            tracing::debug!(device = device.describe(), "open");
            Ok(device)
        }
        Err(error) => match error.os_error() {
            Some(libc::ENOENT) => refused(format!(
                "{name} does not exist; check the path (`stere create` makes a file if it is given size=)"
            )),
            Some(libc::EACCES | libc::EPERM) => refused(format!(
                "{name} may not be opened by this user; run as root, or get the right to read and write it"
            )),
            Some(libc::EROFS) => refused(format!("{name} can only be read; mount with `-o ro`, or make it writable")),
            _ => Err(error.into()),
        },
    }
}

/// How long a process that was killed may take to let go of its devices.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// The same, for devices that a killed process may hold for another moment.
pub fn open_device_with_retries(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    let start = Instant::now();
    loop {
        match open_device(path, access) {
            Err(Error::Device(DeviceError::Busy { .. })) if start.elapsed() < BUSY_PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

/// Opens all of these and judges what they are together. `log` is where the pool's shared log is, if it has one and that is not remembered.
pub fn assemble_with(
    paths: &[PathBuf],
    access: Access,
    options: &AssembleOptions<'_>,
    log: Option<&str>,
) -> Result<Assembly> {
    check_distinct(paths)?;
    let opened = at_once(paths, |path| {
        open_device_with_retries(path, access).map(|device| Candidate { path: path.display().to_string(), device })
    });
    let candidates = opened.into_iter().collect::<Result<Vec<Candidate>>>()?;
    let superblock = shared_log::any_superblock(candidates.iter().map(|candidate| &candidate.device));
    let tail = superblock.map(|superblock| shared_log::tail_for(&superblock, log)).transpose()?.flatten();
    let options = AssembleOptions { prefer: options.prefer, name_of: options.name_of, tail };
    Ok(Assembly::with(candidates, &options)?)
}

/// Opens a remembered pool's devices. What is not where it was is looked for among the block devices; what is not there at all
/// is waited for. Devices that are missing in the end are left to the assembly's judgement.
pub fn assemble_remembered(
    record: &PoolRecord,
    access: Access,
    wait: Duration,
    prefer: Option<&str>,
    goes_on: &mut dyn FnMut(&str) -> bool,
) -> Result<Assembly> {
    let name_of = |index: DeviceIndex| {
        let device = record.devices.iter().find(|device| device.index == index)?;
        Some(format!("device '{}', last at {}", device.name, device.describe()))
    };
    let options = AssembleOptions { prefer: prefer.or(record.choose.as_deref()), name_of: &name_of, tail: None };
    let log = record.log.as_deref();
    let start = Instant::now();
    loop {
        let mut paths = Vec::new();
        let mut absent = Vec::new();
        let judged = at_once(&record.devices, |device| why_unusable(record, device, access));
        let mut reasons = Vec::new();
        for (device, why) in record.devices.iter().zip(judged) {
            match why {
                None => paths.push(device.path.clone()),
                Some(why) => {
                    absent.push(device);
                    reasons.push(format!("device '{}', last at {} ({why})", device.name, device.describe()));
                }
            }
        }
        if !absent.is_empty() {
            let found = find_by_label(record, &absent);
            let is_complete = found.len() == absent.len();
            paths.extend(found);
            // Who left the pool since it was remembered is not waited for.
            let is_late = |paths: &[PathBuf]| {
                let assembly = assemble_with(paths, Access::ReadOnly, &options, log);
                assembly.map_or(true, |assembly| !assembly.unexpectedly_missing().is_empty())
            };
            if !is_complete && start.elapsed() < wait && is_late(&paths) {
                if !goes_on(&reasons.join("; ")) {
                    return refused("the command that began this mount was interrupted while it waited for devices");
                }
                std::thread::sleep(LATE_DEVICES_POLL);
                continue;
            }
        }
        if paths.is_empty() {
            let places: Vec<String> = record.devices.iter().map(DeviceRecord::describe).collect();
            return refused(format!(
                "none of the devices of the pool '{}' is there (last at {}); attach them, or name them where they are now",
                record.name,
                places.join(", ")
            ));
        }
        let mut assembly = assemble_with(&paths, access, &options, log)?;
        // Who was found elsewhere is not missed.
        let missing: Vec<String> = assembly.missing().iter().map(|entry| entry.id.to_string()).collect();
        absent.retain(|device| missing.contains(&device.id));
        assembly.nameless.extend(at_once(&absent, |device| written_over(record, device)).into_iter().flatten());
        return Ok(assembly);
    }
}

/// Why a remembered device is not where it was, or cannot be opened; none if it is and can.
fn why_unusable(record: &PoolRecord, device: &DeviceRecord, access: Access) -> Option<String> {
    if device.path.as_os_str().is_empty() {
        return Some("this machine was never told where it is".into());
    }
    match label(&device.path) {
        // The label is read more gently than the device is used.
        Ok(holds) if is_device_of(&holds, record, device) => {
            (!opens(&device.path, access)).then(|| "it cannot be opened".into())
        }
        Ok(Holds::Member(identity)) => {
            Some(format!("a device of the pool '{}' is there", identity.superblock.pool_name))
        }
        Ok(Holds::NothingOfStere) => Some("what is there is no device of stere".into()),
        Ok(_) => Some("it cannot be read".into()),
        // Somebody else has it, or this user may not: that is no missing device, and is told when it is opened. Else it is a dead disk,
        // or a name with nothing behind it.
        Err(error) => (!is_refusal(&error)).then(|| error.to_string()),
    }
}

/// Whether a device may be there and well, and only this process cannot have it.
fn is_refusal(error: &DeviceError) -> bool {
    let of_process = [libc::EACCES, libc::EPERM, libc::EROFS, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR];
    matches!(error, DeviceError::Busy { .. }) || error.os_error().is_some_and(|errno| of_process.contains(&errno))
}

/// Whether a device can be opened as it is to be used, as far as that is the device's affair.
fn opens(path: &Path, access: Access) -> bool {
    match open_device_with_retries(path, access) {
        Err(Error::Device(error)) => is_refusal(&error),
        // Opened, or refused in words: to be told.
        _ => true,
    }
}

/// Puts together what was named. A device that is there and cannot be opened is missing, as where a pool is remembered.
fn assemble_named(paths: &[PathBuf], access: Access, options: &AssembleOptions<'_>) -> Result<Assembly> {
    let (mut open, mut dead) = (Vec::new(), Vec::new());
    for (path, opens) in paths.iter().zip(at_once(paths, |path| opens(path, access))) {
        let judged = if opens { &mut open } else { &mut dead };
        judged.push(path.clone());
    }
    if open.is_empty() {
        return assemble_with(paths, access, options, None);
    }
    let mut assembly = assemble_with(&open, access, options, None)?;
    let cannot_be_opened = |path: PathBuf| {
        let error = label(&path).err().map_or_else(|| "refused".to_owned(), |error| error.to_string());
        Nameless { path: path.display().to_string(), found: format!("it cannot be opened ({error})") }
    };
    assembly.nameless.extend(dead.into_iter().map(cannot_be_opened));
    Ok(assembly)
}

/// What a device that may be in use by nobody says it is.
fn label(path: &Path) -> std::result::Result<Holds, DeviceError> {
    let options = FileOptions { access: Access::ReadOnly, direct: false, writer_threads: 0 };
    Ok(identify(&*stere_nbd::open(path, &options)?))
}

fn is_device_of(holds: &Holds, pool: &PoolRecord, device: &DeviceRecord) -> bool {
    match holds {
        Holds::Member(identity) => {
            identity.superblock.pool.to_string() == pool.id && identity.superblock.device.to_string() == device.id
        }
        // A dead disk, or a node behind which nothing is any more: the pool goes on as if it were not there.
        holds if holds.is_unreadable() => false,
        // Let the assembly say what is wrong with it.
        Holds::Damaged(_) | Holds::OtherVersion { .. } | Holds::Truncated(_) => true,
        Holds::NothingOfStere => false,
    }
}

/// What is to be said of a device of which nothing is left where it was.
fn written_over(pool: &PoolRecord, device: &DeviceRecord) -> Option<Nameless> {
    let held = match label(&device.path) {
        Ok(held) => held,
        // A node that cannot be reached is missing, and holds what it holds.
        Err(DeviceError::Unreachable { .. } | DeviceError::Silent { .. }) => return None,
        Err(_) if std::fs::symlink_metadata(&device.path).is_err() => return None,
        Err(error) => {
            let found = format!("it cannot be opened ({error})");
            return Some(Nameless { path: device.path.display().to_string(), found });
        }
    };
    let found = match held {
        Holds::NothingOfStere => format!("it holds nothing of device '{}' any more", device.name),
        holds if holds.is_unreadable() => "it cannot be read at all".into(),
        Holds::Member(identity) if identity.superblock.pool.to_string() != pool.id => {
            format!(
                "a device of the pool '{}' is there, where device '{}' was",
                identity.superblock.pool_name, device.name
            )
        }
        _ => return None,
    };
    Some(Nameless { path: device.path.display().to_string(), found })
}

/// Looks through the machine's block devices for these.
fn find_by_label(pool: &PoolRecord, absent: &[&DeviceRecord]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in block_devices() {
        let is_wanted = absent.iter().any(|device| is_device_with_id(&path, pool, device));
        if is_wanted {
            found.push(path);
        }
    }
    found
}

fn is_device_with_id(path: &Path, pool: &PoolRecord, device: &DeviceRecord) -> bool {
    label(path).is_ok_and(|holds| matches!(holds, Holds::Member(_)) && is_device_of(&holds, pool, device))
}

/// All block devices of the machine.
pub fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| Path::new("/dev").join(entry.file_name())).filter(|path| path.exists()).collect();
    paths.sort();
    paths
}

/// What is to be remembered of an assembled pool.
pub fn record_of(assembly: &Assembly, old: Option<&PoolRecord>) -> PoolRecord {
    let id = assembly.newest.pool.to_string();
    let known = old.filter(|record| record.id == id);
    let device = |entry: &stere_format::DeviceEntry| {
        let id = entry.id.to_string();
        let member = assembly.members.iter().find(|member| member.superblock.device == entry.id);
        let path = match member {
            Some(member) => absolute(Path::new(&member.path)),
            None => known
                .and_then(|record| record.devices.iter().find(|device| device.id == id))
                .map(|device| device.path.clone())
                .unwrap_or_default(),
        };
        let before = known.and_then(|record| record.devices.iter().find(|device| device.id == id));
        let serial = serial_of(&path).or_else(|| before.and_then(|device| device.serial.clone()));
        DeviceRecord { id, index: entry.index, name: entry.name.clone(), path, host: entry.host.clone(), serial }
    };
    PoolRecord {
        name: assembly.newest.pool_name.clone(),
        id,
        devices: assembly.entries.iter().map(device).collect(),
        choose: None,
        scrub: known.map(|record| record.scrub.clone()).unwrap_or_default(),
        is_reconcile_paused: known.is_some_and(|record| record.is_reconcile_paused),
        agreed: known.map_or_else(|| Some(Vec::new()), |record| record.agreed.clone()),
        // A log that the pool has no more is of no use.
        log: known.and_then(|record| record.log.clone()).filter(|_| assembly.tail.is_some()),
    }
}

/// The serial number of the disk that a block device is or is a part of, as the kernel tells it.
pub fn serial_of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let number = metadata.rdev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition lies within its disk.
    let places = [device.clone(), device.parent()?.to_owned()];
    let files = places.iter().flat_map(|place| [place.join("device/serial"), place.join("serial")]);
    let texts = files.filter_map(|file| fs::read_to_string(file).ok()).map(|text| text.trim().to_owned());
    texts.into_iter().find(|text| !text.is_empty())
}

/// The path from the root; an address as it is.
pub fn absolute(path: &Path) -> PathBuf {
    if stere_nbd::is_node(path) {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// How a command was told which pool is meant.
pub enum Target {
    Remembered(PoolRecord),
    Devices(Vec<PathBuf>),
}

impl Target {
    /// One word without a slash is a pool's name, unless only a file of that name is there.
    pub fn parse(registry: &Registry, words: &[String]) -> Result<Target> {
        let [word] = words else {
            return Ok(Target::Devices(words.iter().map(PathBuf::from).collect()));
        };
        let name = word.strip_prefix("LABEL=").unwrap_or(word);
        if let Some(id) = word.strip_prefix("UUID=") {
            let record = registry.list()?.into_iter().find(|record| record.id == id);
            return record.map(Target::Remembered).ok_or_else(|| {
                Error::Refused(format!(
                    "no pool with the id {id} is known here; `stere pool import DEVICE...` makes it known"
                ))
            });
        }
        match registry.find(name)? {
            Some(record) => Ok(Target::Remembered(record)),
            None if word.contains('/') || Path::new(word).exists() => Ok(Target::Devices(vec![PathBuf::from(word)])),
            None => registry.get(name).map(Target::Remembered),
        }
    }

    /// `prefer` names the device whose files count, where there are halves.
    pub fn assemble(&self, access: Access, wait: Duration, prefer: Option<&str>) -> Result<Assembly> {
        self.assemble_while(access, wait, prefer, &mut |_| true)
    }

    /// The same; `goes_on` hears what is waited for and tells whether it is still to be waited.
    pub fn assemble_while(
        &self,
        access: Access,
        wait: Duration,
        prefer: Option<&str>,
        goes_on: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Assembly> {
        match self {
            Target::Remembered(record) => assemble_remembered(record, access, wait, prefer, goes_on),
            Target::Devices(paths) => {
                for path in paths.iter().filter(|path| !stere_nbd::is_node(path)) {
                    fs::metadata(path).at("open this device", path)?;
                }
                assemble_named(paths, access, &AssembleOptions { prefer, ..AssembleOptions::default() })
            }
        }
    }
}
