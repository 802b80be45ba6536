//! A proxy that opens tunnels: whatever the target's name, they lead to one address.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

pub struct Tunnel {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Tunnel {
    pub async fn start(leads_to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(vec![]));
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(tunnel(stream, leads_to, Arc::clone(&shared)));
            }
        });
        Self { address, seen }
    }

    /// The first line of each request, in order.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn tunnel(mut client: TcpStream, leads_to: SocketAddr, seen: Arc<Mutex<Vec<String>>>) {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock()
        .unwrap()
        .push(head.lines().next().unwrap().to_owned());
    let mut server = TcpStream::connect(leads_to).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
