//! codertimo's BERT, module by module, with his names, so that either language reads the other's
//! weights.
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | [`ModelOptions`]: how large the model is |
//! | `bert` | [`LanguageModel`]: BERT and its two heads, which is what is trained |
//! | `embedding` | tokens, positions and segments become vectors |
//! | `transformer` | one block: an attention and a feed-forward network |

mod bert;
mod embedding;
mod options;
mod transformer;

use embedding::MAX_LEN;

pub use bert::LanguageModel;
pub use options::ModelOptions;
