#include "base/shm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/pool.h"
#include "base/room.h"
#include "base/shm_socket.h"

#define SHM_DIR "/dev/shm"
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

enum { HUGE_PAGE = 2 << 20, NAME_DIGITS = 16, MOST_WAIT_MS = 10000, PIECE = 64 << 20 };

static const double MIB = 1 << 20;

static const char *const mode_names[] = { RONDO_PARAM_NAMES(RONDO_SHM_MODE_VALUES) };

/* How the names of a mode's segments begin. */
static const char *const prefixes[] = {
    [RONDO_SHM_MODE_SOCKET] = "@rondo-", [RONDO_SHM_MODE_FILE] = "/rondo-"
};

const char *rondo_shm_mode_name(int mode)
{
    return (unsigned)mode < RONDO_COUNTOF(mode_names) ? mode_names[mode] : NULL;
}

/* The path of a segment, for open() and for messages. */
static void shm_path(const struct rondo_shm_name *name, char *path, size_t size)
{
    if (name->mode == RONDO_SHM_MODE_MEMFD) {
        snprintf(path, size, "/proc/%d/fd/%d", name->pid, name->fd);
    } else {
        snprintf(path, size, "%s%.*s", name->mode == RONDO_SHM_MODE_FILE ? SHM_DIR : "",
                 (int)sizeof name->path, name->path);
    }
}

/* Make an unused name that nobody can guess. */
static rondo_status name_make(struct rondo_shm_name *name, enum rondo_shm_mode mode)
{
    uint32_t random;
    RONDO_TRY(rondo_random(&random, sizeof random));
    /* The name begins with the process id, so that a leftover can be traced. */
    snprintf(name->path, sizeof name->path, "%s%08x%08x", prefixes[mode], (unsigned)getpid(), random);
    name->mode = mode;
    return RONDO_SUCCESS;
}

/* Map all of fd, aligned to a huge page if it is at least as long as one. A segment of which little is used
 * (sparse) does not ask for huge pages. @return NULL with errno. */
static uint8_t *shm_map(int fd, size_t size, int sparse)
{
    uint8_t *base;
    if (size < HUGE_PAGE) {
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return base == MAP_FAILED ? NULL : base;
    }
    uint8_t *range = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                          0);
    if (range == MAP_FAILED) {
        return NULL;
    }
    base = (uint8_t *)rondo_round_up((uintptr_t)range, HUGE_PAGE);
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int saved = errno;
        munmap(range, size + HUGE_PAGE);
        errno = saved;
        return NULL;
    }
    if (base > range) {
        munmap(range, (size_t)(base - range));
    }
    if (range + HUGE_PAGE > base) {
        munmap(base + size, (size_t)(range + HUGE_PAGE - base));
    }
    if (!sparse) {
        madvise(base, size, MADV_HUGEPAGE);
    }
    return base;
}

int rondo_memfd(const char *name, unsigned flags)
{
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd; /* Linux before 6.3 */
}

/* Create an empty segment and its name. */
static int shm_new_memfd(struct rondo_shm *shm)
{
    int fd = rondo_memfd("rondo", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shm->name.mode = RONDO_SHM_MODE_MEMFD;
    shm->name.pid = (int32_t)getpid();
    shm->name.fd = fd;
    return fd;
}

static rondo_status shm_new_file(struct rondo_shm *shm, int *fd)
{
    char path[64];
    do {
        RONDO_TRY(name_make(&shm->name, RONDO_SHM_MODE_FILE));
        shm_path(&shm->name, path, sizeof path);
        *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    } while (*fd < 0 && errno == EEXIST);
    return RONDO_SUCCESS;
}

static rondo_status create_failed(const struct rondo_shm *shm)
{
    struct rlimit limit = { 0 };
    const char *kind = shm->name.mode == RONDO_SHM_MODE_FILE ? "file in " SHM_DIR : "memfd";
    getrlimit(RLIMIT_NOFILE, &limit);
    if (errno == EMFILE) {
        return rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "cannot create shared memory (%s) on host %s: all %llu open files of this process "
            "are in use; raise ulimit -n",
            kind, rondo_log_host(), (unsigned long long)limit.rlim_cur);
    }
    return rondo_fail_quiet(
        RONDO_SYSTEM_ERROR, "cannot create %.1f MiB of shared memory (%s) on host %s: %m; %s",
        (double)shm->size / MIB, kind, rondo_log_host(),
        errno == ENOMEM                         ? "look at ulimit -v"
        : errno == ENFILE                       ? "all open files of the host are in use (sysctl fs.file-max)"
        : shm->name.mode == RONDO_SHM_MODE_FILE ? "RONDO_SHM_MODE=memfd does without /dev/shm"
        : shm->use == RONDO_SHM_FOR_USER        ? "rondo_mem_alloc needs memfd_create (look at seccomp)"
                                                : "RONDO_SHM_MODE=file does without memfd");
}

