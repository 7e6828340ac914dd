//! Everything in one file, encrypted by a passphrase, and back into an empty folder.
//!
//! Inside is a tar archive with the database, the secret key and the folders of [`FOLDERS`]; around
//! it the encrypted form that `backup/sealed.rs` describes. Both ends stream: memory does not grow
//! with what is kept.

mod sealed;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};

use tar::{Archive, Builder, EntryType, Header};

pub use self::sealed::MIN_PASSPHRASE;
use self::sealed::{Cost, OpenReader, SealWriter};
use crate::{DATABASE, MARKER, SECRET_KEY, Store, StoreError, files, open::connect};

/// Folders of the data folder that are kept along with the database, if they are there: queues and
/// their keys, the console's own certificate, self-signed certificates.
pub const FOLDERS: [&str; 3] = ["queue", "console", "certificates"];

/// What is being restored stays here until it is known to be whole.
pub(crate) const RESTORING: &str = ".restore";

/// How the name of a copy of the database begins and ends.
const COPY: (&str, &str) = ("backup-", ".tmp");

/// What an empty folder may hold: the gateway's lock, and what a fresh file system has.
const IGNORED: [&str; 2] = ["lock", "lost+found"];

/// Folders within folders.
const MAX_DEPTH: usize = 8;

/// Why there is no backup, or why one was not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("a passphrase has {MIN_PASSPHRASE} characters at least")]
    ShortPassphrase,
    #[error("this is not a backup of this gateway")]
    NotABackup,
    #[error(
        "this backup has form {0}, which a later version of the gateway wrote; restore it with that one"
    )]
    UnknownForm(u8),
    #[error("the passphrase is not the one that this backup was made with")]
    WrongPassphrase,
    #[error("the backup is damaged, or its end is missing")]
    Damaged,
    #[error("{} is not empty; a backup is restored into an empty folder only", .path.display())]
    NotEmpty { path: PathBuf },
    #[error("the path {} is not UTF-8", .path.display())]
    Path { path: PathBuf },
    #[error("the disk is full")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{} cannot be read", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the backup or a file in it cannot be read or written")]
    Io(#[source] io::Error),
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io(error),
        }
    }
}

impl Store {
    /// Writes a backup of everything: one state of the database, whatever is changed meanwhile. It
    /// needs room in the data folder for a copy of the database.
    ///
    /// The secret key is part of it, wherever its file is.
    pub fn backup(&self, passphrase: &str, out: impl Write) -> Result<(), BackupError> {
        self.backup_at(passphrase, out, Cost::DEFAULT)
    }

    fn backup_at(&self, passphrase: &str, out: impl Write, cost: Cost) -> Result<(), BackupError> {
        let mut archive = Builder::new(SealWriter::new(out, passphrase, cost)?);
        let database = self.copy_database()?;
        let mut pack = Pack { archive: &mut archive, mtime: self.now_ms() / 1000 };
        pack.file(Path::new(DATABASE), database.as_file())?;
        drop(database);
        pack.bytes(Path::new(SECRET_KEY), self.key().bytes())?;
        for folder in FOLDERS {
            pack.folder(&self.data().join(folder), Path::new(folder), 0)?;
        }
        archive.into_inner()?.finish()?.flush()?;
        Ok(())
    }

    /// A copy of the database in a file that goes away by itself.
    fn copy_database(&self) -> Result<tempfile::NamedTempFile, BackupError> {
        let copy =
            tempfile::Builder::new().prefix("backup-").suffix(".tmp").tempfile_in(self.data())?;
        let path = copy.path();
        let name = path.to_str().ok_or_else(|| BackupError::Path { path: path.to_owned() })?;
        let connection = connect(&self.data().join(DATABASE)).map_err(StoreError::from)?;
        connection.execute("VACUUM INTO ?1", [name]).map_err(StoreError::from)?;
        Ok(copy)
    }
}

