//! How libtorch's backends compute: `torch.backends`.

/// `torch.backends.cudnn`: convolutions on a GPU.
pub mod cudnn {
    /// `torch.backends.cudnn.benchmark = enabled`: whether cuDNN tries its algorithms on the first
    /// batch of each shape, and takes the fastest from then on. Off until it is set. Which one wins may
    /// differ from run to run, and with it the last bits.
    pub fn set_benchmark(enabled: bool) {
        tch::Cuda::cudnn_set_benchmark(enabled);
    }

    /// `torch.backends.cudnn.deterministic = enabled`: whether cuDNN takes only algorithms that give
    /// the same bits in every run. Off until it is set.
    pub fn set_deterministic(enabled: bool) {
        c10d_sys::backends::set_cudnn_deterministic(enabled);
    }
}
