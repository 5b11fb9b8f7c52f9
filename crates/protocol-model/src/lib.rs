//! The protocol of several machines as five small models, explored exhaustively by the model checker `stateright`.
//!
//! `acknowledgement` models the shared log, owners, clients, leases, lost answers and trim; `slots` models grants, writes
//! on their way, volatile caches of nodes, flushes and the reuse of slots; `leases` models what machines believe, `early` answers before the commit, and `gather` writes that machines answer by
//! themselves. One model of the first two has too many states: what they share is the log alone, which `slots` therefore has without lost answers. Invariants: a step is a pure function
//! of a state; each model without a bug satisfies its properties; each `Bug` violates one. Source:
//! `docs/design/protocol-model.md`. Read next: `acknowledgement.rs`, `slots.rs`, `report.rs`.

mod acknowledgement;
mod bug;
mod early;
mod gather;
mod leases;
mod report;
mod slots;

pub use acknowledgement::Acknowledgement;
pub use bug::{Bug, Part};
pub use early::Early;
pub use gather::Gather;
pub use leases::Leases;
pub use report::{Report, check};
pub use slots::Slots;
