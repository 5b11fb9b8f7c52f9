//! P-139: who may recall, and how much at a time.
//!
//! Turns are those of a mount (`stere_fuse::Turns`), without its threads: who asks, whose read ends and who is killed is drawn. The rules are
//! written down here once more: no limit is passed, those who need the same come in order, nobody waits with nothing in the way but somebody who
//! was passed by as often as was promised, and nobody is passed by much more often.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_fuse::{Claim, Come, RecallLimits, Turn, Turns};
use stere_naming::{Caller, Io};
use stere_store::Call;

use crate::history::{History, Stop};
use crate::observe::{self, Trouble};
use crate::operation::Path;
use crate::pool::caller;
use crate::random::Random;
use crate::tertiary::attach_volumes;
use crate::{execute::names, tiers};

/// Who was passed by so often keeps free what he needs.
const PASSED: usize = 64;
const USERS: [u32; 4] = [0, 1000, 1001, 1002];
/// What happens, in histories in which files are read, and in those in which somebody would be passed by for ever.
const EVENTS: u64 = 40;
const ROUNDS: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waits,
    HasTurn,
    Over,
}

/// One who asked.
struct Asker {
    claim: Claim,
    inode: Option<u64>,
    is_gone: Arc<AtomicBool>,
    place: Place,
    passed: usize,
}

/// What came of waiting, in order.
type Came = Arc<Mutex<Vec<(usize, Option<Turn>)>>>;

struct Queue {
    limits: RecallLimits,
    turns: Arc<Turns>,
    askers: Vec<Asker>,
    came: Came,
    held: BTreeMap<usize, Turn>,
}

/// What a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needed {
    Of(u32),
    From(u16),
}

impl Queue {
    fn new(limits: RecallLimits) -> Queue {
        let (turns, came) = (Turns::unwatched(limits), Came::default());
        Queue { limits, turns, askers: Vec::new(), came, held: BTreeMap::new() }
    }

    fn needs(&self, claim: Claim) -> Vec<(Needed, usize)> {
        let user = self.limits.user.filter(|_| claim.user != 0).map(|limit| (Needed::Of(claim.user), limit));
        let tier = self.limits.tier.map(|limit| (Needed::From(claim.volumes), limit));
        user.into_iter().chain(tier).collect()
    }

    fn under_way(&self, needed: Needed) -> usize {
        let have = self
            .held
            .keys()
            .filter(|number| self.needs(self.askers[**number].claim).iter().any(|(other, _)| *other == needed));
        have.count()
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, &Asker)> {
        self.askers.iter().enumerate().filter(|(_, asker)| asker.place == Place::Waits)
    }

    fn ask(&mut self, claim: Claim, inode: Option<u64>) -> Result<(), String> {
        let (number, is_gone, came) = (self.askers.len(), Arc::new(AtomicBool::new(false)), self.came.clone());
        self.askers.push(Asker { claim, inode, is_gone: is_gone.clone(), place: Place::Waits, passed: 0 });
        let begin = move |come| {
            let turn = match come {
                Come::Turn(turn) => Some(turn),
                Come::Gone => None,
            };
            came.lock().push((number, turn));
        };
        self.turns.ask(claim, begin, move || is_gone.load(Ordering::Acquire));
        self.judge()
    }

    fn end(&mut self, number: usize) -> Result<(), String> {
        self.askers[number].place = Place::Over;
        drop(self.held.remove(&number));
        self.judge()
    }

    fn kill(&mut self, number: usize) -> Result<(), String> {
        self.askers[number].is_gone.store(true, Ordering::Release);
        self.turns.look();
        self.judge()?;
        match self.askers[number].place {
            Place::Over => Ok(()),
            place => Err(format!("{number} was killed, and is at {place:?}")),
        }
    }

