use super::*;
use std::{io::BufRead, io::BufReader, net::TcpListener, net::TcpStream};
use std::{sync::Arc, sync::Mutex, thread};

const CONTENT: &[u8] = b"The quick brown fox jumps over the lazy dog";
const FILE: RemoteFile = RemoteFile { name: "fox.gz", md5: "9e107d9d372bb6826bd81d3542a419d6" };

/// How a mirror answers a request.
#[derive(Clone, Copy)]
enum Manner {
    /// Sends what is asked for.
    Honest,
    /// Sends everything, whatever range is asked for.
    NoRanges,
    /// Closes the connection after so many bytes; honest from the second request on.
    CutsOnceAfter(usize),
    /// Closes the connection after so many bytes, every time.
    CutsAfter(usize),
    /// Sends something else.
    Lies,
    /// Knows no such file.
    NotFound,
}

/// A mirror on this machine that keeps a record of the ranges it was asked for.
struct Mirror {
    url: String,
    /// The first byte that each request asked for.
    requests: Arc<Mutex<Vec<usize>>>,
}

impl Mirror {
    fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&requests);
        // It ends with the test program, as does the listener.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer(stream.unwrap(), manner, &record);
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<usize> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, manner: Manner, record: &Mutex<Vec<usize>>) -> io::Result<()> {
    let mut from = 0;
    for line in BufReader::new(&stream).lines() {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        } else if line.is_empty() {
            break;
        }
    }
    let mut requests = record.lock().unwrap();
    requests.push(from);

    let content = if let Manner::Lies = manner { &CONTENT.to_ascii_uppercase() } else { CONTENT };
    let (status, body) = match manner {
        Manner::NotFound => ("404 Not Found", &[][..]),
        Manner::NoRanges => ("200 OK", content),
        _ if from == 0 => ("200 OK", content),
        _ if from >= content.len() => ("416 Range Not Satisfiable", &[][..]),
        _ => ("206 Partial Content", &content[from..]),
    };
    let sent = match manner {
        Manner::CutsAfter(n) => n.min(body.len()),
        Manner::CutsOnceAfter(n) if requests.len() == 1 => n,
        _ => body.len(),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body[..sent])
}

fn fetch_into(dir: &Path, mirrors: &[&Mirror]) -> Result<()> {
    let urls: Vec<_> = mirrors.iter().map(|mirror| mirror.url.as_str()).collect();
    fetch_missing(&[FILE], &urls, dir)
}

/// That the file is whole, and nothing else was left.
fn assert_complete(dir: &Path) {
    assert_eq!(fs::read(dir.join("fox.gz")).unwrap(), CONTENT);
    assert!(!dir.join("fox.gz.part").exists());
}

/// Fetches the file into a directory in which an earlier attempt has left this part of it.
fn expect_complete(part: Option<&[u8]>, mirrors: &[&Mirror]) {
    let dir = tempfile::tempdir().unwrap();
    if let Some(part) = part {
        fs::write(dir.path().join("fox.gz.part"), part).unwrap();
    }
    fetch_into(dir.path(), mirrors).unwrap();
    assert_complete(dir.path());
}

#[test]
fn a_file_is_fetched_once() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::new(Manner::Honest);
    fetch_into(&dir.path().join("new/cache"), &[&mirror]).unwrap();
    fetch_into(&dir.path().join("new/cache"), &[&mirror]).unwrap();
    assert_complete(&dir.path().join("new/cache"));
    assert_eq!(mirror.requests(), [0]);
}

#[test]
fn a_file_is_whole_whatever_an_earlier_attempt_has_left_of_it() {
    let (honest, begun) = (Manner::Honest, &CONTENT[..20]);
    for (name, part, manner, requests) in [
        ("a download that breaks off is resumed", None, Manner::CutsOnceAfter(10), &[0, 10][..]),
        ("a download that was interrupted earlier is resumed", Some(begun), honest, &[20]),
        ("a mirror without ranges begins again", Some(begun), Manner::NoRanges, &[20]),
        ("a part that only lacks its name gets it", Some(CONTENT), honest, &[CONTENT.len()]),
        ("a damaged part is fetched anew", Some(&b"another fox"[..]), honest, &[11, 0]),
        ("a damaged part is fetched anew, even a long one", Some(&[0; 100][..]), honest, &[100, 0]),
    ] {
        let mirror = Mirror::new(manner);
        expect_complete(part, &[&mirror]);
        assert_eq!(mirror.requests(), requests, "{name}");
    }
}

#[test]
fn the_next_mirror_goes_on_where_the_last_one_broke_off() {
    let [broken, honest] = [Manner::CutsAfter(10), Manner::Honest].map(Mirror::new);
    expect_complete(None, &[&broken, &honest]);
    assert_eq!(broken.requests(), [0, 10]);
    assert_eq!(honest.requests(), [20]);
}

#[test]
fn the_next_mirror_is_asked_where_one_lies_or_lacks_the_file() {
    for manner in [Manner::Lies, Manner::NotFound] {
        let [bad, honest] = [manner, Manner::Honest].map(Mirror::new);
        expect_complete(None, &[&bad, &honest]);
        assert_eq!(honest.requests(), [0]);
    }
}

#[test]
fn a_failure_names_every_mirror_and_its_reason_and_leaves_nothing_wrong_behind() {
    let dir = tempfile::tempdir().unwrap();
    let [liar, empty] = [Manner::Lies, Manner::NotFound].map(Mirror::new);
    let error = fetch_into(dir.path(), &[&liar, &empty]).unwrap_err();
    let Error::Io { operation, path, source } = &error else { panic!("{error}") };
    assert_eq!((*operation, path), ("download", &dir.path().join("fox.gz")));
    let sums = "ad2c6db16220e303b9dfe0334985ed30, not 9e107d9d372bb6826bd81d3542a419d6";
    let lies =
        format!("{}/fox.gz: the MD5 checksum is {sums}; the downloaded file was deleted", liar.url);
    let expected = format!("{lies}; {}/fox.gz: answers with status 404", empty.url);
    assert_eq!(source.to_string(), expected);
    assert!(!dir.path().join("fox.gz").exists());
    assert!(!dir.path().join("fox.gz.part").exists());
}

#[test]
fn ranks_that_ask_at_once_fetch_once() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::new(Manner::Honest);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| fetch_into(dir.path(), &[&mirror]).unwrap());
        }
    });
    assert_complete(dir.path());
    assert_eq!(mirror.requests(), [0]);
}
