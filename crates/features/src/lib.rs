//! Features of files: versions, quotas, retention, audit, plugins' events, policy told and changed, search.
//!
//! A feature is a struct with its own state over `Core` and those features that it needs. Read next: `features` (how they are put
//! together), and the feature you look for.

pub mod accounting;
pub mod asynchronous_events;
pub mod audit;
pub mod backups;
pub mod check;
pub mod digests;
pub mod durability;
pub mod extended_attributes;
pub mod features;
pub mod forecast;
pub mod membership;
pub mod multiple_names;
pub mod new_files;
pub mod plugin_events;
pub mod policy_editor;
pub mod provenance;
pub mod reconciler;
pub mod retention;
pub mod search;
pub mod stat;
pub mod unmet_policies;
pub mod usage;
pub mod versions;
pub mod volumes;
