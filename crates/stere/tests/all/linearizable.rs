//! Histories of names and locks, called on several machines at once, are linearizable (P-274): with the real binary, each machine and node a
//! host of a network, undisturbed and while an owner dies, a client is cut off or a node is away.
//!
//! Calls are made in rounds of a few, by a thread on each machine and one more, on so few names that they meet; then there is quiet, each
//! machine tells what is there, and an existing checker searches an order that explains every answer.
//! Needs root, /dev/fuse and iproute2. `STERE_TEST_ROUNDS` asks for so many times the work. Read next: `linearizable/model.rs`.

mod calls;
mod history;
mod model;

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::calls::Caller;
use self::history::{Call, Verdict, check};
use self::model::{FILES, FOLDERS, Op, Tree};
use crate::network::Link;
use crate::node_servers::Kind;
use crate::site::{Links, Site, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::until;

const NODES: usize = 3;
const MACHINES: usize = 3;
/// A thread on each machine, and another one on the client.
const THREADS: usize = MACHINES + 1;
const CALLS_OF_A_THREAD: usize = 3;
/// Between calls of a round in which something is to happen.
const PAUSE_MAX: Duration = Duration::from_millis(30);
/// As long as a call waits at least while nobody answers.
const WAITED_MIN: Duration = Duration::from_secs(1);
/// A kernel believes names of directories for a second; what a busy machine adds.
const FOLDERS_BELIEVED: Duration = Duration::from_secs(4);
/// Less than the ten seconds after which a machine that is silent loses its locks.
const CUT_FOR: Duration = Duration::from_millis(6500);

fn times() -> u32 {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// One campaign at a time: a program that one of them begins closes the files that another has locked, and waits for its owner then.
static TURN: Mutex<()> = Mutex::new(());

/// Two machines that may own the pool and a client, and what was found on them.
struct Campaign {
    /// Dropped first: a program that is begun closes what they have locked, and would wait for an owner that the site has ended.
    callers: Vec<Caller>,
    site: Site,
    tree: Tree,
    /// Directories that lost a name, and when that was found.
    lost_folders: Vec<(Instant, usize, usize)>,
    rounds: usize,
    calls: usize,
    lenient: usize,
    longest: Duration,
    /// Dropped last.
    _turn: MutexGuard<'static, ()>,
}

impl Campaign {
    fn new(test: &str) -> Option<Campaign> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let links = Links { nodes: &[Link::Fast; NODES], machines: &[Link::Fast; MACHINES], ..Links::default() };
        let site = Site::on_network(test, Kind::Stere, &links)?;
        let [first, second, client] = &site.machines[..] else { panic!("three machines") };
        first.ok("mount lab mount --standby");
        until("an owner", || owns(first));
        second.ok("mount lab mount --standby");
        client.ok("mount lab mount -o nostandby");
        let anchors = calls::make_anchors(&client.mountpoint());
        let seed = calls::any_seed();
        println!("seed {seed}");
        let caller = |thread: usize| Caller::new(&site.machines[thread % MACHINES].mountpoint(), thread, seed);
        let callers = (0..THREADS).map(caller).collect();
        let (tree, lost_folders) = (Tree::new(anchors), Vec::new());
        Some(Campaign {
            callers,
            site,
            tree,
            lost_folders,
            rounds: 0,
            calls: 0,
            lenient: 0,
            longest: Duration::ZERO,
            _turn: turn,
        })
    }

    fn owner(&self) -> Option<usize> {
        (0..2).find(|number| owns(&self.site.machines[*number]))
    }

    /// Calls of all threads, and what is there afterwards.
    fn round(&mut self) {
        self.round_with(Duration::ZERO, |_| {});
    }

    /// The same with time between the calls, in which something happens to the site.
    fn round_disturbed(&mut self, disturb: impl FnOnce(&mut Site)) {
        self.round_with(PAUSE_MAX, |site| {
            std::thread::sleep(calls::any_time_below(PAUSE_MAX));
            disturb(site);
        });
    }

    fn round_with(&mut self, pause_max: Duration, disturb: impl FnOnce(&mut Site)) {
        let barrier = Barrier::new(THREADS + 1);
        let (site, callers) = (&mut self.site, &mut self.callers);
        let mut calls: Vec<Call> = std::thread::scope(|scope| {
            let one = |caller| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    Caller::calls(caller, CALLS_OF_A_THREAD, pause_max)
                })
            };
            let threads: Vec<_> = callers.iter_mut().map(one).collect();
            barrier.wait();
            disturb(site);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<Call>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().flat_map(join).collect()
        });
        self.longest = calls.iter().map(|call| call.returned - call.called).fold(self.longest, Duration::max);
        for caller in &mut self.callers[..MACHINES] {
            calls.extend((0..FILES).map(|name| caller.call(Op::Links(name))));
            calls.extend((0..FOLDERS).map(|name| caller.call(Op::ListFolder(name))));
        }
        self.judge(&calls);
    }

    fn judge(&mut self, calls: &[Call]) {
        self.tree.forget_earlier();
        self.lost_folders.retain(|(lost, ..)| lost.elapsed() < FOLDERS_BELIEVED);
        for (_, name, folder) in &self.lost_folders {
            self.tree.earlier_folders[*name].push(*folder);
        }
        let known: Vec<usize> = self.tree.earlier_folders.iter().map(Vec::len).collect();
        let (tree, verdict) =
            check(&self.tree, calls).unwrap_or_else(|account| panic!("round {}: {account}", self.rounds));
        for (name, known) in known.into_iter().enumerate() {
            let lost = tree.earlier_folders[name][known..].iter().map(|folder| (Instant::now(), name, *folder));
            self.lost_folders.extend(lost);
        }
        self.tree = tree;
        self.rounds += 1;
        self.calls += calls.len();
        self.lenient += usize::from(verdict == Verdict::Lenient);
    }

    fn rounds_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.round();
        }
    }

    fn end(self, what: &str) {
        println!(
            "{what}: {} calls in {} rounds are linearizable, {} rounds with what kernels put together; the longest call {:?}",
            self.calls, self.rounds, self.lenient, self.longest
        );
        assert!(self.lenient * 4 < self.rounds, "most rounds are linearizable strictly");
        let Campaign { callers, site, .. } = self;
        // Their files are open.
        drop(callers);
        site.close();
    }
}

