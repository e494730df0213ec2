# The options and checks of configure. Each check adds a line to the summary.

# RONDO_NOTE(NAME, TEXT): adds a line to the summary.
AC_DEFUN([RONDO_NOTE], [AS_VAR_APPEND([rondo_notes], ["  m4_format([%-12s], [$1]) $2
"])])

AC_DEFUN([RONDO_ENABLE_DEVEL], [
AC_ARG_ENABLE([devel],
    [AS_HELP_STRING([--enable-devel], [make all warnings errors, for work on Rondo itself])],
    [], [enable_devel=no])
AS_IF([test "x$enable_devel" = xyes],
    [RONDO_WARNINGS="-Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Werror"],
    [RONDO_WARNINGS="-Wall"])
AC_SUBST([RONDO_WARNINGS])
])

AC_DEFUN([RONDO_ENABLE_SANITIZERS], [
AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=address|thread],
        [build with AddressSanitizer and UndefinedBehaviorSanitizer, or with ThreadSanitizer])],
    [], [enable_sanitizers=no])
AS_CASE([$enable_sanitizers],
    [no], [RONDO_SANITIZE=],
    [address|yes], [enable_sanitizers=address
        RONDO_SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
        RONDO_SANITIZE="$RONDO_SANITIZE -fno-omit-frame-pointer -g"],
    [thread], [RONDO_SANITIZE="-fsanitize=thread -fno-omit-frame-pointer -g"],
    [AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: choose address or thread])])
# GCC warns of each fence, which ThreadSanitizer does not see; with --enable-devel that would be an error.
AS_IF([test "x$enable_sanitizers" = xthread], [
    AC_MSG_CHECKING([whether $CC takes -Wno-tsan])
    rondo_cflags=$CFLAGS
    CFLAGS="$CFLAGS -Werror -Wno-tsan"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])
        RONDO_SANITIZE="$RONDO_SANITIZE -Wno-tsan"], [AC_MSG_RESULT([no])])
    CFLAGS=$rondo_cflags
])
AS_IF([test -n "$RONDO_SANITIZE"], [
    AC_MSG_CHECKING([whether $CC links with $RONDO_SANITIZE])
    rondo_cflags=$CFLAGS
    CFLAGS="$CFLAGS $RONDO_SANITIZE"
    AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
        AC_MSG_ERROR([$CC cannot link with $RONDO_SANITIZE: install the compiler's sanitizer runtimes])])
    CFLAGS=$rondo_cflags
])
# -z defs: the engine links all that it needs. A sanitizer's runtime may come from the program.
AS_IF([test -z "$RONDO_SANITIZE"], [RONDO_SELF_CONTAINED="-Wl,-z,defs"], [RONDO_SELF_CONTAINED=])
AC_SUBST([RONDO_SELF_CONTAINED])
AC_SUBST([RONDO_SANITIZE])
AC_SUBST([RONDO_SANITIZER], [$enable_sanitizers])
# The simulated machine of the tests sees plain accesses where the compiler announces them: it has the
# functions of ThreadSanitizer's library that such code calls (mpi-tests/sim/machine_sim_race.c).
RONDO_SIM_CPPFLAGS=
AS_IF([test -z "$RONDO_SANITIZE"], [
    AC_MSG_CHECKING([whether $CC compiles with -fsanitize=thread])
    rondo_cppflags=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS -fsanitize=thread"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])
        RONDO_SIM_CPPFLAGS="-fsanitize=thread -U__SANITIZE_THREAD__ -DRONDO_SIM_PLAIN=1"], [AC_MSG_RESULT([no])])
    CPPFLAGS=$rondo_cppflags
])
AC_SUBST([RONDO_SIM_CPPFLAGS])
])

