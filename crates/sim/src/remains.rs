//! What a crash may leave: the names after each operation since the last acknowledged sync, and the contents that each file
//! had since it was last made durable.
//!
//! Beyond what copies bear, older states may come back: then any that ever was is right. Read next: `recovery.rs`.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::content::Content;
use crate::history::Budget;
use crate::model::Model;

#[derive(Clone)]
pub(crate) struct Remains {
    /// The names after each operation since the last acknowledged sync, that sync's state first.
    names: Vec<Model>,
    /// The contents of each file since it was last made durable, that content first.
    contents: BTreeMap<u64, Vec<Rc<Content>>>,
    /// What is durable of files as soon as anything is that happens later.
    ordered: Vec<(u64, Rc<Content>)>,
    keeps_all: bool,
}

impl Remains {
    /// Those of a new pool.
    pub(crate) fn new(model: &Model, budget: Budget) -> Remains {
        let (names, contents, ordered) = (vec![model.without_handles()], BTreeMap::new(), Vec::new());
        Remains { names, contents, ordered, keeps_all: budget == Budget::Beyond }
    }

    /// Whether what was before a sync may come back, too.
    pub(crate) fn keep_all(&self) -> bool {
        self.keeps_all
    }

    pub(crate) fn note_names(&mut self, model: &Model) {
        self.names.push(model.without_handles());
    }

    pub(crate) fn note_content(&mut self, inode: u64, content: Rc<Content>) {
        self.contents.entry(inode).or_default().push(content);
    }

    /// All names are durable: of those before, none may come back.
    pub(crate) fn forget_names(&mut self) {
        if !self.keeps_all {
            self.names.clear();
        }
    }

    /// A file's bytes are durable as soon as anything is that happens later.
    pub(crate) fn note_ordered(&mut self, inode: u64, content: Rc<Content>) {
        assert!(!self.keeps_all, "beyond what copies bear nothing is forgotten");
        self.ordered.push((inode, content));
    }

    /// Something is durable, and what was ordered before it: of the contents before that, none may come back.
    pub(crate) fn keep_ordered(&mut self) {
        for (inode, content) in std::mem::take(&mut self.ordered) {
            let known = self.contents.entry(inode).or_default();
            match known.iter().rposition(|one| Rc::ptr_eq(one, &content)) {
                Some(at) => drop(known.drain(..at)),
                // It was made durable since, or was so before and is as it was.
                None if known.is_empty() => known.push(content),
                None => {}
            }
        }
    }

    /// A file's bytes are durable: of those before, none may come back.
    pub(crate) fn set_durable(&mut self, inode: u64, content: Rc<Content>) {
        assert!(!self.keeps_all, "beyond what copies bear nothing is forgotten");
        self.contents.insert(inode, vec![content]);
    }

    pub(crate) fn forget_contents(&mut self) {
        if !self.keeps_all {
            self.ordered.clear();
            self.contents.clear();
        }
    }

    pub(crate) fn states(&self) -> usize {
        self.names.len()
    }

    /// How many changes ago the names were those that were found.
    pub(crate) fn find_names(&self, seen: &Model) -> Result<usize, String> {
        let mut nearest = None;
        for (back, names) in self.names.iter().rev().enumerate() {
            match names.difference(seen) {
                None => return Ok(back),
                Some(difference) => nearest = nearest.or(Some(difference)),
            }
        }
        let oldest = self.names.first().and_then(|names| names.difference(seen));
        Err(format!(
            "the recovered names are none of the {} states since the last sync: against the newest: {}; against the synced: {}",
            self.names.len(),
            nearest.unwrap_or_default(),
            oldest.unwrap_or_default()
        ))
    }

    /// Whether every file has bytes that it may have.
    pub(crate) fn check_contents(&self, seen: &Model) -> Result<(), String> {
        for (inode, node) in &seen.nodes {
            let Some(content) = node.content() else { continue };
            let held = self.contents.get(inode).map_or(&[][..], Vec::as_slice);
            if let Err(text) = content.may_remain_of(held) {
                return Err(format!("after a crash {} (inode {inode}): {text}", seen.path_of(*inode)));
            }
        }
        Ok(())
    }

    /// What a crash within an operation may leave: what one before or one behind it may.
    pub(crate) fn within(before: &Remains, after: &Remains) -> Remains {
        let mut both = before.clone();
        both.names.extend(after.names.iter().cloned());
        for (inode, contents) in &after.contents {
            both.contents.entry(*inode).or_default().extend(contents.iter().cloned());
        }
        both
    }
}
