//! Proving the store: every node, every blob, and that the accounting is exact.
//!
//! Reads only, and looks at one state: nothing changes while the accounting is compared, so a store at work can be checked
//! too; its changes wait for that long. Content is read after that, held in place. What belongs to names (directories, links) is checked by the naming layer with the same view. Read next:
//! `docs/design/` on recovery.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stere_engine::{Engine, Error, StillState, blob_usage_bytes};
use stere_format::{BlobFlags, BlobValue, ExtentFlags, ExtentValue, Key, key, sector_aligned};
use stere_log::{Io, Segment};
use stere_tree::NodeIo;

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
    /// Stored bytes of blobs that are on media only, and were not read.
    pub unread_bytes: u64,
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

impl Named {
    /// A blob with names that were put away, which belongs to their fold.
    fn bundle(value: &BlobValue, directory: u64) -> Named {
        Named { references: 1, blocks: value.blocks(), inode: directory }
    }
}

/// What all extents say, by blob.
#[derive(Default)]
struct Extents {
    keys: u64,
    named: FxHashMap<u64, Named>,
    /// Blobs that hold names which were put away, and the directory that it was said of.
    bundles: FxHashMap<u64, u64>,
    /// Some could not be seen.
    is_partial: bool,
}

impl Extents {
    fn add(&mut self, report: &mut CheckReport, key: &Key, value: &[u8]) {
        self.keys += 1;
        if key.kind != key::kind::EXTENT {
            return;
        }
        match ExtentValue::decode(value) {
            Ok(extent) if extent.flags == ExtentFlags::Plain => {
                let entry = self.named.entry(extent.blob).or_default();
                entry.references += 1;
                entry.inode = key.object;
                let end = u64::from(extent.blob_offset) + u64::from(extent.length);
                let blocks = end.div_ceil(4096) - u64::from(extent.blob_offset) / 4096;
                entry.blocks += u32::try_from(blocks).unwrap_or(u32::MAX);
            }
            Ok(_) => {}
            Err(error) => report.add(true, Some(key.object), format!("extent {key} does not decode: {error}")),
        }
    }

    fn add_all(&mut self, other: Extents) {
        self.keys += other.keys;
        for (blob, named) in other.named {
            let entry = self.named.entry(blob).or_default();
            entry.references += named.references;
            entry.blocks += named.blocks;
            entry.inode = named.inode;
        }
    }
}

/// Content to be read and verified; its segment stays in place until then.
struct Content {
    blob: u64,
    value: BlobValue,
    inode: Option<u64>,
    segment: Option<Arc<Segment>>,
}

struct ReadNodes<'a>(&'a Engine);

impl NodeIo for ReadNodes<'_> {
    type Error = Error;

    fn read(&mut self, reference: &stere_format::NodeReference) -> Result<std::sync::Arc<stere_format::Node>, Error> {
        self.0.node(reference)
    }

    fn append(&mut self, _: u8, _: &Key, _: Vec<u8>) -> Result<stere_format::NodeReference, Error> {
        Err(Error::ReadOnly { cause: "a check only reads".into() })
    }
}

/// Proves what lies below names.
pub struct Checker {
    pub(crate) engine: Arc<Engine>,
}

impl Checker {
    pub fn new(engine: &Arc<Engine>) -> Checker {
        Checker { engine: engine.clone() }
    }
}

impl Checker {
    /// Checks everything below names; with `data`, every byte of content is read and verified too.
    pub fn check(&self, data: bool) -> Result<CheckReport, Error> {
        let mut report = CheckReport::default();
        let mut live: FxHashMap<u64, u64> = FxHashMap::default();
        let mut contents = Vec::new();
        // Before the lock is taken, for this may wait for volumes.
        let folded = self.read_folds(&mut report);
        {
            let still = self.engine.hold_still();
            if still.is_half_way() {
                let cause = "a checkpoint failed half-way; mount the pool again, then check it".into();
                return Err(Error::ReadOnly { cause });
            }
            self.check_nodes(&still, &mut report, &mut live);
            let extents = self.gather_extents(&still, &mut report, folded)?;
            self.check_blobs(&still, &mut report, &mut live, extents, data.then_some(&mut contents))?;
            self.check_segments(&mut report, &live);
        }
        for content in contents {
            self.check_content(&mut report, &content);
        }
        Ok(report)
    }

    fn check_nodes(&self, still: &StillState<'_>, report: &mut CheckReport, live: &mut FxHashMap<u64, u64>) {
        let root = still.root();
        for part in still.parts() {
            *live.entry(part.address.segment).or_default() += u64::from(sector_aligned(part.address.length));
        }
        match stere_tree::check(root, &mut ReadNodes(&self.engine), |_, _| {}) {
            Ok(tree) => {
                report.nodes = tree.nodes.len() as u64;
                for node in tree.nodes {
                    *live.entry(node.address.segment).or_default() += u64::from(sector_aligned(node.address.length));
                }
            }
            Err(error) => report.add(true, None, format!("the tree is damaged: {error}")),
        }
    }

