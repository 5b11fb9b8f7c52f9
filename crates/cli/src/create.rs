//! `stere create`: files made, devices looked at, the pool made on them, and remembered.

use std::io::IsTerminal;
use std::path::PathBuf;

use stere_device::{FileDevice, FileOptions};
use stere_format::CHUNK_BYTES_MAX;
use stere_naming::{FileSystem, Io, SetMode};
use stere_policy::Class;
use stere_pool::{AssembleOptions, Assembly, Candidate, CreateOptions, MetadataCopies, NewDevice};

use crate::arguments::CreateArguments;
use crate::arguments::device::How;
use crate::change::confirm;
use crate::host;
use stere_control::spec::DeviceSpec;
use stere_machine::devices::{check_distinct, record_of};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry, check_name};
use stere_machine::{clock, shared_log, size};
use stere_online::new_device::new_device;

/// Memory for making a pool: an empty one needs little.
const MEMORY_BYTES: usize = 64 << 20;

/// Files made for this pool, taken away again if it is not made.
#[derive(Default)]
pub struct MadeFiles {
    paths: Vec<PathBuf>,
    pub keep: bool,
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for path in self.paths.iter().filter(|_| !self.keep) {
            if let Err(error) = std::fs::remove_file(path) {
                eprintln!("stere: {} was made and could not be removed: {error}", path.display());
            }
        }
    }
}

pub fn run(registry: &Registry, arguments: &CreateArguments) -> Result<u8> {
    check_name(&arguments.pool)?;
    let default_class = arguments.default_class.as_deref().map(class).transpose()?;
    let options = options(arguments)?;
    if let Some(known) = registry.find(&arguments.pool)?
        && !arguments.force
    {
        return refused(format!(
            "a pool named '{}' is known here (on {}); choose another name, or forget that one with `stere pool export {0}`",
            known.name,
            known.devices.first().map(|device| device.path.display().to_string()).unwrap_or_default()
        ));
    }
    let is_volume = |spec: &DeviceSpec| stere_machine::places::is_place(&spec.path.display().to_string());
    let (volumes, specs): (Vec<DeviceSpec>, Vec<DeviceSpec>) = arguments.devices.iter().cloned().partition(is_volume);
    let mut made = MadeFiles::default();
    for spec in &specs {
        make_file(spec, &mut made)?;
    }
    let paths: Vec<PathBuf> = specs.iter().map(|spec| spec.path.clone()).collect();
    check_distinct(&paths)?;
    check_device_names(&arguments.devices)?;
    let mut devices = specs.iter().map(new_device).collect::<Result<Vec<NewDevice>>>()?;
    drop_doubled_names(&mut devices);
    // Nothing is begun in the engine for a pool that cannot be made.
    stere_pool::check_new(&devices, &options)?;
    ask_before_destroying(&devices, arguments)?;
    let candidates: Vec<Candidate> =
        devices.iter().map(|new| Candidate { path: new.path.clone(), device: new.device.clone() }).collect();
    // From the operating system's generator; without it nothing here is safe to make.
    let mut randomness = |bytes: &mut [u8]| getrandom::fill(bytes).expect("the operating system gives random bytes");
    let pool = stere_pool::draw_pool_id(&mut randomness);
    let tail = arguments.log.as_deref().map(|log| shared_log::create(log, pool, &arguments.pool)).transpose()?;
    let options = CreateOptions { tail, pool: Some(pool), ..options };
    let made_pool = make(devices, &options, &mut randomness, default_class);
    if let (Err(_), Some(log)) = (&made_pool, &arguments.log) {
        shared_log::remove(log, pool);
    }
    made_pool?;
    made.keep = true;
    let tail = arguments.log.as_deref().map(|log| shared_log::open(log, pool)).transpose()?;
    let assembly = Assembly::with(candidates, &AssembleOptions { tail, ..AssembleOptions::default() })?;
    host::register(registry, arguments.log.as_deref(), pool)?;
    registry.save(&PoolRecord { log: arguments.log.clone(), ..record_of(&assembly, None) })?;
    tell(&assembly, default_class.unwrap_or_default());
    drop(assembly);
    add_volumes(registry, arguments, &volumes)
}

/// Makes the pool and its root directory, and closes it.
fn make(
    devices: Vec<NewDevice>,
    options: &CreateOptions,
    randomness: &mut dyn stere_pool::Randomness,
    default_class: Option<Class>,
) -> Result<()> {
    let store = std::sync::Arc::new(stere_pool::create(devices, options, randomness)?);
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    FileSystem::format_for(&store, clock::now(), user, group)?;
    if let Some(class) = default_class {
        set_default_class(&store, class)?;
    }
    Ok(store.close()?)
}

/// With `--force`: names what goes, and on a terminal asks. Scripts that say `--force` have said enough.
fn ask_before_destroying(devices: &[NewDevice], arguments: &CreateArguments) -> Result<()> {
    let found = |new: &NewDevice| new.foreign.as_ref().map(|found| format!("{}: {found}", new.path));
    let found: Vec<String> = devices.iter().filter_map(found).collect();
    if found.is_empty() || !arguments.force {
        return Ok(());
    }
    devices.iter().try_for_each(stere_machine::claim::refuse_if_used_elsewhere)?;
    let warning = format!("this is destroyed: {}", found.join("; "));
    match std::io::stdin().is_terminal() {
        true => confirm(&warning, How { dry_run: false, wait: false, yes: arguments.yes }),
        false => {
            eprintln!("stere: {warning}");
            Ok(())
        }
    }
}

