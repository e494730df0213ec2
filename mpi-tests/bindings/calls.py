"""Every method of the Python package gives what rondo.h promises, on every kind of buffer, and raises what it
should. Needs neither mpi4py nor numpy, but tests them where they are.

usage: calls.py openmpi|mpich|mpiabi         run under mpirun
       calls.py --has openmpi|mpich|mpiabi   print why mpi4py and numpy cannot be used with this MPI, or nothing
"""
import array
import ctypes
import gc
import json
import sys
import tempfile
import threading
import weakref

import rondo

WORLD = {"openmpi": 0, "mpich": 0x44000000, "mpiabi": 0x101}  # MPI_COMM_WORLD in Fortran


def has(mpi):
    try:
        import numpy  # noqa: F401
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except ImportError as why:
        return str(why)
    found = "openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich"
    return "" if found == mpi else f"mpi4py is for {found}, the build for {mpi}"


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert kind is TypeError or kind is ValueError or len(str(error)) > 20, error
        for word in words:
            assert word in str(error), f"no {word} in: {error}"
        return
    raise AssertionError(f"no {kind.__name__}")


def doubles(count, value=0.0):
    return array.array("d", [value] * count)


def collectives(comm):
    n, me = comm.size, comm.rank
    last = n - 1
    one, two, every = doubles(2, me + 1), doubles(2), doubles(2 * n)
    comm.all_reduce(one, two)
    assert list(two) == [n * (n + 1) / 2] * 2
    comm.reduce(one, two if me == last else None, rondo.MAX, root=last)
    assert me != last or two[0] == n
    comm.broadcast(one if me == 0 else None, two)
    assert two[1] == 1
    comm.all_gather(one, every)
    assert list(every) == [r + 1 for r in range(n) for _ in range(2)]
    comm.reduce_scatter(every, two, rondo.AVG)
    assert two[0] == me + 1
    comm.all_to_all(doubles(2 * n, me), every)
    assert every[2 * last] == last
    comm.gather(one, every if me == 0 else None)
    assert me != 0 or every[2 * last] == n
    comm.scatter(every if me == 0 else None, two)
    assert me != 0 or two[0] == 1
    counts = [r + 1 for r in range(n)]
    mine, whole = array.array("i", [me] * (me + 1)), array.array("i", [-1] * sum(counts))
    comm.all_gatherv(mine, whole, counts)
    assert list(whole) == [r for r in range(n) for _ in range(r + 1)]
    comm.reduce_scatterv(whole, mine, counts, op=rondo.SUM)
    assert list(mine) == [me * n] * (me + 1)
    out, into = bytearray([me] * n), bytearray(n)
    comm.all_to_allv(out, [1] * n, list(range(n)), into, [1] * n, list(range(n)))
    assert into == bytes(range(n))
    comm.all_to_allv(into, None, None, into, [1] * n, range(n))  # in place
    assert into == bytes([me] * n)
    comm.barrier()
    with rondo.group():
        comm.send(one, (me + 1) % n)
        comm.recv(two, (me - 1) % n)
    assert two[0] == (me - 1) % n + 1
    comm.all_reduce(one, one)  # in place
    assert one[0] == n * (n + 1) / 2
    with tempfile.TemporaryDirectory() as folder:
        comm.dump(folder + "/calls.json")
        with open(folder + "/calls.json", encoding="utf-8") as file:
            said = json.load(file)
    last = [entry for entry in said["entries"] if not entry["is_p2p"]][-1]
    assert said["rank"] == me and last["profiling_name"] == "nccl:all_reduce" and last["state"] == "completed"


