use super::*;

/// Text, and how it is shown.
const GOOD: [(&str, &str); 21] = [
    ("redis://127.0.0.1", "redis://127.0.0.1:6379"),
    ("redis://127.0.0.1/", "redis://127.0.0.1:6379"),
    ("redis://valkey:7000", "redis://valkey:7000"),
    ("redis://valkey_1.lan:7000/3", "redis://valkey_1.lan:7000/3"),
    ("redis://valkey/0", "redis://valkey:6379"),
    ("rediss://valkey.example.com", "rediss://valkey.example.com:6379"),
    ("redis://[::1]", "redis://[::1]:6379"),
    ("redis://[2001:db8::7]:7001/2", "redis://[2001:db8::7]:7001/2"),
    ("redis://:secret@valkey", "redis://:***@valkey:6379"),
    ("redis://corvus:secret@valkey", "redis://corvus:***@valkey:6379"),
    ("redis://co%3Arvus:s%40c%2Fr%25t@valkey", "redis://co%3Arvus:***@valkey:6379"),
    ("redis://:a:b@valkey", "redis://:***@valkey:6379"),
    ("redis://corvus:secret@[::1]:7/1", "redis://corvus:***@[::1]:7/1"),
    ("rediss://valkey?ca=/etc/ca%20x.pem", "rediss://valkey:6379?ca=/etc/ca%20x.pem"),
    ("redis+cluster://a:1,b:2,[::1]:3", "redis+cluster://a:1,b:2,[::1]:3"),
    ("redis+cluster://a", "redis+cluster://a:6379"),
    ("redis+cluster://a:1/", "redis+cluster://a:1"),
    ("rediss+cluster://u:secret@a:1,b?ca=x.pem", "rediss+cluster://u:***@a:1,b:6379?ca=x.pem"),
    ("redis+sentinel://a,b:2/corvus", "redis+sentinel://a:26379,b:2/corvus"),
    ("redis+sentinel://:secret@a/my%20db/4", "redis+sentinel://:***@a:26379/my%20db/4"),
    (
        "rediss+sentinel://a/m?sentinel_password=s%26cret&ca=c.pem",
        "rediss+sentinel://a:26379/m?ca=c.pem&sentinel_password=***",
    ),
];

#[test]
fn good_addresses_are_read_and_shown_without_secrets() {
    for (text, shown) in GOOD {
        let address: Address = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(address.to_string(), shown);
        assert_eq!(format!("{address:?}"), format!("Address({shown})"));
        assert!(!shown.contains("secret"));
    }
}

#[test]
fn bad_addresses_are_refused_in_words() {
    use AddressError as E;
    let cases = [
        ("", E::Scheme),
        ("127.0.0.1:6379", E::Scheme),
        ("valkey://h", E::Scheme),
        ("redis+ring://h", E::Scheme),
        ("Redis://h", E::Scheme),
        ("redis://", E::NoHost),
        ("redis:///1", E::NoHost),
        ("redis://:6379", E::NoHost),
        ("redis://u:secret@", E::NoHost),
        ("redis+cluster://a:1,", E::NoHost),
        ("redis+cluster://,a:1", E::NoHost),
        ("redis://a b", E::Host),
        ("redis://::1", E::NoHost),
        ("redis://2001:db8::1", E::Host),
        ("redis://[::1", E::Host),
        ("redis://[valkey]:1", E::Host),
        ("redis://[::1]7", E::Host),
        ("redis://h:0", E::Port),
        ("redis://h:65536", E::Port),
        ("redis://h:+1", E::Port),
        ("redis://h:", E::Port),
        ("redis://a:1,b:2", E::Several),
        ("redis://h/one", E::Db),
        ("redis://h/-1", E::Db),
        ("redis://h/1/2", E::Path),
        ("redis+cluster://a:1/1", E::ClusterPath),
        ("redis+sentinel://a:1", E::NoMaster),
        ("redis+sentinel://a:1/", E::NoMaster),
        ("redis+sentinel://a:1//1", E::NoMaster),
        ("redis+sentinel://a:1/m/x", E::Db),
        ("redis://user@h", E::NoPassword),
        ("redis://user:@h", E::EmptyPassword),
        ("redis://:@h", E::EmptyPassword),
        ("redis://:sec/ret@h", E::Unescaped),
        ("redis://:sec?ret@h", E::Unescaped),
        ("redis://:sec#ret@h", E::Unescaped),
        ("redis://:sec@ret@h", E::Unescaped),
        ("redis://:secret%@h", E::Encoding("password")),
        ("redis://:secret%4@h", E::Encoding("password")),
        ("redis://:secret%zz@h", E::Encoding("password")),
        ("redis://:secret%ff@h", E::Encoding("password")),
        ("redis://us%er:secret@h", E::Encoding("user")),
        ("redis://h#insecure", E::Fragment),
        ("redis://h?db=1", E::Parameter),
        ("rediss://h?verify", E::Parameter),
        ("rediss://h?ca=", E::Value("ca")),
        ("rediss://h?ca=a&ca=b", E::Value("ca")),
        ("rediss://h?ca=%", E::Encoding("ca")),
        ("redis://h?ca=a", E::CaWithoutTls),
        ("redis://h?sentinel_password=secret", E::NotSentinel),
        ("redis+cluster://h?sentinel_password=secret", E::NotSentinel),
        // The host forgotten.
        ("redis://user:secret", E::Port),
        ("redis://user:sec:ret", E::Host),
        ("redis://user:6379/secret", E::Db),
        ("redis://user:6379/0/secret", E::Path),
        ("redis+cluster://a:1,user:secret", E::Port),
        ("redis+sentinel://a/m?sentinel_password=a&secret", E::Parameter),
        ("redis+sentinel://a/m?sentinel_password=a&secret=b", E::Parameter),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<Address>(), Err(error.clone()), "{text}");
        assert!(!error.to_string().contains("sec"), "{text}: {error}");
    }
}

#[test]
fn secrets_are_decoded() {
    let address: Address =
        "redis+sentinel://u%2f:p%40s%C3%A9@a/m%2Fn?sentinel_password=x%26y".parse().unwrap();
    assert_eq!(address.user.as_deref(), Some("u/"));
    assert_eq!(address.secrets().collect::<Vec<_>>(), ["p@sé", "x&y"]);
    let Layout::Sentinel { master, .. } = &address.layout else { panic!() };
    assert_eq!(master, "m/n");
}
