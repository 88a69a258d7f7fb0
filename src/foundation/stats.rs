//! Statistics: intervals, quantiles, correlation, AUROC, isotonic fit.

mod isotonic;
mod ranking;

pub use isotonic::{Isotonic, IsotonicError};
pub use ranking::auroc;
