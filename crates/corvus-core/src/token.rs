//! Signed admission and place tokens of the access queue.
