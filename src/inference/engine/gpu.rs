//! Networks on NVIDIA GPUs. Their tensors are listed by the networks on the CPU; here are their storage, the kernels of the
//! layers, and what surrounds the layers.

#[cfg(feature = "cuda")]
mod decode;
#[cfg(feature = "cuda")]
mod decoder;
#[cfg(feature = "cuda")]
pub(super) mod layers;
#[cfg(feature = "cuda")]
mod mamba;
#[cfg(feature = "cuda")]
mod mamba2;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
pub(super) mod network;
#[cfg(feature = "cuda")]
mod plan;
#[cfg(feature = "cuda")]
mod query;
#[cfg(feature = "cuda")]
mod recurrent;
#[cfg(feature = "cuda")]
mod slots;
#[cfg(feature = "cuda")]
mod weights;
