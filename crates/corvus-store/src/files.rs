//! Files that are there whole or not at all.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Makes a file that only its owner may read. It appears under its name when it is on the disk, and
/// never in place of another.
pub(crate) fn create_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let folder =
        path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // `tempfile` makes its files with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    sync_folder(folder)
}

/// Waits until the names in a folder are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder that only its owner may enter, if it is not there.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
