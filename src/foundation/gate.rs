//! `Rights`, `Lease`, `Permit`: an effect needs a permit, and only the gate makes one. Knows no mood.
