//! PyramidNet trained four ways side by side, and the ImageNet trainer, after matthew l's "Learn
//! PyTorch Multi-GPU properly".

fn main() {}
