//! `sim`: runs histories, prints the seeds of those that fail with the shortest description, exits 1 when there are any.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use stere_sim::area::Area;
use stere_sim::exhaustive;
use stere_sim::fault::FaultKind;
use stere_sim::operation::Profile;
use stere_sim::run::{self, Request};

/// The simulator: the real stack on simulated devices, a reference model as oracle.
#[derive(Parser)]
struct Arguments {
    /// How many histories, with the seeds SEED, SEED+1, ...
    #[arg(long, default_value_t = 1)]
    histories: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations in a history.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Kinds of faults to choose from; "all" for all, "none" for none.
    #[arg(long, num_args = 1.., default_value = "all")]
    faults: Vec<String>,
    /// Only histories of this profile: mixed, names, data, sync, churn or full.
    #[arg(long)]
    profile: Option<String>,
    /// Only histories of this area: lists, records, followers, backups, places, accounts, volumes, cold, tiers or failing.
    #[arg(long)]
    area: Option<String>,
    /// Histories run at the same time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A bug to be planted in the layers.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    bug: Option<String>,
    /// Print every step.
    #[arg(long)]
    verbose: bool,
    /// Shorten the first history that fails of each kind.
    #[arg(long)]
    shorten: bool,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 50)]
    failures: usize,
    /// Instead of histories: every crash point of all workloads of one operation, and of two.
    #[arg(long)]
    exhaustive: bool,
    /// With --exhaustive: only every so manieth workload of two operations.
    #[arg(long, default_value_t = 1)]
    share: u64,
    /// Run each history twice and compare what reached the devices.
    #[arg(long)]
    twice: bool,
    /// Demand something wrong, to see that the oracle looks.
    #[arg(long)]
    canary: bool,
    /// Print what the stack itself tells: "debug", "stere_engine=debug,info".
    #[arg(long)]
    log: Option<String>,
}

fn faults(names: &[String]) -> Result<Vec<FaultKind>, String> {
    let mut kinds = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => kinds.extend(FaultKind::ALL),
            "none" => {}
            name => kinds.push(FaultKind::parse(name).ok_or_else(|| {
                let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
                format!("there is no fault {name}; known are all, none, {}", known.join(", "))
            })?),
        }
    }
    Ok(kinds)
}

#[cfg(feature = "planted-bugs")]
fn bug(name: Option<&str>) -> Option<stere_faults::Bug> {
    let name = name?;
    let found = stere_faults::Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    Some(found.unwrap_or_else(|| panic!("there is no bug {name}")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(filter) = &arguments.log {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    }
    let faults = match faults(&arguments.faults) {
        Ok(faults) => faults,
        Err(text) => {
            eprintln!("sim: {text}");
            return ExitCode::from(2);
        }
    };
    let profile = arguments.profile.as_deref().map(Profile::parse);
    if profile == Some(None) {
        eprintln!("sim: there is no such profile; see --help");
        return ExitCode::from(2);
    }
    let area = arguments.area.as_deref().map(Area::parse);
    if area == Some(None) {
        eprintln!("sim: there is no such area; see --help");
        return ExitCode::from(2);
    }
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.exhaustive {
        return run_exhaustive(&arguments);
    }
    let Arguments { histories, seed, steps, threads, canary, twice, .. } = arguments;
    let request = Request {
        histories,
        seed,
        steps,
        faults,
        threads,
        profile: profile.flatten(),
        canary,
        without_areas: false,
        area: area.flatten(),
        twice,
        #[cfg(feature = "planted-bugs")]
        bug: bug(arguments.bug.as_deref()),
    };
    #[cfg(feature = "planted-bugs")]
    stere_faults::plant(request.bug);
    if arguments.verbose {
        return match run::run_seed(seed, &request, true) {
            Ok(summary) => {
                println!("{summary:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("seed {seed}: {failure}");
                ExitCode::FAILURE
            }
        };
    }
    run_all(&request, &arguments)
}

fn run_exhaustive(arguments: &Arguments) -> ExitCode {
    let begin = Instant::now();
    let outcome = exhaustive::run(arguments.share, arguments.threads);
    println!(
        "{} workloads, {} crash points, {} recoveries, {:.1} s",
        outcome.workloads,
        outcome.crash_points,
        outcome.recoveries,
        begin.elapsed().as_secs_f64()
    );
    outcome.failed.iter().take(arguments.failures).for_each(|text| println!("{text}"));
    println!("{} workloads failed", outcome.failed.len());
    if outcome.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(request: &Request, arguments: &Arguments) -> ExitCode {
    let begin = Instant::now();
    let outcome = run::run_many(request, arguments.failures);
    let totals = outcome.totals;
    println!("{} histories from seed {}, {:.1} s", outcome.histories, request.seed, begin.elapsed().as_secs_f64());
    println!("of them with faults {}, with media {}", outcome.with_faults, outcome.with_volumes);
    totals.report().iter().for_each(|line| println!("  {line}"));
    if totals.faults > 0 {
        let kinds = FaultKind::ALL.iter().zip(totals.faults_by_kind).filter(|(_, count)| *count > 0);
        let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        println!("faults: {}", kinds.join(", "));
    }
    if outcome.failed.is_empty() {
        println!("no history failed");
        return ExitCode::SUCCESS;
    }
    for (text, (count, seed)) in run::kinds_of_failures(&outcome.failed) {
        println!("{count:4} x {text} (first: seed {seed})");
        if arguments.shorten {
            let (plan, operations) = run::history_of(seed, request);
            let (shortest, failure) = run::shorten(&plan, &operations, 400);
            println!("  {plan:?}");
            shortest.iter().enumerate().for_each(|(step, operation)| println!("  {step:3} {operation:?}"));
            println!("  {}", failure.map_or_else(|| "does not fail again".into(), |failure| failure.to_string()));
        }
    }
    println!("{} of {} histories failed", outcome.failed.len(), outcome.histories);
    ExitCode::FAILURE
}
