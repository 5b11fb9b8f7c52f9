//! What can be typed behind `stere device`: the life of a device.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use stere_control::spec::DeviceSpec;

/// How a change of devices is made.
#[derive(Debug, Clone, Copy, Args)]
pub struct How {
    /// Show what would be done, how much data moves and what the pool survives afterwards; change nothing
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
    /// List devices with classes, labels, states, sizes, errors and the work in progress
    List {
        /// A pool, or the devices of a pool that this machine does not know
        #[arg(required = true, value_name = "POOL|DEVICE")]
        words: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print exact numbers
        #[arg(long)]
        bytes: bool,
    },
    /// Add devices to a pool; new data goes to them at once
    Add {
        pool: String,
        /// PATH[,key=value]...: a block device or a file; keys: size (makes the file), class, tag, host, shelf, name. Media are
        /// dir:/path, s3://bucket/prefix, dav://host/folder (davs:// with TLS), sftp://user@host/path or robot:CHANGER (robot:people where people
        /// feed the drives); keys: class (object or media), name, of buckets endpoint, region, credentials, of WebDAV credentials, ca, of SFTP
        /// identity, known_hosts, and of tape libraries drive (for each), set, cartridges, block. dir: and robot: are of the machine on which
        /// this is said, where several mount the pool
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<DeviceSpec>,
        /// Add a hot spare: it stays empty and takes over when another device fails
        #[arg(long)]
        spare: bool,
        /// Destroy the data on the devices
        #[arg(long)]
        force: bool,
        /// Move existing data until all devices are equally full within 5 %
        #[arg(long, conflicts_with = "spare")]
        rebalance: bool,
        #[command(flatten)]
        how: How,
    },
    /// Move all data off a device and take it out of the pool
    Remove {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Replace a device that works, fails or is gone with a new one, or with --spare a hot spare
    Replace {
        pool: String,
        /// Name, path, id or number of the old device
        old: String,
        /// PATH[,key=value]...: the new device
        #[arg(value_name = "NEW", required_unless_present = "spare", conflicts_with = "spare")]
        new: Option<DeviceSpec>,
        /// Use a hot spare of the pool
        #[arg(long)]
        spare: bool,
        /// Destroy the data on the new device
        #[arg(long, conflicts_with = "spare")]
        force: bool,
        #[command(flatten)]
        how: How,
    },
    /// Move all data off a device; it stays in the pool, empty, until `online` or `remove`
    Evacuate {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Detach a device for a while; refused if files could not be read without it
    Offline {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// Detach it although files cannot be read without it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: How,
    },
    /// Use a device again that was away, offline or evacuated, and catch it up. For a medium whose place names files of this machine (keys,
    /// passwords) the command shows the place and asks whether to use them
    Online {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// Its path now, if it moved
        path: Option<PathBuf>,
        /// Discard its data and fill it again: for a device that was written to without the others
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        how: How,
    },
    /// Give a device up: nothing is written to it any more, and its data is rebuilt elsewhere
    Fail {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        #[command(flatten)]
        how: How,
    },
    /// Change the name, class, host, shelf or tags of a device
    Label {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// name=, host=, shelf=, class=, or tag= (all tags, with commas)
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Use the whole of a device that has grown, or less of one; on a mounted pool the other devices must be able to go on without one that
    /// has grown for a moment
    Resize {
        pool: String,
        /// Name, path, id or number of a device
        device: String,
        /// Use no more than this of it: what lies beyond is moved, then an image file is cut off there, and a partition can be made smaller
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Read and verify everything, also parity and copies, and repair what is wrong; continues a paused scrub
    Start {
        pool: String,
        /// Start from the beginning
        #[arg(long)]
        restart: bool,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
    /// Show its progress and what it found
    Status {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Pause; the position is remembered, also by the next mount
    Pause { pool: String },
}
