//! How libtorch's backends compute: `torch.backends`.

/// `torch.backends.cudnn`: convolutions on a GPU.
pub mod cudnn {
    /// `torch.backends.cudnn.benchmark = enabled`: whether cuDNN tries its algorithms on the first batch of each shape,
    /// and then takes the fastest. Off by default. The winner may differ from run to run, and with it the last bits.
    pub fn set_benchmark(enabled: bool) {
        tch::Cuda::cudnn_set_benchmark(enabled);
    }

    /// `torch.backends.cudnn.deterministic = enabled`: whether cuDNN computes reproducibly. Off by default.
    pub fn set_deterministic(enabled: bool) {
        c10d_sys::backends::set_cudnn_deterministic(enabled);
    }
}
