//! The features of files, put together: versions, quotas, retention, audit, plugins' events, policy told and changed, search.
//!
//! Each is built with those that it needs, so none can call one that is built later. Read next: the feature you look for.

use std::sync::Arc;

use parking_lot::Mutex;
use stere_namespace::error::Error;
use stere_namespace::namespace::Namespace;
use stere_residency::residency::Residency;

use crate::accounting::Quotas;
use crate::asynchronous_events::AsynchronousEvents;
use crate::audit::Audit;
use crate::backups::Backups;
use crate::digests::Digests;
use crate::durability::Durability;
use crate::extended_attributes::ExtendedAttributes;
use crate::forecast::Forecasts;
use crate::multiple_names::MultipleNames;
use crate::plugin_events::PluginEvents;
use crate::policy_editor::PolicyEditor;
use crate::provenance::PolicyProvenance;
use crate::reconciler::{Reconciler, ReconcilerParts};
use crate::retention::Retentions;
use crate::search::Searches;
use crate::stat::Stat;
use crate::unmet_policies::UnmetPolicies;
use crate::versions::Versions;

/// What files have besides names and content.
pub struct Features {
    pub retention: Arc<Retentions>,
    pub quotas: Arc<Quotas>,
    pub multiple_names: Arc<MultipleNames>,
    pub versions: Arc<Versions>,
    pub audit: Arc<Audit>,
    pub stat: Arc<Stat>,
    pub attributes: Arc<ExtendedAttributes>,
    pub backups: Arc<Backups>,
    pub digests: Arc<Digests>,
    pub events: Arc<PluginEvents>,
    pub asynchronous_events: Arc<AsynchronousEvents>,
    pub reconciler: Arc<Reconciler>,
    pub unmet: Arc<UnmetPolicies>,
    pub provenance: Arc<PolicyProvenance>,
    pub forecasts: Arc<Forecasts>,
    pub editor: Arc<PolicyEditor>,
    pub search: Arc<Searches>,
    pub durability: Arc<Durability>,
}

/// What is told of policy.
struct Told {
    unmet: Arc<UnmetPolicies>,
    provenance: Arc<PolicyProvenance>,
    forecasts: Arc<Forecasts>,
}

fn told(below: &Namespace, residency: &Residency, digests: &Arc<Digests>) -> Told {
    let Namespace { core, rules, registry, words, tiers, visibility, encryption, .. } = below;
    let unmet = Arc::new(UnmetPolicies { core: core.clone(), rules: rules.clone() });
    let provenance = Arc::new(PolicyProvenance {
        core: core.clone(),
        rules: rules.clone(),
        registry: registry.clone(),
        words: words.clone(),
        residency: residency.policy.clone(),
        visibility: visibility.clone(),
        tiers: tiers.clone(),
        encryption: encryption.clone(),
        unmet: unmet.clone(),
        digests: digests.clone(),
    });
    let forecasts = Arc::new(Forecasts {
        core: core.clone(),
        rules: rules.clone(),
        registry: registry.clone(),
        words: words.clone(),
        residency: residency.policy.clone(),
        tiers: tiers.clone(),
    });
    Told { unmet, provenance, forecasts }
}

fn editor(
    below: &Namespace,
    residency: &Residency,
    retention: &Arc<Retentions>,
    versions: &Arc<Versions>,
    audit: &Arc<Audit>,
    durability: &Arc<Durability>,
) -> PolicyEditor {
    PolicyEditor {
        core: below.core.clone(),
        rules: below.rules.clone(),
        classes: below.classes.clone(),
        registry: below.registry.clone(),
        words: below.words.clone(),
        encryption: below.encryption.clone(),
        retention: retention.clone(),
        versions: versions.clone(),
        audit: audit.clone(),
        durability: durability.clone(),
        residency: residency.policy.clone(),
        offload: residency.offload.clone(),
        eviction: residency.eviction.clone(),
        flagged: below.flagged.clone(),
        node_values: Mutex::default(),
    }
}

fn reconciler(
    below: &Namespace,
    residency: &Residency,
    retention: &Arc<Retentions>,
    versions: &Arc<Versions>,
) -> Reconciler {
    Reconciler::new(ReconcilerParts {
        core: below.core.clone(),
        rules: below.rules.clone(),
        units: residency.units.clone(),
        quiescence: residency.quiescence.clone(),
        tiers: below.tiers.clone(),
        versions: versions.clone(),
        encryption: below.encryption.clone(),
        retention: retention.clone(),
    })
}

impl Features {
    /// Puts them together.
    pub fn load(below: &Namespace, residency: &Residency) -> Result<Features, Error> {
        let Namespace { core, access_times, words, tiers, encryption, registry, rules, .. } = below;
        let Residency { eviction, offload, .. } = residency;
        let retention = Arc::new(Retentions::load(core.clone())?);
        let quotas = Arc::new(Quotas::new(core.clone(), retention.clone()));
        let multiple_names = MultipleNames { core: core.clone(), quotas: quotas.clone(), retention: retention.clone() };
        let versions = Versions::load(core.clone(), encryption.clone(), quotas.clone(), access_times.clone())?;
        let (versions, audit) = (Arc::new(versions), Arc::new(Audit::load(core.clone(), rules.clone())?));
        let stat = Arc::new(Stat {
            core: core.clone(),
            tiers: tiers.clone(),
            access_times: access_times.clone(),
            audit: audit.clone(),
            versions: versions.clone(),
        });
        let attributes = Arc::new(ExtendedAttributes {
            core: core.clone(),
            versions: versions.clone(),
            offload: offload.clone(),
            eviction: eviction.clone(),
        });
        let backups = Arc::new(Backups { core: core.clone(), tiers: tiers.clone() });
        let digests = Arc::new(Digests { core: core.clone(), eviction: eviction.clone() });
        let (registry, encryption) = (registry.clone(), encryption.clone());
        let events = Arc::new(PluginEvents { core: core.clone(), registry: registry.clone() });
        let asynchronous_events = Arc::new(AsynchronousEvents::new(
            core.clone(),
            registry,
            encryption,
            tiers.clone(),
            backups.clone(),
            attributes.clone(),
        ));
        let durability = Arc::new(Durability::load(core.clone(), rules.clone())?);
        let Told { unmet, provenance, forecasts } = told(below, residency, &digests);
        let search = Arc::new(Searches {
            core: core.clone(),
            access_times: access_times.clone(),
            words: words.clone(),
            tiers: tiers.clone(),
            provenance: provenance.clone(),
            stat: stat.clone(),
        });
        Ok(Features {
            multiple_names: Arc::new(multiple_names),
            reconciler: Arc::new(reconciler(below, residency, &retention, &versions)),
            editor: Arc::new(editor(below, residency, &retention, &versions, &audit, &durability)),
            retention,
            quotas,
            versions,
            audit,
            stat,
            attributes,
            backups,
            digests,
            events,
            asynchronous_events,
            unmet,
            provenance,
            forecasts,
            search,
            durability,
        })
    }
}
