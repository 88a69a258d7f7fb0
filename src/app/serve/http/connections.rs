//! The connections of the server: HTTP/1.1 only, a bounded number, each with deadlines, and an end within a stated time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::foundation::base::limits::{
    CONNECTIONS_MAX, REQUEST_HEAD_BYTES_MAX, REQUEST_HEADERS_MAX, SEND_BUFFER_BYTES, SERVER_STOP_S_MAX,
};

/// Pause after an error of the listener, for example if the process has no file left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pause between two looks for an idle connection while all are in use.
const EVICT_PAUSE: Duration = Duration::from_millis(50);

/// What the acceptor knows of a connection.
#[derive(Default)]
struct Connection {
    /// Requests whose responses are not sent.
    requests: AtomicUsize,
    evicted: AtomicBool,
    evict: Notify,
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }
}

/// A request in progress, until its response is sent or dropped.
struct Running(Arc<Connection>);

impl Running {
    fn begin(connection: &Arc<Connection>) -> Self {
        connection.requests.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(connection))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of a response, which ends the request.
struct ResponseBody {
    body: Body,
    _running: Running,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The connections that are open: at most so many. A new one takes the place of the one that has been idle or without a
/// complete request the longest.
struct Open {
    places: Arc<Semaphore>,
    most: usize,
    /// Oldest first; some have ended.
    all: VecDeque<Arc<Connection>>,
}

impl Open {
    fn new(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most, all: VecDeque::new() }
    }

    /// Waits for a place. None only if the semaphore is closed, which it never is.
    async fn place(&mut self) -> Option<(OwnedSemaphorePermit, Arc<Connection>)> {
        let place = loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                break place;
            }
            // A connection that has ended is referred to here alone.
            self.all.retain(|connection| Arc::strong_count(connection) > 1);
            let idle = |one: &&Arc<Connection>| one.is_idle() && !one.evicted.load(Ordering::Relaxed);
            if let Some(oldest) = self.all.iter().find(idle) {
                oldest.evicted.store(true, Ordering::Relaxed);
                oldest.evict.notify_one();
            }
            if let Ok(place) = timeout(EVICT_PAUSE, Arc::clone(&self.places).acquire_owned()).await {
                break place.ok()?;
            }
        };
        if self.all.len() > self.most * 2 {
            self.all.retain(|connection| Arc::strong_count(connection) > 1);
        }
        let connection = Arc::new(Connection::default());
        self.all.push_back(Arc::clone(&connection));
        Some((place, connection))
    }
}

/// Serves `routes` until `stop` resolves. Running requests then have [`SERVER_STOP_S_MAX`] seconds to end; idle
/// connections are closed at once. `silence` is the longest wait for a client that should send or read.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Router,
    (silence, connections_max): (Duration, usize),
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let mut open = Open::new(connections_max.max(1));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let next = async {
            let (stream, _) = listener.accept().await?;
            let place = open.place().await;
            Ok::<_, io::Error>(place.map(|(place, connection)| (stream, place, connection)))
        };
        let accepted = tokio::select! {
            () = &mut stop => break,
            next = next => next,
        };
        while connections.try_join_next().is_some() {}
        let Ok(Some((stream, place, state))) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Tokens are sent at once, without waiting for a full packet.
        drop(stream.set_nodelay(true));
        // Else a stream that nobody reads would be noticed after megabytes.
        drop(SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES));
        let (routes, counted) = (TowerToHyperService::new(routes.clone()), Arc::clone(&state));
        let service = service_fn(move |request: Request<Incoming>| {
            let running = Running::begin(&counted);
            let answered = routes.call(request);
            async move { answered.await.map(|response| response.map(|body| ResponseBody { body, _running: running })) }
        });
        let io = TokioIo::new(TimedStream { stream, silence, deadline: None });
        let mut stopped = stopped.clone();
        connections.spawn(async move {
            let _place = place;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // Also the longest idle time between two requests.
                .header_read_timeout(silence)
                .max_buf_size(REQUEST_HEAD_BYTES_MAX)
                .max_headers(REQUEST_HEADERS_MAX)
                .half_close(false)
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                // The client's errors are the client's.
                _ = connection.as_mut() => return,
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = state.evict.notified() => {}
            }
            connection.as_mut().graceful_shutdown();
            loop {
                let ended = timeout(EVICT_PAUSE, connection.as_mut()).await.is_ok();
                // What is idle after all, or has sent half a request, is not waited for.
                if ended || (state.evicted.load(Ordering::Relaxed) && state.is_idle()) {
                    return;
                }
            }
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let _in_time = timeout(Duration::from_secs(SERVER_STOP_S_MAX), all).await;
    connections.abort_all();
}

/// Half of the files that the process may open, at most [`CONNECTIONS_MAX`].
pub(super) fn connections_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    files.map_or(CONNECTIONS_MAX / 4, |files| files / 2).clamp(1, CONNECTIONS_MAX)
}

/// A connection that ends if the client does not read for a while.
struct TimedStream {
    stream: TcpStream,
    silence: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    /// Begins the deadline when a write has to wait, and ends it when one has succeeded.
    fn within_deadline<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let until = Instant::now() + self.silence;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_deadline(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.within_deadline(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within_deadline(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_deadline(context, ended)
    }
}

/// Waits until `future` is ready, but polls it only while `is_open`; `opened` resolves when that may have changed.
pub(super) async fn paced<F: Future, W: Future<Output = ()>>(
    future: F,
    is_open: impl Fn() -> bool,
    opened: impl Fn() -> W,
) -> F::Output {
    let mut future = pin!(future);
    loop {
        while !is_open() {
            let waiting = opened();
            if !is_open() {
                waiting.await;
            }
        }
        let step = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if !is_open() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(done) = step.await {
            return done;
        }
    }
}
