-- A Lmod module file: modulefiles/rondo/VERSION.lua. Set prefix to where "make install" put Rondo.
local prefix = "/usr/local"

whatis("Name: Rondo")
whatis("Description: collective communications for programs launched with mpirun and srun")
help([[
mpicc app.c $(pkg-config --cflags --libs rondo-openmpi)   programs that call Rondo
rondo-run mpirun -n 64 ./app                              MPI programs as they are
rondo-doctor, rondo-info, rondo-topo, rondo-explain, rondo-perf tools; each has --help and a man page
]])

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
prepend_path("PYTHONPATH", pathJoin(prefix, "share/rondo/python"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
setenv("RONDO_ROOT", prefix)
