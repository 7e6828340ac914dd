-- Times are milliseconds since the Unix epoch. Released migrations are never edited.

PRAGMA application_id = 1131377270; -- "Corv"

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- `document` stands last: a list of versions then never reads the pages of the texts.
CREATE TABLE versions (
    version    INTEGER PRIMARY KEY CHECK (version > 0),
    created_ms INTEGER NOT NULL,
    author     TEXT NOT NULL,
    comment    TEXT NOT NULL,
    restores   INTEGER REFERENCES versions (version),
    document   TEXT NOT NULL
) STRICT;

CREATE TRIGGER versions_are_never_updated BEFORE UPDATE ON versions
BEGIN
    SELECT RAISE(ABORT, 'versions are appended, never updated');
END;

CREATE TRIGGER versions_are_never_deleted BEFORE DELETE ON versions
BEGIN
    SELECT RAISE(ABORT, 'versions are appended, never deleted');
END;

-- AUTOINCREMENT: the audit log outlives an account, so an id is never given to a second one.
CREATE TABLE accounts (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    email         TEXT NOT NULL UNIQUE COLLATE NOCASE,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL CHECK (role IN ('admin', 'editor', 'viewer')),
    own_only      INTEGER NOT NULL CHECK (own_only IN (0, 1)),
    disabled      INTEGER NOT NULL CHECK (disabled IN (0, 1)),
    password_hash TEXT,
    totp_secret   BLOB,
    totp_step     INTEGER NOT NULL DEFAULT 0,
    created_ms    INTEGER NOT NULL,
    last_login_ms INTEGER
) STRICT;

CREATE TABLE recovery_codes (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    hash    TEXT NOT NULL,
    PRIMARY KEY (account, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE passkeys (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    account       INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    credential    BLOB NOT NULL UNIQUE,
    name          TEXT NOT NULL,
    data          TEXT NOT NULL,
    created_ms    INTEGER NOT NULL,
    last_used_ms  INTEGER
) STRICT;
CREATE INDEX passkeys_account ON passkeys (account);

-- Who somebody is at an OpenID Connect provider.
CREATE TABLE identities (
    issuer  TEXT NOT NULL,
    subject TEXT NOT NULL,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_account ON identities (account);

CREATE TABLE sessions (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    token_hash BLOB NOT NULL UNIQUE,
    account    INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    user_agent TEXT NOT NULL,
    address    TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_account ON sessions (account);

CREATE TABLE api_tokens (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    token_hash   BLOB NOT NULL UNIQUE,
    account      INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER,
    last_used_ms INTEGER
) STRICT;
CREATE INDEX api_tokens_account ON api_tokens (account);

CREATE TABLE secrets (
    name       TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE certificates (
    id           TEXT PRIMARY KEY,
    chain        TEXT NOT NULL,
    private_key  BLOB NOT NULL,
    issuer       TEXT NOT NULL,
    not_after_ms INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL
) STRICT;

-- `account` refers to nothing on purpose: entries outlive accounts.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms   INTEGER NOT NULL,
    account INTEGER,
    actor   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail  TEXT NOT NULL,
    address TEXT NOT NULL
) STRICT;
CREATE INDEX audit_at ON audit (at_ms);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_subject ON audit (subject, id);

CREATE TRIGGER audit_is_never_updated BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is appended, never updated');
END;
