//! Bytes of a file: blocks that may hold something else than zeros, and a size.

use std::collections::BTreeMap;

use crate::{Caller, FILE_BYTES_MAX, Kind, Model, Result, errno};

const BLOCK: u64 = 4096;

/// Modes of fallocate(2).
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const COLLAPSE_RANGE: u32 = 0x08;
const ZERO_RANGE: u32 = 0x10;
const INSERT_RANGE: u32 = 0x20;
const UNSHARE_RANGE: u32 = 0x40;

/// Content of a file. Two contents are equal when their bytes are.
#[derive(Debug, Clone, Default)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        let bytes = |content: &Content| -> Vec<(u64, Vec<u8>)> {
            let blocks = content.blocks.iter().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
            blocks.map(|(index, block)| (*index, block.clone())).collect()
        };
        self.size == other.size && bytes(self) == bytes(other)
    }
}

impl Eq for Content {}

impl Content {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// One byte; zero where nothing was written.
    fn byte(&self, at: u64) -> u8 {
        self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize])
    }

    fn put(&mut self, at: u64, byte: u8) {
        let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
        block[(at % BLOCK) as usize] = byte;
    }

    /// The bytes in a range, as far as the file reaches.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = offset.saturating_add(length as u64).min(self.size);
        (offset..end.max(offset)).map(|at| self.byte(at)).collect()
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in (offset..).zip(data) {
            self.put(at, *byte);
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    fn zero(&mut self, offset: u64, end: u64) {
        for at in offset..end {
            if at % BLOCK == 0 && end - at >= BLOCK {
                self.blocks.remove(&(at / BLOCK));
            }
            if self.blocks.contains_key(&(at / BLOCK)) {
                self.put(at, 0);
            }
        }
    }

    fn resize(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if let Some(last) = self.blocks.get_mut(&(size / BLOCK)) {
            last[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Moves all blocks from `from` on by so many blocks.
    fn shift(&mut self, from: u64, blocks: i64) {
        let moved = self.blocks.split_off(&(from / BLOCK));
        self.blocks.extend(moved.into_iter().map(|(index, block)| (index.wrapping_add_signed(blocks), block)));
    }

    /// Whether a range holds nothing but zeros.
    pub fn is_zero(&self, offset: u64, end: u64) -> bool {
        let blocks = self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK));
        blocks
            .flat_map(|(index, block)| (index * BLOCK..).zip(block))
            .all(|(at, byte)| *byte == 0 || at < offset || at >= end)
    }
}

impl Model {
    fn content(&mut self, inode: u64) -> Result<&mut Content> {
        match &mut self.inode_mut(inode)?.kind {
            Kind::File(content) => Ok(content),
            Kind::Directory(_) => Err(errno::EISDIR),
            _ => Err(errno::EINVAL),
        }
    }

    fn touch_content(&mut self, caller: &Caller, inode: u64) -> Result<()> {
        let inode = self.inode_mut(inode)?;
        (inode.mtime, inode.ctime) = (caller.now, caller.now);
        Ok(())
    }

    /// Reads.
    pub fn read(&mut self, inode: u64, offset: u64, length: usize) -> Result<Vec<u8>> {
        Ok(self.content(inode)?.read(offset, length))
    }

    /// Writes; gives how much.
    pub fn write(&mut self, caller: &Caller, inode: u64, offset: u64, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_BYTES_MAX {
            return Err(errno::EFBIG);
        }
        let length = (FILE_BYTES_MAX - offset).min(data.len() as u64) as usize;
        self.content(inode)?;
        let length = self.granted(inode, offset, length)?;
        self.content(inode)?.write(offset, &data[..length]);
        self.touch_content(caller, inode)?;
        Ok(length)
    }

    /// Sets the size.
    pub fn truncate(&mut self, caller: &Caller, inode: u64, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(errno::EFBIG);
        }
        self.content(inode)?;
        self.check_growth(inode, size)?;
        self.content(inode)?.resize(size);
        self.touch_content(caller, inode)
    }

    /// As fallocate(2).
    pub fn fallocate(&mut self, caller: &Caller, inode: u64, offset: u64, length: u64, mode: u32) -> Result<()> {
        let end = offset.checked_add(length).ok_or(errno::EFBIG)?;
        if length == 0 {
            return Err(errno::EINVAL);
        }
        if end > FILE_BYTES_MAX {
            return Err(errno::EFBIG);
        }
        let content = self.content(inode)?;
        let aligned = offset % BLOCK == 0 && length % BLOCK == 0;
        match mode {
            0 | UNSHARE_RANGE => content.size = content.size.max(end),
            m if m == KEEP_SIZE || m == UNSHARE_RANGE | KEEP_SIZE => {}
            m if m == PUNCH_HOLE | KEEP_SIZE || m == ZERO_RANGE | KEEP_SIZE => {
                let end = end.min(content.size);
                content.zero(offset, end.max(offset));
            }
            ZERO_RANGE => {
                let zeroed = end.min(content.size);
                content.zero(offset, zeroed.max(offset));
                content.size = content.size.max(end);
            }
            COLLAPSE_RANGE | INSERT_RANGE if !aligned => return Err(errno::EINVAL),
            COLLAPSE_RANGE => {
                if end >= content.size {
                    return Err(errno::EINVAL);
                }
                content.zero(offset, end);
                content.shift(end, -((length / BLOCK) as i64));
                content.size -= length;
            }
            INSERT_RANGE => {
                if offset >= content.size {
                    return Err(errno::EINVAL);
                }
                if content.size + length > FILE_BYTES_MAX {
                    return Err(errno::EFBIG);
                }
                content.shift(offset, (length / BLOCK) as i64);
                content.size += length;
            }
            _ => return Err(errno::EOPNOTSUPP),
        }
        self.touch_content(caller, inode)
    }

    /// Copies between files; gives how much.
    pub fn copy_range(
        &mut self,
        caller: &Caller,
        source: u64,
        from: u64,
        target: u64,
        to: u64,
        length: u64,
    ) -> Result<u64> {
        let size = self.content(source)?.size;
        self.content(target)?;
        if to >= FILE_BYTES_MAX && length > 0 {
            return Err(errno::EFBIG);
        }
        let length = length.min(size.saturating_sub(from)).min(FILE_BYTES_MAX.saturating_sub(to));
        if length == 0 {
            return Ok(0);
        }
        if source == target && from < to + length && to < from + length {
            return Err(errno::EINVAL);
        }
        let bytes = self.content(source)?.read(from, length as usize);
        self.content(target)?.write(to, &bytes);
        self.touch_content(caller, target)?;
        Ok(length)
    }
}
