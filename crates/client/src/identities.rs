//! Which user and group of this machine is which of the pool: numbers are translated in what the kernel asks and in what it is answered.
//!
//! The rules are those of the kernel's idmapped mounts: what has no counterpart is shown as nobody, and is never stored (making a file gives
//! EOVERFLOW, naming such an owner EINVAL). Invariants: a map is one to one, so what is read and written again is the same; it does not
//! change within one message. Read next: `identities/messages.rs` (where the numbers are).

mod messages;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fuse_wire::Request;
use fuse_wire::abi::init;

use crate::link::{Link, Shared};
use crate::state::Asker;

#[cfg(test)]
mod tests;

/// What ids without a counterpart are shown as; under a map it is never an owner that somebody names.
pub(crate) const NOBODY: u32 = 65_534;
/// "As it is", or an id that the kernel itself could not translate.
const NONE: u32 = u32::MAX;
/// Root of this machine is root of the pool, whatever is said.
const ROOT: u32 = 0;

/// Which ids of this machine are which of the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Ids {
    /// The same numbers mean the same.
    #[default]
    Same,
    /// Those of the same name are the same; the others have no counterpart. Names are looked up by whoever mounts.
    Names,
    /// These, first here and then in the pool. The others are the same, unless their number is one of these on the other side.
    Pairs(Vec<(u32, u32)>),
}

/// Why pairs are no map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error("'{0}' is not HERE:POOL, two numbers such as 1000:2000")]
    Form(String),
    #[error("{0} stands for all that have no counterpart, and cannot be mapped")]
    Reserved(u32),
    #[error("root is root of the pool on every machine, and cannot be mapped")]
    Root,
    #[error("{0} is mapped twice; each id has one counterpart")]
    Twice(u32),
}

impl Ids {
    /// Adds pairs as they are written: `1000:2000+1001:2001`.
    ///
    /// # Errors
    /// Where that is no map; nothing is added then.
    pub fn add_pairs(&mut self, text: &str) -> Result<(), PairError> {
        let mut pairs = match self {
            Ids::Pairs(pairs) => pairs.clone(),
            _ => Vec::new(),
        };
        for pair in text.split('+') {
            pairs.push(parse_pair(pair)?);
        }
        let map = Map::of_pairs(&pairs, true)?;
        assert!(map.to_pool.len() == pairs.len(), "each pair counts");
        *self = Ids::Pairs(pairs);
        Ok(())
    }
}

fn parse_pair(pair: &str) -> Result<(u32, u32), PairError> {
    let form = || PairError::Form(pair.to_owned());
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u32>().map_err(|_| form()),
        false => Err(form()),
    };
    let (here, pool) = pair.split_once(':').ok_or_else(form)?;
    Ok((number(here)?, number(pool)?))
}

/// For each of some ids, its number here and in the pool.
type Numbers<'a> = &'a [(u32, u32)];

/// One map, of users or of groups.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Map {
    to_pool: HashMap<u32, u32>,
    to_here: HashMap<u32, u32>,
    /// Ids that are not in it are the same on both sides, where neither is in it.
    others_are_same: bool,
}

impl fmt::Debug for Map {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Map").field("pairs", &self.to_pool.len()).finish_non_exhaustive()
    }
}

impl Map {
    fn of_pairs(pairs: &[(u32, u32)], others_are_same: bool) -> Result<Map, PairError> {
        let mut map = Map { to_pool: HashMap::new(), to_here: HashMap::new(), others_are_same };
        for &(here, pool) in pairs {
            if let Some(id) = [here, pool].into_iter().find(|id| matches!(*id, NOBODY | NONE)) {
                return Err(PairError::Reserved(id));
            }
            if here == ROOT || pool == ROOT {
                return Err(PairError::Root);
            }
            if map.to_pool.insert(here, pool).is_some() {
                return Err(PairError::Twice(here));
            }
            if map.to_here.insert(pool, here).is_some() {
                return Err(PairError::Twice(pool));
            }
        }
        assert!(map.to_pool.len() == map.to_here.len(), "it is one to one");
        Ok(map)
    }

    /// Of names that both sides know: the first of those that would make it other than one to one counts.
    fn of_names(pairs: &[(u32, u32)]) -> Map {
        let mut map = Map { to_pool: HashMap::new(), to_here: HashMap::new(), others_are_same: false };
        for &(here, pool) in pairs {
            let is_usable = ![here, pool].iter().any(|id| matches!(*id, ROOT | NOBODY | NONE));
            if is_usable && !map.to_pool.contains_key(&here) && !map.to_here.contains_key(&pool) {
                map.to_pool.insert(here, pool);
                map.to_here.insert(pool, here);
            }
        }
        assert!(map.to_pool.len() == map.to_here.len(), "it is one to one");
        map
    }

