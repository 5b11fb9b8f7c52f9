//! On how many devices metadata shall lie, where somebody said so: kept in the pool, honoured by every mount.
//!
//! Without a wish the number is what the mount was told (`StoreOptions`). What the devices that are there cannot give is fitted,
//! as for data; it follows when they come back.

use stere_format::{DeviceState, Key, Scheme, WIDTH_MAX};
use stere_log::Wait;

use crate::Store;
use crate::error::Error;

/// On how many devices metadata shall lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataWish {
    All,
    Copies(u8),
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

impl Store {
    /// The scheme that metadata shall have.
    pub(crate) fn meta_scheme(&self) -> Scheme {
        let copies = match *self.metadata_wish.lock() {
            None => return self.options.meta_scheme,
            Some(MetadataWish::Copies(copies)) => usize::from(copies),
            Some(MetadataWish::All) => {
                let stays = |state| matches!(state, DeviceState::Active | DeviceState::Offline);
                self.devices.lock().iter().filter(|entry| stays(entry.device_state())).count()
            }
        };
        Scheme { data: 1, parity: copies.clamp(1, WIDTH_MAX) as u8 - 1 }
    }

    pub fn metadata_wish(&self) -> Option<MetadataWish> {
        *self.metadata_wish.lock()
    }

    /// Says on how many devices metadata shall lie from now on; what is stored follows in the background. Durable when it returns.
    pub fn set_metadata_wish(&self, wish: MetadataWish) -> Result<(), Error> {
        if MetadataWish::from_code(wish.code()) != Some(wish) {
            return Err(Error::Pool(format!("metadata can lie on 1 to {WIDTH_MAX} devices; ask for that, or for all")));
        }
        self.update(Wait::Allowed, |transaction| {
            transaction.put(Key::metadata_copies(), &[wish.code()]);
            Ok::<_, Error>(())
        })?;
        *self.metadata_wish.lock() = Some(wish);
        self.checkpoint()
    }

    /// Takes over what the pool holds.
    pub(crate) fn load_metadata_wish(&self) -> Result<(), Error> {
        let value = self.view(Wait::Allowed, |view| view.get(&Key::metadata_copies()))?;
        *self.metadata_wish.lock() = value.and_then(|bytes| MetadataWish::from_code(*bytes.first()?));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
