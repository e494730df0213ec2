! Every procedure of module rondo gives what rondo.h promises: buffers of any type and rank, counts of 4 and of 8
! bytes, ierror, streams, communicators from a handle and from mpi_f08.
module checks
    use mpi_f08
    use rondo
    implicit none
contains
    subroutine check(ok, what)
        logical, intent(in) :: ok
        character(*), intent(in) :: what
        if (ok) return
        print "(a)", "calls.F90: " // what
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end module

program calls
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use mpi_f08
    use rondo
    use checks
    implicit none
    type(rondo_comm) :: comm
    type(rondo_config) :: config
    character(kind=c_char, len=6), target :: name = "calls" // c_null_char
    integer :: me, n, error, version

    call MPI_Init()
    config%name = c_loc(name)
    config%timeout_ms = 60000
    call rondo_comm_create(MPI_COMM_WORLD, comm, config)
    call rondo_comm_rank(comm, me)
    call rondo_comm_count(comm, n)
    call collectives()
    call counts_per_rank()
    call streams()
    call children()
    call errors()
    call rondo_get_version(version)
    call check(version == RONDO_VERSION_CODE, "the version")
    call rondo_comm_destroy(comm)
    print "(a, i0, a)", "rank ", me, ": all calls are right"
    call MPI_Finalize()
