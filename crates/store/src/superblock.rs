//! Writing superblocks: every device present gets the newest one, in the two slots of its generation, then a flush.
//!
//! Invariants: the slots of the generation before are not touched, so a torn write leaves the old superblock whole.

use stere_device::{Buffer, Completion, Device};
use stere_format::Superblock;

use crate::Store;
use crate::error::Error;

impl Store {
    pub(crate) fn store_superblocks(&self, superblocks: &[Superblock]) -> Result<(), Error> {
        let stripe = &self.log.stripe;
        let completion = Completion::new();
        let mut present = 0;
        for superblock in superblocks {
            let Some(device) = stripe.device(superblock.device_index) else { continue };
            present += 1;
            let bytes = superblock.encode().map_err(|error| Error::Pool(error.to_string()))?;
            // What could not be read again must not be what the pool depends on.
            Superblock::decode(&bytes).map_err(|error| Error::Pool(error.to_string()))?;
            let buffer = Buffer::copy_of(&bytes).share();
            for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
                let ticket = completion.ticket(u64::from(superblock.device_index));
                device.submit_write(offset, buffer.clone(), 0..Superblock::SIZE, ticket);
            }
        }
        let mut failed: Vec<u64> = completion.wait().into_iter().map(|(device, _)| device).collect();
        failed.extend(self.log.flush()?.into_iter().map(u64::from));
        failed.sort_unstable();
        failed.dedup();
        if failed.len() >= present {
            return Err(Error::Pool(
                "no device took the new superblock; check the devices, then mount the pool again".into(),
            ));
        }
        for device in failed {
            tracing::warn!(device, "a device did not take the new superblock");
        }
        Ok(())
    }
}
