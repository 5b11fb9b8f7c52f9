//! The program `stere`: commands are handed to `stere-cli`, mounts to `stere-daemon`.
//!
//! Exit codes: 0 done, 1 error, 2 wrong usage, 3 done but degraded, 4 data lost. Errors go to stderr: what is wrong, and what
//! to do. Read next: `crates/cli/src/arguments.rs`, then `crates/daemon/src/serve.rs`, the process of a mount.

mod helper;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use stere_cli::arguments::{Cli, Command};
use stere_cli::terminal::plain_lines;
use stere_cli::umount;
use stere_daemon::mount_request::MountRequest;
use stere_daemon::{mount, receiver};
use stere_machine::error::Result;
use stere_machine::registry::Registry;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if helper::is_mount_helper(&arguments) {
        start_log(false);
        return helper::run(&arguments);
    }
    let cli = Cli::parse_from(arguments);
    let is_served_here = match &cli.command {
        Command::Mount(mount) => mount.foreground,
        Command::Node { .. } => true,
        _ => false,
    };
    start_log(is_served_here);
    if !is_served_here {
        end_quietly_when_nobody_reads();
    }
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("stere: {}", plain_lines(&error.to_string()));
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
            | Command::Host { .. }
            | Command::Device { .. }
            | Command::Scrub { .. }
    )
}

fn run(cli: Cli) -> Result<u8> {
    let registry = Registry::open();
    if needs_devices(&cli.command) {
        umount::settle(&registry);
    }
    match cli.command {
        Command::Create(arguments) => stere_cli::create::run(&registry, &arguments),
        Command::Mount(arguments) => {
            let metrics = arguments.metrics.iter().map(|address| format!("metrics={address}"));
            let standby = arguments.standby.then(|| "standby".to_owned());
            let options: Vec<String> = arguments.options.iter().cloned().chain(metrics).chain(standby).collect();
            let request = MountRequest::parse(&registry, &arguments.words, &options)?;
            mount::run(&registry, request, arguments.foreground)
        }
        Command::Umount(arguments) => umount::run(&registry, &arguments.place, arguments.lazy, arguments.force),
        Command::Status(arguments) => stere_cli::status::run(&registry, &arguments),
        Command::Check(arguments) => stere_cli::check::run(&registry, &arguments),
        Command::Rescue(arguments) => stere_cli::rescue::run(&registry, &arguments),
        Command::Device { command } => stere_cli::device::run(&registry, &command),
        Command::Scrub { command } => stere_cli::scrub::run(&registry, &command),
        Command::Pool { command } => stere_cli::pool::run(&registry, &command),
        Command::Host { command } => stere_cli::host::run(&registry, &command),
        Command::Policy { command } => stere_cli::policy::run(&registry, &command),
        Command::Versions { command } => stere_cli::versions::run(&command),
        Command::Class { command } => stere_cli::class::run(&registry, &command),
        Command::Backup { command } => stere_cli::backup::run(&registry, &command),
        Command::Volume { command } => stere_cli::quota::run_volume(&registry, &command),
        Command::Quota { command } => stere_cli::quota::run_quota(&registry, &command),
        Command::Io { command } => stere_cli::io::run(&registry, &command),
        Command::Reconcile { command } => stere_cli::reconcile::run(&registry, &command),
        Command::Tier { command } => stere_cli::tier::run(&registry, &command),
        Command::Media { command } => stere_cli::tier::media::media(&registry, &command),
        Command::Key { command } => stere_cli::keys::run(&registry, &command),
        Command::Stack(arguments) => stere_cli::stack::run(&arguments),
        Command::Node { command } => stere_cli::node::run(&registry, &command),
        Command::Plugin { command } => stere_cli::plugins::run(&registry, &command),
        Command::Where(arguments) => stere_cli::layout::run(&registry, &arguments),
        Command::Du(arguments) => stere_cli::usage::run(&registry, &arguments),
        Command::Find(arguments) => stere_cli::find::run(&arguments),
        Command::Digest(arguments) => stere_cli::digest::run(&registry, &arguments),
        Command::Provenance(arguments) => stere_cli::watch::run_provenance(&arguments),
        Command::Audit(arguments) => stere_cli::watch::run_audit(&registry, &arguments),
        Command::Capabilities(arguments) => stere_cli::capabilities::run(&arguments),
        Command::Lose(arguments) => stere_cli::lose::run(&registry, &arguments),
        Command::Free(arguments) => stere_cli::free::run(&registry, &arguments),
        Command::Flush(arguments) => stere_cli::flush::run(&registry, &arguments),
        Command::Demo(arguments) => stere_cli::demo::run(&arguments),
        Command::Man { directory } => stere_cli::man::run(&directory),
        Command::Receive(arguments) => {
            let mount = (arguments.major, arguments.minor);
            Ok(receiver::run(&receiver::Start { mount, only: arguments.only }))
        }
    }
}
