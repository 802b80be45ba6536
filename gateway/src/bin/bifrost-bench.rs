//! The benchmark's door: everything is in [`bifrost_gateway::bench`].

use std::process::ExitCode;

use bifrost_gateway::bench;
use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match bench::run(bench::Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bifrost-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
