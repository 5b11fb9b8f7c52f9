//! What is asked of the daemon of a mounted pool, and what it answers: one line of JSON each way.
//!
//! Read next: `connection.rs`, which carries them; the modules of the nouns, for what is in them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Forecast};
use crate::class::ClassLine;
use crate::keys::KeyReport;
use crate::layout::Layout;
use crate::lose::{LossReport, LostLine};
use crate::plugins::{PluginReport, QueueReport};
use crate::public::{Peer, Question};
use crate::reconcile::{Order, ReconcileReport};
use crate::rules::{ChangeReport, LogReport, VersionReport};
use crate::scrub::ScrubReport;
use crate::status::{StatusReport, ThroughReport};
use crate::usage::UsageReport;

/// What can be asked of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    About,
    /// The same, where an owner elsewhere had a moment to appear.
    Reach,
    Status,
    /// Makes everything durable; with `wait` before the answer.
    Flush {
        wait: bool,
    },
    /// What is lost without these devices (ids). Answered with batches of files, and then what it comes to.
    Lose {
        devices: Vec<String>,
    },
    /// Where a file lies, from an offset on.
    Layout {
        inode: u64,
        from: u64,
    },
    /// What an inode, and everything below it, takes.
    Usage {
        inode: u64,
    },
    /// About storing existing files anew.
    Reconcile {
        order: Order,
    },
    /// Ends the mount. Answered once when the kernel let go, and again when everything is durable.
    Unmount {
        lazy: bool,
        force: bool,
    },
    /// From now on the machine that says this answers calls of its media at these places (`far_media`): its name for people.
    ServeMedia {
        host: String,
        places: Vec<String>,
    },
    /// Changes the devices, or with `dry_run` forecasts the change.
    Change {
        change: Change,
        dry_run: bool,
    },
    Scrub {
        order: ScrubOrder,
    },
    /// About media.
    Tier {
        order: crate::tier::Order,
    },
    /// About the pool's rules.
    Rules {
        order: crate::rules::Order,
    },
    /// About the pool's classes.
    Classes {
        order: crate::class::Order,
    },
    /// About volumes and quotas.
    Accounts {
        order: crate::quota::Order,
    },
    /// About pools that are mounted in this one.
    Junctions {
        order: crate::junction::Order,
    },
    /// Makes this machine the pool's owner, where its mount stands by.
    Take,
    /// About backups.
    Backups {
        order: crate::backup::Order,
    },
    /// About the pool's plugins.
    Plugins {
        order: crate::plugins::Order,
    },
    /// About the pool's keys.
    Keys {
        order: crate::keys::Order,
    },
    /// About what the load is like.
    Io {
        order: crate::io::Order,
    },
    /// About digests of files.
    Digests {
        order: crate::digest::Order,
    },
    /// What somebody who only uses the mount of another machine asks, and where: that machine has looked who it is. Answered as on the
    /// public socket.
    Asked {
        peer: Peer,
        inode: u64,
        question: Question,
    },
    /// Which numbers these users and groups have here.
    Numbers {
        users: Vec<String>,
        groups: Vec<String>,
    },
    /// What these rules would change if a directory had them. Answered with batches of files, and then how many there are.
    TestRules {
        directory: u64,
        rules: String,
    },
}

/// What is asked of scrubbing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubOrder {
    Start,
    Restart,
    Pause,
    Tell,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    About(About),
    Status(Box<StatusReport>),
    Forecast(Forecast),
    Changed {
        said: String,
    },
    LostFiles {
        files: Vec<LostLine>,
    },
    Loss(LossReport),
    Layout(Layout),
    Usage(Box<UsageReport>),
    Reconcile(ReconcileReport),
    Scrub(ScrubReport),
    Tier(crate::tier::report::Told),
    Rules {
        versions: Vec<VersionReport>,
    },
    RuleLog {
        entries: Vec<LogReport>,
    },
    RuleChanges {
        changes: Vec<ChangeReport>,
    },
    Classes {
        classes: Vec<ClassLine>,
    },
    Accounts(Box<crate::quota::AccountsReport>),
    Junctions {
        junctions: Vec<crate::junction::JunctionLine>,
    },
    Backups {
        destinations: Vec<crate::backup::Line>,
    },
    Keys {
        keys: Vec<KeyReport>,
    },
    /// Each as it is on media.
    WrappedKeys {
        keys: Vec<Vec<u8>>,
    },
    Plugins {
        plugins: Vec<PluginReport>,
    },
    PluginQueue {
        queue: QueueReport,
    },
    /// A stack as it is on media, and each plugin in it: its number, its record as it is on media, and its module.
    PluginStack {
        stack: Vec<u8>,
        plugins: Vec<(u16, Vec<u8>, Vec<u8>)>,
    },
    Io(Box<crate::io::IoReport>),
    /// Each with its name.
    IoPictures {
        pictures: Vec<(String, String)>,
    },
    IoAdvice {
        lines: Vec<crate::io::AdviceLine>,
    },
    IoRecording(crate::io::RecordingReport),
    /// Done, in words.
    Said {
        said: String,
    },
    RulesTested {
        files: u64,
        /// What sending files to volumes would cost.
        #[serde(default)]
        costs: Vec<crate::tier::costs::CostsReport>,
        /// What stays on devices, where rules or classes say anything of that.
        #[serde(default)]
        residency: Option<crate::rules::ResidencyForecast>,
    },
    /// One for each name that was asked about; none where there is no such user or group.
    Numbers {
        users: Vec<Option<u32>>,
        groups: Vec<Option<u32>>,
    },
    DigestBegun {
        token: u64,
    },
    DigestStored {
        is_stored: bool,
    },
    Done,
    /// Done, and cannot be kept with the devices there are.
    DoneBut {
        why: String,
    },
    /// With `ended` the mount has ended all the same.
    Failed {
        message: String,
        ended: bool,
    },
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub process: u32,
    pub pool: String,
    pub pool_id: String,
    pub mountpoint: PathBuf,
    /// The kernel's number of the mounted file system.
    #[serde(default)]
    pub device: Option<(u32, u32)>,
    /// Whether the pool is open for reading only.
    #[serde(default)]
    pub read_only: bool,
    /// Where another machine owns the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<ThroughReport>,
    /// Pools that are mounted in this mount, as far as it knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub junctions: Vec<crate::junction::JunctionReport>,
}

impl Answer {
    /// Says on stderr what cannot be kept of what was done.
    pub fn told(self) -> Answer {
        match self {
            Answer::DoneBut { why } => {
                eprintln!("stere: warning: it is done, and cannot be kept now: {why}");
                Answer::Done
            }
            other => other,
        }
    }
}