    /// Takes notice of those who came, and compares all with the rules.
    fn judge(&mut self) -> Result<(), String> {
        let came = std::mem::take(&mut *self.came.lock());
        for (number, turn) in came {
            let is_killed = self.askers[number].is_gone.load(Ordering::Acquire);
            if self.askers[number].place != Place::Waits || turn.is_none() && !is_killed {
                return Err(format!("{number} came at the wrong time"));
            }
            let Some(turn) = turn else {
                self.askers[number].place = Place::Over;
                continue;
            };
            let (claim, needs) = (self.askers[number].claim, self.needs(self.askers[number].claim));
            let is_passed = |(other, asker): &(usize, &Asker)| {
                let theirs = self.needs(asker.claim);
                *other < number && theirs.iter().any(|(one, _)| needs.iter().any(|(needed, _)| needed == one))
            };
            let passed: Vec<usize> = self.waiting().filter(is_passed).map(|(other, _)| other).collect();
            for other in passed {
                let asker = &mut self.askers[other];
                asker.passed += 1;
                let most = PASSED + self.limits.user.unwrap_or(0) + self.limits.tier.unwrap_or(0);
                if asker.claim == claim || asker.passed > most {
                    return Err(format!(
                        "{number} ({claim:?}) passes {other} ({:?}): {} times",
                        asker.claim, asker.passed
                    ));
                }
            }
            self.askers[number].place = Place::HasTurn;
            self.held.insert(number, turn);
            for (needed, limit) in needs {
                let count = self.under_way(needed);
                if count > limit {
                    return Err(format!("{count} reads of {needed:?} are under way, and {limit} may be"));
                }
            }
        }
        self.nobody_waits_in_vain()
    }

    fn nobody_waits_in_vain(&self) -> Result<(), String> {
        let mut kept = BTreeSet::new();
        for (number, asker) in self.waiting() {
            let needs = self.needs(asker.claim);
            if needs.iter().all(|(needed, limit)| self.under_way(*needed) < *limit && !kept.contains(needed)) {
                return Err(format!("{number} ({:?}) waits, and nothing is in its way", asker.claim));
            }
            if asker.passed >= PASSED {
                kept.extend(needs.into_iter().map(|(needed, _)| needed));
            }
        }
        let counts = (self.held.len(), self.waiting().count());
        match self.turns.counts() == counts {
            true => Ok(()),
            false => Err(format!("{:?} have turns and wait, and {counts:?} should", self.turns.counts())),
        }
    }
}

pub(crate) fn prove_turns(history: &mut History, seed: u64) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    if random.chance(1, 2) {
        return pass_by(&mut random).map_err(Stop::Failure);
    }
    tiers::release_all(history)?;
    let lying = tiers::lying(history)?;
    let mut files = Vec::new();
    for (inode, segments) in lying.files {
        let size = history.model.content(inode).size();
        let volumes = history.mounted().files.recalls().volumes_of_released(Io::BLOCKING, inode, 0, size);
        let volumes = history.must("looking for volumes", volumes)?;
        let table = history.mounted().store.segments();
        let released = segments.iter().filter_map(|id| table.get(*id)).filter(|one| one.is_released());
        let right = released.fold(0, |set, segment| set | segment.tertiary().there);
        if volumes != right {
            return Err(Stop::Failure(format!("inode {inode} needs volumes {right:b}, not {volumes:b}")));
        }
        files.extend((volumes != 0).then_some((inode, volumes)));
    }
    if files.is_empty() {
        return Ok(());
    }
    let user = (random.chance(2, 3)).then(|| random.between(1, 3) as usize);
    let tier = (user.is_none() || random.chance(1, 2)).then(|| random.between(1, 4) as usize);
    take_turns(history, &mut Queue::new(RecallLimits { user, tier }), &files, &mut random)
}

