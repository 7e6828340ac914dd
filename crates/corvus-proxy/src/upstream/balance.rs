//! Which upstream takes a request.

use std::{cell::Cell, hash::BuildHasher as _, rc::Rc};

use corvus_config::snapshot::LoadBalancing;
use corvus_core::ClientIp;

use crate::upstream::pool::UpstreamState;

/// Choice among the upstreams of one host, by one worker.
#[derive(Debug)]
pub(crate) struct Balance {
    policy: LoadBalancing,
    /// Smooth weighted round robin: each turn every candidate gains its weight, and the one that
    /// has most pays the sum. Spreads a weight of 5 to 1 as AAABAA, not AAAAAB.
    credit: Vec<Cell<i64>>,
    random: Cell<u64>,
}

impl Balance {
    pub(crate) fn new(policy: LoadBalancing, count: usize, seed: u64) -> Self {
        Self { policy, credit: vec![Cell::new(0); count], random: Cell::new(seed | 1) }
    }

    /// The next upstream to try, none of `tried`. Those that are down, and backups while another is
    /// up, come only when nothing else is left.
    pub(crate) fn pick(
        &self,
        upstreams: &[Rc<UpstreamState>],
        client: ClientIp,
        tried: &[usize],
        now_ms: u64,
    ) -> Option<usize> {
        if upstreams.len() == 1 {
            return tried.is_empty().then_some(0);
        }
        let tiers: [fn(&UpstreamState, u64) -> bool; 3] = [
            |state, now| state.health.is_up(now) && !state.key.upstream.backup,
            |state, now| state.health.is_up(now),
            |_, _| true,
        ];
        tiers.iter().find_map(|tier| {
            let candidate = |index: &usize| {
                !tried.contains(index) && upstreams.get(*index).is_some_and(|s| tier(s, now_ms))
            };
            self.among(upstreams, client, (0..upstreams.len()).filter(candidate))
        })
    }

    fn among(
        &self,
        upstreams: &[Rc<UpstreamState>],
        client: ClientIp,
        candidates: impl Iterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let weight = |index: usize| upstreams.get(index).map_or(1, |s| s.key.upstream.weight);
        // Load for each unit of weight, compared without dividing.
        let lighter = |a: &usize, b: &usize| {
            let load = |i: usize| upstreams.get(i).map_or(0, |s| u64::from(s.health.in_flight()));
            let (left, right) = (load(*a) + 1, load(*b) + 1);
            (left * u64::from(weight(*b))).cmp(&(right * u64::from(weight(*a))))
        };
        match self.policy {
            LoadBalancing::RoundRobin => {
                let credit = |index: usize| self.credit.get(index).map_or(0, Cell::get);
                let mut sum = 0;
                for index in candidates.clone() {
                    if let Some(cell) = self.credit.get(index) {
                        cell.set(cell.get() + i64::from(weight(index)));
                        sum += i64::from(weight(index));
                    }
                }
                let best = candidates.rev_max(credit)?;
                if let Some(cell) = self.credit.get(best) {
                    cell.set(cell.get() - sum);
                }
                Some(best)
            }
            LoadBalancing::LeastConnections => candidates.min_by(lighter),
            LoadBalancing::RandomTwo => {
                let count = candidates.clone().count() as u64;
                if count == 0 {
                    return None;
                }
                let draw = || candidates.clone().nth((self.next_random() % count) as usize);
                let (first, second) = (draw()?, draw()?);
                Some(if lighter(&second, &first).is_lt() { second } else { first })
            }
            // Rendezvous hashing: when one upstream goes, only its own clients move.
            LoadBalancing::IpHash => candidates.rev_max(|index| {
                let label = upstreams.get(index).map_or("", |s| s.label.as_str());
                let hash = foldhash::quality::FixedState::with_seed(0)
                    .hash_one((client.limit_key(), label));
                // -weight / ln(uniform), ordered by a whole number.
                let uniform = (hash as f64 + 1.0) / (u64::MAX as f64 + 2.0);
                (-f64::from(weight(index)) / uniform.ln() * 1e6) as i64
            }),
        }
    }