# Fault injection (RONDO_FAULT, RONDO_NET_FAULT) is for tests, so only devel and sanitizer builds have it.
AC_DEFUN([RONDO_CHECK_FAULTS], [
AC_REQUIRE([RONDO_ENABLE_DEVEL])
AC_REQUIRE([RONDO_ENABLE_SANITIZERS])
AS_IF([test "x$enable_devel" = xyes || test "x$enable_sanitizers" != xno],
    [RONDO_FAULTS_CPPFLAGS="-DRONDO_FAULTS=1"], [RONDO_FAULTS_CPPFLAGS=])
AC_SUBST([RONDO_FAULTS_CPPFLAGS])
])

AC_DEFUN([RONDO_CHECK_VERSION_SCRIPT], [
AC_MSG_CHECKING([whether the linker supports version scripts])
rondo_ldflags=$LDFLAGS
printf 'RONDO_TEST { global: main; local: *; };\n' > conftest.map
LDFLAGS="$LDFLAGS -Wl,--version-script=conftest.map"
AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
    AC_MSG_ERROR([the linker of $CC does not support --version-script: use GNU ld, gold or lld])])
LDFLAGS=$rondo_ldflags
rm -f conftest.map
])

# Sets RONDO_MPI (openmpi, mpich, mpiabi or no), MPICC, MPIEXEC, MPI_CPPFLAGS, MPI_LIBS.
AC_DEFUN([RONDO_CHECK_MPI], [
AC_ARG_VAR([MPICC], [MPI C compiler (default: mpicc)])
AC_ARG_VAR([MPIEXEC], [launcher of that MPI, for the tests])
AC_ARG_VAR([MPI_CPPFLAGS], [C preprocessor flags for MPI, instead of those of MPICC -show])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, instead of those of MPICC -show])
AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=CC|DIR|no],
    [MPI C compiler, or the folder with bin/mpicc; no: build only the engine, without MPI
    (default: $MPICC or mpicc, if it works)])],
    [], [with_mpi=auto])
rondo_mpi_asked=yes rondo_mpi_why=
AS_CASE([$with_mpi],
    [no], [],
    [auto], [test -n "$MPICC" || { rondo_mpi_asked=no; MPICC=mpicc; }],
    [yes], [test -n "$MPICC" || MPICC=mpicc],
    [AS_IF([test -d "$with_mpi"], [MPICC=$with_mpi/bin/mpicc], [MPICC=$with_mpi])])
RONDO_MPI=no
AS_IF([test "x$with_mpi" = xno], [rondo_mpi_why="--with-mpi=no"], [RONDO_TRY_MPI])
AS_IF([test "x$RONDO_MPI" != xno],
        [RONDO_NOTE([MPI], [$rondo_mpi_version, $MPICC, launcher $MPIEXEC: librondo_$RONDO_MPI])],
    [test "x$with_mpi" = xno || test "x$rondo_mpi_asked" = xno],
        [RONDO_NOTE([MPI], [left out: $rondo_mpi_why (only the engine is built; no perf programs)])],
    [AC_MSG_ERROR([MPI was asked for, but $rondo_mpi_why])])
AM_CONDITIONAL([HAVE_OPENMPI], [test "x$RONDO_MPI" = xopenmpi])
AM_CONDITIONAL([HAVE_MPICH], [test "x$RONDO_MPI" = xmpich])
AM_CONDITIONAL([HAVE_MPIABI], [test "x$RONDO_MPI" = xmpiabi])
AM_CONDITIONAL([HAVE_MPI], [test "x$RONDO_MPI" != xno])
AS_IF([test "x$RONDO_MPI" = xno], [RONDO_MPI_LIB=], [RONDO_MPI_LIB=-lrondo_$RONDO_MPI])
RONDO_CHECK_COLL_COMPONENT
AC_SUBST([RONDO_MPI])
AC_SUBST([RONDO_MPI_LIB])
])

