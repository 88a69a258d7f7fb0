//! What the server has done so far, for Prometheus (text exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;

use crate::foundation::chat::Usage;

/// Upper bounds of the latency histogram, seconds.
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
    /// How many took at most each bound.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

/// Up by one as long as it is held.
pub(super) struct Held {
    metrics: Arc<Metrics>,
    gauge: fn(&Metrics) -> &AtomicI64,
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request under way; counted when it is dropped, which is when the last of its answer has been sent.
pub(super) struct Timed {
    metrics: Arc<Metrics>,
    endpoint: &'static str,
    begun: Instant,
    pub(super) status: StatusCode,
}

impl Drop for Timed {
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
    /// A request has come. Until its answer is known, it counts as one whose client left (status 499, as nginx has it).
    pub(super) fn begin(self: &Arc<Self>, endpoint: &'static str) -> Timed {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        Timed { metrics: Arc::clone(self), endpoint, begun: Instant::now(), status }
    }

    /// A sequence is at work.
    pub(super) fn sequence(self: &Arc<Self>) -> Held {
        self.held(|metrics| &metrics.sequences)
    }

    /// A request waits for its turn.
    pub(super) fn wait(self: &Arc<Self>) -> Held {
        self.held(|metrics| &metrics.waiting)
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        usize::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn held(self: &Arc<Self>, gauge: fn(&Self) -> &AtomicI64) -> Held {
        gauge(self).fetch_add(1, Ordering::Relaxed);
        Held { metrics: Arc::clone(self), gauge }
    }

    pub(super) fn used(&self, usage: Usage) {
        self.tokens_in.fetch_add(usage.tokens_in, Ordering::Relaxed);
        self.tokens_cached.fetch_add(usage.tokens_cached, Ordering::Relaxed);
        self.tokens_out.fetch_add(usage.tokens_out, Ordering::Relaxed);
    }

    /// Everything, as a page.
    pub(super) fn page(&self) -> String {
        let mut page = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(page, "# HELP loom_requests_total Requests answered, by endpoint and status; 499: the client left.")?;
        writeln!(page, "# TYPE loom_requests_total counter")?;
        for (name, endpoint) in requests.iter() {
            for (status, count) in &endpoint.by_status {
                writeln!(page, "loom_requests_total{{endpoint=\"{name}\",status=\"{status}\"}} {count}")?;
            }
        }
        writeln!(page, "# HELP loom_request_seconds Time from a request to the end of its answer.")?;
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
            ("loom_tokens_in_total", "Tokens of prompts, cached ones included.", &self.tokens_in),
            ("loom_tokens_cached_total", "Tokens of prompts that needed no reading.", &self.tokens_cached),
            ("loom_tokens_out_total", "Tokens written.", &self.tokens_out),
        ];
        for (name, help, value) in counters {
            let value = value.load(Ordering::Relaxed);
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}")?;
        }
        let gauges = [
            ("loom_sequences_active", "Sequences at work.", &self.sequences),
            ("loom_requests_waiting", "Requests that wait for their turn.", &self.waiting),
        ];
        for (name, help, value) in gauges {
            let value = value.load(Ordering::Relaxed);
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")?;
        }
        Ok(())
    }
}