def streams(comm):
    n = comm.size
    with rondo.Stream() as stream:
        total = doubles(3)
        comm.all_reduce(doubles(3, 1), total, stream=stream)  # the stream keeps the first array
        while not stream.query():
            pass
        assert total[2] == n
        with comm.register(total), comm.premul_sum(doubles(1, 2.0)) as twice:
            comm.all_reduce(doubles(3, 1), total, op=twice, stream=stream)
            stream.synchronize()
            assert total[0] == 2 * n
    half = comm.split(comm.rank % 2, comm.rank)
    assert half.size == (n + 1 - comm.rank % 2) // 2
    half.finalize()
    half.destroy()
    with rondo.group():
        grouped = comm.split(comm.rank % 2, comm.rank)
        for number in "rank", "size":
            try:
                raise AssertionError(getattr(grouped, number))
            except rondo.Error as error:
                assert "not known yet" in str(error)
    assert grouped.size == (n + 1 - comm.rank % 2) // 2 and grouped.rank == comm.rank // 2
    grouped.destroy()
    none = comm.split(rondo.SPLIT_NOCOLOR)
    assert none is None
    again = comm.shrink([], name="again")
    assert again.size == n and again.async_error() == rondo.SUCCESS and again.device == -1
    comm.barrier()
    again.abort()


def dropped(comm):
    """What a program drops lives as long as the engine uses it."""

    def start():
        stream, total = rondo.Stream(), doubles(1000)
        comm.all_reduce(doubles(1000, 1), total, stream=stream)
        return weakref.ref(total)

    stream, total = rondo.Stream(), start()
    gc.collect()
    assert total() is not None
    comm.barrier()
    while total() is not None:
        stream.query()
    total = doubles(1000)
    with rondo.group():
        comm.all_reduce(doubles(1000, 1), total, stream=stream)
        assert stream.query()  # the call is not enqueued yet
        total = weakref.ref(total)
    assert total() is not None
    stream.synchronize()
    assert total() is None
    with rondo.group():
        comm.all_reduce(doubles(1000, 1), doubles(1000), stream=stream)
        total = start()
        del stream
    assert total() is not None
    comm.barrier()
    with rondo.group():  # at its end the engine says that nothing came of it
        comm.split(rondo.SPLIT_NOCOLOR)
        cells = [ctypes.c_void_p(1) for _ in range(1000)]
    assert all(cell.value == 1 for cell in cells)
    child, buffer, ended = comm.split(0), doubles(100), doubles(100)
    child.register(buffer)
    child.register(ended).end()
    buffer, ended = weakref.ref(buffer), weakref.ref(ended)
    gc.collect()
    assert buffer() is not None and ended() is None
    child.destroy()
    gc.collect()
    assert buffer() is None


class Interface:
    """An array by __array_interface__ alone."""

    def __init__(self, memory, typestr, shape, strides=None, readonly=False, attribute="__array_interface__"):
        self.memory = memory
        setattr(self, attribute, {"version": 3, "typestr": typestr, "shape": shape, "strides": strides,
                                  "data": (ctypes.addressof(ctypes.c_char.from_buffer(memory)), readonly)})


