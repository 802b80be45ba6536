//! nginx as a plain proxy: what the least work between client and provider costs on this machine.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::measure::Provider;
use super::place::Place;
use super::process::{self, Process};
use crate::machine::{self, Machine};

const START_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);

/// An nginx that passes everything on to one provider; it ends on drop.
pub(super) struct Nginx {
    process: Process,
    address: SocketAddr,
    log: PathBuf,
}

impl Nginx {
    /// What it says of its version; none where it is not installed.
    pub(super) fn version() -> Option<String> {
        let (status, said) = process::said("nginx".as_ref(), ["-v"]).ok()?;
        status.success().then(|| {
            said.strip_prefix("nginx version: ")
                .unwrap_or(&said)
                .to_owned()
        })
    }

    /// Starts one, and waits until it listens.
    pub(super) fn start(place: &Place, provider: &Provider) -> anyhow::Result<Self> {
        // It can't tell which port it took. Nobody else takes this one in the meantime but by rare chance.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = place.file("nginx");
        fs::create_dir_all(&directory)?;
        let settings = directory.join("nginx.conf");
        fs::write(&settings, config(address, provider, &directory))?;
        let log = directory.join("log");
        let arguments: [PathBuf; 6] = [
            "-p".into(),
            directory,
            "-c".into(),
            settings,
            "-e".into(),
            "stderr".into(),
        ];
        let out = (Stdio::null(), File::create(&log)?.into());
        let mut process = Process::start("nginx".as_ref(), arguments, &[], out)?;
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if process.has_ended() || begun.elapsed() > START_MAX {
                bail!("nginx did not start: {}", fs::read_to_string(&log)?.trim());
            }
            thread::sleep(POLL);
        }
        Ok(Self {
            process,
            address,
            log,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Who it is, for an error: its log's end tells more.
    pub(super) fn last_words(&self) -> String {
        format!("nginx, whose log ends with {}", process::end_of(&self.log))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// As many workers as processors, each with a queue of its own for new connections, as the gateway's runtimes have; they
/// keep their connections, with buffers that a page's answer fits into, and streams passed on as they
/// come. As many connections as descriptors allow, two for a request.
fn config(address: SocketAddr, provider: &Provider, directory: &Path) -> String {
    let descriptors = machine::descriptor_limit().unwrap_or(20_000).min(65_536);
    let connections = descriptors.saturating_sub(1_000).max(256);
    let keepalive = connections / 2;
    let workers = Machine::new().vcpus().max(1);
    let (scheme, trust) = match &provider.certificate {
        Some(file) => ("https", trust(file)),
        None => ("http", String::new()),
    };
    let provider = provider.url.trim_start_matches("http://");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {}/{name};\n", directory.display()));
    format!(
        "daemon off;\nworker_processes {workers};\nworker_rlimit_nofile {descriptors};\npid {directory}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n    access_log off;\n    tcp_nodelay on;\n    keepalive_requests 1000000;\n    client_max_body_size 64m;\n\
         {temporary}    upstream provider {{ server {provider}; keepalive {keepalive}; keepalive_requests 1000000; }}\n\
         \x20   server {{\n        listen {address} reuseport backlog=4096;\n        location / {{\n            proxy_pass {scheme}://provider;\n{trust}\
         \x20           proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n            proxy_buffering off;\n\
         \x20           proxy_buffer_size 16k;\n            proxy_buffers 8 16k;\n            client_body_buffer_size 128k;\n        }}\n    }}\n}}\n",
        directory = directory.display(),
        temporary = temporary.concat(),
    )
}

/// It takes a provider's certificate for what it is, as a gateway does, and keeps its sessions.
fn trust(certificate: &Path) -> String {
    format!(
        "            proxy_ssl_verify on;\n            proxy_ssl_trusted_certificate {};\n\
         \x20           proxy_ssl_name localhost;\n            proxy_ssl_protocols TLSv1.2 TLSv1.3;\n",
        certificate.display()
    )
}

/// Says why there is none, for who asked for it.
pub(super) fn is_installed() -> anyhow::Result<String> {
    Nginx::version()
        .context("--nginx: nginx is not installed here (Debian's package is nginx-light)")
}