/* Set size, identity and mapping of the segment behind shm->fd. @return 0, or -1 with errno. */
static int shm_setup(struct rondo_shm *shm, int sparse)
{
    struct stat st;
    if (ftruncate(shm->fd, (off_t)shm->size) != 0 || fstat(shm->fd, &st) != 0) {
        return -1;
    }
    /* Or a peer that shrinks it would kill us by SIGBUS. Files in /dev/shm cannot be sealed. */
    (void)fcntl(shm->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    shm->name.inode = st.st_ino;
    shm->name.size = shm->size;
    shm->base = shm_map(shm->fd, shm->size, sparse);
    return shm->base ? 0 : -1;
}

rondo_status rondo_shm_serve(struct rondo_shm *shm)
{
    rondo_status status;
    if (shm->name.mode != RONDO_SHM_MODE_MEMFD) {
        return RONDO_SUCCESS; /* it is found by its path */
    }
    RONDO_TRY(name_make(&shm->name, RONDO_SHM_MODE_SOCKET));
    status = rondo_shm_offer(shm->fd, shm->name.inode, shm->name.path);
    if (status != RONDO_SUCCESS) {
        shm->name.path[0] = '\0';
        shm->name.mode = RONDO_SHM_MODE_MEMFD;
    }
    return status;
}

/* Its errors are quiet: the caller may have another way. */
static rondo_status shm_create(struct rondo_shm *shm, size_t size, enum rondo_shm_mode mode, int sparse,
                               enum rondo_shm_use use)
{
    struct rondo_shm made = { .fd = -1, .use = use };
    struct rlimit limit;
    rondo_status status;

    if (size == 0 || size > (size_t)PTRDIFF_MAX - 2 * HUGE_PAGE) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "cannot create %zu bytes of shared memory on host %s",
                                size, rondo_log_host());
    }
    made.size = rondo_round_up(size, (size_t)sysconf(_SC_PAGESIZE));
    /* Growing a file beyond this limit would raise SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        made.size > limit.rlim_cur) {
        return rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "cannot create %.1f MiB of shared memory on host %s: the limit of file sizes is "
            "%.1f MiB; raise ulimit -f",
            (double)made.size / MIB, rondo_log_host(), (double)limit.rlim_cur / MIB);
    }
    if (mode != RONDO_SHM_MODE_FILE) {
        made.fd = shm_new_memfd(&made);
    }
    if (mode == RONDO_SHM_MODE_FILE || (mode == RONDO_SHM_MODE_AUTO && made.fd < 0 && errno != EMFILE)) {
        RONDO_TRY(shm_new_file(&made, &made.fd));
    }
    if (made.fd < 0) {
        return create_failed(&made);
    }
    if (shm_setup(&made, sparse) != 0) {
        status = create_failed(&made);
        rondo_shm_unlink(&made);
        close(made.fd);
        return status;
    }
    if (mode == RONDO_SHM_MODE_SOCKET) {
        status = rondo_shm_serve(&made);
        if (status != RONDO_SUCCESS) {
            rondo_shm_close(&made);
            return status;
        }
    }
    *shm = made;
    return RONDO_SUCCESS;
}

rondo_status rondo_shm_create(struct rondo_shm *shm, size_t size, enum rondo_shm_mode mode)
{
    rondo_status status = shm_create(shm, size, mode, 0, RONDO_SHM_FOR_BUFFERS);
    return status == RONDO_SUCCESS ? status : rondo_fail_aloud(status);
}

rondo_status rondo_shm_create_large(struct rondo_shm *shm, size_t size, size_t least, int sparse,
                                    enum rondo_shm_use use)
{
    rondo_status status = shm_create(shm, size, RONDO_SHM_MODE_MEMFD, sparse, use);
    if (status != RONDO_SUCCESS && least < size) {
        rondo_error_clear();
        status = shm_create(shm, least, RONDO_SHM_MODE_MEMFD, sparse, use);
    }
    return status == RONDO_SUCCESS ? status : rondo_fail(status, "%s", rondo_error_text());
}

/* How to ask for less. */
static const char *less(const struct rondo_shm *shm, char text[RONDO_LOWER_TEXT])
{
    switch (shm->use) {
    case RONDO_SHM_FOR_USER: return "ask for less";
    case RONDO_SHM_FOR_CONTROL: return "use fewer ranks on this host";
    default: return rondo_param_lower_buffers(0, text);
    }
}

