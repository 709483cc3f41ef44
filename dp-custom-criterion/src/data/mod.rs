//! From a text to batches of masked sentence pairs.
//!
//! | file | what it holds |
//! |---|---|
//! | `corpus` | [`Corpus`]: pairs of sentences, from a file |
//! | `book` | the default corpus, made from this project's book |
//! | `vocab` | [`Vocab`]: the words that have a token of their own |
//! | `random` | `PythonRandom`: the numbers that Python's `random` draws |
//! | `dataset` | [`BertDataset`]: pairs of which some words are masked |

mod book;
mod corpus;
mod dataset;
mod random;
mod vocab;

pub use book::corpus as book_corpus;
pub use corpus::Corpus;
pub use dataset::BertDataset;
pub use vocab::{Vocab, VocabOptions};
