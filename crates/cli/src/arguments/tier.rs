//! What can be typed behind `stere tier` and `stere media`.

use std::path::PathBuf;

use clap::Subcommand;

const PRICE_KEYS: &str = "\
Keys:
  requests=0.4             a thousand requests
  out=0.09                 a gigabyte (10^9 bytes) read from it
  month=0.023              a gigabyte that lies there for a month
0 for what costs nothing. `stere device add` takes the same as price_requests=, price_out= and price_month=.";

const POLICY_KEYS: &str = "\
Keys:
  order=stp|lru|once|size  what goes first: the greatest size times age (to the power of exponent), what was used longest
                           ago, what was used at most once since it came back, or the largest. Age counts from the last use
  exponent=1               for stp, 0 to 10, such as 1.4
  cache=SIZE               what came back to devices takes at most so much there, or never for as much as the marks allow
  high=85, low=75          percent of devices in use from which archived files are released, and down to which";

#[derive(Debug, Subcommand)]
pub enum TierCommand {
    /// The tertiary volumes of a pool, and what is on them
    List {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// What is still to be copied out or brought back, and what it waits for
    Queue {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// When and in which order the mount releases archived files by itself, in segments, from one mark of devices' fullness down to the
    /// other. What is archived by itself is said by rules: `size>1G age>90d: class=archive`
    #[command(after_help = POLICY_KEYS)]
    Policy {
        pool: String,
        /// What is to be so from now on
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Percent
        #[arg(long, requires = "low")]
        high: Option<u8>,
        /// Percent
        #[arg(long, requires = "high")]
        low: Option<u8>,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Copy down: what is below these paths goes to tertiary volumes from now on, and stays on devices until it is released
    Archive {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Volumes, with + between them for a copy on each; if not given those of the path's policy, else where something of it is already, else the pool's first
        #[arg(long, value_name = "VOLUME[+VOLUME]")]
        to: Option<String>,
        /// Return when it is there, read back and compared
        #[arg(long)]
        wait: bool,
        /// Only say what it would ask of volumes and cost
        #[arg(long)]
        dry_run: bool,
        /// With --dry-run, for programs
        #[arg(long, requires = "dry_run")]
        json: bool,
    },
    /// What a volume costs, as far as somebody said: numbers without a currency, shown or changed
    #[command(after_help = PRICE_KEYS)]
    Price {
        pool: String,
        volume: String,
        /// What it costs from now on
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Drop the local bytes of what is on its volumes; reading brings them back
    Release {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Names, modes and times of what is below the directories in PATH too: what lists or opens something there brings them back
        #[arg(long)]
        metadata: bool,
    },
    /// Bring back
    Stage {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Return when it is here
        #[arg(long)]
        wait: bool,
        /// Only say what it would ask of volumes and cost
        #[arg(long)]
        dry_run: bool,
        /// With --dry-run, for programs
        #[arg(long, requires = "dry_run")]
        json: bool,
    },
    /// Keep on devices whatever is below these paths, and bring back what is not there; it may be archived all the same
    Pin {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Return when it is here
        #[arg(long)]
        wait: bool,
    },
    /// Let these paths be released again
    Unpin {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Stop: send nothing more down from these paths, and bring nothing of them back; what is on volumes stays there
    Cancel {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum MediaCommand {
    /// The volumes of a pool
    List {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// One volume: where it is or should be, and what is on it
    Show {
        pool: String,
        volume: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Read every object of a volume and prove it; what is bad there and good elsewhere is copied out again
    Verify {
        pool: String,
        volume: String,
        /// Only compare names and sizes
        #[arg(long)]
        quick: bool,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Take a volume out of use: all that is on it is copied to another one, read back and compared, and then it is no part of the pool any
    /// more. Policies that name it mean the other one from now on. It goes on after a crash or an unmount
    Retire {
        pool: String,
        volume: String,
        /// The volume that takes over; it may be left out where only one can, is there, and costs nothing
        #[arg(long, value_name = "VOLUME")]
        to: Option<String>,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
        /// Only say what would be copied, and where to
        #[arg(long)]
        dry_run: bool,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Free what is dead on volumes: what is alive in the emptiest objects is put into new ones, on as many volumes as before, and then
    /// the old ones are deleted. May be ended at any time
    Repack {
        pool: String,
        /// All volumes if none is given
        volume: Option<String>,
        /// Objects of which at most so many percent are alive
        #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
        below: u8,
        /// For programs
        #[arg(long)]
        json: bool,
    },
}
