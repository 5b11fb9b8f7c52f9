//! Integration tests of names and inodes: one executable, a module for each subject.

#[path = "../../../store/tests/support/mod.rs"]
mod store_support;
#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod basics;
mod checksums;
mod classes;
mod cold;
mod compress;
mod copies_end;
mod crash;
mod dedup;
mod differential;
mod digests;
mod encrypt;
mod filling;
mod find;
mod find_index;
mod fold;
mod forged;
mod full;
mod full_mixed;
mod full_refused;
mod isolation;
mod large;
mod locks;
mod new_files;
mod permissions;
mod places;
mod places_tiered;
mod quotas;
mod quotas_metadata;
mod quotas_stored;
mod reconcile;
mod reconcile_changing;
mod records;
mod residency;
mod retention;
mod room;
mod rot;
mod rules;
mod rules_changed;
mod several_names;
mod shared_on_devices;
mod stored_anew;
mod stress;
mod threads;
mod tiers;
mod units;
mod versions;
mod versions_histories;
mod versions_large;
mod versions_policy;
mod watch;
