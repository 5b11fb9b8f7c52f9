//! What may stand behind `-o`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use stere_client::identities::Ids;
use stere_fuse::{BlockDevice, MountOptions, TransportChoice};
use stere_multihost::Multihost;
use stere_naming::AccessTimes;
use stere_pool::Degraded;
use stere_store::{HealthLimits, Prefetch, RecallMode};

use stere_machine::error::{Error, Result};
use stere_machine::size::{self, duration};

const MEMORY_BYTES_DEFAULT: usize = 1 << 30;
const MEMORY_BYTES_MIN: usize = 64 << 20;

/// Everything that can be chosen about a mount.
#[derive(Debug, Clone)]
pub struct Options {
    pub fuse: MountOptions,
    pub degraded: Degraded,
    pub wait: Duration,
    /// Which devices are guarded against other machines.
    pub multihost: Multihost,
    /// Whether this machine takes the pool over when nobody else has it, and is a client of its owner until then. Where nothing
    /// was said, the first machine is the owner itself and all others stand by.
    pub standby: Option<bool>,
    /// This is the process of an owner whose machine stands by; not for people.
    pub owner_process: bool,
    /// The mount point has no symbolic link in it, or the mount is refused; not for people. Its name comes from a pool, whose users may
    /// have put one there.
    pub exact: bool,
    /// Where other machines reach this one as the owner; none for any address and port.
    pub listen: Option<SocketAddr>,
    /// Of a machine that mounts through the owner: which of its users and groups are which of the pool. Groups as users, where nothing is
    /// said of them and users go by names.
    pub users: Ids,
    pub groups: Option<Ids>,
    pub memory_bytes: usize,
    pub access_times: AccessTimes,
    /// How long a change may stay in memory before it is made durable.
    pub commit: Duration,
    /// Path, id or name of the device whose files count, where devices were written to without one another.
    pub prefer: Option<String>,
    /// How often everything is verified; none for never.
    pub scrub: Option<Duration>,
    /// How long a device may be away before a hot spare takes its place; none for never.
    pub spare: Option<Duration>,
    /// Whether free space is given back to what lies below the devices.
    pub discard: bool,
    /// How long a device may take for one write or flush before the others go on without it; none: as long as it takes.
    pub device_timeout: Option<Duration>,
    /// What repair and scrubbing take at most while the mount is in use, in bytes a second.
    pub repair_rate_bytes: u64,
    /// Errors after which a device is called sick, and given up.
    pub health_limits: HealthLimits,
    /// What copying out to media takes at most while the mount is in use, in bytes a second; none for no limit.
    pub tier_rate_bytes: Option<u64>,
    /// From how many percent of dead bytes on a volume is repacked by itself; none for never.
    pub repack_percent: Option<u8>,
    /// What is fetched from media before anybody asked for it.
    pub prefetch: Prefetch,
    /// What happens to who reads what is on media only.
    pub recall: RecallMode,
    /// How long a reader waits for a volume that is away.
    pub recall_timeout: Duration,
    /// Programs that are refused what is on media only, by their names.
    pub recall_deny: Vec<String>,
    /// What they open is unlocked.
    pub key_files: Vec<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fuse: MountOptions::default(),
            degraded: Degraded::default(),
            wait: Duration::from_secs(30),
            multihost: Multihost::default(),
            standby: None,
            owner_process: false,
            exact: false,
            listen: None,
            users: Ids::Same,
            groups: None,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            access_times: AccessTimes::default(),
            commit: Duration::from_secs(5),
            prefer: None,
            scrub: Some(Duration::from_secs(30 * 86_400)),
            spare: Some(Duration::from_secs(600)),
            discard: true,
            device_timeout: Some(stere_pool::DEVICE_TIMEOUT),
            repair_rate_bytes: 256 << 20,
            tier_rate_bytes: None,
            repack_percent: Some(50),
            health_limits: HealthLimits::default(),
            prefetch: Prefetch::default(),
            recall: RecallMode::default(),
            recall_timeout: Duration::from_secs(300),
            recall_deny: Vec::new(),
            key_files: Vec::new(),
            metrics: None,
        }
    }
}