static rondo_status no_room(const struct rondo_shm *shm, size_t bytes, const struct rondo_room *room)
{
    char text[RONDO_LOWER_TEXT];
    return rondo_fail(RONDO_SYSTEM_ERROR,
                      "cannot reserve %.1f MiB of shared memory on host %s (%s): %s, or %s",
                      (double)bytes / MIB, rondo_log_host(), room->limit, less(shm, text),
                      room->is_cgroup ? "raise that limit (Slurm: --mem; containers: --memory)"
                                      : "free memory on the host");
}

/* Something less predictable than a lack of memory. */
static rondo_status reserve_failed(const struct rondo_shm *shm, size_t bytes)
{
    struct statvfs fs;
    struct rondo_room room;
    char text[RONDO_LOWER_TEXT], space[128];
    int error = errno;
    if (shm->name.mode == RONDO_SHM_MODE_FILE && error == ENOSPC && statvfs(SHM_DIR, &fs) == 0) {
        snprintf(space, sizeof space, SHM_DIR " has %.1f MiB free of %.1f MiB",
                 (double)fs.f_bavail * (double)fs.f_frsize / MIB,
                 (double)fs.f_blocks * (double)fs.f_frsize / MIB);
        errno = error;
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "cannot reserve %.1f MiB of shared memory on host %s: %m (%s); enlarge it (mount -o "
            "remount,size=1g " SHM_DIR "; containers: --shm-size=1g), or use RONDO_SHM_MODE=memfd",
            (double)bytes / MIB, rondo_log_host(), space);
    }
    rondo_room_find("", &room);
    errno = error;
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot reserve %.1f MiB of shared memory on host %s: %m (%s); %s",
                      (double)bytes / MIB, rondo_log_host(), room.limit, less(shm, text));
}

static void punch(const struct rondo_shm *shm, size_t begin, size_t end)
{
    if (end > begin) {
        (void)fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)(shm->name.offset + begin), (off_t)(end - begin));
    }
}

/* Give back [begin, end) but for the first and the last page, which others may use. */
static void unreserve(const struct rondo_shm *shm, size_t begin, size_t end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    begin = rondo_round_up(begin + 1, page);
    end = end == 0 ? 0 : (end - 1) / page * page;
    punch(shm, begin, end);
}

void rondo_shm_give(struct rondo_shm *shm, size_t offset, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    punch(shm, rondo_round_up(offset, page), (offset + bytes) / page * page);
}

/* Piece by piece: the ranks of a host reserve at the same time, and each look sees what the others took. */
rondo_status rondo_shm_reserve(struct rondo_shm *shm, size_t offset, size_t bytes)
{
    struct rondo_room room;
    size_t piece;
    if (!shm->base || shm->fd < 0 || offset > shm->size || bytes > shm->size - offset) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "cannot reserve bytes %zu to %zu + %zu of a segment of %zu bytes that is %s",
                          offset, offset, bytes, shm->size, shm->base ? "open" : "closed");
    }
    for (size_t done = 0; done < bytes; done += piece) {
        int failed = 0, has_room = rondo_room_for(bytes - done, &room);
        piece = rondo_min_size(bytes - done, PIECE);
        do {
            failed = has_room &&
                     fallocate(shm->fd, 0, (off_t)(shm->name.offset + offset + done), (off_t)piece);
        } while (failed && errno == EINTR);
        if (failed || !has_room) {
            rondo_status status = has_room ? reserve_failed(shm, bytes) : no_room(shm, bytes, &room);
            unreserve(shm, offset, offset + done);
            return status;
        }
    }
    if (bytes > 0) {
        shm->later_begin = shm->later_end == 0 ? offset : rondo_min_size(shm->later_begin, offset);
        shm->later_end = rondo_max_size(shm->later_end, offset + bytes);
    }
    return RONDO_SUCCESS;
}

/* Does the part lie in its segment, on whole pages? */
static int part_valid(const struct rondo_shm_name *name)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return name->offset % page == 0 && name->bytes % page == 0 && name->offset <= name->size &&
           name->bytes <= name->size - name->offset && (name->bytes > 0 || name->offset == 0);
}

