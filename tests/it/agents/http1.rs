//! Reads recorded HTTP/1.1 bytes back into messages. Written for the tests alone: it must not share
//! a mistake with the gateway's HTTP library.

/// One request or response as it was on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Request or status line.
    pub start: String,
    /// Names in lower case, values trimmed, in order.
    pub headers: Vec<(String, String)>,
    /// Without its framing.
    pub body: Vec<u8>,
    /// Whether the framing came to its end.
    pub complete: bool,
}

impl Message {
    /// Method of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// Target of a request.
    pub fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// Status of a response.
    pub fn status(&self) -> u16 {
        let code = self.start.split(' ').nth(1).unwrap_or_default();
        code.parse().unwrap_or(0)
    }
}

/// The requests of one connection with the offset of their first byte.
pub fn requests(bytes: &[u8]) -> Vec<(usize, Message)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((start, headers, body_at)) = head(bytes, at) {
        let (body, end, complete) = body(bytes, body_at, &headers, Framing::Request);
        found.push((
            at,
            Message {
                start,
                headers,
                body,
                complete,
            },
        ));
        at = end;
    }
    found
}

/// The responses of one connection, given the methods of its requests. Interim ones are left out.
pub fn responses(bytes: &[u8], methods: &[String]) -> Vec<Message> {
    let mut found: Vec<Message> = Vec::new();
    let mut at = 0;
    while let Some((start, headers, body_at)) = head(bytes, at) {
        let status: u16 = start
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            at = body_at;
            continue;
        }
        let bodiless =
            methods.get(found.len()).is_some_and(|m| m == "HEAD") || status == 204 || status == 304;
        let framing = if bodiless {
            Framing::None
        } else {
            Framing::Response
        };
        let (body, end, complete) = body(bytes, body_at, &headers, framing);
        found.push(Message {
            start,
            headers,
            body,
            complete,
        });
        at = end;
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    None,
    Request,
    Response,
}

type Head = (String, Vec<(String, String)>, usize);

fn head(bytes: &[u8], at: usize) -> Option<Head> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(4).position(|w| w == b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let start = lines.next()?.to_owned();
    let headers = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    Some((start, headers, at + end + 4))
}

fn body(
    bytes: &[u8],
    at: usize,
    headers: &[(String, String)],
    framing: Framing,
) -> (Vec<u8>, usize, bool) {
    let get = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    if framing == Framing::None {
        return (Vec::new(), at, true);
    }
    if get("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked")) {
        return chunked(bytes, at);
    }
    if let Some(length) = get("content-length").and_then(|v| v.parse::<usize>().ok()) {
        let end = (at + length).min(bytes.len());
        return (bytes[at..end].to_vec(), end, end == at + length);
    }
    if framing == Framing::Request {
        return (Vec::new(), at, true);
    }
    // Until the connection closes: the recording has ended, so it has.
    (bytes[at..].to_vec(), bytes.len(), true)
}

fn chunked(bytes: &[u8], mut at: usize) -> (Vec<u8>, usize, bool) {
    let mut body = Vec::new();
    loop {
        let rest = &bytes[at.min(bytes.len())..];
        let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else {
            return (body, bytes.len(), false);
        };
        let size = String::from_utf8_lossy(&rest[..line]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            return (body, bytes.len(), false);
        };
        let data = at + line + 2;
        if size == 0 {
            // Trailers end with an empty line.
            let tail = &bytes[(data - 2).min(bytes.len())..];
            return match tail.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(end) => (body, data - 2 + end + 4, true),
                None => (body, bytes.len(), false),
            };
        }
        let end = data + size;
        body.extend_from_slice(&bytes[data.min(bytes.len())..end.min(bytes.len())]);
        if end + 2 > bytes.len() {
            return (body, bytes.len(), false);
        }
        at = end + 2;
    }
}

#[test]
fn recorded_bytes_are_read_back() {
    let wire =
        b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
    let read = requests(wire);
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].1.body, b"abc");
    assert_eq!(read[1].0, 42);
    assert_eq!((read[1].1.method(), read[1].1.target()), ("GET", "/b"));

    let wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 529 x\r\n\
        transfer-encoding: chunked\r\n\r\n5\r\nab";
    let read = responses(
        wire,
        &["POST".to_owned(), "HEAD".to_owned(), "POST".to_owned()],
    );
    assert_eq!(read.len(), 3);
    assert_eq!(
        (read[0].body.as_slice(), read[0].complete),
        (&b"abcde"[..], true)
    );
    assert_eq!((read[1].body.len(), read[1].complete), (0, true));
    assert_eq!((read[2].status(), read[2].complete), (529, false));
    assert_eq!(read[2].body, b"ab");
}
