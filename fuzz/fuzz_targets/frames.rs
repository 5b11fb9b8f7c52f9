//! Any bytes as a request and as an answer of the library's sessions (P-90): what is decoded encodes to the same.
#![no_main]

use stere_client_wire::frame::{Reply, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(frame) = bytes.first_chunk()
        && let Ok(request) = Request::decode(frame)
    {
        assert_eq!(request.encode(), *frame);
    }
    if let Some(frame) = bytes.first_chunk()
        && let Ok(reply) = Reply::decode(frame)
    {
        assert_eq!(reply.encode(), *frame);
    }
});
