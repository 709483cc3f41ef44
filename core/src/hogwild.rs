//! Threads of one process that train on the same parameters without a lock: Hogwild! (Niu et al.
//! 2011), PyTorch's `model.share_memory()`.
//!
//! Two threads that write to one place need an agreement. Rust asks for it: what a thread changes it
//! borrows by `&mut`, which nobody else can do meanwhile, so a program in which two threads subtract
//! their steps from one `Vec<f32>` does not compile. tch's tensors slip through: `shallow_clone` gives
//! a second handle to the same memory, which may go to another thread, and two in-place operations
//! at once are a race that no compiler sees; what it leads to is undefined. PyTorch's examples of
//! Hogwild live with that.
//!
//! [`AtomicTensor`] is the one door: it takes a tensor that nobody else has, and gives threads
//! relaxed atomic reads and subtractions of its elements, all that the paper asks for. What it costs is
//! a copy for each gradient, and subtractions that are made one by one.
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
