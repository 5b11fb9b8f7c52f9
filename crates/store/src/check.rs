//! Proving the store: every node, every blob, and that the accounting is exact.
//!
//! Reads only. What belongs to names (directories, links) is checked by the naming layer with the same view. Read next:
//! `docs/design/` on recovery.

use std::ops::ControlFlow;

use rustc_hash::FxHashMap;
use stere_format::{BlobFlags, BlobValue, ExtentFlags, ExtentValue, Key, key, sector_aligned};
use stere_log::Wait;
use stere_tree::NodeIo;

use crate::Store;
use crate::error::Error;
use crate::transaction::blob_usage_bytes;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether user data is affected (as against accounting).
    pub data_lost: bool,
    /// The file it concerns, where known.
    pub inode: Option<u64>,
    pub text: String,
}

/// What a check went through and found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    pub nodes: u64,
    pub keys: u64,
    pub blobs: u64,
    pub blob_bytes: u64,
    pub segments: u64,
    pub findings: Vec<Finding>,
}

impl CheckReport {
    fn add(&mut self, data_lost: bool, inode: Option<u64>, text: String) {
        self.findings.push(Finding { data_lost, inode, text });
    }
}

/// What extents say of a blob.
#[derive(Default)]
struct Named {
    references: u32,
    blocks: u32,
    inode: u64,
}

struct ReadNodes<'a>(&'a Store);

impl NodeIo for ReadNodes<'_> {
    type Error = Error;

    fn read(&mut self, reference: &stere_format::NodeReference) -> Result<std::sync::Arc<stere_format::Node>, Error> {
        self.0.node(reference)
    }

    fn append(&mut self, _: u8, _: &Key, _: Vec<u8>) -> Result<stere_format::NodeReference, Error> {
        Err(Error::ReadOnly { cause: "a check only reads".into() })
    }
}

impl Store {
    /// Checks everything below names; with `data`, every byte of content is read and verified too.
    pub fn check(&self, data: bool) -> Result<CheckReport, Error> {
        let mut report = CheckReport::default();
        let mut live: FxHashMap<u64, u64> = FxHashMap::default();
        self.check_nodes(&mut report, &mut live);
        let named = self.gather_extents(&mut report)?;
        self.check_blobs(&mut report, &mut live, named, data)?;
        self.check_segments(&mut report, &live);
        Ok(report)
    }

    fn check_nodes(&self, report: &mut CheckReport, live: &mut FxHashMap<u64, u64>) {
        let root = self.inner.read().tree.root;
        let parts = self.checkpointer.lock().parts.clone();
        for part in parts {
            *live.entry(part.address.segment).or_default() += u64::from(sector_aligned(part.address.length));
        }
        match stere_tree::check(root, &mut ReadNodes(self), |_, _| {}) {
            Ok(tree) => {
                report.nodes = tree.nodes.len() as u64;
                for node in tree.nodes {
                    *live.entry(node.address.segment).or_default() += u64::from(sector_aligned(node.address.length));
                }
            }
            Err(error) => report.add(true, None, format!("the tree is damaged: {error}")),
        }
    }

