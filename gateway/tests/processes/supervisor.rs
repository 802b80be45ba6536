//! What systemd hears of a gateway over its life.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Place, gateway};

#[test]
fn a_supervisor_hears_of_start_reload_and_stop_and_that_it_is_alive() {
    let place = Place::new();
    let socket_path = place.segments().join("notify");
    let socket = UnixDatagram::bind(&socket_path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // The next message that is none of the beats in between.
    let hears = |what: &str| {
        let mut datagram = [0; 256];
        loop {
            let length = socket.recv(&mut datagram).unwrap();
            let said = std::str::from_utf8(&datagram[..length]).unwrap();
            if said.starts_with(what) {
                return;
            }
            assert_eq!(said, "WATCHDOG=1", "instead of {what}");
        }
    };

    let mut process = gateway()
        .args(["--demo", "--listen", "127.0.0.1:0", "--segment"])
        .arg(place.segments())
        .env("BIFROST_TELEMETRY__INSTANCE_METADATA", "off")
        .env("BIFROST_ADMIN__LISTEN", "127.0.0.1:0")
        .env("NOTIFY_SOCKET", &socket_path)
        .env("WATCHDOG_USEC", "200000")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&process);

    hears("READY=1");
    hears("WATCHDOG=1");
    kill_process(pid, Signal::HUP).unwrap();
    hears("RELOADING=1\nMONOTONIC_USEC=");
    hears("READY=1");
    kill_process(pid, Signal::TERM).unwrap();
    hears("STOPPING=1");
    assert!(process.wait().unwrap().success());
}