AC_DEFUN([RONDO_TRY_MPI], [
AC_MSG_CHECKING([how $MPICC compiles and links])
rondo_show=`$MPICC -show 2>/dev/null`
AS_IF([test $? -ne 0], [rondo_show=])
# Some wrappers quote words (Intel MPI: -I"/opt/..."), and some options are two words.
rondo_show=`echo "$rondo_show" | tr -d "\"'"`
rondo_cpp= rondo_ld= rondo_first=yes rondo_option=
for word in $rondo_show; do
    AS_IF([test "$rondo_first" = yes], [rondo_first=no; continue])
    AS_CASE([$rondo_option],
        [-Xlinker|-L], [rondo_ld="$rondo_ld $rondo_option $word"; rondo_option=; continue],
        [-*], [rondo_cpp="$rondo_cpp $rondo_option $word"; rondo_option=; continue])
    AS_CASE([$word],
        [-Xlinker|-L|-I|-D|-isystem], [rondo_option=$word],
        [-I*|-D*|-isystem*], [rondo_cpp="$rondo_cpp $word"],
        [-pthread], [rondo_cpp="$rondo_cpp $word"; rondo_ld="$rondo_ld $word"],
        [-L*|-l*|-Wl,*|/*.so|/*.a], [rondo_ld="$rondo_ld $word"])
done
test -n "$MPI_CPPFLAGS" || MPI_CPPFLAGS=$rondo_cpp
test -n "$MPI_LIBS" || MPI_LIBS=$rondo_ld
AC_MSG_RESULT([$MPI_CPPFLAGS $MPI_LIBS])

AC_MSG_CHECKING([which MPI this is])
rondo_cppflags=$CPPFLAGS rondo_libs=$LIBS
CPPFLAGS="$CPPFLAGS $MPI_CPPFLAGS" LIBS="$MPI_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])], [
    RONDO_MPI_VERSION([OPEN_MPI], [openmpi],
        ["Open MPI" OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION])
    RONDO_MPI_VERSION([MVAPICH2_VERSION], [mpich], ["MVAPICH" MVAPICH2_VERSION])
    RONDO_MPI_VERSION([I_MPI_VERSION], [mpich], ["Intel MPI" I_MPI_VERSION])
    RONDO_MPI_VERSION([MPICH_VERSION], [mpich], ["MPICH" MPICH_VERSION])
    RONDO_MPI_VERSION([MPI_ABI_VERSION], [mpiabi], ["MPI ABI" MPI_ABI_VERSION.MPI_ABI_SUBVERSION])
    AS_IF([test "x$RONDO_MPI" = xno],
        [rondo_mpi_why="the mpi.h of $MPICC is neither Open MPI's, nor one of MPICH's family, nor one of the MPI 5 ABI"])
], [
    rondo_mpi_why="a program with MPI_Init does not link with the flags of '$MPICC -show'"
    rondo_mpi_why="$rondo_mpi_why (install $MPICC, or set MPI_CPPFLAGS and MPI_LIBS)"
])
CPPFLAGS=$rondo_cppflags LIBS=$rondo_libs
AS_IF([test "x$RONDO_MPI" = xno], [AC_MSG_RESULT([$rondo_mpi_why])], [AC_MSG_RESULT([$rondo_mpi_version])])

# The launcher is beside the compiler and has its suffix: mpicc.mpich, mpiexec.mpich.
AS_IF([test "x$RONDO_MPI" != xno && test -z "$MPIEXEC"], [
    rondo_mpicc_path=`command -v "$MPICC"`
    rondo_dir=`AS_DIRNAME(["$rondo_mpicc_path"])`
    rondo_suffix=`AS_BASENAME(["$rondo_mpicc_path"]) | sed -n 's/^mpicc\(\..*\)$/\1/p'`
    for name in mpiexec$rondo_suffix mpiexec.$RONDO_MPI mpirun.$RONDO_MPI mpiexec mpirun mpiexec.hydra; do
        AS_IF([test -x "$rondo_dir/$name"], [MPIEXEC=$rondo_dir/$name; break])
    done
    test -n "$MPIEXEC" || MPIEXEC=mpiexec
])
])

# Are the headers here that a component of Open MPI's collectives needs? (Open MPI: configure --with-devel-headers.)
AC_DEFUN([RONDO_CHECK_COLL_COMPONENT], [
rondo_coll=no
AS_IF([test "x$RONDO_MPI" = xopenmpi], [
    AC_MSG_CHECKING([whether Open MPI's headers for components are here])
    rondo_cppflags=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $MPI_CPPFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include "ompi_config.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/coll/coll.h"]], [[struct mca_coll_base_module_2_3_0_t *module = 0; return module != 0;]])],
        [rondo_coll=yes])
    CPPFLAGS=$rondo_cppflags
    AC_MSG_RESULT([$rondo_coll])
])
AM_CONDITIONAL([HAVE_COLL_COMPONENT], [test "$rondo_coll" = yes])
])

# RONDO_MPI_VERSION(MACRO, NAME, TEXT): sets RONDO_MPI to NAME if mpi.h defines MACRO and RONDO_MPI is not
# set yet. The preprocessor expands TEXT to the version.
AC_DEFUN([RONDO_MPI_VERSION], [
AS_IF([test "x$RONDO_MPI" = xno], [
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef $1
#error another MPI
#endif]])], [
        RONDO_MPI=$2
        AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include <mpi.h>
rondo_version_is $3]])])
        rondo_mpi_version=`$CPP $CPPFLAGS conftest.c 2>/dev/null || $CC -E $CPPFLAGS conftest.c 2>/dev/null`
        rondo_mpi_version=`echo "$rondo_mpi_version" | sed -n '/rondo_version_is/,$p' | sed '/^#/d' |
            tr -d '\n"' | sed 's/ *rondo_version_is *//; s/ *\. */./g'`
    ])
])
])

