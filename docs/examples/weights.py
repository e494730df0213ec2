"""Weights from 2 trainers to 4 inference workers with another sharding: each trainer has half of the rows, each
worker pulls the quarter that it needs, from whichever trainer has it. Ranks are threads here; with mpi4py and
rondo.Comm(MPI.COMM_WORLD) they are processes, on any hosts, and nothing else changes."""
import threading

import numpy as np
import rondo
from rondo.tensors import ANY, TensorStore

ROWS, COLUMNS, STEPS, TRAINERS, WORKERS = 1200, 64, 3, 2, 4


def weights(step):
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS) + step


def trainer(rank, store):
    rows = ROWS // TRAINERS
    for step in range(STEPS):
        mine = weights(step)[rank * rows:(rank + 1) * rows].copy()  # what a step of training has made
        store.publish(f"weights/{rank}", step, mine, announce=True)


def worker(number, store):
    rows, shard = ROWS // WORKERS, ROWS // TRAINERS
    for step in range(STEPS):
        owner, first = divmod(number * rows, shard)  # which trainer's shard, and where in it
        mine = store.pull(f"weights/{owner}", peer=ANY, step=step, rows=(first, rows))
        expected = weights(step)[number * rows:(number + 1) * rows]
        assert mine.shape == (rows, COLUMNS) and (mine == expected).all(), (number, step)


def run(meeting, rank, failures):
    try:
        with rondo.Comm.local(meeting, rank) as comm, TensorStore(comm) as store:
            trainer(rank, store) if rank < TRAINERS else worker(rank - TRAINERS, store)
    except Exception as why:  # a thread's exception would be lost
        failures.append(f"rank {rank}: {why!r}")


failures = []
with rondo.Local(TRAINERS + WORKERS) as meeting:
    ranks = [threading.Thread(target=run, args=(meeting, rank, failures)) for rank in range(TRAINERS + WORKERS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
if failures:
    raise SystemExit("\n".join(failures))
print(f"{WORKERS} workers have the weights of {TRAINERS} trainers, {STEPS} steps")
