//! `stere lose`: which files lose which bytes if devices are gone, by path, before it happens or after.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stere_naming::LostFile;
use stere_policy::Class;
use stere_store::Store;

use crate::cli::LoseArguments;
use crate::control::{self, Answer, Connection, Request};
use crate::devices::absolute;
use crate::error::{DATA_LOST, DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::size;
use crate::status::open_to_read;

/// Files sent at a time.
const BATCH: usize = 256;

/// A file that loses content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostLine {
    pub path: String,
    pub inode: u64,
    pub size_bytes: u64,
    pub lost_bytes: u64,
    /// Start and end of each.
    pub ranges: Vec<(u64, u64)>,
    pub has_more_ranges: bool,
}

/// What a loss means for a class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassLine {
    pub class: String,
    pub survives: bool,
    pub live_bytes: u64,
    /// In segments that lose something.
    pub touched_bytes: u64,
}

/// What is lost in all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LossReport {
    pub pool: String,
    /// Names of the devices and media that were asked about.
    pub devices: Vec<String>,
    /// Names of devices that are not there now.
    pub absent: Vec<String>,
    pub files: u64,
    pub lost_bytes: u64,
    /// Whether names stay, so that everything that is not lost can be reached.
    pub names_survive: bool,
    pub classes: Vec<ClassLine>,
}

impl LostLine {
    /// On one line.
    pub fn print(&self) {
        println!("lost: {}, {} of {}", self.path, size::show(self.lost_bytes), size::show(self.size_bytes));
    }
}

impl From<LostFile> for LostLine {
    fn from(file: LostFile) -> LostLine {
        LostLine {
            path: String::from_utf8_lossy(&file.path).into_owned(),
            inode: file.inode,
            size_bytes: file.size_bytes,
            lost_bytes: file.lost_bytes,
            ranges: file.ranges.into_iter().map(|range| (range.start, range.end)).collect(),
            has_more_ranges: file.has_more_ranges,
        }
    }
}

/// Tells what is lost with these devices (by id): the files to `send`, a batch at a time, and what it comes to. It breaks off when
/// nobody listens any more.
pub fn gather(
    store: &Store,
    pool: &str,
    ids: &[String],
    send: &mut dyn FnMut(Vec<LostLine>) -> ControlFlow<()>,
) -> Result<LossReport> {
    let entries = store.device_entries();
    let is_asked = |entry: &stere_format::DeviceEntry| ids.contains(&entry.id.to_string());
    let gone: Vec<u16> = entries.iter().filter(|entry| is_asked(entry)).map(|entry| entry.index).collect();
    let present: Vec<u16> = store.device_statistics().iter().map(|(index, _)| *index).collect();
    let names = |is_meant: &dyn Fn(&stere_format::DeviceEntry) -> bool| -> Vec<String> {
        entries.iter().filter(|entry| is_meant(entry)).map(|entry| entry.name.clone()).collect()
    };
    let volumes: Vec<_> =
        store.tier.media.volumes().into_iter().filter(|entry| ids.contains(&entry.id.to_string())).collect();
    let loss =
        store.loss_without(&|index| gone.contains(&index), volumes.iter().fold(0, |set, entry| set | entry.bit()));
    let classes = crate::report::classes(store);
    let class = |of: &stere_store::ClassLoss| ClassLine {
        class: Class::from_code(of.class).map_or_else(|| format!("class {}", of.class), |class| classes.name(class)),
        survives: of.touched_bytes == 0,
        live_bytes: of.live_bytes,
        touched_bytes: of.touched_bytes,
    };
    let mut report = LossReport {
        pool: pool.into(),
        devices: names(&is_asked).into_iter().chain(volumes.into_iter().map(|entry| entry.name)).collect(),
        absent: names(&|entry| !present.contains(&entry.index)),
        files: 0,
        lost_bytes: 0,
        names_survive: !loss.is_metadata_lost,
        classes: loss.classes.iter().map(class).collect(),
    };
    let mut batch: Vec<LostLine> = Vec::new();
    stere_naming::lost_files(store, &loss, &mut |file| {
        if !file.is_repeated {
            report.files += 1;
            report.lost_bytes += file.lost_bytes;
        }
        batch.push(file.into());
        if batch.len() < BATCH { ControlFlow::Continue(()) } else { send(std::mem::take(&mut batch)) }
    })?;
    if !batch.is_empty() {
        // Whether anybody listened to the last one is seen by who sends the report.
        let _last = send(batch);
    }
    Ok(report)
}

