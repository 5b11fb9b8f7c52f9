//! The codes that protect rows: copies for k = 1, XOR for m = 1, Reed-Solomon (GF(2^16), of the crate reed-solomon-simd) else.
//!
//! Parity bytes are part of the format (a golden test holds them fast). All codes work position by position, in blocks
//! of 64 bytes (`POSITION_BYTES`): byte ranges that begin and end at multiples of 64 can be rebuilt by themselves.
//!
//! Invariant: all units given to one call have the same length, a multiple of 64.

use crate::error::StripeError;
use parking_lot::Mutex;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use stere_format::Scheme;

/// The smallest range that can be rebuilt by itself.
pub const POSITION_BYTES: usize = 64;

/// Small enough to stay in the first-level cache while several units are added up.
const XOR_STEP_BYTES: usize = 4096;

/// Computes and undoes parity; keeps working memory for the next call.
#[derive(Default)]
pub(crate) struct ParityCoder {
    encoders: Mutex<Vec<ReedSolomonEncoder>>,
    decoders: Mutex<Vec<ReedSolomonDecoder>>,
}

/// How many idle coders keep their memory.
const IDLE_CODERS_MAX: usize = 4;

/// target ^= source, by machine words that the compiler widens.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "units have the same length");
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}

/// target = XOR of all sources.
pub fn xor_all(target: &mut [u8], sources: &[&[u8]]) {
    let length = target.len();
    assert!(sources.iter().all(|source| source.len() == length), "units have the same length");
    let Some((first, others)) = sources.split_first() else { return target.fill(0) };
    for start in (0..length).step_by(XOR_STEP_BYTES) {
        let range = start..(start + XOR_STEP_BYTES).min(length);
        let target = &mut target[range.clone()];
        match others {
            [] => target.copy_from_slice(&first[range]),
            [second, rest @ ..] => {
                let pairs = first[range.clone()].iter().zip(&second[range.clone()]);
                for (target, (first, second)) in target.iter_mut().zip(pairs) {
                    *target = first ^ second;
                }
                for source in rest {
                    xor_into(target, &source[range.clone()]);
                }
            }
        }
    }
}

/// Whether data of this scheme is whole copies rather than units and parity.
pub(crate) fn is_copies(scheme: Scheme) -> bool {
    scheme.data == 1
}

impl ParityCoder {
    /// Computes all parity units of the given data units.
    pub(crate) fn encode(&self, scheme: Scheme, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), StripeError> {
        assert_eq!((data.len(), parity.len()), (usize::from(scheme.data), usize::from(scheme.parity)));
        let Some(length) = parity.first().map(|unit| unit.len()) else { return Ok(()) };
        assert!(length > 0 && length % POSITION_BYTES == 0, "parity is computed by whole positions");
        if is_copies(scheme) {
            parity.iter_mut().for_each(|unit| unit.copy_from_slice(data[0]));
            return Ok(());
        }
        if let [only] = parity {
            xor_all(only, data);
            return Ok(());
        }
        let failed = |error: reed_solomon_simd::Error| StripeError::Parity { scheme, reason: error.to_string() };
        let mut encoder = match self.encoders.lock().pop() {
            Some(mut encoder) => {
                encoder.reset(data.len(), parity.len(), length).map_err(failed)?;
                encoder
            }
            None => ReedSolomonEncoder::new(data.len(), parity.len(), length).map_err(failed)?,
        };
        for unit in data {
            encoder.add_original_shard(unit).map_err(failed)?;
        }
        {
            let encoded = encoder.encode().map_err(failed)?;
            for (target, source) in parity.iter_mut().zip(encoded.recovery_iter()) {
                target.copy_from_slice(source);
            }
        }
        let mut idle = self.encoders.lock();
        if idle.len() < IDLE_CODERS_MAX {
            idle.push(encoder);
        }
        Ok(())
    }

