! Named tensors for Fortran 2018: module rondo_tensors has the functions of rondo_tensor.h, beside module rondo.
!
! - Procedures have C's names and arguments; optional ones come last. Without request, a pull returns when it has
!   ended. ierror, the last argument, is optional: without it an error ends the program.
! - Keys are texts, without trailing blanks; steps are integer(int64).
! - rondo_tensor_of describes an array, which must be target, contiguous, and live until the tensor is no longer
!   used. Its shape is the array's in C's order: Fortran's last dimension is the first, of rows.
! - What a pull fills must be target, and live until the pull has ended.
! - What rondo_tensor.h says of keys, steps, memory, threads and errors holds here too.
#ifdef RONDO_NO_ASSUMED_RANK
#define RONDO_NO_TENSOR_OF
#endif
module rondo_tensors
use, intrinsic :: iso_c_binding
use, intrinsic :: iso_fortran_env, only: error_unit, int64
use rondo
implicit none
private

integer(c_int), parameter, public :: RONDO_TENSOR_MAX_KEY = 512, RONDO_TENSOR_MAX_DIMS = 8, RONDO_TENSOR_ANY = -1
integer(int64), parameter, public :: RONDO_TENSOR_LATEST = -1_int64, RONDO_TENSOR_UNTIL_RETIRED = 0_int64
integer(c_int), parameter, public :: RONDO_TENSOR_ALL = 0, RONDO_TENSOR_BYTES = 1, RONDO_TENSOR_ROWS = 2

type, public :: rondo_tensor_store
    type(c_ptr) :: handle = c_null_ptr
end type
type, public :: rondo_tensor_request
    type(c_ptr) :: handle = c_null_ptr
end type

! With the values of RONDO_TENSOR_INIT.
type, bind(c), public :: rondo_tensor
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: bytes = 0
    integer(c_int) :: type = 0
    integer(c_int) :: ndims = 0
    integer(c_int64_t) :: shape(RONDO_TENSOR_MAX_DIMS) = 0
    integer(c_int) :: dead = 0
    integer(c_int) :: packed = 0
    integer(c_int) :: memory = 0
    integer(c_int) :: peer = -1
    integer(c_int64_t) :: step = 0
    type(c_ptr) :: ops = c_null_ptr
    type(c_ptr) :: arg = c_null_ptr
end type

type, bind(c), public :: rondo_tensor_slice
    integer(c_int) :: part = RONDO_TENSOR_ALL
    integer(c_int64_t) :: first = 0
    integer(c_int64_t) :: count = 0
end type

! key: c_loc of a text that ends with c_null_char; tensor: c_loc of a rondo_tensor.
type, bind(c), public :: rondo_tensor_item
    type(c_ptr) :: key = c_null_ptr
    integer(c_int) :: peer = RONDO_TENSOR_ANY
    integer(c_int64_t) :: step = RONDO_TENSOR_LATEST
    type(rondo_tensor_slice) :: slice
    type(c_ptr) :: tensor = c_null_ptr
    integer(c_int) :: status = 0
end type

! With the values of RONDO_TENSOR_CONFIG_INIT.
type, bind(c), public :: rondo_tensor_config
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: timeout_ms = -1
    integer(c_size_t) :: arena_bytes = 0
    integer(c_int) :: checksum = -1
    integer(c_int) :: thread = 1
end type

type, bind(c), public :: rondo_tensor_stats
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: requests = 0, re_requests = 0, meta_data = 0, errors = 0
    integer(c_int64_t) :: other_messages = 0, message_writes = 0, acks = 0
    integer(c_int64_t) :: contents = 0, content_bytes = 0
    integer(c_int64_t) :: pulled = 0, pulled_bytes = 0, dropped = 0
    integer(c_int64_t) :: staged_bytes = 0, cloned_bytes = 0
    integer(c_int64_t) :: arenas = 0, registrations = 0, connections = 0, arenas_made = 0
    integer(c_int64_t) :: direct = 0, helped_bytes = 0, framed = 0
end type

public :: rondo_tensor_store_create, rondo_tensor_store_destroy, rondo_tensor_store_stats
public :: rondo_tensor_publish, rondo_tensor_announce, rondo_tensor_publish_error, rondo_tensor_send
public :: rondo_tensor_retire, rondo_tensor_next_epoch
public :: rondo_tensor_pull, rondo_tensor_recv, rondo_tensor_pull_many
public :: rondo_tensor_wait, rondo_tensor_test, rondo_tensor_cancel
public :: rondo_tensor_alloc, rondo_tensor_free
#ifndef RONDO_NO_TENSOR_OF
public :: rondo_tensor_of
#endif

