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
    /// List the media of a pool, and what is on them
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what is still to be archived or staged, and what it waits for
    Queue {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show or set when and in which order the mount releases archived segments by itself: from the high watermark of the devices down to
    /// the low one. Rules say what is archived by itself: `size>1G age>90d: class=archive`
    #[command(after_help = POLICY_KEYS)]
    Policy {
        pool: String,
        /// New values
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Percent
        #[arg(long, requires = "low")]
        high: Option<u8>,
        /// Percent
        #[arg(long, requires = "high")]
        low: Option<u8>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy files below these paths to media from now on; they stay on devices until they are released
    Archive {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Media, with + between them for a copy on each; without it those of the path's policy, else those that have parts of it, else the pool's first
        #[arg(long, value_name = "VOLUME[+VOLUME]")]
        to: Option<String>,
        /// Return when everything is on the media, read back and compared
        #[arg(long)]
        wait: bool,
        /// Only show the requests to media and what they cost
        #[arg(long)]
        dry_run: bool,
        /// Print JSON (with --dry-run)
        #[arg(long, requires = "dry_run")]
        json: bool,
    },
    /// Show or set the prices of a medium: numbers without a currency
    #[command(after_help = PRICE_KEYS)]
    Price {
        pool: String,
        volume: String,
        /// New prices
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free the space on devices of files that are on their media; reading recalls them
    Release {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Also release names, modes and times below the directories in PATH; listing or opening something there recalls them
        #[arg(long)]
        metadata: bool,
    },
    /// Copy files back to devices
    Stage {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Return when everything is on devices
        #[arg(long)]
        wait: bool,
        /// Only show the requests to media and what they cost
        #[arg(long)]
        dry_run: bool,
        /// Print JSON (with --dry-run)
        #[arg(long, requires = "dry_run")]
        json: bool,
    },
    /// Keep everything below these paths on devices, and stage what is not there; it may still be archived
    Pin {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Return when everything is on devices
        #[arg(long)]
        wait: bool,
    },
    /// Allow these paths to be released again
    Unpin {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Stop archiving and staging these paths; what is on media stays there
    Cancel {
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum MediaCommand {
    /// List the media of a pool
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one medium: where it is or should be, and what is on it
    Show {
        pool: String,
        volume: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read and verify every object of a medium; bad objects that are good elsewhere are copied out again
    Verify {
        pool: String,
        volume: String,
        /// Only compare names and sizes
        #[arg(long)]
        quick: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Retire a medium: copy everything on it to another one, read it back, compare, and remove the medium from the pool. Policies that
    /// name it mean the other one from now on. Continues after a crash or an unmount
    Retire {
        pool: String,
        volume: String,
        /// The medium that takes over; optional if only one can, is available, and costs nothing
        #[arg(long, value_name = "VOLUME")]
        to: Option<String>,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
        /// Only show what would be copied, and where
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free dead space on media: copy live data of the emptiest objects into new ones, on as many media as before, and delete the old ones.
    /// May be interrupted at any time
    Repack {
        pool: String,
        /// The medium; without it all of them
        volume: Option<String>,
        /// Only objects with at most this percentage of live data
        #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
        below: u8,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