fn is_healthy(machine: &World) -> bool {
    machine.run("status lab").code == 0
}

#[test]
fn names_and_locks_of_three_machines_are_linearizable() {
    let Some(mut campaign) = Campaign::new("names_and_locks_of_three_machines_are_linearizable") else { return };
    campaign.rounds_for(Duration::from_secs(8) * times());
    assert!(campaign.rounds > 50, "{} rounds", campaign.rounds);
    campaign.end("undisturbed");
}

#[test]
fn they_are_when_the_owner_is_killed() {
    let Some(mut campaign) = Campaign::new("they_are_when_the_owner_is_killed") else { return };
    for _ in 0..times() {
        campaign.rounds_for(Duration::from_secs(1));
        until("an owner", || campaign.owner().is_some());
        let owner = campaign.owner().unwrap();
        let process = owner_process(&campaign.site.machines[owner]).unwrap();
        campaign.round_disturbed(|_| signal(process, libc::SIGKILL));
        campaign.rounds_for(Duration::from_secs(1));
    }
    assert!(campaign.longest > WAITED_MIN, "a call waits for the next owner: {:?}", campaign.longest);
    campaign.end("owners that were killed");
}

#[test]
fn they_are_when_a_client_is_cut_off_for_a_while() {
    let Some(mut campaign) = Campaign::new("they_are_when_a_client_is_cut_off_for_a_while") else { return };
    for _ in 0..times() {
        campaign.rounds_for(Duration::from_secs(1));
        campaign.longest = Duration::ZERO;
        // Until a call was under way, or began, while the cable was cut.
        while campaign.longest < WAITED_MIN {
            campaign.round_disturbed(|site| {
                let client = site.host_of(2);
                site.network().cut(client);
                std::thread::sleep(CUT_FOR);
                site.network().mend(client);
            });
        }
        campaign.rounds_for(Duration::from_secs(1));
    }
    campaign.end("a client that was cut off");
}

#[test]
fn they_are_when_a_node_is_away() {
    let Some(mut campaign) = Campaign::new("they_are_when_a_node_is_away") else { return };
    for number in 0..times() as usize {
        let node = number % NODES;
        campaign.rounds_for(Duration::from_secs(1));
        campaign.round_disturbed(|site| site.network().cut(node));
        campaign.rounds_for(Duration::from_secs(2));
        campaign.site.network().mend(node);
        campaign.rounds_for(Duration::from_secs(1));
        until("a healthy pool", || campaign.site.machines[..2].iter().any(is_healthy));
    }
    campaign.end("a node that was away");
}
