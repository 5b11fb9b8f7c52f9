//! What can be typed behind `stere device`: the life of a device.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use stere_control::spec::DeviceSpec;

/// How a change of devices is made.
#[derive(Debug, Clone, Copy, Args)]
pub struct How {
    /// Say what would be done, how much it moves and what the pool survives afterwards; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Return when the work in the background is done
    #[arg(long)]
    pub wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Devices, their classes, labels, states, sizes and errors, and the work that is done on them
    List {
        /// A pool, or its devices if it is not known here
        #[arg(required = true, value_name = "POOL|DEVICE")]
        words: Vec<String>,
        /// For programs
        #[arg(long)]
        json: bool,
        /// Exact numbers
        #[arg(long)]
        bytes: bool,
    },
    /// Put devices into a pool; new data goes to them at once
    Add {
        pool: String,
        /// PATH[,key=value]...: a block device or a file; keys: size (makes the file), class, tag, host, shelf, name. Tertiary volumes are
        /// dir:/path, s3://bucket/prefix, dav://host/folder (davs:// with TLS), sftp://user@host/path or robot:CHANGER (robot:people where people
        /// feed the drives); keys: class (object or media), name, of buckets endpoint, region, credentials, of WebDAV credentials, ca, of SFTP
        /// identity, known_hosts, and of tape libraries drive (for each), set, cartridges, block
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<DeviceSpec>,
        /// Keep it empty until another device fails; it takes over by itself then
        #[arg(long)]
        spare: bool,
        /// Destroy what the devices hold
        #[arg(long)]
        force: bool,
        /// Move what is there already, until all devices are filled alike within 5 %
        #[arg(long, conflicts_with = "spare")]
        rebalance: bool,
        #[command(flatten)]
        how: How,
    },
    /// Empty a device and take it out of the pool
    Remove {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Put a new device, or with --spare a hot spare, in the place of one that is there, failing or gone
    Replace {
        pool: String,
        /// Name, path, id or number of the device that goes
        old: String,
        /// PATH[,key=value]...: the device that takes its place
        #[arg(value_name = "NEW", required_unless_present = "spare", conflicts_with = "spare")]
        new: Option<DeviceSpec>,
        /// Take a hot spare of the pool
        #[arg(long)]
        spare: bool,
        /// Destroy what the new device holds
        #[arg(long, conflicts_with = "spare")]
        force: bool,
        #[command(flatten)]
        how: How,
    },
    /// Move everything away from a device, which stays in the pool, empty, until it is `online` again or removed
    Evacuate {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Let go of a device for a while; refused if files could not be read without it
    Offline {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// Even if files cannot be read without it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: How,
    },
    /// Use a device again that was away, offline or to be emptied; it is caught up on what it missed. Of a tertiary volume whose place in the
    /// pool names files of this machine (keys, passwords) it shows the place and asks whether they are to be used
    Online {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// Where it is now, if it is not where it was
        path: Option<PathBuf>,
        /// Give up what is on it and fill it anew: for a device that was written to without the others
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        how: How,
    },
    /// Give a device up: it is not written to any more, and what it holds is rebuilt elsewhere
    Fail {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Change the words a device is known by
    Label {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// name=, host=, shelf=, class=, or tag= (all tags, with commas)
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Use all of a device that has grown; while the pool is mounted, the others must be able to do without it for a moment
    Resize {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Read and verify everything that is stored, parity and copies too, and repair what is wrong; goes on where it was paused
    Start {
        pool: String,
        /// From the beginning
        #[arg(long)]
        restart: bool,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
    /// How far it is and what it found
    Status {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Stop for now; where it stands is remembered, also by the next mount
    Pause { pool: String },
}