/// Tertiary volumes join a pool that is there.
fn add_volumes(registry: &Registry, arguments: &CreateArguments, volumes: &[DeviceSpec]) -> Result<u8> {
    if volumes.is_empty() {
        return Ok(DONE);
    }
    let running = stere_online::open::open_here(registry, &arguments.pool, false)?;
    let names = running.add_volumes(&volumes.iter().collect::<Vec<_>>(), arguments.force)?;
    running.store.close()?;
    println!("media: {}", names.join(", "));
    Ok(DONE)
}

fn class(word: &str) -> Result<Class> {
    Class::BUILT_IN.into_iter().find(|class| class.text() == word).ok_or_else(|| {
        Error::Usage(format!("'{word}' is not a class; the classes are scratch, normal, precious and archive"))
    })
}

fn options(arguments: &CreateArguments) -> Result<CreateOptions> {
    let metadata_copies = match arguments.metadata_copies.as_deref() {
        None => MetadataCopies::Default,
        Some("all") => MetadataCopies::All,
        Some(text) => match text.parse() {
            Ok(copies) => MetadataCopies::Exactly(copies),
            Err(_) => return Err(Error::Usage(format!("--metadata-copies takes a number or 'all', not '{text}'"))),
        },
    };
    let chunk_bytes = match arguments.chunk_size {
        None => None,
        Some(bytes) => Some(u32::try_from(bytes).ok().filter(|bytes| *bytes <= CHUNK_BYTES_MAX).ok_or_else(|| {
            Error::Usage(format!(
                "a chunk of {} is not possible; choose a power of two from 1M to 16M",
                size::show(bytes)
            ))
        })?),
    };
    Ok(CreateOptions {
        pool_name: arguments.pool.clone(),
        chunk_bytes,
        metadata_copies,
        force: arguments.force,
        memory_bytes: MEMORY_BYTES,
        tail: None,
        pool: None,
    })
}

/// Makes the file of a device that was given a size. An existing file is used if it has that size.
pub fn make_file(spec: &DeviceSpec, made: &mut MadeFiles) -> Result<()> {
    let Some(size_bytes) = spec.size_bytes else { return Ok(()) };
    let path = &spec.path;
    if stere_nbd::is_node(path) {
        let failed = |error| Error::Refused(format!("{} cannot be made: {error}", path.display()));
        // What was made on a node stays: nobody can tell whether somebody uses it by now.
        return stere_nbd::provide(path, size_bytes).map_err(failed);
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == size_bytes => Ok(()),
        Ok(metadata) if metadata.is_file() => refused(format!(
            "{} exists and has {} bytes, not {size_bytes}; leave out size= to use it as it is, or name another path",
            path.display(),
            metadata.len()
        )),
        Ok(_) => refused(format!("{} is not a file, so it has its own size; leave out size=", path.display())),
        Err(_) => {
            drop(FileDevice::create(path, size_bytes, &FileOptions { writer_threads: 0, ..FileOptions::default() })?);
            made.paths.push(path.clone());
            Ok(())
        }
    }
}

fn check_device_names(specs: &[DeviceSpec]) -> Result<()> {
    for (at, spec) in specs.iter().enumerate().filter(|(_, spec)| !spec.name.is_empty()) {
        if let Some(other) = specs[..at].iter().find(|other| other.name == spec.name) {
            return refused(format!(
                "{} and {} would both be called '{}'; give one another name",
                other.path.display(),
                spec.path.display(),
                spec.name
            ));
        }
    }
    Ok(())
}

/// Names that were only guessed from paths give way to numbers where they collide.
fn drop_doubled_names(devices: &mut [NewDevice]) {
    for at in 1..devices.len() {
        if devices[..at].iter().any(|other| other.name == devices[at].name) {
            devices[at].name.clear();
        }
    }
}

fn set_default_class(store: &std::sync::Arc<stere_store::Store>, class: Class) -> Result<()> {
    let filesystem = FileSystem::new(store.clone(), stere_naming::Options::default())?;
    let caller = clock::own_caller(Io::BLOCKING);
    let (name, value) = (b"user.stere.class", class.text().into_bytes());
    filesystem.setxattr(&caller, stere_naming::ROOT, name, &value, SetMode::Any, false)?;
    let state = filesystem.getxattr(&caller, stere_naming::ROOT, b"user.stere.state")?;
    if let Some(why) = String::from_utf8_lossy(&state).strip_prefix(crate::policy::IMPOSSIBLE) {
        eprintln!("stere: warning: class {} is set and cannot be kept with these devices: {why}", class.text());
    }
    filesystem.close(&caller)?;
    Ok(())
}

fn tell(assembly: &Assembly, class: Class) {
    let devices = assembly.entries.len();
    let (_, survives) = stere_policy::Classes::default().wish(class).scheme(devices);
    let total: u64 = assembly.entries.iter().map(|entry| entry.size_bytes).sum();
    let name = &assembly.newest.pool_name;
    println!(
        "made pool {name}: {}, {}; a file of class {} survives {}",
        size::counted(devices, "device"),
        size::show(total),
        class.text(),
        size::loss_of_devices(survives.into())
    );
    println!("mount it: stere mount {name} MOUNTPOINT");
}
