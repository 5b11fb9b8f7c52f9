//! Transactions, blob map, journal, checkpoint, recovery, relocation, cleaning.
