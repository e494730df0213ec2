"""Every call of torch.distributed over the backend "rondo", on CPU tensors, with exact results.

usage: torch_ops.py [INIT_METHOD] [calls|ends]
"""
import datetime
import os
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

import rondo.torch

NUMBERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
           torch.float32, torch.float64, torch.complex64, torch.complex128]
REAL = [kind for kind in NUMBERS if not kind.is_complex]
WHOLE = [kind for kind in REAL if not kind.is_floating_point]
Op = dist.ReduceOp
done = 0
rank = size = 0


def expect(what, got, wanted):
    global done
    done += 1
    wanted = wanted.to(got.dtype)
    if got.shape != wanted.shape or not torch.equal(got, wanted):
        raise SystemExit(f"rank {rank}: {what}: {got.flatten()[:8]}, not {wanted.flatten()[:8]}")


def refused(what, part, call):
    global done
    done += 1
    try:
        call()
    except RuntimeError as error:
        if part not in str(error):
            raise SystemExit(f"rank {rank}: {what}: the error says {error}, not {part}")
        return
    raise SystemExit(f"rank {rank}: {what} is not refused")


def data(r, n, kind):
    """Small numbers, whose sums and products are exact in every type."""
    values = (torch.arange(n) * 7 + r * 3) % 3 + 1
    return values % 2 == 0 if kind == torch.bool else values.to(kind)


def spread(tensor):
    """The same values, with gaps in memory."""
    wide = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


def places(count, n, kind):
    return [torch.zeros(n, dtype=kind) for _ in range(count)]


def rows(n, kind):
    """A list of tensors that lie one behind the other."""
    return list(torch.zeros(size, n, dtype=kind).unbind(0))


def reductions(kind):
    if kind == torch.bool:
        return [(Op.SUM, lambda a: a.any(0)), (Op.PRODUCT, lambda a: a.all(0)), (Op.MAX, lambda a: a.any(0)),
                (Op.BXOR, lambda a: a.sum(0) % 2 == 1)]
    found = [(Op.SUM, lambda a: a.sum(0))]
    if kind in REAL:
        found += [(Op.PRODUCT, lambda a: a.prod(0)), (Op.MIN, lambda a: a.min(0)[0]),
                  (Op.MAX, lambda a: a.max(0)[0])]
    if kind in WHOLE:
        found += [(Op.BAND, lambda a: fold(torch.bitwise_and, a)),
                  (Op.BOR, lambda a: fold(torch.bitwise_or, a)),
                  (Op.BXOR, lambda a: fold(torch.bitwise_xor, a))]
    return found


def fold(op, rows_):
    result = rows_[0]
    for row in rows_[1:]:
        result = op(result, row)
    return result


def exact(kind):
    return torch.complex128 if kind.is_complex else torch.float64 if kind.is_floating_point else torch.int64


def check_reductions(kind, n, group=None):
    every = torch.stack([data(r, n, kind) for r in range(size)])
    wide = every if kind == torch.bool else every.to(exact(kind))
    for op, result in reductions(kind):
        wanted = result(wide)
        for change in (torch.Tensor.clone, spread):
            mine = change(data(rank, n, kind))
            dist.all_reduce(mine, op, group)
            expect("all_reduce", mine, wanted)
            mine = change(data(rank, n, kind))
            dist.reduce(mine, size - 1, op, group)
            expect("reduce", mine, wanted if rank == size - 1 else data(rank, n, kind))
            parts = [change(data(rank + r, n, kind)) for r in range(size)]
            out = change(torch.zeros(n, dtype=kind))
            shifted = torch.stack([data(rank + r, n, kind) for r in range(size)])
            wanted_part = result(shifted if kind == torch.bool else shifted.to(exact(kind)))
            dist.reduce_scatter(out, parts, op, group)
            expect("reduce_scatter", out, wanted_part)
        whole = torch.cat([data(rank + r, n, kind) for r in range(size)])
        out = torch.zeros(n, dtype=kind)
        dist._reduce_scatter_base(out, whole, op, group)
        expect("_reduce_scatter_base", out, wanted_part)


def premul(factor):
    """The operation "sum of the tensors times a factor"; before PyTorch 2 a tensor comes in a list."""
    try:
        return dist._make_nccl_premul_sum(factor)
    except TypeError:
        return dist._make_nccl_premul_sum([factor])


