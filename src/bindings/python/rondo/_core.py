"""Communicators, streams, groups."""
import ctypes
import itertools
import os
import threading

from . import _api, _buffers
from ._buffers import Buffer
from ._errors import Error, bad_argument
from ._library import Config, check, creator, engine, is_open

_numbers = itertools.count()
# Streams that their programs have dropped, and the memory of their calls: the engine may still use both.
_dropped = []


class _Thread(threading.local):
    """This thread's open groups, and what their calls use until the end of the outermost one: pairs of a Stream,
    or None, and memory."""

    depth, held = 0, ()


_thread = _Thread()


def version():
    """The version of the loaded library, as rondo.VERSION_CODE."""
    code = ctypes.c_int()
    check(engine().rondo_get_version(ctypes.byref(code)))
    return code.value


def status_string(status):
    return engine().rondo_status_string(status).decode()


def dtype_size(dtype):
    """Bytes of an element."""
    return engine().rondo_dtype_size(_buffers.dtype(dtype))


def last_error(comm=None):
    """The sentence of the last error of a communicator, or of this thread."""
    return (engine().rondo_last_error(comm.handle if comm else None) or b"").decode(errors="replace")


class Local:
    """Where ranks that are threads of one process meet: Comm.local(local, rank) in each of them."""

    def __init__(self, nranks):
        self.handle = ctypes.c_void_p()
        check(engine().rondo_local_create(nranks, ctypes.byref(self.handle)))

    def destroy(self):
        handle, self.handle = self.handle, None
        if handle:
            check(engine().rondo_local_destroy(handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()


class Stream:
    """A stream of host memory. It keeps the buffers of its calls alive until it has passed them."""

    def __init__(self):
        self.handle, self._held = ctypes.c_void_p(), {}
        _end_dropped()
        check(engine().rondo_stream_create(ctypes.byref(self.handle)))

    def _hold(self, memory):
        """Of a call that is enqueued."""
        self._held[next(_numbers)] = memory

    def _let_go(self, handle, function):
        """Call a function of C. Unless something is in progress, all calls enqueued before it are complete; another
        thread may have enqueued more since."""
        _end_dropped()
        before = list(self._held)
        status = function(handle)
        if status != _api.IN_PROGRESS:
            for number in before:
                self._held.pop(number, None)
        return status

    def query(self):
        """Is everything enqueued complete?"""
        status = self._let_go(self.handle, engine().rondo_stream_query)
        if status == _api.IN_PROGRESS:
            return False
        check(status)
        return True

    def synchronize(self):
        """Wait until everything enqueued is complete."""
        check(self._let_go(self.handle, engine().rondo_stream_synchronize))

    def destroy(self):
        handle, self.handle = self.handle, None
        if handle:
            check(self._let_go(handle, engine().rondo_stream_destroy))

    def __del__(self, dropped=_dropped):
        # Anything may run this, so no call of C here; without a default the name may be gone at exit.
        if self.handle:
            dropped.append((self.handle, self._held))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()


def _end_dropped():
    """Destroy the dropped streams whose calls are complete."""
    for _ in range(len(_dropped)):
        try:
            handle, held = _dropped.pop(0)
        except IndexError:  # another thread was faster
            return
        status = _api.IN_PROGRESS
        try:
            status = engine().rondo_stream_query(handle)
        finally:
            if status == _api.IN_PROGRESS:
                _dropped.append((handle, held))
        if status != _api.IN_PROGRESS:
            engine().rondo_stream_destroy(handle)


def _refused(why):
    """An exception of this package, or of the program, is a refused call of the open group."""
    if _thread.depth:
        engine().rondo_group_refuse((str(why) or type(why).__name__).encode(errors="replace"))


class group:
    """with rondo.group(): the calls of the block are issued together and cannot deadlock one another. None is if an
    exception leaves the block, or a call was refused."""

    def __enter__(self):
        check(engine().rondo_group_start())
        _thread.held = _thread.held or []
        _thread.depth += 1
        return self

    def __exit__(self, kind, why, _):
        if kind is not None:
            _refused(why)
        _thread.depth -= 1
        held = []
        if _thread.depth == 0:
            held, _thread.held = _thread.held, []
        try:
            status = engine().rondo_group_end()
        finally:
            for stream, memory in held:
                if stream is not None:
                    stream._hold(memory)
        if kind is None:
            check(status)


def _stream_handle(stream):
    """A Stream, an address, or a CUDA stream of cupy (ptr), torch (cuda_stream) or numba (handle)."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return getattr(stream, name)
    raise bad_argument(f"stream is a {type(stream).__name__}: pass a rondo.Stream, a CUDA stream or its address")


class _Owned:
    """Something of a communicator that with or end() gives back. keep stays alive with it; kept_by: a set that has it
    until then; None: it goes with the last reference."""

    def __init__(self, value, end, keep, kept_by):
        self.value, self._end, self._keep, self._kept_by = value, end, keep, kept_by
        if kept_by is not None:
            kept_by.add(self)

    def end(self):
        end, self._end = self._end, None
        if end:
            check(end())
            if self._kept_by is not None:
                self._kept_by.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Comm(_api.Calls):
    """A communicator of an MPI communicator: one of mpi4py, None for MPI_COMM_WORLD, or a Fortran handle
    (mpi4py's comm.py2f()) with mpi="openmpi", "mpich" or "mpiabi", the ABI of MPI 5. Settings are the fields of rondo_config, such as
    timeout_ms=1000, name="rows", device=0.

    Use it in a with block, or call destroy(). A block that an exception leaves aborts the communicator, as the
    other ranks would wait for this one: they get an error that names it.
    """

    def __init__(self, comm=None, *, mpi=None, **settings):
        if comm is None or hasattr(comm, "py2f"):
            from mpi4py import MPI

            # The vendor does not tell which of its libraries mpi4py uses.
            mpi = mpi or ("mpiabi" if is_open("mpiabi") else
                          "openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich")
            comm = (MPI.COMM_WORLD if comm is None else comm).py2f()
        create = creator(mpi)
        self._make(lambda config, made: create(comm, config, made), settings)

    @classmethod
    def local(cls, local, rank, **settings):
        """A rank that is a thread; collective over the ranks of a Local."""
        return cls._child(lambda config, made: engine().rondo_comm_create_local(local.handle, rank, config, made),
                          settings)

    @classmethod
    def _child(cls, make, settings, parent=None):
        self = cls.__new__(cls)
        self._make(make, settings, parent)
        return self

    def _make(self, make, settings, parent=None):
        self.handle, self._numbers, self._registered = ctypes.c_void_p(), {}, set()
        config = Config(**settings) if settings else None
        if _thread.depth:  # whose end sets the handle to NULL if nothing came of it
            _thread.held.append((None, self.handle))
        status = make(ctypes.byref(config) if config else None, ctypes.byref(self.handle))
        if status != _api.IN_PROGRESS:
            check(status, parent)

    def split(self, color, key=0, **settings):
        """The ranks of equal colour, ordered by key; None for color rondo.SPLIT_NOCOLOR."""
        child = self._child(lambda config, made: engine().rondo_comm_split(self.handle, color, key, config, made),
                            settings, self.handle)
        return child if child.handle else None

    def shrink(self, exclude, flags=0, **settings):
        """Without the ranks exclude. flags: rondo.SHRINK_ABORT after an error."""
        ranks = (ctypes.c_int * len(exclude))(*exclude)
        return self._child(
            lambda config, made: engine().rondo_comm_shrink(self.handle, ranks, len(ranks), flags, config, made),
            settings, self.handle)

    def finalize(self):
        """Complete everything that is enqueued."""
        check(engine().rondo_comm_finalize(self.handle), self.handle)

    def destroy(self):
        """Finalize if needed, then free. The object is unusable afterwards."""
        self._free(engine().rondo_comm_destroy)

    def abort(self):
        """End the work of all ranks as soon as they notice, then free."""
        self._free(engine().rondo_comm_abort)

    def _free(self, function):
        handle, self.handle = self.handle, None
        try:
            if handle:
                check(function(handle))
        finally:
            self._registered.clear()
            _end_dropped()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.destroy()
        else:
            try:
                self.abort()
            except Error:  # the block's exception says more
                pass

    def async_error(self):
        """rondo.SUCCESS, the error that ended the communicator, or rondo.IN_PROGRESS while it is created."""
        return self._number("async", engine().rondo_comm_async_error)

    def dump(self, file):
        """Write this rank's last calls to a file, in the form of PyTorch's flight recorder."""
        check(engine().rondo_comm_dump(self.handle, os.fsencode(file)), self.handle)

    @property
    def rank(self):
        return self._number("rank", engine().rondo_comm_rank)

    @property
    def size(self):
        """The number of ranks."""
        return self._number("size", engine().rondo_comm_count)

    @property
    def device(self):
        """The CUDA device, or -1 for host memory."""
        return self._number("device", engine().rondo_comm_device)

    def _number(self, name, function):
        if name not in self._numbers or name == "async" or not self.handle:
            number = ctypes.c_int()
            check(function(self.handle, ctypes.byref(number)))
            self._numbers[name] = number.value
        return self._numbers[name]

    def register(self, buffer):
        """Announce that a buffer will be used repeatedly; until end() of the result, for a with block, or until the
        communicator ends, which keeps the buffer alive."""
        memory, handle, library = Buffer("buffer", buffer), ctypes.c_void_p(), engine()
        check(library.rondo_comm_register(self.handle, memory.address, memory.nbytes, ctypes.byref(handle)),
              self.handle)
        comm = self.handle
        return _Owned(handle, lambda: library.rondo_comm_deregister(comm, handle), memory, self._registered)

    def premul_sum(self, scalar, dtype=None):
        """An operation that multiplies this rank's input by a scalar and sums, until its end(). The scalar is an
        array of one element: in host memory, or on the communicator's GPU."""
        memory, op, library = Buffer("scalar", scalar), ctypes.c_int(), engine()
        number = memory.dtype if dtype is None else _buffers.dtype(dtype)
        if number is None or memory.nbytes < library.rondo_dtype_size(number):
            raise bad_argument("scalar: pass an array of one element of a data type of Rondo, or dtype=")
        create = (library.rondo_op_create_premul_sum_device if memory.on_gpu
                  else library.rondo_op_create_premul_sum)
        check(create(ctypes.byref(op), memory.address, number, self.handle), self.handle)
        comm = self.handle
        return _Owned(op.value, lambda: library.rondo_op_destroy(op, comm), memory, None)

    # ---- what every method of _api.Calls does ----

    def _call(self, name, stream=None, **given):
        try:
            function, arguments, used = self._prepare(name, stream=stream, **given)
        except Exception as why:
            _refused(why)
            raise
        keeper = stream if isinstance(stream, Stream) else None
        _end_dropped()
        if _thread.depth:
            _thread.held.append((keeper, used))  # enqueued at the group's end
            status = function(*arguments)
        else:
            try:
                status = function(*arguments)
            finally:
                if keeper is not None:
                    keeper._hold(used)
        check(status, self.handle)

    def _prepare(self, name, send=None, recv=None, stream=None, count=None, dtype=None, **given):
        """The function of C, its arguments, and what must stay alive until the call is complete."""
        spec = _api.CALLS[name]
        buffers = {key: Buffer(key, what) for key, what in (("send", send), ("recv", recv)) if what is not None}
        # The buffers that this rank's part of the call uses.
        used = {key: memory for key, memory in buffers.items()
                if key not in spec["root_only"] or given["root"] == self.rank}
        values = {"comm": self.handle, "stream": _stream_handle(stream), "send": None, "recv": None, **given}
        values.update({key: memory.address for key, memory in buffers.items()})
        if "type" in spec["names"]:
            values["type"] = self._dtype(name, dtype, used or buffers)
            self._check_memory(name, used)
        if "op" in spec["names"]:
            values["op"] = getattr(given["op"], "value", given["op"])
        if "count" in spec["names"]:
            values["count"] = self._count(name, spec, used, count, values["type"])
        elif "type" in spec["names"]:
            self._blocks(name, spec, used, values)
        return getattr(engine(), f"rondo_{name}"), [values[key] for key in spec["names"]], (buffers, values)

    def _dtype(self, name, dtype, buffers):
        if dtype is not None:
            return _buffers.dtype(dtype)
        kinds = {memory.dtype for memory in buffers.values()}
        if len(kinds) > 1:
            raise bad_argument(f"{name}: send and recv have different data types")
        if not kinds or None in kinds:
            raise bad_argument(f"{name}: the buffer has a data type that Rondo does not know: pass dtype=")
        return kinds.pop()

    def _check_memory(self, name, used):
        for key, memory in used.items():
            if key == "recv" and not memory.writable:
                raise bad_argument(f"{name}: recv is read-only")
            if memory.on_gpu and self.device < 0:
                raise bad_argument(f"{name}: {key} is on a GPU, but the communicator is of host memory: create one "
                                   "with device=")

    def _count(self, name, spec, used, count, dtype):
        """The count of rondo.h: elements of a block. The buffers must have as many as the call uses."""
        blocks = {key: self.size if key in spec["blocks"] else 1 for key in used}
        asked = count is not None
        if not asked:
            count = 0
            for key in ("send", "recv"):
                if key in used:
                    count, rest = divmod(used[key].size(dtype), blocks[key])
                    if rest:
                        raise bad_argument(f"{name}: {key} has {used[key].size(dtype)} elements, which "
                                           f"{self.size} ranks cannot share evenly")
                    break
        elif count < 0:
            raise bad_argument(f"{name}: count is {count}")
        in_place = len({memory.address for memory in used.values()}) < len(used)
        for key, memory in used.items():
            have, need = memory.size(dtype), count * blocks[key]
            if have < need or (have > need and not asked and not in_place):
                raise bad_argument(f"{name}: {key} has {have} elements of {_api.DTYPES[dtype]}, but the call uses "
                                   f"{need}")
        return count

    def _blocks(self, name, spec, used, values):
        """Arrays of counts and displacements of C, and whether the buffers have room for them, and for the count of this
        rank alone."""
        for own, key in (("sendcount", "send"), ("recvcount", "recv")):
            if own not in spec["names"]:
                continue
            if values[own] < 0:
                raise bad_argument(f"{name}: {own} is {values[own]}")
            if key in used and used[key].size(values["type"]) < values[own]:
                raise bad_argument(f"{name}: {key} has {used[key].size(values['type'])} elements, but {own} is "
                                   f"{values[own]}")
        for counts, displs in (("counts", "displs"), ("sendcounts", "sdispls"), ("recvcounts", "rdispls")):
            if counts not in spec["names"]:
                continue
            many, at = values[counts], values[displs]
            if many is None:
                continue  # in place: as on the other side
            if at is None:
                at = [sum(many[:i]) for i in range(len(many))]
            if len(many) != self.size or len(at) != self.size:
                raise bad_argument(f"{name}: {counts} and {displs} need an entry for each of {self.size} ranks")
            if min(many) < 0 or min(at) < 0:
                raise bad_argument(f"{name}: {counts} and {displs} must not be negative")
            values[counts] = (ctypes.c_size_t * self.size)(*many)
            values[displs] = (ctypes.c_size_t * self.size)(*at)
            end = max(start + length for start, length in zip(at, many))
            for key, memory in used.items():
                if {"sendcounts": "recv", "recvcounts": "send"}.get(counts) == key:
                    continue
                need = end if key in spec["blocks"] else many[self.rank]
                if memory.size(values["type"]) < need:
                    raise bad_argument(f"{name}: {key} has {memory.size(values['type'])} elements, but {counts} and "
                                       f"{displs} need {need}")
