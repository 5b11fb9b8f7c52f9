//! Compression of one record, and giving up on what does not become smaller.
//!
//! Invariants: what is stored compressed takes at least an eighth fewer sectors than it would plain; the compressed bytes
//! depend on the content and the policy only. Compressors keep their tables from record to record (`idle.rs`), because making them takes
//! longer than a small record does.

use std::convert::Infallible;
use std::io;

use stere_format::{BlobEncoding, sector_aligned};
use stere_policy::{Algorithm, Compression};
use zstd::bulk::{Compressor, Decompressor};

use crate::error::PluginError;
use crate::idle::Idle;

/// Levels above this are slow enough for a quick trial before them to be worth it.
const TRIAL_ABOVE_LEVEL: i32 = 5;
/// Level of that trial.
const TRIAL_LEVEL: i32 = 1;
/// The least that can be saved is one sector.
const CONTENT_BYTES_MIN: usize = stere_format::SECTOR_BYTES + 1;

static COMPRESSORS: Idle<(i32, Compressor<'static>)> = Idle::new();
/// Room for the worst case: fresh memory for each record would cost more than copying what is left of it.
static SCRATCH: Idle<Vec<u8>> = Idle::new();
static DECOMPRESSORS: Idle<Decompressor<'static>> = Idle::new();

/// The compressed record, if that is worth it.
pub(crate) fn compress(compression: Compression, content: &[u8]) -> Option<(BlobEncoding, Vec<u8>)> {
    let algorithm = compression.algorithm()?;
    let bytes_max = worthwhile_bytes_max(content.len())?;
    match algorithm {
        Algorithm::Lz4 => Some((BlobEncoding::LZ4, lz4(content, bytes_max)?)),
        Algorithm::Zstd => {
            let level = i32::from(compression.level());
            if level > TRIAL_ABOVE_LEVEL {
                // What the quickest level cannot make smaller at all, the best one makes hardly smaller.
                zstd(TRIAL_LEVEL, content, content.len())?;
            }
            Some((BlobEncoding::ZSTD, zstd(level, content, bytes_max)?))
        }
    }
}

/// The most bytes that a compressed record may have to be stored as such; none if no length is worth it.
fn worthwhile_bytes_max(content_bytes: usize) -> Option<usize> {
    if content_bytes < CONTENT_BYTES_MIN {
        return None;
    }
    let sector = stere_format::SECTOR_BYTES as u32;
    let sectors = sector_aligned(u32::try_from(content_bytes).ok()?) / sector;
    // At least one sector less, or an eighth.
    let sectors_max = sectors - sectors.div_ceil(8);
    Some((sectors_max * sector) as usize)
}

/// What `encode` puts into room for so many bytes, if it is short enough.
fn in_scratch(room: usize, bytes_max: usize, encode: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    let encoded = SCRATCH.with(
        || Ok::<_, Infallible>(Vec::new()),
        |scratch| {
            if scratch.len() < room {
                scratch.resize(room, 0);
            }
            let length = encode(&mut scratch[..room]).filter(|length| *length <= bytes_max);
            Ok(length.map(|length| scratch[..length].to_vec()))
        },
    );
    encoded.unwrap_or_else(|never| match never {})
}

fn lz4(content: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let room = lz4_flex::block::get_maximum_output_size(content.len());
    in_scratch(room, bytes_max, |out| lz4_flex::block::compress_into(content, out).ok())
}

/// Always with room for the worst case: a context that ran out of room is not good for what comes after.
fn zstd(level: i32, content: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    in_scratch(zstd::zstd_safe::compress_bound(content.len()), bytes_max, |out| {
        let make = || Ok((level, Compressor::new(level)?));
        COMPRESSORS.with(make, |compressor| zstd_into(compressor, level, content, out)).ok()
    })
}

fn zstd_into(
    (known, compressor): &mut (i32, Compressor<'static>),
    level: i32,
    content: &[u8],
    out: &mut [u8],
) -> io::Result<usize> {
    if *known != level {
        compressor.set_compression_level(level)?;
        *known = level;
    }
    compressor.compress_to_buffer(content, out)
}

pub(crate) fn decompress_lz4(stored: &[u8], out: &mut [u8]) -> Result<(), PluginError> {
    let malformed = |detail: String| PluginError::Malformed { what: "LZ4 block", detail };
    let got = lz4_flex::block::decompress_into(stored, out).map_err(|error| malformed(error.to_string()))?;
    check_length(got, out.len())
}

pub(crate) fn decompress_zstd(stored: &[u8], out: &mut [u8]) -> Result<(), PluginError> {
    let malformed = |error: io::Error| PluginError::Malformed { what: "Zstandard frame", detail: error.to_string() };
    let decompressed =
        DECOMPRESSORS.with(Decompressor::new, |decompressor| decompressor.decompress_to_buffer(stored, out));
    check_length(decompressed.map_err(malformed)?, out.len())
}

fn check_length(got: usize, expected: usize) -> Result<(), PluginError> {
    if got == expected { Ok(()) } else { Err(PluginError::Length { got, expected }) }
}
