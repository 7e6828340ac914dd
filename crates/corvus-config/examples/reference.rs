//! Prints the reference page of the Document.

#[expect(clippy::print_stdout, reason = "printing is its job")]
fn main() {
    print!("{}", corvus_config::reference::markdown());
}
