//! Collectives through shared memory have the bits of gloo's.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use c10d_sys::{ProcessGroup, ReduceOp};
use common::{NOW, Now, Random, Rank, allocated, bits, with_ranks};
use tch::{Device, Kind, Tensor};
use tests::run_by;

use Exchange::*;

const KINDS: [Kind; 8] = {
    use Kind::*;
    [Float, Double, Half, BFloat16, Int64, Int, Int8, Uint8]
};
const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];

/// The collective of a case.
#[derive(Debug, Clone, Copy)]
enum Exchange {
    AllReduce,
    ReduceScatter,
    AllGather,
    Gather,
    Reduce,
    Scatter,
    AllToAll,
    /// Of several tensors as one.
    ReduceScatterParts,
    AllGatherParts,
    /// Of [`ROWS`] rows on each rank, of which two or three count.
    AddRows,
}

const ROWS: i64 = 3;

/// Per rank.
const VIRTUAL_RANKS: i64 = 7;

/// Where a collective writes its results, if not to its input.
#[derive(Debug, Clone, Copy)]
enum Output {
    Elsewhere,
    /// To this rank's part of the longer of the two tensors.
    InPlace,
    /// Across the borders of the ranks' parts.
    Across,
}

/// What one case exchanges.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Kind,
    op: ReduceOp,
    len: i64,
    values: Values,
    /// Whether the tensor lies in shared memory; by rank, since all do only sometimes.
    in_arena: u64,
    /// Where its output lies, also by rank.
    outputs: u64,
}

#[derive(Debug, Clone, Copy)]
enum Values {
    /// Large and small, so that the order of additions shows.
    Mixed,
    /// Any bits: denormals, infinities, NaN.
    Bits,
    /// Zeros of both signs, and denormals.
    Tiny,
}

impl Case {
    fn number(number: u64, longest: u64) -> Case {
        let mut random = Random(number);
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let op = OPS[random.below(OPS.len() as u64) as usize];
        let values = [Values::Mixed, Values::Bits, Values::Tiny][random.below(3) as usize];
        // Every order of magnitude is as likely; many near powers of two.
        let bits = random.below(u64::from(longest.ilog2()) + 1);
        let len = match random.below(4) {
            0 => (1 << bits) + random.below(3),
            _ => (1 << bits) + random.below(1 << bits),
        };
        let in_arena = [0, u64::MAX, random.below(u64::MAX)][random.below(3) as usize];
        let op = if is_integer(kind) && op == ReduceOp::Avg { ReduceOp::Sum } else { op };
        let outputs = random.below(u64::MAX);
        Case { kind, op, len: len.clamp(1, longest) as i64, values, in_arena, outputs }
    }

    fn output(&self, rank: usize) -> Output {
        let outputs = [Output::Elsewhere, Output::InPlace, Output::Across];
        outputs[((self.outputs >> (8 * rank) & 0xff) % 3) as usize]
    }

    fn tensor(&self, number: u64, rank: usize) -> Tensor {
        let seed = Random(number ^ ((rank as u64 + 1) << 40)).below(u64::MAX);
        let bytes = random_bytes(seed, self.len as usize * self.kind.elt_size_in_bytes());
        let any = Tensor::f_from_data_size(&bytes, &[self.len], self.kind).unwrap();
        if is_integer(self.kind) {
            return any;
        }
        match self.values {
            Values::Bits => any,
            // The bits of a random number as its value: from 1e-9 to 1e9.
            Values::Mixed => {
                let bytes = random_bytes(!seed, self.len as usize);
                let exponents = Tensor::from_data_size(&bytes, &[self.len], Kind::Int8);
                let exponents = exponents.to_kind(Kind::Float) * 0.07;
                let signs = any.nan_to_num(1.0, 1.0, -1.0).sign().to_kind(Kind::Float);
                (exponents.exp() * signs * 1.234_567_9).to_kind(self.kind)
            }
            Values::Tiny => {
                let tiny = match self.kind {
                    Kind::Double => 5e-324,
                    Kind::Half => 6e-8,
                    _ => 1e-45,
                };
                let count = any.nan_to_num(1.0, 3.0, -3.0).clamp(-9.0, 9.0).round();
                (count.to_kind(Kind::Double) * tiny).to_kind(self.kind)
            }
        }
    }
}

