"""Rondo: collective communications for MPI programs.

    from mpi4py import MPI
    import numpy as np, rondo
    with rondo.Comm(MPI.COMM_WORLD) as comm:
        mine, total = np.ones(1000), np.empty(1000)
        comm.all_reduce(mine, total)

Buffers are numpy arrays, what has the buffer protocol, and arrays on GPUs that have __cuda_array_interface__ or
DLPack. Their sizes and types give counts and data types. Nothing is copied, so arrays must be contiguous. Errors
are exceptions, subclasses of rondo.Error, with the sentence that rondo_last_error gives.
"""
from ._api import *  # noqa: F401,F403  constants and functions of numbers
from ._buffers import Memory, empty
from ._core import Comm, Local, Stream, dtype_size, group, last_error, status_string, version
from ._errors import *  # noqa: F401,F403
