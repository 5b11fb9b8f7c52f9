//! From damaged blobs to the files that name them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_format::{BLOCK_BYTES, ExtentFlags, ExtentValue, Key, key};
use stere_log::Io;

use super::Scrubber;
use stere_engine::{Damage, Error, ScrubReport};

/// Where in a file a part of a blob is.
#[derive(Clone, Copy)]
struct Named {
    inode: u64,
    /// In the file, of the blob's first byte that the extent names.
    file_offset: u64,
    blob_offset: u64,
    length: u64,
}

impl Scrubber {
    /// Replaces damage that is told by blob with damage told by file.
    pub(super) fn name_files(&self, report: &mut ScrubReport) -> Result<(), Error> {
        let mut named: BTreeMap<u64, Vec<Named>> = BTreeMap::new();
        for damage in &report.unrepairable {
            if let Some(blob) = damage.blob {
                named.insert(blob, Vec::new());
            }
        }
        if named.is_empty() {
            return Ok(());
        }
        self.gather_near(report, &mut named)?;
        if !self.is_complete(&named)? {
            named.values_mut().for_each(Vec::clear);
            let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::BLOBS, 0, 0, 0));
            self.engine.for_each_resident_key(from, to, |key, value| gather(key, value, &mut named))?;
        }
        let damages = std::mem::take(&mut report.unrepairable);
        let known = damages.len();
        for damage in damages {
            let found = damage.blob.and_then(|blob| named.get(&blob)).map_or(&[][..], Vec::as_slice);
            let before = report.unrepairable.len();
            report.unrepairable.extend(found.iter().filter_map(|named| in_file(&damage, named)));
            if report.unrepairable.len() == before {
                report.unrepairable.push(Damage { inode: None, ..damage });
            }
        }
        let told = report.unrepairable.len();
        assert!(told >= known, "{known} places are damaged, and {told} are told");
        Ok(())
    }

    /// Asks the files that the rows' summaries name: mostly those are all.
    fn gather_near(&self, report: &ScrubReport, named: &mut BTreeMap<u64, Vec<Named>>) -> Result<(), Error> {
        let mut inodes: Vec<u64> = report.unrepairable.iter().filter_map(|damage| damage.inode).collect();
        inodes.sort_unstable();
        inodes.dedup();
        for inode in inodes {
            self.engine.for_each_resident_key(Key::extent(inode, 0), Key::extent(inode, u64::MAX), |key, value| {
                gather(key, value, named);
            })?;
        }
        Ok(())
    }

    /// Whether as many extents were found for each blob as name it.
    fn is_complete(&self, named: &BTreeMap<u64, Vec<Named>>) -> Result<bool, Error> {
        self.engine.view(Io::BLOCKING, |view| {
            for (blob, found) in named {
                match view.blob(*blob) {
                    Ok(handle) if found.len() as u64 == u64::from(handle.value.references) => {}
                    Err(Error::UnknownBlob { .. }) => {}
                    Ok(_) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            Ok(true)
        })
    }

    /// The file that names a blob first, if any does.
    pub(super) fn first_file_of(&self, blob: u64) -> Result<Option<u64>, Error> {
        let mut inode = None;
        let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::BLOBS, 0, 0, 0));
        let mut next = Some(from);
        while let (Some(start), None) = (next, inode) {
            let (last, found) = self.engine.view_through(Io::BLOCKING, |view| {
                let (mut last, mut found, mut count) = (None, None, 0);
                view.scan(start, to, |key, value| {
                    (last, count) = (Some(*key), count + 1);
                    if key.kind == key::kind::EXTENT && ExtentValue::decode(value).is_ok_and(|e| e.blob == blob) {
                        found = Some(key.object);
                    }
                    if found.is_some() || count == 1024 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                Ok::<_, Error>((last, found))
            })?;
            inode = found;
            next = last.and_then(Key::successor);
        }
        Ok(inode)
    }
}

fn gather(key: &Key, value: &[u8], named: &mut BTreeMap<u64, Vec<Named>>) {
    if key.kind != key::kind::EXTENT {
        return;
    }
    let Ok(extent) = ExtentValue::decode(value) else { return };
    if extent.flags != ExtentFlags::Plain {
        return;
    }
    if let Some(found) = named.get_mut(&extent.blob) {
        let rounded = u64::from(extent.length).next_multiple_of(BLOCK_BYTES as u64);
        found.push(Named {
            inode: key.object,
            file_offset: key.position.saturating_sub(rounded),
            blob_offset: u64::from(extent.blob_offset),
            length: u64::from(extent.length),
        });
    }
}

/// The part of damage to a blob that an extent shows.
fn in_file(damage: &Damage, named: &Named) -> Option<Damage> {
    let start = damage.offset.max(named.blob_offset);
    let end = (damage.offset + damage.length).min(named.blob_offset + named.length);
    (start < end).then(|| Damage {
        inode: Some(named.inode),
        offset: named.file_offset + (start - named.blob_offset),
        length: end - start,
        ..damage.clone()
    })
}
