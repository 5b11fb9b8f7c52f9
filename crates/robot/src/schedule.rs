//! Which of the requests that wait is served next, by which drive. No state: the library tells what is waiting and what is where.
//!
//! A cartridge that is in a drive is read in the order of its files, from where the tape stands onwards and then from its beginning;
//! only then another one is fetched, that of the request which waits for longest. Who was passed over too often comes first. No
//! cartridge is ever wanted in two drives.

/// Passed over so often, a request comes first.
const PATIENCE: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// In the order of arrival.
    pub ticket: u64,
    pub cartridge: String,
    pub file: u32,
    /// How many were served since it came.
    pub passed: u64,
}

/// A drive as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bay {
    pub loaded: Option<String>,
    /// Where its tape stands, if that is known.
    pub file: u32,
    pub is_free: bool,
}

/// The drive and the request, by their places in the lists.
pub fn choose(bays: &[Bay], requests: &[Request]) -> Option<(usize, usize)> {
    let bay_of = |cartridge: &str| bays.iter().position(|bay| bay.loaded.as_deref() == Some(cartridge));
    let is_wanted = |cartridge: &str| requests.iter().any(|request| request.cartridge == cartridge);
    let oldest_of = |is_one: &dyn Fn(&Request) -> bool| {
        let those = requests.iter().enumerate().filter(|(_, request)| is_one(request));
        those.min_by_key(|(_, request)| request.ticket)
    };
    // Empty drives first, then those whose cartridges nobody wants, then any.
    let bay_for_another = |must: bool| {
        let cost = |bay: &Bay| match &bay.loaded {
            None => 0,
            Some(cartridge) if !is_wanted(cartridge) => 1,
            Some(_) => 2,
        };
        let free = bays.iter().enumerate().filter(|(_, bay)| bay.is_free && (must || cost(bay) < 2));
        free.min_by_key(|(_, bay)| cost(bay)).map(|(at, _)| at)
    };
    if let Some((at, request)) = oldest_of(&|request| request.passed >= PATIENCE) {
        match bay_of(&request.cartridge) {
            Some(bay) if bays[bay].is_free => return Some((bay, at)),
            Some(_) => {}
            None => {
                if let Some(bay) = bay_for_another(true) {
                    return Some((bay, at));
                }
            }
        }
    }
    for (bay_at, bay) in bays.iter().enumerate().filter(|(_, bay)| bay.is_free) {
        let here = requests.iter().enumerate().filter(|(_, request)| bay.loaded.as_deref() == Some(&request.cartridge));
        // Onwards first; what lies behind is for the next time round.
        if let Some((at, _)) = here.min_by_key(|(_, request)| (request.file < bay.file, request.file, request.ticket)) {
            return Some((bay_at, at));
        }
    }
    let (_, oldest) = oldest_of(&|request| bay_of(&request.cartridge).is_none())?;
    let same = requests.iter().enumerate().filter(|(_, request)| request.cartridge == oldest.cartridge);
    let (at, _) = same.min_by_key(|(_, request)| (request.file, request.ticket))?;
    bay_for_another(false).map(|bay| (bay, at))
}

#[cfg(test)]
mod tests;