# The Fortran module (MPIFC, RONDO_FCFLAGS) and the folder of the Python package.
AC_DEFUN([RONDO_CHECK_FORTRAN], [
AC_ARG_VAR([MPIFC], [MPI Fortran compiler (default: the mpifort beside MPICC; no: no Fortran module)])
AC_ARG_VAR([FCFLAGS], [Fortran compiler flags])
AC_ARG_WITH([pythondir], [AS_HELP_STRING([--with-pythondir=DIR],
    [folder of the Python package (default: DATADIR/rondo/python; programs need it in PYTHONPATH)])],
    [rondo_pythondir=$with_pythondir], [rondo_pythondir='${datadir}/rondo/python'])
AC_SUBST([rondo_pythondir])
rondo_fortran=no
AS_IF([test "x$PYTHON" = x:], [rondo_fortran_why="there is no python3, which makes it"],
    [test "x$RONDO_MPI" = xno], [rondo_fortran_why="there is no MPI"],
    [test "x$RONDO_MPI" = xmpiabi], [rondo_fortran_why="the MPI 5 ABI has no Fortran"],
    [test "x$MPIFC" = xno], [rondo_fortran_why="MPIFC=no"], [RONDO_TRY_FORTRAN])
AS_IF([test "$rondo_fortran" != no], [RONDO_NOTE([Fortran], [module for $MPIFC, $rondo_fortran])],
    [RONDO_NOTE([Fortran], [no module: $rondo_fortran_why (its source is installed)])])
AM_CONDITIONAL([HAVE_FORTRAN], [test "$rondo_fortran" != no])
AC_SUBST([RONDO_FCFLAGS])
])

