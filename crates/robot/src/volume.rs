//! The library as a medium.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{Cancellation, Medium, MediumWait, Take, Volume, VolumeError};

use crate::error::RobotError;
use crate::library::Library;

impl Library {
    fn failed(&self, error: RobotError) -> VolumeError {
        let volume = self.describe();
        match error {
            RobotError::NoObject { object, .. } => VolumeError::NoObject { volume, object },
            RobotError::Damaged { ref object, .. } => {
                VolumeError::Damaged { volume, object: object.clone(), why: error.to_string() }
            }
            RobotError::NoRoom { .. } => VolumeError::Full { volume },
            RobotError::GivenUp => VolumeError::GivenUp { volume },
            // All else may pass: cartridges are put in, drives repaired.
            error => VolumeError::Away { volume, why: error.to_string() },
        }
    }

    fn get_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        let needed = offset + length as u64;
        match Volume::length(self, object)? {
            None => Err(VolumeError::NoObject { volume: self.describe(), object: object.to_owned() }),
            Some(length) if length < needed => {
                Err(VolumeError::Short { volume: self.describe(), object: object.to_owned(), length, needed })
            }
            Some(_) => {
                Library::get(self, object, offset, length, take, cancellation).map_err(|error| self.failed(error))
            }
        }
    }
}

impl Volume for Library {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        Library::put(self, object, bytes).map_err(|error| self.failed(error))
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        let bytes = Arc::new(Mutex::new(Vec::with_capacity(into.len())));
        let take: Take = {
            let bytes = bytes.clone();
            Arc::new(move |piece| bytes.lock().extend_from_slice(piece))
        };
        self.get_part(object, offset, into.len(), &take, &wait.cancellation)?;
        into.copy_from_slice(&bytes.lock());
        Ok(())
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.get_part(object, 0, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        self.get_part(object, offset, length, take, cancellation)
    }

    fn begins_at(&self, object: &str, offset: u64) -> Option<u64> {
        Library::begins_at(self, object, offset)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        Library::length(self, object).map_err(|error| self.failed(error))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        Library::delete(self, object).map_err(|error| self.failed(error))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        Library::list(self, prefix).map_err(|error| self.failed(error))
    }

    fn describe(&self) -> String {
        self.options.name.clone()
    }

    fn media(&self) -> Vec<Medium> {
        self.cartridges()
    }

    fn is_proven_by_its_media(&self) -> bool {
        // By their labels, of this set.
        true
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        Library::estimate(self, object)
    }

    fn close(&self) {
        if let Err(error) = self.put_all_away() {
            tracing::warn!(library = self.options.name, %error, "cartridges stay in their drives, without an index");
        }
    }
}
