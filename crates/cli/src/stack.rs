//! `stere stack`: a stack of plugins over an existing directory, without a pool; serves until it is unmounted.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse_wire::Unmount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stere_plugin::{Events, UserPlugin};
use stere_stack::{Coder, Follower, Options, Queue, Rules};

use crate::arguments::stack::StackArguments;
use crate::{keys, plugins};
use stere_machine::clock;
use stere_machine::error::{At, DONE, Error, Result, refused};

const FOLLOW_TICK: Duration = Duration::from_millis(200);

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
    let coder = Arc::new(coder);
    let follower = follower(arguments, &rules, &coder)?;
    let options = Options {
        rules,
        queue: follower.as_ref().map(|follower| follower.queue.clone()),
        now_seconds: || clock::now().seconds,
        allow_other: arguments.allow_other,
        read_only: arguments.read_only,
    };
    let session = stere_stack::mount(source, mountpoint, coder, &options).map_err(|error| told(&error))?;
    let following = follower.map(Following::start);
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
    following.into_iter().for_each(Following::end);
    handle.close();
    drop(waiting.join());
    match ended {
        Ok(()) => Ok(DONE),
        Err(error) => refused(format!("the mount ended badly: {error}")),
    }
}

/// What is followed up afterwards, if rules ask for that.
fn follower(arguments: &StackArguments, rules: &Rules, coder: &Arc<Coder>) -> Result<Option<Follower>> {
    if arguments.read_only || rules.all_follows().next().is_none() {
        return Ok(None);
    }
    for (name, _) in rules.all_follows().flat_map(|follows| &follows.plugins) {
        match coder.plugins.get(name) {
            Some(plugin) if plugin.follows() != Events::NONE => {}
            Some(_) => {
                return refused(format!("the plugin '{name}' is told nothing afterwards; take it out of follow="));
            }
            None => return refused(format!("a rule has follow={name}; give the plugin with --plugin {name}=FILE")),
        }
    }
    let source = arguments.source.canonicalize().at("find", &arguments.source)?;
    let backup = arguments.backup.as_ref().map(|backup| backup.canonicalize().at("find", backup)).transpose()?;
    if backup.is_none() && rules.all_follows().any(|follows| follows.backup) {
        return refused("a rule has backup=yes; say where to with --backup DIRECTORY");
    }
    if backup.as_ref().is_some_and(|backup| backup.starts_with(&source) || source.starts_with(backup)) {
        return refused("the source and the directory of --backup lie in one another; copy to a directory elsewhere");
    }
    let queue = Arc::new(Queue::open(&source).at("keep the list of changes in", &source)?);
    Ok(Some(Follower { source, rules: rules.clone(), coder: coder.clone(), queue, backup }))
}

/// The thread that follows changes up.
struct Following {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Following {
    fn start(follower: Follower) -> Following {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = stop.clone();
        let run = move || {
            while !is_stopped.load(Ordering::Acquire) {
                follower.step(clock::now().seconds, &|| is_stopped.load(Ordering::Acquire));
                std::thread::park_timeout(FOLLOW_TICK);
            }
        };
        Following { stop, thread: std::thread::spawn(run) }
    }

    /// What is not done waits for the next mount.
    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        drop(self.thread.join());
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
    let Some(loader) = stere_machine::plugins::loader() else {
        return refused("plugins cannot be run here; leave --plugin out");
    };
    match loader.load(&module) {
        Ok(plugin) => Ok((name.to_owned(), plugin)),
        Err(failure) => refused(format!("the plugin '{name}' {failure}; give another module")),
    }
}

fn told(error: &stere_stack::Error) -> Error {
    Error::Refused(format!("{error}"))
}
