"""Named tensors in Python on two ranks, in host memory and, with a CUDA driver as RONDO_CUDA_LIB, on GPUs:
what was published comes back, and what is wrong raises. Needs neither mpi4py nor numpy, but tests numpy where it is.

usage: tensors.py openmpi|mpich|mpiabi     under mpirun
"""
import array
import ctypes
import gc
import os
import sys
import threading
import types
import weakref

import rondo
from rondo import tensors
from rondo.tensors import TensorStore

WORLD = {"openmpi": 0, "mpich": 0x44000000, "mpiabi": 0x101}  # MPI_COMM_WORLD in Fortran
COUNT = 3000


def values(salt=0):
    return array.array("i", [7 * i + salt for i in range(COUNT)])


def zeros(count=COUNT):
    return array.array("i", [0] * count)


def raises(call, *words):
    try:
        call()
    except rondo.Error as error:
        for word in words:
            assert word in str(error), f"no {word} in: {error}"
        return
    raise AssertionError(f"no error that says {words}")


class Pack:
    """A DLPack of GPU memory, as torch gives it."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]

    def __init__(self, memory):
        self.memory, self.shape = memory, (COUNT,)
        self.lengths = (ctypes.c_int64 * 1)(COUNT)
        self.tensor = Pack.Tensor(memory.address, (2, 0), 1, 0, 32, 1,  # on CUDA device 0, of int32
                                  ctypes.addressof(self.lengths), None, 0)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


class HostAsGpu:
    """Host memory that says it is a GPU's."""

    def __init__(self):
        self.memory = zeros()
        self.__cuda_array_interface__ = {"shape": (COUNT,), "typestr": "<i4", "version": 3,
                                         "data": (self.memory.buffer_info()[0], False)}


def host(store, me):
    if me == 0:
        store.publish("host", 1, values())
    else:
        assert store.pull("host", 0, 1, into=zeros()) == values()
        assert store.pull("host", 0, 1, rows=(5, 2), into=zeros(2)) == values()[5:7]
        raises(lambda: store.pull("host", 0, 1, into=bytes(4 * COUNT)), "read-only")
        raises(lambda: store.pull("host", 0, 1, into=zeros(3)), "host", str(4 * COUNT))
        raises(lambda: store.pull("host", 0, -1, into=zeros()), "step -1")
        raises(lambda: store.pull("host\0x", 0, 1, into=zeros()), "NUL")


