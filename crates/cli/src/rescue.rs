//! `stere rescue`: everything that can still be found on whatever is left of a pool, copied into a directory.
//!
//! The devices are opened to be read, and nothing else. A device that cannot be opened is named and left out: one good device
//! may be all there is. What is copied and how is the rescue crate's business; `directory.rs` makes the files.

pub mod directory;
pub mod preserve;
pub mod volumes;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use stere_device::{Access, DeviceError};
use stere_format::FileKind;
use stere_rescue::{
    Attributes, Options, Report, Sink, SinkError, Source, Told, Verdict, VolumeSource, rescue_with_volumes as rescue,
};

use crate::arguments::RescueArguments;
use crate::json::to_json;
use crate::rescue::directory::DirectorySink;
use crate::rescue::preserve::Preserved;
use crate::terminal::plain;
use stere_control::connection;
use stere_machine::devices::{check_distinct, open_device};
use stere_machine::error::{At, DATA_LOST, DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

/// Longer lists are cut for people; `--json` has all.
const LINES_MAX: usize = 50;
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
struct Entry {
    path: String,
    inode: u64,
    kind: &'static str,
    size: u64,
}

/// The end of the name of the list of files that are not whole, behind that of the directory that was copied to.
const INCOMPLETE: &str = ".incomplete.txt";

#[derive(Debug, Serialize)]
struct Outcome<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// Devices that were named and could not be opened.
    unopened: &'a [String],
    /// What was not restored because it gives rights, and how it is.
    left_out: &'a [String],
    dry_run: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<Entry>,
}

pub fn run(registry: &Registry, arguments: &RescueArguments) -> Result<u8> {
    let (places, words): (Vec<String>, Vec<String>) =
        arguments.words.iter().cloned().partition(|word| stere_machine::places::is_place(word));
    if arguments.as_archived && !words.is_empty() {
        return Err(Error::Usage("--as-archived is for media alone; leave it out where there are devices".into()));
    }
    let secrets = crate::keys::secrets_of_rescue(arguments)?;
    let volumes = open_volumes(&places)?;
    let is_of_volumes = words.is_empty();
    if is_of_volumes && (arguments.as_archived || !have_metadata(&volumes)) {
        return volumes::run(arguments, volumes, &secrets);
    }
    let (sources, unopened) = if is_of_volumes { Default::default() } else { open_all(registry, &words)? };
    let options = Options { names_only: arguments.dry_run, secrets: &secrets };
    let mut left_out = Vec::new();
    let (report, entries) = match (&arguments.to, arguments.dry_run) {
        (_, true) => {
            let mut sink = Listing { entries: Vec::new(), is_kept: arguments.json, is_shown: !arguments.json };
            (rescue(sources, volumes, options, &mut sink)?, sink.entries)
        }
        (Some(directory), false) => {
            let mut sink = Watched::new(open_target(directory, Preserved::of(&arguments.preserve))?);
            let report = rescue(sources, volumes, options, &mut sink)?;
            sink.end();
            left_out = sink.sink.left_out();
            list_incomplete(directory, &report.damage.iter().map(damage_line).collect::<Vec<_>>())?;
            (report, Vec::new())
        }
        (None, false) => {
            return Err(Error::Usage(
                "rescue needs a place to copy to; give --to DIR, or --dry-run to see what is there".into(),
            ));
        }
    };
    match arguments.json {
        true => {
            let (report, unopened, left_out) = (&report, &unopened[..], &left_out[..]);
            let outcome = Outcome { report, unopened, left_out, dry_run: arguments.dry_run, entries };
            println!("{}", to_json(&outcome)?);
        }
        false => print(&report, &unopened, &left_out, arguments),
    }
    let is_whole = match is_of_volumes {
        // A copy of the metadata cannot show that there was nothing newer, and no device is expected.
        true => report.is_whole_as_found(),
        false => report.is_whole() && unopened.is_empty() && report.state.missing.is_empty(),
    };
    Ok(match (report.is_data_lost(), is_whole) {
        (true, _) => DATA_LOST,
        (false, false) => DEGRADED,
        (false, true) => DONE,
    })
}

fn open_volumes(places: &[String]) -> Result<Vec<VolumeSource>> {
    let open = |place: &String| {
        let volume = stere_machine::places::open_place(&stere_machine::places::whole_place(place)?)?;
        Ok(VolumeSource { path: place.clone(), volume })
    };
    places.iter().map(open).collect()
}

/// Whether any of them has a copy of the metadata. One that does not answer is told of by whoever reads it.
fn have_metadata(volumes: &[VolumeSource]) -> bool {
    volumes.iter().any(|source| source.volume.list("states/").is_ok_and(|found| !found.is_empty()))
}