impl Options {
    /// Which groups of this machine are which of the pool.
    pub fn group_ids(&self) -> Ids {
        match (&self.groups, &self.users) {
            (Some(groups), _) => groups.clone(),
            (None, Ids::Names) => Ids::Names,
            (None, _) => Ids::Same,
        }
    }

    /// Whether the option is one of a machine that mounts through the owner, and of no owner's process.
    pub fn is_of_client(option: &str) -> bool {
        matches!(option.split_once('='), Some(("users" | "groups" | "metrics", _)))
    }

    /// Whether users or groups of this machine are not those of the pool.
    pub fn maps_ids(&self) -> bool {
        self.users != Ids::Same || self.group_ids() != Ids::Same
    }

    /// Reads all `-o` arguments, each with options separated by commas. Later ones win.
    pub fn parse(texts: &[String]) -> Result<Options> {
        let mut options = Options::default();
        for option in texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((key, value)) => options.set(key, value)?,
                None => options.set_flag(option)?,
            }
        }
        Ok(options)
    }

    fn set_flag(&mut self, flag: &str) -> Result<()> {
        match flag {
            "ro" => self.fuse.read_only = true,
            "rw" => self.fuse.read_only = false,
            "allow_other" => self.fuse.allow_other = Some(true),
            "suid" => self.fuse.no_suid = false,
            "nosuid" => self.fuse.no_suid = true,
            "dev" => self.fuse.no_dev = false,
            "nodev" => self.fuse.no_dev = true,
            "exec" => self.fuse.no_exec = false,
            "noexec" => self.fuse.no_exec = true,
            "noatime" => {
                self.fuse.no_atime = true;
                self.access_times = AccessTimes::Never;
            }
            "atime" | "relatime" => {
                self.fuse.no_atime = false;
                self.access_times = AccessTimes::Relative;
            }
            "strictatime" => {
                self.fuse.no_atime = false;
                self.access_times = AccessTimes::Strict;
            }
            "btime" => self.fuse.no_birth_times = false,
            "find" => self.fuse.no_find = false,
            "nofind" => self.fuse.no_find = true,
            "nobtime" => self.fuse.no_birth_times = true,
            "iostat" => self.fuse.no_io_profiles = false,
            "noiostat" => self.fuse.no_io_profiles = true,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "take" => self.multihost = Multihost::Take,
            "standby" => self.standby = Some(true),
            "nostandby" => self.standby = Some(false),
            "owner_process" => self.owner_process = true,
            "exact" => self.exact = true,
            "writeback" => self.fuse.writeback_cache = true,
            "nowriteback" => self.fuse.writeback_cache = false,
            "powersave" => self.fuse.keep_cpus_awake = false,
            "nopowersave" => self.fuse.keep_cpus_awake = true,
            // What mount(8) and fstab say to themselves, and what is so anyway.
            "defaults"
            | "nofail"
            | "_netdev"
            | "auto"
            | "noauto"
            | "user"
            | "users"
            | "nouser"
            | "owner"
            | "group"
            | "async"
            | "default_permissions"
            | "diratime"
            | "nodiratime"
            | "lazytime"
            | "nolazytime" => {}
            ignored if ignored.starts_with("x-") || ignored.starts_with("X-") => {}
            _ => return Err(unknown(flag)),
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "degraded" => {
                self.degraded = match value {
                    "auto" => Degraded::Auto,
                    "ask" => Degraded::Ask,
                    "never" => Degraded::Never,
                    _ => return Err(wrong(key, value, "auto, ask or never")),
                }
            }
            "multihost" => {
                self.multihost = match value {
                    "auto" => Multihost::Auto,
                    "on" => Multihost::On,
                    "off" => Multihost::Off,
                    _ => return Err(wrong(key, value, "auto, on or off")),
                }
            }
            "wait" => self.wait = duration(value).ok_or_else(|| wrong(key, value, "seconds, such as 30s"))?,
            "commit" => {
                let commit = duration(value).filter(|commit| (1..=3600).contains(&commit.as_secs()));
                self.commit = commit.ok_or_else(|| wrong(key, value, "1 to 3600 seconds"))?;
            }
            "memory" => {
                let bytes = size::parse(value).ok().and_then(|bytes| usize::try_from(bytes).ok());
                self.memory_bytes = bytes
                    .filter(|bytes| *bytes >= MEMORY_BYTES_MIN)
                    .ok_or_else(|| wrong(key, value, "a size of at least 64M, such as 1G"))?;
            }
            "keyfile" if value.starts_with('/') => self.key_files.push(PathBuf::from(value)),
            "keyfile" => return Err(wrong(key, value, "the whole path of a file, such as /etc/stere/tank.key")),
            "prefer" => self.prefer = Some(value.to_owned()),
            "scrub" => {
                self.scrub = period(value).ok_or_else(|| wrong(key, value, "a period, such as 30d, or never"))?
            }
            "spare" => {
                self.spare = period(value).ok_or_else(|| wrong(key, value, "a period, such as 10m, or never"))?
            }
            "device_timeout" => {
                let period = period(value).filter(|period| period.is_none_or(|period| !period.is_zero()));
                self.device_timeout = period.ok_or_else(|| wrong(key, value, "a period, such as 5s, or never"))?;
            }
            "sick_errors" | "retire_errors" => {
                let limit = match value {
                    "never" => Some(0),
                    number => number.parse().ok().filter(|limit| *limit > 0),
                };
                let limit = limit.ok_or_else(|| wrong(key, value, "a number of errors, or never"))?;
                match key {
                    "sick_errors" => self.health_limits.sick_errors = limit,
                    _ => self.health_limits.retire_errors = limit,
                }
            }
            "repair_rate" => {
                let bytes = size::parse(value).ok().filter(|bytes| *bytes >= 1 << 20);
                self.repair_rate_bytes =
                    bytes.ok_or_else(|| wrong(key, value, "a size of at least 1M, such as 256M"))?;
            }
            "silent" => self.multihost = after_silence(value).ok_or_else(|| unknown(key))?,
            "listen" => {
                let address = value.parse().ok();
                self.listen = Some(address.ok_or_else(|| wrong(key, value, "an address, such as 10.0.0.5:4711"))?);
            }
            "users" => set_ids(&mut self.users, key, value)?,
            "groups" => set_ids(self.groups.get_or_insert_default(), key, value)?,
            "metrics" => {
                let address = crate::metrics::parse_address(value);
                self.metrics = Some(address.ok_or_else(|| wrong(key, value, "an address, such as localhost:9464"))?);
            }
            "transport" => {
                self.fuse.transport = match value {
                    "auto" => TransportChoice::Auto,
                    "uring" => TransportChoice::IoUring,
                    "dev" => TransportChoice::Device,
                    _ => return Err(wrong(key, value, "auto, uring or dev")),
                }
            }
            "sync_requests" => {
                self.fuse.sync_requests = match value {
                    "auto" => BlockDevice::Preferred,
                    "yes" => BlockDevice::Required,
                    "no" => BlockDevice::No,
                    _ => return Err(wrong(key, value, "auto, yes or no")),
                }
            }
            "comment" | "fsname" | "subtype" => {}
            ignored if ignored.starts_with("x-") || ignored.starts_with("X-") => {}
            _ => return self.set_about_tiers(key, value),
        }
        Ok(())
    }

    /// What is said of media and of what comes back from them.
    fn set_about_tiers(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "recall" => {
                self.recall = match value {
                    "block" => RecallMode::Block,
                    "nowait" => RecallMode::NoWait,
                    "deny" => RecallMode::Deny,
                    _ => return Err(wrong(key, value, "block, nowait or deny")),
                }
            }
            "prefetch" => {
                self.prefetch = match value {
                    "none" => Prefetch::Nothing,
                    "sequence" => Prefetch::Sequence,
                    "cluster" => Prefetch::Cluster,
                    _ => return Err(wrong(key, value, "none, sequence or cluster")),
                }
            }
            "recall_timeout" => {
                self.recall_timeout = duration(value).ok_or_else(|| wrong(key, value, "a time, such as 5m"))?;
            }
            "recall_deny" => {
                let programs: Vec<String> = value.split(':').map(str::to_owned).collect();
                let is_name = |name: &String| !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']);
                let right =
                    "names of programs without their directories, with a colon between them, such as file:updatedb";
                if !programs.iter().all(is_name) {
                    return Err(wrong(key, value, right));
                }
                self.recall_deny = programs;
            }
            "recall_user" | "recall_tier" => {
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                if limit.is_none() && value != "never" {
                    return Err(wrong(key, value, "a number of reads, at least 1, or never"));
                }
                match key {
                    "recall_user" => self.fuse.recall_limits.user = limit,
                    _ => self.fuse.recall_limits.tier = limit,
                }
            }
            "tier_rate" => {
                let bytes = size::parse(value).ok().filter(|bytes| *bytes >= 1 << 20);
                let is_given = value == "never" || bytes.is_some();
                self.tier_rate_bytes = bytes;
                return is_given.then_some(()).ok_or_else(|| wrong(key, value, "a size of at least 1M, or never"));
            }
            "repack" => {
                let percent = value.trim_end_matches('%').parse().ok().filter(|percent| (1..=99).contains(percent));
                let is_given = value == "never" || percent.is_some();
                self.repack_percent = percent;
                return is_given.then_some(()).ok_or_else(|| wrong(key, value, "1 to 99, or never"));
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

fn unknown(option: &str) -> Error {
    Error::Usage(format!("'{option}' is not a mount option of stere; see `stere mount --help` for those there are"))
}

/// Pairs add up; a word takes their place.
fn set_ids(ids: &mut Ids, key: &str, value: &str) -> Result<()> {
    match value {
        "same" => *ids = Ids::Same,
        "names" => *ids = Ids::Names,
        pairs => {
            let added = ids.add_pairs(pairs);
            added.map_err(|error| {
                wrong(key, value, &format!("same, names, or pairs HERE:POOL with + between them ({error})"))
            })?;
        }
    }
    Ok(())
}

fn wrong(key: &str, value: &str, right: &str) -> Error {
    Error::Usage(format!("the mount option {key} cannot be '{value}'; it takes {right}"))
}

/// What the process of a mount that stands by saw: owner and number of the last beat, where the log ended, and for how long.
fn after_silence(text: &str) -> Option<Multihost> {
    let mut parts = text.split('.');
    let owner = u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes();
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (sequence, next, silent_ms) = (number()?, number()?, number()?);
    parts.next().is_none().then_some(Multihost::AfterSilence { owner, sequence, next, silent_ms })
}

/// A duration, or none for `never`.
fn period(text: &str) -> Option<Option<Duration>> {
    if text == "never" { Some(None) } else { duration(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&[text.to_owned()])
    }

    #[test]
    fn options_are_read() {
        let options = parse(
            "ro,noatime,degraded=auto,wait=2m,memory=128M,transport=dev,commit=9,x-systemd.automount,allow_other",
        )
        .unwrap();
        assert!(options.fuse.read_only && options.fuse.no_atime);
        assert_eq!(options.access_times, AccessTimes::Never);
        assert_eq!(options.degraded, Degraded::Auto);
        assert_eq!(options.wait, Duration::from_secs(120));
        assert_eq!(options.memory_bytes, 128 << 20);
        assert_eq!(options.fuse.transport, TransportChoice::Device);
        assert_eq!(options.commit, Duration::from_secs(9));
        assert_eq!(options.fuse.allow_other, Some(true));
        let options = parse("scrub=7d,spare=never,repair_rate=1G,prefer=/dev/sdb").unwrap();
        assert_eq!(parse("retire_errors=never").unwrap().health_limits.retire_errors, 0);
        assert_eq!((options.scrub, options.spare), (Some(Duration::from_secs(7 * 86_400)), None));
        assert_eq!((options.repair_rate_bytes, options.prefer.as_deref()), (1 << 30, Some("/dev/sdb")));
        let options = parse("tier_rate=8M,repack=30").unwrap();
        assert_eq!((options.tier_rate_bytes, options.repack_percent), (Some(8 << 20), Some(30)));
        assert_eq!(parse("repack=never,tier_rate=never").unwrap().repack_percent, None);
        let options = parse("recall_deny=file:updatedb,recall_user=2,recall_tier=1").unwrap();
        assert_eq!(options.recall_deny, ["file", "updatedb"]);
        let limits = options.fuse.recall_limits;
        assert_eq!((limits.user, limits.tier), (Some(2), Some(1)));
        assert_eq!(parse("recall_user=2,recall_user=never").unwrap().fuse.recall_limits.user, None);
        assert_eq!(
            (options.prefetch, parse("prefetch=cluster").unwrap().prefetch),
            (Prefetch::Sequence, Prefetch::Cluster)
        );
        for text in ["metrics=9464", "metrics=:9464", "metrics=127.0.0.1:9464"] {
            assert_eq!(parse(text).unwrap().metrics, Some(([127, 0, 0, 1], 9464).into()), "{text}");
        }
        let options = parse("users=1000:2000+1001:2001,users=5:6").unwrap();
        assert_eq!(options.users, Ids::Pairs(vec![(1000, 2000), (1001, 2001), (5, 6)]));
        assert_eq!((options.group_ids(), options.maps_ids()), (Ids::Same, true));
        assert_eq!(
            (parse("users=names").unwrap().group_ids(), parse("users=same").unwrap().maps_ids()),
            (Ids::Names, false)
        );
        assert_eq!(parse("users=names,groups=100:1000").unwrap().group_ids(), Ids::Pairs(vec![(100, 1000)]));
        assert!(!parse("ro,rw").unwrap().fuse.read_only);
        assert!(parse("defaults,nofail,_netdev,").is_ok());
    }

    #[test]
    fn wrong_options_are_usage_errors_that_name_what_is_right() {
        for (text, right) in [
            ("turbo", "--help"),
            ("degraded=maybe", "auto, ask or never"),
            ("memory=1K", "64M"),
            ("commit=0", "1 to 3600"),
            ("wait=soon", "30s"),
            ("transport=pigeon", "uring"),
            ("speed=9", "--help"),
            ("scrub=often", "30d"),
            ("sick_errors=0", "or never"),
            ("spare=x", "10m"),
            ("device_timeout=0", "5s"),
            ("keyfile=tank.key", "whole path"),
            ("repair_rate=5", "at least 1M"),
            ("metrics=here", "localhost:9464"),
            ("tier_rate=5", "at least 1M"),
            ("repack=100", "1 to 99"),
            ("recall_deny=", "with a colon between them"),
            ("recall_deny=file::updatedb", "with a colon between them"),
            ("recall_deny=/usr/bin/file", "without their directories"),
            ("recall_user=0", "at least 1, or never"),
            ("recall_tier=some", "at least 1, or never"),
            ("prefetch=all", "cluster"),
            ("users=some", "HERE:POOL"),
            ("users=1:2+1:3", "mapped twice"),
            ("groups=0:5", "root"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.exit_code(), stere_machine::error::USAGE, "{text}");
            assert!(error.to_string().contains(right), "{text}: {error}");
        }
    }
}
