//! What can be typed. Verbs that are promised but not there yet are absent, not stubs.

pub mod backup;
pub mod device;
pub mod digest;
pub mod find;
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
use crate::arguments::device::{DeviceCommand, ScrubCommand};
use crate::arguments::digest::DigestArguments;
use crate::arguments::find::FindArguments;
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
  degraded=auto|ask|never what to do when devices are missing: go on with the others (the default; for reading only if
                          data that was to survive a loss cannot be read), or refuse
  wait=30s                how long to wait for devices that are late
  multihost=auto|on|off   which devices carry a heartbeat that keeps a second machine from mounting the pool: those that another
                          machine may reach (the default), all, or none
  prefer=DEVICE           whose files count where devices were written to without one another; what was written only to the
                          others is given up
  scrub=30d               how often everything is verified in the background, or never
  spare=10m               how long a device may be away before a hot spare takes its place, or never
  discard, nodiscard      give free space back to what lies below (TRIM of devices, holes in images), in the background (the default)
  device_timeout=5s       how long a device may take for one write or flush before the others go on without it, or never
  sick_errors=16          errors of a device (since the mount) after which status calls it sick, or never
  retire_errors=256       and after which it is given up, if all that is on it can be rebuilt, or never
  repair_rate=256M        bytes a second that repair and scrubbing take at most while the mount is in use
  tier_rate=never         bytes a second that copying out to tertiary volumes takes at most while the mount is in use
  repack=50               from how many percent of dead bytes on a volume is repacked by itself, or never
  recall=block|nowait|deny
                          who reads what is on tertiary volumes only waits (the default), gets EAGAIN while it is fetched,
                          or gets EPERM and nothing is fetched
  prefetch=none|sequence|cluster
                          what is fetched from tertiary volumes before it is asked for: nothing, where a reader goes on
                          (the default), or also what was recalled after the same segments before
  recall_timeout=5m       how long a reader waits for a volume that is away, before EIO
  recall_deny=NAME[:NAME] programs (thumbnailers, indexers, backups), by their names, that get EPERM for what is on tertiary
                          volumes only; nothing is fetched for them
  recall_user=never       reads of one user, other than root, that wait for tertiary volumes at a time; more wait their turn
  recall_tier=never       the same for the reads from one volume (or from the volumes that have the same copies)
  memory=1G               memory for caches and buffers, at least 64M
  commit=5                seconds after which a change is made durable without being asked
  allow_other             other users may use the mount (the default where root mounts)
  keyfile=/PATH           unlock the keys that this file opens
  noatime, relatime, strictatime
                          when reading changes the time of access; reads that the kernel answers from its cache do
                          not reach the daemon and change nothing, under strictatime neither
  nobtime                 nobody is told when files were made: one request less for programs that always ask
  nofind                  no directory .find at the top, in which `ls 'MOUNTPOINT/.find/size>1G'` has links to what is found
  nosuid, nodev, noexec   as for any mount
  transport=auto|uring|dev
                          how the kernel is talked to
  sync_requests=auto|yes|no
                          mount so that sync(2) and syncfs(2) arrive, which Linux sends from
                          6.18 on; only root can, and not in a container or a mount
                          namespace of its own
  writeback               the kernel gathers small writes
  metrics=ADDRESS         serve metrics for Prometheus there, such as localhost:9464; a bare port is on this machine only
  powersave               let idle CPUs sleep deeply even while requests come thick and fast
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
    /// Unmount; returns when everything is durable and the process has ended
    Umount(UmountArguments),
    /// How a pool is: healthy, degraded, at risk or lost, and what to do next
    Status(StatusArguments),
    /// Prove an unmounted pool; reads only, unless it is told to repair
    Check(CheckArguments),
    /// Copy out everything that can still be found, from whatever is left of a pool
    Rescue(RescueArguments),
    /// The devices of a pool
    Device {
        #[command(subcommand)]
        command: DeviceCommand,
    },
    /// Verify and repair everything
    Scrub {
        #[command(subcommand)]
        command: ScrubCommand,
    },
    /// The pools that are known here
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// How files and directories are stored
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// What files held before they were changed or removed
    Versions {
        #[command(subcommand)]
        command: VersionsCommand,
    },
    /// The classes of a pool: names for ways to store files
    Class {
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Copies of chosen files in directories outside the pool
    Backup {
        #[command(subcommand)]
        command: BackupCommand,
    },
    /// Directories with limits and policy of their own
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// What users, groups and volumes take, and may take
    Quota {
        #[command(subcommand)]
        command: QuotaCommand,
    },
    /// Files that exist are stored anew where their policy changed
    Reconcile {
        #[command(subcommand)]
        command: ReconcileCommand,
    },
    /// Files on tertiary volumes: down, back, and what is where
    Tier {
        #[command(subcommand)]
        command: TierCommand,
    },
    /// The tertiary volumes themselves
    Media {
        #[command(subcommand)]
        command: MediaCommand,
    },
    /// Keys that contents and names are encrypted with
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Compression, encryption and plugins over an existing directory, without a pool; stays in the foreground until it is unmounted
    Stack(StackArguments),
    /// What users add to what is done to their files
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// On which devices a file lies
    Where(WhereArguments),
    /// What files and directories take on the devices
    Du(UsageArguments),
    /// Files by what is known of them: size, age, owner, class, where they lie, and more
    #[command(after_help = find::TESTS)]
    Find(FindArguments),
    /// Digests of whole files, kept until their content changes: made, and compared with what is read
    Digest(DigestArguments),
    /// Who wrote a file, from which files, and what was made from it
    Provenance(ProvenanceArguments),
    /// What happened to files: made, opened, written, renamed, removed, refused
    Audit(AuditArguments),
    /// What is possible here and now: redundancy on these devices, codecs, plugins, tiers, limits; and what a path has
    Capabilities(CapabilitiesArguments),
    /// Which files would lose data if these devices or media were gone
    Lose(LoseArguments),
    /// Room in a pool, for each class
    Free(FreeArguments),
    /// Make everything durable
    Flush(FlushArguments),
    /// The main job, end to end, on files in a temporary folder
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
    /// Name of the pool
    pub pool: String,
    /// PATH[,key=value]...: a block device or a file; keys: size (makes the file), class, tag, host, shelf, name. Tertiary volumes are
    /// dir:/path, s3://bucket/prefix, dav://host/folder (davs:// with TLS), sftp://user@host/path or robot:CHANGER (robot:people where people
    /// feed the drives); keys: class (object or media), name, of buckets endpoint, region, credentials, of WebDAV credentials, ca, of SFTP
    /// identity, known_hosts, and of tape libraries drive (for each), set, cartridges, block
    #[arg(required = true, value_name = "DEVICE")]
    pub devices: Vec<DeviceSpec>,
    /// Class of files for which nothing else is said: scratch, normal, precious or archive
    #[arg(long, value_name = "CLASS")]
    pub default_class: Option<String>,
    /// Size of a chunk, a power of two from 1M to 16M; chosen for the smallest device if not given
    #[arg(long, value_name = "SIZE", value_parser = stere_machine::size::parse)]
    pub chunk_size: Option<u64>,
    /// On how many devices metadata lies: a number or `all`; if not given 3, or as many as there are devices that are not tiny
    #[arg(long, value_name = "N|all")]
    pub metadata_copies: Option<String>,
    /// Destroy what the devices hold; on a terminal it is named first, and asked about
    #[arg(long)]
    pub force: bool,
    /// With --force: do not ask
    #[arg(long, requires = "force")]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct MountArguments {
    /// POOL or DEVICE..., and then the mount point
    #[arg(required = true, num_args = 2.., value_names = ["POOL|DEVICE", "MOUNTPOINT"])]
    pub words: Vec<String>,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground, for service managers
    #[arg(long)]
    pub foreground: bool,
    /// Serve metrics for Prometheus there; the same as -o metrics=ADDRESS
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
}

