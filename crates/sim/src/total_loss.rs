//! The end of histories with volumes: all devices are gone, and volumes alone give everything back.
//!
//! Everything is sent down and its metadata copied (*published*); then a name is made and another copy begun that does not get far. What
//! rescue gives back from volumes has the names, kinds, modes and contents of one of these two states, whole. Encrypted pools and
//! those with versions are left out: rescue gives the first back encrypted, and the second have more than the model. Read next:
//! `tertiary.rs`, the rescue crate.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use stere_format::FileKind;
use stere_naming::{Error, OpenFlags};
use stere_rescue::{Attributes, Options, Report, Sink, SinkError, Told, VolumeSource, rescue_with_volumes};

use crate::content::Content;
use crate::encryption::Encrypts;
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Model, Node, ROOT};
use crate::operation::Path;
use crate::pool::{PoolUnderTest, caller};
use crate::{execute::names, metadata_offload, tertiary};

/// Made between the two copies.
const LATE: &[u8] = b"late";
/// Objects that are copied of the second one at most.
const LATE_STEPS_MAX: u64 = 4;
/// Steps in which a state must be copied.
const STEPS_MAX: usize = 400;

/// Something that was rescued.
#[derive(Debug, Clone, Default)]
struct Made {
    kind: Option<FileKind>,
    permissions: Option<u32>,
    content: Content,
    target: Vec<u8>,
}

/// What was rescued, by path.
#[derive(Default)]
struct Tree {
    made: BTreeMap<Vec<u8>, Made>,
    links: BTreeMap<Vec<u8>, Vec<u8>>,
    current: Vec<u8>,
    open: Vec<u8>,
}

impl Tree {
    fn path(&self, name: &[u8]) -> Vec<u8> {
        [&self.current[..], b"/", name].concat()
    }

    fn make(&mut self, name: &[u8], made: Made) -> Result<Vec<u8>, SinkError> {
        let path = self.path(name);
        match self.made.insert(path.clone(), made) {
            Some(_) => Err(SinkError::Exists),
            None => Ok(path),
        }
    }
}

fn permissions(attributes: Option<&Attributes>) -> Option<u32> {
    attributes.map(|attributes| attributes.mode & 0o7777)
}

impl Sink for Tree {
    fn enter(&mut self, name: &[u8]) -> Result<(), SinkError> {
        self.current = self.make(name, Made { kind: Some(FileKind::Directory), ..Made::default() })?;
        Ok(())
    }

    fn leave(&mut self, attributes: Option<&Attributes>) -> Result<(), SinkError> {
        self.made.entry(self.current.clone()).or_default().permissions = permissions(attributes);
        let end = self.current.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.current.truncate(end);
        Ok(())
    }

    fn create(&mut self, name: &[u8]) -> Result<(), SinkError> {
        self.open = self.make(name, Made { kind: Some(FileKind::File), ..Made::default() })?;
        Ok(())
    }

    fn reopen(&mut self, path: &[u8]) -> Result<(), SinkError> {
        self.open = path.to_vec();
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.made.entry(self.open.clone()).or_default().content.write(offset, bytes);
        Ok(())
    }

    fn finish(&mut self, size: Option<u64>, attributes: Option<&Attributes>) -> Result<(), SinkError> {
        let made = self.made.entry(self.open.clone()).or_default();
        made.permissions = permissions(attributes);
        if let Some(size) = size {
            made.content.truncate(size);
        }
        Ok(())
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], _: &Attributes) -> Result<(), SinkError> {
        let made = Made { kind: Some(FileKind::Symlink), target: target.to_vec(), ..Made::default() };
        self.make(name, made).map(drop)
    }

    fn special(&mut self, name: &[u8], _: u32, attributes: &Attributes) -> Result<(), SinkError> {
        let kind = FileKind::from_mode(attributes.mode);
        let permissions = permissions(Some(attributes));
        self.make(name, Made { kind, permissions, ..Made::default() }).map(drop)
    }

    fn link(&mut self, existing: &[u8], name: &[u8]) -> Result<(), SinkError> {
        let path = self.path(name);
        self.links.insert(path, existing.to_vec());
        Ok(())
    }

    fn told(&mut self, _: &Told<'_>) {}
}

