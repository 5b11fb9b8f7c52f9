//! Plugins that are told afterwards, in histories: one notes with each file what it holds, and fails now and then (P-128, P-129).
//!
//! It is played at the edge where others have a sandbox. What it does wrong must not show in any call: that is judged as in any other
//! history. Once it works again and nothing is left to tell, each file that nobody has open has a note of just what it holds: at each
//! check, and after each crash, whatever was served before. What is removed is told of by its name.
//! Read next: `plugins.rs`, `docs/design/plugins.md`.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_naming::{FollowChange, OpenFlags};
use stere_plugin::{Event, EventKind, Events, PluginFailure, Reading, UserPlugin, Verdict};

use crate::area::{Area, further};
use crate::content::{Content, pattern};
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::operation::Operation;
use crate::pool::caller;
use crate::random::Random;

const ATTRIBUTE: &[u8] = b"user.stere.plugins";
const NAME: &str = "told";
/// The module by which it is known.
pub(crate) const MODULE: &[u8] = b"told";
/// What it notes with files; the model has no rule for when.
pub(crate) const NOTE: &[u8] = b"user.plugin.told";
/// The file that is removed to see whether that is told.
const GOES: &[u8] = b"goes";
/// What is read of a file at a time.
const PIECE_BYTES: usize = 100_000;
/// Rounds, each longer than whatever is waited for, after which nothing is left.
const ROUNDS_MAX: usize = 3;
const ROUND_NS: u64 = 100_000_000_000;

/// The plugin. All mounts of a machine have the same.
#[derive(Debug, Clone, Default)]
pub struct Told {
    fails: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    /// Names of what was removed.
    removed: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl UserPlugin for Told {
    fn is_codec(&self) -> bool {
        false
    }

    fn events(&self) -> Events {
        Events::NONE
    }

    fn encode(&self, _: &str, _: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        Err(PluginFailure::Nonsense("it is no codec".into()))
    }

    fn decode(&self, _: &str, _: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        Err(PluginFailure::Nonsense("it is no codec".into()))
    }

    fn judge(&self, _: &str, _: &Event<'_>) -> Result<Verdict, PluginFailure> {
        Err(PluginFailure::Nonsense("it is asked nothing".into()))
    }

    fn follows(&self) -> Events {
        Events::FOLLOWED
    }

    fn follow(&self, _: &str, event: &Event<'_>, read: &mut Reading<'_>) -> Result<Verdict, PluginFailure> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        if self.fails.load(Ordering::Acquire) {
            return Err(PluginFailure::Trapped("played".into()));
        }
        if event.kind == EventKind::Delete {
            self.removed.lock().push(event.name.to_vec());
            return Ok(Verdict::Allow);
        }
        let (mut content, mut buffer) = (Content::default(), vec![0; PIECE_BYTES]);
        loop {
            let at = content.size();
            let length = read(at, &mut buffer).map_err(PluginFailure::Unreadable)?;
            content.write(at, &buffer[..length]);
            if length < buffer.len() {
                return Ok(Verdict::Annotate(note(&content)));
            }
        }
    }
}

/// What is noted with a file that holds this.
fn note(content: &Content) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&content.read(0, u64::MAX));
    [content.size().to_le_bytes(), hasher.finish().to_le_bytes()].concat()
}

/// Lets the plugin fail for a while, and looks at what it was told.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(8);
    for _ in 0..random.between(1, 3) {
        operations.insert(at, Operation::FailTold { fails: true });
        at = further(at + 1, 6, operations, random);
        operations.insert(at, Operation::Tell { count: random.between(1, 8) as u8 });
        at = further(at + 1, 8, operations, random);
        operations.insert(at, Operation::FailTold { fails: false });
        operations.insert(at + 1, Operation::Tell { count: random.between(1, 8) as u8 });
        at = further(at + 2, 8, operations, random);
        if random.chance(2, 3) {
            operations.insert(at, Operation::Check);
        }
        at = further(at + 1, 8, operations, random);
    }
}

impl History {
    fn has_followers(&self) -> bool {
        self.plan.pool.areas.has(Area::Followers) && !self.plan.may_fill
    }

    /// The plugin of a new pool, which is told of everything.
    pub(crate) fn begin_followers(&mut self) -> Result<(), Stop> {
        if !self.has_followers() {
            return Ok(());
        }
        let added = self.mounted().files.plugins().add_plugin(&caller(&self.machine), NAME, MODULE);
        self.must("adding a plugin", added)?;
        self.put_policy(ROOT, ATTRIBUTE, NAME.as_bytes())?;
        self.sync_all()
    }

