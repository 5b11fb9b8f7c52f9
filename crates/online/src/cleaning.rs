//! How segments are chosen for cleaning, said for a pool or a class of its devices; and what cleaning costs.

use stere_control::cleaning::CleaningReport;
use stere_machine::error::{Result, refused};
use stere_pool::DeviceClass;
use stere_store::CleanerPolicy;

use crate::outcome::Outcome;
use crate::running::Running;

/// Says it; without a policy it is as usual again.
pub fn choose(running: &Running, class: Option<&str>, policy: Option<&str>) -> Result<Outcome> {
    let policy = match policy {
        None => None,
        Some(word) => match CleanerPolicy::from_word(word) {
            Some(policy) => Some(policy),
            None => return refused(format!("'{word}' is no way to choose segments; use greedy, cost-benefit or age")),
        },
    };
    let cleaning = running.store.cleaning();
    let mut choice = cleaning.choice();
    let what = match class {
        None => {
            choice.usual = policy;
            format!("segments of {}", running.pool)
        }
        Some(word) => {
            let known = DeviceClass::from_word(word).filter(|class| *class != DeviceClass::Unknown);
            let Some(place) = known.and_then(|class| choice.of_class.get_mut(usize::from(class.code()))) else {
                return refused(format!("'{word}' is no class of devices; use ssd or hdd"));
            };
            *place = policy;
            format!("segments of {} on devices of class {word}", running.pool)
        }
    };
    cleaning.set_choice(choice)?;
    let how = policy.map_or("as usual", CleanerPolicy::word);
    Ok(Outcome::Done(format!("{what} are chosen for cleaning {how} from now on")))
}

/// What cleaning does, for `stere status`.
pub fn report(running: &Running) -> CleaningReport {
    let (cleaning, figures) = (running.store.cleaning(), running.store.cleaning().figures());
    let mut classes: Vec<u8> = running.store.device_entries().iter().map(|entry| entry.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let policies = classes.into_iter().map(|class| {
        let word = DeviceClass::from_code(class).word().to_owned();
        (word, cleaning.policy_of(class).word().to_owned())
    });
    CleaningReport {
        policies: policies.collect(),
        written_bytes: figures.written_bytes,
        moved_bytes: figures.moved_bytes,
        emptied_segments: figures.emptied_segments,
        segments_new: figures.segments_new.to_vec(),
        segments_survived: figures.segments_survived.to_vec(),
    }
}