# Assumed rank and C_LOC of Fortran 2018; then mpi_f08, which not every MPI has for every compiler.
AC_DEFUN([RONDO_TRY_FORTRAN], [
AS_IF([test -z "$MPIFC"], [
    rondo_mpicc_path=`command -v "$MPICC"`
    rondo_dir=`AS_DIRNAME(["$rondo_mpicc_path"])`
    rondo_suffix=`AS_BASENAME(["$rondo_mpicc_path"]) | sed -n 's/^mpicc\(\..*\)$/\1/p'`
    MPIFC=mpifort
    for name in mpifort$rondo_suffix mpifort.$RONDO_MPI mpifort mpiifx mpiifort; do
        AS_IF([test -x "$rondo_dir/$name"], [MPIFC=$rondo_dir/$name; break])
    done
])
rondo_fortran_why="$MPIFC does not compile type(*), dimension(..) of Fortran 2018"
RONDO_FCFLAGS="${FCFLAGS--O2} -fPIC"
AS_IF([test "x$RONDO_MPI" = xmpich], [RONDO_FCFLAGS="$RONDO_FCFLAGS -DRONDO_MPICH"])
AC_MSG_CHECKING([whether $MPIFC compiles a module for C's pointers, and mpi_f08])
cat >conftest.F90 <<'_RONDO_EOF'
subroutine rondo_try(buffer, address)
    use, intrinsic :: iso_c_binding
#ifndef RONDO_NO_MPI_F08
    use mpi_f08, only: MPI_Comm
#endif
    type(*), dimension(..), target, asynchronous :: buffer
    type(c_ptr), intent(out) :: address
    if (is_contiguous(buffer)) address = c_loc(buffer)
end subroutine
_RONDO_EOF
for rondo_flag in "" -DRONDO_NO_MPI_F08; do
    AS_IF([test "$rondo_fortran" = no && $MPIFC $RONDO_FCFLAGS $rondo_flag -c conftest.F90 -o conftest.o \
        >&AS_MESSAGE_LOG_FD 2>&1], [
        RONDO_FCFLAGS="$RONDO_FCFLAGS $rondo_flag"
        AS_IF([test -z "$rondo_flag"], [rondo_fortran="with mpi_f08"], [rondo_fortran="without mpi_f08"])])
done
rm -f conftest.F90 conftest.o
AC_MSG_RESULT([$rondo_fortran])
])

# The types whose CUDA kernels are built; the names are the rows of RONDO_DEVICE_DTYPE_TABLE.
AC_DEFUN([RONDO_ENABLE_DTYPES], [
AC_ARG_ENABLE([dtypes],
    [AS_HELP_STRING([--enable-dtypes=f32,...], [types whose CUDA kernels are built (default: all)])],
    [], [enable_dtypes=all])
rondo_all_dtypes=`sed -n '/define RONDO_DEVICE_DTYPE_TABLE/,/^$/s/^ *X(ctx, *\([[a-z0-9]]*\),.*/\1/p' \
    "$srcdir/src/base/rondo_types.def" | tr '\n' ' '`
AS_CASE([$enable_dtypes],
    [all|yes], [RONDO_DTYPES=$rondo_all_dtypes],
    [no], [AC_MSG_ERROR([--disable-dtypes: choose types with --enable-dtypes: $rondo_all_dtypes])],
    [RONDO_DTYPES=`echo "$enable_dtypes" | tr ',' ' '`])
for dtype in $RONDO_DTYPES; do
    AS_CASE([" $rondo_all_dtypes "], [*" $dtype "*], [],
        [AC_MSG_ERROR([--enable-dtypes: unknown type '$dtype'; choose from: $rondo_all_dtypes])])
done
AC_SUBST([RONDO_DTYPES])
])

# Sets NVCC (empty: no CUDA) and CUDA_ARCH (80 90 100 103 120).
AC_DEFUN([RONDO_CHECK_CUDA], [
AC_ARG_VAR([CUDA_ARCH],
    [compute capabilities of the kernels, at least 80, the newest last, such as "80 90"
    (default: that of the GPU, else those of 80 90 100 103 120 that nvcc knows); the last is also built as PTX, for newer GPUs])
AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR|auto|no],
        [CUDA toolkit; auto (default): use it if this machine has a GPU, for that GPU])],
    [], [with_cuda=auto])