fn is_integer(kind: Kind) -> bool {
    matches!(kind, Kind::Int64 | Kind::Int | Kind::Int8 | Kind::Uint8)
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.below(u64::MAX).to_ne_bytes()).take(len).collect()
}

/// The bits, but zero where two NaN may have met: which of them survives an addition is up to the compiler.
fn defined_bits(out: &Tensor, exchange: Exchange, case: &Case, seed: u64, rank: &Rank) -> Vec<u8> {
    let is_order = matches!(case.op, ReduceOp::Min | ReduceOp::Max);
    if is_integer(case.kind) || is_order || i64::try_from(out.isnan().any()).unwrap() == 0 {
        return bits(out);
    }
    let not_finite = |rank| case.tensor(seed, rank).isfinite().logical_not().to_kind(Kind::Int);
    let mut count = (0..rank.ranks).map(not_finite).reduce(|sum, each| sum + each).unwrap();
    let has_parts = matches!(exchange, ReduceScatter | ReduceScatterParts);
    if let AddRows = exchange {
        count = count.view([ROWS, -1]).sum_dim_intlist(0, false, Kind::Int);
    }
    if has_parts {
        count = count.chunk(rank.ranks as i64, 0).swap_remove(rank.rank);
    }
    // The bits of NaN after a division depend on the position in the tensor, and PyTorch's own additions have others.
    let differs = matches!(exchange, AddRows) || (has_parts && case.op == ReduceOp::Avg);
    let undefined = out.isnan().logical_and(&count.ge(if differs { 1 } else { 2 }));
    bits(&out.masked_fill(&undefined, 0.0))
}

/// Divides rows of this length: where each part begins, and its length. One has no values.
fn parts(length: i64) -> [(i64, i64); 4] {
    let [first, second] = [length / 7, length / 3];
    [(0, first), (first, 0), (first, second - first), (second, length - second)]
}

/// The sum of these virtual ranks: of two halves, unless one rank has all of them. Then it is the next of its rows.
fn branch(first: i64, last: i64, rows: &mut [Vec<Tensor>]) -> Tensor {
    let rank = first / VIRTUAL_RANKS;
    if last <= (rank + 1) * VIRTUAL_RANKS {
        return rows[rank as usize].remove(0);
    }
    let middle = first + ((last - first) as u64).next_power_of_two() as i64 / 2;
    branch(first, middle, rows) + branch(middle, last, rows)
}

