"""Gradients of torch's DistributedDataParallel over the backend "rondo" beside those over gloo, and times.

usage: torch_ddp.py [--init METHOD] [--steps N] [--times]

  --init METHOD  how ranks find each other (default: env://)
  --steps N      compare N steps of each model (default: 5)
  --times        then time steps of the two in turn, and all_reduce calls
"""
import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rondo.torch  # noqa: F401  registers the backend

SIZES = (4, 1024, 65536, 1048576, 16777216)


class Attention(nn.Module):
    """A block of a transformer, with parameters of many sizes."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.attend, self.norm = nn.MultiheadAttention(width, heads, batch_first=True), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return x + self.feed(self.norm(x))


def perceptron():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def wide():
    """More than one bucket of 25 MB."""
    hidden = nn.Sequential(nn.Linear(4096, 2048), nn.ReLU())
    return nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), hidden, nn.Linear(2048, 10))


# Each with the shape of its input.
MODELS = {"perceptron": (perceptron, (32, 64)), "attention": (Attention, (4, 32, 128)),
          "wide": (wide, (4, 256))}


class Pair:
    """A model twice, with the same parameters: over Rondo and over gloo."""

    def __init__(self, name, groups):
        make, self.shape = MODELS[name]
        torch.manual_seed(7)
        first = make()
        self.models = {}
        for backend, group in groups.items():
            model = make()
            model.load_state_dict(first.state_dict())
            self.models[backend] = DistributedDataParallel(model, process_group=group)
        self.size = sum(p.numel() for p in first.parameters())

    def step(self, backend, seed):
        model = self.models[backend]
        torch.manual_seed(1000 * seed + dist.get_rank())
        for p in model.parameters():
            p.grad = None
        begin = time.perf_counter()
        model(torch.randn(*self.shape)).square().mean().backward()
        return time.perf_counter() - begin

    def difference(self):
        """The largest difference of two gradients, relative to the largest one of the tensor."""
        most = 0.0
        for a, b in zip(self.models["rondo"].parameters(), self.models["gloo"].parameters()):
            scale = b.grad.abs().max().item() or 1.0
            most = max(most, (a.grad - b.grad).abs().max().item() / scale)
        return most


def compare(pair, name, steps):
    most, ranks = 0.0, dist.get_world_size()
    for seed in range(steps):
        for backend in pair.models:
            pair.step(backend, seed)
        most = max(most, pair.difference())
    limit = 0.0 if ranks <= 2 else 1e-6
    if not most <= limit:
        raise SystemExit(f"rank {dist.get_rank()}: gradients of {name} differ by {most:g}, not {limit:g}")
    if dist.get_rank() == 0:
        print(f"{name}: {pair.size} parameters, {ranks} ranks: largest difference {most:g}", flush=True)


def of_ranks(value, op, group):
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, op, group)
    return found.item()


def show(what, groups, run, rounds, calls=1):
    """A line of the table: medians over the rounds of the slowest rank's time and of the ranks' mean CPU time
    in one of the calls that `run` makes. The backends run in turn, and begin in turn; the ratio is the median
    of the rounds' ratios."""
    times, spent = ({backend: [] for backend in groups} for _ in range(2))
    for i in range(rounds + 2):
        for backend in list(groups) if i % 2 else reversed(list(groups)):
            dist.barrier(groups[backend])
            begin = time.process_time()
            seconds = run(backend, i)
            busy = (time.process_time() - begin) / calls
            seconds = of_ranks(seconds, dist.ReduceOp.MAX, groups["gloo"])
            busy = of_ranks(busy, dist.ReduceOp.SUM, groups["gloo"]) / dist.get_world_size()
            if i >= 2:
                times[backend].append(seconds)
                spent[backend].append(busy)
    if dist.get_rank() == 0:
        ratio = statistics.median(a / b for a, b in zip(times["gloo"], times["rondo"]))
        cells = [f"{statistics.median(found[backend]) * 1e6:.0f}" for found in (times, spent)
                 for backend in ("gloo", "rondo")]
        print(f"| {what} | {' | '.join(cells[:2])} | {ratio:.2f} | {' | '.join(cells[2:])} |", flush=True)


def time_calls(groups):
    for size in SIZES:
        tensor, calls = torch.ones(size // 4), 20 if size <= 65536 else 1

        def run(backend, _):
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor, group=groups[backend])
            tensor.fill_(1)
            return (time.perf_counter() - begin) / calls

        show(f"all_reduce, {size} B", groups, run, 21, calls)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", default="env://")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--times", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("rondo", init_method=given.init)
    groups = {"gloo": dist.new_group(backend="gloo"), "rondo": dist.group.WORLD}
    pairs = {name: Pair(name, groups) for name in MODELS}
    for name, pair in pairs.items():
        compare(pair, name, given.steps)
    if given.times:
        if dist.get_rank() == 0:
            print("| us | gloo | Rondo | gloo / Rondo | CPU, gloo | CPU, Rondo |")
        for name, pair in pairs.items():
            show(f"step of {name}, {pair.size} parameters", groups, pair.step, 31)
        time_calls(groups)
    dist.destroy_process_group()


main()
