-- A database of schema 1, as `sqlite3 corvus.db .dump` writes it, with the two pragmas that a dump leaves out.
-- v1.key is its secret key. Kept for ever: databases of every released version stay readable.
PRAGMA application_id = 1131377270;
PRAGMA user_version = 1;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('key_check',X'01bbf9f1da00fb32171b4f39da403790bc2a1a97db4340f83a707e1f0e');
CREATE TABLE versions (
    version    INTEGER PRIMARY KEY CHECK (version > 0),
    created_ms INTEGER NOT NULL,
    author     TEXT NOT NULL,
    comment    TEXT NOT NULL,
    restores   INTEGER REFERENCES versions (version),
    document   TEXT NOT NULL
) STRICT;
INSERT INTO versions VALUES(1,1780272000000,'ana@example.com','the beginning',NULL,replace('version: 1\nproxy_hosts: []\n','\n',char(10)));
INSERT INTO versions VALUES(2,1780272000000,'ana@example.com','the shop',NULL,replace('version: 1\nproxy_hosts:\n  - {id: shop, domains: [shop.example.com], upstreams: ["http://10.0.0.5"]}\n','\n',char(10)));
INSERT INTO versions VALUES(3,1780272000000,'ana@example.com','back to the beginning',1,replace('version: 1\nproxy_hosts: []\n','\n',char(10)));
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
INSERT INTO accounts VALUES(1,'ana@example.com','Ana','admin',0,0,'$argon2id$password',X'015be10dad02479b176707e7a5e4bcaca391dc02109e4a0f4140802cb8d82e7ff932f39eefb863eac7317bdcae0c29271d',59342400,1780272000000,1780272000000);
INSERT INTO accounts VALUES(2,'ben@example.com','Ben','editor',1,1,NULL,NULL,0,1780272000000,NULL);
CREATE TABLE recovery_codes (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    hash    TEXT NOT NULL,
    PRIMARY KEY (account, hash)
) STRICT, WITHOUT ROWID;
INSERT INTO recovery_codes VALUES(1,'$argon2id$code');
CREATE TABLE passkeys (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    account       INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    credential    BLOB NOT NULL UNIQUE,
    name          TEXT NOT NULL,
    data          TEXT NOT NULL,
    created_ms    INTEGER NOT NULL,
    last_used_ms  INTEGER
) STRICT;
INSERT INTO passkeys VALUES(1,1,X'63726564656e7469616c','laptop','{"counter":3}',1780272000000,NULL);
CREATE TABLE identities (
    issuer  TEXT NOT NULL,
    subject TEXT NOT NULL,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
INSERT INTO identities VALUES('https://id.example.com','4711',1);
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
INSERT INTO sessions VALUES(1,X'3f3af1ecebbd1410ab417ec0d27bbfcb5d340e177ae159b59fc8626c2dfd9175',1,1780272000000,1780272000000,1780358400000,'Browser','203.0.113.7');
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
INSERT INTO api_tokens VALUES(1,X'3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0',1,'prometheus','["metrics"]',1780272000000,NULL,NULL);
CREATE TABLE secrets (
    name       TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO secrets VALUES('slack',X'018b4c009a8aa12e53aa17906ac50502217a94593babffa05e1896fdbf56cf8a31bbe42abbe1ef66082088bddef87ce442caea3f417f1d1c',1780272000000);
CREATE TABLE certificates (
    id           TEXT PRIMARY KEY,
    chain        TEXT NOT NULL,
    private_key  BLOB NOT NULL,
    issuer       TEXT NOT NULL,
    not_after_ms INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL
) STRICT;
INSERT INTO certificates VALUES('shop','CHAIN',X'0122883235a908fd85b4e89d247d2681b880d3226aac5807a9e942eb38f34886','{"order":"17"}',1780272000001,1780272000000);
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
INSERT INTO audit VALUES(1,1780272000000,1,'ana@example.com','config.saved','3','{"version":3}','203.0.113.7');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('accounts',2);
INSERT INTO sqlite_sequence VALUES('passkeys',1);
INSERT INTO sqlite_sequence VALUES('sessions',1);
INSERT INTO sqlite_sequence VALUES('api_tokens',1);
INSERT INTO sqlite_sequence VALUES('audit',1);
CREATE TRIGGER versions_are_never_updated BEFORE UPDATE ON versions
BEGIN
    SELECT RAISE(ABORT, 'versions are appended, never updated');
END;
CREATE TRIGGER versions_are_never_deleted BEFORE DELETE ON versions
BEGIN
    SELECT RAISE(ABORT, 'versions are appended, never deleted');
END;
CREATE INDEX passkeys_account ON passkeys (account);
CREATE INDEX identities_account ON identities (account);
CREATE INDEX sessions_account ON sessions (account);
CREATE INDEX api_tokens_account ON api_tokens (account);
CREATE INDEX audit_at ON audit (at_ms);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_subject ON audit (subject, id);
CREATE TRIGGER audit_is_never_updated BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is appended, never updated');
END;
COMMIT;
