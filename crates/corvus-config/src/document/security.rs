//! `security_rules`, `bans`, `attack_mode`, `alert_channels`.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::Secret;
use crate::{
    decode::{Decimal, Decode, Members, Shape, choice, range, report, section},
    problem::{Pointer, Problems},
    tree::{Node, Value},
};

section! {
    /// What to do when an expression holds.
    pub struct SecurityRule {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Ids of proxy hosts; empty: all.
        hosts: Vec<String> = Vec::new(),
        /// The expression.
        when: String,
        /// `allow`, `challenge`, `block`, `{limit: {..}}` or `{skip: [..]}`.
        action: RuleAction,
        /// Whether the action is taken or only recorded.
        mode: RuleMode = RuleMode::Enforce,
    }
}

choice! {
    /// Whether an action is taken or only recorded.
    pub enum RuleMode {
        /// Taken.
        Enforce = "enforce",
        /// Recorded.
        Log = "log",
    }
}

choice! {
    /// An action that is one word.
    pub enum PlainAction {
        /// Refuse.
        Block = "block",
        /// Skip protection and challenge, never access lists or queue.
        Allow = "allow",
        /// Ask for proof of a browser.
        Challenge = "challenge",
    }
}

/// What a security rule does.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleAction {
    Plain(PlainAction),
    Limit(RateLimit),
    Skip(Vec<SkippedStage>),
}

section! {
    /// Requests allowed for one client.
    pub struct RateLimit {
        /// Requests.
        count: u64 => range(1.0, 1_000_000_000.0),
        /// In so many seconds.
        per_s: Decimal = Decimal(1.0) => range(0.001, 86_400.0),
        /// Who counts as one client.
        by: LimitKey = LimitKey::Ip,
    }
}

choice! {
    /// Who counts as one client.
    pub enum LimitKey {
        /// An address.
        Ip = "ip",
        /// A network (/24, /48).
        Network = "network",
        /// Everybody together.
        All = "all",
    }
}

choice! {
    /// A stage that a rule can skip.
    pub enum SkippedStage {
        /// Request line and headers searched for attacks.
        Exploit = "exploit",
        /// Bodies searched for attacks.
        Body = "body",
        /// Rate limits.
        Limits = "limits",
        /// The browser challenge.
        Challenge = "challenge",
    }
}

impl Default for RuleAction {
    fn default() -> Self {
        Self::Plain(PlainAction::Block)
    }
}

impl Serialize for RuleAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let map = |serializer: S| serializer.serialize_map(Some(1));
        match self {
            Self::Plain(action) => action.serialize(serializer),
            Self::Limit(limit) => {
                let mut map = map(serializer)?;
                map.serialize_entry("limit", limit)?;
                map.end()
            }
            Self::Skip(stages) => {
                let mut map = map(serializer)?;
                map.serialize_entry("skip", stages)?;
                map.end()
            }
        }
    }
}

impl Decode for RuleAction {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        let Value::Map(_) = node.value else {
            return PlainAction::decode(node, at, problems).map(Self::Plain);
        };
        let given = Members::open(node, at, problems, &[("limit", false), ("skip", false)])?.given;
        match given {
            [(key, value)] if key == "limit" => {
                RateLimit::decode(value, &at.key(key), problems).map(Self::Limit)
            }
            [(key, value)] if key == "skip" => {
                Vec::decode(value, &at.key(key), problems).map(Self::Skip)
            }
            _ => {
                let message = "expected a word, {limit: {..}} or {skip: [..]}".to_owned();
                report(node, at, problems, message);
                None
            }
        }
    }

    fn shape() -> Shape {
        Shape::Plain("allow, challenge, block, {limit: {count, per_s, by}} or {skip: [stages]}")
    }
}

section! {
    /// Automatic bans of clients that keep trying.
    pub struct Bans {
        /// Offences allowed in the window; one more bans.
        threshold: u32 = 20 => range(1.0, 1_000_000.0),
        /// Seconds.
        window_s: u64 = 600 => range(1.0, 86_400.0),
        /// Seconds of the first ban; each further one is twice as long.
        first_s: u64 = 900 => range(1.0, 31_536_000.0),
        /// Longest ban in seconds.
        max_s: u64 = 604_800 => range(1.0, 315_360_000.0),
        /// Networks that are never banned.
        exceptions: Vec<String> = Vec::new(),
    }
}

section! {
    /// When every visitor is challenged.
    pub struct AttackMode {
        /// Decided by traffic, or fixed.
        mode: AttackSwitch = AttackSwitch::Auto,
        /// Requests a second from which it is on.
        requests_per_s: u64 = 1_000 => range(1.0, 100_000_000.0),
        /// Share of refused requests from which it is on.
        block_ratio: Decimal = Decimal(0.3) => range(0.01, 1.0),
        /// Seconds of calm after which it is off again.
        calm_s: u64 = 300 => range(1.0, 86_400.0),
    }
}

choice! {
    /// Whether attack mode is on.
    pub enum AttackSwitch {
        /// Decided by traffic.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

section! {
    /// Where alerts go.
    pub struct AlertChannel {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// What kind of service it is.
        kind: AlertKind,
        /// Its address, which often holds a token.
        url: Secret,
        /// Which alerts; empty: all.
        on: Vec<String> = Vec::new(),
    }
}

choice! {
    /// A kind of alert service.
    pub enum AlertKind {
        /// Any service that takes JSON.
        Webhook = "webhook",
        /// Slack.
        Slack = "slack",
        /// Discord.
        Discord = "discord",
        /// Microsoft Teams.
        Teams = "teams",
        /// Telegram.
        Telegram = "telegram",
        /// E-mail.
        Email = "email",
        /// ntfy.
        Ntfy = "ntfy",
        /// Gotify.
        Gotify = "gotify",
        /// Mattermost.
        Mattermost = "mattermost",
    }
}