fn take_turns(history: &mut History, queue: &mut Queue, files: &[(u64, u16)], random: &mut Random) -> Result<(), Stop> {
    for _ in 0..EVENTS {
        let waiting: Vec<usize> = queue.waiting().map(|(number, _)| number).collect();
        match random.below(6) {
            0 if !waiting.is_empty() => queue.kill(*random.pick(&waiting)).map_err(Stop::Failure)?,
            1 | 2 if !queue.held.is_empty() => end_turn(history, queue, random)?,
            _ => {
                let (inode, volumes) = *random.pick(files);
                let claim = Claim { user: *random.pick(&USERS), volumes };
                queue.ask(claim, Some(inode)).map_err(Stop::Failure)?;
            }
        }
    }
    while !queue.held.is_empty() {
        end_turn(history, queue, random)?;
    }
    match queue.waiting().next() {
        None => Ok(()),
        Some((number, _)) => Err(Stop::Failure(format!("{number} waits for its turn, and nobody has one"))),
    }
}

/// Somebody whose turn it is reads to the end.
fn end_turn(history: &mut History, queue: &mut Queue, random: &mut Random) -> Result<(), Stop> {
    history.machine.count_anew();
    let held: Vec<usize> = queue.held.keys().copied().collect();
    let number = *random.pick(&held);
    if let Some(inode) = queue.askers[number].inode {
        tiers::read_right(history, inode)?;
    }
    history.summary.tier.turns_taken += 1;
    queue.end(number).map_err(Stop::Failure)
}

/// A program that is refused recalls gets what is on devices, else EPERM at once, and no volume is asked.
pub(crate) fn read_refused(history: &mut History, path: Path) -> Result<(), Stop> {
    let Some(inode) = names::plain_inode(history, path)?.filter(|inode| history.model.nodes[inode].content().is_some())
    else {
        return Ok(());
    };
    attach_volumes(history.mounted(), &history.machine);
    let store = history.mounted().store.clone();
    let mut is_released = false;
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), inode, &mut |met| {
        is_released |= met.file.released_bytes > 0;
        ControlFlow::Continue(())
    });
    history.must("looking for what is released", walked)?;
    let before = store.tier.recalls.tertiary_counts().fetches;
    let call = Call::default().refusing_recalls(|| true);
    let refused = Caller { io: Io::BLOCKING.of(&call), ..caller(&history.machine) };
    let outcome = observe::read_file(&history.mounted().files, &refused, inode);
    let fetches = store.tier.recalls.tertiary_counts().fetches - before;
    if history.machine.is_off() {
        return Err(Stop::Power);
    }
    if fetches > 0 {
        let text = format!("inode {inode}: volumes are asked for a program that is refused recalls");
        return Err(Stop::Failure(text));
    }
    match outcome {
        Ok(seen) => match history.model.content(inode).difference(&seen) {
            Some(difference) => Err(Stop::Failure(format!("{}: {difference}", history.model.path_of(inode)))),
            None => Ok(()),
        },
        Err(Trouble::Call { errno: libc::EPERM, .. }) if is_released || !history.pool.is_calm() => {
            history.summary.tier.reads_put_off += 1;
            Ok(())
        }
        Err(trouble) => Err(history.trouble(trouble)),
    }
}

/// Two streams of reads, of which one or the other always has what a third read needs.
fn pass_by(random: &mut Random) -> Result<(), String> {
    let mut queue = Queue::new(RecallLimits { user: Some(1), tier: Some(1) });
    let streams = [Claim { user: 1000, volumes: 1 }, Claim { user: 1001, volumes: 2 }];
    for claim in streams {
        queue.ask(claim, None)?;
    }
    let third = queue.askers.len();
    queue.ask(Claim { user: 1000, volumes: 2 }, None)?;
    for _ in 0..ROUNDS {
        if queue.askers[third].place != Place::Waits {
            return Ok(());
        }
        // The next one of a stream is there before the last one ends.
        let held: Vec<usize> = queue.held.keys().copied().collect();
        let number = *random.pick(&held);
        queue.ask(queue.askers[number].claim, None)?;
        queue.end(number)?;
    }
    Err("a read that needs two turns is passed by for ever".into())
}