/// Every path of a model below a directory.
fn paths(model: &Model, inode: u64, at: &[u8], found: &mut BTreeMap<Vec<u8>, u64>) {
    let Some(Kind::Directory(names)) = model.nodes.get(&inode).map(|node| &node.kind) else { return };
    for (name, inode) in names {
        let path = [at, b"/", name].concat();
        paths(model, *inode, &path, found);
        found.insert(path, *inode);
    }
}

/// `is_down`: all of its content is on volumes.
fn difference(made: &Made, node: &Node, is_down: bool) -> Option<String> {
    let (kind, is_link) = (made.kind.map(|kind| kind.mode_bits()), matches!(node.kind, Kind::Symlink(_)));
    if kind != Some(node.kind.type_bits()) {
        return Some(format!("its type is {kind:?}"));
    }
    // Links have no permissions.
    if !is_link && made.permissions != Some(node.mode) {
        return Some(format!("its mode is {:?} instead of {:o}", made.permissions, node.mode));
    }
    match &node.kind {
        Kind::File(content) if is_down => content.difference(&made.content),
        Kind::Symlink(target) if *target != made.target => Some("its target is another".into()),
        _ => None,
    }
}

impl Tree {
    /// How it differs from a model, names and the contents of those that are down.
    fn difference(&self, model: &Model, down: &BTreeSet<u64>) -> Option<String> {
        let mut expected = BTreeMap::new();
        paths(model, ROOT, b"", &mut expected);
        for (path, inode) in &expected {
            let shown = String::from_utf8_lossy(path);
            let made = self.links.get(path).and_then(|existing| self.made.get(existing)).or(self.made.get(path));
            let Some(made) = made else { return Some(format!("{shown} is missing")) };
            if let Some(difference) = difference(made, &model.nodes[inode], down.contains(inode)) {
                return Some(format!("{shown}: {difference}"));
            }
        }
        // The root is made by leaving it.
        let mut extra = self.made.keys().chain(self.links.keys()).filter(|path| !path.is_empty());
        let extra = extra.find(|path| !expected.contains_key(*path))?;
        Some(format!("{} should not be there", String::from_utf8_lossy(extra)))
    }
}

impl PoolUnderTest {
    fn rescued(&self) -> Result<(Tree, Report), Stop> {
        let sources = (0..self.machine.volume_count())
            .map(|volume| VolumeSource { path: crate::volume::name_of(volume), volume: self.machine.volume(volume) })
            .collect();
        let mut tree = Tree::default();
        let machine = self.machine.clone();
        let rescued =
            machine.with_honest_volumes(|| rescue_with_volumes(Vec::new(), sources, Options::default(), &mut tree));
        match rescued {
            Ok(report) => Ok((tree, report)),
            Err(_) if machine.is_off() => Err(Stop::Power),
            Err(error) => Err(Stop::Failure(format!("volumes alone: {error}"))),
        }
    }
}

