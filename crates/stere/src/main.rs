//! The command `stere`: pools made, mounted, looked at and checked. `cli.rs` is what can be typed; there is one module a noun.
//!
//! Exit codes: 0 done, 1 error, 2 wrong usage, 3 done but degraded, 4 data lost. Errors go to stderr: what is wrong, and what
//! to do. Read next: `cli.rs`, then `mount/serve.rs`, the process of a mount.

mod backup;
mod capabilities;
mod check;
mod claim;
mod class;
mod cli;
mod clock;
mod control;
mod create;
mod demo;
mod device;
mod devices;
mod digest;
mod error;
mod find;
mod flush;
mod free;
mod helper;
mod holders;
mod keys;
mod layout;
mod locate;
mod lose;
mod man;
mod metrics;
mod mount;
mod mountinfo;
mod plugins;
mod policy;
mod pool;
mod progress;
mod public;
mod quota;
mod reconcile;
mod registry;
mod report;
mod rescue;
mod resize;
mod rules;
mod running;
mod scrub;
mod size;
mod spec;
mod stack;
mod status;
mod tier;
mod umount;
mod usage;
mod versions;
mod volumes;
mod watch;

use stere_people as people;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use error::Result;
use registry::Registry;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if helper::is_mount_helper(&arguments) {
        start_log(false);
        return helper::run(&arguments);
    }
    let cli = Cli::parse_from(arguments);
    let is_served_here = matches!(&cli.command, Command::Mount(mount) if mount.foreground);
    start_log(is_served_here);
    if !is_served_here {
        end_quietly_when_nobody_reads();
    }
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("stere: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// `stere status | head -1`: whoever read what is printed has gone, which is no bug to be reported. Ends as SIGPIPE would.
fn end_quietly_when_nobody_reads() {
    const KILLED_BY_SIGPIPE: i32 = 128 + 13;
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        // The words of the standard library's `println!`.
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(KILLED_BY_SIGPIPE);
        }
        others(panic);
    }));
}

/// Messages of the layers below, on stderr; a mount tells more. `STERE_LOG` chooses otherwise.
fn start_log(is_mount: bool) {
    let default = if is_mount { "info" } else { "error" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("STERE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal).init();
}

/// Whether a command may open devices that a mount which is ending still has.
fn needs_devices(command: &Command) -> bool {
    matches!(
        command,
        Command::Create(_)
            | Command::Mount(_)
            | Command::Check(_)
            | Command::Rescue(_)
            | Command::Status(_)
            | Command::Lose(_)
            | Command::Pool { .. }
            | Command::Device { .. }
    )
}

fn run(cli: Cli) -> Result<u8> {
    let registry = Registry::open();
    if needs_devices(&cli.command) {
        umount::settle(&registry);
    }
    match cli.command {
        Command::Create(arguments) => create::run(&registry, &arguments),
        Command::Mount(arguments) => {
            let metrics = arguments.metrics.iter().map(|address| format!("metrics={address}"));
            let options: Vec<String> = arguments.options.iter().cloned().chain(metrics).collect();
            let job = mount::Job::parse(&registry, &arguments.words, &options)?;
            mount::run(&registry, job, arguments.foreground)
        }
        Command::Umount(arguments) => umount::run(&registry, &arguments.place, arguments.lazy, arguments.force),
        Command::Status(arguments) => status::run(&registry, &arguments),
        Command::Check(arguments) => check::run(&registry, &arguments),
        Command::Rescue(arguments) => rescue::run(&registry, &arguments),
        Command::Device { command } => device::run(&registry, &command),
        Command::Scrub { command } => scrub::run(&registry, &command),
        Command::Pool { command } => pool::run(&registry, &command),
        Command::Policy { command } => policy::run(&registry, &command),
        Command::Versions { command } => versions::run(&command),
        Command::Class { command } => class::run(&registry, &command),
        Command::Backup { command } => backup::run(&registry, &command),
        Command::Volume { command } => quota::run_volume(&registry, &command),
        Command::Quota { command } => quota::run_quota(&registry, &command),
        Command::Reconcile { command } => reconcile::run(&registry, &command),
        Command::Tier { command } => tier::run(&registry, &command),
        Command::Media { command } => tier::media(&registry, &command),
        Command::Key { command } => keys::run(&registry, &command),
        Command::Stack(arguments) => stack::run(&arguments),
        Command::Plugin { command } => plugins::run(&registry, &command),
        Command::Where(arguments) => layout::run(&registry, &arguments),
        Command::Du(arguments) => usage::run(&registry, &arguments),
        Command::Find(arguments) => find::run(&arguments),
        Command::Digest(arguments) => digest::run(&registry, &arguments),
        Command::Provenance(arguments) => watch::run_provenance(&arguments),
        Command::Audit(arguments) => watch::run_audit(&registry, &arguments),
        Command::Capabilities(arguments) => capabilities::run(&arguments),
        Command::Lose(arguments) => lose::run(&registry, &arguments),
        Command::Free(arguments) => free::run(&registry, &arguments),
        Command::Flush(arguments) => flush::run(&registry, &arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Man { directory } => man::run(&directory),
        Command::Receive(arguments) => Ok(mount::receiver::run(&arguments)),
    }
}
