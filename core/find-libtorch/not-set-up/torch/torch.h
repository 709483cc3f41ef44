// Found only where libtorch's own header is not: the compiler searches this folder last. torch-sys, which
// does not look for libtorch before it compiles, may be first to notice that there is none.
#include "libtorch is not set up: run `cargo xtask setup` in the repository of tch-parallel"