def check_premul(n):
    """The product has the tensor's type, whatever type the factor has."""
    if not hasattr(dist, "_make_nccl_premul_sum"):
        return
    factors = [0.5, *(torch.full(shape, 0.5, dtype=kind) for shape in ((), (1,))
                      for kind in (torch.float16, torch.float32, torch.float64))]
    for kind in NUMBERS:
        for factor in factors:
            op = premul(factor)
            if kind in WHOLE:
                mine = data(rank, n, kind)
                refused("an integer times a fraction", "factor", lambda: dist.all_reduce(mine, op))
                continue
            wanted = sum(data(r, n, exact(kind)) for r in range(size)) * 0.5
            shifted = sum(data(rank + r, n, exact(kind)) for r in range(size)) * 0.5
            for change in (torch.Tensor.clone, spread):
                mine = change(data(rank, n, kind))
                dist.all_reduce(mine, op)
                expect("all_reduce with a factor", mine, wanted)
                mine = change(data(rank, n, kind))
                dist.reduce(mine, 0, op)
                expect("reduce with a factor", mine, wanted if rank == 0 else data(rank, n, kind))
                out, parts = torch.zeros(n, dtype=kind), [change(data(rank + r, n, kind)) for r in range(size)]
                dist.reduce_scatter(out, parts, op)
                expect("reduce_scatter with a factor", out, shifted)
                dist._reduce_scatter_base(out, torch.cat(parts), op)
                expect("_reduce_scatter_base with a factor", out, shifted)
            mine = data(rank, 1, kind).reshape(())
            dist.all_reduce(mine, op)
            expect("all_reduce of a number with a factor", mine, wanted[0])
    mine = data(rank, n, torch.int64)
    dist.all_reduce(mine, premul(torch.tensor(3, dtype=torch.int32)))
    expect("all_reduce with a whole factor", mine, sum(data(r, n, torch.int64) for r in range(size)) * 3)
    refused("two factors", "one element", lambda: dist.all_reduce(torch.ones(2), premul(torch.ones(2))))


