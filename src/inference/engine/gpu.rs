//! Networks on NVIDIA GPUs. Their tensors are listed by the networks on the CPU; here are their storage, the kernels of the
//! layers, and what surrounds the layers.

mod decode;
mod decoder;
pub(super) mod layers;
mod mamba;
mod mamba2;
mod memory;
pub(super) mod network;
mod plan;
mod query;
mod recurrent;
mod slots;
mod weights;
