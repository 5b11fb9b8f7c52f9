//! A crowd: a thousand machines ask one owner at once, in virtual time, and it is replaced in the middle.
//!
//! Requests and answers travel, the owner carries out one request after the other, and one commit is on its way at a time; what comes
//! meanwhile shares the next one. Nothing waits in real time. The oracle is that of the area: each request takes effect once, though all that
//! is under way comes again to the next owner. Invariant: events are in the order of their times, and of their making where those are
//! equal. Read next: `clients.rs`, `docs/performance/cluster.md`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::site::{Owner, Site};
use super::{Answer, Client, Message, Operation, Seen, Waiting};
use crate::random::Random;

/// Virtual times. Those of the owner and the engine are what was measured of the real ones.
const ONE_WAY_US: u64 = 100;
const SERVICE_US: u64 = 130;
const COMMIT_US: u64 = 1_100;
/// An owner's silence until the next one opens the pool, and how long that takes.
const TAKEOVER_US: u64 = 5_500_000;
/// Requests of a machine under way.
const WAITING_MAX: usize = 4;

/// How many ask, and how often each.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub machines: usize,
    pub requests_each: u64,
}

/// What came of it, in virtual time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    pub answered: u64,
    /// Requests a second while there was an owner.
    pub rate: f64,
    /// From the owner's loss until each machine had an answer of the next one.
    pub all_served_ms: u64,
    /// Requests that the next owner was asked for again, and had found done.
    pub noted: u64,
    /// Notes of requests in the pool at the end.
    pub notes: usize,
}

enum Event {
    Arrive(Message),
    Answered(Answer),
    /// The commit on its way is in the log; of the owner of this term.
    Committed(u64),
    /// The next owner has opened the pool.
    Opened,
}

struct Crowd {
    size: Size,
    random: Random,
    site: Site,
    owner: Option<Owner>,
    clients: Vec<Client>,
    now_us: u64,
    made: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    by_number: HashMap<u64, Event>,
    /// When the owner has carried out all that has arrived.
    free_us: u64,
    /// Answers of the commit on its way, and whether there is one.
    committing: Option<Vec<Answer>>,
    has_uncommitted: bool,
    lost_us: Option<u64>,
    served_again: Vec<bool>,
    told: Told,
    seen: Seen,
}

/// Plays it; an error is what was found.
pub fn run(seed: u64, size: Size) -> Result<Told, String> {
    let mut random = Random::new(seed);
    let mut site = Site::new(&mut random)?;
    let owner = Some(site.open(&mut random)?);
    let mut crowd = Crowd {
        size,
        random,
        site,
        owner,
        clients: (0..size.machines).map(|_| Client::default()).collect(),
        now_us: 0,
        made: 0,
        events: BinaryHeap::new(),
        by_number: HashMap::new(),
        free_us: 0,
        committing: None,
        has_uncommitted: false,
        lost_us: None,
        served_again: vec![false; size.machines],
        told: Told::default(),
        seen: Seen::default(),
    };
    (0..size.machines).for_each(|own| crowd.ask(own));
    let all = size.machines as u64 * size.requests_each;
    while let Some(Reverse((at_us, number))) = crowd.events.pop() {
        assert!(at_us >= crowd.now_us, "time goes on");
        crowd.now_us = at_us;
        if let Some(event) = crowd.by_number.remove(&number) {
            crowd.happen(event).map_err(|error| format!("at {at_us} us: {error}"))?;
        }
        if crowd.lost_us.is_none() && crowd.told.answered >= all / 2 {
            crowd.lose_owner();
        }
    }
    crowd.end(all)
}

