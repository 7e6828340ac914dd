//! Where a Document says a secret or a certificate is: `file:PATH`, `${ENV}`, or the text itself.

use std::{
    env,
    fs::File,
    io::{self, Read},
};

/// No chain or key comes near this; `file:/dev/zero` must end.
const MAX_BYTES: u64 = 1 << 20;

/// Why a reference leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("the file `{path}` cannot be read")]
    File { path: String, source: io::Error },
    #[error("the file `{path}` is larger than {MAX_BYTES} bytes")]
    TooLarge { path: String },
    #[error("the environment variable `{0}` is not set")]
    Environment(String),
}

/// The bytes a reference leads to. A relative path is taken from the working directory.
pub(crate) fn read(reference: &str) -> Result<Vec<u8>, ReferenceError> {
    let reference = reference.trim();
    if let Some(path) = reference.strip_prefix("file:") {
        return read_file(path);
    }
    if let Some(name) = reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
        return env::var_os(name)
            .map(std::ffi::OsString::into_encoded_bytes)
            .ok_or_else(|| ReferenceError::Environment(name.to_owned()));
    }
    Ok(reference.as_bytes().to_vec())
}

fn read_file(path: &str) -> Result<Vec<u8>, ReferenceError> {
    let failed = |source| ReferenceError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReferenceError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_for_itself() {
        assert_eq!(read(" -----BEGIN X-----\n").unwrap(), b"-----BEGIN X-----");
    }

    #[test]
    fn an_environment_variable_is_read() {
        // Cargo sets this one for every test.
        assert_eq!(read("${CARGO_PKG_NAME}").unwrap(), b"corvus-tls");
        let error = read("${CORVUS_NO_SUCH_VARIABLE}").unwrap_err();
        assert!(error.to_string().contains("CORVUS_NO_SUCH_VARIABLE"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read("file:/nonexistent/own.pem").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/own.pem"), "{error}");
    }

    #[test]
    fn an_endless_file_ends() {
        assert!(matches!(read("file:/dev/zero"), Err(ReferenceError::TooLarge { .. })));
    }
}