/// Opens what can be opened. A device in use is refused: what changes while it is read cannot be rescued.
fn open_all(registry: &Registry, words: &[String]) -> Result<(Vec<Source>, Vec<String>)> {
    let paths: Vec<PathBuf> = match words {
        [name] if !name.contains('/') && !Path::new(name).exists() => {
            if let Some(about) = connection::about(registry, name) {
                let point = about.mountpoint.display().to_string();
                return refused(format!("the pool '{name}' is mounted on {point}; `stere umount {point}` first"));
            }
            registry.get(name)?.devices.into_iter().map(|device| device.path).collect()
        }
        _ => words.iter().map(PathBuf::from).collect(),
    };
    check_distinct(&paths)?;
    let (mut sources, mut unopened) = (Vec::new(), Vec::new());
    for path in &paths {
        match open_device(path, Access::ReadOnly) {
            Ok(device) => sources.push(Source { path: path.display().to_string(), device }),
            Err(error @ Error::Device(DeviceError::Busy { .. })) => return Err(error),
            Err(error) => unopened.push(error.to_string()),
        }
    }
    if sources.is_empty() {
        return refused(format!("no device could be opened: {}", unopened.join("; ")));
    }
    Ok((sources, unopened))
}

/// The directory to copy to, which must hold nothing yet.
pub fn open_target(directory: &Path, preserved: Preserved) -> Result<DirectorySink> {
    std::fs::create_dir_all(directory).at("create this directory", directory)?;
    let mut entries = std::fs::read_dir(directory).at("read this directory", directory)?;
    if entries.next().is_some() {
        let name = directory.display();
        return refused(format!("{name} is not empty; name a new directory, so that nothing is mixed up"));
    }
    DirectorySink::open(directory, preserved)
}

/// Leaves a list beside the directory that was copied to, of what in it is not whole: files have holes where something was not found, and look
/// like others. In the directory are the pool's files and nothing else, unless there is no other place.
pub fn list_incomplete(directory: &Path, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let directory = std::path::absolute(directory).map_err(Error::System)?;
    let mut beside = directory.clone().into_os_string();
    beside.push(INCOMPLETE);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = match write_new(Path::new(&beside), &text) {
        Ok(path) => path,
        Err(_) => write_new(&directory.join(INCOMPLETE.trim_start_matches('.')), &text).at("write into", &directory)?,
    };
    eprintln!("stere: files that are not whole are listed in {}", path.display());
    Ok(())
}

/// Writes a file of this name, with a number behind it where there is one.
fn write_new(path: &Path, text: &str) -> std::io::Result<PathBuf> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut number = 1;
    let mut name = path.to_owned();
    loop {
        match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                number += 1;
                name = path.with_extension(format!("{number}.txt"));
            }
            made => return made.and_then(|mut file| file.write_all(text.as_bytes())).map(|()| name),
        }
    }
}

fn print(report: &Report, unopened: &[String], left_out: &[String], arguments: &RescueArguments) {
    let (state, counts) = (&report.state, &report.counts);
    for text in unopened {
        println!("left out: {text}");
    }
    for device in &report.devices {
        println!("{}: {}", device.path, device.text);
    }
    if !state.missing.is_empty() && state.root != "volume" {
        println!("not given: {}", state.missing.join(", "));
    }
    let root = match state.root {
        "superblock" => "its newest checkpoint",
        "volume" => "a medium's copy of its metadata",
        "checkpoint" => "a checkpoint found in the segments",
        _ => "what was found in the segments",
    };
    let journal = format!("{} groups of changes from the journal", state.journal_groups);
    println!("pool {}: {root} (generation {}) and {journal}", state.pool, state.generation);
    for note in &state.notes {
        println!("note: {note}");
    }
    let verb = if arguments.dry_run { "found" } else { "copied" };
    println!(
        "{verb} {} directories, {} files, {} links, {} special files, {} further names; {}",
        counts.directories,
        counts.files,
        counts.symlinks,
        counts.specials,
        counts.hard_links,
        if arguments.dry_run { "contents not read".into() } else { size::show(counts.bytes) },
    );
    if counts.nameless > 0 {
        println!("{} without a name are in lost+found, under their inode numbers", counts.nameless);
    }
    for text in left_out {
        println!("left out: {text}");
    }
    list("problem", report.problems.iter().map(|problem| format!("{}: {}", problem.path, problem.what)));
    list("perhaps not the newest state", report.older.iter().cloned());
    list("damaged", report.damage.iter().map(damage_line));
    let verdict = match (report.is_data_lost(), report.is_whole()) {
        (true, _) => "some data is lost: see what is listed as damaged",
        (false, false) => "everything that was found is copied, but it may not be all or not the newest",
        (false, true) => "everything is whole",
    };
    println!("{verdict}");
}

