//! Rescue from media that have no copy of the metadata: no device, no tree, no pool. What `docs/format/volume.md` and `row.md`
//! say is all that is used.
//!
//! Objects are segments whose rows tell in their summaries what they hold, and catalogues tell names. Of what lies at the same place of
//! a file the newest blob counts. Invariants: objects are hostile input; every byte that is written matched its checksum; no name leads
//! out of the directory that is copied to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use stere_device::{MediumWait, Volume};
use stere_format::{
    BLOCK_BYTES, BlobEncoding, BlockBitmap, CHUNK_BYTES_MAX, ChunkHeader, FileKind, RecordSubject, RowHeader, Summary,
    VolumeLabel, block_checksums, record_checksum,
};
use stere_rescue::{Place, Secret, Unlocked, VolumeSource};

use crate::arguments::RescueArguments;
use crate::json::to_json;
use stere_machine::error::{At, DATA_LOST, DEGRADED, DONE, Error, Result, refused};
use stere_machine::places::{open_place, whole_place};
use stere_machine::size;

/// A line of a catalogue.
#[derive(Debug, Clone, Deserialize)]
struct Line {
    inode: u64,
    path: Option<String>,
    path_hex: Option<String>,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: i64,
}

/// A record of a file, and where it is.
#[derive(Debug, Clone)]
struct Record {
    object: usize,
    blob: u64,
    at: u64,
    offset: usize,
    length: usize,
    crc32c: u32,
    encoding: BlobEncoding,
    logical_bytes: usize,
    present: BlockBitmap,
}

struct Object {
    volume: Arc<dyn Volume>,
    name: String,
    length: u64,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    volumes: Vec<String>,
    segments: u64,
    damaged_objects: Vec<String>,
    files: u64,
    nameless: u64,
    bytes: u64,
    /// Files of which something that was found could not be read.
    damaged: Vec<String>,
    /// Files of which something was never archived, or that have holes.
    incomplete: Vec<String>,
    problems: Vec<String>,
}

/// Blob, sequence of its row, object, and where in it.
type Age = (u64, u64, usize, usize);

#[derive(Default)]
struct Found {
    objects: Vec<Object>,
    /// By inode; newest blobs last, of each the newest row: what was moved since is not newer than what was written over it.
    records: BTreeMap<u64, BTreeMap<Age, Record>>,
    /// By inode, with the segment and sequence of the catalogue.
    lines: BTreeMap<u64, ((u64, u64), Line)>,
    unlocked: Unlocked,
    outcome: Outcome,
    preserved: crate::rescue::preserve::Preserved,
}

/// The keys that were given are opened with what the volumes have of the pool's metadata.
fn unlocked(volumes: Vec<VolumeSource>, secrets: &[Secret]) -> Result<Unlocked> {
    match secrets.is_empty() {
        true => Ok(Unlocked::default()),
        false => Ok(stere_rescue::unlock_by_volumes(volumes, secrets)?),
    }
}

/// Each file as it was when it went down.
pub fn run(arguments: &RescueArguments, volumes: Vec<VolumeSource>, secrets: &[Secret]) -> Result<u8> {
    let mut found = Found { unlocked: unlocked(volumes, secrets)?, ..Found::default() };
    for word in &arguments.words {
        found.gather(open_place(&whole_place(word)?)?)?;
    }
    if arguments.dry_run {
        for (_, line) in found.lines.values() {
            println!("{:>14} {}", line.size, shown(line));
        }
    } else {
        let Some(to) = &arguments.to else {
            return Err(Error::Usage("rescue needs a place to copy to; give --to DIR, or --dry-run".into()));
        };
        found.preserved = crate::rescue::preserve::Preserved::of(&arguments.preserve);
        drop(crate::rescue::open_target(to, found.preserved)?);
        found.copy(to)?;
        let lost = found.outcome.damaged.iter().map(|path| format!("{path}: damaged"));
        let holes =
            found.outcome.incomplete.iter().map(|path| format!("{path}: with holes, or not archived as a whole"));
        crate::rescue::list_incomplete(to, &lost.chain(holes).collect::<Vec<_>>())?;
    }
    let outcome = &found.outcome;
    match arguments.json {
        true => println!("{}", to_json(outcome)?),
        false => print(outcome),
    }
    let is_lost = !outcome.damaged.is_empty() || !outcome.damaged_objects.is_empty();
    let is_whole = outcome.incomplete.is_empty() && outcome.problems.is_empty() && outcome.nameless == 0;
    Ok(match (is_lost, is_whole) {
        (true, _) => DATA_LOST,
        (false, false) => DEGRADED,
        (false, true) => DONE,
    })
}