    /// What the extents say that were put away. That some cannot be read is told, and what they name is not taken for unnamed.
    fn read_folds(&self, report: &mut CheckReport) -> FxHashMap<u64, Extents> {
        let mut folded = FxHashMap::default();
        for (number, directory) in self.engine.offloaded_ranges() {
            match self.engine.read_fold(Io::BLOCKING, number) {
                Ok(Some((_, bundle, _))) => {
                    let mut extents = Extents::default();
                    bundle.entries.iter().for_each(|(key, value)| extents.add(report, key, value));
                    folded.insert(number, extents);
                }
                Ok(None) => {}
                Err(error) => {
                    let is_lost = matches!(error, Error::Damaged { .. } | Error::BadValue { .. });
                    let text = format!("names below inode {directory} were offloaded and cannot be checked: {error}");
                    report.add(is_lost, Some(directory), text);
                }
            }
        }
        folded
    }

    fn gather_extents(
        &self,
        still: &StillState<'_>,
        report: &mut CheckReport,
        mut folded: FxHashMap<u64, Extents>,
    ) -> Result<Extents, Error> {
        let mut extents = Extents::default();
        let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::BLOBS, 0, 0, 0));
        still.each_key(from, to, |key, value| extents.add(report, key, value))?;
        for (number, fold) in still.offloaded() {
            match folded.remove(&number) {
                Some(of_fold) => extents.add_all(of_fold),
                None => extents.is_partial = true,
            }
            extents.bundles.insert(fold.blob, fold.directory);
        }
        Ok(extents)
    }

    fn check_blobs(
        &self,
        still: &StillState<'_>,
        report: &mut CheckReport,
        live: &mut FxHashMap<u64, u64>,
        extents: Extents,
        mut contents: Option<&mut Vec<Content>>,
    ) -> Result<(), Error> {
        let Extents { mut named, bundles, is_partial, keys } = extents;
        report.keys += keys;
        let (from, to) = (Key::blob(0), Key::new(key::tree::SEGMENTS, 0, 0, 0));
        still.each_key(from, to, |key, bytes| match BlobValue::decode(bytes) {
            Ok(value) => {
                let usage = blob_usage_bytes(&value);
                *live.entry(value.address.segment).or_default() += usage;
                report.blobs += 1;
                report.blob_bytes += u64::from(value.logical_bytes);
                let of_bundle = bundles.get(&key.object).map(|directory| Named::bundle(&value, *directory));
                let name = named.remove(&key.object).or(of_bundle);
                if !is_partial {
                    check_blob(report, key.object, &value, name.as_ref());
                }
                if let Some(contents) = &mut contents {
                    let segment = self.engine.log().segments.get(value.address.segment);
                    contents.push(Content { blob: key.object, value, inode: name.map(|name| name.inode), segment });
                }
            }
            Err(error) => report.add(true, None, format!("blob {} does not decode: {error}", key.object)),
        })?;
        for (blob, name) in named {
            report.add(true, Some(name.inode), format!("inode {} names blob {blob}, which does not exist", name.inode));
        }
        Ok(())
    }

    fn check_content(&self, report: &mut CheckReport, content: &Content) {
        let Content { blob, value, inode, segment } = content;
        let Some(segment) = segment else {
            let text = format!("blob {blob} lies in segment {}, which does not exist", value.address.segment);
            report.add(true, *inode, text);
            return;
        };
        // That volumes have it right is found out by verifying them.
        if segment.is_released() {
            report.unread_bytes += u64::from(value.address.length);
            return;
        }
        if let Err(error) = self.engine.log().read_blocks(segment, &value.address, &value.checksums) {
            if self.engine.is_readable_from_volumes_only(segment) {
                report.unread_bytes += u64::from(value.address.length);
                return;
            }
            report.add(true, *inode, format!("blob {blob} of inode {inode:?} cannot be read: {error}"));
        }
    }

    fn check_segments(&self, report: &mut CheckReport, live: &FxHashMap<u64, u64>) {
        let segments = self.engine.log().segments.everywhere();
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
    if !value.encoding.is_known() {
        let code = value.encoding.0;
        let text = format!("blob {blob} is stored in encoding {code:#04x}, which this version does not know");
        report.add(true, Some(named.inode), text);
    }
    let shared = value.flags.contains(BlobFlags::SHARED);
    if !shared && named.blocks != value.live_blocks() {
        let text = format!("blob {blob} says {} live blocks, but extents name {}", value.live_blocks(), named.blocks);
        report.add(named.blocks > value.live_blocks(), Some(named.inode), text);
    }
}
