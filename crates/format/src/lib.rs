//! On-media structures of stere, byte by byte: encoding and range-checked decoding, no I/O.
