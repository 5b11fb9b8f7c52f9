//! What can be typed. Verbs that are promised but not there yet are absent, not stubs.

pub mod backup;
pub mod device;
pub mod digest;
pub mod find;
pub mod io;
pub mod node;
pub mod plugin;
pub mod policy;
pub mod preserve;
pub mod quota;
pub mod receive;
pub mod stack;
pub mod tier;
pub mod versions;
pub mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::arguments::backup::BackupCommand;
use crate::arguments::device::{DeviceCommand, How, ScrubCommand};
use crate::arguments::digest::DigestArguments;
use crate::arguments::find::FindArguments;
use crate::arguments::io::IoCommand;
use crate::arguments::node::NodeCommand;
use crate::arguments::plugin::PluginCommand;
use crate::arguments::policy::ClassCommand;
use crate::arguments::preserve::Preserve;
use crate::arguments::quota::{QuotaCommand, VolumeCommand};
use crate::arguments::stack::StackArguments;
use crate::arguments::tier::{MediaCommand, TierCommand};
use crate::arguments::versions::VersionsCommand;
use crate::arguments::watch::{AuditArguments, ProvenanceArguments};
use stere_control::spec::DeviceSpec;

const MOUNT_OPTIONS: &str = "\
Mount options (-o, separated by commas):
  ro, rw                  read only, or for writing (the default)
  degraded=auto|ask|never what to do when devices are missing: mount without them (the default; read-only if data that
                          was to survive a loss cannot be read), or refuse
  wait=30s                how long to wait for devices that are late
  multihost=auto|on|off   which devices carry a heartbeat that keeps a second machine from mounting the pool: those that another
                          machine may reach (the default), all, or none
  standby, nostandby      of a pool whose log is shared: take it over when no other machine has it any more, or never, and wait for
                          one that does. Where neither is said, the first machine to mount has the pool itself, and later ones stand by
  listen=ADDRESS:PORT     where other machines reach this one while it owns such a pool; without it any address and port
  take                    the same, and take it from the machine that has it at once
  users=same|names|HERE:POOL[+HERE:POOL...]
                          of a machine that mounts through the owner: which of its users are which of the pool; the same numbers (the
                          default), those of the same name, or these, such as 1000:2000; others are nobody, or the same
  groups=same|names|HERE:POOL[+HERE:POOL...]
                          the same for groups; without it by names where users are
  prefer=DEVICE           the device whose files count where devices were written to without each other; what was written
                          only to the others is given up
  scrub=30d               how often to verify everything in the background, or never
  spare=10m               how long a device may be away before a hot spare takes its place, or never
  discard, nodiscard      tell devices about free space (TRIM, holes in images), in the background (the default)
  device_timeout=5s       how long a device may take for one write or flush before the others go on without it, or never
  sick_errors=16          errors of a device (since the mount) after which status calls it sick, or never
  retire_errors=256       errors after which it is given up if all its data can be rebuilt, or never
  repair_rate=256M        the limit for repair and scrubbing while the mount is in use, in bytes a second
  tier_rate=never         the limit for archiving while the mount is in use, in bytes a second
  repack=50               the percentage of dead data from which a medium is repacked by itself, or never
  recall=block|nowait|deny
                          reading released data waits (the default), fails with EAGAIN while it is fetched, or fails with
                          EPERM and fetches nothing
  prefetch=none|sequence|cluster
                          what to fetch from media ahead of reads: nothing, what follows (the default), or also what
                          was recalled after the same segments before
  recall_timeout=5m       how long a reader waits for a medium that is away or trickles, before EIO
  recall_deny=NAME[:NAME] names of programs (thumbnailers, indexers, backups) whose reads of released data fail with
                          EPERM; nothing is fetched for them
  recall_user=never       how many reads of one user, except root, wait for media at a time; further ones queue
  recall_tier=never       the same for reads from one medium (or from media that have the same copies)
  memory=1G               memory for caches and buffers, at least 64M
  commit=5                seconds after which a change becomes durable without fsync
  allow_other             other users may use the mount (the default where root mounts)
  keyfile=/PATH           unlock the keys that this key file opens
  noatime, relatime, strictatime
                          when reading updates the access time; reads that the kernel answers from its cache never
                          do, not even with strictatime
  nobtime                 do not report creation times: one request less for programs that always ask
  nofind                  no directory .find at the top, where `ls 'MOUNTPOINT/.find/size>1G'` has links to matching files
  nosuid, nodev, noexec   as for any mount
  transport=auto|uring|dev
                          how to communicate with the kernel
  sync_requests=auto|yes|no
                          mount so that sync(2) and syncfs(2) reach stere, from Linux 6.18 on; only for root, and not in
                          a container or a private mount namespace
  writeback               let the kernel gather small writes
  metrics=ADDRESS         serve metrics for Prometheus at this address, such as localhost:9464; a bare port is local
  noiostat                do not count calls: `stere io` has nothing to tell then
  powersave               let idle CPUs sleep deeply even while there are many requests
  defaults, nofail, _netdev, noauto, user, x-*
                          accepted for fstab";

