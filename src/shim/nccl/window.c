/* Memory, registration, windows. */
#include <pthread.h>
#include <stdint.h>

#include "base/fork.h"
#include "base/mem.h"
#include "init/engine.h"
#include "shim/nccl/face.h"

enum { ALIGNMENT = NCCL_WIN_REQUIRED_ALIGNMENT, KNOWN_FLAGS = 0xf };

/* A window is a registration with an address of its own. */
struct ncclWindow_vidmem {
    struct ncclWindow_vidmem *next;
    ncclComm_t comm;
    void *buffer, *registration;
};

static struct {
    pthread_mutex_t lock;
    struct ncclWindow_vidmem *first;
} windows = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* They belong to communicators of the parent. */
static void in_child(void)
{
    (void)rondo_fork_lock(&windows.lock);
    windows.first = NULL;
}
RONDO_AT_FORK(in_child)

NCCL_FACE(ncclResult_t, MemAlloc, void **ptr, size_t size)
{
    int device;
    rondo_status status;
    if (ptr == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclMemAlloc: the place for the pointer is NULL");
    }
    status = nccl_device(&device);
    if (status == RONDO_SUCCESS) {
        status = rondo_mem_alloc_device(ptr, size, device);
    }
    return nccl_result(status);
}

NCCL_FACE(ncclResult_t, MemFree, void *ptr) { return nccl_result(rondo_mem_free(ptr)); }

NCCL_FACE(ncclResult_t, CommRegister, const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return nccl_result(rondo_comm_register(nccl_comm(comm), buff, size, handle));
}

/* Where registration is off, NCCL gives NULL handles, which its programs hand back. */
NCCL_FACE(ncclResult_t, CommDeregister, const ncclComm_t comm, void *handle)
{
    rondo_config config;
    if (handle == NULL) {
        return nccl_result(rondo_engine_config(nccl_comm(comm), "ncclCommDeregister", &config));
    }
    return nccl_result(rondo_comm_deregister(nccl_comm(comm), handle));
}

NCCL_FACE(ncclResult_t, CommWindowRegister, ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
          int winFlags)
{
    struct ncclWindow_vidmem *made;
    rondo_status status;
    if (win == NULL || buff == NULL || size == 0 || (uintptr_t)buff % ALIGNMENT != 0 ||
        (winFlags & ~KNOWN_FLAGS) != 0) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclCommWindowRegister: window at %p, %zu bytes, flags %d, place %p: give memory "
                           "that is aligned to %d bytes, as that of ncclMemAlloc, and known flags",
                           buff, size, winFlags, (void *)win, ALIGNMENT);
    }
    status = RONDO_NEW(made, "a window");
    if (status == RONDO_SUCCESS) {
        status = rondo_comm_register(nccl_comm(comm), buff, size, &made->registration);
        if (status != RONDO_SUCCESS) {
            rondo_free(made);
        }
    }
    if (status == RONDO_SUCCESS) {
        made->comm = comm;
        made->buffer = buff;
        pthread_mutex_lock(&windows.lock);
        made->next = windows.first;
        windows.first = made;
        pthread_mutex_unlock(&windows.lock);
        *win = made;
    }
    return nccl_result(status);
}

/* With the lock. @return where the list names the window, or where it names NULL */
static struct ncclWindow_vidmem **find(ncclComm_t comm, ncclWindow_t win)
{
    struct ncclWindow_vidmem **at = &windows.first;
    while (*at != NULL && (*at != win || (*at)->comm != comm)) {
        at = &(*at)->next;
    }
    return at;
}

static ncclResult_t unknown(const char *call, ncclWindow_t win)
{
    return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: %p is not a window of this communicator", call,
                       (void *)win);
}

NCCL_FACE(ncclResult_t, CommWindowDeregister, ncclComm_t comm, ncclWindow_t win)
{
    struct ncclWindow_vidmem **at, *found;
    ncclResult_t result;
    if (win == NULL) {
        return ncclSuccess;
    }
    pthread_mutex_lock(&windows.lock);
    at = find(comm, win);
    found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    pthread_mutex_unlock(&windows.lock);
    if (found == NULL) {
        return unknown("ncclCommWindowDeregister", win);
    }
    result = nccl_result(rondo_comm_deregister(nccl_comm(comm), found->registration));
    rondo_free(found);
    return result;
}

NCCL_FACE(ncclResult_t, WinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **ptr)
{
    struct ncclWindow_vidmem *found;
    if (ptr == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclWinGetUserPtr: the place for the pointer is NULL");
    }
    pthread_mutex_lock(&windows.lock);
    found = *find(comm, win);
    if (found != NULL) {
        *ptr = found->buffer;
    }
    pthread_mutex_unlock(&windows.lock);
    return found != NULL ? ncclSuccess : unknown("ncclWinGetUserPtr", win);
}

void nccl_windows_end(ncclComm_t comm)
{
    pthread_mutex_lock(&windows.lock);
    for (struct ncclWindow_vidmem **at = &windows.first; *at != NULL;) {
        struct ncclWindow_vidmem *window = *at;
        if (window->comm == comm) {
            *at = window->next;
            rondo_free(window); /* the communicator ends its registrations itself */
        } else {
            at = &window->next;
        }
    }
    pthread_mutex_unlock(&windows.lock);
}
