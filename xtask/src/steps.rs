//! A run of named steps: one plain line when a step starts and ends, a summary at the end, skips never silent.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Result, XtaskError};

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A step that has run: its name, how long it took, and what became of it.
type Done = (String, Duration, Outcome);

/// A step that has not run, and its name.
pub type Waiting<'a> = (String, Box<dyn FnOnce() -> Result<()> + Send + 'a>);

fn run(name: &str, work: impl FnOnce() -> Result<()>) -> Done {
    println!("==> {name}");
    let start = Instant::now();
    let outcome = match work() {
        Ok(()) => Outcome::Passed,
        Err(XtaskError::Skipped(why)) => Outcome::Skipped(why),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Outcome::Passed => println!("<== {name}: ok ({seconds:.1} s)"),
        Outcome::Skipped(why) => println!("<== {name}: SKIPPED: {why}"),
        Outcome::Failed(why) => println!("<== {name}: FAILED ({seconds:.1} s): {why}"),
    }
    (name.to_owned(), start.elapsed(), outcome)
}

pub struct Steps {
    title: &'static str,
    /// Only steps whose name has this in it.
    only: Option<String>,
    start: Instant,
    done: Vec<Done>,
}

impl Steps {
    pub fn new(title: &'static str) -> Self {
        Steps { title, only: None, start: Instant::now(), done: Vec::new() }
    }

    /// Nothing but the steps whose name has `words` in it: to repeat what failed.
    pub fn only(mut self, words: Option<String>) -> Self {
        self.only = words;
        self
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|words| name.contains(words.as_str()))
    }

    /// Runs a step; a failure is remembered and the next steps run all the same.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        if self.is_wanted(name) {
            self.done.push(run(name, work));
        }
    }

    /// Runs steps that do not need each other, two at a time: most of them wait for devices.
    pub fn two_at_a_time(&mut self, steps: Vec<Waiting<'_>>) {
        let mut wanted: Vec<_> = steps.into_iter().filter(|(name, _)| self.is_wanted(name)).collect();
        wanted.reverse();
        let (waiting, done) = (Mutex::new(wanted), Mutex::new(Vec::new()));
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some((name, work)) = next() {
                        let one = run(&name, work);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                    }
                });
            }
        });
        self.done.extend(done.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn has_failed(&self) -> bool {
        self.done.iter().any(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_)))
    }

    /// Prints the table; an error if a step failed.
    pub fn finish(self) -> Result<()> {
        if self.done.is_empty() {
            return Err(XtaskError::found(
                "no step has these words in its name; without them all steps are run and named",
            ));
        }
        println!("\n{} in {:.0} s:", self.title, self.start.elapsed().as_secs_f64());
        for (name, duration, outcome) in &self.done {
            let (word, note) = match outcome {
                Outcome::Passed => ("ok     ", String::new()),
                Outcome::Skipped(why) => ("SKIPPED", format!(": {why}")),
                Outcome::Failed(_) => ("FAILED ", String::new()),
            };
            println!("  {word} {:>7.1} s  {name}{note}", duration.as_secs_f64());
        }
        let failed = self.done.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_))).count();
        if failed == 0 {
            Ok(())
        } else {
            Err(XtaskError::found(format!("{failed} of {} steps failed", self.done.len())))
        }
    }
}
