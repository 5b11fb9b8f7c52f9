//! Integration tests of the command and the daemon: one executable, a module for each subject.

#[path = "../support/cable.rs"]
mod cable;
#[path = "../../../bench/src/coherence.rs"]
mod coherence_check;
#[path = "../support/elsewhere.rs"]
mod elsewhere;
#[path = "../support/network.rs"]
mod network;
#[path = "../support/nodes.rs"]
mod node_servers;
#[path = "../support/remote.rs"]
mod remote;
#[path = "../support/s3.rs"]
mod s3;
#[path = "../support/site.rs"]
mod site;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../bench/src/switch.rs"]
mod switch;
#[path = "../../../robot/tests/support/mod.rs"]
mod tgt;

mod admission;
mod agreement;
mod backup;
mod cached;
mod capabilities;
mod checksums;
mod classes;
mod cleaning;
mod client_killed;
mod clients;
mod coherence;
mod commands_afar;
mod costs;
mod cut_off;
mod dedup;
mod digests;
mod direct;
mod direct_writes;
mod discard;
mod documented;
mod drills;
mod durability;
mod encrypted;
mod ending;
mod failing;
mod failure_domains;
mod far_media;
mod find;
mod find_directory;
mod find_slow;
mod findings;
mod fold;
mod followers;
mod forbidden;
mod fstab;
mod growth;
mod identities;
mod io;
mod isolation;
mod judges;
mod junctions;
mod known_loss;
mod library;
mod library_hostile;
mod linearizable;
mod locks;
mod media_trouble;
mod mounted;
mod multihost;
mod namespaces;
mod node;
mod node_settings;
mod nodes;
mod offline;
mod owner_and_node;
mod people;
mod placement;
mod plugins;
mod promoted;
mod quotas;
mod quotas_stored;
mod reach;
mod reader;
mod recall_limits;
mod records;
mod removal;
mod rescue;
mod residency;
mod retention;
mod returns;
mod robot;
mod room;
mod rules_lists;
mod saved;
mod shared_log;
mod shrink;
mod site_of_hosts;
mod stack;
mod stack_followers;
mod strangers;
mod tier;
mod tier_policy;
mod tier_room;
mod tier_waits;
mod two_machines;
mod versions;
mod watch;
mod without_owner;
