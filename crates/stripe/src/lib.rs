//! STUB for compiling only
use std::sync::Arc; use std::ops::Range;
use stere_device::*; use stere_format::*;
#[derive(Debug, Clone, thiserror::Error)]
pub enum StripeError { #[error("x")] NoSpace{ scheme: Scheme } }
impl StripeError { pub fn is_no_space(&self)->bool{true} }
pub struct Capacity { pub segments_total: u64, pub segments_free: u64, pub segments_free_after_release: u64 }
pub struct Stripe;
pub fn row_height(_: Scheme, _: usize)->u32 {0}
pub fn row_capacity(_: Scheme, _: u32)->usize {0}
impl Stripe {
 pub fn new()->Stripe{Stripe}
 pub fn attach(&mut self,_:DeviceIndex,_:Arc<dyn Device>,_:DeviceLayout)->Result<(),StripeError>{todo!()}
 pub fn allocate(&self,_:Scheme,_:u64)->Result<segment::ChunkPlaces,StripeError>{todo!()}
 pub fn free(&self,_:&SegmentChunks){}
 pub fn mark_used(&self,_:&SegmentChunks)->Result<(),StripeError>{todo!()}
 pub fn capacity(&self,_:Scheme)->Capacity{todo!()}
 pub fn raw_bytes(&self)->u64{0}
 pub fn fit(&self,s:Scheme)->Scheme{s}
 pub fn is_present(&self,_:DeviceIndex)->bool{true}
 pub fn all_present(&self,_:&[ChunkPlace])->bool{true}
 pub fn write_row(&self,_:&SegmentChunks,_:u32,_:SharedBuffer,_:&Completion){}
 pub fn write_chunk_headers(&self,_:&ChunkHeader,_:&Completion){}
 pub fn submit_raw_write(&self,_:DeviceIndex,_:u64,_:SharedBuffer,_:Range<usize>,_:Ticket){}
 pub fn raw_read(&self,_:DeviceIndex,_:u64,_:&mut [u8])->Result<(),StripeError>{todo!()}
 pub fn flush(&self)->Result<(),StripeError>{todo!()}
 pub fn read_verified(&self,_:&SegmentChunks,_:&Address,_:u32,_:&mut [u8],_:&dyn Fn(&[u8])->bool)->Result<(),StripeError>{todo!()}
}
