//! A set of addresses, networks and ranges with lookup in logarithmic time.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

/// One member of an [`IpSet`], as it was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IpItem {
    One(IpAddr),
    Net(IpNet),
    /// Both ends included; same family, first not above last.
    Range(IpAddr, IpAddr),
}

impl fmt::Display for IpItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(ip) => ip.fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::Range(first, last) => write!(f, "{first}..{last}"),
        }
    }
}

/// Addresses, networks and ranges of both families.
///
/// IPv4-mapped IPv6 addresses count as IPv4, so that a dual-stack listener changes no decision.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IpSet {
    items: Vec<IpItem>,
    /// Sorted, disjoint.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl IpSet {
    pub fn new(items: Vec<IpItem>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for item in &items {
            let (first, last) = match *item {
                IpItem::One(ip) => (ip, ip),
                IpItem::Net(net) => (net.network(), net.broadcast()),
                IpItem::Range(first, last) => (first, last),
            };
            match (first.to_canonical(), last.to_canonical()) {
                (IpAddr::V4(a), IpAddr::V4(b)) => v4.push((a.to_bits(), b.to_bits())),
                // A range that leaves the mapped block keeps its IPv6 reading.
                _ => v6.push((bits6(first), bits6(last))),
            }
        }
        Self { items, v4: merge(v4, u32::checked_add), v6: merge(v6, u128::checked_add) }
    }

    /// The members as they were written.
    pub fn items(&self) -> &[IpItem] {
        &self.items
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => holds(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => holds(&self.v6, ip.to_bits()),
        }
    }
}

fn bits6(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::to_ipv6_mapped(&ip).to_bits(),
        IpAddr::V6(ip) => Ipv6Addr::to_bits(ip),
    }
}

fn merge<T: Copy + Ord + From<u8>>(
    mut ranges: Vec<(T, T)>,
    add: fn(T, T) -> Option<T>,
) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(open) if add(open.1, T::from(1)).is_none_or(|next| first <= next) => {
                open.1 = open.1.max(last);
            }
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn holds<T: Copy + Ord>(ranges: &[(T, T)], value: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= value);
    after.checked_sub(1).and_then(|i| ranges.get(i)).is_some_and(|(_, last)| value <= *last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn members_of_both_families_are_found() {
        let set = IpSet::new(vec![
            IpItem::Net("10.0.0.0/8".parse().unwrap()),
            IpItem::One(ip("2001:db8::1")),
            IpItem::Range(ip("192.0.2.10"), ip("192.0.2.20")),
            IpItem::Net("255.255.255.0/24".parse().unwrap()),
        ]);
        for inside in ["10.255.255.255", "::ffff:10.1.2.3", "2001:db8::1", "192.0.2.20"] {
            assert!(set.contains(ip(inside)), "{inside}");
        }
        for outside in ["11.0.0.0", "9.255.255.255", "2001:db8::2", "192.0.2.21", "::10.1.2.3"] {
            assert!(!set.contains(ip(outside)), "{outside}");
        }
        assert!(set.contains(ip("255.255.255.255")));
        assert!(!IpSet::default().contains(ip("0.0.0.0")));
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan(
            ranges in prop::collection::vec((0u32..300, 0u32..40), 0..12), probe in 0u32..400,
        ) {
            let items = ranges.iter().map(|(first, len)| {
                let end = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(n));
                IpItem::Range(end(*first), end(first + len))
            }).collect();
            let scan = ranges.iter().any(|(first, len)| (*first..=first + len).contains(&probe));
            let set = IpSet::new(items);
            prop_assert_eq!(set.contains(IpAddr::V4(Ipv4Addr::from_bits(probe))), scan);
        }
    }
}
