//! `stere where`: on which devices a file lies, run by run, and which cartridges have to be fetched to read it.

use crate::arguments::WhereArguments;
use crate::json::to_json;
use stere_control::layout::{Fetch, Run, Source};
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_machine::error::{DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

pub fn run(registry: &Registry, arguments: &WhereArguments) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, &arguments.path)?;
    let (mut runs, mut fetches): (Vec<Run>, Vec<Fetch>) = (Vec::new(), Vec::new());
    let mut from = Some(0);
    while let Some(at) = from {
        let Answer::Layout(layout) = connection.ask(Request::Layout { inode, from: at })? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        for run in layout.runs {
            let medium = |one: &Run| one.from.clone().map(|source| (source.volume, source.cartridge));
            let alike = |one: &Run| (one.scheme.clone(), one.survives, one.devices.clone(), medium(one));
            match runs.last_mut().filter(|last| last.end == run.start && alike(last) == alike(&run)) {
                Some(last) => last.end = run.end,
                None => runs.push(run),
            }
        }
        fetches.extend(layout.fetches);
        from = layout.next;
    }
    if arguments.json {
        println!("{}", to_json(&runs)?);
        return Ok(DONE);
    }
    if runs.is_empty() {
        println!("nothing of {} is stored on devices yet", arguments.path.display());
    }
    for run in runs {
        let (start, length) =
            (size::show_as(run.start, arguments.bytes), size::show_as(run.end - run.start, arguments.bytes));
        let away = match &run.from {
            Some(Source { cartridge, .. }) => format!(" (to be fetched, cartridge {cartridge})"),
            None if run.is_released => " (to be fetched)".to_owned(),
            None => String::new(),
        };
        let hosts = run.survives_hosts.map(|survives| format!(" (hosts {}: survives {survives})", run.hosts.join(" ")));
        println!(
            "{start:>10} +{length:<10} {:5} survives {}: {}{}{away}",
            run.scheme,
            run.survives,
            run.devices.join(" "),
            hosts.unwrap_or_default()
        );
    }
    for Fetch { volume, cartridge, segments, seconds } in fetches {
        println!(
            "{segments} segments come from cartridge {cartridge} of {volume}, the first byte in about {seconds:.0} s"
        );
    }
    Ok(DONE)
}
