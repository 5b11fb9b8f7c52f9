//! Users' plugins on a machine which mounts a pool through its owner: with them it encodes and decodes content past the owner.
//!
//! A stack is asked of the owner when it is first needed, by a thread of its own, and never changes then; until it is there the owner
//! encodes and decodes. What plugins say of calls is asked by the owner, never here. Invariant: nobody who writes or reads waits for a
//! stack. Read next: the crates `plugin`, `sandbox` and `direct`, `docs/design/plugins.md`.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stere_control::message::{Answer, Request};
use stere_control::plugins::Order;
use stere_file::Plugins;
use stere_format::{PluginRecord, PluginStack};
use stere_machine::error::{Error, Result, refused};
use stere_plugin::Stack;

use crate::client_control::ClientControl;
use crate::daemon::{lock, spawn};

/// What could not be had is not asked for again before.
const AGAIN: Duration = Duration::from_secs(10);

/// The stacks of this machine.
pub struct ClientPlugins {
    known: Mutex<Known>,
    /// To the thread that asks, before it has begun.
    asked: Mutex<Option<Receiver<u16>>>,
}

struct Known {
    ready: BTreeMap<u16, Arc<Stack>>,
    /// Those that were asked for and have not come, and when.
    missing: BTreeMap<u16, Instant>,
    ask: Sender<u16>,
}

impl ClientPlugins {
    pub fn new() -> Arc<ClientPlugins> {
        let (ask, asked) = channel();
        let known = Known { ready: BTreeMap::new(), missing: BTreeMap::new(), ask };
        Arc::new(ClientPlugins { known: Mutex::new(known), asked: Mutex::new(Some(asked)) })
    }

    /// A stack by its number, if it can be run here by now. Otherwise it is asked for.
    pub fn stack(&self, number: u16) -> Option<Arc<Stack>> {
        assert_ne!(number, 0, "0 stands for no plugins");
        let mut known = lock(&self.known);
        if let Some(stack) = known.ready.get(&number) {
            return Some(stack.clone());
        }
        if known.missing.get(&number).is_none_or(|asked| asked.elapsed() >= AGAIN) {
            known.missing.insert(number, Instant::now());
            // Nobody listens at the end of the mount.
            known.ask.send(number).ok();
        }
        None
    }

    /// Asks the owner for what is missing, until the mount ends.
    pub fn start(self: &Arc<Self>, control: &Arc<ClientControl>) -> Result<()> {
        let Some(asked) = lock(&self.asked).take() else { return Ok(()) };
        let (all, control) = (Arc::downgrade(self), Arc::downgrade(control));
        spawn("plugins", move || {
            // What runs them is made when there is something to run.
            let mut plugins = None;
            while let Ok(number) = asked.recv() {
                let (Some(all), Some(control)) = (all.upgrade(), control.upgrade()) else { return };
                let plugins = plugins.get_or_insert_with(|| Plugins::new(stere_machine::plugins::loader()));
                match fetch(plugins, &control, number) {
                    Ok(stack) => {
                        let mut known = lock(&all.known);
                        known.missing.remove(&number);
                        known.ready.insert(number, stack);
                    }
                    Err(error) => tracing::warn!(%error, "the owner encodes and decodes what has these plugins"),
                }
            }
        })
    }
}

/// Asks for a stack and loads what it needs.
fn fetch(plugins: &Plugins, control: &ClientControl, number: u16) -> Result<Arc<Stack>> {
    let answer = control.ask_for(Request::Plugins { order: Order::Stack { number } })?;
    let Answer::PluginStack { stack, plugins: parts } = answer else {
        return refused("the owner gave an answer that was not asked for");
    };
    let malformed = |error| Error::Refused(format!("the owner told plugins that are none: {error}"));
    for (plugin, record, module) in parts {
        if plugins.plugin(plugin).is_err() {
            plugins.put_plugin(plugin, PluginRecord::decode(&record).map_err(malformed)?, module.into());
        }
    }
    plugins.put_stack(number, PluginStack::decode(&stack).map_err(malformed)?);
    plugins.stack(number).map_err(|failure| Error::Refused(failure.to_string()))
}