#[derive(Debug, Args)]
pub struct UmountArguments {
    /// The mount point, or the pool's name
    #[arg(value_name = "MOUNTPOINT")]
    pub place: String,
    /// Out of the name space now; returns when the last open file is closed
    #[arg(long)]
    pub lazy: bool,
    /// Whoever uses the mount gets errors
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct StatusArguments {
    /// A pool, or its devices if it is not known here; every known pool if not given
    #[arg(value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// A pool, or its devices
    #[arg(required = true, value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// Leave the contents of files out, which takes less time
    #[arg(long)]
    pub metadata_only: bool,
    /// Mend what can be mended, then prove it; this writes to the devices
    #[arg(long)]
    pub repair: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RescueArguments {
    /// Any of a pool's devices, however damaged; or a pool that is known here; tertiary volumes too, or alone, as dir:/path
    #[arg(required = true, value_name = "DEVICE")]
    pub words: Vec<String>,
    /// Where to copy to: a directory that is empty or not there yet
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// List what is there, reading no contents and copying nothing
    #[arg(long)]
    pub dry_run: bool,
    /// From volumes alone: each file as it was when it went down, not as the newest copy of the metadata says
    #[arg(long)]
    pub as_archived: bool,
    /// Restore this too, which is left out because it may be meant to harm: owners, setid, devices, or all
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub preserve: Vec<Preserve>,
    /// A key file that opens what is encrypted; may be given several times
    #[arg(long = "key-file", value_name = "FILE")]
    pub key_files: Vec<PathBuf>,
    /// A file with a passphrase that opens what is encrypted; may be given several times
    #[arg(long = "passphrase-file", value_name = "FILE")]
    pub passphrase_files: Vec<PathBuf>,
    /// Ask for a passphrase that opens what is encrypted
    #[arg(long)]
    pub passphrase: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Known pools, and where they are mounted
    List {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Make a pool known by its devices
    Import {
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<PathBuf>,
        /// Whose files count where devices were written to without one another: a path, an id or a name. What was written
        /// only to the others is given up when the pool is mounted next
        #[arg(long, value_name = "DEVICE")]
        choose: Option<String>,
    },
    /// Unmount a pool and forget it; its devices keep everything
    Export { pool: String },
    /// Change what was said when the pool was made; what is stored follows in the background
    Change {
        pool: String,
        /// On how many devices metadata shall lie from now on: a number or `all`
        #[arg(long, value_name = "N|all", required = true)]
        metadata_copies: String,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
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
        /// Return when what exists is stored so
        #[arg(long)]
        wait: bool,
    },
    /// What is set on a path itself, and what holds there
    Get {
        path: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Inherit again
    Unset {
        path: PathBuf,
        /// See `stere policy set --help`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// What holds on a path, and why
    Explain { path: PathBuf },
    /// Settle for everything at and below a path how it is stored, whatever users set or rule there; root's alone
    #[command(after_help = policy::keys_help(|key| key.is_lockable))]
    Lock {
        path: PathBuf,
        /// Keys and their values, listed below
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when what exists is stored so
        #[arg(long)]
        wait: bool,
    },
    /// Let users decide again
    Unlock {
        path: PathBuf,
        /// See `stere policy lock --help`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Make these the pool's rules; earlier ones are kept
    Load(LoadArguments),
    /// The pool's rules
    Show(ShowArguments),
    /// Which rules changed which files, and when
    Log(LogArguments),
    /// What rules would change if a directory had them; nothing is changed
    Test(TestArguments),
    /// Store what exists below a path as its policy says now; a change of policy does this by itself
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
    /// A file with a passphrase; a line end behind it does not count
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub passphrase_file: Option<PathBuf>,
    /// A file of 32 random bytes or more
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key; the first one of a pool is what encrypt=yes means
    Create {
        pool: String,
        name: String,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// The keys of a pool, whether they are unlocked, and what opens them
    List {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Let a key be used, or all that this passphrase or key file opens
    Unlock {
        pool: String,
        name: Option<String>,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// Wipe a key from memory, or all; what it encrypts cannot be read until it is unlocked
    Lock { pool: String, name: Option<String> },
    /// Let one more passphrase or key file open a key, which must be unlocked
    Add {
        pool: String,
        name: String,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// Replace a passphrase or key file; nothing is encrypted anew
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
    /// Remove a key for ever
    Remove {
        pool: String,
        name: String,
        /// Destroy what it encrypts
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct LoadArguments {
    pub pool: String,
    /// A file of rules such as `*.c: compress=zstd, copies=3`, one a line; '-' is standard input
    pub file: PathBuf,
    /// Return when the files are stored so
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    pub pool: String,
    /// An earlier version
    #[arg(long, conflicts_with = "history", value_name = "N")]
    pub number: Option<u64>,
    /// All versions
    #[arg(long)]
    pub history: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LogArguments {
    pub pool: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TestArguments {
    /// The directory
    pub path: PathBuf,
    /// Rules, or a file with rules
    pub rules: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ReconcileCommand {
    /// What is still to be done
    Status {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Returns when everything is done, or nothing more can be
    Wait { pool: String },
    /// Stop until it is resumed, or the pool mounted again
    Pause { pool: String },
    /// Go on, and try again what was blocked
    Resume { pool: String },
}

#[derive(Debug, Args)]
pub struct WhereArguments {
    pub path: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct UsageArguments {
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct CapabilitiesArguments {
    /// Something on a mount: what its pool can now, and what it has itself; without it only what this program can
    pub path: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LoseArguments {
    /// Devices and media by path or name; a pool's name stands for its devices that are away already
    #[arg(required = true, value_name = "DEVICE|POOL")]
    pub devices: Vec<String>,
    /// Whose devices are meant, where names are not enough
    #[arg(long)]
    pub pool: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct FreeArguments {
    /// A pool, or its devices if it is not known here
    #[arg(required = true, value_name = "POOL|DEVICE")]
    pub words: Vec<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Exact numbers
    #[arg(long)]
    pub bytes: bool,
}

#[derive(Debug, Args)]
pub struct FlushArguments {
    /// Something on the mount; every mounted pool if not given
    pub path: Option<PathBuf>,
    /// Return when it is done
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Where to make the temporary folder, with room for 1 GiB
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Keep the folder
    #[arg(long)]
    pub keep: bool,
}
