//! The protocol of several machines as three small models, explored exhaustively by the model checker `stateright`.
//!
//! `acknowledgement` models the shared log, owners, clients, leases, lost answers and trim; `slots` models grants, writes
//! on their way, volatile caches of nodes, flushes and the reuse of slots; `leases` models what machines believe. One model of the first two has too many states: what
//! they share is the log alone, which `slots` therefore has without lost answers. Invariants: a step is a pure function
//! of a state; each model without a bug satisfies its properties; each `Bug` violates one. Source:
//! `docs/design/protocol-model.md`. Read next: `acknowledgement.rs`, `slots.rs`, `report.rs`.

mod acknowledgement;
mod bug;
mod early;
mod leases;
mod report;
mod slots;

pub use acknowledgement::Acknowledgement;
pub use bug::{Bug, Part};
pub use early::Early;
pub use leases::Leases;
pub use report::{Report, check};
pub use slots::Slots;
