//! Threads that train the same parameters without a lock: Hogwild! (Niu et al. 2011), `model.share_memory()`.
//!
//! tch's `shallow_clone` returns a second handle to the same memory, which can move to another thread. Two simultaneous
//! in-place operations are then a data race, undefined behaviour, which PyTorch's examples accept. [`AtomicTensor`] is
//! the safe way: it takes a tensor without other handles, and gives threads relaxed atomic reads and subtractions of
//! its elements, all that the paper requires. The cost is one copy per gradient, and element-by-element subtraction.
//!
//! ```
//! use tch::{Tensor, kind::FLOAT_CPU};
//! use tch_parallel::hogwild::AtomicTensor;
//!
//! let parameters = Tensor::zeros([3], FLOAT_CPU);
//! let shared = AtomicTensor::new(parameters).expect("nobody else has the tensor");
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         scope.spawn(|| {
//!             let gradient = shared.load() - 1.0; // of half the square of the distance from 1
//!             shared.fetch_sub_scaled(&gradient, 0.5);
//!         });
//!     }
//! });
//! // 0.75 where one thread has seen the other's step, 1 where it has not.
//! assert!(shared.into_tensor().min().double_value(&[]) >= 0.75);
//! ```

pub use c10d_sys::AtomicTensor;