    /// xorshift64*: spreading load needs no better.
    fn next_random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

trait RevMax: Iterator<Item = usize> + Sized {
    /// The first index with the highest key.
    fn rev_max(self, key: impl Fn(usize) -> i64) -> Option<usize> {
        self.fold(None, |best: Option<(usize, i64)>, index| match best {
            Some((_, most)) if most >= key(index) => best,
            _ => Some((index, key(index))),
        })
        .map(|(index, _)| index)
    }
}

impl<I: Iterator<Item = usize>> RevMax for I {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use corvus_config::snapshot::{Upstream, UpstreamAddress, UpstreamProtocol, UpstreamTls};

    use super::*;
    use crate::upstream::pool::{Health, InFlight, UpstreamKey};

    fn upstreams(weights: &[(u32, bool)]) -> Vec<Rc<UpstreamState>> {
        let make = |(index, (weight, backup)): (usize, &(u32, bool))| {
            let host = format!("u{index}");
            let upstream = Upstream {
                address: UpstreamAddress::Tcp { host: host.clone(), port: 80 },
                protocol: UpstreamProtocol::Http1,
                tls: false,
                weight: *weight,
                backup: *backup,
                url: format!("http://{host}"),
            };
            let key = UpstreamKey { upstream, tls: UpstreamTls::default() };
            Rc::new(UpstreamState::new(key, Arc::new(Health::default())))
        };
        weights.iter().enumerate().map(make).collect()
    }

    fn client(last: u8) -> ClientIp {
        ClientIp::new([192, 0, 2, last].into())
    }

    #[test]
    fn round_robin_spreads_by_weight() {
        let all = upstreams(&[(5, false), (1, false), (1, false)]);
        let balance = Balance::new(LoadBalancing::RoundRobin, 3, 1);
        let turns: Vec<_> =
            (0..7).map(|_| balance.pick(&all, client(1), &[], 0).unwrap()).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_down_and_the_backups_come_last() {
        let all = upstreams(&[(1, false), (1, false), (1, true)]);
        for policy in [
            LoadBalancing::RoundRobin,
            LoadBalancing::LeastConnections,
            LoadBalancing::IpHash,
            LoadBalancing::RandomTwo,
        ] {
            let balance = Balance::new(policy, 3, 7);
            for state in &all {
                state.health.succeeded();
            }
            all[0].health.failed(0);
            for last in 0..20 {
                assert_eq!(balance.pick(&all, client(last), &[], 1), Some(1), "{policy:?}");
                assert_eq!(balance.pick(&all, client(last), &[1], 1), Some(2), "{policy:?}");
                assert_eq!(balance.pick(&all, client(last), &[1, 2], 1), Some(0), "{policy:?}");
                assert_eq!(balance.pick(&all, client(last), &[0, 1, 2], 1), None, "{policy:?}");
            }
            // Ten seconds later it is tried again.
            let picks: Vec<_> =
                (0..60).filter_map(|last| balance.pick(&all, client(last), &[], 10_000)).collect();
            assert!(policy == LoadBalancing::LeastConnections || picks.contains(&1), "{policy:?}");
            assert!(picks.contains(&0) && !picks.contains(&2), "{policy:?}");
        }
    }

    #[test]
    fn the_least_loaded_is_taken() {
        let all = upstreams(&[(1, false), (2, false)]);
        let balance = Balance::new(LoadBalancing::LeastConnections, 2, 1);
        let _busy = [InFlight::new(&all[1].health), InFlight::new(&all[1].health)];
        assert_eq!(balance.pick(&all, client(1), &[], 0), Some(0));
        let _more = [InFlight::new(&all[0].health), InFlight::new(&all[0].health)];
        assert_eq!(balance.pick(&all, client(1), &[], 0), Some(1));
    }

    #[test]
    fn a_client_keeps_its_upstream() {
        let all = upstreams(&[(1, false), (1, false), (3, false)]);
        let balance = Balance::new(LoadBalancing::IpHash, 3, 1);
        let mut counts = [0; 3];
        for last in 0..=255 {
            let pick = balance.pick(&all, client(last), &[], 0).unwrap();
            assert_eq!(balance.pick(&all, client(last), &[], 0), Some(pick));
            counts[pick] += 1;
        }
        assert!(counts[2] > 100 && counts[0] > 20 && counts[1] > 20, "{counts:?}");
    }
}
