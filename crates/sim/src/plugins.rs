//! Users' plugins in histories: files and directories are told to pass one, and it fails now and then (P-66).
//!
//! The plugin is played at the edge where others have a sandbox: it changes every byte, makes each record longer, and traps, does not
//! come to an end or gives nonsense when the machine says so. While it does, its own files may fail and nobody else's may; a write that
//! was accepted is not lost by it; and when it works again everything is there. Contents, names and crashes are judged as in any other
//! history. Read next: the plugin crate's `stack.rs`, `docs/design/plugins.md`.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use stere_naming::OpenFlags;
use stere_plugin::{Event, Events, Loader, PluginFailure, UserPlugin, Verdict};

use crate::content::pattern;
use crate::followers::{self, Told};
use crate::history::{Budget, History, Plan, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::pool::caller;
use crate::{execute::names, observe};

const ATTRIBUTE: &[u8] = b"user.stere.plugins";
const NAME: &str = "played";
/// What is told to files and directories.
const WISHES: [&[u8]; 3] = [b"played", b"none", b"played,played:again"];
/// Behind each record.
const MARK: u8 = 0x77;
const BYTES: usize = 30_000;

/// What the plugin does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginTrouble {
    Traps = 1,
    Loops = 2,
    Nonsense = 3,
}

impl PluginTrouble {
    const ALL: [PluginTrouble; 3] = [PluginTrouble::Traps, PluginTrouble::Loops, PluginTrouble::Nonsense];
}

/// The plugin, and what loads it. All mounts of a machine have the same.
#[derive(Debug, Clone, Default)]
pub struct Played {
    trouble: Arc<AtomicU8>,
    pub(crate) told: Told,
}

impl Played {
    pub(crate) fn set(&self, trouble: Option<PluginTrouble>) {
        self.trouble.store(trouble.map_or(0, |trouble| trouble as u8), Ordering::Release);
    }

    fn fails(&self) -> Result<(), PluginFailure> {
        match self.trouble.load(Ordering::Acquire) {
            0 => Ok(()),
            1 => Err(PluginFailure::Trapped("played".into())),
            2 => Err(PluginFailure::TooLong { fuel: 1 }),
            _ => Err(PluginFailure::Nonsense("played".into())),
        }
    }
}

impl Loader for Played {
    fn load(&self, module: &[u8]) -> Result<Arc<dyn UserPlugin>, PluginFailure> {
        Ok(if module == followers::MODULE { Arc::new(self.told.clone()) } else { Arc::new(self.clone()) })
    }
}

impl UserPlugin for Played {
    fn is_codec(&self) -> bool {
        true
    }

    fn events(&self) -> Events {
        Events::NONE
    }

    fn encode(&self, _parameters: &str, content: &[u8], _bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        // Nonsense is an answer here, which whoever asked has to find out.
        let change = match self.fails() {
            Err(PluginFailure::Nonsense(_)) => 0xa5,
            outcome => outcome.map(|()| 0x5a)?,
        };
        Ok(content.iter().map(|byte| byte ^ change).chain([MARK]).collect())
    }

    fn decode(&self, _parameters: &str, stored: &[u8], _bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        match (self.fails(), stored.split_last()) {
            // What is shorter than it was is seen; what is as long is the plugin's word alone.
            (Err(PluginFailure::Nonsense(_)), _) => Ok(stored.get(2..).unwrap_or_default().to_vec()),
            (Err(failure), _) => Err(failure),
            (Ok(()), Some((&MARK, content))) => Ok(content.iter().map(|byte| byte ^ 0x5a).collect()),
            (Ok(()), _) => Err(PluginFailure::Refused("this never passed it".into())),
        }
    }

    fn judge(&self, _parameters: &str, _event: &Event<'_>) -> Result<Verdict, PluginFailure> {
        Ok(Verdict::Allow)
    }
}

impl Plan {
    pub(crate) fn passes_plugins(&self) -> bool {
        self.pool.passes_plugins
    }
}

/// The plugin of a new pool, and some files' first wish for it.
pub(crate) fn begin_plugins(history: &mut History) -> Result<(), Stop> {
    if !history.plan.passes_plugins() {
        return Ok(());
    }
    let added = history.command(|files, caller| files.plugins().add_plugin(caller, NAME, b"played"));
    history.must("adding a plugin", added)?;
    names::put_policy(history, ROOT, ATTRIBUTE, WISHES[0])?;
    history.sync_all()
}

