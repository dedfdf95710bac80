//! The contracts of Tyrum, as prost and tonic generate them.
#![deny(warnings)]

include!(concat!(env!("OUT_DIR"), "/contracts.rs"));
