//! Reports on finished runs, and on those still under way: read a results folder, aggregate, write JSON,
//! Markdown and one HTML page.
//!
//! What stands in a report follows from the transcripts alone, so the same transcripts give the same bytes; what a clock
//! measured is kept to one section, `timing`.

mod aggregate;
mod compare;
mod curves;
mod data;
mod export;
mod flags;
mod html;
mod left_out;
mod load;
mod markdown;
mod notation;
mod stored;
mod write;

pub use compare::{Compared, Comparison, DifferenceRow};
pub use data::{
    Answered, EventRow, FailureRow, Flag, LeftOut, Mean, PhaseRow, PromptRow, Report, ReportTiming, RolloutRow,
    ScoreRow, SideRow, StoredPoint, StoredScore, StretchRow, TurnRow,
};
pub use export::{ExportFormat, export};
pub use load::{Loaded, ReportError, load};
