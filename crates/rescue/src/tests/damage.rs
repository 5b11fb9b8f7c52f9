//! Finding what lies where, and spoiling it on all devices that have it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use stere_device::{Device, MemoryDevice};
use stere_format::{Address, DeviceLayout, NodeReference, RecordSubject, SegmentChunks, SegmentKind, Superblock};

use crate::keys::Root;
use crate::media::Media;
use crate::sources::Members;

/// The first bytes of a device, on a smaller one.
pub fn first_part(device: &MemoryDevice, size_bytes: u64) -> Arc<MemoryDevice> {
    let part = MemoryDevice::new(size_bytes);
    let mut bytes = vec![0; 1 << 20];
    for at in (0..size_bytes).step_by(1 << 20) {
        device.read(at, &mut bytes).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            part.write_bytes(at, &bytes).unwrap();
        }
    }
    Arc::new(part)
}

/// A record in a segment.
pub struct Spot {
    pub address: Address,
    pub place: SegmentChunks,
    pub subject: RecordSubject,
    pub sequence: u64,
}

pub struct Damager {
    devices: Vec<Arc<MemoryDevice>>,
    layouts: Vec<DeviceLayout>,
    /// Which device has which number in the pool.
    by_index: HashMap<u16, usize>,
    pub spots: Vec<Spot>,
}

fn media(devices: &[Arc<MemoryDevice>]) -> Media {
    Media::new(Members::gather(super::sources(devices), Vec::new()).unwrap())
}

impl Damager {
    pub fn new(devices: &[Arc<MemoryDevice>]) -> Damager {
        let mut media = media(devices);
        let mut spots = Vec::new();
        for (segment, found) in media.found().iter() {
            for place in found.ways() {
                media.rows(*segment, &place, |row| {
                    for entry in &row.entries {
                        let (Some(address), subject) = (row.address(entry), entry.subject) else { continue };
                        spots.push(Spot { address, place: place.clone(), subject, sequence: row.header.sequence });
                    }
                });
            }
        }
        let (mut layouts, mut by_index) = (Vec::new(), HashMap::new());
        for device in devices {
            let member = media
                .members
                .members
                .iter()
                .find(|member| Arc::as_ptr(&member.device).cast::<u8>() == Arc::as_ptr(device).cast::<u8>());
            let member = member.unwrap();
            by_index.insert(member.handle, layouts.len());
            layouts.push(member.layout);
        }
        Damager { devices: devices.to_vec(), layouts, by_index, spots }
    }

    pub fn superblocks(&self, devices: Range<usize>) {
        for number in devices {
            let size_bytes = self.devices[number].size_bytes();
            let places = DeviceLayout::superblock_offsets_for_size(size_bytes);
            for offset in places.into_iter().chain(self.layouts[number].superblock_offsets()) {
                if offset + Superblock::SIZE as u64 <= size_bytes {
                    self.devices[number].write_bytes(offset, &[0xa5; Superblock::SIZE]).unwrap();
                }
            }
        }
    }

    pub fn journals(&self) {
        for (device, layout) in self.devices.iter().zip(&self.layouts) {
            device.corrupt(layout.journal_offset, layout.journal_bytes);
        }
    }

    /// Where part of a record lies on each device that has a copy of it.
    pub fn places(&self, address: &Address, place: &SegmentChunks, range: Range<u32>) -> Vec<(usize, u64)> {
        assert_eq!(place.scheme.data, 1, "only copies are spoiled by record");
        let within = u64::from(address.row_block) * 4096 + u64::from(address.offset + range.start);
        let chunks = place.chunks.iter().enumerate().filter(|(chunk, _)| !place.is_missing(*chunk));
        let found = chunks.filter_map(|(_, at)| {
            let number = *self.by_index.get(&at.device)?;
            Some((number, self.layouts[number].slot_offset(at.slot).unwrap() + within))
        });
        found.collect()
    }

    fn spoil(&self, address: &Address, place: &SegmentChunks, range: Range<u32>) -> usize {
        let places = self.places(address, place, range.clone());
        for (number, offset) in &places {
            self.devices[*number].corrupt(*offset, range.len() as u64);
        }
        places.len()
    }

    /// Spoils all records of this kind; how many.
    pub fn records(&self, is_wanted: impl Fn(&RecordSubject) -> bool) -> usize {
        let wanted = self.spots.iter().filter(|spot| spot.place.scheme.data == 1 && is_wanted(&spot.subject));
        wanted
            .map(|spot| self.spoil(&spot.address, &spot.place, 0..spot.address.length.min(700)))
            .filter(|copies| *copies > 0)
            .count()
    }

    /// Nodes that the newest tree consists of.
    fn live_nodes(&self) -> Vec<NodeReference> {
        let (mut keys, _) = crate::state::find(media(&self.devices));
        let mut nodes = Vec::new();
        let mut wanted = match keys.root() {
            Root::Node(root) => vec![root],
            _ => Vec::new(),
        };
        while let Some(reference) = wanted.pop() {
            let node = keys.media.node(&reference).unwrap();
            if !node.is_leaf() {
                wanted.extend((0..node.count()).map(|index| node.child(index)));
            }
            nodes.push(reference);
        }
        nodes
    }

    pub fn live_node(&self, level: u8, is_wanted: impl Fn(&NodeReference) -> bool) -> Option<NodeReference> {
        self.live_nodes().into_iter().find(|node| node.level == level && is_wanted(node))
    }

    pub fn live_leaves(&self) -> Vec<NodeReference> {
        self.live_nodes().into_iter().filter(|node| node.level == 0).collect()
    }

    pub fn node(&self, reference: &NodeReference) {
        let spot = self.spots.iter().find(|spot| spot.address == reference.address).unwrap();
        assert!(self.spoil(&spot.address, &spot.place, 0..reference.address.length) > 0);
    }

    /// Spoils one block of a file on all copies; its offset in the file, and how many copies there were.
    pub fn spoil_block_of(&self, inode: u64, block: u32) -> (u64, usize) {
        let wanted = u64::from(block) * 4096;
        let newest = self.spots.iter().filter_map(|spot| match spot.subject {
            RecordSubject::Blob { inode: own, file_offset, logical_bytes, .. }
                if own == inode && (file_offset..file_offset + u64::from(logical_bytes)).contains(&wanted) =>
            {
                Some((spot.sequence, spot, file_offset))
            }
            _ => None,
        });
        let (_, spot, file_offset) = newest.max_by_key(|(sequence, _, _)| *sequence).unwrap();
        let start = (wanted - file_offset) as u32;
        (wanted, self.spoil(&spot.address, &spot.place, start..start + 4096))
    }

    /// Chunks of one kind of segment, as places on devices.
    pub fn chunks(&self, is_meta: bool) -> Vec<(usize, u64)> {
        let mut media = media(&self.devices);
        let kind = if is_meta { SegmentKind::Meta } else { SegmentKind::Data };
        let found = media.found();
        let places = found.values().filter(|found| found.kind == kind).flat_map(|found| found.ways());
        let chunks = places.flat_map(|place| {
            let chunks: Vec<_> = place
                .chunks
                .iter()
                .enumerate()
                .filter(|(chunk, _)| !place.is_missing(*chunk))
                .map(|(_, at)| *at)
                .collect();
            chunks
        });
        chunks
            .filter_map(|at| {
                let number = *self.by_index.get(&at.device)?;
                Some((number, self.layouts[number].slot_offset(at.slot)?))
            })
            .collect()
    }

    pub fn layout(&self, number: usize) -> &DeviceLayout {
        &self.layouts[number]
    }
}