impl Crowd {
    fn at(&mut self, when_us: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((when_us, self.made)));
        self.by_number.insert(self.made, event);
    }

    fn travel_us(&mut self) -> u64 {
        ONE_WAY_US / 2 + self.random.below(ONE_WAY_US)
    }

    /// A machine asks for as much as it may have under way.
    fn ask(&mut self, own: usize) {
        while self.clients[own].waiting.len() < WAITING_MAX && self.clients[own].last_number < self.size.requests_each {
            let Some(operation) = self.clients[own].operation(own, &mut self.random) else { return };
            let client = &mut self.clients[own];
            client.last_number += 1;
            let number = client.last_number;
            client.waiting.insert(number, Waiting { operation, first_term: None });
            self.send(own, number);
        }
    }

    fn send(&mut self, own: usize, number: u64) {
        // While there is no owner it waits.
        let Some(term) = self.owner.as_ref().map(|owner| owner.term) else { return };
        if let Some(message) = self.clients[own].message(own, number, term) {
            let when_us = self.now_us + self.travel_us();
            self.at(when_us, Event::Arrive(message));
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive(message) => self.perform(&message),
            Event::Answered(answer) => {
                self.hear(answer);
                Ok(())
            }
            Event::Committed(term) if self.owner.as_ref().is_some_and(|owner| owner.term == term) => {
                let answers = self.committing.take().unwrap_or_default();
                self.answer(answers);
                if self.has_uncommitted { self.commit() } else { Ok(()) }
            }
            Event::Committed(_) => Ok(()),
            Event::Opened => self.take_over(),
        }
    }

    fn perform(&mut self, message: &Message) -> Result<(), String> {
        let Some(owner) = self.owner.as_mut().filter(|owner| owner.term == message.term) else { return Ok(()) };
        let mut answers = Vec::new();
        owner.perform(message, &mut answers, &mut self.seen)?;
        self.free_us = self.free_us.max(self.now_us) + SERVICE_US;
        self.has_uncommitted = true;
        // What the log has already is answered at once.
        self.answer(answers);
        if self.committing.is_none() { self.commit() } else { Ok(()) }
    }

    /// All that was carried out by now is committed together.
    fn commit(&mut self) -> Result<(), String> {
        let Some(owner) = self.owner.as_mut() else { return Ok(()) };
        let mut answers = Vec::new();
        owner.commit(&mut answers)?;
        let term = owner.term;
        (self.committing, self.has_uncommitted) = (Some(answers), false);
        let when_us = self.free_us.max(self.now_us) + COMMIT_US;
        self.at(when_us, Event::Committed(term));
        Ok(())
    }

    fn answer(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            let when_us = self.free_us.max(self.now_us) + self.travel_us();
            self.at(when_us, Event::Answered(answer));
        }
    }

    fn hear(&mut self, answer: Answer) {
        let Answer { client, number } = answer;
        let Some(waiting) = self.clients[client].waiting.remove(&number) else { return };
        self.told.answered += 1;
        if let Operation::Append(line) = waiting.operation {
            self.clients[client].lines.push(line);
        }
        if let Some(lost_us) = self.lost_us.filter(|_| self.owner.is_some())
            && !std::mem::replace(&mut self.served_again[client], true)
        {
            self.told.all_served_ms = (self.now_us - lost_us) / 1000;
        }
        self.ask(client);
    }

    /// The owner dies. What it was about to answer is in the log, and nobody hears of it.
    fn lose_owner(&mut self) {
        self.lost_us = Some(self.now_us);
        self.owner = None;
        self.committing = None;
        self.has_uncommitted = false;
        self.site.crash(&mut self.random);
        // What is on its way goes nowhere.
        self.events.clear();
        self.by_number.clear();
        self.at(self.now_us + TAKEOVER_US, Event::Opened);
    }

    fn take_over(&mut self) -> Result<(), String> {
        self.owner = Some(self.site.open(&mut self.random)?);
        self.free_us = self.now_us;
        for own in 0..self.clients.len() {
            let waiting: Vec<u64> = self.clients[own].waiting.keys().copied().collect();
            // One that has all its answers was not kept waiting.
            self.served_again[own] = waiting.is_empty();
            waiting.into_iter().for_each(|number| self.send(own, number));
        }
        Ok(())
    }

    fn end(mut self, all: u64) -> Result<Told, String> {
        if self.told.answered != all {
            return Err(format!("{} of {all} requests were answered", self.told.answered));
        }
        let owner = self.owner.as_ref().ok_or("nobody owns the pool")?;
        let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
        owner.lines()?.into_iter().for_each(|line| *counts.entry(line).or_default() += 1);
        for line in self.clients.iter().flat_map(|client| &client.lines) {
            let count = counts.remove(line).unwrap_or(0);
            if count != 1 {
                return Err(format!("'{}' is there {count} times", String::from_utf8_lossy(line).trim_end()));
            }
        }
        if let Some(line) = counts.keys().next() {
            return Err(format!("'{}' is there and nobody was told", String::from_utf8_lossy(line).trim_end()));
        }
        self.told.notes = owner.notes(self.size.machines)?;
        self.told.noted = self.seen.noted;
        let away_us = if self.lost_us.is_some() { TAKEOVER_US } else { 0 };
        self.told.rate = all as f64 / ((self.now_us - away_us) as f64 / 1e6);
        Ok(self.told)
    }
}
