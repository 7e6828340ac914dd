//! Access queues on a store that gateways share: the whole gateway, and a real Valkey or Redis.

mod cut_off;
mod failover;
mod outages;
mod sample;
mod wiped;