class Pack:
    """A DLPack of host memory, as torch gives it."""

    def __init__(self, memory, code, bits):
        class Tensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

        self.memory, self.shape = memory, (ctypes.c_int64 * 1)(len(memory) * 8 // bits)
        self.tensor = Tensor(ctypes.addressof(ctypes.c_char.from_buffer(memory)), (1, 0), 1, code, bits, 1,
                             ctypes.addressof(self.shape), None, 0, None, None)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def buffers(comm):
    n = comm.size
    a, b = bytearray(b"\0\0\x80\x3f" * 4), bytearray(16)  # 1.0 in float32
    comm.all_reduce(Interface(a, "<f4", (2, 2)), Interface(b, "<f4", (2, 2), strides=(4, 8)))
    assert memoryview(b).cast("f")[3] == n
    comm.all_reduce(Pack(a, 2, 32), Pack(b, 2, 32), op=rondo.MAX)
    assert memoryview(b).cast("f")[0] == 1
    ones = bytearray(b"\x80\x3f" * 8)  # 1.0 in bfloat16
    comm.all_reduce(Pack(ones, 4, 16), Pack(b, 4, 16))
    assert b[:2] == {1: b"\x80\x3f", 2: b"\x00\x40", 3: b"\x40\x40"}[n]
    comm.all_reduce(ones, b, dtype="bfloat16")
    comm.all_reduce(memoryview(a).cast("f"), memoryview(b).cast("f"))
    comm.all_reduce(bytes(16), b, count=5)  # bytes are read-only, which a send buffer may be
    comm.all_reduce((ctypes.c_int64 * 2)(1, 2), (ctypes.c_int64 * 2)())
    with rondo.Memory(64) as mine, rondo.Memory(64) as total:
        ctypes.memset(mine.address, 1, 64)
        comm.all_reduce(mine, total)
        assert ctypes.string_at(total.address, 64) == bytes([n] * 64)
    bad = rondo.InvalidArgument
    raises(bad, lambda: comm.all_reduce(memoryview(a)[::2], b), "contiguous")
    raises(bad, lambda: comm.all_reduce(Interface(a, "<f4", (2,), strides=(8,)), b), "contiguous")
    raises(bad, lambda: comm.all_reduce(Interface(a, ">f4", (4,)), b), "foreign order")
    raises(bad, lambda: comm.all_reduce(Interface(a, "<?", (4,)), b), "<?")
    raises(bad, lambda: comm.all_reduce(b, bytes(16)), "read-only")
    raises(bad, lambda: comm.all_reduce(doubles(3), doubles(4)), "recv has 4", "3")
    raises(bad, lambda: comm.all_gather(doubles(2), doubles(2 * n - 1)), "recv has", str(2 * n))
    raises(bad, lambda: comm.all_reduce(doubles(2), array.array("f", [0] * 4)), "data types")
    raises(bad, lambda: comm.all_reduce(3, b), "int", "buffer protocol")
    raises(bad, lambda: comm.all_gatherv(doubles(n), doubles(n), [1] * (n - 1)), "each of")
    raises(bad, lambda: comm.all_gatherv(doubles(n), doubles(n), [2] * n), "need")
    own = doubles(n) if comm.rank == 0 else None, [1] * n if comm.rank == 0 else None
    raises(bad, lambda: comm.scatterv(*own, None, doubles(1), 2), "recv has 1", "recvcount is 2")
    raises(bad, lambda: comm.scatterv(*own, None, doubles(1), -1), "recvcount is -1")
    raises(bad, lambda: comm.gatherv(doubles(1), 2, *own), "send has 1", "sendcount is 2")
    raises(bad, lambda: comm.gatherv(doubles(1), -1, *own), "sendcount is -1")
    raises(bad, lambda: comm.broadcast(b, b, count=-1), "count is -1")
    gpu = Interface(a, "<f4", (4,), attribute="__cuda_array_interface__")
    raises(bad, lambda: comm.all_reduce(gpu, gpu), "GPU", "device=")


def groups(comm):
    """What this package refuses, or an exception of the program, leaves the calls of the group unmade."""
    total = doubles(1)

    def group(last):
        with rondo.group():
            comm.all_reduce(doubles(1, 1), total)
            last()

    def refused():
        comm.all_reduce(doubles(1), memoryview(doubles(1)).toreadonly())

    def caught():
        try:
            refused()
        except rondo.InvalidArgument:
            pass

    raises(rondo.InvalidArgument, lambda: group(refused), "read-only")
    raises(rondo.InvalidArgument, lambda: group(caught), "read-only")
    try:
        group({}.popitem)
    except KeyError:
        pass
    assert total[0] == 0
    group(lambda: None)
    assert total[0] == comm.size


def errors(comm, mpi):
    x = doubles(1)
    raises(rondo.InvalidArgument, lambda: comm.broadcast(x, x, root=comm.size))
    assert rondo.last_error(comm) and rondo.last_error()
    raises(rondo.Error, lambda: rondo.Comm(12345, mpi="openmpi") if mpi == "openmpi" else comm.send(x, -1))
    raises(TypeError, lambda: rondo.Comm(WORLD[mpi], mpi=mpi, no_such_field=1), "no_such_field")
    raises(ValueError, lambda: rondo.Comm(0, mpi="other"), "openmpi", "mpich", "mpiabi")
    assert rondo.version() == rondo.VERSION_CODE and rondo.dtype_size("float64") == 8
    assert rondo.status_string(rondo.TIMEOUT) and issubclass(rondo.Timeout, rondo.Error)


def threads():
    """Ranks that are threads; an exception leaves one's block, and the others get an error."""
    seen = []

    def rank(number, place):
        try:
            with rondo.Comm.local(place, number) as comm:
                total = doubles(1)
                comm.all_reduce(doubles(1, 1), total)
                assert total[0] == 3
                if number == 1:
                    raise KeyError("one")
                raises(rondo.RemoteError, lambda: comm.all_reduce(total, total))
                seen.append(number)
        except KeyError:
            seen.append("left")

    with rondo.Local(3) as place:
        running = [threading.Thread(target=rank, args=(number, place)) for number in range(3)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert sorted(map(str, seen)) == ["0", "2", "left"], seen


def arrays(comm):
    """With numpy, and ml_dtypes if it is there."""
    try:
        import numpy as np
    except ImportError:
        return
    n = comm.size
    for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
                 "int16", "uint16", "longdouble", "complex64", "complex128"):
        mine, total = np.ones((3, 4), kind), rondo.empty((3, 4), kind)
        comm.all_reduce(mine, total)
        assert total.dtype == kind and (total == n).all(), kind
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    total = np.empty_like(fortran)
    comm.all_reduce(fortran, total)
    assert (total == n * fortran).all()
    raises(rondo.InvalidArgument, lambda: comm.all_reduce(fortran[::2], total), "contiguous")
    text = np.array(["abc" if comm.rank == 0 else ""] * 4, "U10")
    raises(rondo.InvalidArgument, lambda: comm.broadcast(text, text), "dtype=")
    comm.broadcast(text, text, dtype="uint8")
    assert list(text) == ["abc"] * 4
    times = np.array(["2001-02-03", "NaT"] if comm.rank == 0 else [0, 0], "M8[ns]")
    raises(rondo.InvalidArgument, lambda: comm.broadcast(times, times), "dtype=")
    comm.broadcast(times, times, dtype="int64")
    assert times[0] == np.datetime64("2001-02-03") and np.isnat(times[1])
    things = np.array([None, None])
    raises(rondo.InvalidArgument, lambda: comm.broadcast(things, things, dtype="uint8"), "|O")
    sums = np.zeros(2)
    with rondo.group():  # the memory of a scalar lives as long as the call
        comm.all_reduce(np.float64(1), sums[:1])
        comm.all_reduce(np.float64(2), sums[1:])
    assert list(sums) == [n, 2 * n], sums
    raises(rondo.InvalidArgument, lambda: comm.all_reduce(sums[:1], sums[0]), "read-only")
    comm.all_gather(np.full(2, comm.rank), out := np.empty((n, 2), int))
    assert (out[:, 0] == range(n)).all()
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return
    mine, total = np.ones(5, bfloat16), np.zeros(5, bfloat16)
    comm.all_reduce(mine, total)
    assert (total == n).all()


def main():
    if sys.argv[1] == "--has":
        print(has(sys.argv[2]), end="")
        return
    mpi = sys.argv[1]
    with rondo.Comm(WORLD[mpi], mpi=mpi, name="calls", timeout_ms=60000) as comm:
        collectives(comm)
        streams(comm)
        dropped(comm)
        buffers(comm)
        arrays(comm)
        groups(comm)
        errors(comm, mpi)
        print(f"rank {comm.rank}: all calls are right", flush=True)
    threads()


main()
