! Every procedure of module rondo_tensors gives what rondo_tensor.h promises.
program tensors
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use mpi_f08
    use rondo
    use rondo_tensors
    implicit none
    type(rondo_comm) :: comm
    type(rondo_tensor_store) :: store
    type(rondo_tensor_config) :: config
    integer :: me, n, next, error

    call MPI_Init()
    call rondo_comm_create(MPI_COMM_WORLD, comm)
    call rondo_comm_rank(comm, me)
    call rondo_comm_count(comm, n)
    next = mod(me + 1, n)
    config%timeout_ms = 60000
    call rondo_tensor_store_create(comm, store, config)
    call matrices()
    call requests()
    call errors()
    call rondo_tensor_store_destroy(store)
    call check(.not. c_associated(store%handle), "the store is gone")
    call rondo_comm_destroy(comm)
    print "(a, i0, a)", "rank ", me, ": all calls are right"
    call MPI_Finalize()
contains
    subroutine check(ok, what)
        logical, intent(in) :: ok
        character(*), intent(in) :: what
        if (ok) return
        print "(a)", "tensors.F90: " // what // ": " // rondo_last_error()
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine

    ! A matrix of 3 by 4 is 4 rows of 3 in C.
    subroutine matrices()
        real(c_float), target :: mine(3, 4), column(3)
        real(c_float), pointer :: got(:, :)
        type(rondo_tensor), target :: tensor, into, many(2)
        type(rondo_tensor_item) :: items(2)
        character(kind=c_char, len=7), target :: name = "matrix" // c_null_char
        integer :: i
        mine = reshape([(real(me * 100 + i, c_float), i = 0, 11)], [3, 4])
        tensor = rondo_tensor_of(mine, RONDO_FLOAT32)
        call check(tensor%bytes == 48 .and. tensor%ndims == 2 .and. tensor%shape(1) == 4, "rondo_tensor_of")
        call rondo_tensor_publish(store, "matrix", 1_int64, tensor)
        call rondo_tensor_pull(store, "matrix", next, 1_int64, into)
        call check(into%ndims == 2 .and. into%shape(1) == 4 .and. into%shape(2) == 3 .and. into%peer == next &
            .and. into%step == 1 .and. into%type == RONDO_FLOAT32, "what a pull sets")
        call c_f_pointer(into%data, got, [3, 4])
        call check(nint(got(3, 4)) == next * 100 + 11, "the content")
        call rondo_tensor_free(store, into%data)
        into = rondo_tensor_of(column, RONDO_FLOAT32)
        call rondo_tensor_pull(store, "matrix", next, RONDO_TENSOR_LATEST, into, &
            rondo_tensor_slice(RONDO_TENSOR_ROWS, 2, 1))
        call check(all(nint(column) == [(next * 100 + i, i = 6, 8)]), "a row, which is a column of Fortran")
        do i = 1, 2
            items(i) = rondo_tensor_item(key=c_loc(name), peer=i - 1, step=1, tensor=c_loc(many(i)))
        end do
        call rondo_tensor_pull_many(store, items)
        do i = 1, 2
            call check(items(i)%status == RONDO_SUCCESS .and. many(i)%bytes == 48, "pull_many")
            call rondo_tensor_free(store, many(i)%data)
        end do
        call MPI_Barrier(MPI_COMM_WORLD)
        call rondo_tensor_retire(store, 1_int64)
        call rondo_tensor_publish(store, "matrix", 1_int64, tensor, ierror=error)
        call check(error == RONDO_INVALID_USAGE, "a retired step")
    end subroutine

    subroutine requests()
        type(c_ptr) :: memory
        integer(c_int), pointer :: value(:)
        integer(c_int), target :: got(1)
        type(rondo_tensor), target :: out, in, none
        type(rondo_tensor_request) :: pull, sent
        type(rondo_tensor_stats) :: stats
        logical :: done
        call rondo_tensor_alloc(store, 4, memory)
        call c_f_pointer(memory, value, [1])
        value = me
        out = rondo_tensor_of(value, RONDO_INT32)
        in = rondo_tensor_of(got, RONDO_INT32)
        call rondo_tensor_pull(store, "value", next, 2_int64, in, request=pull)
        call rondo_tensor_send(store, "value", 2_int64, out, sent)
        do
            call rondo_tensor_test(pull, done)
            if (done) exit
        end do
        call check(got(1) == next, "a pull in the background")
        call rondo_tensor_wait(sent, 60000_int64)
        call rondo_tensor_publish(store, "once", 2_int64, out, 1_int64, sent)
        call rondo_tensor_recv(store, "once", next, 2_int64, in)
        call rondo_tensor_wait(sent)
        call rondo_tensor_announce(store, "key of " // achar(iachar("0") + me), 2_int64, out)
        got = -1
        call rondo_tensor_pull(store, "key of " // achar(iachar("0") + next), RONDO_TENSOR_ANY, 2_int64, in)
        call check(got(1) == next .and. in%peer == next, "a key of any rank")
        call rondo_tensor_publish_error(store, "bad", 2_int64, RONDO_SYSTEM_ERROR, "the disk is full")
        call rondo_tensor_pull(store, "bad", next, 2_int64, none, ierror=error)
        call check(error == RONDO_SYSTEM_ERROR .and. index(rondo_last_error(), "the disk is full") > 0, "its error")
        call rondo_tensor_pull(store, "never", next, 2_int64, none, request=pull)
        call rondo_tensor_cancel(pull)
        call rondo_tensor_wait(pull, ierror=error)
        call check(error == RONDO_INVALID_USAGE, "a cancelled pull")
        call rondo_tensor_store_stats(store, stats)
        call check(stats%requests >= 5 .and. stats%arenas == 1, "the counts")
        call MPI_Barrier(MPI_COMM_WORLD)
        call rondo_tensor_next_epoch(store)
        call rondo_tensor_free(store, memory)
        call rondo_tensor_free(store, memory, error)
        call check(error == RONDO_INVALID_ARGUMENT, "memory that was freed")
    end subroutine

    subroutine errors()
        integer(c_int), target :: x(4, 4)
        type(rondo_tensor) :: gaps
        type(rondo_tensor_request) :: none
        type(rondo_tensor_store) :: nowhere
        type(c_ptr) :: memory
        x = 0
        gaps = rondo_tensor_of(x(1:4:2, :), RONDO_INT32)
        call rondo_tensor_publish(store, "gaps", 3_int64, gaps, ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT, "an array with gaps")
        call rondo_tensor_wait(none, ierror=error)
        call check(error == RONDO_INVALID_ARGUMENT, "no request")
        call rondo_tensor_alloc(nowhere, 8_int64, memory, error)
        call check(error == RONDO_INVALID_ARGUMENT, "no store")
    end subroutine
end program