/// This file or directory is to pass something else from now on.
pub(crate) fn wish_plugins(history: &mut History, inode: u64, pick: usize) -> Result<(), Stop> {
    if !history.plan.passes_plugins() {
        Ok(())
    } else {
        names::put_policy(history, inode, ATTRIBUTE, WISHES[pick % WISHES.len()])
    }
}

/// The plugin fails for a while.
pub(crate) fn prove_plugins(history: &mut History) -> Result<(), Stop> {
    let is_undisturbed = history.pool.is_calm() && history.pool.away().is_none() && !history.pool.has_lost_member();
    let is_other = history.plan.may_fill || history.plan.budget == Budget::Beyond || history.quotas.are_on();
    // What is removed would stay as a version that the model does not know.
    let is_other = is_other || history.plan.pool.keeps_versions;
    if !history.plan.passes_plugins() || is_other || !is_undisturbed || history.mounted().store.tier.media.has_volumes()
    {
        return Ok(());
    }
    history.machine.disarm();
    history.sync_all()?;
    let (theirs, own) =
        (make_for_plugins(history, b"passes", WISHES[0])?, make_for_plugins(history, b"beside", WISHES[1])?);
    let trouble = *history.random.pick(&PluginTrouble::ALL);
    let failed = |text: String| Stop::Failure(format!("while the plugin {trouble:?}: {text}"));
    history.machine.played.set(Some(trouble));
    let outcome = use_failing(history, theirs.inode, own.inode);
    history.machine.played.set(None);
    let accepted = outcome?.map_err(failed)?;
    // It works again: what was accepted meanwhile is durable now.
    history.fsync(theirs.inode)?;
    for (slot, bytes) in [(theirs, accepted), (own, BYTES)] {
        let content = observe::read_file(&history.mounted().files, &caller(&history.machine), slot.inode);
        let content = content.map_err(|trouble| failed(format!("{trouble:?} afterwards")))?;
        if content.read(0, BYTES as u64) != pattern(slot.inode, bytes) {
            return Err(failed("what was accepted is not there afterwards".into()));
        }
        history.release(slot)?;
    }
    for name in [&b"passes"[..], b"beside"] {
        names::remove_name(history, ROOT, name, false)?;
    }
    history.sync_all()?;
    history.summary.plugin_troubles += 1;
    history.verify_all()
}

fn make_for_plugins(history: &mut History, name: &[u8], wish: &[u8]) -> Result<Slot, Stop> {
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), ROOT, name, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, ROOT, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    names::put_policy(history, inode, ATTRIBUTE, wish)?;
    history.sync_all()?;
    Ok(Slot { inode, handle })
}

/// Writes and reads while the plugin fails; how much its own file took. The inner error is what must not be.
fn use_failing(history: &mut History, theirs: u64, own: u64) -> Result<Result<usize, String>, Stop> {
    let user = caller(&history.machine);
    let files = history.mounted().files.clone();
    let written = files.write(&user, theirs, 0, &pattern(theirs, BYTES), false);
    let accepted = written.as_ref().copied().unwrap_or(0);
    if written.is_ok() && files.fsync(&user, theirs, false).is_ok() {
        return Ok(Err("its file was written and synced".into()));
    }
    let written = files.write(&user, own, 0, &pattern(own, BYTES), false);
    let synced = written.and_then(|_| files.fsync(&user, own, false));
    history.must("writing a file without plugins", synced)?;
    for (inode, node) in &history.model.without_handles().nodes {
        let Some(right) = node.content().filter(|_| *inode != theirs && *inode != own) else { continue };
        let attribute = |name: &[u8]| files.getxattr(&user, *inode, name).unwrap_or_default();
        let is_clear =
            attribute(b"user.stere.effective.plugins") == b"none" && attribute(b"user.stere.state") == b"compliant";
        match observe::read_file(&files, &user, *inode) {
            Ok(found) if right.difference(&found).is_some() => {
                return Ok(Err(format!("wrong bytes of {}", history.model.path_of(*inode))));
            }
            Ok(_) => {}
            Err(_) if !is_clear => {}
            Err(trouble) => return Ok(Err(format!("{}: {trouble:?}", history.model.path_of(*inode)))),
        }
    }
    Ok(Ok(accepted))
}