/// Runs the collective and returns this rank's result. `copy` allocates its tensors.
fn exchanged(
    group: &ProcessGroup,
    exchange: Exchange,
    tensor: &Tensor,
    op: ReduceOp,
    rank: &Rank,
    (output, copy): (Output, &dyn Fn(&Tensor) -> Tensor),
) -> Tensor {
    let (own, ranks, len) = (rank.rank as i64, rank.ranks as i64, tensor.numel() as i64);
    let zeros = |len| copy(&Tensor::zeros([len], (tensor.kind(), Device::Cpu)));
    // Any rank, and the same on all.
    let root = len as usize % rank.ranks;
    let at_root = |it: &Tensor| if rank.rank == root { it.chunk(ranks, 0) } else { Vec::new() };
    let part_of = |input: &Tensor| match (output, len / ranks) {
        (Output::Elsewhere, part) => zeros(part),
        (Output::InPlace, part) => input.narrow(0, own * part, part),
        (Output::Across, part) => input.narrow(0, part / 2, part),
    };
    match exchange {
        AllReduce => {
            let both = copy(tensor);
            group.all_reduce(&both, op, NOW).now().unwrap();
            both
        }
        ReduceScatterParts if group.no_shared_memory().is_none() => {
            let (rows, output) = (tensor.view([ranks, len / ranks]), zeros(len / ranks));
            let inputs = parts(len / ranks).map(|(at, length)| copy(&rows.narrow(1, at, length)));
            group.reduce_scatter_parts(&output, &inputs, op, NOW).now().unwrap();
            output
        }
        AllGatherParts if group.no_shared_memory().is_none() => {
            let inputs = parts(len).map(|(begin, length)| copy(&tensor.narrow(0, begin, length)));
            let outputs = parts(len).map(|(_, length)| zeros(ranks * length).view([ranks, length]));
            group.all_gather_parts(&outputs, &inputs, NOW).now().unwrap();
            Tensor::cat(&outputs, 1).view([ranks * len])
        }
        AddRows if group.no_shared_memory().is_none() => {
            let rows = copy(tensor).view([ROWS, len / ROWS]);
            group.add_rows(&rows, (VIRTUAL_RANKS * ranks) as usize, NOW).now().unwrap();
            let own = tensor.view([ROWS, len / ROWS]).narrow(0, 1, ROWS - 1);
            assert_eq!(bits(&rows.narrow(0, 1, ROWS - 1)), bits(&own), "the other rows stay");
            rows.get(0).copy()
        }
        AddRows => {
            let rows = zeros(ranks * len);
            group.all_gather_into_tensor(&rows, tensor, NOW).now().unwrap();
            let rows = rows.view([ranks, ROWS, len / ROWS]).unbind(0);
            let own = rows.iter().map(|own| own.unbind(0));
            branch(0, VIRTUAL_RANKS * ranks, &mut own.collect::<Vec<_>>())
        }
        ReduceScatter | ReduceScatterParts => {
            let input = copy(tensor);
            let output = part_of(&input);
            group.reduce_scatter_tensor(&output, &input, op, NOW).now().unwrap();
            output
        }
        Reduce => {
            let both = copy(tensor);
            // Gloo's reduce has no average.
            let op = if op == ReduceOp::Avg { ReduceOp::Sum } else { op };
            group.reduce(&both, root, op, NOW).now().unwrap();
            // Elsewhere it is undefined.
            if rank.rank == root { both } else { both.zeros_like() }
        }
        Scatter => {
            let input = copy(tensor);
            let output = part_of(&input);
            group.scatter(&output, &at_root(&input), root, NOW).now().unwrap();
            output
        }
        AllToAll => {
            let input = copy(tensor);
            let output = match output {
                Output::Elsewhere => zeros(len),
                _ => input.shallow_clone(),
            };
            // Sums as lists.
            if op == ReduceOp::Sum {
                let parts = |tensor: &Tensor| tensor.chunk(ranks, 0);
                group.all_to_all(&parts(&output), &parts(&input), NOW).now().unwrap();
            } else {
                group.all_to_all_single(&output, &input, &[], &[], NOW).now().unwrap();
            }
            output
        }
        Gather => {
            let outputs = zeros(ranks * len);
            group.gather(&at_root(&outputs), &copy(tensor), root, NOW).now().unwrap();
            outputs
        }
        AllGather | AllGatherParts => {
            let outputs = zeros(ranks * len);
            let input = match output {
                Output::Elsewhere => copy(tensor),
                Output::InPlace => outputs.narrow(0, own * len, len),
                Output::Across => outputs.narrow(0, len / 2, len),
            };
            input.shallow_clone().copy_(tensor);
            group.all_gather_into_tensor(&outputs, &input, NOW).now().unwrap();
            outputs
        }
    }
}