/* Could rondo_shm_create() or rondo_pool_take() have made this record? */
static int name_valid(const struct rondo_shm_name *name)
{
    size_t prefix;
    if (!part_valid(name)) {
        return 0;
    }
    if (name->size == 0 || name->size > (uint64_t)PTRDIFF_MAX - 2 * HUGE_PAGE ||
        name->size % (uint64_t)sysconf(_SC_PAGESIZE) != 0) {
        return 0;
    }
    if (name->mode == RONDO_SHM_MODE_MEMFD) {
        return name->pid > 0 && name->fd >= 0;
    }
    if (name->mode != RONDO_SHM_MODE_FILE && name->mode != RONDO_SHM_MODE_SOCKET) {
        return 0;
    }
    prefix = strlen(prefixes[name->mode]);
    if (strnlen(name->path, sizeof name->path) != prefix + NAME_DIGITS ||
        strncmp(name->path, prefixes[name->mode], prefix) != 0) {
        return 0;
    }
    for (const char *digit = name->path + prefix; *digit; digit++) {
        if (!isxdigit((unsigned char)*digit)) {
            return 0;
        }
    }
    return 1;
}

/* How long to wait for an owner's socket: no longer than creation may take. */
static int socket_wait_ms(void)
{
    int64_t limit_ms = rondo_params()->init_timeout / 1000000;
    return limit_ms > 0 && limit_ms < MOST_WAIT_MS ? (int)limit_ms : MOST_WAIT_MS;
}

/* @return an unchecked descriptor, or -1 and *why. */
static int shm_get(const struct rondo_shm_name *name, const char *path, const char **why)
{
    int fd;
    if (name->mode == RONDO_SHM_MODE_SOCKET) {
        return rondo_shm_receive(name->path, socket_wait_ms(), why);
    }
    /* O_NONBLOCK: if the descriptor number belongs to a pipe by now, do not wait for its writer. The link in
     * /proc must be followed. */
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | (name->mode == RONDO_SHM_MODE_FILE ? O_NOFOLLOW : 0));
    if (fd < 0) {
        *why = strerror(errno);
    }
    return fd;
}

/* @return a descriptor of exactly the named segment, or -1 and *why. */
static int shm_find(const struct rondo_shm_name *name, const char *path, const char **why)
{
    struct stat st;
    int fd = shm_get(name, path, why);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_ino != name->inode) {
        *why = "it is not the peer's segment (other inode): the ranks may be in different pid or mount "
               "namespaces";
    } else if (st.st_uid != geteuid()) {
        *why = "it belongs to another user";
    } else if (st.st_size < 0 || (uint64_t)st.st_size < name->size) {
        *why = "it is shorter than the peer said";
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

rondo_status rondo_shm_open_segment(struct rondo_shm *shm, const struct rondo_shm_name *name)
{
    struct rondo_shm opened = { .size = name->size, .fd = -1, .name = *name };
    char path[96];
    const char *why;
    int fd;
    shm_path(name, path, sizeof path);
    fd = shm_find(name, path, &why);
    if (fd < 0) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR, "cannot open a peer's shared memory %s on host %s: %s",
                                path, rondo_log_host(), why);
    }
    opened.base = shm_map(fd, opened.size, name->bytes > 0);
    if (!opened.base) {
        rondo_status status = rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "cannot map %.1f MiB of a peer's shared memory %s on host %s: %m; look at ulimit -v",
            (double)opened.size / MIB, path, rondo_log_host());
        close(fd);
        return status;
    }
    close(fd);
    *shm = opened;
    return RONDO_SUCCESS;
}

rondo_status rondo_shm_open(struct rondo_shm *shm, const struct rondo_shm_name *name)
{
    if (!name_valid(name)) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                                "a peer on host %s sent an invalid record of shared memory",
                                rondo_log_host());
    }
    return name->bytes > 0 ? rondo_pool_open(shm, name) : rondo_shm_open_segment(shm, name);
}

void rondo_shm_unlink(struct rondo_shm *shm)
{
    char path[96];
    if (shm->name.path[0] == '\0') {
        return; /* a memfd, or done before */
    }
    if (shm->pool != NULL) {
        rondo_pool_unlink(shm);
        return;
    }
    if (shm->name.mode == RONDO_SHM_MODE_SOCKET) {
        rondo_shm_withdraw(shm->name.inode);
    } else {
        shm_path(&shm->name, path, sizeof path);
        unlink(path);
    }
    shm->name.path[0] = '\0';
}

void rondo_shm_close(struct rondo_shm *shm)
{
    if (shm->pool != NULL) {
        rondo_pool_close(shm);
    } else if (shm->base) {
        munmap(shm->base, shm->size);
        if (shm->fd >= 0) {
            rondo_shm_unlink(shm); /* the creator, if an error came before all peers had mapped it */
            close(shm->fd);
        }
    }
    *shm = (struct rondo_shm){ .fd = -1 };
}

int rondo_shm_can_open(const struct rondo_shm_name *name)
{
    char path[96];
    const char *why;
    int fd = -1;
    if (name_valid(name)) {
        shm_path(name, path, sizeof path);
        fd = shm_find(name, path, &why);
    }
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}
