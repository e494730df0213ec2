"""The backend "rondo" of torch.distributed.

    import torch.distributed as dist
    import rondo.torch
    dist.init_process_group("rondo")                          # under torchrun
    dist.init_process_group("rondo", init_method="mpi://")    # under mpirun and srun

The first import compiles an extension for the PyTorch that is there, and keeps it in the cache;
python3 -m rondo.torch does only that. It uses CXX, CPPFLAGS, CXXFLAGS and LDFLAGS.
"""
import atexit
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import socket
import subprocess
import sys
import sysconfig
import time

import torch
import torch.distributed as dist

from . import _api
from ._core import Comm
from ._library import MPIS, engine, file_of, include_folder, installed

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = [os.path.join(HERE, name) for name in ("_torch.cpp", "_torch_work.hpp", "_torch_memory.hpp")]
# Handles of MPI_COMM_WORLD in Fortran, and what says that an MPI's launcher has started this process. The ABI of MPI 5
# has no launcher of its own.
WORLDS = {"openmpi": (0, "OMPI_COMM_WORLD_SIZE"), "mpich": (0x44000000, "PMI_SIZE"), "mpiabi": (0x101, "")}

# ---- the extension ----


def _cuda_headers():
    """The folder of CUDA's headers: of PyTorch's wheel, or of the toolkit. None: there is none."""
    wheel = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
    toolkit = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for folder in (os.path.join(wheel, "cuda_runtime"),
                   os.path.join(wheel, "cu" + torch.version.cuda.split(".", maxsplit=1)[0]), *toolkit,
                   "/usr/local/cuda", "/usr"):
        if os.path.exists(os.path.join(folder, "include", "cuda_runtime_api.h")):
            return os.path.join(folder, "include")
    return None


def _command(target):
    """How to compile it."""
    library = file_of(f"librondo.so.{_api.SOVERSION}")
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        flags += [f'-DPYBIND11_{name}="{value}"'] if value else []
    folders = [include_folder(), sysconfig.get_path("include")]
    flags += [f"-I{folder}" for folder in folders if folder]
    home = os.path.dirname(torch.__file__)
    for folder in (os.path.join(home, "include"), "/usr/include"):  # the latter is Debian's
        api = os.path.join(folder, "torch", "csrc", "api", "include")
        if os.path.isdir(api):
            flags += [f"-isystem{api}"] + ([f"-isystem{folder}"] if folder != "/usr/include" else [])
            break
    libraries = ["-L" + os.path.join(home, "lib"), "-ltorch_python", "-ltorch_cpu", "-ltorch", "-lc10"]
    cuda = _cuda_headers() if torch.version.cuda else None
    if cuda:
        flags += ["-DRONDO_TORCH_CUDA", f"-isystem{cuda}"]
        libraries.append("-lc10_cuda")
    if os.path.isabs(library):
        libraries += [library, f"-Wl,-rpath,{os.path.dirname(library)}"]
    else:
        libraries += [f"-l:{library}"]
    compiler, cpp, cxx, linker = (shlex.split(os.environ.get(name, ""))
                                  for name in ("CXX", "CPPFLAGS", "CXXFLAGS", "LDFLAGS"))
    return [*(compiler or ["c++"]), *flags, *cpp, *cxx, SOURCES[0], "-o", target, *linker, *libraries]


def _compile(target):
    command = _command(f"{target}.{os.getpid()}")
    print("rondo.torch: compiling for PyTorch", torch.__version__, file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImportError(f"rondo.torch: the extension cannot be compiled: {done.stderr.strip()[-3000:]}\n"
                          f"The command was: {shlex.join(command)}")
    os.replace(f"{target}.{os.getpid()}", target)


def _extension_file():
    """The file of the extension in the cache, which this process or another one on this host makes."""
    key = [part.encode() for part in _command("") + [torch.__version__, sys.version]]
    for path in SOURCES:
        with open(path, "rb") as source:
            key.append(source.read())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "rondo", "torch-" + hashlib.sha256(b"\0".join(key)).hexdigest()[:16])
    target = os.path.join(folder, "_torch.so")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(target):
            _compile(target)
    return target


def _load(path):
    loader = importlib.machinery.ExtensionFileLoader("rondo._torch", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("rondo._torch", loader))
    loader.exec_module(module)
    return module


engine()  # librondo.so, where this package finds it
_extension = _load(_extension_file())