    /// Rebuilds the units in `wanted` (chunk number, place for its bytes) from `known` units (chunk number, bytes),
    /// of which there must be k. Numbers below k are data, the others parity.
    pub(crate) fn rebuild(
        &self,
        scheme: Scheme,
        known: &[(usize, &[u8])],
        wanted: &mut [(usize, &mut [u8])],
    ) -> Result<(), StripeError> {
        let data = usize::from(scheme.data);
        assert_eq!(known.len(), data, "exactly as many units as there were data units");
        let is_wanted = |chunk: usize| wanted.iter().any(|(number, _)| *number == chunk);
        assert!(!known.iter().any(|(chunk, _)| is_wanted(*chunk)), "no unit is both known and wanted");
        if is_copies(scheme) {
            wanted.iter_mut().for_each(|(_, unit)| unit.copy_from_slice(known[0].1));
            return Ok(());
        }
        if scheme.parity == 1 {
            // With one parity at most one unit is unknown.
            let sources: Vec<&[u8]> = known.iter().map(|(_, bytes)| *bytes).collect();
            wanted.iter_mut().for_each(|(_, unit)| xor_all(unit, &sources));
            return Ok(());
        }
        let restored = self.restore_data(scheme, known, wanted)?;
        if wanted.iter().all(|(chunk, _)| *chunk < data) {
            return Ok(());
        }
        // A parity unit is wanted too: encode again from all data.
        let all: Vec<&[u8]> = (0..data)
            .map(|chunk| {
                let given = known.iter().find(|(number, _)| *number == chunk).map(|(_, bytes)| *bytes);
                given.or_else(|| restored.iter().find(|(number, _)| *number == chunk).map(|(_, bytes)| &bytes[..]))
            })
            .map(|bytes| bytes.expect("each data unit is known or was restored"))
            .collect();
        let length = known[0].1.len();
        let mut parity = vec![vec![0; length]; usize::from(scheme.parity)];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
        self.encode(scheme, &all, &mut targets)?;
        for (chunk, unit) in wanted.iter_mut().filter(|(chunk, _)| *chunk >= data) {
            unit.copy_from_slice(&parity[*chunk - data]);
        }
        Ok(())
    }

    /// Restores all unknown data units; fills in those that are wanted and returns them all.
    fn restore_data(
        &self,
        scheme: Scheme,
        known: &[(usize, &[u8])],
        wanted: &mut [(usize, &mut [u8])],
    ) -> Result<Vec<(usize, Vec<u8>)>, StripeError> {
        let (data, parity) = (usize::from(scheme.data), usize::from(scheme.parity));
        let failed = |error: reed_solomon_simd::Error| StripeError::Parity { scheme, reason: error.to_string() };
        let length = known[0].1.len();
        let mut decoder = match self.decoders.lock().pop() {
            Some(mut decoder) => {
                decoder.reset(data, parity, length).map_err(failed)?;
                decoder
            }
            None => ReedSolomonDecoder::new(data, parity, length).map_err(failed)?,
        };
        for (chunk, bytes) in known {
            match chunk.checked_sub(data) {
                None => decoder.add_original_shard(*chunk, bytes).map_err(failed)?,
                Some(number) => decoder.add_recovery_shard(number, bytes).map_err(failed)?,
            }
        }
        let restored: Vec<(usize, Vec<u8>)> = {
            let decoded = decoder.decode().map_err(failed)?;
            decoded.restored_original_iter().map(|(chunk, bytes)| (chunk, bytes.to_vec())).collect()
        };
        for (chunk, bytes) in &restored {
            if let Some((_, unit)) = wanted.iter_mut().find(|(number, _)| number == chunk) {
                unit.copy_from_slice(bytes);
            }
        }
        let mut idle = self.decoders.lock();
        if idle.len() < IDLE_CODERS_MAX {
            idle.push(decoder);
        }
        Ok(restored)
    }
}

impl std::fmt::Debug for ParityCoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ParityCoder")
    }
}

#[cfg(test)]
mod tests;
