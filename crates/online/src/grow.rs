//! A device that has grown, in an open pool: let go of, opened in its new size, and taken back as one that was away for a moment.
//!
//! Invariant: the device is let go of only if everything can be read without it meanwhile; if it cannot be taken back in its new size
//! it is taken back as it was.

use std::path::PathBuf;

use stere_device::Access;
use stere_format::{DeviceEntry, Superblock};
use stere_pool::{Holds, identify};
use stere_store::DeviceIn;

use crate::outcome::Outcome;
use crate::running::{Attached, Running};
use stere_control::change::Forecast;
use stere_machine::devices::open_device_with_retries;
use stere_machine::error::{Result, refused};
use stere_machine::size;

impl Running {
    /// Uses all of a device.
    pub(super) fn resize(&self, word: &str, dry_run: bool) -> Result<Outcome> {
        let (entry, attached, superblock) = in_use(self, word)?;
        let path = PathBuf::from(&attached.path);
        let found_bytes = size_at(&path);
        let Some(layout) = found_bytes.and_then(|bytes| superblock.layout.grown(bytes)) else {
            return refused(format!(
                "device '{}' is not larger than the pool knows ({}); make it larger first",
                entry.name,
                size::show(entry.size_bytes)
            ));
        };
        let said = format!(
            "device {} grows from {} to {}",
            entry.name,
            size::show(entry.size_bytes),
            size::show(layout.size_bytes)
        );
        if dry_run {
            return foretold(self, &entry, said, 0);
        }
        self.store.devices.detach_device(entry.index, false)?;
        drop((attached, self.note_detached(entry.index)));
        let grown = || -> Result<()> {
            let device = open_device_with_retries(&path, Access::ReadWrite)?;
            let layout = layout.grown(device.size_bytes()).unwrap_or(layout);
            let superblock = Superblock { layout, ..superblock.clone() };
            let read_cost = Self::class_of(&entry).read_cost();
            let device_in = DeviceIn { index: entry.index, superblock, device: device.clone(), read_cost };
            self.store.devices.attach_device(device_in)?;
            self.note_attached(entry.index, path.display().to_string(), device);
            Ok(())
        };
        match grown() {
            Ok(()) => Ok(Outcome::Done(said)),
            Err(error) => {
                self.bring_back(&entry, &path, false)?;
                Err(error)
            }
        }
    }
}

/// A device that is in use, and what it says of itself now.
pub(crate) fn in_use(running: &Running, word: &str) -> Result<(DeviceEntry, Attached, Superblock)> {
    let entry = running.find(word)?;
    let Some(attached) = running.attached(entry.index) else {
        return refused(format!("device '{}' is not in use, so it cannot be resized; bring it back first", entry.name));
    };
    match identify(&*attached.device) {
        Holds::Member(identity) => Ok((entry, attached, identity.superblock)),
        _ => refused(format!("{} does not give its superblock; look at `stere status`", attached.path)),
    }
}

/// What a change of its size would do: so much is moved for it.
pub(crate) fn foretold(running: &Running, entry: &DeviceEntry, said: String, bytes_to_move: u64) -> Result<Outcome> {
    let forecast = running.forecast(&crate::forecast::Plan::Return(entry))?;
    let seconds = bytes_to_move / running.mending.bytes_per_second().max(1);
    Ok(Outcome::Forecast(Forecast { text: said, bytes_to_move, seconds, ..forecast }))
}

/// How large what is there is now.
fn size_at(path: &std::path::Path) -> Option<u64> {
    use std::io::{Seek, SeekFrom};
    // Block devices tell their size by where their end is.
    std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()
}
