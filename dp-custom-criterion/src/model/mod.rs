//! codertimo's BERT, module by module, with his names, so that either language reads the other's weights.
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | [`ModelOptions`]: how large the model is |
//! | `bert` | [`LanguageModel`]: the embedding, the blocks and two heads, which is what is trained |
//! | `transformer` | one block: an attention and a feed-forward network |

mod bert;
mod options;
mod transformer;

pub use bert::LanguageModel;
pub use options::ModelOptions;
pub use transformer::{Layer, transformer_block};