contains
    subroutine collectives()
        real(c_double), target :: a(2, 3), b(2, 3), all(6 * n)
        integer, target :: scalar, total
        a = me + 1
        call rondo_all_reduce(a, b, 6, RONDO_FLOAT64, RONDO_SUM, comm)
        call check(all_are(b, n * (n + 1) / 2.0_c_double), "all_reduce of rank 2")
        scalar = me + 1
        call rondo_all_reduce(scalar, total, 1_int64, RONDO_INT32, RONDO_MAX, comm)
        call check(total == n, "all_reduce of scalars, a count of 8 bytes")
        call rondo_reduce(a, b, 6, RONDO_FLOAT64, RONDO_MIN, n - 1, comm)
        call check(me /= n - 1 .or. all_are(b, 1.0_c_double), "reduce")
        call rondo_broadcast(a, b, 6, RONDO_FLOAT64, n - 1, comm)
        call check(all_are(b, real(n, c_double)), "broadcast")
        call rondo_all_gather(a, all, 6, RONDO_FLOAT64, comm)
        call check(nint(all(6 * n)) == n .and. nint(all(1)) == 1, "all_gather")
        call rondo_reduce_scatter(all, b, 6, RONDO_FLOAT64, RONDO_AVG, comm)
        call check(all_are(b, me + 1.0_c_double), "reduce_scatter")
        all = me
        call rondo_all_to_all(all, all, 6, RONDO_FLOAT64, comm)
        call check(nint(all(6 * n)) == n - 1, "all_to_all in place")
        call rondo_gather(a, all, 6, RONDO_FLOAT64, 0, comm)
        call check(me /= 0 .or. nint(all(6 * n)) == n, "gather")
        call rondo_scatter(all, b, 6, RONDO_FLOAT64, 0, comm)
        call check(me /= 0 .or. all_are(b, 1.0_c_double), "scatter")
        call rondo_broadcast(a(:, 2), b(:, 2), 2, RONDO_FLOAT64, 0, comm)
        call check(nint(b(1, 2)) == 1, "a contiguous section")
        call rondo_barrier(comm)
    end subroutine

    logical function all_are(values, expected)
        real(c_double), intent(in) :: values(:, :), expected
        all_are = maxval(abs(values - expected)) < 1e-12
    end function

    subroutine counts_per_rank()
        integer :: counts(n), displs(n), i
        integer(int64) :: ones(n), at(n)
        integer, target :: mine(me + 1), every(n * (n + 1) / 2), out(n), into(n)
        counts = [(i, i = 1, n)]
        displs = [(i * (i - 1) / 2, i = 1, n)]
        mine = me
        call rondo_all_gatherv(mine, every, counts, displs, RONDO_INT32, comm)
        call check(every(size(every)) == n - 1 .and. every(1) == 0, "all_gatherv")
        call rondo_reduce_scatterv(every, mine, counts, displs, RONDO_INT32, RONDO_SUM, comm)
        call check(all(mine == me * n), "reduce_scatterv")
        ones = 1
        at = [(int(i - 1, int64), i = 1, n)]
        out = me
        call rondo_all_to_allv(out, ones, at, into, ones, at, RONDO_INT32, comm)
        call check(all(into == [(i - 1, i = 1, n)]), "all_to_allv, counts of 8 bytes")
    end subroutine

    subroutine streams()
        type(rondo_stream) :: stream
        type(c_ptr) :: memory, handle
        real, pointer :: values(:)
        real, target :: left
        integer :: doubled
        call rondo_stream_create(stream)
        call rondo_mem_alloc(memory, 400)
        call c_f_pointer(memory, values, [100])
        call rondo_comm_register(comm, values, 400, handle)
        values = 1
        call rondo_all_reduce(values, values, 100, RONDO_FLOAT32, RONDO_SUM, comm, stream)
        do
            call rondo_stream_query(stream, error)
            if (error /= RONDO_IN_PROGRESS) exit
        end do
        call check(error == RONDO_SUCCESS .and. nint(values(100)) == n, "all_reduce on a stream")
        call rondo_group_start()
        call rondo_send(values, 1, RONDO_FLOAT32, mod(me + 1, n), comm, stream)
        call rondo_recv(left, 1, RONDO_FLOAT32, mod(me + n - 1, n), comm, stream)
        call rondo_group_end()
        call rondo_stream_synchronize(stream)
        call check(nint(left) == n, "send and receive")
        left = 2
        call rondo_op_create_premul_sum(doubled, left, RONDO_FLOAT32, comm)
        values = 1
        call rondo_all_reduce(values, values, 100, RONDO_FLOAT32, doubled, comm)
        call check(nint(values(1)) == 2 * n, "a premultiplied sum")
        call rondo_op_destroy(doubled, comm)
        call rondo_comm_deregister(comm, handle)
        call rondo_mem_free(memory)
        call rondo_stream_destroy(stream)
    end subroutine

    subroutine children()
        type(rondo_comm) :: half, world, alone
        type(rondo_comm), target :: never
        integer :: ranks, device, nobody(1) = -1
        logical :: begun
        call rondo_comm_split(comm, mod(me, 2), me, half)
        call rondo_comm_count(half, ranks)
        call check(ranks == (n + 1 - mod(me, 2)) / 2, "split")
        call rondo_comm_finalize(half)
        call rondo_comm_destroy(half)
        call rondo_group_start()
        call rondo_comm_split(comm, RONDO_SPLIT_NOCOLOR, me, never)
        begun = c_associated(never%handle)
        call rondo_group_end()
        call check(begun .and. .not. c_associated(never%handle), "a split that comes to nothing at the end of a group")
        call rondo_comm_create(MPI_COMM_WORLD%MPI_VAL, world, ierror=error)
        call check(error == RONDO_SUCCESS, "a communicator from an integer")
        call rondo_comm_shrink(world, nobody, 0, RONDO_SHRINK_DEFAULT, alone)
        call rondo_comm_device(alone, device)
        call check(device == -1, "host memory")
        call rondo_barrier(comm)
        call rondo_comm_abort(alone)
        call rondo_comm_destroy(world)
    end subroutine

    subroutine errors()
        integer, target :: x(4, 4), y(4, 4)
        character(kind=c_char, len=16), target :: nowhere
        type(rondo_comm) :: none
        x = 0
        call rondo_broadcast(x, x, 16, RONDO_INT32, n, comm, ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT, "a bad root")
        call check(len(rondo_last_error(comm)) > 20 .and. len(rondo_last_error()) > 20, "the sentence")
        call check(rondo_status_string(RONDO_TIMEOUT) == "operation timed out", "the status's text")
        call rondo_broadcast(x(1:4:2, :), x(1:4:2, :), 8, RONDO_INT32, 0, comm, ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT, "a section with gaps")
        x = 1
        y = 0
        call rondo_group_start()
        call rondo_all_reduce(x, y, 16, RONDO_INT32, RONDO_SUM, comm)
        call rondo_broadcast(x(1:4:2, :), x(1:4:2, :), 8, RONDO_INT32, 0, comm, ierror=error)
        call rondo_group_end(ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT .and. all(y == 0), "a section with gaps in a group")
        call check(index(rondo_last_error(), "not contiguous") > 0, "the sentence of a section with gaps")
        call rondo_comm_create(MPI_COMM_NULL, none, ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT, "MPI_COMM_NULL")
        call check(rondo_dtype_size(RONDO_FLOAT64) == 8, "dtype_size")
        nowhere = "/nowhere/at/all" // c_null_char
        call rondo_comm_dump(comm, c_loc(nowhere), ierror=error)
        call check(error == RONDO_SYSTEM_ERROR, "a dump to nowhere")
        call rondo_comm_async_error(comm, error)
        call check(error == RONDO_SUCCESS, "the communicator is undisturbed")
    end subroutine
end program
