//! Superblock copies and the journal's mirrors: each has a twin to be written again from.

use stere_device::{Buffer, Device};
use stere_format::{BLOCK_BYTES, Superblock};
use stere_stripe::PoolDevice;

use crate::engine::Engine;
use crate::error::Error;
use crate::rows::ScrubReport;
use stere_journal::Scan;

/// How often the journal is looked at again when it moved on meanwhile.
const ROUNDS_MAX: u32 = 4;

fn read_superblock(device: &PoolDevice, offset: u64, report: &mut ScrubReport) -> Option<(Superblock, Vec<u8>)> {
    let mut bytes = vec![0; Superblock::SIZE];
    report.bytes_checked += Superblock::SIZE as u64;
    // An error may pass; the second one counts.
    device.read(offset, &mut bytes).or_else(|_| device.read(offset, &mut bytes)).ok()?;
    Superblock::decode(&bytes).ok().map(|superblock| (superblock, bytes))
}

/// Verifies what is there twice without being of a segment, and writes copies again.
pub struct TwinCopies<'a> {
    engine: &'a Engine,
}

impl<'a> TwinCopies<'a> {
    pub fn of(engine: &'a Engine) -> TwinCopies<'a> {
        TwinCopies { engine }
    }
}

impl TwinCopies<'_> {
    /// Looks at all four copies on each device that is there: the two of the newest generation are as they were written,
    /// the two of the one before are the same.
    pub fn scrub_superblocks(&self, report: &mut ScrubReport) {
        // Held, so that no checkpoint writes them meanwhile.
        let superblocks = self.engine.superblocks.lock();
        for superblock in superblocks.iter() {
            let Some(device) = self.engine.log.stripe.devices.get(superblock.device_index) else { continue };
            let Ok(expected) = superblock.encode() else { continue };
            let first = superblock.layout.superblock_offsets()[0];
            if device.read(first, &mut [0; 512]).is_err_and(|error| error.is_absence()) {
                continue;
            }
            let newest = superblock.layout.superblock_offsets_of_generation(superblock.generation);
            for offset in newest {
                let is_right = read_superblock(&device, offset, report).is_some_and(|(_, bytes)| bytes == expected);
                if !is_right {
                    self.write_superblock(&device, offset, &expected, report);
                }
            }
            let before = superblock.layout.superblock_offsets_of_generation(superblock.generation + 1);
            let found = before.map(|offset| read_superblock(&device, offset, report));
            let best = found.iter().flatten().max_by_key(|(found, _)| found.generation).cloned();
            let Some((best, bytes)) = best else { continue };
            for (offset, found) in before.into_iter().zip(found) {
                if found.is_none_or(|(found, _)| found.generation < best.generation) {
                    self.write_superblock(&device, offset, &bytes, report);
                }
            }
        }
    }

    fn write_superblock(&self, device: &PoolDevice, offset: u64, bytes: &[u8], report: &mut ScrubReport) {
        device.count_checksum_error();
        if !self.engine.log.repairs.are_on() {
            let text = format!("device {}: the superblock copy at byte {offset} is damaged", device.index());
            return report.findings.push(text);
        }
        match device.write_bytes(offset, bytes) {
            Ok(()) => {
                device.count_repaired(1);
                report.repaired_blocks += 1;
            }
            Err(error) => report.findings.push(format!("a superblock copy could not be written again: {error}")),
        }
    }

    /// Reads every record that recovery would need from every mirror, and writes those again that a mirror lacks.
    pub fn scrub_journal(&self, report: &mut ScrubReport) -> Result<(), Error> {
        if self.engine.options.tail.is_some() {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let superblock = self.engine.superblocks.lock().first().cloned();
            let Some(superblock) = superblock else { return Ok(()) };
            let (mut scan, start, mirrors) = {
                let journal = self.engine.journal.lock();
                let scan = Scan::of_durable(&self.engine.log.stripe, &journal, &superblock);
                (scan, journal.start_position, journal.mirrors.len() as u64)
            };
            if start != superblock.journal_start.position {
                // A checkpoint came between the two.
                continue;
            }
            let read = loop {
                match scan.next_group() {
                    Ok(Some(group)) if group.last_sequence < scan.proven() => {}
                    Ok(last) => break Ok(last.map_or(superblock.journal_start.position, |group| group.end.position)),
                    Err(error) => break Err(error),
                }
            };
            let journal = self.engine.journal.lock();
            if journal.start_position != start {
                continue;
            }
            match read {
                Ok(end) => {
                    report.bytes_checked += end.saturating_sub(start) * mirrors;
                    let lacking = scan.take_lacking();
                    // With the lock held, so that nothing new is written to those places.
                    return self.mend_journal(lacking, superblock.journal_bytes, report);
                }
                Err(error) => {
                    drop(journal);
                    return self.leave_journal(&error.into(), report);
                }
            }
        }
        // It is written so much that what it held has been left behind by checkpoints.
        Ok(())
    }

    fn mend_journal(
        &self,
        lacking: Vec<(stere_format::JournalHeader, Vec<u8>, Vec<stere_journal::Mirror>)>,
        region_bytes: u64,
        report: &mut ScrubReport,
    ) -> Result<(), Error> {
        for (header, bytes, mirrors) in lacking {
            assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "a record of the journal is of whole blocks");
            let buffer = Buffer::copy_of(&bytes).share();
            for mirror in mirrors {
                let Some(device) = self.engine.log.stripe.devices.get(mirror.device) else { continue };
                device.count_checksum_error();
                if !self.engine.log.repairs.are_on() {
                    let sequence = header.at.sequence;
                    report.findings.push(format!("device {}: journal record {sequence} is damaged", mirror.device));
                    continue;
                }
                let offset = mirror.offset + header.at.position % region_bytes;
                match device.write(offset, buffer.clone(), 0..bytes.len()) {
                    Ok(()) => {
                        let blocks = bytes.len().div_ceil(BLOCK_BYTES) as u64;
                        device.count_repaired(blocks);
                        report.repaired_blocks += blocks;
                    }
                    Err(error) if error.is_absence() => {}
                    Err(error) => report.findings.push(format!("a journal record could not be written again: {error}")),
                }
            }
        }
        Ok(())
    }

    /// No mirror has a record any more, but memory has all it told: a checkpoint makes the journal needless.
    fn leave_journal(&self, error: &Error, report: &mut ScrubReport) -> Result<(), Error> {
        tracing::warn!(%error, "the journal is damaged on every mirror; a checkpoint takes its place");
        match self.engine.checkpoint() {
            Ok(()) => {
                report.repaired_blocks += 1;
                Ok(())
            }
            Err(Error::ReadOnly { .. }) => {
                report.findings.push(error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
