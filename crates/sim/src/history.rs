//! One history: a pool, the model beside it, and the rules by which they must agree.
//!
//! Without faults each answer equals the model's. After a crash the names are those after some operation at or behind the
//! last acknowledged sync, each file's bytes are ones it held at their place since it was last made durable, and a check finds
//! nothing. With faults, see `Budget`.
//!
//! `History` holds what every step needs and the few words that all of them use: `must`, `expect`, `verify_all`, what is
//! noted as durable. The steps themselves are functions of the modules that know their subjects. Read next: `execute.rs`
//! (which step an operation is), `execute/judge.rs` (the comparison), `recovery.rs` (crashes), `run.rs` (seeds).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use stere_naming::{Caller, Error, FileSystem, Handle};
use stere_store::HealthState;

use crate::accounts::Accounts;
use crate::area::Area;
use crate::backups::Backups;
use crate::content::Content;
use crate::device::Machine;
use crate::encryption::{self, Nonces};
use crate::fault::FaultKind;
use crate::metadata_offload::ColdStep;
use crate::model::{Errno, Model};
use crate::observe::{self, Trouble};
use crate::operation::{CrashManner, Operation, SLOTS};
use crate::placement::{self, PlacesKnown};
use crate::policy_lists::{self, Lists};
use crate::pool::{Mounted, PoolConfig, PoolUnderTest, caller, superuser};
use crate::quotas::{self, Quotas};
use crate::random::Random;
use crate::remains::Remains;
use crate::single_copies::AILMENTS;
use crate::summary::{Summary, Trace};
use crate::takeover::MANNERS;
use crate::versions::{self, Digests};
use crate::{checksums, execute, followers, medium_faults, plugins, recovery, retention, verification};

/// What faults a history may meet, and with that what is demanded of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// No faults: everything is exactly right.
    None,
    /// Faults of one device, with everything stored on two or more: nothing synced is lost, no wrong byte.
    Tolerated,
    /// More than copies can bear: errors are fine, wrong bytes and panics are not.
    Beyond,
}

/// Everything that determines a history, besides its operations.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub pool: PoolConfig,
    pub budget: Budget,
    /// Whether the pool may get full, so that "no space" is a right answer.
    pub may_fill: bool,
    /// Demand something wrong on purpose, to see that the oracle looks.
    pub canary: bool,
}

/// Why an operation did not run to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The oracle objects.
    Failure(String),
    /// The power went off.
    Power,
    /// The pool refused for a reason that the faults give it: mount it again.
    Refused,
    /// Damage beyond what copies bear: the history ends, and that is right.
    Over,
}

/// A history that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    pub step: usize,
    pub operation: String,
    pub text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "step {} ({}): {}", self.step, self.operation, self.text)
    }
}

pub(crate) struct Slot {
    pub inode: u64,
    pub handle: Handle,
}

pub(crate) struct History {
    pub plan: Plan,
    pub machine: Arc<Machine>,
    pub pool: PoolUnderTest,
    pub model: Model,
    pub slots: [Option<Slot>; SLOTS as usize],
    /// What a crash may leave.
    pub remains: Remains,
    pub random: Random,
    pub crash_manner: CrashManner,
    pub fill_count: u32,
    /// Reads that failed, as they may, because of volumes.
    pub reads_refused: Cell<u64>,
    pub summary: Summary,
    pub nonces: Nonces,
    pub digests: Digests,
    pub quotas: Quotas,
    pub lists: Lists,
    pub backups: Backups,
    pub places: PlacesKnown,
    pub accounts: Accounts,
    /// Whether anybody said for how long what nobody uses stays on devices.
    pub asks_release: bool,
    pub verbose: bool,
}