    /// The plugin fails from now on, or works again.
    pub(crate) fn fail_told(&mut self, fails: bool) {
        self.machine.played.told.fails.store(fails, Ordering::Release);
    }

    /// Some of what waits is told.
    pub(crate) fn tell(&mut self, count: u8) -> Result<(), Stop> {
        if !self.has_followers() {
            return Ok(());
        }
        let told =
            self.mounted()
                .files
                .asynchronous_events()
                .follow_step(&caller(&self.machine), usize::from(count), &|| false);
        self.must_but_for_volumes("telling plugins", told).map(drop)
    }

    /// Everything is told, which must come to an end.
    fn tell_all(&mut self) -> Result<(), Stop> {
        self.fail_told(false);
        let again =
            self.mounted().files.asynchronous_events().change_follow_list(&caller(&self.machine), FollowChange::Retry);
        self.must("trying again what waits for plugins", again)?;
        for _ in 0..ROUNDS_MAX {
            self.machine.pass(ROUND_NS);
            let mut steps = 0;
            loop {
                let told =
                    self.mounted().files.asynchronous_events().follow_step(&caller(&self.machine), 64, &|| false);
                if !self.must("telling plugins", told)? {
                    break;
                }
                steps += 1;
                if steps > 1000 {
                    return Err(Stop::Failure("telling plugins does not come to an end".into()));
                }
            }
            let list = self.mounted().files.asynchronous_events().follow_list(&caller(&self.machine), 8);
            let list = self.must("what waits for plugins", list)?;
            if list.given_up > 0 {
                return Err(Stop::Failure(format!("given up, and the plugin works: {:?}", list.some)));
            }
            if list.waiting == 0 {
                break;
            }
        }
        self.tell_time();
        Ok(())
    }

    /// P-128: what was told last of each file is what it holds.
    pub(crate) fn check_followers(&mut self) -> Result<(), Stop> {
        if !self.has_followers() || self.plan.budget == Budget::Beyond || !self.is_undisturbed() {
            return Ok(());
        }
        self.machine.disarm();
        self.sync_all()?;
        self.tell_all()?;
        for (inode, node) in self.model.nodes.clone() {
            let is_open = self.slots.iter().flatten().any(|slot| slot.inode == inode);
            // Nothing is noted with what is retained.
            let is_kept = self.model.check_changeable(inode).is_err();
            let Some(content) = node.content().filter(|_| node.nlink > 0 && !is_open && !is_kept) else { continue };
            let noted = self.mounted().files.getxattr(&caller(&self.machine), inode, NOTE);
            if noted.as_ref().ok() != Some(&note(content)) {
                let path = self.model.path_of(inode);
                let text = format!("{path} (inode {inode}): what was told last is not what it holds: {noted:?}");
                return Err(Stop::Failure(text));
            }
        }
        self.summary.told_compared += 1;
        self.sync_all()
    }

    /// What is removed is told of, also if the power goes off in between.
    pub(crate) fn prove_followers(&mut self) -> Result<(), Stop> {
        self.check_followers()?;
        let is_bounded = self.has_quotas() || self.plan.pool.keeps_versions;
        let may = self.has_followers() && self.plan.budget != Budget::Beyond && self.is_undisturbed();
        if !may || is_bounded || self.model.lookup(ROOT, GOES).is_ok() {
            return Ok(());
        }
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = self.mounted().files.create(&caller(&self.machine), ROOT, GOES, 0o666, flags);
        let (attributes, handle) = self.must("create", created)?;
        let inode = attributes.inode;
        self.made(ROOT, GOES, inode, Node::new(Kind::File(Default::default()), 0o644))?;
        self.model.open(inode);
        self.write(inode, 0, &pattern(inode, 900))?;
        self.release(Slot { inode, handle })?;
        self.sync_all()?;
        self.machine.played.told.removed.lock().clear();
        self.remove_name(ROOT, GOES, false)?;
        self.sync_all()?;
        if self.random.chance(1, 2) {
            self.remount()?;
        }
        self.tell_all()?;
        let is_encrypted = self.may_be_encrypted();
        match is_encrypted || self.machine.played.told.removed.lock().iter().any(|name| name == GOES) {
            true => Ok(()),
            false => Err(Stop::Failure("a removed file was not told of".into())),
        }
    }
}
