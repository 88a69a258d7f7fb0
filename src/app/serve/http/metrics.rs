//! The server's metrics in Prometheus' text format (0.0.4).

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use crate::foundation::chat::Usage;

/// Upper bounds of the latency histogram's buckets in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

/// Counters and gauges.
pub(super) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    tokens_in: IntCounter,
    tokens_cached: IntCounter,
    tokens_out: IntCounter,
    sequences: IntGauge,
    waiting: IntGauge,
}

/// Increments a gauge until it is dropped.
pub(super) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn of(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
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
        self.metrics.requests.with_label_values(&[self.endpoint, self.status.as_str()]).inc();
        self.metrics.seconds.with_label_values(&[self.endpoint]).observe(self.begun.elapsed().as_secs_f64());
    }
}

impl Metrics {
    /// All metrics at zero.
    ///
    /// # Errors
    /// If two metrics have one name or a name is invalid, which the tests exclude.
    pub(super) fn new() -> prometheus::Result<Self> {
        let requests =
            Opts::new("loom_requests_total", "Requests by endpoint and status; 499: the client disconnected.");
        let seconds = HistogramOpts::new("loom_request_seconds", "Time from the request to the end of the response.");
        let metrics = Self {
            registry: Registry::new(),
            requests: IntCounterVec::new(requests, &["endpoint", "status"])?,
            seconds: HistogramVec::new(seconds.buckets(BOUNDS.to_vec()), &["endpoint"])?,
            tokens_in: IntCounter::new("loom_tokens_in_total", "Prompt tokens, including cached ones.")?,
            tokens_cached: IntCounter::new("loom_tokens_cached_total", "Cached prompt tokens.")?,
            tokens_out: IntCounter::new("loom_tokens_out_total", "Generated tokens.")?,
            sequences: IntGauge::new("loom_sequences_active", "Active sequences.")?,
            waiting: IntGauge::new("loom_requests_waiting", "Waiting requests.")?,
        };
        let registry = &metrics.registry;
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        for counter in [&metrics.tokens_in, &metrics.tokens_cached, &metrics.tokens_out] {
            registry.register(Box::new(counter.clone()))?;
        }
        for gauge in [&metrics.sequences, &metrics.waiting] {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(metrics)
    }

    /// Starts the timer of a request. Until its response is known, its status is 499, client disconnected (as in
    /// nginx).
    pub(super) fn begin(self: &Arc<Self>, endpoint: &'static str) -> RequestTimer {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        RequestTimer { metrics: Arc::clone(self), endpoint, begun: Instant::now(), status }
    }

    /// Counts an active sequence.
    pub(super) fn sequence(&self) -> GaugeGuard {
        GaugeGuard::of(&self.sequences)
    }

    /// Counts a waiting request.
    pub(super) fn wait(&self) -> GaugeGuard {
        GaugeGuard::of(&self.waiting)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        usize::try_from(self.waiting.get()).unwrap_or(0)
    }

    /// The number of active sequences, those that wait for the engine included.
    pub(super) fn sequences(&self) -> usize {
        usize::try_from(self.sequences.get()).unwrap_or(0)
    }

    pub(super) fn used(&self, usage: Usage) {
        self.tokens_in.inc_by(usage.tokens_in);
        self.tokens_cached.inc_by(usage.tokens_cached);
        self.tokens_out.inc_by(usage.tokens_out);
    }

    /// All metrics as text.
    pub(super) fn page(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
