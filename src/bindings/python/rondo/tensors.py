"""Named tensors (rondo_tensor.h): publish arrays by key and step, pull them from other ranks.

    from rondo.tensors import TensorStore
    with rondo.Comm(MPI.COMM_WORLD) as comm, TensorStore(comm) as store:
        if rank == 0:
            store.publish("weights", 7, array)
        else:
            array = store.pull("weights", peer=0, step=7)

Arrays are in C's order; one that is transposed or of Fortran's order is refused. One of no dimensions arrives with one,
as one row of one element.
Arrays on GPUs (__cuda_array_interface__ or DLPack) go as they are: finish the GPU's work on one before it is
published or pulled into.
"""
import ctypes
import sys
import weakref

from . import _api
from ._buffers import Buffer
from ._errors import Error, bad_argument
from ._library import check, engine

ANY = -1
LATEST = 2**64 - 1
_ROWS = 2
_CUDA = 1  # RONDO_TENSOR_CUDA
_left = []  # what stores have published that were dropped and not destroyed: other ranks may still pull it


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("type", ctypes.c_int), ("ndims", ctypes.c_int),
                ("shape", ctypes.c_int64 * 8), ("dead", ctypes.c_int), ("packed", ctypes.c_int),
                ("memory", ctypes.c_int), ("peer", ctypes.c_int), ("step", ctypes.c_uint64), ("ops", ctypes.c_void_p),
                ("arg", ctypes.c_void_p)]


class _Slice(ctypes.Structure):
    _fields_ = [("part", ctypes.c_int), ("first", ctypes.c_uint64), ("count", ctypes.c_uint64)]


def _function(name, *parameters):
    function = getattr(engine(), name)
    function.restype, function.argtypes = ctypes.c_int, parameters
    return function


def _tensor(name, array):
    buffer = Buffer(name, array)
    # without dimensions: one row, as the store would make of it
    shape = tuple(getattr(array, "shape", None) or (buffer.nbytes // buffer.itemsize,))
    if buffer.dtype is None or len(shape) > 8:
        raise bad_argument(f"{name} has {len(shape)} dimensions, or a data type that Rondo does not know")
    if not buffer.in_c_order:  # a tensor has its elements row after row
        raise bad_argument(f"{name} is transposed or of Fortran's order: pass numpy.ascontiguousarray({name}), or "
                           f"{name}.contiguous() of torch")
    tensor = _Tensor(data=buffer.address, bytes=buffer.nbytes, type=buffer.dtype, ndims=len(shape),
                     memory=_CUDA if buffer.on_gpu else 0)
    tensor.shape[:len(shape)] = shape
    return tensor, buffer


def _name(key, step):
    """A key and a step as C takes them, which would read others as something else."""
    if not 0 <= step <= LATEST or "\0" in key:
        raise bad_argument(f"a tensor {key!r} at step {step}: a step is 0 or more, and a key has no NUL character")
    return key.encode(), step


def _kind(dtype):
    """numpy's kind and size, or None."""
    return next((kind for kind, number in _api.KINDS.items() if number == dtype), None)


class GpuArray:
    """A tensor in memory of a GPU that a store owns; torch.as_tensor and cupy.asarray take it."""

    def __init__(self, tensor):
        size = engine().rondo_dtype_size(tensor.type)
        kind = _kind(tensor.type) or f"V{size}"
        self.shape, self.nbytes = tuple(tensor.shape[:tensor.ndims]), tensor.bytes
        self.__cuda_array_interface__ = {
            "shape": self.shape, "typestr": ("<" if sys.byteorder == "little" and size > 1 else "|") + kind,
            "data": (tensor.data or 0, False), "version": 3}


class TensorStore:
    """This rank's end of a store over all ranks of a communicator; collective. Use it in a with block, which ends
    before the communicator's, or call destroy(), which waits for the other ranks and serves them meanwhile. A block
    that an exception leaves aborts the communicator, as the other ranks would wait for this one."""

    def __init__(self, comm):
        self.handle, self._held, self._comm = ctypes.c_void_p(), {}, comm
        create = _function("rondo_tensor_store_create", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        check(create(comm.handle, None, ctypes.byref(self.handle)))

    def publish(self, key, step, array, announce=False):
        """Publish an array until its step is retired. It is not copied: do not change it before that. announce:
        pulls with peer=ANY find it."""
        tensor, buffer = _tensor("array", array)
        name = "rondo_tensor_announce" if announce else "rondo_tensor_publish"
        check(_function(name, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64,
                        ctypes.c_void_p)(self.handle, *_name(key, step), ctypes.byref(tensor), 0, None))
        self._held[key, step] = buffer

    def retire(self, step):
        """End this rank's publications of all steps up to this one."""
        check(_function("rondo_tensor_retire", ctypes.c_void_p, ctypes.c_uint64)(self.handle, _name("", step)[1]))
        for name in list(self._held):  # in place: another thread may publish a later step meanwhile
            if name[1] <= step:
                self._held.pop(name, None)

    def pull(self, key, peer=ANY, step=LATEST, rows=None, into=None, gpu=False):
        """Pull a tensor, or rows=(first, count) of it. @return into, filled, or a new numpy array, or with gpu a
        GpuArray on this thread's current GPU. The store owns its memory: do not use it after the store has
        ended. None: the step has no value for this key (a dead tensor), and into is as it was."""
        tensor, place = _tensor("into", into) if into is not None else (_Tensor(memory=_CUDA if gpu else 0), None)
        if place is not None and not place.writable:
            raise bad_argument("into is read-only: pass memory that can be written to")
        part = _Slice(_ROWS, *rows) if rows else None
        name, step = _name(key, step)
        check(_function("rondo_tensor_pull", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64,
                        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
            self.handle, name, peer, step, ctypes.byref(part) if part else None, ctypes.byref(tensor), None))
        if tensor.dead:
            return None
        return into if into is not None else self._array(tensor)

    def _array(self, tensor):
        if tensor.memory == _CUDA:
            array = GpuArray(tensor)
            weakref.finalize(array, self._free, tensor.data)
            return array
        try:
            import numpy

            kind = _kind(tensor.type)
            if kind is None:
                raise bad_argument(f"the tensor is of {_api.DTYPES[tensor.type]}, which numpy lacks: pass into=")
            memory = (ctypes.c_byte * tensor.bytes).from_address(tensor.data)
        except BaseException:
            self._free(tensor.data)
            raise
        weakref.finalize(memory, self._free, tensor.data)
        return numpy.frombuffer(memory, dtype=kind).reshape(tuple(tensor.shape[:tensor.ndims]))

    def _free(self, data):
        if self.handle:
            _function("rondo_tensor_free", ctypes.c_void_p, ctypes.c_void_p)(self.handle, data)

    def destroy(self):
        handle, self.handle = self.handle, None
        if handle:
            try:
                check(_function("rondo_tensor_store_destroy", ctypes.c_void_p)(handle))
            finally:
                size = ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t))  # the first field of rondo_tensor_stats
                stats = _function("rondo_tensor_store_stats", ctypes.c_void_p, ctypes.c_void_p)
                if sys.exc_info()[0] and stats(handle, ctypes.byref(size)) == _api.SUCCESS:
                    self.handle = handle  # it was refused, as in a group
                else:
                    self._held.clear()

    def __del__(self, left=_left):  # without a default the name may be gone at exit
        if self.handle:
            left.append(self._held)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None or not self.handle:
            self.destroy()
            return
        try:
            self._comm.abort()
            self.destroy()
        except Error:  # the block's exception says more
            pass
