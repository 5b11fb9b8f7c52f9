//! The area `clients`: machines that ask one owner after another for names and appends, over a network that loses, repeats and reorders.
//!
//! One seed is one history. A client has several requests under way and asks for each until it is answered. Owners are replaced meanwhile:
//! the next one has what was committed, whoever was told, and hears the same requests again. One that was replaced may go on and
//! commits nothing. The oracle: each request takes effect once. A line is in the log once, and no name is found made, renamed or removed.
//!
//! Names, appends and notes are the product's; sessions are as `crates/owner/src/session.rs` keeps them, without its threads. Invariant:
//! everything runs on one thread, and chance comes from the seed. Read next: `clients/site.rs`, `docs/design/machines.md`.

pub mod crowd;
mod site;

use std::collections::BTreeMap;

use stere_faults::Bug;

use crate::many;
use crate::random::Random;
use site::{Owner, Site};

/// Steps of one history, before what is under way is answered.
const STEPS: u64 = 120;
const CLIENTS: usize = 3;
/// Requests of a client under way.
const WAITING_MAX: usize = 6;
/// Bytes of a line.
const LINE_BYTES: usize = 16;
/// More rounds than any history needs to have everything answered.
const ROUNDS_MAX: u64 = 10_000;

/// What happened in histories, so that nobody takes quiet ones for proof.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub histories: u64,
    pub answered: u64,
    pub owners: u64,
    /// Requests that an owner had done, and that the next one was asked for again.
    pub noted: u64,
    /// Requests that came again to the same owner.
    pub duplicates: u64,
    pub lost: u64,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Append(Vec<u8>),
    Mkdir(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Rmdir(Vec<u8>),
}

/// A request without an answer, and the term of the owner that it was first sent to.
#[derive(Debug, Clone)]
struct Waiting {
    operation: Operation,
    first_term: Option<u64>,
}

/// A request on its way.
#[derive(Debug, Clone)]
struct Message {
    client: usize,
    term: u64,
    number: u64,
    /// The client has all answers below.
    acknowledged: u64,
    is_repeated: bool,
    operation: Operation,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    client: usize,
    number: u64,
}

#[derive(Debug, Default)]
struct Client {
    last_number: u64,
    waiting: BTreeMap<u64, Waiting>,
    directories: u64,
    /// What is to come of the directory that it works on.
    steps_to_come: Vec<Operation>,
    /// Lines that were answered, and those that were not yet.
    lines: Vec<Vec<u8>>,
}

struct History {
    random: Random,
    site: Site,
    owner: Option<Owner>,
    /// Replaced, and not aware of it.
    former: Option<Owner>,
    clients: Vec<Client>,
    requests: Vec<Message>,
    answers: Vec<Answer>,
    seen: Seen,
}

