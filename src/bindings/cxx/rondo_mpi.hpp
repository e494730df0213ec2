/* Rondo for MPI programs in C++: rondo.hpp, and communicators made from an MPI_Comm. */
#ifndef RONDO_MPI_HPP
#define RONDO_MPI_HPP

#include <rondo_mpi.h>
#include "rondo.hpp"

namespace rondo {

/** rondo_comm_create. With settings.blocking 0, or in a group, creation goes on after the return. */
inline comm create(MPI_Comm mpi_comm, const rondo_config &settings = config())
{
    return comm::make([&](rondo_comm **made) { return rondo_comm_create(mpi_comm, &settings, made); });
}
[[nodiscard]] inline rondo_status create(std::nothrow_t, MPI_Comm mpi_comm, const rondo_config &settings,
                                         comm &made) noexcept
{
    return comm::make(made, [&](rondo_comm **to) { return rondo_comm_create(mpi_comm, &settings, to); });
}

} // namespace rondo
#endif