! Bytes of memory: integers of 4 or 8 bytes.
interface rondo_tensor_alloc
    module procedure alloc_i4, alloc_i8
end interface

interface
    function c_create(comm, config, store) bind(c, name="rondo_tensor_store_create") result(result_)
        import
        type(c_ptr), value :: comm, config
        type(c_ptr), intent(inout) :: store
        integer(c_int) :: result_
    end function
    function c_destroy(store) bind(c, name="rondo_tensor_store_destroy") result(result_)
        import
        type(c_ptr), value :: store
        integer(c_int) :: result_
    end function
    function c_stats(store, stats) bind(c, name="rondo_tensor_store_stats") result(result_)
        import
        type(c_ptr), value :: store
        type(rondo_tensor_stats), intent(inout) :: stats
        integer(c_int) :: result_
    end function
    function c_publish(store, key, step, tensor, pulls, request) bind(c, name="rondo_tensor_publish") result(result_)
        import
        type(c_ptr), value :: store, request
        character(kind=c_char), intent(in) :: key(*)
        integer(c_int64_t), value :: step, pulls
        type(rondo_tensor), intent(in) :: tensor
        integer(c_int) :: result_
    end function
    function c_announce(store, key, step, tensor, pulls, request) bind(c, name="rondo_tensor_announce") result(result_)
        import
        type(c_ptr), value :: store, request
        character(kind=c_char), intent(in) :: key(*)
        integer(c_int64_t), value :: step, pulls
        type(rondo_tensor), intent(in) :: tensor
        integer(c_int) :: result_
    end function
    function c_publish_error(store, key, step, status, text) bind(c, name="rondo_tensor_publish_error") result(result_)
        import
        type(c_ptr), value :: store
        character(kind=c_char), intent(in) :: key(*), text(*)
        integer(c_int64_t), value :: step
        integer(c_int), value :: status
        integer(c_int) :: result_
    end function
    function c_retire(store, step) bind(c, name="rondo_tensor_retire") result(result_)
        import
        type(c_ptr), value :: store
        integer(c_int64_t), value :: step
        integer(c_int) :: result_
    end function
    function c_next_epoch(store) bind(c, name="rondo_tensor_next_epoch") result(result_)
        import
        type(c_ptr), value :: store
        integer(c_int) :: result_
    end function
    function c_pull(store, key, peer, step, slice, tensor, request) bind(c, name="rondo_tensor_pull") result(result_)
        import
        type(c_ptr), value :: store, slice, tensor, request
        character(kind=c_char), intent(in) :: key(*)
        integer(c_int), value :: peer
        integer(c_int64_t), value :: step
        integer(c_int) :: result_
    end function
    function c_pull_many(store, items, n, request) bind(c, name="rondo_tensor_pull_many") result(result_)
        import
        type(c_ptr), value :: store, items, request
        integer(c_size_t), value :: n
        integer(c_int) :: result_
    end function
    function c_wait(request, timeout_ms) bind(c, name="rondo_tensor_wait") result(result_)
        import
        type(c_ptr), value :: request
        integer(c_int64_t), value :: timeout_ms
        integer(c_int) :: result_
    end function
    function c_test(request, done) bind(c, name="rondo_tensor_test") result(result_)
        import
        type(c_ptr), value :: request
        integer(c_int), intent(inout) :: done
        integer(c_int) :: result_
    end function
    function c_cancel(request) bind(c, name="rondo_tensor_cancel") result(result_)
        import
        type(c_ptr), value :: request
        integer(c_int) :: result_
    end function
    function c_send(store, key, step, tensor, request) bind(c, name="rondo_tensor_send") result(result_)
        import
        type(c_ptr), value :: store, request
        character(kind=c_char), intent(in) :: key(*)
        integer(c_int64_t), value :: step
        type(rondo_tensor), intent(in) :: tensor
        integer(c_int) :: result_
    end function
    function c_recv(store, key, peer, step, tensor, request) bind(c, name="rondo_tensor_recv") result(result_)
        import
        type(c_ptr), value :: store, tensor, request
        character(kind=c_char), intent(in) :: key(*)
        integer(c_int), value :: peer
        integer(c_int64_t), value :: step
        integer(c_int) :: result_
    end function
    function c_alloc(store, bytes, data) bind(c, name="rondo_tensor_alloc") result(result_)
        import
        type(c_ptr), value :: store
        integer(c_size_t), value :: bytes
        type(c_ptr), intent(inout) :: data
        integer(c_int) :: result_
    end function
    function c_free(store, data) bind(c, name="rondo_tensor_free") result(result_)
        import
        type(c_ptr), value :: store, data
        integer(c_int) :: result_
    end function
