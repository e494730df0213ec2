"""The shared libraries, opened with ctypes, so that no compiler is needed."""
import ctypes
import os

from . import _api
from ._errors import error

MPIS = tuple(_api.MPIS)
_opened = {}


class Config(ctypes.Structure):
    """rondo_config with the values of RONDO_CONFIG_INIT."""

    _fields_ = [(name, getattr(ctypes, kind)) for name, kind, _ in _api.CONFIG]

    def __init__(self, **settings):
        super().__init__(**{name: value for name, _, value in _api.CONFIG})
        self.size = ctypes.sizeof(self)
        for name, value in settings.items():
            if name not in {row[0] for row in _api.CONFIG}:
                raise TypeError(f"rondo_config has no field {name}")
            setattr(self, name, value.encode() if isinstance(value, str) else value)


def _folders(installed):
    """A folder of the installation: where it is from this package if all was moved, then where it was made."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.normpath(os.path.join(here, os.path.relpath(installed, _api.PYTHON_DIR)))
    yield installed


def include_folder():
    """Where the headers are installed, or None."""
    return next((folder for folder in _folders(_api.INCLUDEDIR) if os.path.isdir(folder)), None)


def file_of(name):
    """Where the library is installed, or its bare name, for the loader to find."""
    for folder in _folders(_api.LIBDIR):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return name


def _open(name):
    if name not in _opened:
        try:
            _opened[name] = ctypes.CDLL(file_of(name), mode=ctypes.RTLD_GLOBAL)
        except OSError as why:
            raise ImportError(f"{name} cannot be opened: {why}. Install Rondo, or set LD_LIBRARY_PATH to its "
                              f"folder") from why
    return _opened[name]


def engine():
    """librondo.so with the prototypes of rondo.h."""
    library = _open(f"librondo.so.{_api.SOVERSION}")
    if not getattr(library, "rondo_prototypes", False):
        for name, (result, parameters) in _api.PROTOTYPES.items():
            function = getattr(library, name)
            function.restype = getattr(ctypes, result)
            function.argtypes = [getattr(ctypes, kind) for kind in parameters]
        library.rondo_prototypes = True
    return library


def installed():
    """The MPIs that Rondo is installed for."""
    return [name for name in MPIS if os.path.isabs(file_of(f"librondo_{name}.so.{_api.SOVERSION}"))]


def is_open(mpi):
    """Has this process opened an MPI's library, as mpi4py does?"""
    for file in _api.MPIS[mpi]:
        try:
            ctypes.CDLL(file, mode=os.RTLD_NOLOAD)
            return True
        except OSError:
            pass
    return False


def creator(mpi):
    """rondo_comm_create_f of the library for an MPI: it takes a Fortran handle."""
    if mpi is None:
        there = installed()
        if len(there) != 1:
            raise ValueError(f"say which MPI the handle is of: mpi={' or mpi='.join(map(repr, MPIS))}")
        mpi = there[0]
    if mpi not in MPIS:
        raise ValueError(f"mpi={mpi!r}: choose one of {', '.join(MPIS)}")
    engine()
    function = getattr(_open(f"librondo_{mpi}.so.{_api.SOVERSION}"), f"rondo_comm_create_f_{mpi}")
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return function


def check(status, comm=None):
    """Raise what a function returned, unless it is success."""
    if status != _api.SUCCESS:
        library = engine()
        sentence = library.rondo_last_error(comm) or library.rondo_status_string(status)
        raise error(status, sentence.decode(errors="replace"))
