//! Every path against the portable reference, bit for bit, and the reference against f64.

mod bits;
mod values;