end interface

contains

! ---- stores ----

! Collective, as is the store's end.
subroutine rondo_tensor_store_create(comm, store, config, ierror)
    type(rondo_comm), intent(in) :: comm
    type(rondo_tensor_store), intent(inout) :: store
    type(rondo_tensor_config), intent(in), optional :: config
    integer, intent(out), optional :: ierror
    type(rondo_tensor_config), target :: copy
    if (present(config)) copy = config
    copy%size = c_sizeof(copy)
    call finish("rondo_tensor_store_create", c_create(comm%handle, c_loc(copy), store%handle), ierror)
end subroutine

subroutine rondo_tensor_store_destroy(store, ierror)
    type(rondo_tensor_store), intent(inout) :: store
    integer, intent(out), optional :: ierror
    type(c_ptr) :: handle
    handle = store%handle
    store%handle = c_null_ptr
    call finish("rondo_tensor_store_destroy", c_destroy(handle), ierror)
end subroutine

subroutine rondo_tensor_store_stats(store, stats, ierror)
    type(rondo_tensor_store), intent(in) :: store
    type(rondo_tensor_stats), intent(inout) :: stats
    integer, intent(out), optional :: ierror
    stats%size = c_sizeof(stats)
    call finish("rondo_tensor_store_stats", c_stats(store%handle, stats), ierror)
end subroutine

! ---- publishing ----

! pulls: absent, until the step is retired.
subroutine rondo_tensor_publish(store, key, step, tensor, pulls, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key
    integer(int64), intent(in) :: step
    type(rondo_tensor), intent(in) :: tensor
    integer(int64), intent(in), optional :: pulls
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_publish", c_publish(store%handle, text_to(key), step, tensor, pulls_of(pulls), &
        place_of(request)), ierror)
end subroutine

subroutine rondo_tensor_announce(store, key, step, tensor, pulls, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key
    integer(int64), intent(in) :: step
    type(rondo_tensor), intent(in) :: tensor
    integer(int64), intent(in), optional :: pulls
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_announce", c_announce(store%handle, text_to(key), step, tensor, pulls_of(pulls), &
        place_of(request)), ierror)
end subroutine

subroutine rondo_tensor_publish_error(store, key, step, status, text, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key, text
    integer(int64), intent(in) :: step
    integer, intent(in) :: status
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_publish_error", c_publish_error(store%handle, text_to(key), step, &
        int(status, c_int), text_to(text)), ierror)
end subroutine

