//! `stere lose`: which files lose which bytes if devices are gone, by path, before it happens or after.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::arguments::LoseArguments;
use crate::terminal::plain;
use stere_control::connection::{self, Connection};
use stere_control::lose::{LossReport, LostLine};
use stere_control::message::{Answer, Request};
use stere_machine::devices::absolute;
use stere_machine::error::{DATA_LOST, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;
use stere_online::lose::gather;
use stere_online::open::open_to_read;

/// A lost file on one line.
pub fn print_lost(line: &LostLine) {
    println!("lost: {}, {} of {}", plain(&line.path), size::show(line.lost_bytes), size::show(line.size_bytes));
}

/// A device as some pool knows it.
struct Known {
    pool: String,
    id: String,
    name: String,
    path: PathBuf,
    /// Where it stands, if that is known.
    host: String,
}

/// All devices of pools that are mounted or remembered here.
fn known_devices(registry: &Registry) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for record in registry.list()? {
        let device = |device: stere_machine::registry::DeviceRecord| Known {
            host: device.host(),
            pool: record.name.clone(),
            id: device.id,
            name: device.name,
            path: device.path,
        };
        known.extend(record.devices.into_iter().map(device));
    }
    for about in connection::daemons(registry) {
        let Some(mut connection) = Connection::open(registry, &about.pool) else { continue };
        let Answer::Status(report) = connection.ask(Request::Status)? else { continue };
        let device = |device: &stere_control::status::DeviceReport| Known {
            pool: about.pool.clone(),
            id: device.id.clone(),
            name: device.name.clone(),
            path: absolute(Path::new(&device.path)),
            host: device.host.clone(),
        };
        let volume = |volume: &stere_control::tier::report::VolumeReport| Known {
            pool: about.pool.clone(),
            id: volume.id.clone(),
            name: volume.name.clone(),
            path: PathBuf::from(volume.place.strip_prefix("dir:").unwrap_or(&volume.place)),
            host: String::new(),
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
    for pool in pools.into_iter().filter(|pool| connection::about(registry, pool).is_none()) {
        // One that cannot be opened has none that anybody can tell.
        let Ok((_, opened, _)) = open_to_read(registry, &[pool.to_owned()]) else { continue };
        media.extend(opened.store.tier.media.volumes().into_iter().map(|entry| Known {
            pool: pool.to_owned(),
            id: entry.id.to_string(),
            path: PathBuf::from(entry.place.strip_prefix("dir:").unwrap_or(&entry.place)),
            host: String::new(),
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
fn choose(known: &[Known], words: &[String], hosts: &[String], pool: Option<&str>) -> Result<Option<Chosen>> {
    let mut pools: Vec<&str> = pool.into_iter().collect();
    let mut ids = Vec::new();
    for host in hosts {
        let is_on = |device: &&Known| device.host == *host && pool.is_none_or(|pool| device.pool == pool);
        let found: Vec<&Known> = known.iter().filter(is_on).collect();
        if found.is_empty() {
            return refused(format!(
                "no pool that is known here has a device on host '{host}'; `stere device list POOL --json` tells where devices stand"
            ));
        }
        pools.extend(found.iter().map(|device| device.pool.as_str()));
        ids.extend(found.into_iter().map(|device| device.id.clone()));
    }
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
            [] if Path::new(word).exists() && pool.is_none() && hosts.is_empty() => return Ok(None),
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
    let chosen = choose(&known, &arguments.devices, &arguments.hosts, arguments.pool.as_deref())?;
    let mut printer = Printer { is_json: arguments.json, is_exact: arguments.bytes, files: 0 };
    let mut report = match chosen {
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
    report.hosts.clone_from(&arguments.hosts);
    printer.finish(&report)?;
    // A forecast is no loss.
    let is_now = arguments.hosts.is_empty() && arguments.devices.iter().all(|word| *word == report.pool);
    Ok(if is_now && report.files > 0 { DATA_LOST } else { DONE })
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
        let names = match report.hosts.as_slice() {
            [] => names,
            [host] => format!("host {host} ({names})"),
            hosts => format!("hosts {} ({names})", hosts.join(", ")),
        };
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
