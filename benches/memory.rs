//! Processor time of reading, scanning and searching the memory: `cargo bench --no-default-features --bench memory -- DIR…`, each DIR a
//! workspace. `scripts/bench-memory.sh` creates the workspaces and compares with the reference implementation.

#![expect(clippy::expect_used, reason = "a benchmark without its workspace has nothing to do")]

use std::hint::black_box;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use loom_agent::foundation::base::limits::CONTRADICTIONS_MAX;
use loom_agent::governance::memory::contradiction::contradictions;
use loom_agent::governance::memory::parse::Document;
use loom_agent::governance::memory::scan::scan;
use loom_agent::governance::memory::scan_input::{active_signatures, contradiction_sides, decisions};
use loom_agent::governance::memory::search::{SearchIndex, SearchQuery};
use loom_agent::governance::memory::state::MemoryConfig;
use loom_agent::governance::memory::workspace::Workspace;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Processor time of this thread if the system reports it (Linux), else wall-clock time.
fn clock() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| EPOCH.elapsed(), Duration::from_nanos)
}

/// Mean time of a run, over enough runs that the clock's resolution does not matter.
fn mean<T>(mut run: impl FnMut() -> T) -> Duration {
    let (begun, start) = (Instant::now(), clock());
    let mut rounds = 0;
    while rounds < 5 || begun.elapsed() < Duration::from_secs(2) {
        black_box(run());
        rounds += 1;
    }
    clock().saturating_sub(start) / rounds
}

fn seconds(duration: Duration) -> String {
    format!("{:>8.2} ms", duration.as_secs_f64() * 1e3)
}

fn main() {
    let folders: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for folder in folders {
        let now = jiff::Timestamp::now();
        let workspace = Workspace::at(Path::new(&folder), now).expect("a workspace");
        let texts = workspace.texts().expect("texts");
        let truth: Vec<&str> = ["decisions/", "tasks/", "entities/"]
            .into_iter()
            .flat_map(|f| texts.under(f))
            .map(|(_, text)| text)
            .collect();
        let bytes: usize = truth.iter().map(|text| text.len()).sum();
        let read = mean(|| workspace.texts());
        let parse = mean(|| truth.iter().map(|text| Document::parse(text).blocks().len()).sum::<usize>());
        let documents = decisions(&texts);
        let signing = mean(|| active_signatures(&documents).len());
        let signatures = active_signatures(&documents);
        let detect = mean(|| contradictions(&contradiction_sides(&signatures), CONTRADICTIONS_MAX).0.len());
        let found = contradictions(&contradiction_sides(&signatures), CONTRADICTIONS_MAX).0.len();
        let day = now.to_zoned(jiff::tz::TimeZone::UTC).date();
        let scanning =
            mean(|| scan(&texts, &MemoryConfig::default(), day, "now").expect("a scan").0.contradictions.len());
        let parsed = texts.parse();
        let indexing = mean(|| SearchIndex::new(&parsed).len());
        let index = SearchIndex::new(&parsed);
        let queries =
            ["cache shard", "queue", "retry budget quota", "D-20200101-007", "tenant cluster backup restore metric"];
        let mut queries = queries.into_iter().cycle();
        let finding = mean(|| {
            let text = queries.next().unwrap_or_default().to_owned();
            index.search(&SearchQuery { text, limit: 10, ..SearchQuery::default() })
        });
        println!("{folder}: {} blocks, {:.1} MB", index.len(), bytes as f64 / 1e6);
        println!("  read from disk          {}", seconds(read));
        println!("  parse                   {}  {:.0} MB/s", seconds(parse), bytes as f64 / 1e6 / parse.as_secs_f64());
        println!("  read signatures         {}", seconds(signing));
        println!("  detect contradictions   {}  {found} found", seconds(detect));
        println!("  whole scan, no disk     {}", seconds(scanning));
        println!("  build the search index  {}", seconds(indexing));
        println!("  search                  {}", seconds(finding));
    }
}