subroutine rondo_tensor_send(store, key, step, tensor, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key
    integer(int64), intent(in) :: step
    type(rondo_tensor), intent(in) :: tensor
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_send", c_send(store%handle, text_to(key), step, tensor, place_of(request)), ierror)
end subroutine

subroutine rondo_tensor_retire(store, step, ierror)
    type(rondo_tensor_store), intent(in) :: store
    integer(int64), intent(in) :: step
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_retire", c_retire(store%handle, step), ierror)
end subroutine

subroutine rondo_tensor_next_epoch(store, ierror)
    type(rondo_tensor_store), intent(in) :: store
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_next_epoch", c_next_epoch(store%handle), ierror)
end subroutine

! ---- pulling ----

subroutine rondo_tensor_pull(store, key, peer, step, tensor, slice, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key
    integer, intent(in) :: peer
    integer(int64), intent(in) :: step
    type(rondo_tensor), intent(inout), target :: tensor
    type(rondo_tensor_slice), intent(in), optional :: slice
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    type(rondo_tensor_slice), target :: copy
    if (present(slice)) copy = slice
    call finish("rondo_tensor_pull", c_pull(store%handle, text_to(key), int(peer, c_int), step, c_loc(copy), &
        c_loc(tensor), place_of(request)), ierror)
end subroutine

subroutine rondo_tensor_recv(store, key, peer, step, tensor, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    character(*), intent(in) :: key
    integer, intent(in) :: peer
    integer(int64), intent(in) :: step
    type(rondo_tensor), intent(inout), target :: tensor
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_recv", c_recv(store%handle, text_to(key), int(peer, c_int), step, c_loc(tensor), &
        place_of(request)), ierror)
end subroutine

subroutine rondo_tensor_pull_many(store, items, request, ierror)
    type(rondo_tensor_store), intent(in) :: store
    type(rondo_tensor_item), intent(inout), contiguous, target :: items(:)
    type(rondo_tensor_request), intent(inout), target, optional :: request
    integer, intent(out), optional :: ierror
    type(c_ptr) :: first
    first = c_null_ptr
    if (size(items) > 0) first = c_loc(items(1))
    call finish("rondo_tensor_pull_many", c_pull_many(store%handle, first, size(items, kind=c_size_t), &
        place_of(request)), ierror)
end subroutine

! ---- requests ----

! timeout_ms: absent, that of the store.
subroutine rondo_tensor_wait(request, timeout_ms, ierror)
    type(rondo_tensor_request), intent(inout) :: request
    integer(int64), intent(in), optional :: timeout_ms
    integer, intent(out), optional :: ierror
    type(c_ptr) :: handle
    integer(int64) :: timeout
    timeout = -1
    if (present(timeout_ms)) timeout = timeout_ms
    handle = request%handle
    request%handle = c_null_ptr
    call finish("rondo_tensor_wait", c_wait(handle, timeout), ierror)
end subroutine

subroutine rondo_tensor_test(request, done, ierror)
    type(rondo_tensor_request), intent(inout) :: request
    logical, intent(out) :: done
    integer, intent(out), optional :: ierror
    integer(c_int) :: is_done, status
    is_done = 0
    status = c_test(request%handle, is_done)
    done = is_done /= 0
    if (done) request%handle = c_null_ptr
    call finish("rondo_tensor_test", status, ierror)
end subroutine

subroutine rondo_tensor_cancel(request, ierror)
    type(rondo_tensor_request), intent(in) :: request
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_cancel", c_cancel(request%handle), ierror)
end subroutine

! ---- memory ----

#ifndef RONDO_NO_TENSOR_OF
! Describe an array to publish, or as the place of a pull.
function rondo_tensor_of(array, type) result(tensor)
    type(*), dimension(..), target, intent(in) :: array
    integer, intent(in) :: type
    type(rondo_tensor) :: tensor
    integer :: i
    integer(int64) :: count
    tensor%type = int(type, c_int)
    if (rank(array) > RONDO_TENSOR_MAX_DIMS .or. .not. is_contiguous(array)) then
        write (error_unit, "(a)") "rondo_tensor_of: the array has more than 8 dimensions, or gaps"
        tensor%ndims = -1 ! no function takes it
        return
    end if
    count = 1
    do i = 1, rank(array)
        tensor%shape(rank(array) + 1 - i) = size(array, i, kind=int64)
        count = count * size(array, i, kind=int64)
    end do
    tensor%ndims = rank(array)
    tensor%bytes = int(count, c_size_t) * rondo_dtype_size(type)
    if (tensor%bytes > 0) tensor%data = c_loc(array)
end function
#endif

subroutine alloc_i4(store, bytes, data, ierror)
    type(rondo_tensor_store), intent(in) :: store
    integer(c_int), intent(in) :: bytes
    type(c_ptr), intent(inout) :: data
    integer, intent(out), optional :: ierror
    call alloc_i8(store, int(bytes, int64), data, ierror)
end subroutine

subroutine alloc_i8(store, bytes, data, ierror)
    type(rondo_tensor_store), intent(in) :: store
    integer(int64), intent(in) :: bytes
    type(c_ptr), intent(inout) :: data
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_alloc", c_alloc(store%handle, int(bytes, c_size_t), data), ierror)
end subroutine

subroutine rondo_tensor_free(store, data, ierror)
    type(rondo_tensor_store), intent(in) :: store
    type(c_ptr), intent(in) :: data
    integer, intent(out), optional :: ierror
    call finish("rondo_tensor_free", c_free(store%handle, data), ierror)
end subroutine

! ---- for the procedures above ----

function text_to(text) result(letters)
    character(*), intent(in) :: text
    character(kind=c_char, len=1), allocatable :: letters(:)
    integer :: i
    allocate (letters(len_trim(text) + 1))
    do i = 1, len_trim(text)
        letters(i) = text(i:i)
    end do
    letters(len_trim(text) + 1) = c_null_char
end function

function pulls_of(pulls) result(number)
    integer(int64), intent(in), optional :: pulls
    integer(int64) :: number
    number = RONDO_TENSOR_UNTIL_RETIRED
    if (present(pulls)) number = pulls
end function

! Where C stores the request; NULL: it makes none.
function place_of(request) result(address)
    type(rondo_tensor_request), intent(inout), target, optional :: request
    type(c_ptr) :: address
    address = c_null_ptr
    if (present(request)) address = c_loc(request%handle)
end function

! Store the status in ierror, or without ierror end the program after an error.
subroutine finish(what, status, ierror)
    character(*), intent(in) :: what
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: ierror
    if (present(ierror)) then
        ierror = status
    else if (status /= RONDO_SUCCESS) then
        write (error_unit, "(5a)") what, ": ", rondo_status_string(status), ": ", rondo_last_error()
        error stop 1
    end if
end subroutine
end module rondo_tensors