/// A device as some pool knows it.
struct Known {
    pool: String,
    id: String,
    name: String,
    path: PathBuf,
}

/// All devices of pools that are mounted or remembered here.
fn known_devices(registry: &Registry) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for record in registry.list()? {
        let device = |device: crate::registry::DeviceRecord| Known {
            pool: record.name.clone(),
            id: device.id,
            name: device.name,
            path: device.path,
        };
        known.extend(record.devices.into_iter().map(device));
    }
    for about in control::daemons(registry) {
        let Some(mut connection) = Connection::open(registry, &about.pool) else { continue };
        let Answer::Status(report) = connection.ask(Request::Status)? else { continue };
        let device = |device: &crate::report::DeviceReport| Known {
            pool: about.pool.clone(),
            id: device.id.clone(),
            name: device.name.clone(),
            path: absolute(Path::new(&device.path)),
        };
        let volume = |volume: &crate::tier::VolumeReport| Known {
            pool: about.pool.clone(),
            id: volume.id.clone(),
            name: volume.name.clone(),
            path: PathBuf::from(volume.place.strip_prefix("dir:").unwrap_or(&volume.place)),
        };
        known.retain(|known: &Known| known.pool != about.pool);
        known.extend(report.devices.iter().map(device));
        known.extend(report.volumes.iter().map(volume));
    }
    Ok(known)
}

/// The media of pools that are remembered and not mounted, which only they themselves tell.
fn known_media(registry: &Registry, known: &[Known]) -> Result<Vec<Known>> {
    let mut media = Vec::new();
    let mut pools: Vec<&str> = known.iter().map(|device| device.pool.as_str()).collect();
    pools.sort_unstable();
    pools.dedup();
    for pool in pools.into_iter().filter(|pool| control::about(registry, pool).is_none()) {
        // One that cannot be opened has none that anybody can tell.
        let Ok((_, opened, _)) = open_to_read(registry, &[pool.to_owned()]) else { continue };
        media.extend(opened.store.tier.media.volumes().into_iter().map(|entry| Known {
            pool: pool.to_owned(),
            id: entry.id.to_string(),
            path: PathBuf::from(entry.place.strip_prefix("dir:").unwrap_or(&entry.place)),
            name: entry.name,
        }));
    }
    Ok(media)
}

/// Which pool is meant, and which of its devices.
struct Chosen {
    pool: String,
    ids: Vec<String>,
}

fn same_path(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| absolute(path));
    real(one) == real(other)
}

/// Finds the devices that the words name: by path, by name, or `POOL` for the devices that are away already. None if no pool
/// that is known here has them.
fn choose(known: &[Known], words: &[String], pool: Option<&str>) -> Result<Option<Chosen>> {
    let mut pools: Vec<&str> = pool.into_iter().collect();
    let mut ids = Vec::new();
    for word in words {
        let is_meant = |device: &&Known| pool.is_none_or(|pool| device.pool == pool);
        let by_path = || known.iter().filter(is_meant).filter(|device| same_path(&device.path, Path::new(word)));
        let by_name = || known.iter().filter(is_meant).filter(|device| device.name == *word || device.id == *word);
        let mut found: Vec<&Known> = by_path().collect();
        if found.is_empty() {
            found = by_name().collect();
        }
        match found.as_slice() {
            [one] => {
                pools.push(&one.pool);
                ids.push(one.id.clone());
            }
            [] if known.iter().any(|device| device.pool == *word) => pools.push(word),
            [] if Path::new(word).exists() && pool.is_none() => return Ok(None),
            [] => {
                return refused(format!(
                    "no pool that is known here has a device or medium '{word}'; `stere device list POOL` names them"
                ));
            }
            _ => {
                return refused(format!(
                    "several pools have a device named '{word}'; give its path, or say which with --pool"
                ));
            }
        }
    }
    pools.sort_unstable();
    pools.dedup();
    match pools.as_slice() {
        [pool] => Ok(Some(Chosen { pool: (*pool).to_owned(), ids })),
        _ => Err(Error::Usage(format!("these are devices of several pools ({}); ask for one", pools.join(", ")))),
    }
}