/// One POSIX file system over all the storage you own.
#[derive(Debug, Parser)]
#[command(name = "stere", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a pool out of devices
    Create(CreateArguments),
    /// Mount a pool
    #[command(after_help = MOUNT_OPTIONS)]
    Mount(MountArguments),
    /// Unmount a pool; returns when everything is durable and the daemon has ended
    Umount(UmountArguments),
    /// Show whether a pool is healthy, degraded, at risk or has lost data, and what to do next
    Status(StatusArguments),
    /// Check an unmounted pool; read-only unless --repair is given
    Check(CheckArguments),
    /// Copy everything that can still be read out of a damaged pool
    Rescue(RescueArguments),
    /// Manage the devices of a pool
    Device {
        #[command(subcommand)]
        command: DeviceCommand,
    },
    /// Verify and repair everything that is stored
    Scrub {
        #[command(subcommand)]
        command: ScrubCommand,
    },
    /// Manage the pools that this machine knows
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// List the machines of a pool, and take the devices of one out of it
    Host {
        #[command(subcommand)]
        command: HostCommand,
    },
    /// Show and change how files and directories are stored
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// List and restore earlier versions of files
    Versions {
        #[command(subcommand)]
        command: VersionsCommand,
    },
    /// Manage the classes of a pool: named sets of policy
    Class {
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Copy chosen files to directories outside the pool, verify and restore them
    Backup {
        #[command(subcommand)]
        command: BackupCommand,
    },
    /// Manage volumes: directories with their own limits and policy
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Show and set quotas of users, groups and volumes
    Quota {
        #[command(subcommand)]
        command: QuotaCommand,
    },
    /// Show what is asked of a pool, record it, and say what follows for policy
    Io {
        #[command(subcommand)]
        command: IoCommand,
    },
    /// Control the reconciler, which stores existing files again after their policy changed
    Reconcile {
        #[command(subcommand)]
        command: ReconcileCommand,
    },
    /// Archive, release and stage files, and show where they are
    Tier {
        #[command(subcommand)]
        command: TierCommand,
    },
    /// Manage media: object stores, directories, servers, tape
    Media {
        #[command(subcommand)]
        command: MediaCommand,
    },
    /// Manage encryption keys
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Mount an existing directory with compression, encryption and plugins, without a pool; stays in the foreground until it is unmounted
    Stack(StackArguments),
    /// Offer storage to pools on other machines
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Manage plugins, which users add to how their files are stored
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// Show which devices have a file
    Where(WhereArguments),
    /// Show the space that files and directories take on devices
    Du(UsageArguments),
    /// Find files by size, age, owner, class, place and more
    #[command(after_help = find::TESTS)]
    Find(FindArguments),
    /// Compute digests of whole files, keep them until the content changes, and compare
    Digest(DigestArguments),
    /// Show who wrote a file, from which files, and what was made from it
    Provenance(ProvenanceArguments),
    /// Show what happened to files: created, opened, written, renamed, removed, refused
    Audit(AuditArguments),
    /// Show what is possible now: redundancy on these devices, codecs, plugins, tiers, limits; and what a path has
    Capabilities(CapabilitiesArguments),
    /// List the files that would lose data if these devices or media were gone
    Lose(LoseArguments),
    /// Show used and free space of a pool for each class
    Free(FreeArguments),
    /// Make all changes durable
    Flush(FlushArguments),
    /// Show the main job from end to end, on files in a temporary directory
    Demo(DemoArguments),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man { directory: PathBuf },
    /// The process of a mount that takes questions of its users
    #[command(hide = true)]
    Receive(crate::arguments::receive::ReceiverArguments),
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The pool's name
    pub pool: String,
    /// PATH[,key=value]...: a block device, a file, or a device on another machine (stere://HOST:PORT/NAME, nbd://HOST:PORT/EXPORT); keys: size
    /// (makes the file, also on a stere node), class, tag, host, shelf, name. Media are
    /// dir:/path, s3://bucket/prefix, dav://host/folder (davs:// with TLS), sftp://user@host/path or robot:CHANGER (robot:people where people
    /// feed the drives); keys: class (object or media), name, of buckets endpoint, region, credentials, of WebDAV credentials, ca, of SFTP
    /// identity, known_hosts, and of tape libraries drive (for each), set, cartridges, block
    #[arg(required = true, value_name = "DEVICE")]
    pub devices: Vec<DeviceSpec>,
    /// The class of files without policy: scratch, normal, precious or archive
    #[arg(long, value_name = "CLASS")]
    pub default_class: Option<String>,
    /// The size of a chunk, a power of two from 1M to 16M; without it stere chooses by the smallest device
    #[arg(long, value_name = "SIZE", value_parser = stere_machine::size::parse)]
    pub chunk_size: Option<u64>,
    /// The number of devices that have metadata, or `all`; without it 3, or as many as there are devices that are not tiny
    #[arg(long, value_name = "N|all")]
    pub metadata_copies: Option<String>,
    /// Keep the journal and the roots in an engine, so that several machines can use the pool:
    /// postgres://USER[:PASSWORD]@HOST/DATABASE or etcd://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub log: Option<String>,
    /// Destroy the data on the devices; on a terminal the command shows the data and asks first
    #[arg(long)]
    pub force: bool,
    /// Do not ask (with --force)
    #[arg(long, requires = "force")]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct MountArguments {
    /// POOL or DEVICE..., and then the mount point
    #[arg(required = true, num_args = 2.., value_names = ["POOL|DEVICE", "MOUNTPOINT"])]
    pub words: Vec<String>,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground, for service managers
    #[arg(long)]
    pub foreground: bool,
    /// Take the pool over when no other machine has it any more, and go on if its process ends; the same as -o standby
    #[arg(long)]
    pub standby: bool,
    /// Serve metrics for Prometheus at this address; the same as -o metrics=ADDRESS
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
}

