//! Reports on finished runs, and on those still under way: read a results folder, aggregate, write JSON and Markdown.
//!
//! What stands in a report follows from the transcripts alone, so the same transcripts give the same bytes; what a clock
//! measured is kept to one section, `timing`.

mod aggregate;
mod curves;
mod data;
mod flags;
mod load;
mod markdown;
mod write;

pub use data::{
    Answered, EventRow, FailureRow, Flag, Mean, PhaseRow, Report, ReportTiming, RolloutRow, ScoreRow, SideRow,
    StretchRow, TurnRow,
};
pub use load::{Loaded, ReportError, load};
