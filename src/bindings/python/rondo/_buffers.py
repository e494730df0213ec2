"""Buffers: the address, size and data type of whatever a program passes. Nothing is copied."""
import ctypes
import re
import sys

from . import _api
from ._errors import bad_argument
from ._library import check, engine

_FOREIGN_ORDER = ">" if sys.byteorder == "little" else "<"
# What a format of the struct module is in numpy's letters; the size comes from the buffer.
_FORMATS = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), **dict.fromkeys("efdg", "f"), "?": "b",
            "Zf": "c", "Zd": "c", "Zg": "c"}
# A typestr of numpy: kind and size. Not among them: O, Python's objects, whose bytes are addresses.
_TYPESTR = re.compile(r"[<>|=]([biufcmMSUV])(\d+)")
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_DLPACK_NAMES = {(4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED = 1, 2, 3, 13


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's stable ABI."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _View:
    """The buffer protocol's view of an object, until this is freed."""

    def __init__(self, what, flags):
        self.view = _PyBuffer()
        self.held = False
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(what), ctypes.byref(self.view), flags)
        self.held = True

    def __del__(self):
        if self.held:
            self.held = False
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self.view))


def dtype(what):
    """The number of a data type: rondo.FLOAT32, "float32", numpy.float32, a dtype of numpy or ml_dtypes."""
    if isinstance(what, int):
        return what
    name = what if isinstance(what, str) else getattr(what, "name", None) or getattr(what, "__name__", str(what))
    number = _api.NAMES.get(name)
    if number is None:
        raise bad_argument(f"{what!r} is not a data type of Rondo; known are: {', '.join(_api.NAMES)}")
    return number


