//! Floor 4: measurements that many answers or many runs make together.

pub mod confidence;