#[derive(Debug, Args)]
pub struct UmountArguments {
    /// The mount point, or the pool's name
    #[arg(value_name = "MOUNTPOINT")]
    pub place: String,
    /// Remove the mount point at once; returns when the last open file is closed
    #[arg(long)]
    pub lazy: bool,
    /// Unmount although the mount is in use; its users get errors
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct StatusArguments {
    /// A pool, or the devices of a pool that this machine does not know; without it every known pool
    #[arg(value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// Print how full segments are and what cleaning moves, too
    #[arg(long, short)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// A pool, or its devices
    #[arg(required = true, value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// Do not read the contents of files, which takes less time
    #[arg(long)]
    pub metadata_only: bool,
    /// Repair what can be repaired, then check; this writes to the devices
    #[arg(long)]
    pub repair: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RescueArguments {
    /// Devices of the pool, however damaged, or a pool that this machine knows; also media, or only media, as dir:/path
    #[arg(required = true, value_name = "DEVICE")]
    pub words: Vec<String>,
    /// The directory to copy to; it must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// List what can be copied; read no contents and copy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// From media alone: copy each file as it was when it was archived, not as the newest copy of the metadata says
    #[arg(long)]
    pub as_archived: bool,
    /// Also restore owners, setid, devices, or all; without it they are left out, because they may be meant to harm
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub preserve: Vec<Preserve>,
    /// A key file that opens encrypted files; may be given several times
    #[arg(long = "key-file", value_name = "FILE")]
    pub key_files: Vec<PathBuf>,
    /// A file with a passphrase that opens encrypted files; may be given several times
    #[arg(long = "passphrase-file", value_name = "FILE")]
    pub passphrase_files: Vec<PathBuf>,
    /// Ask for a passphrase that opens encrypted files
    #[arg(long)]
    pub passphrase: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List known pools and their mount points
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a pool known to this machine by its devices
    Import {
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<PathBuf>,
        /// The device whose files count where devices were written to without each other: a path, an id or a name. The next
        /// mount gives up what was written only to the others
        #[arg(long, value_name = "DEVICE")]
        choose: Option<String>,
        /// Where the pool's shared log is: postgres://USER[:PASSWORD]@HOST/DATABASE or etcd://HOST:PORT
        #[arg(long, value_name = "URL")]
        log: Option<String>,
    },
    /// Take a pool whose log is shared from the machine that has it, at once; where its mount stands by, this machine owns it from then on
    Take { pool: String },
    /// Move the journal and the roots of a pool to another place; the pool may be mounted nowhere
    MoveLog {
        pool: String,
        /// postgres://USER[:PASSWORD]@HOST/DATABASE, etcd://HOST:PORT, or `devices`: the pool's own
        #[arg(long, value_name = "URL")]
        log: String,
    },
    /// Let a machine use a pool whose log is shared
    Admit {
        pool: String,
        /// The beginning of its id, or its host name, as `stere host list` shows them
        machine: String,
    },
    /// Let a machine not use a pool any more, or not at all: it is cut off within seconds
    Refuse {
        pool: String,
        /// The beginning of its id, or its host name, as `stere host list` shows them
        machine: String,
    },
    /// Unmount a pool and forget it; its devices keep all data
    Export { pool: String },
    /// Change settings of a pool's creation; existing data follows in the background
    Change {
        pool: String,
        /// The number of devices that have metadata from now on, or `all`
        #[arg(long, value_name = "N|all", required_unless_present_any = ["admission", "cleaner"])]
        metadata_copies: Option<String>,
        /// Which segments are cleaned first: `greedy` (the emptiest), `cost-benefit` (room gained times age for the bytes copied, as
        /// usual), `age` (the oldest); for a class of devices `hdd=greedy`; `usual` takes it back
        #[arg(long, value_name = "[CLASS=]POLICY")]
        cleaner: Vec<String>,
        /// Whether a machine that comes to know the pool is admitted at once (`open`, at first) or waits for `pool admit` (`ask`)
        #[arg(long, value_name = "open|ask", value_enum)]
        admission: Option<AdmissionWord>,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
}

/// What becomes of machines that register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AdmissionWord {
    Open,
    Ask,
}

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// List the machines that know a pool whose log is shared: which are admitted, which wait, which one owns it now
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move all data off the devices of a host and take them out of the pool, so that its machine can be switched off; given again, it goes on
    Evacuate {
        /// The host that `host=` of the devices says, or else their addresses
        host: String,
        /// The pool, if devices of several pools are on that host
        pool: Option<String>,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Set how a file, or everything below a directory, is stored
    #[command(after_help = policy::keys_help(|_| true))]
    Set {
        path: PathBuf,
        /// Keys and their values, listed below; an empty value inherits again
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when existing files are stored so
        #[arg(long)]
        wait: bool,
    },
    /// Show the policy that is set on a path, and the policy in effect there
    Get {
        path: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove settings from a path, so that it inherits them again
    Unset {
        path: PathBuf,
        /// See `stere policy set --help`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Show the policy in effect on a path, and where each part comes from
    Explain { path: PathBuf },
    /// Fix the policy at and below a path, whatever users set there; only for root
    #[command(after_help = policy::keys_help(|key| key.is_lockable))]
    Lock {
        path: PathBuf,
        /// Keys and their values, listed below
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when existing files are stored so
        #[arg(long)]
        wait: bool,
    },
    /// Remove locks, so that users decide again
    Unlock {
        path: PathBuf,
        /// See `stere policy lock --help`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Replace the pool's rules; earlier versions are kept
    Load(LoadArguments),
    /// Show the pool's rules
    Show(ShowArguments),
    /// Show which rules changed which files, and when
    Log(LogArguments),
    /// Show what rules would change if a directory had them; changes nothing
    Test(TestArguments),
    /// Store existing files below a path as their policy says; a change of policy does this by itself
    Apply {
        path: PathBuf,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
}

/// Where a secret is; typed if nothing is said.
#[derive(Debug, Args)]
pub struct SecretArguments {
    /// A file with a passphrase; a newline at its end does not count
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub passphrase_file: Option<PathBuf>,
    /// A file of 32 random bytes or more
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key; encrypt=yes means the first key of a pool
    Create {
        pool: String,
        name: String,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// List the keys of a pool, whether they are unlocked, and what opens them
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Unlock a key, or all keys that this passphrase or key file opens
    Unlock {
        pool: String,
        name: Option<String>,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// Wipe a key, or all keys, from memory; what they encrypt cannot be read until they are unlocked
    Lock { pool: String, name: Option<String> },
    /// Add a passphrase or key file to a key, which must be unlocked
    Add {
        pool: String,
        name: String,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// Replace a passphrase or key file; no file is encrypted again
    Change {
        pool: String,
        name: String,
        #[command(flatten)]
        secret: SecretArguments,
        /// A file with the new passphrase
        #[arg(long, value_name = "FILE", conflicts_with = "new_key_file")]
        new_passphrase_file: Option<PathBuf>,
        /// The new key file
        #[arg(long, value_name = "FILE")]
        new_key_file: Option<PathBuf>,
    },
    /// Remove a key permanently
    Remove {
        pool: String,
        name: String,
        /// Remove it although files are encrypted with it; they are lost
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct LoadArguments {
    pub pool: String,
    /// A file of rules such as `*.c: compress=zstd, copies=3`, one a line; '-' is standard input
    pub file: PathBuf,
    /// Return when existing files are stored so
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    pub pool: String,
    /// Show this earlier version
    #[arg(long, conflicts_with = "history", value_name = "N")]
    pub number: Option<u64>,
    /// Show all versions
    #[arg(long)]
    pub history: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LogArguments {
    pub pool: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TestArguments {
    /// The directory
    pub path: PathBuf,
    /// Rules, or a file with rules
    pub rules: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ReconcileCommand {
    /// Show what is still to be done
    Status {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Wait until everything is done, or nothing more can be done
    Wait { pool: String },
    /// Stop until `resume`, or until the pool is mounted again
    Pause { pool: String },
    /// Go on, and retry what was blocked
    Resume { pool: String },
}

#[derive(Debug, Args)]
pub struct WhereArguments {
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct UsageArguments {
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct CapabilitiesArguments {
    /// A path on a mount, for what its pool can do and what the path has; without it what this program can do
    pub path: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LoseArguments {
    /// Devices and media by path or name; a pool's name means those of its devices that are away
    #[arg(required_unless_present = "hosts", value_name = "DEVICE|POOL")]
    pub devices: Vec<String>,
    /// All devices of a host: the one that `host=` says, or else their addresses
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// The pool of these devices, if names are not enough
    #[arg(long)]
    pub pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct FreeArguments {
    /// A pool, or the devices of a pool that this machine does not know
    #[arg(required = true, value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct FlushArguments {
    /// A path on the mount; without it every mounted pool
    pub path: Option<PathBuf>,
    /// Return when it is done
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Where to create the temporary directory, which needs 1 GiB
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Keep the directory
    #[arg(long)]
    pub keep: bool,
}