# ---- groups ----


def _milliseconds(timeout):
    seconds = timeout.total_seconds()
    return max(1, int(seconds * 1000)) if seconds > 0 else 0


_ids = {""}  # of the default groups that this process has begun


def _new_id(store, timeout):
    """The id that rank 0 sets. One of an earlier default group may lie there still: rank 0 has yet to clear it,
    or that group was not made."""
    end = time.monotonic() + timeout / 1000 if timeout > 0 else float("inf")
    while (text := store.get("rondo").decode()) in _ids:
        if time.monotonic() > end:
            raise RuntimeError("rank 0 has set no id for this group in the store")
        time.sleep(0.001)
    _ids.add(text)
    return bytes.fromhex(text)


def _create(options, _):
    """A group of torch: a child of the default one, or one that meets by an id in the store."""
    rank, size, ranks = options.group_rank, options.group_size, list(options.global_ranks_in_group)
    name, timeout = f"torch {options.group_id or 'world'}", _milliseconds(options.timeout)
    parent = _backend(dist.distributed_c10d._get_default_group()) if dist.is_initialized() else None
    if ranks and parent is not None:
        return parent.child(ranks, name, timeout)
    if rank == 0:
        options.store.set("rondo", _extension.make_id().hex())
    made = _extension.create(_new_id(options.store, timeout), rank, size, name, timeout)
    if rank == 0:  # all have read the id: processes that come later must not take it for that of their group
        options.store.set("rondo", "")
    return made


def _backend(group):
    """Rondo's part of a group, or None. Since PyTorch 2 a group has a backend for each type of device."""
    backends = [group]
    if hasattr(group, "_get_backend"):
        backends = [group._get_backend(device) for device in group._device_types]
    return next((each for each in backends if isinstance(each, _extension.Group)), None)


def abort(group=None):
    """End a group (None: the default one) on all of its ranks: their calls fail with a sentence that names
    this rank. From any thread; does not wait."""
    backend = _backend(group or dist.distributed_c10d._get_default_group())
    if backend is None:
        raise ValueError('the group has no backend "rondo"')
    backend.abort()


@atexit.register
def _end():
    """A rank that an exception ends tells the others; any other one waits for the calls under way."""
    for group in _extension.groups():
        if hasattr(sys, "last_type"):
            try:
                group.abort()
            except RuntimeError:  # it was closed, or is of the parent of this process
                pass
        group.close()


# ---- mpirun without a rendezvous ----


def _address(comm):
    """Where the others find rank 0: on this host, or by its address towards the network."""
    names = bytearray(256 * comm.size)
    comm.all_gather(socket.gethostname().encode().ljust(256, b"\0")[:256], names)
    if len({bytes(names[256 * r:256 * (r + 1)]) for r in range(comm.size)}) == 1:
        return "127.0.0.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
    except OSError:
        return socket.gethostname()


def _over_mpi(_url, timeout=dist.constants.default_pg_timeout, **_options):
    """The store, rank and size of a program under mpirun or srun, from MPI_COMM_WORLD."""
    there = [mpi for mpi in MPIS if WORLDS[mpi][1] in os.environ]
    if "mpi4py.MPI" in sys.modules:
        comm = Comm(None, name="rendezvous")
    else:
        mpi = there[0] if there else None
        if (mpi or MPIS[0]) not in installed() and "mpiabi" in installed():
            mpi = "mpiabi"
        comm = Comm(WORLDS[mpi or MPIS[0]][0], mpi=mpi, name="rendezvous")
    with comm:
        where, store = bytearray(256), None
        address = os.environ.get("MASTER_ADDR") or _address(comm)
        if comm.rank == 0:
            port = int(os.environ.get("MASTER_PORT", 0))
            store = dist.TCPStore(address, port, comm.size, True, timeout, wait_for_workers=False)
            where[:] = f"{address} {store.port}".encode().ljust(256, b"\0")
        comm.broadcast(where, where, 0)
        if store is None:
            host, port = bytes(where).rstrip(b"\0").decode().split()
            store = dist.TCPStore(host, int(port), comm.size, False, timeout, wait_for_workers=False)
        rank, size = comm.rank, comm.size
    yield store, rank, size


dist.register_rendezvous_handler("mpi", _over_mpi)
dist.Backend.register_backend("rondo", _create, extended_api=True)

if __name__ == "__main__":
    print(_extension.__file__)
