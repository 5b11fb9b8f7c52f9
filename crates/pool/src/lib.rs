//! Assembling a pool from devices: create, open, identify, refuse.
