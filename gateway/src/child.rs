//! What a child process of ours does for itself: [`demo::Child`](crate::demo::Child) is the same agreement seen from
//! its parent.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;

use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;

use crate::machine;

/// How the line begins in which a child says where it listens.
pub(crate) const LISTENING_ON: &str = "listening on ";

/// One runtime on this thread, with as many descriptors as the system grants: each request in flight holds one.
pub(crate) fn runtime() -> io::Result<Runtime> {
    machine::raise_descriptor_limit()?;
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Tells the parent, in the first line of standard output, where to reach this process.
pub(crate) fn announce(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{LISTENING_ON}{address}")?;
    out.flush()
}

/// Waits until standard input ends, which it does when the parent closes it or is gone, however it went.
///
/// A thread reads it, since a read of a pipe can't be given up: at the end of `main` the thread goes with the process.
pub(crate) async fn parent_gone() {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        // An input that can't be read has no more to say than one that has ended.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = tell.send(());
    });
    // The thread either tells or has panicked; both mean that nobody watches the parent any more.
    let _ = told.await;
}