pub fn run(registry: &Registry, arguments: &LoseArguments) -> Result<u8> {
    let mut known = known_devices(registry)?;
    let is_known = |word: &String| {
        let is_it = |device: &Known| device.name == *word || device.pool == *word || device.id == *word;
        known.iter().any(is_it) || std::fs::metadata(word).is_ok_and(|metadata| !metadata.is_dir())
    };
    if !arguments.devices.iter().all(is_known) {
        let media = known_media(registry, &known)?;
        known.extend(media);
    }
    let chosen = choose(&known, &arguments.devices, arguments.pool.as_deref())?;
    let mut printer = Printer { is_json: arguments.json, is_exact: arguments.bytes, files: 0 };
    let report = match chosen {
        Some(chosen) => match Connection::open(registry, &chosen.pool) {
            Some(connection) => from_daemon(connection, chosen.ids, &mut printer)?,
            None => {
                let (assembly, opened, _) = open_to_read(registry, std::slice::from_ref(&chosen.pool))?;
                gather(&opened.store, &assembly.newest.pool_name, &chosen.ids, &mut |batch| printer.print(&batch))?
            }
        },
        // Of a pool that is not known here: these devices are all there is.
        None => {
            let (assembly, opened, _) = open_to_read(registry, &arguments.devices)?;
            let ids: Vec<String> = assembly.members.iter().map(|member| member.superblock.device.to_string()).collect();
            gather(&opened.store, &assembly.newest.pool_name, &ids, &mut |batch| printer.print(&batch))?
        }
    };
    printer.finish(&report)?;
    // A forecast is no loss.
    Ok(if arguments.devices.iter().all(|word| *word == report.pool) && report.files > 0 { DATA_LOST } else { DONE })
}

fn from_daemon(mut connection: Connection, devices: Vec<String>, printer: &mut Printer) -> Result<LossReport> {
    connection.wait_without_limit()?;
    let mut answer = Some(connection.ask(Request::Lose { devices })?);
    loop {
        match answer {
            Some(Answer::LostFiles { files }) => {
                if printer.print(&files).is_break() {
                    return refused("nobody reads what is printed");
                }
            }
            Some(Answer::Loss(report)) => return Ok(report),
            Some(_) => {
                return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
            }
            None => return refused("the pool's daemon ended before it answered; see its log"),
        }
        answer = connection.next_answer()?;
    }
}

/// Prints files as they come, however many there are.
struct Printer {
    is_json: bool,
    is_exact: bool,
    files: u64,
}

impl Printer {
    fn print(&mut self, files: &[LostLine]) -> ControlFlow<()> {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        for file in files {
            let written = match self.is_json {
                true => {
                    let before = if self.files == 0 { "{\"files\":[\n" } else { ",\n" };
                    serde_json::to_string(file).map_err(Into::into).and_then(|line| write!(out, "{before}{line}"))
                }
                false => writeln!(out, "{}", self.line(file)),
            };
            self.files += 1;
            if written.is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn line(&self, file: &LostLine) -> String {
        let ranges: Vec<String> = file.ranges.iter().take(4).map(|(start, end)| format!("{start}..{end}")).collect();
        let more = if file.ranges.len() > 4 || file.has_more_ranges { ", ..." } else { "" };
        let what = if file.lost_bytes >= file.size_bytes { "all of it".into() } else { ranges.join(", ") + more };
        format!("{}: {} lost ({what})", file.path, size::show_as(file.lost_bytes, self.is_exact))
    }

    fn finish(&self, report: &LossReport) -> Result<()> {
        if self.is_json {
            let rest = serde_json::to_string(report).map_err(|error| Error::System(error.into()))?;
            let before = if self.files == 0 { "{\"files\":[" } else { "" };
            // The report is an object: its members follow those of the list.
            println!("{before}],\n{}", rest.replacen("\"files\":", "\"lost_files\":", 1).trim_start_matches('{'));
            return Ok(());
        }
        let names =
            if report.devices.is_empty() { "the devices that are away".into() } else { report.devices.join(", ") };
        if report.files == 0 {
            println!("without {names} the pool {} loses no file", report.pool);
        } else {
            let bytes = size::show_as(report.lost_bytes, self.is_exact);
            println!("without {names} the pool {} loses {bytes} in {} files", report.pool, report.files);
        }
        if !report.names_survive {
            println!("names are lost too: no device that is left holds all metadata");
        }
        for class in &report.classes {
            let live = size::show_as(class.live_bytes, self.is_exact);
            match class.survives {
                true => println!("class {}: survives, all {live}", class.class),
                false => println!(
                    "class {}: {} of {live} lie where something is lost",
                    class.class,
                    size::show_as(class.touched_bytes, self.is_exact)
                ),
            }
        }
        Ok(())
    }
}
