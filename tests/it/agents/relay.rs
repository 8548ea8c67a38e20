//! A TCP relay that writes down every byte of both directions and changes none. Two of them stand
//! around the gateway, so that what a client sent and what the provider got can be compared without
//! trusting either end.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::http1::{self, Message};

/// One request and what came back.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub request: Message,
    /// `None` when the connection ended before a response head.
    pub response: Option<Message>,
}

/// The bytes of one connection.
#[derive(Default)]
struct Wire {
    up: Vec<u8>,
    down: Vec<u8>,
    /// Where each piece of `up` began and its number among all pieces of the relay.
    arrivals: Vec<(usize, u64)>,
}

/// A connection was reset.
struct Broken;

/// A running relay; it stops when dropped.
pub struct Relay {
    address: SocketAddr,
    wires: Arc<Mutex<Vec<Arc<Mutex<Wire>>>>>,
    troubles: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens on a port of the system's choice and connects each caller with `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let wires: Arc<Mutex<Vec<Arc<Mutex<Wire>>>>> = Arc::default();
        let kept = Arc::clone(&wires);
        let clock = Arc::new(AtomicU64::new(0));
        let troubles: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&troubles);
        let task = tokio::spawn(async move {
            loop {
                let caller = match listener.accept().await {
                    Ok((caller, _)) => caller,
                    Err(error) => {
                        noted.lock().unwrap().push(format!("accept: {error}"));
                        return;
                    }
                };
                let (clock, noted) = (Arc::clone(&clock), Arc::clone(&noted));
                let wire: Arc<Mutex<Wire>> = Arc::default();
                kept.lock().unwrap().push(Arc::clone(&wire));
                tokio::spawn(async move {
                    if let Err(error) = connect(caller, target, wire, clock).await {
                        noted.lock().unwrap().push(format!("connect: {error}"));
                    }
                });
            }
        });
        Self {
            address,
            wires,
            troubles,
            task,
        }
    }

    /// Where callers connect.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What went wrong in the relay itself: a test that fails then says nothing of the gateway.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.lock().unwrap().clone()
    }

    /// Everything so far, in the order in which the requests began.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut all = Vec::new();
        for wire in self.wires.lock().unwrap().iter() {
            let wire = wire.lock().unwrap();
            let requests = http1::requests(&wire.up);
            let methods: Vec<String> = requests
                .iter()
                .map(|(_, r)| r.method().to_owned())
                .collect();
            let mut responses = http1::responses(&wire.down, &methods).into_iter();
            for (offset, request) in requests {
                let piece = wire.arrivals.iter().rfind(|(at, _)| *at <= offset);
                let number = piece.map_or(0, |(_, number)| *number);
                let response = responses.next();
                all.push((number, offset, Exchange { request, response }));
            }
        }
        all.sort_by_key(|(number, offset, _)| (*number, *offset));
        all.into_iter().map(|(_, _, exchange)| exchange).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(
    caller: TcpStream,
    target: SocketAddr,
    wire: Arc<Mutex<Wire>>,
    clock: Arc<AtomicU64>,
) -> io::Result<()> {
    let callee = TcpStream::connect(target).await?;
    caller.set_nodelay(true)?;
    callee.set_nodelay(true)?;
    let (caller_read, caller_write) = caller.into_split();
    let (callee_read, callee_write) = callee.into_split();
    let up = {
        let wire = Arc::clone(&wire);
        pump(caller_read, callee_write, move |bytes| {
            let mut wire = wire.lock().unwrap();
            let at = wire.up.len();
            let number = clock.fetch_add(1, Ordering::Relaxed);
            wire.arrivals.push((at, number));
            wire.up.extend_from_slice(bytes);
        })
    };
    let down = pump(callee_read, caller_write, move |bytes| {
        wire.lock().unwrap().down.extend_from_slice(bytes);
    });
    // The first broken direction drops the other and with it both connections.
    let _ = tokio::try_join!(up, down);
    Ok(())
}

/// Copies one direction. An orderly end is passed on as one; a reset ends both directions and is
/// passed on as a reset.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut note: impl FnMut(&[u8]),
) -> Result<(), Broken> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) => {
                // The other side may be gone already; then there is nobody to tell.
                let _ = to.shutdown().await;
                return Ok(());
            }
            Ok(n) => {
                // Noted first: whoever has seen the effect of bytes finds them in the record.
                note(&buffer[..n]);
                if to.write_all(&buffer[..n]).await.is_err() {
                    let _ = from.as_ref().set_zero_linger();
                    return Err(Broken);
                }
            }
            Err(_) => {
                let _ = to.as_ref().set_zero_linger();
                // Dropping the half would send an orderly end before the reset.
                to.forget();
                return Err(Broken);
            }
        }
    }
}
