//! Applying a sorted batch of changes to an immutable tree: reads the nodes on touched paths, writes their successors.
//!
//! The merge walks the old tree in key order with a stack of frames, one for each open node. Nothing is written for a
//! node until something in it really changes; then it and its ancestors become *dirty*: they are obsolete, and their
//! entries flow into the level's entries in the making (see `level.rs`), from which nodes are cut, whose references
//! flow into the level above. Between dirty nodes whole subtrees are kept by reference.
//!
//! Invariants: the entries in the making of level n are empty whenever a node of level n+1 is opened or closed by the
//! walk; they are not empty only if all open frames above are dirty. The nodes reachable afterwards are those before,
//! without the obsolete, with the written (a node may be both when a root turns out to have a single child).

use crate::level::Level;
use crate::{NodeIo, TreeError};
use std::sync::Arc;
use stere_format::{Key, NODE_BYTES_TARGET, Node, NodeReference};

/// A node to look at: it is rewritten if its segment is condemned. Found by the level and first key in a row summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    pub first_key: Key,
    pub level: u8,
}

/// What a finished merge leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOutcome {
    pub root: Option<NodeReference>,
    /// Nodes no longer referred to, once the new root is the root.
    pub obsolete: Vec<NodeReference>,
    /// Nodes appended.
    pub written: Vec<NodeReference>,
}

/// How far a merge is.
#[derive(Debug)]
pub enum Progress {
    More,
    Done(MergeOutcome),
}

struct Frame {
    /// None for the leaf that an empty tree does not have.
    node: Option<(NodeReference, Arc<Node>)>,
    level: u8,
    /// Entry being looked at; all before it are done.
    next: usize,
    is_dirty: bool,
    /// First key behind the node.
    upper: Option<Key>,
}

impl Frame {
    fn count(&self) -> usize {
        self.node.as_ref().map_or(0, |(_, node)| node.count())
    }
}

/// A merge in progress. After an error it cannot go on: drop it; what it wrote is garbage, the old tree is whole.
pub struct Merge<C, V> {
    changes: C,
    change: Option<(Key, Option<V>)>,
    touches: Vec<Touch>,
    touches_done: usize,
    target_bytes: usize,
    root: Option<NodeReference>,
    stack: Vec<Frame>,
    levels: Vec<Level>,
    obsolete: Vec<NodeReference>,
    written: Vec<NodeReference>,
    /// Nodes read and written so far, for the budget.
    work: usize,
    has_begun: bool,
    is_done: bool,
}

/// Merges in one go.
pub fn merge<I: NodeIo, V: AsRef<[u8]>>(
    root: Option<NodeReference>,
    changes: impl Iterator<Item = (Key, Option<V>)>,
    touches: &[Touch],
    io: &mut I,
) -> Result<MergeOutcome, I::Error> {
    let mut merge = Merge::new(root, changes, touches);
    loop {
        if let Progress::Done(outcome) = merge.step(usize::MAX, io)? {
            return Ok(outcome);
        }
    }
}

