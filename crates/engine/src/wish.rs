//! On how many devices metadata shall lie, where somebody said so: kept in the pool, honoured by every mount.
//!
//! Without a wish the number is what the mount was told (`StoreOptions`), or what is usual for the devices that the pool has by now
//! if that is more: a pool that grows from one disk to two shall not lose its names with the first. What the devices that are there
//! cannot give is fitted, as for data; it follows when they come back.

use stere_format::{DeviceState, Key, Scheme, WIDTH_MAX};
use stere_log::Io;

use crate::error::Error;
use crate::places::Places;

/// On how many devices metadata shall lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataWish {
    All,
    Copies(u8),
}

/// Copies of metadata unless somebody says otherwise.
const METADATA_COPIES_USUAL: usize = 3;

/// Of what two copies lie on, a third is worth having only on a device of at least this part of the pool: metadata that finds
/// no room on one of its devices stops the whole pool.
const THIRD_COPY_DIVISOR: u64 = 64;

/// How many copies of metadata are usual on devices of these sizes.
pub fn usual_metadata_copies(sizes_bytes: &[u64]) -> usize {
    let needed = sizes_bytes.iter().sum::<u64>() / THIRD_COPY_DIVISOR;
    let large = sizes_bytes.iter().filter(|size| **size >= needed).count();
    large.clamp(2, METADATA_COPIES_USUAL).min(sizes_bytes.len())
}

/// How `All` is written.
const ALL: u8 = u8::MAX;

impl MetadataWish {
    fn code(self) -> u8 {
        match self {
            MetadataWish::All => ALL,
            MetadataWish::Copies(copies) => copies,
        }
    }

    /// Whatever is no wish is none: a later version may know more.
    fn from_code(code: u8) -> Option<MetadataWish> {
        match code {
            ALL => Some(MetadataWish::All),
            copies if (1..=WIDTH_MAX as u8).contains(&copies) => Some(MetadataWish::Copies(copies)),
            _ => None,
        }
    }
}

impl Places<'_> {
    /// The scheme that metadata shall have.
    pub fn meta_scheme(&self) -> Scheme {
        let copies = match *self.engine.metadata_wish.lock() {
            None if !self.engine.options.metadata_follows_devices => return self.engine.options.meta_scheme,
            None => usual_metadata_copies(&self.staying_sizes()).max(self.engine.options.meta_scheme.width()),
            Some(MetadataWish::Copies(copies)) => usize::from(copies),
            Some(MetadataWish::All) => self.staying_sizes().len(),
        };
        Scheme { data: 1, parity: copies.clamp(1, WIDTH_MAX) as u8 - 1 }
    }

    /// Sizes of the devices on which chunks may stay.
    fn staying_sizes(&self) -> Vec<u64> {
        let stays = |state| matches!(state, DeviceState::Active | DeviceState::Offline);
        let devices = self.engine.devices.lock();
        devices.iter().filter(|entry| stays(entry.device_state())).map(|entry| entry.size_bytes).collect()
    }

    pub fn metadata_wish(&self) -> Option<MetadataWish> {
        *self.engine.metadata_wish.lock()
    }

    /// Says on how many devices metadata shall lie from now on; what is stored follows in the background. Durable when it returns.
    pub fn set_metadata_wish(&self, wish: MetadataWish) -> Result<(), Error> {
        if MetadataWish::from_code(wish.code()) != Some(wish) {
            return Err(Error::Pool(format!("metadata can lie on 1 to {WIDTH_MAX} devices; ask for that, or for all")));
        }
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::metadata_copies(), &[wish.code()]);
            Ok::<_, Error>(())
        })?;
        *self.engine.metadata_wish.lock() = Some(wish);
        self.engine.checkpoint()
    }

    /// Takes over what the pool holds.
    pub(crate) fn load_metadata_wish(&self) -> Result<(), Error> {
        let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::metadata_copies()))?;
        *self.engine.metadata_wish.lock() = value.and_then(|bytes| MetadataWish::from_code(*bytes.first()?));
        Ok(())
    }
}