impl PoolUnderTest {
    pub(crate) fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().expect("the pool is mounted between operations")
    }

    /// Nothing went wrong on devices, except that one may be away, which its copies bear without an error.
    pub(crate) fn is_calm(&self) -> bool {
        !self.has_struck(|kind| !kind.is_absence())
    }

    pub(crate) fn has_struck(&self, kinds: impl Fn(FaultKind) -> bool) -> bool {
        self.machine.faults_struck().iter().any(|(kind, _)| kinds(*kind))
    }

    /// Where what takes room lies, for whoever looks into a seed.
    fn show_room(&self) {
        let store = &self.mounted().store;
        for (_, entry) in self.members() {
            println!(
                "     device {} ({:?}): {:?}",
                entry.index,
                entry.device_state(),
                store.devices.device_usage(entry.index).ok()
            );
        }
        for segment in store.segments().all() {
            let placed = segment.placed();
            let devices: Vec<u16> = placed.chunks.iter().map(|chunk| chunk.device).collect();
            println!(
                "     segment {} {:?} class {} {}+{} on {devices:?}, missing {:b}: {} bytes live, sealed {}, volumes {}",
                segment.id,
                segment.kind,
                segment.class,
                placed.scheme.data,
                placed.scheme.parity,
                segment.missing(),
                segment.live_bytes(),
                segment.is_sealed(),
                segment.tertiary().there
            );
        }
        println!("     {:?}", store.space().statistics(stere_format::Scheme { data: 1, parity: 1 }));
    }
}

impl History {
    pub(crate) fn mounted(&self) -> &Mounted {
        self.pool.mounted()
    }

