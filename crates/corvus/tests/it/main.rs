//! The one integration binary: the whole gateway between real peers.

mod gateway;