fn damage_line(damage: &stere_rescue::Damage) -> String {
    let bytes: u64 = damage.ranges.iter().map(|range| range.length).sum();
    let shown: Vec<String> =
        damage.ranges.iter().take(8).map(|range| format!("{}+{}", range.offset, range.length)).collect();
    let more = if damage.ranges.len() > 8 { ", ..." } else { "" };
    match damage.ranges.is_empty() {
        true => format!("{}: {}", damage.path, damage.what),
        false => format!("{}: {bytes} bytes: {} ({}{more})", damage.path, damage.what, shown.join(", ")),
    }
}

pub fn list(what: &str, lines: impl ExactSizeIterator<Item = String>) {
    let count = lines.len();
    for line in lines.take(LINES_MAX) {
        println!("{what}: {line}");
    }
    if count > LINES_MAX {
        println!("{what}: and {} more; --json lists all", count - LINES_MAX);
    }
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharacterDevice => "character device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::File => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

/// A sink that lists, at most.
pub struct Listing {
    entries: Vec<Entry>,
    is_kept: bool,
    is_shown: bool,
}

impl Listing {
    /// One that says nothing: only what cannot be read is of interest.
    pub fn silent() -> Listing {
        Listing { entries: Vec::new(), is_kept: false, is_shown: false }
    }
}

impl Sink for Listing {
    fn enter(&mut self, _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn leave(&mut self, _: Option<&Attributes>) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn create(&mut self, _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn reopen(&mut self, _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: Option<u64>, _: Option<&Attributes>) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn symlink(&mut self, _: &[u8], _: &[u8], _: &Attributes) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn special(&mut self, _: &[u8], _: u32, _: &Attributes) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn link(&mut self, _: &[u8], _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn told(&mut self, told: &Told<'_>) {
        let path = String::from_utf8_lossy(told.path).into_owned();
        if told.path.is_empty() {
            return;
        }
        let (inode, kind, size) = (told.inode, kind_word(told.kind), told.size);
        if self.is_shown {
            println!("{kind:16} {size:>14} {}", plain(&path));
        }
        if self.is_kept {
            self.entries.push(Entry { path, inode, kind, size });
        }
    }
}

/// The directory, with a line on a terminal that tells how far it is.
struct Watched {
    sink: DirectorySink,
    is_terminal: bool,
    last: Instant,
    count: u64,
    bytes: u64,
    damaged: u64,
}

impl Watched {
    fn new(sink: DirectorySink) -> Watched {
        let is_terminal = std::io::stderr().is_terminal();
        Watched { sink, is_terminal, last: Instant::now(), count: 0, bytes: 0, damaged: 0 }
    }

    fn show(&mut self) {
        if self.is_terminal && self.last.elapsed() >= PROGRESS_EVERY {
            self.last = Instant::now();
            eprint!("\r{} copied, {}, {} damaged  ", self.count, size::show(self.bytes), self.damaged);
            // A progress line that cannot be shown is nothing to stop for.
            drop(std::io::stderr().flush());
        }
    }

    fn end(&self) {
        if self.is_terminal {
            eprintln!();
        }
    }
}

impl Sink for Watched {
    fn enter(&mut self, name: &[u8]) -> std::result::Result<(), SinkError> {
        self.sink.enter(name)
    }

    fn leave(&mut self, attributes: Option<&Attributes>) -> std::result::Result<(), SinkError> {
        self.sink.leave(attributes)
    }

    fn create(&mut self, name: &[u8]) -> std::result::Result<(), SinkError> {
        self.sink.create(name)
    }

    fn reopen(&mut self, path: &[u8]) -> std::result::Result<(), SinkError> {
        self.sink.reopen(path)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> std::result::Result<(), SinkError> {
        self.bytes += bytes.len() as u64;
        self.show();
        self.sink.write(offset, bytes)
    }

    fn finish(&mut self, size: Option<u64>, attributes: Option<&Attributes>) -> std::result::Result<(), SinkError> {
        self.sink.finish(size, attributes)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], it: &Attributes) -> std::result::Result<(), SinkError> {
        self.sink.symlink(name, target, it)
    }

    fn special(&mut self, name: &[u8], rdev: u32, it: &Attributes) -> std::result::Result<(), SinkError> {
        self.sink.special(name, rdev, it)
    }

    fn link(&mut self, existing: &[u8], name: &[u8]) -> std::result::Result<(), SinkError> {
        self.sink.link(existing, name)
    }

    fn told(&mut self, told: &Told<'_>) {
        self.count += 1;
        self.damaged += u64::from(told.verdict == Verdict::Damaged);
        self.show();
    }
}
