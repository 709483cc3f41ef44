//! From a text to batches of masked sentence pairs.
//!
//! | file | what it holds |
//! |---|---|
//! | `corpus` | [`Corpus`]: pairs of sentences, from a file |
//! | `book.txt` | the default corpus: sentences of this project's book |
//! | `vocab` | [`Vocab`]: the words with a token of their own |
//! | `random` | `PythonRandom`: the numbers that Python's `random` draws |
//! | `dataset` | [`BertDataset`]: pairs with some words masked |

mod corpus;
mod dataset;
mod random;
mod vocab;

pub use corpus::{Corpus, Pair};
pub use dataset::BertDataset;
pub use vocab::{Vocab, VocabOptions};