    fn other(&self, id: u32, there: &HashMap<u32, u32>) -> Option<u32> {
        let is_same = matches!(id, ROOT | NOBODY | NONE) || (self.others_are_same && !there.contains_key(&id));
        is_same.then_some(id)
    }

    /// Which of the pool an id of this machine is.
    fn to_pool(&self, id: u32) -> Option<u32> {
        self.to_pool.get(&id).copied().or_else(|| self.other(id, &self.to_here))
    }

    /// The same for one that somebody names as an owner, or in an ACL: nobody is no answer.
    fn stated_to_pool(&self, id: u32) -> Option<u32> {
        self.to_pool(id).filter(|_| id != NOBODY)
    }

    /// Which of this machine an id of the pool is.
    fn to_here(&self, id: u32) -> u32 {
        self.to_here.get(&id).copied().or_else(|| self.other(id, &self.to_pool)).unwrap_or(NOBODY)
    }
}

/// The maps of users and groups; none where the numbers are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identities {
    users: Option<Map>,
    groups: Option<Map>,
}

impl Identities {
    /// What can be said before names were looked up; `None` where they have to be.
    pub fn of_options(users: &Ids, groups: &Ids) -> Result<Option<Identities>, PairError> {
        let map = |ids: &Ids| match ids {
            Ids::Same | Ids::Names => Ok(None),
            Ids::Pairs(pairs) => Map::of_pairs(pairs, true).map(Some),
        };
        let identities = Identities { users: map(users)?, groups: map(groups)? };
        let is_known = *users != Ids::Names && *groups != Ids::Names;
        Ok(is_known.then_some(identities))
    }

    /// With what was found out about names: for each that both sides know, its number here and in the pool.
    pub fn with_names(
        (users, groups): (&Ids, &Ids),
        (user_names, group_names): (Numbers<'_>, Numbers<'_>),
    ) -> Result<Identities, PairError> {
        let map = |ids: &Ids, names: Numbers<'_>| match ids {
            Ids::Same => Ok(None),
            Ids::Names => Ok(Some(Map::of_names(names))),
            Ids::Pairs(pairs) => Map::of_pairs(pairs, true).map(Some),
        };
        Ok(Identities { users: map(users, user_names)?, groups: map(groups, group_names)? })
    }

    fn is_same(&self) -> bool {
        self.users.is_none() && self.groups.is_none()
    }

    /// Which user of the pool one of this machine is; nobody where there is none.
    pub fn user(&self, id: u32) -> u32 {
        self.users.as_ref().map_or(Some(id), |map| map.to_pool(id)).unwrap_or(NOBODY)
    }

    /// The same for a group.
    pub fn group(&self, id: u32) -> u32 {
        self.groups.as_ref().map_or(Some(id), |map| map.to_pool(id)).unwrap_or(NOBODY)
    }
}

impl Link {
    /// Says for each name that both sides know its number here and in the pool, where names count.
    pub fn set_names(&self, users: &[(u32, u32)], groups: &[(u32, u32)]) {
        let options = &self.shared.options;
        match Identities::with_names((&options.users, &options.groups), (users, groups)) {
            Ok(identities) => self.shared.set_identities(identities),
            Err(error) => tracing::error!(%error, "users cannot be mapped"),
        }
    }

    /// The user of the pool, and its groups, that these of this machine are; nobody where there is none.
    #[must_use]
    pub fn in_pool(&self, user: u32, groups: &[u32]) -> (u32, Vec<u32>) {
        match self.shared.identities() {
            Some(identities) => (identities.user(user), groups.iter().map(|group| identities.group(*group)).collect()),
            None => (NOBODY, vec![NOBODY; groups.len()]),
        }
    }
}

impl Shared {
    pub fn identities(&self) -> Option<Arc<Identities>> {
        self.identities.lock().clone()
    }

    fn set_identities(&self, identities: Identities) {
        let mut known = self.identities.lock();
        if known.as_deref() != Some(&identities) {
            tracing::info!(?identities, "users and groups of this machine are mapped to those of the pool");
            *known = Some(Arc::new(identities));
        }
    }

    pub fn translate_request(&self, message: &mut [u8]) -> Result<(), i32> {
        let is_extended = self.kernel.get().is_some_and(|(_, flags)| flags & init::SETXATTR_EXT != 0);
        self.identities().map_or(Ok(()), |identities| identities.translate_request(message, is_extended))
    }

    pub fn translate_answer(&self, request: &Request, answer: &mut [u8]) {
        if let Some(identities) = self.identities().filter(|identities| !identities.is_same()) {
            identities.translate_answer(&request.message(), answer);
        }
    }

    /// Answers a request that cannot be said to an owner.
    pub fn answer_here(&self, number: u64, errno: i32) {
        let waiting = self.state.lock().waiting.remove(&number);
        if let Some(Asker::Kernel(request)) = waiting.map(|waiting| waiting.asker) {
            request.reply_error(errno);
        }
    }
}
