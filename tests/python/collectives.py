"""One rank of a job that calls every collective once, in the order of core/tests/collectives_mixed.rs."""

import torch
import torch.distributed as dist
from ddp_mnist import end
from torch.distributed.nn import functional

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def own(of=rank):
    return torch.tensor([1.0, 10.0], dtype=torch.float64) * (of + 1)


def expect(found, expected):
    assert torch.equal(found, torch.as_tensor(expected, dtype=found.dtype)), (found, expected)


# 2 ranks: 1, 10 and 2, 20.
tensor = own()
dist.all_reduce(tensor)
expect(tensor, [3, 30])

tensor = torch.tensor([6, 3])[rank]
dist.all_reduce(tensor, dist.ReduceOp.BAND)
expect(tensor, 2)

tensor = torch.complex(own(), -own())
dist.all_reduce(tensor)
expect(torch.view_as_real(tensor), [[3, -3], [30, -30]])

tensor = own()
dist.broadcast(tensor, 1)
expect(tensor, [2, 20])

tensor = own()
dist.reduce(tensor, 1)
if rank == 1:
    expect(tensor, [3, 30])

table = torch.stack([own(), torch.zeros(2, dtype=torch.float64)], 1)
gathered = [torch.empty(2, dtype=torch.float64) for _ in range(size)]
dist.all_gather(gathered, table[:, 0])
expect(torch.stack(gathered), [[1, 10], [2, 20]])

whole = torch.empty(4, dtype=torch.float64)
dist.all_gather_into_tensor(whole, own())
expect(whole, [1, 10, 2, 20])

gathered = [torch.empty(2, dtype=torch.float64) for _ in range(size)] if rank == 1 else None
dist.gather(own(), gathered, 1)
if rank == 1:
    expect(torch.stack(gathered), [[1, 10], [2, 20]])

tensor = torch.empty(2, dtype=torch.float64)
dist.scatter(tensor, [own(0), own(1)] if rank == 1 else None, 1)
expect(tensor, own().tolist())

output = torch.empty(1, dtype=torch.float64)
dist.reduce_scatter(output, [own()[:1], own()[1:]])
expect(output, [[3], [30]][rank])

dist.reduce_scatter_tensor(output, own())
expect(output, [[3], [30]][rank])

received = [torch.empty(1, dtype=torch.float64) for _ in range(size)]
dist.all_to_all(received, [own()[:1], own()[1:]])
expect(torch.cat(received), [[1, 2], [10, 20]][rank])

# Rank q gives q + 1 rows to rank 0 and 1 row to rank 1.
output = torch.empty(3 if rank == 0 else 2, dtype=torch.float64)
source = torch.arange(2 + rank, dtype=torch.float64) + 10 * rank
dist.all_to_all_single(output, source, [1, 2] if rank == 0 else [1, 1], [1 + rank, 1])
expect(output, [[0, 10, 11], [1, 12]][rank])

dist.barrier()

tensor = own()
dist.send(tensor, 0, tag=7)
assert dist.recv(tensor, tag=8) == 0
expect(tensor, [1, 10])

received = torch.empty(2, dtype=torch.float64)
operations = [dist.P2POp(dist.isend, own(), 0), dist.P2POp(dist.irecv, received, 0)]
for request in dist.batch_isend_irecv(operations):
    request.wait()
expect(received, [1, 10])


def gradient(collective):
    given = own().requires_grad_()
    results = collective(given)
    results = results if isinstance(results, tuple) else (results,)
    sum((result * (rank + 1)).sum() for result in results).backward()
    return given.grad


def parts(given):
    return list(given.split(1))


def empty(*sizes):
    return [torch.empty(size, dtype=torch.float64) for size in sizes]


expect(gradient(functional.all_reduce), [3, 3])
expect(gradient(lambda given: functional.broadcast(given, 1)), [3, 3])
expect(gradient(functional.all_gather), [3, 3])
expect(gradient(lambda given: functional.reduce_scatter(*empty(1), parts(given))), [1, 2])
expect(gradient(lambda given: functional.all_to_all(empty(1, 1), parts(given))), [1, 2])
expect(gradient(lambda given: functional.all_to_all_single(*empty(2), given, [0, 2], [0, 2])), [2, 2])
expect(gradient(lambda given: functional.reduce(given, 1)), [2, 2])
expect(gradient(lambda given: functional.gather(given, 1)), [2, 2])
expect(gradient(lambda given: functional.scatter(parts(given), 1)), [1, 2])

end()