    /// A command, as the daemon of a mount gives it.
    pub(crate) fn command<T>(
        &self,
        mut change: impl FnMut(&FileSystem, &Caller<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (files, caller) = (&self.mounted().files, caller(&self.machine));
        files.command(&caller, || change(files, &caller))
    }

    /// Runs operations on a new pool.
    pub fn run(plan: &Plan, operations: &[Operation], verbose: bool) -> Result<Summary, Failure> {
        let setup = |text: String| Failure { step: 0, operation: "create".into(), text };
        let mut history = History::new(plan, verbose).map_err(setup)?;
        for (step, operation) in operations.iter().enumerate() {
            let failure = |text: String| Failure { step, operation: format!("{operation:?}"), text };
            if verbose {
                println!("{step:4} {operation:?}");
            }
            match history.step(operation) {
                Ok(()) => {}
                Err(Stop::Over) => {
                    history.summary.ended_early += 1;
                    return Ok(history.finished());
                }
                Err(Stop::Failure(text)) => return Err(failure(text)),
                Err(stop) => return Err(failure(format!("{stop:?} was not dealt with"))),
            }
        }
        match history.finish() {
            Ok(()) | Err(Stop::Over) => Ok(history.finished()),
            Err(Stop::Failure(text)) => Err(Failure { step: operations.len(), operation: "the end".into(), text }),
            Err(stop) => {
                Err(Failure { step: operations.len(), operation: "the end".into(), text: format!("{stop:?}") })
            }
        }
    }

    pub(crate) fn new(plan: &Plan, verbose: bool) -> Result<History, String> {
        let mut random = Random::new(plan.seed ^ 0x0051_a117);
        let machine = Machine::new(random.fork());
        let mounted = plan.pool.create(&machine)?;
        let model = Model::default();
        let mut history = History {
            plan: plan.clone(),
            pool: PoolUnderTest::new(machine.clone(), mounted),
            machine,
            remains: Remains::new(&model, plan.budget),
            model,
            slots: Default::default(),
            random,
            crash_manner: CrashManner::Mixed,
            fill_count: 0,
            reads_refused: Cell::new(0),
            summary: Summary::default(),
            nonces: Nonces::new(),
            digests: Digests::new(),
            quotas: Quotas::default(),
            lists: Lists::default(),
            backups: Backups::default(),
            places: PlacesKnown::default(),
            accounts: Accounts::default(),
            asks_release: false,
            verbose,
        };
        encryption::begin_encryption(&mut history)?;
        versions::begin_versions(&mut history).map_err(|stop| format!("{stop:?}"))?;
        checksums::begin_checksums(&mut history).map_err(|stop| format!("{stop:?}"))?;
        plugins::begin_plugins(&mut history).map_err(|stop| format!("{stop:?}"))?;
        policy_lists::begin_lists(&mut history).map_err(|stop| format!("{stop:?}"))?;
        followers::begin_followers(&mut history).map_err(|stop| format!("{stop:?}"))?;
        medium_faults::begin_trials(&history);
        placement::begin_places(&mut history).map_err(|stop| format!("{stop:?}"))?;
        Ok(history)
    }

    fn finished(&self) -> Summary {
        let mut summary = Summary { trace: Trace(self.machine.trace()), ..self.summary };
        summary.tier.reads_refused = self.reads_refused.get();
        for (kind, _) in self.machine.faults_struck() {
            summary.faults += 1;
            summary.faults_by_kind[kind as usize] += 1;
        }
        summary
    }

    pub(crate) fn step(&mut self, operation: &Operation) -> Result<(), Stop> {
        self.summary.operations += 1;
        // Time goes on between calls.
        self.machine.begin_step(self.random.below(3_000_000_000));
        retention::tell_time(self);
        let outcome = quotas::watch_quotas(self).and_then(|()| execute::execute(self, operation));
        let outcome = match outcome {
            Ok(()) if self.machine.is_off() => Err(Stop::Power),
            outcome => outcome,
        };
        let outcome = outcome.and_then(|()| placement::watch_places(self));
        let recovered = match outcome {
            Err(Stop::Power) => recovery::recover(self, self.crash_manner, None),
            Err(Stop::Refused) => recovery::recover(self, CrashManner::Everything, None),
            outcome => return outcome,
        };
        // The next step may change what words mean: what lies there now was put by what they mean now.
        recovered.and_then(|()| placement::watch_places(self)).map_err(|stop| match stop {
            Stop::Refused => Stop::Failure("refused again, just after it was mounted".into()),
            stop => stop,
        })
    }

    /// The end of every history: everything is compared, the pool closed, mounted again and compared again.
    fn finish(&mut self) -> Result<(), Stop> {
        self.machine.disarm();
        let limits = (0..crate::quotas::HOLDERS).filter(|_| self.quotas.are_on());
        let lifted: Vec<_> = limits.map(|holder| Operation::Limit { holder, manner: 4, room: 0, days: 0 }).collect();
        for operation in &lifted {
            self.step(operation)?;
        }
        for operation in [Operation::VerifyAll, Operation::SettleVolumes, Operation::VerifyAll] {
            self.step(&operation)?;
        }
        if self.plan.pool.areas.has(Area::Cold) {
            // What volumes alone give back has names that were put away.
            self.step(&Operation::Cold(ColdStep::Command))?;
        }
        for operation in [Operation::RescueFromVolumes, Operation::Remount, Operation::VerifyAll, Operation::Check] {
            self.step(&operation)?;
        }
        encryption::search_clear(self)?;
        verification::prove_repaired(self)?;
        checksums::prove_digests(self)
    }

    /// What to make of an error that the model does not have.
    pub(crate) fn unexpected(&mut self, what: &str, errno: Errno, text: &str) -> Stop {
        if self.machine.is_off() {
            return Stop::Power;
        }
        if self.verbose && errno == libc::ENOSPC {
            self.pool.show_room();
        }
        let is_trouble = matches!(errno, libc::EIO | libc::EROFS);
        let struck = self.pool.has_struck(|_| true) || self.pool.kept_image.is_some();
        match self.plan.budget {
            // What cannot be read cannot be moved together either, so damage takes room that was counted on.
            Budget::Beyond if (is_trouble || errno == libc::ENOSPC) && struck => Stop::Over,
            Budget::Tolerated if is_trouble && self.pool.has_struck(FaultKind::may_stop_writing) => Stop::Refused,
            _ => Stop::Failure(format!("{what}: errno {errno}, {text}")),
        }
    }

    pub(crate) fn trouble(&mut self, trouble: Trouble) -> Stop {
        match trouble {
            Trouble::Call { what, errno } => self.unexpected(&what, errno, "while looking at everything"),
            Trouble::Contradiction(text) => Stop::Failure(text),
        }
    }

    pub(crate) fn observe(&self) -> Result<Model, Trouble> {
        observe::observe_with(&self.mounted().files, &superuser(&self.machine), &|inode| self.read_file(inode))
    }

    /// Every name, attribute and byte is as the model has it.
    pub(crate) fn verify_all(&mut self) -> Result<(), Stop> {
        let seen = self.observe();
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        let expected = self.model.without_handles();
        if let Some(difference) = expected.difference(&seen) {
            return Err(Stop::Failure(format!("differs from the model: {difference}")));
        }
        for (inode, node) in &expected.nodes {
            let theirs = seen.nodes.get(inode).and_then(|node| node.content());
            if let (Some(mine), Some(theirs)) = (node.content(), theirs)
                && let Some(difference) = mine.difference(theirs)
            {
                return Err(Stop::Failure(format!("{}: {difference}", expected.path_of(*inode))));
            }
        }
        for slot in 0..self.slots.len() {
            let Some(Slot { inode, .. }) = self.slots[slot] else { continue };
            self.verify_file(inode)?;
        }
        versions::verify_versions(self)?;
        if self.plan.canary && self.model.nodes.len() > 3 {
            return Err(Stop::Failure("the canary demands that no file system has more than three inodes".into()));
        }
        Ok(())
    }

    pub(crate) fn verify_file(&mut self, inode: u64) -> Result<(), Stop> {
        let Some(mine) = self.model.nodes.get(&inode).and_then(|node| node.content()).cloned() else { return Ok(()) };
        let seen = self.read_file(inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        match mine.difference(&seen) {
            Some(difference) => Err(Stop::Failure(format!("{}: {difference}", self.model.path_of(inode)))),
            None => Ok(()),
        }
    }

    /// The pool proves itself.
    pub(crate) fn check(&mut self) -> Result<(), Stop> {
        let report = self.mounted().store.checker.check(true);
        let report = match report {
            Ok(report) => report,
            Err(error) => return Err(self.unexpected("check", libc::EIO, &error.to_string())),
        };
        if self.machine.is_off() {
            return Err(Stop::Power);
        }
        match report.findings.first() {
            Some(_) if self.plan.budget == Budget::Beyond && self.pool.has_struck(|_| true) => Err(Stop::Over),
            Some(first) => Err(Stop::Failure(format!("check found {} things: {}", report.findings.len(), first.text))),
            None => self.check_nobody_is_accused(),
        }
    }

    /// No device is held to be bad that did nothing wrong. A crash may have torn a superblock or two.
    fn check_nobody_is_accused(&self) -> Result<(), Stop> {
        // One that did not answer is held to be bad for a reason.
        if self.plan.budget != Budget::None || self.has_failed_for_a_while() {
            return Ok(());
        }
        let store = &self.mounted().store;
        for entry in store.device_entries() {
            let health = store.health.health(entry.index);
            if health.is_some_and(|health| health.state == HealthState::Sick) {
                let text = format!("device {} is held to be bad: {:?}, {health:?}", entry.index, entry.device_state());
                return Err(Stop::Failure(text));
            }
        }
        Ok(())
    }

    fn has_failed_for_a_while(&self) -> bool {
        let Summary { singles_kept, takeovers, .. } = self.summary;
        singles_kept != [0; AILMENTS.len()] || takeovers != [0; MANNERS]
    }

    /// The names changed: one more state that a crash may leave.
    pub(crate) fn note_names(&mut self) {
        if self.plan.has_lists() || self.plan.pool.areas.has(Area::Places) {
            self.lists.note_several_names(&self.model);
        }
        self.remains.note_names(&self.model);
    }

    /// A file's content changed: one more version of whose bytes a crash may leave some.
    pub(crate) fn note_content(&mut self, inode: u64, content: Rc<Content>) {
        versions::note_held(self, &content);
        self.remains.note_content(inode, content);
    }

    /// Everything in the store is durable: names, and what files had handed over.
    pub(crate) fn note_commit(&mut self) {
        self.remains.keep_ordered();
        self.remains.forget_names();
        self.note_names();
    }

    /// One file's bytes are durable.
    pub(crate) fn note_durable(&mut self, inode: u64) {
        let content = self.model.nodes.get(&inode).and_then(|node| node.content()).cloned();
        match content {
            Some(content) if self.remains.keep_all() => self.note_content(inode, content),
            Some(content) => self.remains.set_durable(inode, content),
            None => {}
        }
    }

    pub(crate) fn note_all_durable(&mut self) {
        self.remains.forget_contents();
        let inodes: Vec<u64> = self.model.nodes.keys().copied().collect();
        inodes.into_iter().for_each(|inode| self.note_durable(inode));
        self.note_commit();
        self.quotas.note_durable();
    }
}
