//! codertimo's BERT, module by module, with his names, so that either language reads the other's
//! weights.
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | [`ModelOptions`]: how large the model is |
//! | `embedding` | tokens, positions and segments become vectors |
//! | `attention` | every position looks at all others |
//! | `feed_forward` | every position is worked on alone |
//! | `gelu` | the activation between its two layers |
//! | `layer_norm` | codertimo's own normalisation |
//! | `sublayer` | normalise, apply, drop out, add: what goes around both of them |
//! | `transformer_block` | an attention and a feed-forward network |
//! | `bert` | the embedding and a stack of blocks |
//! | `language_model` | [`LanguageModel`]: BERT and its two heads, which is what is trained |

mod attention;
mod bert;
mod embedding;
mod feed_forward;
mod gelu;
mod language_model;
mod layer_norm;
mod options;
mod sublayer;
mod transformer_block;

pub use embedding::MAX_LEN;
pub use language_model::LanguageModel;
pub use options::ModelOptions;
