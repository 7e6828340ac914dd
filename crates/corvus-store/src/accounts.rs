//! Accounts: who may use the console, and as what. How they prove who they are is in
//! [`credentials`].

pub mod credentials;
#[cfg(test)]
mod tests;

use std::fmt;

use rusqlite::{
    OptionalExtension as _, Row, ToSql,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef},
};

use crate::{
    Reader, Result, StoreError, Writer,
    error::{check_length, found, unique},
};

/// Longest address and name, bytes.
pub const MAX_TEXT: usize = 320;
/// Accounts in all.
pub const MAX_ACCOUNTS: u64 = 10_000;

/// The number of an account. It is never given to a second one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AccountId(pub u64);

/// What an account may do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    Admin,
    Editor,
    Viewer,
}

impl Role {
    /// As the database and the interface spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Editor => "editor",
            Self::Viewer => "viewer",
        }
    }

    /// The role with this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Admin, Self::Editor, Self::Viewer].into_iter().find(|role| role.as_str() == text)
    }
}

/// What an administrator sets of an account.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Unique, whatever the case of its ASCII letters.
    pub email: String,
    pub name: String,
    pub role: Role,
    /// Sees and changes only what it owns.
    pub own_only: bool,
    /// May not log in, and its sessions and tokens are worth nothing.
    pub disabled: bool,
}

/// An account, without what it proves itself by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Account {
    pub id: AccountId,
    pub profile: Profile,
    pub has_password: bool,
    pub has_totp: bool,
    pub created_ms: u64,
    pub last_login_ms: Option<u64>,
}

/// Columns that [`account`] reads.
pub(crate) const COLUMNS: &str = "accounts.id AS account_id, email, accounts.name AS account_name,
    role, own_only, disabled, password_hash IS NOT NULL AS has_password,
    totp_secret IS NOT NULL AS has_totp, accounts.created_ms AS account_created_ms, last_login_ms";

impl Reader<'_> {
    /// One account.
    pub fn account(&self, id: AccountId) -> Result<Option<Account>> {
        let sql = format!("SELECT {COLUMNS} FROM accounts WHERE id = ?1");
        let mut query = self.connection.prepare_cached(&sql)?;
        Ok(query.query_row([id], account).optional()?)
    }

    /// The account with this address.
    pub fn account_by_email(&self, email: &str) -> Result<Option<Account>> {
        let sql = format!("SELECT {COLUMNS} FROM accounts WHERE email = ?1");
        let mut query = self.connection.prepare_cached(&sql)?;
        Ok(query.query_row([email], account).optional()?)
    }

    /// All accounts in the order they were made, at most [`MAX_ACCOUNTS`].
    pub fn accounts(&self) -> Result<Vec<Account>> {
        let sql = format!("SELECT {COLUMNS} FROM accounts ORDER BY id");
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map([], account)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How many accounts there are. 0: the gateway waits to be set up.
    pub fn account_count(&self) -> Result<u64> {
        let sql = "SELECT count(*) FROM accounts";
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// Whether an enabled administrator exists besides `id`.
    fn another_admin(&self, id: AccountId) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM accounts
                   WHERE role = 'admin' AND NOT disabled AND id != ?1)";
        Ok(self.connection.prepare_cached(sql)?.query_row([id], |row| row.get(0))?)
    }
}

impl Writer<'_> {
    /// Makes an account. `password_hash` is a PHC string; `None`: it logs in by other means.
    pub fn create_account(
        &self,
        profile: &Profile,
        password_hash: Option<&str>,
    ) -> Result<AccountId> {
        check(profile)?;
        credentials::check_password_hash(password_hash)?;
        if self.account_count()? >= MAX_ACCOUNTS {
            return Err(StoreError::TooMany { what: "accounts", max: MAX_ACCOUNTS });
        }
        let sql = "INSERT INTO accounts
                   (email, name, role, own_only, disabled, password_hash, created_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id";
        let Profile { email, name, role, own_only, disabled } = profile;
        let values = (email, name, role, own_only, disabled, password_hash, self.now_ms);
        let mut insert = self.connection.prepare_cached(sql)?;
        unique(insert.query_row(values, |row| row.get(0)), "account")
    }

    /// Makes the first account, an administrator. [`StoreError::Exists`] when there is one: of two
    /// people who set up the gateway at once one is told.
    pub fn create_first_account(
        &self,
        email: &str,
        name: &str,
        password_hash: &str,
    ) -> Result<AccountId> {
        if self.account_count()? > 0 {
            return Err(StoreError::Exists("first account"));
        }
        let profile = Profile {
            email: email.to_owned(),
            name: name.to_owned(),
            role: Role::Admin,
            own_only: false,
            disabled: false,
        };
        self.create_account(&profile, Some(password_hash))
    }

    /// Sets what an administrator sets. Disabling an account ends its sessions.
    /// [`StoreError::LastAdmin`] when nobody would be left to administer the gateway.
    pub fn update_account(&self, id: AccountId, profile: &Profile) -> Result<()> {
        check(profile)?;
        let stays_admin = profile.role == Role::Admin && !profile.disabled;
        if !stays_admin {
            self.refuse_last_admin(id)?;
        }
        let sql = "UPDATE accounts SET email = ?2, name = ?3, role = ?4, own_only = ?5,
                   disabled = ?6 WHERE id = ?1";
        let Profile { email, name, role, own_only, disabled } = profile;
        let mut update = self.connection.prepare_cached(sql)?;
        let changed = update.execute((id, email, name, role, own_only, disabled));
        found(unique(changed, "account")?, "account")?;
        if profile.disabled {
            self.revoke_sessions(id, None)?;
        }
        Ok(())
    }

    /// Removes an account with its sessions, tokens and credentials. [`StoreError::LastAdmin`] as
    /// for [`Writer::update_account`].
    pub fn remove_account(&self, id: AccountId) -> Result<()> {
        self.refuse_last_admin(id)?;
        let sql = "DELETE FROM accounts WHERE id = ?1";
        found(self.connection.prepare_cached(sql)?.execute([id])?, "account")
    }

    /// Notes that somebody has logged in.
    pub fn note_login(&self, id: AccountId) -> Result<()> {
        let sql = "UPDATE accounts SET last_login_ms = ?2 WHERE id = ?1";
        let changed = self.connection.prepare_cached(sql)?.execute((id, self.now_ms))?;
        found(changed, "account")
    }

    fn refuse_last_admin(&self, id: AccountId) -> Result<()> {
        let account = self.account(id)?.ok_or(StoreError::NotFound("account"))?;
        let is_admin = account.profile.role == Role::Admin && !account.profile.disabled;
        if is_admin && !self.another_admin(id)? {
            return Err(StoreError::LastAdmin);
        }
        Ok(())
    }
}

fn check(profile: &Profile) -> Result<()> {
    check_length("address", profile.email.as_bytes(), MAX_TEXT)?;
    check_length("name", profile.name.as_bytes(), MAX_TEXT)
}

pub(crate) fn account(row: &Row<'_>) -> rusqlite::Result<Account> {
    Ok(Account {
        id: row.get("account_id")?,
        profile: Profile {
            email: row.get("email")?,
            name: row.get("account_name")?,
            role: row.get("role")?,
            own_only: row.get("own_only")?,
            disabled: row.get("disabled")?,
        },
        has_password: row.get("has_password")?,
        has_totp: row.get("has_totp")?,
        created_ms: row.get("account_created_ms")?,
        last_login_ms: row.get("last_login_ms")?,
    })
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ToSql for AccountId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for AccountId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        u64::column_result(value).map(Self)
    }
}

impl ToSql for Role {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for Role {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}