    /// Calls `visit` for all keys of a tree, in bounded views.
    pub fn for_each_key(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8])) -> Result<(), Error> {
        let mut from = from;
        loop {
            let batch = self.view(Wait::Allowed, |view| {
                let mut batch: Vec<(Key, Vec<u8>)> = Vec::with_capacity(1024);
                view.scan(from, to, |key, value| {
                    batch.push((*key, value.to_vec()));
                    if batch.len() < 1024 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                Ok::<_, Error>(batch)
            })?;
            let Some((last, _)) = batch.last() else { return Ok(()) };
            let next = last.successor();
            batch.iter().for_each(|(key, value)| visit(key, value));
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }

    fn gather_extents(&self, report: &mut CheckReport) -> Result<FxHashMap<u64, Named>, Error> {
        let mut named: FxHashMap<u64, Named> = FxHashMap::default();
        let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::BLOBS, 0, 0, 0));
        self.for_each_key(from, to, |key, value| {
            report.keys += 1;
            if key.kind != key::kind::EXTENT {
                return;
            }
            match ExtentValue::decode(value) {
                Ok(extent) if extent.flags == ExtentFlags::Plain => {
                    let entry = named.entry(extent.blob).or_default();
                    entry.references += 1;
                    entry.inode = key.object;
                    let end = u64::from(extent.blob_offset) + u64::from(extent.length);
                    let blocks = end.div_ceil(4096) - u64::from(extent.blob_offset) / 4096;
                    entry.blocks += u32::try_from(blocks).unwrap_or(u32::MAX);
                }
                Ok(_) => {}
                Err(error) => report.add(true, Some(key.object), format!("extent {key} does not decode: {error}")),
            }
        })?;
        Ok(named)
    }

    fn check_blobs(
        &self,
        report: &mut CheckReport,
        live: &mut FxHashMap<u64, u64>,
        mut named: FxHashMap<u64, Named>,
        data: bool,
    ) -> Result<(), Error> {
        let (from, to) = (Key::blob(0), Key::new(key::tree::SEGMENTS, 0, 0, 0));
        let mut values = Vec::new();
        self.for_each_key(from, to, |key, bytes| match BlobValue::decode(bytes) {
            Ok(value) => {
                let usage = blob_usage_bytes(&value);
                *live.entry(value.address.segment).or_default() += usage;
                report.blobs += 1;
                report.blob_bytes += u64::from(value.logical_bytes);
                let name = named.remove(&key.object);
                check_blob(report, key.object, &value, name.as_ref());
                if data {
                    values.push((key.object, value, name.map(|name| name.inode)));
                }
            }
            Err(error) => report.add(true, None, format!("blob {} does not decode: {error}", key.object)),
        })?;
        for (blob, name) in named {
            report.add(true, Some(name.inode), format!("inode {} names blob {blob}, which does not exist", name.inode));
        }
        for (blob, value, inode) in values {
            self.check_content(report, blob, &value, inode);
        }
        Ok(())
    }

    fn check_content(&self, report: &mut CheckReport, blob: u64, value: &BlobValue, inode: Option<u64>) {
        let Some(segment) = self.log.segments.get(value.address.segment) else {
            let text = format!("blob {blob} lies in segment {}, which does not exist", value.address.segment);
            report.add(true, inode, text);
            return;
        };
        if let Err(error) = self.log.read_blocks(&segment, &value.address, &value.checksums) {
            report.add(true, inode, format!("blob {blob} of inode {inode:?} cannot be read: {error}"));
        }
    }

    fn check_segments(&self, report: &mut CheckReport, live: &FxHashMap<u64, u64>) {
        let segments = self.log.segments.all();
        report.segments = segments.len() as u64;
        let mut slots = FxHashMap::default();
        for segment in &segments {
            let counted = live.get(&segment.id).copied().unwrap_or(0);
            if counted != segment.live_bytes() {
                let text =
                    format!("segment {} says {} live bytes, but {counted} are", segment.id, segment.live_bytes());
                report.add(false, None, text);
            }
            for place in segment.chunks() {
                if let Some(other) = slots.insert((place.device, place.slot), segment.id) {
                    let text = format!(
                        "segments {other} and {} both claim slot {} of device {}",
                        segment.id, place.slot, place.device
                    );
                    report.add(true, None, text);
                }
            }
        }
        for id in live.keys() {
            if !segments.iter().any(|segment| segment.id == *id) {
                report.add(true, None, format!("records lie in segment {id}, which is not in the segment table"));
            }
        }
    }
}

fn check_blob(report: &mut CheckReport, blob: u64, value: &BlobValue, named: Option<&Named>) {
    let Some(named) = named else {
        report.add(false, None, format!("blob {blob} is named by no file"));
        return;
    };
    if named.references != value.references {
        let text =
            format!("blob {blob} says {} references, but {} extents name it", value.references, named.references);
        report.add(false, Some(named.inode), text);
    }
    let shared = value.flags.contains(BlobFlags::SHARED);
    if !shared && named.blocks != value.live_blocks() {
        let text = format!("blob {blob} says {} live blocks, but extents name {}", value.live_blocks(), named.blocks);
        report.add(named.blocks > value.live_blocks(), Some(named.inode), text);
    }
}
