//! Requests and responses, whatever protocol carried them.

pub(crate) mod body;
pub(crate) mod exchange;
pub(crate) mod headers;
pub(crate) mod name;
pub(crate) mod pages;
pub(crate) mod pipeline;
pub(crate) mod rescue;
pub(crate) mod response;
pub(crate) mod stages;