impl<C, V> Merge<C, V>
where
    C: Iterator<Item = (Key, Option<V>)>,
    V: AsRef<[u8]>,
{
    /// Begins a merge; changes ascend strictly, a change without a value deletes. Nothing is read or written yet.
    pub fn new(root: Option<NodeReference>, changes: C, touches: &[Touch]) -> Self {
        Self::with_target(root, changes, touches, NODE_BYTES_TARGET)
    }

    /// The same with another node size, at least 512 bytes so that every inner node has room for several children.
    pub fn with_target(root: Option<NodeReference>, changes: C, touches: &[Touch], target_bytes: usize) -> Self {
        assert!((512..=256 << 10).contains(&target_bytes), "nodes have 512 bytes to 256 KiB");
        let mut touches = touches.to_vec();
        touches.sort_unstable();
        Self {
            changes,
            change: None,
            touches,
            touches_done: 0,
            target_bytes,
            root,
            stack: Vec::new(),
            levels: Vec::new(),
            obsolete: Vec::new(),
            written: Vec::new(),
            work: 0,
            has_begun: false,
            is_done: false,
        }
    }

    /// Nodes written so far; all of them are garbage if the merge is dropped.
    pub fn written(&self) -> &[NodeReference] {
        &self.written
    }

    /// Goes on until about `budget_nodes` more nodes were read or written.
    pub fn step<I: NodeIo>(&mut self, budget_nodes: usize, io: &mut I) -> Result<Progress, I::Error> {
        assert!(!self.is_done, "a merge is done once");
        let work_end = self.work.saturating_add(budget_nodes.max(1));
        if !self.has_begun {
            self.begin(io)?;
        }
        while let Some(frame) = self.stack.last() {
            if self.work >= work_end {
                return Ok(Progress::More);
            }
            if frame.level == 0 { self.step_leaf(io)? } else { self.step_inner(io)? }
        }
        self.is_done = true;
        assert!(self.change.is_none(), "every change is applied");
        assert!(self.levels.iter().all(Level::is_empty), "what was gathered is written");
        let (obsolete, written) = (std::mem::take(&mut self.obsolete), std::mem::take(&mut self.written));
        Ok(Progress::Done(MergeOutcome { root: self.root, obsolete, written }))
    }

    fn begin<I: NodeIo>(&mut self, io: &mut I) -> Result<(), I::Error> {
        self.has_begun = true;
        self.change = self.changes.next();
        let is_needed = self.change.is_some() || !self.touches.is_empty();
        match self.root {
            Some(root) if is_needed => self.open(root, None, None, io),
            None if is_needed => {
                self.ensure_level(0)?;
                self.stack.push(Frame { node: None, level: 0, next: 0, is_dirty: false, upper: None });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ensure_level(&mut self, level: u8) -> Result<(), TreeError> {
        if level > NodeReference::LEVEL_MAX {
            return Err(TreeError::TooHigh { levels_max: NodeReference::LEVEL_MAX });
        }
        while self.levels.len() <= usize::from(level) {
            self.levels.push(Level::new(self.levels.len() as u8));
        }
        Ok(())
    }

    fn read<I: NodeIo>(&mut self, reference: &NodeReference, io: &mut I) -> Result<Arc<Node>, I::Error> {
        self.work += 1;
        let node = io.read(reference)?;
        if node.level() != reference.level {
            return Err(TreeError::Level { reference: *reference, found: node.level() }.into());
        }
        Ok(node)
    }

    fn open<I: NodeIo>(
        &mut self,
        reference: NodeReference,
        first_key: Option<Key>,
        upper: Option<Key>,
        io: &mut I,
    ) -> Result<(), I::Error> {
        let node = self.read(&reference, io)?;
        check_bounds(&reference, &node, first_key, upper)?;
        let level = reference.level;
        self.ensure_level(level)?;
        self.stack.push(Frame { node: Some((reference, node)), level, next: 0, is_dirty: false, upper });
        if io.is_condemned(reference.address.segment) {
            self.mark_dirty(io)?;
        }
        Ok(())
    }

    /// Whether the next change is before this key.
    fn has_change_before(&self, upper: Option<Key>) -> bool {
        self.change.as_ref().is_some_and(|(key, _)| upper.is_none_or(|upper| *key < upper))
    }

    /// Whether a node below this level and before this key is to be looked at.
    fn has_touch_before(&self, upper: Option<Key>, level: u8) -> bool {
        let before = |touch: &&Touch| upper.is_none_or(|upper| touch.first_key < upper);
        self.touches[self.touches_done..].iter().take_while(before).any(|touch| touch.level < level)
    }

    /// One child of the innermost open node.
    fn step_inner<I: NodeIo>(&mut self, io: &mut I) -> Result<(), I::Error> {
        let frame = self.stack.last().expect("step is called with an open node");
        let (_, node) = frame.node.as_ref().expect("inner nodes exist");
        if frame.next == node.count() {
            return self.close(io);
        }
        let (key, child) = (node.key(frame.next), node.child(frame.next));
        let upper = if frame.next + 1 < node.count() { Some(node.key(frame.next + 1)) } else { frame.upper };
        let is_needed = self.has_change_before(upper)
            || io.is_condemned(child.address.segment)
            || self.has_touch_before(upper, child.level);
        if is_needed {
            return self.open(child, Some(key), upper, io);
        }
        self.keep(key, child, None, io)?;
        self.pass_child(upper);
        Ok(())
    }

    /// Goes on to the next child of the innermost open node; `upper` is the first key behind the one passed.
    fn pass_child(&mut self, upper: Option<Key>) {
        let before = |touch: &Touch| upper.is_none_or(|upper| touch.first_key < upper);
        while self.touches.get(self.touches_done).is_some_and(before) {
            self.touches_done += 1;
        }
        self.stack.last_mut().expect("a child has a parent").next += 1;
    }

    /// Applies changes to the innermost open leaf until it is done or a node was written.
    fn step_leaf<I: NodeIo>(&mut self, io: &mut I) -> Result<(), I::Error> {
        let work = self.work;
        while self.work == work {
            let frame = self.stack.last().expect("step is called with an open node");
            if !self.has_change_before(frame.upper) {
                self.pass_entries(frame.count());
                return self.close(io);
            }
            let Some((key, value)) = self.change.take() else { break };
            self.next_change(key)?;
            let frame = self.stack.last().expect("step is called with an open node");
            let found = frame.node.as_ref().map_or(Err(0), |(_, node)| node.search(&key));
            let index = found.unwrap_or_else(|index| index);
            let old = found.ok().and_then(|index| frame.node.as_ref().map(|(_, node)| node.value(index)));
            if old == value.as_ref().map(AsRef::as_ref) {
                continue;
            }
            self.pass_entries(index);
            self.mark_dirty(io)?;
            if found.is_ok() {
                self.stack.last_mut().expect("the leaf is open").next += 1;
            }
            if let Some(value) = value {
                self.levels[0].push_value(&key, value.as_ref(), found.is_err());
                self.write_overfull(0, io)?;
            }
        }
        Ok(())
    }

    fn next_change(&mut self, previous: Key) -> Result<(), TreeError> {
        self.change = self.changes.next();
        match &self.change {
            Some((found, _)) if *found <= previous => Err(TreeError::ChangeOrder { previous, found: *found }),
            _ => Ok(()),
        }
    }

    /// Entries of the innermost open leaf before `index` stay as they are.
    fn pass_entries(&mut self, index: usize) {
        let frame = self.stack.last_mut().expect("the leaf is open");
        assert!(frame.next <= index, "a leaf is walked forward");
        if let (true, Some((_, node))) = (frame.is_dirty, &frame.node) {
            self.levels[0].push_entries(node, frame.next..index);
        }
        frame.next = index;
    }

    /// The innermost open node changes, and so do all above it.
    fn mark_dirty<I: NodeIo>(&mut self, io: &mut I) -> Result<(), I::Error> {
        for depth in 0..self.stack.len() {
            if self.stack[depth].is_dirty {
                continue;
            }
            let level = self.stack[depth].level;
            // What was gathered before this node stays apart from it if it makes a decent node of its own.
            if self.levels[usize::from(level)].is_half_full(self.target_bytes) {
                self.write_all(level, io)?;
            }
            let frame = &mut self.stack[depth];
            frame.is_dirty = true;
            if let Some((reference, node)) = &frame.node {
                self.obsolete.push(*reference);
                self.levels[usize::from(level)].push_entries(node, 0..frame.next);
            }
            self.write_overfull(level, io)?;
        }
        Ok(())
    }

    /// A child of the innermost open node stays as it is, or is merged with a small node gathered before it.
    fn keep<I: NodeIo>(
        &mut self,
        key: Key,
        child: NodeReference,
        node: Option<Arc<Node>>,
        io: &mut I,
    ) -> Result<(), I::Error> {
        let level = usize::from(child.level);
        let parent_is_dirty = self.stack.last().expect("a child has a parent").is_dirty;
        if !self.levels[level].is_empty() {
            assert!(parent_is_dirty, "what was gathered changes the parent");
            if self.levels[level].is_underfull(self.target_bytes) {
                let node = match node {
                    Some(node) => node,
                    None => self.read(&child, io)?,
                };
                self.obsolete.push(child);
                self.levels[level].push_entries(&node, 0..node.count());
                return self.write_overfull(child.level, io);
            }
            self.write_all(child.level, io)?;
        }
        if parent_is_dirty {
            self.levels[level + 1].push_child(&key, &child, false);
            self.write_overfull(child.level + 1, io)?;
        }
        Ok(())
    }

    /// The innermost open node is done.
    fn close<I: NodeIo>(&mut self, io: &mut I) -> Result<(), I::Error> {
        let frame = self.stack.last().expect("close is called with an open node");
        let (level, is_dirty) = (frame.level, frame.is_dirty);
        if is_dirty && level > 0 {
            self.close_children(level - 1, io)?;
        }
        let frame = self.stack.pop().expect("the node is still open");
        if self.stack.is_empty() {
            return if is_dirty { self.finish(level, io) } else { Ok(()) };
        }
        if let (false, Some((reference, node))) = (is_dirty, frame.node) {
            self.keep(node.first_key(), reference, Some(node), io)?;
        }
        self.pass_child(frame.upper);
        Ok(())
    }

    /// Writes what was gathered of the children of a node that is done; if it is little, with the one before it.
    fn close_children<I: NodeIo>(&mut self, level: u8, io: &mut I) -> Result<(), I::Error> {
        let index = usize::from(level);
        if !self.levels[index].is_empty() && self.levels[index].is_underfull(self.target_bytes) {
            if let Some((_, neighbour)) = self.levels[index + 1].pop_child() {
                let node = self.read(&neighbour, io)?;
                self.obsolete.push(neighbour);
                self.levels[index].prepend(&node);
            }
        }
        self.write_all(level, io)
    }

    /// Writes everything gathered of a level.
    fn write_all<I: NodeIo>(&mut self, level: u8, io: &mut I) -> Result<(), I::Error> {
        while !self.levels[usize::from(level)].is_empty() {
            let count = self.levels[usize::from(level)].cut(self.target_bytes);
            self.write(level, count, io)?;
        }
        Ok(())
    }

    /// Writes full nodes while enough stays for another.
    fn write_overfull<I: NodeIo>(&mut self, level: u8, io: &mut I) -> Result<(), I::Error> {
        while self.levels[usize::from(level)].is_overfull(self.target_bytes) {
            let count = self.levels[usize::from(level)].builder.count_within(self.target_bytes);
            self.write(level, count, io)?;
        }
        Ok(())
    }

    fn write<I: NodeIo>(&mut self, level: u8, count: usize, io: &mut I) -> Result<(), I::Error> {
        self.ensure_level(level + 1)?;
        let (first_key, bytes, is_new) = self.levels[usize::from(level)].take(count);
        let length = bytes.len();
        let reference = io.append(level, &first_key, bytes)?;
        assert!(reference.level == level && reference.address.length as usize == length, "what was asked was written");
        self.work += 1;
        self.written.push(reference);
        self.levels[usize::from(level) + 1].push_child(&first_key, &reference, is_new);
        self.write_overfull(level + 1, io)
    }

    /// The old root is done and changed: writes what is still gathered, up to the new root.
    fn finish<I: NodeIo>(&mut self, old_root_level: u8, io: &mut I) -> Result<(), I::Error> {
        let mut level = old_root_level;
        self.root = loop {
            self.ensure_level(level + 1)?;
            let nothing_above = self.levels[usize::from(level) + 1..].iter().all(Level::is_empty);
            let gathered = &mut self.levels[usize::from(level)];
            if nothing_above && gathered.is_empty() {
                break None;
            }
            if nothing_above && level > 0 && gathered.builder.count() == 1 {
                break gathered.pop_child().map(|(_, root)| root);
            }
            self.write_all(level, io)?;
            level += 1;
        };
        while let Some(root) = self.root.filter(|root| root.level > 0) {
            let node = self.read(&root, io)?;
            if node.count() > 1 {
                break;
            }
            self.obsolete.push(root);
            self.root = Some(node.child(0));
        }
        Ok(())
    }
}

fn check_bounds(
    reference: &NodeReference,
    node: &Node,
    first_key: Option<Key>,
    upper: Option<Key>,
) -> Result<(), TreeError> {
    let found = node.first_key();
    if let Some(expected) = first_key.filter(|expected| *expected != found) {
        return Err(TreeError::FirstKey { reference: *reference, expected, found });
    }
    let found = node.last_key();
    if upper.is_some_and(|upper| found >= upper) {
        return Err(TreeError::KeyBounds { reference: *reference, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