/// Runs case `number` on this rank, and returns whether the bits are gloo's.
fn bits_are_gloos(rank: &Rank, exchange: Exchange, number: u64, longest: u64) -> bool {
    let mut case = Case::number(number, longest);
    if let ReduceScatter | ReduceScatterParts | Scatter | AllToAll = exchange {
        case.len = (case.len as u64).next_multiple_of(rank.ranks as u64) as i64;
    }
    if let AddRows = exchange {
        case.op = ReduceOp::Sum;
        case.len = (case.len as u64).next_multiple_of(ROWS as u64) as i64;
    }
    let tensor = case.tensor(number, rank.rank);
    let anywhere = |tensor: &Tensor| match case.in_arena >> rank.rank & 1 {
        1 => allocated(&rank.shared, tensor),
        _ => tensor.copy(),
    };
    let there = (case.output(rank.rank), &anywhere as &dyn Fn(&Tensor) -> Tensor);
    let gloos_own = (Output::Elsewhere, &Tensor::copy as &dyn Fn(&Tensor) -> Tensor);
    let ours = exchanged(&rank.shared, exchange, &tensor, case.op, rank, there);
    let gloos = exchanged(&rank.gloo, exchange, &tensor, case.op, rank, gloos_own);
    let is_copy = matches!(exchange, AllGather | AllGatherParts | Gather | Scatter | AllToAll);
    let [ours, gloos] = [ours, gloos].map(|result| match is_copy {
        true => bits(&result),
        false => defined_bits(&result, exchange, &case, number, rank),
    });
    let differ = (0..ours.len()).find(|i| ours[*i] != gloos[*i]);
    if let Some(byte) = differ {
        eprintln!("{exchange:?}, {} ranks, case {number}, {case:?}: byte {byte}", rank.ranks);
    }
    differ.is_none()
}

/// With a number of cases in EXCHANGE_CASES, that many on 2 to 8 ranks each, of up to 10,000,000 numbers.
#[test]
fn every_exchange_has_gloos_bits() {
    let more = std::env::var("EXCHANGE_CASES").ok();
    let of_tensors = [AllReduce, ReduceScatter, AllGather, Gather, Reduce, Scatter, AllToAll];
    for exchange in of_tensors.into_iter().chain([ReduceScatterParts, AllGatherParts, AddRows]) {
        let longest = match exchange {
            AllReduce | Reduce => 100_000,
            AddRows => 600_000,
            _ => 300_000,
        };
        let (ranks, cases, longest) = match &more {
            None => (vec![2, 3, 5], 100, longest),
            Some(cases) => ((2..9).collect(), cases.parse().unwrap(), 10_000_000),
        };
        for ranks in ranks {
            let others = with_ranks(ranks, |rank| {
                assert_eq!(rank.shared.no_shared_memory(), None);
                assert_eq!(rank.gloo.no_shared_memory().unwrap(), "it is switched off");
                let other = |number: &u64| !bits_are_gloos(&rank, exchange, *number, longest);
                (0..cases).filter(other).count()
            });
            assert_eq!(others, vec![0; ranks], "{exchange:?}, {ranks} ranks");
        }
    }
}

fn sum_of_mixed(len: i64) -> Case {
    let (kind, op, values) = (Kind::Float, ReduceOp::Sum, Values::Mixed);
    Case { kind, op, len, values, ..Case::number(0, 1000) }
}

#[run_by(with_ranks(3))]
fn a_long_sum_has_the_bits_of_gloos_ring(rank: Rank) {
    // Longer than 1 MiB per rank and half, where gloo divides chunks further.
    let case = sum_of_mixed(2_500_001);
    let [ours, gloos] = [&rank.shared, &rank.gloo].map(|group| {
        let [sum, roots] = [(); 2].map(|()| case.tensor(1, rank.rank));
        group.all_reduce(&sum, case.op, NOW).now().unwrap();
        group.reduce(&roots, 1, case.op, NOW).now().unwrap();
        [bits(&sum), if rank.rank == 1 { bits(&roots) } else { Vec::new() }]
    });
    assert!(ours == gloos);
}

#[run_by(with_ranks(3))]
fn another_order_of_additions_would_show(rank: Rank) {
    let case = sum_of_mixed(1000);
    let tensor = case.tensor(0, rank.rank);
    rank.shared.all_reduce(&tensor, case.op, NOW).now().unwrap();
    let in_order = (0..3).map(|r| case.tensor(0, r)).reduce(|sum, each| sum + each).unwrap();
    assert_ne!(bits(&tensor), bits(&in_order));
}