class Turned:
    """A C array of 2 rows and COUNT / 2 columns, transposed."""

    def __init__(self):
        self.memory, self.shape = values(), (COUNT // 2, 2)
        self.__array_interface__ = {"shape": self.shape, "typestr": "<i4", "strides": (4, 2 * COUNT), "version": 3,
                                    "data": (self.memory.buffer_info()[0], False)}


def orders(store, me):
    """What is not in C's order has other elements than its memory, row after row."""
    try:
        import numpy
    except ImportError:
        numpy = None
    turned = [Turned()]
    if numpy is not None:
        matrix = numpy.arange(COUNT, dtype="int32").reshape(2, COUNT // 2)
        turned += [matrix.T, numpy.asfortranarray(matrix), memoryview(matrix.T)]
        if me == 0:
            store.publish("turned", 3, numpy.ascontiguousarray(matrix.T))
            store.publish("column", 3, numpy.asfortranarray(matrix[:, :1]))
        else:
            assert (store.pull("turned", 0, 3) == matrix.T).all()
            assert (store.pull("column", 0, 3) == matrix[:, :1]).all()
    for array in turned:
        raises(lambda: store.publish("refused", 3, array), "array is transposed", "ascontiguousarray")
        raises(lambda: store.pull("host", 0, 1, into=array), "into is transposed", "ascontiguousarray")


class Letters:
    """Bytes as an array of a type that has a name in numpy's manner."""

    def __init__(self, content, typestr, name):
        self.memory, self.dtype = bytearray(content), types.SimpleNamespace(name=name)
        self.__array_interface__ = {"shape": (len(content) // int(typestr[2:]),), "typestr": typestr, "version": 3,
                                    "data": (ctypes.addressof(ctypes.c_char.from_buffer(self.memory)), False)}


def whole(store, me):
    """Pulls without a place give numpy arrays, or leave nothing behind."""
    try:
        import numpy
    except ImportError:
        numpy = None
    if me == 0:
        store.publish("bools", 1, Letters(b"\1\0\1", "|b1", "bool"))
        store.publish("bfloat16", 1, Letters(b"\x80\x3f" * 3, "<V2", "bfloat16"))
        store.publish("nothing", 1, zeros(0))
        return
    freed, free = [], store._free
    store._free = lambda *what: (freed.append(what), free(*what))
    if numpy is not None:
        got = [store.pull(name, 0, 1) for name in ("host", "bools", "nothing")]
        assert got[0].dtype == "int32" and list(got[0]) == list(values())
        assert got[1].dtype == "bool" and list(got[1]) == [True, False, True]
        assert got[2].shape == (0,)
        raises(lambda: store.pull("bfloat16", 0, 1), "bfloat16", "into=")
        assert len(freed) == 1
        del got
        gc.collect()
        assert len(freed) == 4
    else:
        try:
            store.pull("bfloat16", 0, 1)
        except ImportError:
            assert len(freed) == 1
    del store._free


def dead(store, me):
    """A key without a value at a step, which C, C++ and Fortran publish."""
    if me == 0:
        none = tensors._Tensor(dead=1)
        publish = tensors._function("rondo_tensor_publish", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64,
                                    ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
        assert publish(store.handle, b"dead", 4, ctypes.byref(none), 0, None) == rondo.SUCCESS
        return
    place = values()
    assert store.pull("dead", 0, 4) is None
    assert store.pull("dead", 0, 4, into=place) is None and place == values()
    assert store.pull("dead", 0, 4, rows=(0, 1)) is None


def numbers(store, me):
    """What has no dimension comes back as one row of one element."""
    try:
        import numpy
    except ImportError:
        return
    if me == 0:
        store.publish("number", 5, numpy.array(7.5))
    else:
        got = store.pull("number", 0, 5)
        assert got.shape == (1,) and got[0] == 7.5
        place = numpy.zeros(())
        assert store.pull("number", 0, 5, into=place) is place and place == 7.5


def held(comm):
    """The store keeps what is published, whatever threads do, and after its object has gone."""
    with TensorStore(comm) as store:
        last, arrays = 3000, {}
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)

        def publish():
            for step in range(1, last + 1):
                mine = zeros(1)
                arrays[step] = weakref.ref(mine)
                store.publish("many", step, mine)

        publisher = threading.Thread(target=publish)
        publisher.start()
        while publisher.is_alive():
            store.retire(max(len(arrays) - 20, 0))
        publisher.join()
        sys.setswitchinterval(interval)
        assert all(arrays[step]() is not None for step in range(last - 18, last + 1))
        store.retire(last)
        assert not any(array() is not None for array in arrays.values())
    child = comm.split(0)
    store = TensorStore(child)
    try:
        with rondo.group():
            store.destroy()
        raise AssertionError("a store was destroyed in a group")
    except rondo.Error:
        assert store.handle
    store.destroy()
    assert not store.handle
    store, mine = TensorStore(child), values()
    store.publish("left", 1, mine)
    mine, got = weakref.ref(mine), store.pull("left", 1 - child.rank, 1, into=zeros())
    assert got == values()
    del store
    gc.collect()
    assert mine() is not None
    child.barrier()
    child.destroy()


def left(comm):
    """An exception that leaves the block of a store ends the waits of the other ranks."""
    child = comm.split(0)
    try:
        with child, TensorStore(child) as store:
            if child.rank == 0:
                raise KeyError("before it publishes")
            raises(lambda: store.pull("never", 0, 1, into=zeros()), "abort")
            raise KeyError("as well")
    except KeyError:
        pass


def make_current():
    cuda, context = ctypes.CDLL(os.environ["RONDO_CUDA_LIB"]), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0


def gpu(store, comm):
    """The values go from rank 0's host to rank 1's GPU, and come back from there."""
    make_current()
    other = 1 - comm.rank
    with rondo.Memory(4 * COUNT, device=0) as first, rondo.Memory(4 * COUNT, device=0) as second:
        store.publish("values", 2, values(comm.rank))
        assert store.pull("values", other, 2, into=Pack(first)).memory is first
        store.publish("by pack", 2, Pack(first))
        store.publish("by interface", 2, first)
        assert store.pull("by pack", other, 2, into=zeros()) == values(comm.rank)
        assert store.pull("by interface", other, 2, into=second) is second
        store.publish("second", 2, second)
        assert store.pull("second", other, 2, into=zeros()) == values(other)
        got = store.pull("by pack", other, 2, rows=(10, 20), gpu=True)
        assert got.shape == (20,) and got.nbytes == 80 and got.__cuda_array_interface__["typestr"] == "<i4"
        store.publish("part", 2, got)
        if comm.rank == 1:
            assert store.pull("dead", 0, 4, gpu=True) is None
        assert store.pull("part", other, 2, into=zeros(20)) == values(other)[10:30]
        raises(lambda: store.publish("wrong", 2, HostAsGpu()), "no memory of one GPU")
        comm.barrier()
        store.retire(2)


def main():
    mpi = sys.argv[1]
    with rondo.Comm(WORLD[mpi], mpi=mpi, name="tensors", timeout_ms=60000) as comm:
        with TensorStore(comm) as store:
            host(store, comm.rank)
            whole(store, comm.rank)
            orders(store, comm.rank)
            dead(store, comm.rank)
            numbers(store, comm.rank)
            if "RONDO_CUDA_LIB" in os.environ:
                gpu(store, comm)
            else:
                raises(lambda: store.publish("gpu", 1, HostAsGpu()), "RONDO_TENSOR_CUDA")
            comm.barrier()
        held(comm)
        left(comm)
        print(f"rank {comm.rank}: all calls are right", flush=True)


main()
