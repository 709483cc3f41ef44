//! Automatic mixed precision: `torch.amp`. Products and convolutions run in 16 bits, what needs full range in 32.
//!
//! ```
//! use tch::{Device, Kind, Tensor, nn};
//! use tch_parallel::amp::{GradScaler, GradScalerOptions, autocast};
//! use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
//!
//! # let (images, labels) = (Tensor::ones([4, 8], (Kind::Float, Device::Cpu)), Tensor::from_slice(&[0i64, 1, 2, 0]));
//! let vs = nn::VarStore::new(Device::Cpu);
//! let model = nn::linear(vs.root() / "fc", 8, 3, Default::default());
//! let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
//! let mut scaler = GradScaler::new(GradScalerOptions::default())?;
//!
//! // The forward pass and the loss inside; the backward pass takes the kinds that it finds.
//! let loss = autocast(vs.device(), Some(Kind::Half), || {
//!     images.apply(&model).cross_entropy_for_logits(&labels)
//! })?;
//! optimizer.zero_grad()?;
//! scaler.scale(&loss)?.backward();
//! scaler.step(&mut optimizer)?;
//! scaler.update()?;
//! assert_eq!(scaler.get_scale()?, 65536.0); // no gradient has overflowed
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! [`Kind::BFloat16`](tch::Kind::BFloat16) has the range of 32 bits and needs no scaler.

mod grad_scaler;

pub use grad_scaler::{GradScaler, GradScalerOptions, GradScalerState};
#[doc(inline)]
pub use tch_parallel_base::autocast;
