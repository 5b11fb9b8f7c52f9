//! What is on which cartridge, in memory and in a file of this machine.
//!
//! The file is a memory and nothing more: without it every cartridge is looked at once, and says the same. So a line that is torn or
//! wrong ends what is believed of it. Each line is the CRC32C of what follows, in hexadecimal, and that. Invariant: a cartridge that is to be
//! written again from its beginning says so here before its label is touched (`Standing::Cleared`).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use stere_format::{CartridgeEntry, crc32c};

use crate::cartridge::Found;
use crate::error::RobotError;

/// What kind of cartridge it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// Nobody has looked.
    #[default]
    Unknown,
    Blank,
    Ours,
    /// Never written to.
    Foreign,
    /// Ours, with nothing alive, and perhaps without a label just now: it is being written again from its beginning.
    Cleared,
}

impl Standing {
    const WORDS: [(Standing, &'static str); 5] = [
        (Standing::Unknown, "unknown"),
        (Standing::Blank, "blank"),
        (Standing::Ours, "ours"),
        (Standing::Foreign, "foreign"),
        (Standing::Cleared, "cleared"),
    ];

    pub fn word(self) -> &'static str {
        Standing::WORDS.iter().find(|(standing, _)| *standing == self).map_or("unknown", |(_, word)| word)
    }

    fn from_word(word: &str) -> Option<Standing> {
        Standing::WORDS.iter().find(|(_, known)| *known == word).map(|(standing, _)| *standing)
    }
}

/// What is known of a cartridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub standing: Standing,
    pub files: u32,
    pub is_full: bool,
    /// Its last file was not ended.
    pub is_ragged: bool,
    /// Its last file is an index that is true.
    pub is_indexed: bool,
    /// As its label says.
    pub generation: u64,
    /// It cannot be written again from its beginning: its medium is written once, or is protected.
    pub is_kept: bool,
    /// Bytes of all objects that were put on it in this generation, dead or alive; fewer where it was only looked at.
    pub written_bytes: u64,
    /// Objects that count, by file.
    pub entries: BTreeMap<u32, CartridgeEntry>,
}

impl Known {
    /// It takes nothing more as it is, and can be written again from its beginning.
    pub fn is_reusable(&self) -> bool {
        let is_used_up = self.standing == Standing::Ours && self.is_full || self.standing == Standing::Cleared;
        is_used_up && self.entries.is_empty() && !self.is_kept
    }

    pub fn live_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.object_bytes).sum()
    }
}

#[derive(Default)]
pub struct Catalogue {
    cartridges: BTreeMap<String, Known>,
    names: BTreeMap<String, (String, u32)>,
    ordinal: u64,
    path: Option<PathBuf>,
    file: Option<File>,
}

