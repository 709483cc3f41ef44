//! What a module that is trained in parallel can take and return.

use std::collections::BTreeMap;
use tch::Tensor;

/// One or several tensors. Scattering inputs, gathering outputs and preparing a backward pass must find all of them.
///
/// Implemented for tensors, tuples, arrays, vectors, `BTreeMap`s and options, nested in any way, and for [`Shared`]
/// values; [`Replicated`] tensors are not split. Your struct needs two functions, or three to pass [`Replicated`] ones
/// on:
///
/// ```
/// use tch::{Tensor, kind::FLOAT_CPU};
/// use tch_parallel::{Devices, Tensors, data_parallel::scatter};
///
/// struct Batch {
///     images: Tensor,
///     labels: Tensor,
/// }
///
/// impl Tensors for Batch {
///     fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
///         f(&mut self.images);
///         f(&mut self.labels);
///     }
///
///     fn shallow_clone(&self) -> Self {
///         Batch { images: self.images.shallow_clone(), labels: self.labels.shallow_clone() }
///     }
/// }
///
/// let ones = |size: &[i64]| Tensor::ones(size, FLOAT_CPU);
/// let batch = Batch { images: ones(&[8, 3]), labels: ones(&[8]) };
/// let devices: Devices = "2xcpu".parse()?;
/// let chunks = scatter(&batch, &devices, 0)?;
/// assert_eq!(chunks[1].images.size(), [4, 3]);
/// assert_eq!(chunks[1].labels.size(), [4]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// PyTorch looks through tuples, lists and dictionaries at run time.
pub trait Tensors: Sized {
    /// Calls `f` on each tensor, always in the same order.
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor));

    /// The same tensors in a new structure; no data is copied.
    fn shallow_clone(&self) -> Self;

    /// Calls `f` on each tensor that must not be split: those in [`Replicated`].
    fn visit_replicated(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        let _ = f;
    }
}

/// Tensors that every replica gets whole, on its own device: class weights, say, or a mask. They get no gradient.
#[derive(Debug)]
pub struct Replicated<T>(
    /// What each replica gets a copy of.
    pub T,
);

impl<T: Tensors> Tensors for Replicated<T> {
    fn visit(&mut self, _: &mut dyn FnMut(&mut Tensor)) {}

    fn shallow_clone(&self) -> Self {
        Replicated(self.0.shallow_clone())
    }

    fn visit_replicated(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        self.0.visit(f);
    }
}

/// A value that is not a tensor: every replica gets a clone, as with PyTorch's `scatter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shared<T>(
    /// What each replica gets.
    pub T,
);

impl<T: Clone> Tensors for Shared<T> {
    fn visit(&mut self, _: &mut dyn FnMut(&mut Tensor)) {}

    fn shallow_clone(&self) -> Self {
        self.clone()
    }
}

impl Tensors for Tensor {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        f(self);
    }

    fn shallow_clone(&self) -> Self {
        Tensor::shallow_clone(self)
    }
}

macro_rules! containers {
    ($(($($parameters:tt)+) $Container:ty, $iter_mut:ident, $parts:ident => $clone:expr),+) => {$(
        impl<$($parameters)+> Tensors for $Container {
            fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
                self.$iter_mut().for_each(|part| part.visit(f));
            }

            fn shallow_clone(&self) -> Self {
                let $parts = self;
                $clone
            }

            fn visit_replicated(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
                self.$iter_mut().for_each(|part| part.visit_replicated(f));
            }
        }
    )+};
}

containers!(
    (T: Tensors) Vec<T>, iter_mut, parts => parts.iter().map(T::shallow_clone).collect(),
    (T: Tensors, const N: usize) [T; N], iter_mut, parts => parts.each_ref().map(T::shallow_clone),
    (T: Tensors) Option<T>, iter_mut, part => part.as_ref().map(T::shallow_clone),
    (K: Ord + Clone, T: Tensors) BTreeMap<K, T>, values_mut, parts => {
        parts.iter().map(|(key, part)| (key.clone(), part.shallow_clone())).collect()
    }
);

/// No tensors: the inputs of a module that takes none.
impl Tensors for () {
    fn visit(&mut self, _: &mut dyn FnMut(&mut Tensor)) {}

    fn shallow_clone(&self) -> Self {}
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),+)),+) => {$(
        impl<$($part: Tensors),+> Tensors for ($($part,)+) {
            fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
                $(self.$index.visit(f);)+
            }

            fn shallow_clone(&self) -> Self {
                ($(self.$index.shallow_clone(),)+)
            }

            fn visit_replicated(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
                $(self.$index.visit_replicated(f);)+
            }
        }
    )+};
}

tuples!(
    (A 0),
    (A 0, B 1),
    (A 0, B 1, C 2),
    (A 0, B 1, C 2, D 3),
    (A 0, B 1, C 2, D 3, E 4),
    (A 0, B 1, C 2, D 3, E 4, F 5)
);

/// The strides of images `[N, C, H, W]` whose channels are last in memory; `None` for other sizes.
pub fn channels_last_strides(size: &[i64]) -> Option<Vec<i64>> {
    let &[_, channels, height, width] = size else { return None };
    Some(vec![height * width * channels, 1, width * channels, channels])
}

/// All tensors, in order.
pub fn list<T: Tensors>(tensors: &T) -> Vec<Tensor> {
    let mut found = Vec::new();
    tensors.shallow_clone().visit(&mut |tensor| found.push(tensor.shallow_clone()));
    found
}

/// The structure of `pattern`, with its tensors replaced by `tensors`, of which there are as many.
pub fn fill<T: Tensors>(pattern: &T, tensors: impl IntoIterator<Item = Tensor>) -> T {
    let mut filled = pattern.shallow_clone();
    let mut tensors = tensors.into_iter();
    filled.visit(&mut |place| {
        if let Some(tensor) = tensors.next() {
            *place = tensor;
        }
    });
    filled
}

/// The items in lists of equal keys, in the order in which each key first comes.
pub fn grouped<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let mut lists: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match lists.iter_mut().find(|(found, _)| *found == key) {
            Some((_, list)) => list.push(item),
            None => lists.push((key, vec![item])),
        }
    }
    lists.into_iter().map(|(_, list)| list).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T: Tensors>(tensors: &T) -> Vec<i64> {
        list(tensors).iter().map(|tensor| tensor.int64_value(&[])).collect()
    }

    #[test]
    fn every_tensor_of_a_nested_structure_is_found_in_order() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Tensor::from);
        let nested = (vec![a, b], Some(c), (None::<Tensor>, Shared("not a tensor"), d));
        assert_eq!(numbers(&nested), [1, 2, 3, 4]);
    }

    #[test]
    fn a_structure_is_filled_with_other_tensors() {
        let pattern = (Tensor::from(0), vec![Tensor::from(0)], Shared(7));
        let filled = fill(&pattern, [5, 6].map(Tensor::from));
        assert_eq!(numbers(&filled), [5, 6]);
        assert_eq!(filled.2, Shared(7));
        assert_eq!(numbers(&pattern), [0, 0]);
    }
}
