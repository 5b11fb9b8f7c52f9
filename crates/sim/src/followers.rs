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
use stere_naming::{Error, FollowChange, OpenFlags};
use stere_plugin::{Event, EventKind, Events, PluginFailure, Reading, UserPlugin, Verdict};

use crate::area::{Area, further};
use crate::content::{Content, pattern};
use crate::history::{Budget, History, Plan, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::operation::Operation;
use crate::pool::caller;
use crate::random::Random;
use crate::{
    execute::{contents, names},
    policy_lists, recovery, retention,
};

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

impl Plan {
    pub(crate) fn has_followers(&self) -> bool {
        self.pool.areas.has(Area::Followers) && !self.may_fill
    }
}

/// The plugin of a new pool, which is told of everything.
pub(crate) fn begin_followers(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_followers() {
        return Ok(());
    }
    let added = history.command(|files, caller| files.plugins().add_plugin(caller, NAME, MODULE));
    history.must("adding a plugin", added)?;
    names::put_policy(history, ROOT, ATTRIBUTE, NAME.as_bytes())?;
    history.sync_all()
}

/// The plugin fails from now on, or works again.
pub(crate) fn fail_told(history: &mut History, fails: bool) {
    history.machine.played.told.fails.store(fails, Ordering::Release);
}

/// Some of what waits is told.
pub(crate) fn tell(history: &mut History, count: u8) -> Result<(), Stop> {
    if !history.plan.has_followers() {
        return Ok(());
    }
    let told = history.mounted().files.asynchronous_events().follow_step(
        &caller(&history.machine),
        usize::from(count),
        &|| false,
    );
    history.must_but_for_volumes("telling plugins", told).map(drop)
}

/// Everything is told, which must come to an end.
fn tell_all(history: &mut History) -> Result<(), Stop> {
    fail_told(history, false);
    let again = history
        .mounted()
        .files
        .asynchronous_events()
        .change_follow_list(&caller(&history.machine), FollowChange::Retry);
    history.must("trying again what waits for plugins", again)?;
    for _ in 0..ROUNDS_MAX {
        history.machine.pass(ROUND_NS);
        let mut steps = 0;
        loop {
            let told =
                history.mounted().files.asynchronous_events().follow_step(&caller(&history.machine), 64, &|| false);
            if !history.must("telling plugins", told)? {
                break;
            }
            steps += 1;
            if steps > 1000 {
                return Err(Stop::Failure("telling plugins does not come to an end".into()));
            }
        }
        let list = history.mounted().files.asynchronous_events().follow_list(&caller(&history.machine), 8);
        let list = history.must("what waits for plugins", list)?;
        if list.given_up > 0 {
            return Err(Stop::Failure(format!("given up, and the plugin works: {:?}", list.some)));
        }
        if list.waiting == 0 {
            break;
        }
    }
    retention::tell_time(history);
    Ok(())
}

/// Whether a file is to be passed through plugins of its own or of a directory below the root: then this one is not asked.
fn has_others(history: &mut History, inode: u64) -> Result<bool, Stop> {
    let says_other = |node: &Node| node.attributes.get(ATTRIBUTE).is_some_and(|said| said != NAME.as_bytes());
    if !history.model.nodes.values().any(says_other) {
        return Ok(false);
    }
    let held = history.mounted().files.getxattr(&caller(&history.machine), inode, b"user.stere.effective.plugins");
    match held {
        Err(Error::NoAttribute) => Ok(true),
        held => Ok(!history.must("the plugins of a file", held)?.starts_with(NAME.as_bytes())),
    }
}

/// P-128: what was told last of each file is what it holds.
pub(crate) fn check_followers(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_followers() || history.plan.budget == Budget::Beyond || !policy_lists::is_undisturbed(history)
    {
        return Ok(());
    }
    history.machine.disarm();
    history.sync_all()?;
    tell_all(history)?;
    for (inode, node) in history.model.nodes.clone() {
        let is_open = history.slots.iter().flatten().any(|slot| slot.inode == inode);
        // Nothing is noted with what is retained.
        let is_kept = history.model.check_changeable(inode).is_err();
        let Some(content) = node.content().filter(|_| node.nlink > 0 && !is_open && !is_kept) else { continue };
        if has_others(history, inode)? {
            continue;
        }
        let noted = history.mounted().files.getxattr(&caller(&history.machine), inode, NOTE);
        if noted.as_ref().ok() != Some(&note(content)) {
            let path = history.model.path_of(inode);
            let waiting = history
                .mounted()
                .files
                .asynchronous_events()
                .follow_list(&caller(&history.machine), 8)
                .map(|list| list.some);
            let text = format!(
                "{path} (inode {inode}): what was told last is not what it holds: {noted:?}; waiting: {waiting:?}"
            );
            return Err(Stop::Failure(text));
        }
    }
    history.summary.told_compared += 1;
    history.sync_all()
}

/// What is removed is told of, also if the power goes off in between.
pub(crate) fn prove_followers(history: &mut History) -> Result<(), Stop> {
    check_followers(history)?;
    let is_bounded = history.quotas.are_on() || history.plan.pool.keeps_versions;
    let may =
        history.plan.has_followers() && history.plan.budget != Budget::Beyond && policy_lists::is_undisturbed(history);
    if !may || is_bounded || history.model.lookup(ROOT, GOES).is_ok() {
        return Ok(());
    }
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), ROOT, GOES, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, ROOT, GOES, inode, Node::new(Kind::File(Default::default()), 0o644))?;
    history.model.open(inode);
    contents::write(history, inode, 0, &pattern(inode, 900))?;
    history.release(Slot { inode, handle })?;
    history.sync_all()?;
    history.machine.played.told.removed.lock().clear();
    names::remove_name(history, ROOT, GOES, false)?;
    history.sync_all()?;
    if history.random.chance(1, 2) {
        recovery::remount(history)?;
    }
    tell_all(history)?;
    let is_encrypted = history.plan.may_be_encrypted();
    match is_encrypted || history.machine.played.told.removed.lock().iter().any(|name| name == GOES) {
        true => Ok(()),
        false => Err(Stop::Failure("a removed file was not told of".into())),
    }
}
