//! The collectives that pass tensors on as they are: gather, scatter and all-to-all.

use super::arguments::{Output, check_length, check_list, handles, inputs, plain, received};
use super::pending::Pending;
use super::reductions::{flatten_alike, parts_like};
use crate::{Error, Result, check, distributed::group::ProcessGroup};
use tch::Tensor;

impl ProcessGroup {
    /// All ranks' tensors, in their order, on every rank. `tensor` must have the same shape on all. `dist.all_gather`.
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        self.at_once().all_gather_async(tensor.shallow_clone())?.wait()
    }

    /// [`all_gather`](Self::all_gather) that returns before it has finished.
    pub fn all_gather_async(&self, tensor: Tensor) -> Result<Pending<Vec<Tensor>>> {
        let (own, kind) = (plain(&tensor)?, tensor.f_kind()?);
        let outputs = self.one_like(&own)?;
        let work = self.engine().all_gather(&outputs, &own, self.call());
        self.pending("all_gather", work, move |_| {
            outputs.into_iter().map(|output| received(output, kind)).collect()
        })
    }

    /// [`all_gather`](Self::all_gather) of several tensors of one kind as one exchange; returns each rank's list.
    /// `dist.all_gather_coalesced`.
    pub fn all_gather_coalesced(&self, tensors: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let rows = self.all_gather(&flatten_alike(tensors)?)?;
        rows.iter().map(|row| parts_like(tensors, row)).collect()
    }

    /// [`all_gather`](Self::all_gather) into one, along its first dimension. `dist.all_gather_into_tensor`.
    ///
    /// `output` is `[ranks * N, ..]` or `[ranks, N, ..]` for an `input` of `[N, ..]`.
    #[doc(alias = "all_gather_single")]
    pub fn all_gather_into_tensor(&self, output: &mut Tensor, input: &Tensor) -> Result<()> {
        let (output, input) = (output.shallow_clone(), input.shallow_clone());
        self.at_once().all_gather_into_tensor_async(output, input)?.wait().map(drop)
    }

    /// [`all_gather_into_tensor`](Self::all_gather_into_tensor) that returns before it has finished.
    pub fn all_gather_into_tensor_async(
        &self,
        output: Tensor,
        input: Tensor,
    ) -> Result<Pending<Tensor>> {
        self.check_parts("output", &output, "input", &input)?;
        let written = Output::new(&output)?;
        let part = plain(&input)?.f_atleast_1d()?;
        let whole = self.in_parts(&written.tensor, &part)?;
        let work = self.engine().all_gather_into_tensor(&whole, &part, self.call());
        self.pending("all_gather_into_tensor", work, |_| written.finish().map(|()| output))
    }

    /// All ranks' tensors, in their order, on rank `dst`; `None` on the others. All have one shape. `dist.gather`.
    pub fn gather(&self, tensor: &Tensor, dst: usize) -> Result<Option<Vec<Tensor>>> {
        self.at_once().gather_async(tensor.shallow_clone(), dst)?.wait()
    }

    /// [`gather`](Self::gather) that returns before it has finished.
    pub fn gather_async(&self, tensor: Tensor, dst: usize) -> Result<Pending<Option<Vec<Tensor>>>> {
        self.check_rank("dst", dst)?;
        let (own, kind) = (plain(&tensor)?, tensor.f_kind()?);
        let is_here = self.rank() == dst;
        let outputs = if is_here { self.one_like(&own)? } else { Vec::new() };
        let work = self.engine().gather(&outputs, &own, dst, self.call());
        self.pending("gather", work, move |_| {
            let outputs = outputs.into_iter().map(|output| received(output, kind));
            outputs.collect::<Result<Vec<_>>>().map(|outputs| is_here.then_some(outputs))
        })
    }

    /// Copies `scatter_list[r]` of rank `src` into rank r's `tensor`. The list is `None` on the
    /// other ranks. All tensors have the same shape and kind. `dist.scatter`.
    ///
    /// ```
    /// use tch::Tensor;
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let parts: Vec<Tensor> = (0..group.world_size()).map(|r| Tensor::from(r as i64)).collect();
    /// let mut own = Tensor::from(-1i64);
    /// group.scatter(&mut own, (group.rank() == 0).then_some(&parts[..]), 0)?;
    /// assert_eq!(own.int64_value(&[]), group.rank() as i64);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn scatter(
        &self,
        tensor: &mut Tensor,
        scatter_list: Option<&[Tensor]>,
        src: usize,
    ) -> Result<()> {
        let (tensor, scatter_list) = (tensor.shallow_clone(), scatter_list.map(handles));
        self.at_once().scatter_async(tensor, scatter_list, src)?.wait().map(drop)
    }

    /// [`scatter`](Self::scatter) that returns before it has finished.
    pub fn scatter_async(
        &self,
        tensor: Tensor,
        scatter_list: Option<Vec<Tensor>>,
        src: usize,
    ) -> Result<Pending<Tensor>> {
        self.check_source("scatter_list", scatter_list.as_ref().map(Vec::len), src)?;
        let list = scatter_list.unwrap_or_default();
        if self.rank() == src {
            check_list("scatter_list", &list, &tensor)?;
        }
        let (output, list) = (Output::new(&tensor)?, inputs(&list)?);
        let work = self.engine().scatter(&output.tensor, &list, src, self.call());
        self.pending("scatter", work, |_| output.finish().map(|()| tensor))
    }

    /// Refuses a list given anywhere but on rank `src`, or without one value per rank.
    pub(crate) fn check_source(&self, what: &str, length: Option<usize>, src: usize) -> Result<()> {
        self.check_rank("src", src)?;
        let (rank, ranks) = (self.rank(), self.world_size());
        let Some(length) = length else {
            let expected = format_args!("one value per rank, {ranks}");
            return check(rank != src, what, "None on rank src", expected);
        };
        let expected = format_args!("None there, because rank {src} has the values");
        check(rank == src, what, format_args!("a list on rank {rank}"), expected)?;
        check_length(what, length, ranks)
    }

    /// Copies `input_list[r]` of this rank into rank r's `output_list[q]`, where q is this rank.
    /// All tensors have the same shape and kind, as gloo demands in Python too; for parts of any
    /// size, there is [`all_to_all_single`](Self::all_to_all_single). `dist.all_to_all`.
    pub fn all_to_all(&self, output_list: &mut [Tensor], input_list: &[Tensor]) -> Result<()> {
        let [outputs, inputs] = [&*output_list, input_list].map(handles);
        self.at_once().all_to_all_async(outputs, inputs)?.wait().map(drop)
    }

    /// [`all_to_all`](Self::all_to_all) that returns before it has finished.
    pub fn all_to_all_async(
        &self,
        output_list: Vec<Tensor>,
        input_list: Vec<Tensor>,
    ) -> Result<Pending<Vec<Tensor>>> {
        let ranks = self.world_size();
        check_length("output_list", output_list.len(), ranks)?;
        check_length("input_list", input_list.len(), ranks)?;
        check_list("output_list", &output_list, &input_list[0])?;
        check_list("input_list", &input_list, &input_list[0])?;
        let outputs: Vec<_> = output_list.iter().map(Output::new).collect::<Result<_>>()?;
        let wire: Vec<_> = outputs.iter().map(|output| output.tensor.shallow_clone()).collect();
        let work = self.engine().all_to_all(&wire, &inputs(&input_list)?, self.call());
        self.pending("all_to_all", work, |_| {
            outputs.into_iter().try_for_each(Output::finish).map(|()| output_list)
        })
    }

    /// [`all_to_all`](Self::all_to_all) of one tensor's parts along the first dimension. `dist.all_to_all_single`.
    ///
    /// Part r of `input` has `input_split_sizes[r]` rows and goes to rank r; part r of `output` has
    /// `output_split_sizes[r]` rows and comes from rank r. If both lists are empty, all parts have
    /// equally many rows; they must then be empty on all ranks.
    pub fn all_to_all_single(
        &self,
        output: &mut Tensor,
        input: &Tensor,
        output_split_sizes: &[i64],
        input_split_sizes: &[i64],
    ) -> Result<()> {
        let (output, input) = (output.shallow_clone(), input.shallow_clone());
        let (group, [to, from]) = (self.at_once(), [output_split_sizes, input_split_sizes]);
        group.all_to_all_single_async(output, input, to, from)?.wait().map(drop)
    }

    /// [`all_to_all_single`](Self::all_to_all_single) that returns before it has finished.
    pub fn all_to_all_single_async(
        &self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: &[i64],
        input_split_sizes: &[i64],
    ) -> Result<Pending<Tensor>> {
        let (found, kind) = (output.f_kind()?, input.f_kind()?);
        let expected = format_args!("of {kind:?}");
        check(found == kind, "output", format_args!("of {found:?}"), expected)?;
        let (to, from) = (output_split_sizes, input_split_sizes);
        self.check_splits(["output", "output_split_sizes"], &output, to)?;
        self.check_splits(["input", "input_split_sizes"], &input, from)?;
        let [found, size] = [&output, &input].map(Tensor::size);
        let expected = format_args!("of rows like those of the input, which is {size:?}");
        check(found[1..] == size[1..], "output", format_args!("of shape {found:?}"), expected)?;
        let (written, sent) = (Output::new(&output)?, plain(&input)?);
        let engine = self.engine();
        let work = engine.all_to_all_single(&written.tensor, &sent, to, from, self.call());
        self.pending("all_to_all_single", work, |_| written.finish().map(|()| output))
    }

    fn check_splits(&self, [what, name]: [&str; 2], tensor: &Tensor, splits: &[i64]) -> Result<()> {
        let ranks = self.world_size();
        let size = tensor.size();
        let Some(&rows) = size.first() else {
            return Err(Error::argument(what, "a single number", "of one row or more per rank"));
        };
        if splits.is_empty() {
            let is_even = rows % ranks as i64 == 0;
            let expected =
                format_args!("of as many rows for each of {ranks} ranks: otherwise pass {name}");
            return check(is_even, what, format_args!("of {rows} rows"), expected);
        }
        check_length(name, splits.len(), ranks)?;
        let sum = splits.iter().try_fold(0i64, |sum, &rows| sum.checked_add(rows));
        let are_parts = splits.iter().all(|&rows| rows >= 0) && sum == Some(rows);
        let expected = format_args!("the parts of {rows} rows, the size of {what}");
        check(are_parts, name, format_args!("{splits:?}"), expected)
    }

    fn one_like(&self, own: &Tensor) -> Result<Vec<Tensor>> {
        (0..self.world_size()).map(|_| Ok(own.f_empty_like()?)).collect()
    }
}
