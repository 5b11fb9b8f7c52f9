//! Changes of the policy by which archived segments are released.

use stere_naming::{FileSystem, Io};
use stere_store::{ReleaseOrder, TierMarks};

use stere_control::tier::policy::Change;
use stere_machine::clock;
use stere_machine::error::{Result, refused};
use stere_online::running::Running;

/// Makes it so.
pub fn apply(filesystem: &FileSystem, running: &Running, change: &Change) -> Result<()> {
    if *change == Change::default() {
        return Ok(());
    }
    let store = &running.store;
    let (marks, mut policy) = (store.tier.media.tier_marks(Io::BLOCKING)?, store.tier.heat.tier_policy(Io::BLOCKING)?);
    let Some(marks) = TierMarks::new(change.high.unwrap_or(marks.high), change.low.unwrap_or(marks.low)) else {
        return refused("the marks are percent, 1 <= low < high <= 100");
    };
    policy.order = change.order.as_deref().and_then(ReleaseOrder::from_word).unwrap_or(policy.order);
    policy.exponent_hundredths = change.exponent_hundredths.unwrap_or(policy.exponent_hundredths);
    policy.cache_bytes = change.cache_bytes.unwrap_or(policy.cache_bytes);
    filesystem.command(&clock::own_caller(Io::BLOCKING), || {
        if change.high.is_some() || change.low.is_some() {
            store.tier.media.set_tier_marks(marks)?;
        }
        Ok(store.tier.heat.set_tier_policy(policy)?)
    })?;
    running.tertiary.wake();
    Ok(())
}
