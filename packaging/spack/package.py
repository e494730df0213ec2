# Copyright The Rondo authors. SPDX-License-Identifier: BSD-3-Clause
from spack.package import *


class Rondo(AutotoolsPackage, CudaPackage):
    """Collective communications for programs launched with mpirun and srun: NCCL's topology search, channels,
    rings, trees and protocols, set up over MPI, on host memory, over sockets, over RDMA and on GPUs."""

    homepage = "https://example.org/rondo"
    git = "https://example.org/rondo.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("verbs", default=True, description="Build the device for InfiniBand and RoCE")

    depends_on("c", type="build")
    depends_on("fortran", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")
    depends_on("mpi")
    depends_on("hwloc@2.1:")
    depends_on("libxml2")
    depends_on("libsodium@1.0.12:")
    depends_on("rdma-core", when="+verbs")

    conflicts("platform=darwin", msg="Rondo needs Linux: memfd, /proc, futex")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        spec = self.spec
        args = [f"MPICC={spec['mpi'].mpicc}", f"--with-verbs={'yes' if '+verbs' in spec else 'no'}"]
        args.append(f"--with-cuda={spec['cuda'].prefix}" if "+cuda" in spec else "--with-cuda=no")
        return args

    def setup_run_environment(self, env):
        env.prepend_path("PATH", self.prefix.bin)
        env.prepend_path("PYTHONPATH", self.prefix.share.rondo.python)