def check_moves(kind, n):
    mine = data(rank, n, kind)
    every = [data(r, n, kind) for r in range(size)]
    for change in (torch.Tensor.clone, spread):
        got = change(mine)
        dist.broadcast(got, size // 2)
        expect("broadcast", got, every[size // 2])
        for out in (places(size, n, kind), rows(n, kind), [spread(t) for t in places(size, n, kind)]):
            dist.all_gather(out, change(mine))
            expect("all_gather", torch.stack(out), torch.stack(every))
        out = places(size, n, kind) if rank == 0 else None
        dist.gather(change(mine), out, 0)
        if rank == 0:
            expect("gather", torch.stack(out), torch.stack(every))
        got = change(torch.zeros(n, dtype=kind))
        dist.scatter(got, [change(t) for t in every] if rank == size - 1 else None, size - 1)
        expect("scatter", got, mine)
        out = places(size, n, kind)
        dist.all_to_all(out, [change(data(r + 2 * rank, n, kind)) for r in range(size)])
        wanted = torch.stack([data(rank + 2 * r, n, kind) for r in range(size)])
        expect("all_to_all", torch.stack(out), wanted)
    out = torch.zeros(size * n, dtype=kind)
    dist._all_gather_base(out, mine)
    expect("_all_gather_base", out, torch.cat(every))
    out = torch.zeros(size * n, dtype=kind)
    dist.all_to_all_single(out, torch.cat([data(r + 2 * rank, n, kind) for r in range(size)]))
    expect("all_to_all_single", out, wanted.flatten())
    got = torch.zeros(n, dtype=kind)
    requests = [dist.isend(mine, (rank + 1) % size), dist.irecv(got, (rank - 1) % size)]
    for request in requests:
        request.wait()
    expect("isend and irecv", got, every[(rank - 1) % size])


def check_uneven():
    """Lists and splits of different sizes: rank r has r + 1 rows."""
    mine = data(rank, rank + 1, torch.float32)
    out = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(out, mine)
    for r in range(size):
        expect("all_gather of several sizes", out[r], data(r, r + 1, torch.float32))
    got = torch.zeros(rank + 1)
    dist.reduce_scatter(got, [data(rank, r + 1, torch.float32) for r in range(size)])
    expect("reduce_scatter of several sizes", got, sum(data(r, rank + 1, torch.float32) for r in range(size)))
    sent = torch.cat([torch.full((r + 1, 3), 10 * rank + r, dtype=torch.int32) for r in range(size)])
    got = torch.zeros((rank + 1) * size, 3, dtype=torch.int32)
    dist.all_to_all_single(got, sent, [rank + 1] * size, [r + 1 for r in range(size)])
    expect("all_to_all_single with splits", got,
           torch.cat([torch.full((rank + 1, 3), 10 * r + rank) for r in range(size)]))
    out = [torch.zeros(r + rank + 1) for r in range(size)]
    dist.all_to_all(out, [torch.full((r + rank + 1,), float(10 * rank + r)) for r in range(size)])
    for r in range(size):
        expect("all_to_all of several sizes", out[r], torch.full((r + rank + 1,), 10 * r + rank))


def check_works():
    """Calls in flight: several at once, tests, futures and what hangs on them, none waited for."""
    works, tensors = [], []
    for i in range(20):
        tensors.append(data(rank, 1000 + i, torch.float32))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    for work in works:
        while not work.is_completed():
            time.sleep(0.0001)
        assert work.is_success()
    for i, tensor in enumerate(tensors):
        expect("all_reduce in flight", tensor, sum(data(r, 1000 + i, torch.float32) for r in range(size)))
    mine = torch.ones(100000)
    future = dist.all_reduce(mine, async_op=True).get_future()
    again = future.then(lambda f: f.value()[0] * 2)
    expect("a future", again.wait(), torch.full((100000,), 2.0 * size))
    mine, second = torch.ones(10), torch.ones(10)
    dist.all_reduce(mine, async_op=True).get_future().then(lambda _: dist.all_reduce(second)).wait()
    expect("a call from a future", second, torch.full((10,), float(size)))
    got = torch.zeros(1000)
    received = dist.irecv(got, (rank - 1) % size).get_future()
    dist.isend(torch.full((1000,), float(rank)), (rank + 1) % size).get_future().wait()
    received.wait()
    expect("the future of a message", got, torch.full((1000,), float((rank - 1) % size)))
    for _ in range(50):
        dist.all_reduce(torch.ones(10), async_op=True)
    many = [data(rank, n, torch.float32) for n in (1, 100, 10000)]
    dist.all_reduce_coalesced(many)
    for tensor in many:
        wanted = sum(data(r, tensor.numel(), torch.float32) for r in range(size))
        expect("all_reduce_coalesced", tensor, wanted)
    check_coalesced()
    check_sleep()
    check_dropped()
    dist.barrier()


def check_sleep():
    """The thread that ends messages with futures sleeps while none moves, however many are open."""
    works = [dist.irecv(torch.zeros(10), (rank - 1) % size) for _ in range(3)]
    futures = [work.get_future() for work in works]
    begin, before = time.monotonic(), time.process_time()
    time.sleep(1)
    used, whole = time.process_time() - before, time.monotonic() - begin
    dist.barrier()
    for _ in works:
        dist.send(torch.ones(10), (rank + 1) % size)
    for future in futures:
        future.wait()
    if used > 0.8 * whole:
        raise SystemExit(f"rank {rank}: three open messages took {used:.2f} s of CPU time in {whole:.2f} s")


def check_dropped():
    """Inputs that only their call still has. Whoever finds that it has ended frees them, which needs Python's lock,
    while the program, which has this lock, asks whether it has ended."""
    for _ in range(200):
        got = torch.zeros(size * 100)
        work = dist._all_gather_base(got, torch.full((100,), float(rank)), async_op=True)
        work.get_future()
        while not work.is_completed():
            pass
        expect("a call whose input was dropped", got[-1], torch.tensor(float(size - 1)))


def check_coalesced():
    """What PyTorch makes one call of since 2.1: FSDP and DTensor do so."""
    manager = getattr(dist, "_coalescing_manager", None)
    if manager is None or not hasattr(dist.distributed_c10d, "_CoalescingManager"):
        return
    lengths = (1, 100, 10000)
    for async_ops in (False, True):
        outs = [torch.zeros(size * n) for n in lengths]
        with manager(async_ops=async_ops) as calls_:
            for n, out in zip(lengths, outs):
                dist.all_gather_into_tensor(out, data(rank, n, torch.float32), async_op=async_ops)
        if async_ops:
            calls_.wait()
        for n, out in zip(lengths, outs):
            wanted = torch.cat([data(r, n, torch.float32) for r in range(size)])
            expect("all_gather_into_tensor, coalesced", out, wanted)
        outs = [torch.zeros(n) for n in lengths]
        with manager(async_ops=async_ops) as calls_:
            for n, out in zip(lengths, outs):
                whole = torch.cat([data(rank + r, n, torch.float32) for r in range(size)])
                dist.reduce_scatter_tensor(out, whole, async_op=async_ops)
        if async_ops:
            calls_.wait()
        for n, out in zip(lengths, outs):
            expect("reduce_scatter_tensor, coalesced", out,
                   sum(data(r + rank, n, torch.float32) for r in range(size)))


def check_groups():
    half = [r for r in range(size) if r % 2 == rank % 2]
    groups = [dist.new_group([r for r in range(size) if r % 2 == part]) for part in (0, 1) if size > part]
    group = groups[rank % 2]
    mine = torch.full((1000,), float(rank))
    dist.all_reduce(mine, group=group)
    expect("all_reduce of a group", mine, torch.full((1000,), float(sum(half))))
    dist.broadcast(mine, half[-1], group)
    dist.destroy_process_group(group)
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert [each["rank"] for each in gathered] == list(range(size))


def check_refusals():
    refused("a sparse tensor", "sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse()))
    refused("bitwise and of floats", "integers", lambda: dist.all_reduce(torch.ones(3), Op.BAND))
    refused("a tag", "tag 0", lambda: dist.isend(torch.ones(3), rank, tag=5))
    refused("any source", "source", lambda: dist.recv(torch.ones(3)))
    refused("splits", "add up to", lambda: dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1),
                                                                   [1] * size, [1] * size))


def check_forks():
    """A child that Python ends leaves its parent's groups alone; rank 0's has a store of torch, which does not."""
    if rank == 0:
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        return
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    end, ended = time.monotonic() + 20, (0, 0)
    while ended == (0, 0):
        ended = os.waitpid(child, os.WNOHANG)
        if time.monotonic() > end:
            os.kill(child, 9)
            raise SystemExit(f"rank {rank}: a forked child does not end")
        time.sleep(0.01)
    assert ended[1] == 0, ended
    dist.barrier()


def check_again():
    """Two default groups in turn that meet by one store, to which rank 0 comes late."""
    number, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.path.join(tempfile.gettempdir(), f"rondo-torch-{os.environ['MASTER_PORT']}"), n)
    for turn in range(2):
        if number == 0:
            time.sleep(0.3)
        if number == 0 and turn > 0:  # PyTorch 1 wants its own key gone
            store.delete_key("store_based_barrier_key:1")
        dist.init_process_group("rondo", store=store, rank=number, world_size=n,
                                timeout=datetime.timedelta(seconds=20))
        if turn > 0:
            dist.barrier()
        dist.destroy_process_group()


def calls():
    check_moves(torch.bool, 1000)
    check_reductions(torch.bool, 1000)
    for kind in NUMBERS:
        for n in (1, 1000, 70000) if kind in (torch.float32, torch.int8) else (1000,):
            check_moves(kind, n)
            check_reductions(kind, n)
    check_premul(1000)
    check_uneven()
    check_works()
    check_groups()
    check_refusals()
    check_forks()


def ends():
    """A rank that dies in a call of all, one that ends the group, a wait with a limit."""
    got = torch.zeros(10)
    if rank == 0 and size > 1:
        request = dist.irecv(got, 1)
        limit = datetime.timedelta(milliseconds=50)
        refused("a wait that is too short", "goes on", lambda: request.wait(limit))
        dist.barrier()
        request.wait()
        expect("a message after a wait", got, torch.ones(10))
    elif size > 1:
        dist.barrier()
        if rank == 1:
            dist.send(torch.ones(10), 0)
    group = dist.new_group(list(range(size)))
    if rank == size - 1:
        threading.Timer(0.3, lambda: rondo.torch.abort(group)).start()
    mine = torch.ones(10)
    if size > 1:
        for _ in range(2):
            refused("a call of an aborted group", f"rank {size - 1}", lambda: [
                dist.all_reduce(mine, group=group) for _ in range(1000000)])
    dist.all_reduce(mine)  # the other group goes on
    if rank == size - 1:
        os.kill(os.getpid(), 9)
    begin = time.monotonic()
    refused("a call after a death", f"rank {size - 1}", lambda: dist.all_reduce(torch.ones(10)))
    assert time.monotonic() - begin < 5
    print(f"rank {rank}: {done} results are right", flush=True)
    os._exit(0)


def main():
    global rank, size
    torch.set_num_threads(1)
    method = sys.argv[1] if len(sys.argv) > 1 else "env://"
    if "RANK" in os.environ:
        check_again()
    dist.init_process_group("rondo", init_method=method)
    rank, size = dist.get_rank(), dist.get_world_size()
    {"calls": calls, "ends": ends}[sys.argv[2] if len(sys.argv) > 2 else "calls"]()
    dist.destroy_process_group()
    print(f"rank {rank}: {done} results are right", flush=True)


main()