class Buffer:
    """address, nbytes, itemsize, dtype (None: unknown), writable, on_gpu, in_c_order (its elements lie as in C, the
    last index first); keep is what must stay alive."""

    def __init__(self, name, what):
        self.name, self.keep = name, what
        if hasattr(what, "__cuda_array_interface__"):
            self._from_interface(what, what.__cuda_array_interface__, True)
        elif hasattr(what, "__array_interface__"):
            self._from_interface(what, what.__array_interface__, False)
        elif _has_buffer(what):
            self._from_buffer(what)
        elif hasattr(what, "__dlpack__"):
            self._from_dlpack(what)
        else:
            raise bad_argument(f"{name} is a {type(what).__name__}: pass an object with the buffer protocol, "
                               "__array_interface__, __cuda_array_interface__ or __dlpack__, such as a numpy array")

    def size(self, type_):
        """Elements of a data type."""
        return self.nbytes // engine().rondo_dtype_size(type_)

    def _from_interface(self, what, interface, on_gpu):
        kind = interface["typestr"]
        known = _TYPESTR.match(kind)
        if not known or "'|O" in repr(interface.get("descr")):
            raise bad_argument(f"{self.name} has elements of type {kind}, which are not numbers or plain bytes")
        self.itemsize = int(known[2]) * (4 if known[1] == "U" else 1)  # of text: characters
        if kind[0] == _FOREIGN_ORDER and self.itemsize > 1:
            raise bad_argument(f"{self.name} has bytes in foreign order ({kind}): convert it")
        self.address, readonly = interface["data"]
        # A scalar of numpy is a copy of its value, which only this dictionary holds: no place for a result.
        self.keep = (what, interface)
        self.writable, self.on_gpu = not readonly and "__ref" not in interface, on_gpu
        self._measure(interface["shape"], interface.get("strides"), self.itemsize)
        self.dtype = _api.KINDS.get(kind[1:])
        if self.dtype is None:
            self.dtype = _api.NAMES.get(getattr(getattr(what, "dtype", None), "name", None))

    def _from_buffer(self, what):
        # PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT: without gaps
        try:
            view = _View(what, 0x80 | 0x10 | 0x8 | 0x4)
        except BufferError as why:
            raise bad_argument(f"{self.name} is not contiguous ({why}): pass a contiguous array") from why
        self.keep = view
        shape = view.view
        self.address, self.nbytes, self.itemsize = shape.buf or 0, shape.len, shape.itemsize
        self.writable, self.on_gpu = not shape.readonly, False
        self.in_c_order = bool(ctypes.pythonapi.PyBuffer_IsContiguous(ctypes.byref(shape), ctypes.c_char(b"C")))
        form = (shape.format or b"B").decode()
        if form[0] == _FOREIGN_ORDER and self.itemsize > 1:
            raise bad_argument(f"{self.name} has bytes in foreign order ({form}): convert it")
        self.dtype = _api.KINDS.get(f"{_FORMATS.get(form.lstrip('@=<>!'), '')}{self.itemsize}")

    def _from_dlpack(self, what):
        on_cuda = what.__dlpack_device__()[0] == _DLPACK_CUDA
        # -1: do not wait for the producer's stream; the call is enqueued on the caller's
        capsule = what.__dlpack__(stream=-1) if on_cuda else what.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
        self.keep = (what, capsule)
        self.on_gpu = tensor.device_type == _DLPACK_CUDA
        if tensor.device_type not in (_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED):
            raise bad_argument(f"{self.name} is on a device of DLPack's type {tensor.device_type}: neither host nor "
                               "CUDA memory")
        if tensor.lanes != 1 or tensor.bits % 8:
            raise bad_argument(f"{self.name} has elements of {tensor.lanes} times {tensor.bits} bits")
        self.itemsize = tensor.bits // 8
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
        self.address, self.writable = (tensor.data or 0) + tensor.byte_offset, True
        self._measure(shape, strides, 1)
        kind = _DLPACK_KINDS.get(tensor.code)
        self.dtype = (_api.KINDS.get(f"{kind}{self.itemsize}") if kind else
                      _api.NAMES.get(_DLPACK_NAMES.get((tensor.code, tensor.bits))))

    def _measure(self, shape, strides, unit):
        """Set nbytes and in_c_order; strides count units. Dense arrays of C's and of Fortran's order are contiguous."""
        count = 1
        for length in shape:
            count *= length
        self.nbytes, self.in_c_order = count * self.itemsize, True
        if strides is None or count < 2:
            return
        for order in (range(len(shape) - 1, -1, -1), range(len(shape))):
            expected = unit
            for i in order:
                if shape[i] != 1 and strides[i] != expected:
                    break
                expected *= shape[i]
            else:
                return
            self.in_c_order = False
        raise bad_argument(f"{self.name} is not contiguous (shape {tuple(shape)}, strides {tuple(strides)}): pass a "
                           "contiguous array")


def _has_buffer(what):
    try:
        memoryview(what).release()
    except TypeError:
        return False
    return True


class Memory:
    """Bytes that all ranks of a node can access: rondo_mem_alloc, or on a GPU rondo_mem_alloc_device. Freed by
    free(), at the end of a with block, or with the object."""

    def __init__(self, nbytes, device=None):
        address = ctypes.c_void_p()
        library = engine()
        if device is None:
            check(library.rondo_mem_alloc(ctypes.byref(address), nbytes))
        else:
            check(library.rondo_mem_alloc_device(ctypes.byref(address), nbytes, device))
        self.address, self.nbytes, self.device = address.value, nbytes, device
        interface = {"shape": (nbytes,), "typestr": "|u1", "data": (self.address or 0, False), "version": 3}
        if device is None:
            self.__array_interface__ = interface
        else:
            self.__cuda_array_interface__ = interface

    def free(self):
        address, self.address = getattr(self, "address", None), None
        if address:
            check(engine().rondo_mem_free(address))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def __del__(self):
        self.free()


def empty(shape, dtype=float):
    """A numpy array, zeroed, in Memory that lives as long as the array or a view of it."""
    import numpy

    kind = numpy.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = 1
    for length in shape:
        count *= length
    if count == 0:
        return numpy.empty(shape, kind)
    return numpy.asarray(Memory(count * kind.itemsize)).view(kind).reshape(shape)
