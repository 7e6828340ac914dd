//! What a host asks of requests before they pass: attack detection, challenge, forward auth.

use crate::decode::{Entries, choice, range, section};

section! {
    /// What is searched for attacks.
    pub struct Protection {
        /// What to do with what is found.
        mode: ProtectionMode = ProtectionMode::Block,
        /// Class of attack to mode, where it differs.
        classes: Entries<ProtectionMode> = Entries::default(),
        /// What is let through all the same.
        exceptions: Vec<ProtectionException> = Vec::new(),
        /// The OWASP core rule set on top; null: off.
        crs: Option<CoreRuleSet> = None,
    }
}

choice! {
    /// What to do with attacks.
    pub enum ProtectionMode {
        /// Refuse them.
        Block = "block",
        /// Only record them.
        Log = "log",
        /// Do not look.
        Off = "off",
    }
}

section! {
    /// A rule that does not count for one input.
    pub struct ProtectionException {
        /// The rule's name.
        rule: String,
        /// The input, such as `args:q`; null: all.
        input: Option<String> = None,
        /// Path prefix; null: all.
        path: Option<String> = None,
    }
}

section! {
    /// The OWASP core rule set.
    pub struct CoreRuleSet {
        /// Paranoia level.
        paranoia_level: u32 = 1 => range(1.0, 4.0),
        /// Score from which a request is refused.
        threshold: u32 = 5 => range(1.0, 1_000.0),
    }
}

choice! {
    /// Off or on.
    pub enum Switch {
        /// Off; attack mode may still turn it on.
        Off = "off",
        /// On.
        On = "on",
    }
}

section! {
    /// A service that decides on each request.
    pub struct ForwardAuth {
        /// Its URL.
        url: String,
        /// Header fields of its answer that the upstream sees.
        copy_headers: Vec<String> = Vec::new(),
    }
}