/// Removes copies of the database that a crash has left behind.
pub(crate) fn remove_copies(data: &Path) -> io::Result<()> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(COPY.0) && name.ends_with(COPY.1)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Restores a backup into the folder `data`, which is made if it is missing and must be empty
/// otherwise. The secret key ends up in `DATA/secret.key`. Nothing gets its name there before the
/// whole backup was read and proved right; on a failure until then the folder is left empty.
pub fn restore(from: impl Read, passphrase: &str, data: &Path) -> Result<(), BackupError> {
    files::create_folder(data)?;
    for entry in fs::read_dir(data)? {
        if !IGNORED.iter().any(|name| entry.as_ref().is_ok_and(|e| e.file_name() == *name)) {
            return Err(BackupError::NotEmpty { path: data.to_owned() });
        }
    }
    let staged = data.join(RESTORING);
    // A second restore at the same time fails here.
    fs::create_dir(&staged)?;
    let done = unpack(from, passphrase, &staged).and_then(|()| Ok(files::sync_folder(data)?));
    if let Err(error) = done {
        fs::remove_dir_all(&staged)?;
        return Err(error);
    }
    // From here on a crash leaves `.restore`, and a store is not opened beside it.
    let mut names: Vec<_> =
        fs::read_dir(&staged)?.map(|e| Ok(e?.file_name())).collect::<io::Result<_>>()?;
    names.sort_by_key(|name| name == DATABASE);
    for name in names {
        fs::rename(staged.join(&name), data.join(&name))?;
    }
    files::create_whole(&data.join(MARKER), |file| {
        file.write_all(crate::open::MARKER_TEXT.as_bytes())
    })?;
    fs::remove_dir(&staged)?;
    files::sync_folder(data)?;
    Ok(())
}

fn unpack(from: impl Read, passphrase: &str, staged: &Path) -> Result<(), BackupError> {
    let mut archive = Archive::new(OpenReader::new(from, passphrase)?);
    for entry in archive.entries().map_err(damage)? {
        let mut entry = entry.map_err(damage)?;
        let path = entry.path().map_err(damage)?.into_owned();
        if entry.header().entry_type() != EntryType::Regular || !allowed(&path) {
            return Err(BackupError::Damaged);
        }
        let target = staged.join(&path);
        if let Some(folder) = target.parent() {
            files::create_folder(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target)?;
        copy(&mut entry, &mut file)?;
        file.sync_all()?;
    }
    // The archive ends before the file does, and only the last piece proves that nothing is
    // missing.
    copy(&mut archive.into_inner(), &mut io::sink())?;
    let complete = [DATABASE, SECRET_KEY].iter().all(|name| staged.join(name).is_file());
    if !complete {
        return Err(BackupError::Damaged);
    }
    sync_folders(staged)?;
    Ok(())
}

/// Copies, and tells failures of the two ends apart: an archive that cannot be read is damaged, a
/// file that cannot be written is not.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<(), BackupError> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).map_err(damage)?;
        match buffer.get(..length) {
            None | Some([]) => return Ok(()),
            Some(bytes) => to.write_all(bytes)?,
        }
    }
}

fn damage(error: io::Error) -> BackupError {
    match error.kind() {
        // What `OpenReader` and `tar` say of bytes that are not what they should be.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => {
            BackupError::Damaged
        }
        _ => error.into(),
    }
}

/// Whether a backup may hold a file with this path.
fn allowed(path: &Path) -> bool {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return false,
        }
    }
    match names.as_slice() {
        [name] => [DATABASE, SECRET_KEY].iter().any(|known| *name == OsStr::new(known)),
        [folder, ..] => FOLDERS.iter().any(|known| *folder == OsStr::new(known)),
        [] => false,
    }
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    files::sync_folder(folder)
}

/// An archive in the making.
struct Pack<'a, W: Write> {
    archive: &'a mut Builder<W>,
    /// Seconds since the epoch.
    mtime: u64,
}

impl<W: Write> Pack<'_, W> {
    fn bytes(&mut self, name: &Path, bytes: &[u8]) -> io::Result<()> {
        self.append(name, bytes.len() as u64, bytes)
    }

    fn file(&mut self, name: &Path, file: &File) -> io::Result<()> {
        let length = file.metadata()?.len();
        // Journals grow and are cut while they are read. The archive needs the length it was told;
        // zeros at the end of a journal are no frame, and are left out when it is read.
        self.append(name, length, file.chain(io::repeat(0)).take(length))
    }

    fn append(&mut self, name: &Path, length: u64, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_mtime(self.mtime);
        header.set_size(length);
        self.archive.append_data(&mut header, name, content)
    }

    /// The files of a folder and of those in it. Links are not followed, except to the folder itself.
    fn folder(&mut self, path: &Path, name: &Path, depth: usize) -> Result<(), BackupError> {
        let failed = |path: &Path, source| BackupError::File { path: path.to_owned(), source };
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(path, error)),
        };
        if depth > MAX_DEPTH {
            return Err(failed(path, io::Error::other("folders are nested too deep")));
        }
        for entry in entries {
            let entry = entry.map_err(|error| failed(path, error))?;
            let (path, name) = (entry.path(), name.join(entry.file_name()));
            let kind = entry.file_type().map_err(|error| failed(&path, error))?;
            if kind.is_dir() {
                self.folder(&path, &name, depth + 1)?;
            } else if kind.is_file() {
                match File::open(&path) {
                    Ok(file) => self.file(&name, &file)?,
                    // Somebody's half-written file that has its right name by now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(&path, error)),
                }
            }
        }
        Ok(())
    }
}
