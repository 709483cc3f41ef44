//! How ranks meet, and the group that they make. Uses `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `env` | [`Env`]: this process's place in the job, as launchers describe it |
//! | `rendezvous`, `open_files` | how ranks meet, and whether a process may open enough files for it |
//! | `store` | [`Store`]: a job's key-value store, and how a process comes to it |
//! | `device`, `gpus` | [`DeviceChoice`]: a rank's device; [`Backend`]: what moves its tensors; which GPUs a rank sees |
//! | `transport` | [`Transport`]: sockets or shared memory |
//! | `place` | a rank's place in a group |
//! | `process_group`, `destroy` | [`ProcessGroup`]: the ranks of a job; how one leaves it |
//! | `init`, `new_group` | [`init_process_group`]: makes this process a rank; groups of some ranks |
//! | `device_mesh` | [`DeviceMesh`]: ranks in several dimensions, with a group along each |

mod destroy;
mod device;
mod device_mesh;
mod env;
mod gpus;
mod init;
mod new_group;
mod open_files;
mod place;
mod process_group;
mod rendezvous;
mod store;
mod transport;

pub use device::{Backend, DeviceChoice, device_of_rank};
pub use device_mesh::DeviceMesh;
pub use env::Env;
pub use init::{ProcessGroupOptions, init_process_group};
pub use process_group::ProcessGroup;
pub(crate) use process_group::Standing;
pub use store::Store;
pub(crate) use store::{digest, expect_no_member};
pub use transport::Transport;