fn print(outcome: &Outcome) {
    outcome.volumes.iter().for_each(|text| println!("{text}"));
    println!(
        "copied {} files, {}, from {} segments, as they were when they were copied out; {} without a name are in lost+found",
        outcome.files,
        size::show(outcome.bytes),
        outcome.segments,
        outcome.nameless
    );
    crate::rescue::list("bad object", outcome.damaged_objects.iter().cloned());
    crate::rescue::list("damaged", outcome.damaged.iter().cloned());
    crate::rescue::list("with holes, or not archived as a whole", outcome.incomplete.iter().cloned());
    crate::rescue::list("problem", outcome.problems.iter().cloned());
}

fn shown(line: &Line) -> String {
    line.path.clone().or_else(|| line.path_hex.clone()).unwrap_or_default()
}

/// A path below the directory that is copied to; none for one that would lead elsewhere.
fn relative(line: &Line) -> Option<PathBuf> {
    let bytes = match (&line.path, &line.path_hex) {
        (Some(path), _) => path.clone().into_bytes(),
        (None, Some(hex)) => {
            let digit = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
            (0..hex.len() / 2).map(digit).collect::<Option<Vec<u8>>>()?
        }
        (None, None) => return None,
    };
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
    let names = path.components().filter(|component| *component != Component::RootDir);
    let is_plain = |component: &Component<'_>| matches!(component, Component::Normal(_));
    let path: PathBuf = names.clone().collect();
    (names.clone().count() > 0 && names.clone().all(|component| is_plain(&component))).then_some(path)
}

impl Found {
    fn gather(&mut self, volume: Arc<dyn Volume>) -> Result<()> {
        let failed = |error: stere_device::VolumeError| Error::Refused(error.to_string());
        let mut bytes = vec![0; volume.length(VolumeLabel::OBJECT).map_err(failed)?.unwrap_or(0).min(4096) as usize];
        let said = match volume.get(VolumeLabel::OBJECT, 0, &mut bytes, &MediumWait::NONE) {
            Ok(()) => VolumeLabel::decode(&bytes).ok(),
            Err(_) => None,
        };
        self.outcome.volumes.push(match said {
            Some(label) => format!("{}: medium '{}' of the pool '{}'", volume.describe(), label.name, label.pool_name),
            None => format!("{}: no good label", volume.describe()),
        });
        let all = volume.list("").map_err(failed)?;
        if !all.iter().any(|(name, _)| stere_format::segment_of_object(name).is_some()) {
            return refused(format!("{} holds no segments; name the directory of a medium", volume.describe()));
        }
        for (name, length) in all {
            if let Some(of) = catalogue_of(&name) {
                self.read_catalogue(&*volume, &name, length, of);
            } else if stere_format::segment_of_object(&name).is_some() {
                self.objects.push(Object { volume: volume.clone(), name, length });
                self.read_segment(self.objects.len() - 1);
            }
        }
        Ok(())
    }