NVCC= rondo_gpu=no rondo_cuda_why=
AS_IF([test -n "`ls /proc/driver/nvidia/gpus 2>/dev/null`" || nvidia-smi -L >/dev/null 2>&1], [rondo_gpu=yes])
AC_MSG_CHECKING([for CUDA])
AS_CASE([$with_cuda],
    [no], [rondo_cuda_why="--with-cuda=no"],
    [auto], [AS_IF([test $rondo_gpu = no],
        [rondo_cuda_why="this machine has no GPU (--with-cuda=DIR builds it anyway)"], [
        NVCC=`command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null`
        test -n "$NVCC" ||
            rondo_cuda_why="no nvcc on PATH or in /usr/local/cuda/bin (use --with-cuda=DIR)"])],
    [AS_IF([test "x$with_cuda" = xyes], [NVCC=`command -v nvcc || echo /usr/local/cuda/bin/nvcc`],
        [NVCC=$with_cuda/bin/nvcc])
    test -x "$NVCC" || AC_MSG_ERROR([--with-cuda=$with_cuda: $NVCC does not exist])])
AS_IF([test -n "$NVCC"], [
    rondo_nvcc_release=`"$NVCC" --version | sed -n 's/.*release \([[0-9.]]*\),.*/\1/p'`
    test -n "$rondo_nvcc_release" || AC_MSG_ERROR([$NVCC does not work: its --version prints no release])
    AS_IF([test -z "$CUDA_ARCH" && test $rondo_gpu = yes],
        [CUDA_ARCH=`nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
            head -n 1 | tr -d '. '`])
    rondo_archs=
    for arch in 80 90 100 103 120; do
        AS_IF(["$NVCC" --list-gpu-code 2>/dev/null | grep -qx sm_$arch], [rondo_archs="$rondo_archs $arch"])
    done
    test -n "$CUDA_ARCH" || CUDA_ARCH=${rondo_archs:-80 90 100}
    CUDA_ARCH=`echo $CUDA_ARCH | tr ',' ' '`
    for arch in $CUDA_ARCH; do
        AS_CASE([$arch], [[*[!0-9]*]],
            [AC_MSG_ERROR([CUDA_ARCH=$CUDA_ARCH: '$arch' is not a compute capability such as 90])])
        test "$arch" -ge 80 ||
            AC_MSG_ERROR([CUDA_ARCH=$CUDA_ARCH: kernels need 80 or more; --with-cuda=no leaves them out])
    done
    AC_MSG_RESULT([$NVCC, release $rondo_nvcc_release, for $CUDA_ARCH])
    RONDO_NOTE([CUDA], [$rondo_nvcc_release, kernels for $CUDA_ARCH and newer, types: $RONDO_DTYPES])
], [
    AC_MSG_RESULT([left out: $rondo_cuda_why])
    RONDO_NOTE([CUDA], [left out: $rondo_cuda_why])
])
AS_IF([test -n "$NVCC"], [
    rondo_cuda_include=`dirname "\`readlink -f "$NVCC"\`"`/../include
    CUDA_CPPFLAGS="-DRONDO_CUDA=1 -I$rondo_cuda_include"
    test -r "$rondo_cuda_include/cuda.h" ||
        AC_MSG_ERROR([the CUDA toolkit of $NVCC is incomplete: $rondo_cuda_include/cuda.h does not exist])
])
AC_SUBST([NVCC])
AC_SUBST([CUDA_CPPFLAGS])
AM_CONDITIONAL([RONDO_CUDA], [test -n "$NVCC"])
])

