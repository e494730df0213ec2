#include "base/record.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/process.h"
#include "base/shm.h"

/* A segment of another process, held open for readers. */
struct held {
    uint64_t inode;
    int fd, refs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int fd, used;
    struct rondo_record_index *index; /* NULL: none */
    struct rondo_record_entry *entry;
    struct held *held;
    int nheld, capacity;
} own = { .fd = -1 };

static size_t index_bytes(void)
{
    return sizeof(struct rondo_record_index) + sizeof(struct rondo_record_entry) * RONDO_RECORD_COMMS;
}

/* ---- the clock ---- */

/* On x86 the kernel uses the counter as its clock only if it ticks at one rate on all cores. */
static int counter_is_clock(void)
{
#if defined(__x86_64__) || defined(__i386__)
    char name[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    int is_tsc = file != NULL && fgets(name, sizeof(name), file) != NULL && strncmp(name, "tsc", 3) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is_tsc;
#elif defined(__aarch64__)
    return 1;
#else
    return 0;
#endif
}

enum rondo_record_clock rondo_record_clock(void)
{
    static _Atomic int known; /* several threads may find it at once */
    int counter = atomic_load_explicit(&known, memory_order_relaxed);
    if (!rondo_params()->recorder) {
        return RONDO_CLOCK_OFF;
    }
    if (counter == 0) {
        counter = 1 + counter_is_clock();
        atomic_store_explicit(&known, counter, memory_order_relaxed);
    }
    return counter == 2 ? RONDO_CLOCK_COUNTER : RONDO_CLOCK_NS;
}

/* ---- the index ---- */

/* A forked child leaves its parent's index alone; readers see by its pid whose it is. */
static void forget(void)
{
    (void)rondo_fork_lock(&lock);
    if (own.index != NULL) {
        munmap(own.index, index_bytes());
        close(own.fd);
    }
    for (int i = 0; i < own.nheld; i++) {
        close(own.held[i].fd);
    }
    own.index = NULL;
    own.fd = -1;
    own.used = own.nheld = 0;
}
RONDO_AT_FORK(forget)

/* The first one may be started by another below it, so the order counts: Slurm before mpirun. */
static const char *job_of_launcher(uint32_t *slurm)
{
    static const char *const names[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE",
                                         "PMI_JOBID" };
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            *slurm = i == 0;
            return value;
        }
    }
    return "";
}

/* With the lock. @return 0: there is none, and none can be made. */
static int need_index(void)
{
    struct rondo_record_index *index;
    int fd;
    if (own.index != NULL) {
        return 1;
    }
    fd = rondo_memfd(RONDO_RECORD_NAME, MFD_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0600) != 0 || ftruncate(fd, (off_t)index_bytes()) != 0) {
        goto fail;
    }
    index = mmap(NULL, index_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (index == MAP_FAILED) {
        goto fail;
    }
    index->pid = (int32_t)getpid();
    index->start = rondo_process_start(getpid());
    snprintf(index->host, sizeof(index->host), "%s", rondo_log_host());
    snprintf(index->job, sizeof(index->job), "%s", job_of_launcher(&index->slurm));
    index->version = RONDO_RECORD_VERSION;
    __atomic_store_n(&index->magic, RONDO_RECORD_MAGIC, __ATOMIC_RELEASE);
    own.index = index;
    own.entry = (struct rondo_record_entry *)(index + 1);
    own.fd = fd;
    return 1;
fail:
    if (fd >= 0) {
        close(fd);
    }
    return 0;
}

/* ---- descriptors of others' segments ---- */

/* With the lock. @return the descriptor, or -1. */
static int hold(const struct rondo_shm *shm)
{
    char path[64];
    struct stat st;
    int fd;
    for (int i = 0; i < own.nheld; i++) {
        if (own.held[i].inode == shm->name.inode) {
            own.held[i].refs++;
            return own.held[i].fd;
        }
    }
    if (shm->name.mode != RONDO_SHM_MODE_MEMFD ||
        RONDO_ARRAY_GROW(own.held, own.nheld, own.capacity, "held segments") != RONDO_SUCCESS) {
        return -1; /* it can be read through the leader alone */
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", shm->name.pid, shm->name.fd);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_ino != shm->name.inode)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0) {
        own.held[own.nheld++] = (struct held){ shm->name.inode, fd, 1 };
    }
    return fd;
}

/* With the lock. An entry of the rank that made the segment has that rank's descriptor and holds none. */
static void let_go(const struct rondo_record_entry *entry)
{
    for (int i = 0; i < own.nheld; i++) {
        if (own.held[i].inode == entry->inode && own.held[i].fd == entry->fd && --own.held[i].refs == 0) {
            close(own.held[i].fd);
            own.held[i] = own.held[--own.nheld];
        }
    }
}

/* ---- entries ---- */

/* With the lock. @return the number of an unused entry, or -1. */
static int find_room(void)
{
    for (int i = 0; i < RONDO_RECORD_COMMS; i++) {
        if (atomic_load_explicit(&own.entry[i].state, memory_order_relaxed) == 0) {
            return i;
        }
    }
    own.index->missed++;
    return -1;
}

int rondo_record_add(const struct rondo_record_entry *entry, const struct rondo_shm *shm)
{
    int number = -1;
    if (!rondo_params()->recorder) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    if (need_index()) {
        number = find_room();
    }
    if (number >= 0) {
        struct rondo_record_entry *place = &own.entry[number];
        uint32_t unused = atomic_load_explicit(&place->state, memory_order_relaxed);
        memcpy((char *)place + sizeof(unused), (const char *)entry + sizeof(unused),
               sizeof(*place) - sizeof(unused));
        place->inode = shm->name.inode;
        place->offset = shm->name.offset;
        place->fd = shm->fd >= 0 ? shm->fd : hold(shm);
        own.used++;
        if (number >= own.index->ncomms) {
            __atomic_store_n(&own.index->ncomms, number + 1, __ATOMIC_RELEASE);
        }
        atomic_store_explicit(&place->state, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void rondo_record_remove(int number)
{
    pthread_mutex_lock(&lock);
    if (number >= 0 && own.index != NULL && number < own.index->ncomms) {
        atomic_store_explicit(&own.entry[number].state, 0, memory_order_release);
        let_go(&own.entry[number]);
        if (--own.used == 0) {
            munmap(own.index, index_bytes());
            close(own.fd);
            own.index = NULL;
            own.fd = -1;
            rondo_free(own.held);
            own.held = NULL;
            own.nheld = own.capacity = 0;
        }
    }
    pthread_mutex_unlock(&lock);
}