    fn read_catalogue(&mut self, volume: &dyn Volume, name: &str, length: u64, of: (u64, u64)) {
        let mut bytes = vec![0; length.min(64 << 20) as usize];
        if let Err(error) = volume.get(name, 0, &mut bytes, &MediumWait::NONE) {
            self.outcome.problems.push(error.to_string());
            return;
        }
        for text in stere_format::catalogue_lines(&bytes) {
            let line = text.map_err(|error| error.to_string());
            match line.and_then(|text| serde_json::from_slice::<Line>(text).map_err(|error| error.to_string())) {
                // What was written later knows better.
                Ok(line) => {
                    let known = self.lines.entry(line.inode).or_insert_with(|| (of, line.clone()));
                    if known.0.1 <= of.1 {
                        *known = (of, line);
                    }
                }
                Err(error) => self.outcome.problems.push(format!("{name}: {error}")),
            }
        }
    }

    fn read_object(&self, object: usize) -> Option<Vec<u8>> {
        let Object { volume, name, length } = &self.objects[object];
        let mut bytes = vec![0; (*length).min(u64::from(CHUNK_BYTES_MAX)) as usize];
        volume.get(name, 0, &mut bytes, &MediumWait::NONE).ok()?;
        Some(bytes)
    }

    /// Notes which records an object holds.
    fn read_segment(&mut self, object: usize) {
        self.outcome.segments += 1;
        let name = self.objects[object].name.clone();
        let Some(bytes) = self.read_object(object) else {
            self.outcome.damaged_objects.push(name);
            return;
        };
        let of = stere_format::segment_of_object(&name);
        let header = bytes.get(..ChunkHeader::SIZE).and_then(|header| ChunkHeader::decode(header).ok());
        let mut is_good = header.is_some_and(|header| Some((header.segment, header.sequence)) == of);
        // Rows are looked for block by block where one is damaged.
        let mut at = ChunkHeader::SIZE;
        while at < bytes.len() {
            let row = bytes.get(at..at + RowHeader::SIZE).and_then(|header| RowHeader::decode(header).ok());
            let height = row.as_ref().and_then(|row| self.note_row(object, &bytes, at, row));
            is_good &= height.is_some();
            at += height.unwrap_or(1).max(1) as usize * BLOCK_BYTES;
        }
        if !is_good {
            self.outcome.damaged_objects.push(name);
        }
    }

    fn note_row(&mut self, object: usize, bytes: &[u8], at: usize, row: &RowHeader) -> Option<u32> {
        let start = at + row.summary_offset as usize;
        let summary = bytes.get(start..start + row.summary_length as usize)?;
        for entry in Summary::decode(row, summary).ok()? {
            let RecordSubject::Blob { blob, inode, file_offset, logical_bytes, encoding, present } = entry.subject
            else {
                continue;
            };
            let offset = at + entry.offset as usize;
            let record = Record {
                object,
                blob,
                at: file_offset,
                offset,
                length: entry.length as usize,
                crc32c: entry.crc32c,
                encoding,
                logical_bytes: logical_bytes as usize,
                present,
            };
            self.records.entry(inode).or_default().insert((blob, row.sequence, object, offset), record);
        }
        Some(row.row_height)
    }