AC_DEFUN([RONDO_CHECK_VERBS], [
AC_ARG_WITH([verbs],
    [AS_HELP_STRING([--with-verbs=auto|yes|no],
        [InfiniBand verbs; libibverbs is opened at run time (default: auto)])],
    [], [with_verbs=auto])
AS_CASE([$with_verbs], [auto|yes|no], [],
    [AC_MSG_ERROR([--with-verbs=$with_verbs: choose auto, yes or no])])
rondo_verbs=no
rondo_verbs_why="no infiniband/verbs.h (Debian: libibverbs-dev)"
AS_IF([test "x$with_verbs" != xno], [AC_CHECK_HEADER([infiniband/verbs.h], [
    rondo_verbs=yes
    rondo_verbs_why="infiniband/verbs.h is older than rdma-core 32: it lacks"
    AC_CHECK_TYPE([struct ibv_gid_entry], [],
        [rondo_verbs=no; rondo_verbs_why="$rondo_verbs_why struct ibv_gid_entry"],
        [#include <infiniband/verbs.h>])
    AC_CHECK_DECL([IBV_ACCESS_RELAXED_ORDERING], [],
        [rondo_verbs=no; rondo_verbs_why="$rondo_verbs_why IBV_ACCESS_RELAXED_ORDERING"],
        [#include <infiniband/verbs.h>])
])])
AS_IF([test $rondo_verbs = yes], [RONDO_NOTE([verbs], [net device built; libibverbs is opened at run time])],
    [test "x$with_verbs" = xyes], [AC_MSG_ERROR([--with-verbs=yes, but $rondo_verbs_why])],
    [test "x$with_verbs" = xno], [RONDO_NOTE([verbs], [left out: --with-verbs=no])],
    [RONDO_NOTE([verbs], [left out: $rondo_verbs_why])])
AM_CONDITIONAL([HAVE_VERBS], [test $rondo_verbs = yes])
])

# RONDO_CHECK_PACKAGE(PREFIX, name, pkg-config modules, Debian package, what it is for)
AC_DEFUN([RONDO_CHECK_PACKAGE], [
PKG_CHECK_MODULES([$1], [$3],
    [rondo_have_$2=yes; RONDO_NOTE([$2], [`$PKG_CONFIG --modversion m4_bregexp([$3], [^[^ ]+], [\&])` ($5)])],
    [rondo_have_$2=no; RONDO_NOTE([$2], [left out: pkg-config finds no $3 (Debian: $4; $5)])])
AM_CONDITIONAL([HAVE_$1], [test "x$rondo_have_$2" = xyes])
])

# RONDO_NEED_PACKAGE(PREFIX, name, pkg-config modules, Debian package, what it is for)
AC_DEFUN([RONDO_NEED_PACKAGE], [
PKG_CHECK_MODULES([$1], [$3],
    [RONDO_NOTE([$2], [`$PKG_CONFIG --modversion m4_bregexp([$3], [^[^ ]+], [\&])` ($5)])],
    [AC_MSG_ERROR([pkg-config does not find $3, needed for: $5 (run scripts/install-deps; Debian: $4)])])
])

dnl The lines of the summary, as a C string for rondo-info --build. Call it after all notes.
AC_DEFUN([RONDO_SUMMARY_LINES], [
AS_IF([test "x$enable_devel" = xyes], [rondo_mode="devel (all warnings are errors)"], [rondo_mode="release"])
rondo_summary="  m4_format([%-12s], [libraries]) into $rondo_libdir
  m4_format([%-12s], [compiler]) $CC $CFLAGS
  m4_format([%-12s], [mode]) $rondo_mode, sanitizers: $enable_sanitizers
$rondo_notes"
RONDO_BUILD_TEXT=$(AS_ECHO(["$rondo_summary  m4_format([%-12s], [configure]) $ac_configure_args"]) |
    $SED -e 's/@<:@\\"@:>@/\\&/g' -e 's/.*/"&\\n"/' | tr '\n' ' ')
AC_SUBST([RONDO_BUILD_TEXT])
])

AC_DEFUN([RONDO_SUMMARY], [
cat <<_RONDO_EOF

Rondo $PACKAGE_VERSION
$rondo_summary
_RONDO_EOF
])