impl Catalogue {
    /// Reads what the file tells; it is made if it is not there.
    pub fn open(path: Option<&Path>) -> Result<Catalogue, RobotError> {
        let mut catalogue = Catalogue { path: path.map(Path::to_owned), ..Catalogue::default() };
        let Some(path) = path else { return Ok(catalogue) };
        let text = fs::read(path).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let proven = line.split_once(' ').filter(|(sum, rest)| **sum == format!("{:08x}", crc32c(rest.as_bytes())));
            if proven.and_then(|(_, rest)| catalogue.apply(rest)).is_none() {
                tracing::warn!(path = %path.display(), "the catalogue is torn; cartridges are looked at again where they differ");
                break;
            }
        }
        catalogue.save_anew().map_err(|error| catalogue.failed(&error))?;
        Ok(catalogue)
    }

    fn failed(&self, error: &std::io::Error) -> RobotError {
        let path = self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        RobotError::Catalogue { path, why: error.to_string() }
    }

    /// Writes all of it anew, shortest.
    fn save_anew(&mut self) -> std::io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let mut lines = vec![format!("ordinal {}", self.ordinal)];
        for (barcode, known) in &self.cartridges {
            lines.push(line_of(barcode, known));
            lines.extend(known.entries.values().map(|entry| line_of_entry(barcode, entry)));
        }
        let text: String = lines.iter().map(|line| sealed(line)).collect();
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let partial = path.with_extension("partial");
        let mut file = File::create(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        self.file = Some(OpenOptions::new().append(true).open(&path)?);
        Ok(())
    }

    fn save(&mut self, lines: &[String]) -> Result<(), RobotError> {
        let text: String = lines.iter().map(|line| sealed(line)).collect();
        let outcome = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_data()),
            None => Ok(()),
        };
        outcome.map_err(|error| self.failed(&error))
    }

    /// Takes a line to heart; none if it is none.
    fn apply(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "ordinal" => self.ordinal = self.ordinal.max(words.next()?.parse().ok()?),
            "dead" => drop(self.remove(words.next()?)),
            "cartridge" => {
                let known = self.cartridges.entry(words.next()?.to_owned()).or_default();
                known.standing = Standing::from_word(words.next()?)?;
                known.files = words.next()?.parse().ok()?;
                let mut flag = || words.next().map(|word| word == "1");
                (known.is_full, known.is_ragged, known.is_indexed) = (flag()?, flag()?, flag()?);
                // Lines from before cartridges were used again end here.
                known.generation = words.next().map_or(Some(0), |word| word.parse().ok())?;
                known.is_kept = words.next().is_some_and(|word| word == "1");
                known.written_bytes = words.next().map_or(Some(0), |word| word.parse().ok())?;
                self.ordinal = self.ordinal.max(known.generation);
            }
            "forget" => self.forget(words.next()?),
            "object" => {
                let barcode = words.next()?.to_owned();
                let (file, unit_bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let (ordinal, object_bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let name = words.next()?.to_owned();
                self.enter(&barcode, CartridgeEntry { file, unit_bytes, ordinal, object_bytes, name });
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    fn forget(&mut self, barcode: &str) {
        if let Some(known) = self.cartridges.get_mut(barcode) {
            for entry in std::mem::take(&mut known.entries).into_values() {
                let place = self.names.remove(&entry.name);
                let is_its = place.is_some_and(|(there, file)| there == barcode && file == entry.file);
                assert!(is_its, "the name of an object that counts leads to it");
            }
        }
    }

    /// Enters an object, unless a newer one of its name is known. One of the same ordinal is the same one, on another cartridge.
    fn enter(&mut self, barcode: &str, entry: CartridgeEntry) {
        self.ordinal = self.ordinal.max(entry.ordinal);
        if self.find(&entry.name).is_some_and(|(_, known)| known.ordinal > entry.ordinal) {
            // If its index lists the old one, that must not outlive the new one.
            self.cartridges.entry(barcode.to_owned()).or_default().is_indexed = false;
            return;
        }
        self.remove(&entry.name);
        self.names.insert(entry.name.clone(), (barcode.to_owned(), entry.file));
        let before = self.cartridges.entry(barcode.to_owned()).or_default().entries.insert(entry.file, entry);
        if let Some(before) = before {
            // A file holds one object; what it was thought to hold is not there.
            let place = self.names.remove(&before.name);
            let is_its = place.is_some_and(|(there, file)| there == barcode && file == before.file);
            assert!(is_its, "the name of an object that counted led to it");
        }
    }

    /// Its object is dead from now on.
    fn remove(&mut self, name: &str) -> Option<CartridgeEntry> {
        let (barcode, file) = self.names.remove(name)?;
        let known = self.cartridges.get_mut(&barcode)?;
        known.is_indexed = false;
        let removed = known.entries.remove(&file);
        assert!(removed.as_ref().is_none_or(|entry| entry.name == name), "a name leads to its own object");
        removed
    }

    pub fn next_ordinal(&mut self) -> u64 {
        self.ordinal += 1;
        self.ordinal
    }

    /// Which cartridge has an object, and where.
    pub fn find(&self, name: &str) -> Option<(&str, &CartridgeEntry)> {
        let (barcode, file) = self.names.get(name)?;
        let entry = self.cartridges.get(barcode)?.entries.get(file)?;
        assert_eq!(entry.name, name, "a name leads to its own object");
        assert_eq!(entry.file, *file, "an object is entered under its own file");
        Some((barcode, entry))
    }

    pub fn known(&self, barcode: &str) -> Known {
        self.cartridges.get(barcode).cloned().unwrap_or_default()
    }

    pub fn cartridges(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.cartridges.iter()
    }

    /// Names and bytes of objects whose names begin so.
    pub fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        let from = self.names.range(prefix.to_owned()..);
        let these = from.take_while(|(name, _)| name.starts_with(prefix));
        these.filter_map(|(name, _)| self.find(name).map(|(_, entry)| (name.clone(), entry.object_bytes))).collect()
    }

    /// Changes what is known of a cartridge, but for its objects.
    pub fn change(&mut self, barcode: &str, change: impl FnOnce(&mut Known)) -> Result<(), RobotError> {
        let known = self.cartridges.entry(barcode.to_owned()).or_default();
        change(known);
        let line = line_of(barcode, known);
        // Indexes have ordinals too.
        self.save(&[line, format!("ordinal {}", self.ordinal)])
    }

    /// A cartridge got a new label: nothing else is on it.
    pub fn begin_anew(&mut self, barcode: &str, generation: u64) -> Result<(), RobotError> {
        assert!(generation == 0 || generation <= self.ordinal, "a generation is an ordinal that was given out");
        let known = self.cartridges.entry(barcode.to_owned()).or_default();
        assert!(known.entries.is_empty(), "{} objects count that a new label ends", known.entries.len());
        assert!(generation == 0 || generation > known.generation, "each generation is larger than the one before");
        *known = Known { standing: Standing::Ours, files: 1, generation, ..Known::default() };
        let line = line_of(barcode, known);
        self.save(&[line])
    }

    /// Whether this is what counts under its name.
    pub fn is_current(&self, barcode: &str, entry: &CartridgeEntry) -> bool {
        self.find(&entry.name).is_some_and(|(there, current)| there == barcode && current == entry)
    }

    /// A copy of an object was written that counts no more: it is dead from the beginning.
    pub fn add_dead(&mut self, barcode: &str, entry: &CartridgeEntry, is_full: bool) -> Result<(), RobotError> {
        self.change(barcode, |known| {
            (known.files, known.is_full, known.is_indexed) = (entry.file + 1, known.is_full || is_full, false);
            known.written_bytes += entry.object_bytes;
        })
    }

    /// An object was written: it is the last file of its cartridge.
    pub fn add(&mut self, barcode: &str, entry: CartridgeEntry, is_full: bool) -> Result<(), RobotError> {
        let line = line_of_entry(barcode, &entry);
        let known = self.cartridges.entry(barcode.to_owned()).or_default();
        if entry.file != known.files {
            // Another cartridge answers to the same name, or another drive wrote to it: what is on it is looked at anew.
            return Err(RobotError::Stale { barcode: barcode.to_owned() });
        }
        (known.files, known.is_full, known.is_indexed) = (entry.file + 1, known.is_full || is_full, false);
        known.written_bytes += entry.object_bytes;
        let of_cartridge = line_of(barcode, known);
        self.enter(barcode, entry);
        // Torn between the two, the cartridge has a file more than is known, and is looked at.
        self.save(&[line, of_cartridge])
    }

    /// What looking at the cartridge has shown.
    pub fn replace(&mut self, barcode: &str, found: Found) -> Result<(), RobotError> {
        self.forget(barcode);
        self.ordinal = self.ordinal.max(found.ordinal_max);
        let known = self.cartridges.entry(barcode.to_owned()).or_default();
        known.standing = Standing::Ours;
        (known.files, known.is_ragged, known.is_indexed) = (found.files, found.is_ragged, found.is_indexed);
        if known.generation != found.generation {
            // What was known is of another use of it.
            (known.generation, known.is_full, known.written_bytes) = (found.generation, false, 0);
        }
        let found_bytes = found.entries.iter().map(|entry| entry.object_bytes).sum();
        known.written_bytes = known.written_bytes.max(found_bytes);
        // Torn before its last line, this says that nobody knows what is on the cartridge, and never that nothing is.
        let unknown = Known { standing: Standing::Unknown, ..known.clone() };
        let last = line_of(barcode, known);
        let mut lines = vec![line_of(barcode, &unknown), format!("forget {barcode}")];
        for entry in found.entries {
            lines.push(line_of_entry(barcode, &entry));
            self.enter(barcode, entry);
        }
        lines.push(last);
        self.save(&lines)
    }

    pub fn kill(&mut self, name: &str) -> Result<(), RobotError> {
        match self.remove(name) {
            Some(_) => self.save(&[format!("dead {name}")]),
            None => Ok(()),
        }
    }
}

fn sealed(line: &str) -> String {
    format!("{:08x} {line}\n", crc32c(line.as_bytes()))
}

fn line_of(barcode: &str, known: &Known) -> String {
    let Known { standing, files, generation, written_bytes, .. } = known;
    let [full, ragged, indexed, kept] = [known.is_full, known.is_ragged, known.is_indexed, known.is_kept].map(u8::from);
    format!(
        "cartridge {barcode} {} {files} {full} {ragged} {indexed} {generation} {kept} {written_bytes}",
        standing.word()
    )
}

fn line_of_entry(barcode: &str, entry: &CartridgeEntry) -> String {
    let CartridgeEntry { file, unit_bytes, ordinal, object_bytes, name } = entry;
    format!("object {barcode} {file} {unit_bytes} {ordinal} {object_bytes} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(file: u32, ordinal: u64, name: &str) -> CartridgeEntry {
        CartridgeEntry { file, unit_bytes: 4096, ordinal, object_bytes: 10, name: name.into() }
    }

    #[test]
    fn a_file_holds_one_object() {
        let mut catalogue = Catalogue::default();
        for line in ["object A 1 4096 5 10 x", "object A 1 4096 6 10 y"] {
            catalogue.apply(line).expect("it is well formed");
        }
        assert!(catalogue.find("x").is_none(), "what is there is another object");
        assert_eq!(catalogue.find("y").map(|(barcode, entry)| (barcode, entry.file)), Some(("A", 1)));
        catalogue.kill("y").expect("it is in memory");
        assert!(catalogue.known("A").entries.is_empty());
    }

    #[test]
    fn it_is_remembered_up_to_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/catalogue");
        let mut catalogue = Catalogue::open(Some(&path)).unwrap();
        catalogue.replace("A", Found { files: 1, ..Found::default() }).unwrap();
        catalogue.add("A", entry(1, 5, "x"), false).unwrap();
        catalogue.add("A", entry(2, 6, "y"), false).unwrap();
        catalogue.kill("y").unwrap();
        catalogue.replace("B", Found { files: 4, entries: vec![entry(3, 9, "x")], ..Found::default() }).unwrap();
        let mut again = Catalogue::open(Some(&path)).unwrap();
        assert_eq!(again.find("x").map(|(barcode, entry)| (barcode, entry.file)), Some(("B", 3)), "the newest counts");
        assert_eq!((again.list(""), again.next_ordinal()), (vec![("x".into(), 10)], 10));
        assert_eq!((again.known("A").files, again.known("A").entries.len()), (3, 0));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 3]).unwrap();
        let torn = Catalogue::open(Some(&path)).unwrap();
        assert!(torn.find("x").is_none() && torn.known("A").files == 3);
        assert!(!torn.known("A").is_reusable());
    }

    /// P-307: of which cartridge nothing is known any more is never taken for one that nothing is on.
    #[test]
    fn a_torn_catalogue_gives_no_cartridge_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalogue");
        let mut catalogue = Catalogue::open(Some(&path)).unwrap();
        catalogue.replace("A", Found { files: 3, entries: vec![entry(1, 5, "x")], ..Found::default() }).unwrap();
        catalogue.change("A", |known| known.is_full = true).unwrap();
        catalogue.replace("A", Found { files: 3, entries: vec![entry(1, 5, "x")], ..Found::default() }).unwrap();
        catalogue.add("A", entry(3, 6, "y"), true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for end in 0..=text.len() {
            fs::write(&path, &text[..end]).unwrap();
            let torn = Catalogue::open(Some(&path)).unwrap();
            let known = torn.known("A");
            assert!(!known.is_reusable(), "{end} bytes of {text}");
            // Where files tell that all is known, all is.
            let expected = if known.standing == Standing::Ours { known.files as usize - 2 } else { 0 };
            assert!(known.entries.len() >= expected, "{end} bytes of {text}");
        }
    }
}