/// The devices burn, in thought: what volumes alone give back is what was published.
pub(crate) fn rescue_from_volumes(history: &mut History) -> Result<(), Stop> {
    let is_plain = history.plan.pool.encrypts == Encrypts::Nothing && !history.plan.pool.keeps_versions;
    // What passed plugins stays a hole.
    let is_plain = is_plain && !history.plan.pool.passes_plugins;
    let is_well = history.pool.is_calm()
        && history.pool.away().is_none()
        && !history.pool.has_lost_member()
        && !history.plan.may_fill;
    if !is_plain || !is_well || !history.mounted().store.tier.media.has_volumes() || history.pool.kept_image.is_some() {
        return Ok(());
    }
    send_everything_down(history)?;
    let down = whole_on_volumes(history)?;
    let published = history.model.without_handles();
    if !publish(history, STEPS_MAX)? {
        return Err(Stop::Failure("metadata does not get to volumes".into()));
    }
    if !make_late_name(history)? {
        return Ok(());
    }
    let steps = history.random.below(LATE_STEPS_MAX + 1) as usize;
    publish(history, steps)?;
    let later = history.model.without_handles();
    let (tree, report) = history.pool.rescued()?;
    history.summary.tier.rescues += 1;
    history.summary.tier.files_rescued += down.len() as u64;
    let (one, other) = (tree.difference(&published, &down), tree.difference(&later, &down));
    match (one, other) {
        // A fault that struck meanwhile may have cost a device's only copy of what was to be copied.
        (Some(_), Some(_)) if history.plan.budget == Budget::Beyond && !history.pool.is_calm() => Ok(()),
        (Some(one), Some(other)) => {
            let damage = report.damage.first();
            Err(Stop::Failure(format!("volumes alone give neither state: {one}; {other}; {damage:?}")))
        }
        _ => Ok(()),
    }
}

/// Files of which all content is on volumes: some were told to stay.
fn whole_on_volumes(history: &mut History) -> Result<BTreeSet<u64>, Stop> {
    let mut down = BTreeSet::new();
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), ROOT, &mut |met| {
        let is_down = met.file.tertiary_bytes == met.file.local_bytes + met.file.released_bytes;
        down.extend((is_down && met.file.tertiary_bytes > 0).then_some(met.inode));
        ControlFlow::Continue(())
    });
    history.must("looking for what is on volumes", walked)?;
    Ok(down)
}

/// What has a name goes to every volume, unless something below was told otherwise.
fn send_everything_down(history: &mut History) -> Result<(), Stop> {
    // What no name leads to has nothing to do with it.
    for slot in 0..history.slots.len() {
        history.close(slot as u8)?;
    }
    let names: Vec<Path> = {
        let Kind::Directory(names) = &history.model.nodes[&ROOT].kind else { return Ok(()) };
        let is_there = |name: &&[u8]| names.contains_key(*name);
        let known = crate::operation::NAMES.iter().enumerate().filter(|(_, name)| is_there(name));
        known.map(|(at, _)| Path { directory: 0, name: at as u8 }).collect()
    };
    for path in names {
        tertiary::archive(history, path, u8::MAX)?;
    }
    history.sync_all()?;
    tertiary::settle_volumes(history)?;
    history.sync_all()?;
    tertiary::settle_volumes(history)
}

/// Begins a copy of the metadata and does so many steps of it; whether it is at its end.
fn publish(history: &mut History, steps: usize) -> Result<bool, Stop> {
    let store = history.mounted().store.clone();
    let begun = store.tier.copier.begin_metadata_copy(true);
    let mut is_going_on = history.must("beginning to copy metadata", begun.map_err(Error::from))?;
    history.note_commit();
    for _ in 0..steps {
        if !is_going_on {
            break;
        }
        let copied = store.tier.copier.copy_metadata_step();
        is_going_on = history.must("copying metadata", copied.map_err(Error::from))?;
    }
    Ok(!is_going_on)
}

/// False where so small a pool holds all that is free back for the kinds of data that there are.
fn make_late_name(history: &mut History) -> Result<bool, Stop> {
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let made = history.mounted().files.create(&caller(&history.machine), ROOT, LATE, 0o600, flags);
    if matches!(made, Err(Error::NoSpace)) && metadata_offload::is_full(history) {
        return Ok(false);
    }
    let (attributes, handle) = history.must("create", made)?;
    names::made(history, ROOT, LATE, attributes.inode, Node::new(Kind::File(Rc::default()), 0o600))?;
    history.model.open(attributes.inode);
    history.release(Slot { inode: attributes.inode, handle })?;
    history.sync_all().map(|()| true)
}