    fn copy(&mut self, to: &Path) -> Result<()> {
        let inodes: Vec<u64> = self.records.keys().chain(self.lines.keys()).copied().collect();
        let mut done = std::collections::BTreeSet::new();
        for inode in inodes {
            if done.insert(inode) {
                self.copy_file(to, inode)?;
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, to: &Path, inode: u64) -> Result<()> {
        let line = self.lines.get(&inode).map(|(_, line)| line.clone());
        // What a directory has are bundles of names that were put away; they are no content of it.
        if line.as_ref().is_some_and(|line| FileKind::from_mode(line.mode) == Some(FileKind::Directory)) {
            self.records.remove(&inode);
            return Ok(());
        }
        let path = line.as_ref().and_then(relative);
        self.outcome.nameless += u64::from(path.is_none());
        let below = path.unwrap_or_else(|| Path::new("lost+found").join(inode.to_string()));
        let full = to.join(&below);
        let name = below.display().to_string();
        if let Some(directory) = full.parent() {
            fs::create_dir_all(directory).at("make the directory", directory)?;
        }
        let file = match File::create_new(&full) {
            Ok(file) => file,
            Err(error) => {
                self.outcome.problems.push(format!("{name} (inode {inode}) cannot be made: {error}"));
                return Ok(());
            }
        };
        let records = self.records.remove(&inode).unwrap_or_default();
        let (mut covered, mut is_damaged) = (0, false);
        let mut good = std::collections::BTreeSet::new();
        let mut bad = Vec::new();
        let mut cache: Option<(usize, Vec<u8>)> = None;
        for record in records.into_values() {
            if cache.as_ref().is_none_or(|(object, _)| *object != record.object) {
                cache = self.read_object(record.object).map(|bytes| (record.object, bytes));
            }
            let content = cache.as_ref().and_then(|(_, bytes)| content_of(&self.unlocked, inode, &record, bytes));
            let Some(content) = content else {
                bad.push(record.blob);
                continue;
            };
            covered += write_present(&file, &record, &content).at("write", &full)?;
            good.insert(record.blob);
        }
        // Another volume may have had it right.
        is_damaged |= bad.iter().any(|blob| !good.contains(blob));
        if let Some(line) = &line {
            file.set_len(line.size).at("give its size to", &full)?;
            self.restore_attributes(&file, &full, line);
            if covered < line.size {
                self.outcome.incomplete.push(name.clone());
            }
        }
        self.outcome.files += 1;
        self.outcome.bytes += file.metadata().map_or(0, |metadata| metadata.len());
        if is_damaged {
            self.outcome.damaged.push(name);
        }
        Ok(())
    }

    fn restore_attributes(&mut self, file: &File, path: &Path, line: &Line) {
        if rustix::process::geteuid().is_root() && self.preserved.owners {
            let owner = (rustix::fs::Uid::from_raw(line.uid), rustix::fs::Gid::from_raw(line.gid));
            if let Err(error) = rustix::fs::fchown(file, Some(owner.0), Some(owner.1)) {
                self.outcome.problems.push(format!("{}: its owner cannot be set: {error}", path.display()));
            }
        }
        let mode = file.set_permissions(fs::Permissions::from_mode(self.preserved.mode(line.mode)));
        let time = u64::try_from(line.mtime).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let time = time.map_or(Ok(()), |time| file.set_modified(time));
        if let Err(error) = mode.and(time) {
            self.outcome.problems.push(format!("{}: mode or time cannot be set: {error}", path.display()));
        }
    }
}

fn catalogue_of(name: &str) -> Option<(u64, u64)> {
    let rest = name.strip_prefix("catalogue/")?;
    stere_format::segment_of_object(&format!("segments/{rest}"))
}

/// The content of a record, whole blocks of it where it is stored trimmed; none if its checksum is wrong.
fn content_of(unlocked: &Unlocked, inode: u64, record: &Record, object: &[u8]) -> Option<Vec<u8>> {
    let stored = object.get(record.offset..record.offset + record.length)?;
    if record_checksum(&block_checksums(stored), stored.len()) != record.crc32c {
        return None;
    }
    if record.encoding == BlobEncoding::PLAIN {
        return Some(stored.to_vec());
    }
    let logical_bytes = u32::try_from(record.logical_bytes).ok()?;
    let place = Place { inode, offset: record.at, logical_bytes, encoding: record.encoding.0 };
    unlocked.content(&place, stored.to_vec())
}

/// Writes what a record has; how many bytes those were.
fn write_present(file: &File, record: &Record, content: &[u8]) -> std::io::Result<u64> {
    if content.len() == record.logical_bytes {
        file.write_all_at(content, record.at)?;
        return Ok(content.len() as u64);
    }
    let mut from = 0;
    for block in record.present.iter() {
        let start = block as usize * BLOCK_BYTES;
        let length = BLOCK_BYTES.min(record.logical_bytes.saturating_sub(start));
        let Some(bytes) = content.get(from..from + length) else { break };
        file.write_all_at(bytes, record.at + start as u64)?;
        from += length;
    }
    Ok(from as u64)
}
