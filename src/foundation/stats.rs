//! Statistics: intervals, quantiles, correlation, AUROC, isotonic fit.
