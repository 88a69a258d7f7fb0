//! Every path against the portable reference, bit for bit, and the reference against f64.
#![expect(clippy::float_cmp, reason = "the tests check bit equality")]
#![expect(clippy::single_range_in_vec_init, reason = "lists of segments, some of one")]

mod bits;
mod parts;
mod quantised;
mod rows;
mod values;
