//! Names that clients choose leave nothing behind: no line on a page, no place in the segment, no memory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use crate::process::{Demo, Place};

/// The admin listener's pages, and how many entries they may gain.
const PAGES: [(&str, usize); 2] = [("/stats", 0), ("/metrics", 0)];
const REQUESTS: u32 = 20_000;
/// Until a runtime has gone round the 4,096 places in which it hands over records, it touches new memory: 1.4 MB with
/// two runtimes, measured. Then nothing grows: within 70 KB over 45,000 requests.
const WARM: u32 = 8_000;
const CLIENTS: u32 = 4;
/// 10 bytes a request: less than it takes to keep the shortest of its names.
const HEAP_GROWTH_KB_MAX: u64 = 200;

/// What may not grow.
#[derive(Debug)]
struct Sizes {
    /// Entries of each page.
    pages: Vec<usize>,
    segment_bytes: u64,
    heap_kb: u64,
}

impl Sizes {
    fn of(gateway: &Demo, place: &Place) -> Self {
        // A page has an entry a line, or, as JSON, a comma.
        let entries = |page: &str| page.split([',', '\n']).count();
        let pages = PAGES.map(|(path, _)| {
            let answer = gateway.get_admin(path);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            entries(&answer)
        });
        let files = fs::read_dir(place.segments()).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", gateway.process.id())).unwrap();
        // The segment is mapped, and its rings fill up whatever is asked; what is remembered is in the heap.
        let heap = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        Self {
            pages: pages.to_vec(),
            segment_bytes: files
                .map(|file| file.unwrap().metadata().unwrap().len())
                .sum(),
            heap_kb: heap
                .unwrap()
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .unwrap(),
        }
    }
}

/// Asks for a model, at a path, as a program, that nobody has asked for yet, and checks the answer's status.
fn ask(connection: &mut TcpStream, number: u32) {
    let (path, model, status) = match number % 3 {
        0 => (String::new(), format!("listed/{number}"), 404),
        1 => (format!("/{number}"), format!("demo/{number}"), 404),
        // The demo's provider has whatever model it is asked for.
        _ => (format!("?{number}"), format!("demo/{number}"), 200),
    };
    let body =
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{number}"}}]}}"#);
    // In one piece: an answer that needs no body does not wait for one, and ends a connection on which it is still to come.
    let request = format!(
        "POST /v1/chat/completions{path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: program/{number}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).unwrap();
    let answer = read(connection);
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
}

/// A whole answer with a length.
fn read(connection: &mut TcpStream) -> String {
    let mut bytes = vec![];
    loop {
        let mut buffer = [0; 4096];
        let count = connection.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return text.into_owned();
            }
        }
    }
}

/// Asks with each of the numbers once, over a few connections.
fn ask_all(gateway: &Demo, numbers: std::ops::Range<u32>) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mine = numbers
                .clone()
                .skip(client as usize)
                .step_by(CLIENTS as usize);
            scope.spawn(move || {
                let mut connection = TcpStream::connect(&gateway.address).unwrap();
                connection.set_nodelay(true).unwrap();
                mine.for_each(|number| ask(&mut connection, number));
            });
        }
    });
}

#[test]
fn names_that_clients_choose_are_not_kept() {
    let place = Place::new();
    // Of this provider's models, what clients ask for is none.
    let settings = "[server]\nworkers = 1\n[providers.listed]\nbase_url = 'http://127.0.0.1:9/v1'\nmodels = ['a']\n\
                    [admin]\nlisten = '127.0.0.1:0'\n[log]\nformat = 'json'\n";
    let file = place.settings("gateway.toml", settings);
    let flags = ["--config", file.to_str().unwrap(), "--demo-delay", "0s"];
    let gateway = Demo::start(&place, &flags);
    ask_all(&gateway, 0..WARM);
    let before = Sizes::of(&gateway, &place);

    ask_all(&gateway, WARM..WARM + REQUESTS);

    let after = Sizes::of(&gateway, &place);
    for ((page, growth_max), (before, after)) in PAGES
        .into_iter()
        .zip(before.pages.into_iter().zip(after.pages))
    {
        assert!(
            before > 1 && after <= before + growth_max,
            "{page}: {before}, then {after}"
        );
    }
    assert_eq!(after.segment_bytes, before.segment_bytes);
    let (before, after) = (before.heap_kb, after.heap_kb);
    assert!(
        after < before + HEAP_GROWTH_KB_MAX,
        "{before} KB, then {after} KB"
    );
}
