//! The server's metrics in Prometheus' text format (0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;

use crate::foundation::chat::Usage;

/// Upper bounds of the latency histogram's buckets in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

/// Counters and gauges.
#[derive(Default)]
pub(super) struct Metrics {
    requests: Mutex<BTreeMap<&'static str, PerEndpoint>>,
    tokens_in: AtomicU64,
    tokens_cached: AtomicU64,
    tokens_out: AtomicU64,
    sequences: AtomicI64,
    waiting: AtomicI64,
}

#[derive(Default)]
struct PerEndpoint {
    by_status: BTreeMap<u16, u64>,
    /// Requests up to each bound.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

/// Increments a gauge until it is dropped.
pub(super) struct GaugeGuard {
    metrics: Arc<Metrics>,
    gauge: fn(&Metrics) -> &AtomicI64,
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running request; counted when it is dropped, after the end of its response was sent.
pub(super) struct RequestTimer {
    metrics: Arc<Metrics>,
    endpoint: &'static str,
    begun: Instant,
    pub(super) status: StatusCode,
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut requests = self.metrics.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = requests.entry(self.endpoint).or_default();
        *endpoint.by_status.entry(self.status.as_u16()).or_default() += 1;
        endpoint.count += 1;
        endpoint.seconds += seconds;
        for (bucket, bound) in endpoint.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
    }
}

impl Metrics {
    /// Starts the timer of a request. Until its response is known, its status is 499, client disconnected (as in
    /// nginx).
    pub(super) fn begin(self: &Arc<Self>, endpoint: &'static str) -> RequestTimer {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        RequestTimer { metrics: Arc::clone(self), endpoint, begun: Instant::now(), status }
    }

    /// Counts an active sequence.
    pub(super) fn sequence(self: &Arc<Self>) -> GaugeGuard {
        self.increment(|metrics| &metrics.sequences)
    }

    /// Counts a waiting request.
    pub(super) fn wait(self: &Arc<Self>) -> GaugeGuard {
        self.increment(|metrics| &metrics.waiting)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        usize::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The number of active sequences, those that wait for the engine included.
    pub(super) fn sequences(&self) -> usize {
        usize::try_from(self.sequences.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn increment(self: &Arc<Self>, gauge: fn(&Self) -> &AtomicI64) -> GaugeGuard {
        gauge(self).fetch_add(1, Ordering::Relaxed);
        GaugeGuard { metrics: Arc::clone(self), gauge }
    }

    pub(super) fn used(&self, usage: Usage) {
        self.tokens_in.fetch_add(usage.tokens_in, Ordering::Relaxed);
        self.tokens_cached.fetch_add(usage.tokens_cached, Ordering::Relaxed);
        self.tokens_out.fetch_add(usage.tokens_out, Ordering::Relaxed);
    }

    /// All metrics as text.
    pub(super) fn page(&self) -> String {
        let mut page = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(page, "# HELP loom_requests_total Requests by endpoint and status; 499: the client disconnected.")?;
        writeln!(page, "# TYPE loom_requests_total counter")?;
        for (name, endpoint) in requests.iter() {
            for (status, count) in &endpoint.by_status {
                writeln!(page, "loom_requests_total{{endpoint=\"{name}\",status=\"{status}\"}} {count}")?;
            }
        }
        writeln!(page, "# HELP loom_request_seconds Time from the request to the end of the response.")?;
        writeln!(page, "# TYPE loom_request_seconds histogram")?;
        for (name, endpoint) in requests.iter() {
            for (bound, count) in BOUNDS.iter().zip(endpoint.buckets) {
                writeln!(page, "loom_request_seconds_bucket{{endpoint=\"{name}\",le=\"{bound}\"}} {count}")?;
            }
            writeln!(page, "loom_request_seconds_bucket{{endpoint=\"{name}\",le=\"+Inf\"}} {}", endpoint.count)?;
            writeln!(page, "loom_request_seconds_sum{{endpoint=\"{name}\"}} {}", endpoint.seconds)?;
            writeln!(page, "loom_request_seconds_count{{endpoint=\"{name}\"}} {}", endpoint.count)?;
        }
        let counters = [
            ("loom_tokens_in_total", "Prompt tokens, including cached ones.", &self.tokens_in),
            ("loom_tokens_cached_total", "Cached prompt tokens.", &self.tokens_cached),
            ("loom_tokens_out_total", "Generated tokens.", &self.tokens_out),
        ];
        for (name, help, value) in counters {
            let value = value.load(Ordering::Relaxed);
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}")?;
        }
        let gauges = [
            ("loom_sequences_active", "Active sequences.", &self.sequences),
            ("loom_requests_waiting", "Waiting requests.", &self.waiting),
        ];
        for (name, help, value) in gauges {
            let value = value.load(Ordering::Relaxed);
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")?;
        }
        Ok(())
    }
}
