//! Reports on finished and running runs: reads a results folder, aggregates it, and writes JSON, Markdown and one HTML
//! page.
//!
//! A report is a function of the transcripts: the same transcripts give the same bytes, except for the section `timing`.

mod aggregate;
mod compare;
mod curves;
mod data;
mod export;
mod flags;
mod html;
mod omitted;
mod load;
mod markdown;
mod panels;
mod format;
mod stored;
mod summary;
mod verdict;
mod write;

pub use compare::{ComparedFolder, Comparison, DifferenceRow};
pub use data::{
    EventRow, FailureRow, Flag, JudgeAgreement, ModelMessageCount, OmittedSentence, ParticipantRow, PhaseRow,
    PromptRow, RegulatorRow, Report, ReportTiming, RolloutRow, ScoreRow, StandstillRow, StoredPoint, StoredScore,
    TurnRow,
};
pub use export::{ExportFormat, export};
pub use load::{LoadedRollout, ReportError, load};
pub use summary::{IntervalOf, Mean, RolloutInterval, bounds, interval};
pub use verdict::{Aspect, AspectVerdict, DecidingTurn, Held, Verdict};
