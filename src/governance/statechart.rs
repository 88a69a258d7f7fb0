//! A pure statechart kernel, and the charts of a piece of work.
