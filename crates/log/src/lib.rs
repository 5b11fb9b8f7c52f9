//! Streams: records appended to rows of the open segment of a class; reads by address.
