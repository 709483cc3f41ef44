//! The networks: PyramidNet and ResNet.
