//! `stere stack`: a stack of plugins over an existing directory, without a pool; serves until it is unmounted.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use fuse_wire::Unmount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stere_plugin::UserPlugin;
use stere_stack::{Coder, Options, Rules};

use crate::cli::StackArguments;
use crate::error::{At, DONE, Error, Result, refused};
use crate::{keys, plugins};

pub fn run(arguments: &StackArguments) -> Result<u8> {
    let StackArguments { source, mountpoint, .. } = arguments;
    if let (Ok(one), Ok(other)) = (source.canonicalize(), mountpoint.canonicalize())
        && (one.starts_with(&other) || other.starts_with(&one))
    {
        return refused(format!(
            "{} and {} lie in one another; mount on a directory elsewhere",
            source.display(),
            mountpoint.display()
        ));
    }
    let rules = rules(arguments)?;
    let mut coder = Coder::default();
    for text in &arguments.plugins {
        let (name, plugin) = plugin(text)?;
        coder.plugins.insert(name, plugin);
    }
    if arguments.secret.key_file.is_some() || arguments.secret.passphrase_file.is_some() {
        let secret = keys::secret_of(&arguments.secret, source)?;
        coder.key = Some(stere_stack::key_of(source, &secret).map_err(|error| told(&error))?);
    }
    let options = Options { rules, allow_other: arguments.allow_other, read_only: arguments.read_only };
    let session = stere_stack::mount(source, mountpoint, coder, &options).map_err(|error| told(&error))?;
    let unmounter = session.unmounter();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::System)?;
    let handle = signals.handle();
    let waiting = std::thread::spawn(move || {
        for _ in &mut signals {
            if let Err(error) = unmounter.unmount(Unmount::Normal) {
                eprintln!("stere: it cannot be unmounted ({error}); close what is open on it");
            }
        }
    });
    println!(
        "{} is mounted on {}; unmount it with umount(8) or fusermount3 -u",
        source.display(),
        mountpoint.display()
    );
    // Whoever waits for this line must get it.
    std::io::stdout().flush().map_err(Error::System)?;
    let ended = session.join();
    handle.close();
    drop(waiting.join());
    match ended {
        Ok(()) => Ok(DONE),
        Err(error) => refused(format!("the mount ended badly: {error}")),
    }
}

fn rules(arguments: &StackArguments) -> Result<Rules> {
    let mut text = arguments.rules.join("\n");
    if let Some(file) = &arguments.rules_file {
        text = format!("{text}\n{}", std::fs::read_to_string(file).at("read", file)?);
    }
    Rules::parse(&text).map_err(|error| Error::Usage(error.to_string()))
}

fn plugin(text: &str) -> Result<(String, Arc<dyn UserPlugin>)> {
    let Some((name, file)) = text.split_once('=') else {
        return Err(Error::Usage(format!("'{text}' is not NAME=FILE; write for example delta=delta.wasm")));
    };
    let module = plugins::read_module(Path::new(file))?;
    let Some(loader) = plugins::loader() else { return refused("plugins cannot be run here; leave --plugin out") };
    match loader.load(&module) {
        Ok(plugin) => Ok((name.to_owned(), plugin)),
        Err(failure) => refused(format!("the plugin '{name}' {failure}; give another module")),
    }
}

fn told(error: &stere_stack::Error) -> Error {
    Error::Refused(format!("{error}"))
}