/// Plays one history; an error is what was found.
pub fn run(seed: u64) -> Result<Seen, String> {
    let mut history = History::begin(seed)?;
    for step in 0..STEPS {
        history.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    history.end().map_err(|error| format!("at the end: {error}"))?;
    history.seen.histories = 1;
    Ok(history.seen)
}

/// Plays so many histories, with a bug planted if asked; what was seen before the first failure, and that.
pub fn run_many(first: u64, count: u64, bug: Option<Bug>) -> (Seen, Option<(u64, String)>) {
    let (seen, failure) = many::run(first, count, bug, run);
    (seen.into_iter().fold(Seen::default(), Seen::and), failure)
}

impl Seen {
    fn and(self, other: Seen) -> Seen {
        Seen {
            histories: self.histories + other.histories,
            answered: self.answered + other.answered,
            owners: self.owners + other.owners,
            noted: self.noted + other.noted,
            duplicates: self.duplicates + other.duplicates,
            lost: self.lost + other.lost,
        }
    }
}

/// Any of so many, if there are some.
fn any(random: &mut Random, count: usize) -> Option<usize> {
    (count > 0).then(|| random.below(count as u64) as usize)
}

fn session_of(client: usize) -> [u8; 16] {
    let [high, low] = (client as u16 + 1).to_be_bytes();
    std::array::from_fn(|at| if at % 2 == 0 { high } else { low })
}

impl Client {
    /// The next thing that it wants: a line, or one more change of its directory when the last one was answered.
    fn operation(&mut self, own: usize, random: &mut Random) -> Option<Operation> {
        let works_on_names = self.waiting.values().any(|waiting| !matches!(waiting.operation, Operation::Append(_)));
        if works_on_names || random.chance(1, 2) {
            let line = format!("{own:04} {:09}\n", self.lines.len() + self.lines_waiting());
            assert_eq!(line.len() + 1, LINE_BYTES, "lines are equally long");
            return Some(Operation::Append(format!(" {line}").into_bytes()));
        }
        if self.steps_to_come.is_empty() {
            self.directories += 1;
            let name = |what: &str| format!("{what} {own} {}", self.directories).into_bytes();
            let (made, renamed) = (name("made"), name("renamed"));
            self.steps_to_come = vec![
                Operation::Rmdir(renamed.clone()),
                Operation::Rename(made.clone(), renamed),
                Operation::Mkdir(made),
            ];
        }
        self.steps_to_come.pop()
    }

    fn lines_waiting(&self) -> usize {
        self.waiting.values().filter(|waiting| matches!(waiting.operation, Operation::Append(_))).count()
    }

    /// A request as it is sent to the owner of this term.
    fn message(&mut self, client: usize, number: u64, term: u64) -> Option<Message> {
        let acknowledged = self.waiting.first_key_value().map_or(self.last_number + 1, |(first, _)| *first);
        let waiting = self.waiting.get_mut(&number)?;
        let first_term = *waiting.first_term.get_or_insert(term);
        assert!(first_term <= term, "terms rise");
        let is_repeated = first_term < term;
        Some(Message { client, term, number, acknowledged, is_repeated, operation: waiting.operation.clone() })
    }
}

impl History {
    fn begin(seed: u64) -> Result<History, String> {
        let mut random = Random::new(seed);
        let mut site = Site::new(&mut random)?;
        let owner = Some(site.open(&mut random)?);
        let clients = (0..CLIENTS).map(|_| Client::default()).collect();
        let (requests, answers) = (Vec::new(), Vec::new());
        Ok(History { random, site, owner, former: None, clients, requests, answers, seen: Seen::default() })
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..=5 => self.ask(),
            6..=10 => self.deliver()?,
            11..=12 => self.commit()?,
            13..=15 => self.answer(),
            16 => self.ask_again(),
            17 => self.lose(),
            18 => self.wake()?,
            _ => self.replace()?,
        }
        Ok(())
    }

    fn owner(&self) -> Result<&Owner, String> {
        self.owner.as_ref().ok_or_else(|| "nobody owns the pool".to_owned())
    }

    fn commit(&mut self) -> Result<(), String> {
        self.owner.as_mut().ok_or("nobody owns the pool")?.commit(&mut self.answers)
    }

    fn send(&mut self, client: usize, number: u64) {
        let term = self.owner.as_ref().map_or(0, |owner| owner.term);
        let message = self.clients[client].message(client, number, term);
        self.requests.extend(message);
    }

    fn ask(&mut self) {
        let own = self.random.below(CLIENTS as u64) as usize;
        let client = &mut self.clients[own];
        if client.waiting.len() >= WAITING_MAX {
            return;
        }
        let Some(operation) = client.operation(own, &mut self.random) else { return };
        client.last_number += 1;
        let number = client.last_number;
        client.waiting.insert(number, Waiting { operation, first_term: None });
        self.send(own, number);
    }

    /// A connection that broke: what waits is sent once more.
    fn ask_again(&mut self) {
        let own = self.random.below(CLIENTS as u64) as usize;
        let waiting: Vec<u64> = self.clients[own].waiting.keys().copied().collect();
        waiting.into_iter().for_each(|number| self.send(own, number));
    }

    fn lose(&mut self) {
        if let Some(which) = any(&mut self.random, self.requests.len()) {
            self.requests.swap_remove(which);
            self.seen.lost += 1;
        }
        if let Some(which) = any(&mut self.random, self.answers.len()) {
            self.answers.swap_remove(which);
            self.seen.lost += 1;
        }
    }

    /// Any request arrives.
    fn deliver(&mut self) -> Result<(), String> {
        let Some(which) = any(&mut self.random, self.requests.len()) else { return Ok(()) };
        let message = self.requests.swap_remove(which);
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        if message.term != owner.term {
            return Ok(());
        }
        owner.perform(&message, &mut self.answers, &mut self.seen)
    }

    /// Any answer arrives.
    fn answer(&mut self) {
        let Some(which) = any(&mut self.random, self.answers.len()) else { return };
        let Answer { client, number } = self.answers.swap_remove(which);
        if let Some(waiting) = self.clients[client].waiting.remove(&number) {
            self.seen.answered += 1;
            if let Operation::Append(line) = waiting.operation {
                self.clients[client].lines.push(line);
            }
        }
    }

    /// An owner that was replaced goes on with what it has, and whatever it is asked for.
    fn wake(&mut self) -> Result<(), String> {
        let Some(mut former) = self.former.take() else { return Ok(()) };
        let (mut answers, mut unseen) = (Vec::new(), Seen::default());
        if let Some(which) = any(&mut self.random, self.requests.len()) {
            let message = Message { term: former.term, ..self.requests[which].clone() };
            // Whatever its store says is no matter: only an answer counts.
            drop(former.perform(&message, &mut answers, &mut unseen));
        }
        let before = answers.len();
        if former.commit(&mut answers).is_ok() && answers.len() > before {
            return Err("an owner that was replaced answers what it was asked for".into());
        }
        Ok(())
    }

    /// Another owner takes the pool. The one before may have committed what nobody hears of, and dies or stands still.
    fn replace(&mut self) -> Result<(), String> {
        if self.random.chance(1, 2) {
            self.commit()?;
        }
        if self.random.chance(2, 3) {
            self.answers.clear();
        }
        self.former = self.owner.take();
        if self.random.chance(2, 3) {
            self.former = None;
            self.site.crash(&mut self.random);
        }
        self.owner = Some(self.site.open(&mut self.random)?);
        self.seen.owners += 1;
        // Nothing reaches one that was replaced, and its clients ask the next one.
        self.requests.clear();
        (0..CLIENTS).for_each(|own| {
            let waiting: Vec<u64> = self.clients[own].waiting.keys().copied().collect();
            waiting.into_iter().for_each(|number| self.send(own, number));
        });
        self.verify()
    }

    /// What was answered is there once, and what was not at most once.
    fn verify(&self) -> Result<(), String> {
        let all = self.owner()?.lines()?;
        for (own, client) in self.clients.iter().enumerate() {
            let waiting = client.waiting.values().filter_map(|waiting| match &waiting.operation {
                Operation::Append(line) => Some((line, false)),
                _ => None,
            });
            for (line, is_answered) in client.lines.iter().map(|line| (line, true)).chain(waiting) {
                let count = all.iter().filter(|found| *found == line).count();
                if count > 1 || (is_answered && count == 0) {
                    let text = String::from_utf8_lossy(line);
                    return Err(format!("client {own}: '{}' is there {count} times", text.trim_end()));
                }
            }
        }
        Ok(())
    }

    /// Everything is answered.
    fn end(&mut self) -> Result<(), String> {
        let mut rounds = 0;
        while self.clients.iter().any(|client| !client.waiting.is_empty()) {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err("a request is never answered".into());
            }
            match self.random.below(4) {
                0 => self.ask_again(),
                1 => self.deliver()?,
                2 => self.commit()?,
                _ => self.answer(),
            }
        }
        self.verify()?;
        let expected: usize = self.clients.iter().map(|client| client.lines.len()).sum();
        let found = self.owner()?.lines()?.len();
        if found == expected { Ok(()) } else { Err(format!("{found} lines are there, and {expected} were appended")) }
    }
}
