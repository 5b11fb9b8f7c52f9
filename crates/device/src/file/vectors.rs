//! A scattered read as one vectored system call: what is aligned goes straight to its place, the rest through scratch
//! memory from which the wanted bytes are copied.
//!
//! Invariants: the vectors of a plan cover the widened range without gaps; each is a multiple of the offset alignment
//! long and, if direct, lies in aligned memory. Copies name bytes that some scratch vector covers.

use super::system::{self, Transfer};
use crate::Scatter;
use rustix::io::Errno;
use std::fs::File;
use std::io::{IoSliceMut, Result};
use std::ops::Range;

/// Linux takes 1024; a plan with more reads the whole through scratch.
const VECTORS_MAX: usize = 1000;

#[derive(Debug, PartialEq, Eq)]
enum Vector {
    /// So many bytes to the next place in the scratch memory.
    Scratch(usize),
    /// To this range of this piece.
    Direct { piece: usize, range: Range<usize> },
}

#[derive(Debug, PartialEq, Eq)]
struct CopyOut {
    scratch_at: usize,
    piece: usize,
    range: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    vectors: Vec<Vector>,
    copies: Vec<CopyOut>,
    direct_bytes: usize,
    total_bytes: usize,
}

impl Plan {
    /// Plans the read of `head` unwanted bytes, the pieces, and `tail` unwanted bytes.
    pub(super) fn new(transfer: &Transfer, head: usize, pieces: &[Scatter<'_>], tail: usize) -> Plan {
        let plan = Plan::build(transfer, head, pieces, tail, true);
        if plan.vectors.len() <= VECTORS_MAX { plan } else { Plan::build(transfer, head, pieces, tail, false) }
    }

    fn build(transfer: &Transfer, head: usize, pieces: &[Scatter<'_>], tail: usize, may_be_direct: bool) -> Plan {
        let align = transfer.offset_alignment as usize;
        let mut plan = Plan::default();
        // Positions are relative to the widened start; all before `covered` has its vector.
        let (mut at, mut covered) = (head, 0);
        for (index, piece) in pieces.iter().enumerate() {
            let (start, end) = (at, at + piece.length());
            at = end;
            let Scatter::Into(slice) = piece else {
                continue;
            };
            let inner = start.next_multiple_of(align)..end / align * align;
            let memory = slice.as_ptr() as usize + inner.start - start;
            if may_be_direct && inner.start < inner.end && memory % transfer.memory_alignment as usize == 0 {
                plan.copy_out(start..inner.start, index, start);
                plan.scratch(covered..inner.start);
                plan.vectors.push(Vector::Direct { piece: index, range: inner.start - start..inner.end - start });
                plan.direct_bytes += inner.len();
                covered = inner.end;
                plan.copy_out(inner.end..end, index, start);
            } else {
                plan.copy_out(start..end, index, start);
            }
        }
        plan.total_bytes = at + tail;
        assert!(plan.total_bytes % align == 0, "a read is widened to whole blocks");
        plan.scratch(covered..plan.total_bytes);
        plan.assert_invariants();
        plan
    }

    fn assert_invariants(&self) {
        let length = |vector: &Vector| match vector {
            Vector::Scratch(length) => *length,
            Vector::Direct { range, .. } => range.len(),
        };
        let covered: usize = self.vectors.iter().map(length).sum();
        assert_eq!(covered, self.total_bytes, "the vectors cover all that is read");
        let scratch_bytes = self.scratch_bytes();
        let is_within = |copy: &CopyOut| copy.scratch_at + copy.range.len() <= scratch_bytes;
        assert!(self.copies.iter().all(is_within), "what is copied was read to scratch memory");
    }

    fn scratch(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.vectors.push(Vector::Scratch(range.len()));
        }
    }

    fn copy_out(&mut self, range: Range<usize>, piece: usize, piece_start: usize) {
        if !range.is_empty() {
            // Scratch memory holds the same bytes in the same order, without those that went direct.
            let scratch_at = range.start - self.direct_bytes;
            self.copies.push(CopyOut { scratch_at, piece, range: range.start - piece_start..range.end - piece_start });
        }
    }

    pub(super) fn scratch_bytes(&self) -> usize {
        self.total_bytes - self.direct_bytes
    }

    /// Carries the plan out from device offset `start` on.
    pub(super) fn read(&self, file: &File, start: u64, pieces: &mut [Scatter<'_>], scratch: &mut [u8]) -> Result<()> {
        assert_eq!(scratch.len(), self.scratch_bytes(), "the scratch memory is as large as planned");
        self.transfer(file, start, pieces, scratch)?;
        for copy in &self.copies {
            let Scatter::Into(slice) = &mut pieces[copy.piece] else {
                unreachable!("only wanted pieces are copied to")
            };
            slice[copy.range.clone()].copy_from_slice(&scratch[copy.scratch_at..copy.scratch_at + copy.range.len()]);
        }
        Ok(())
    }

    fn transfer(&self, file: &File, start: u64, pieces: &mut [Scatter<'_>], scratch: &mut [u8]) -> Result<()> {
        let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity(self.vectors.len());
        let mut scratch_left = scratch;
        let mut pieces_left = pieces.iter_mut().enumerate();
        for vector in &self.vectors {
            match vector {
                Vector::Scratch(length) => {
                    let (now, later) = scratch_left.split_at_mut(*length);
                    scratch_left = later;
                    slices.push(IoSliceMut::new(now));
                }
                Vector::Direct { piece, range } => {
                    let found = pieces_left.by_ref().find(|(index, _)| index == piece);
                    let Some((_, Scatter::Into(slice))) = found else {
                        unreachable!("direct vectors name wanted pieces in order")
                    };
                    slices.push(IoSliceMut::new(&mut slice[range.clone()]));
                }
            }
        }
        assert!(scratch_left.is_empty(), "{} bytes of scratch memory are read to by nothing", scratch_left.len());
        if let [only] = &mut slices[..] {
            return system::read_all(file, start, only);
        }
        let transferred = loop {
            match rustix::io::preadv(file, &mut slices, start) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if transferred == self.total_bytes {
            return Ok(());
        }
        // Short reads are rare (a signal, a bad sector): the plain way reads on or finds the error.
        let mut at = start;
        for slice in &mut slices {
            system::read_all(file, at, slice)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
