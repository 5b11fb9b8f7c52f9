//! What decides where data and metadata stay, put together: residency policy, units, eviction, metadata offload.
//!
//! Read next: `residency_policy`, `room` (eviction), `cold` (metadata offload).

use std::sync::Arc;

use stere_namespace::error::Error;
use stere_namespace::namespace::Namespace;

use crate::eviction::Eviction;
use crate::offload::Offload;
use crate::quiescence::Quiescence;
use crate::residency_policy::ResidencyPolicy;
use crate::units::Units;

/// What stays on devices, and what goes.
pub struct Residency {
    pub policy: Arc<ResidencyPolicy>,
    pub units: Arc<Units>,
    pub quiescence: Arc<Quiescence>,
    pub eviction: Arc<Eviction>,
    pub offload: Arc<Offload>,
}

impl Residency {
    /// Puts it together over a namespace.
    pub fn load(below: &Namespace) -> Result<Residency, Error> {
        let Namespace { core, flagged, rules, tiers, access_times, .. } = below;
        let policy = Arc::new(ResidencyPolicy::new(core.clone(), flagged.clone(), rules.clone()));
        let units = Arc::new(Units::new(core.clone(), flagged.clone(), policy.clone(), tiers.clone()));
        let quiescence = Arc::new(Quiescence::new(core.clone(), units.clone()));
        let eviction = Eviction::new(core.clone(), flagged.clone(), policy.clone(), tiers.clone(), units.clone());
        let offload =
            Offload::load(core.clone(), flagged.clone(), policy.clone(), tiers.clone(), access_times.clone())?;
        Ok(Residency { policy, units, quiescence, eviction: Arc::new(eviction), offload: Arc::new(offload) })
    }
}
