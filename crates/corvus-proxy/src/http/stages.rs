//! One file a stage.

pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod own_paths;
pub(crate) mod parse;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod redirect;
pub(crate) mod response;
pub(crate) mod upstream;
