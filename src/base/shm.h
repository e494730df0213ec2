/*
 * Shared memory segments. A segment is a memfd that peers open through /proc/PID/fd or receive over a Unix
 * socket, so that nothing is left behind however processes die; or a named 0600 file in /dev/shm that is
 * unlinked once every peer has mapped it. Pages are reserved with fallocate before they are touched: a full
 * memory file system is RONDO_SYSTEM_ERROR with bytes needed and free, never SIGBUS; so is a full host or
 * cgroup, never SIGKILL (base/room.h).
 */
#ifndef RONDO_BASE_SHM_H
#define RONDO_BASE_SHM_H

#include "base/param.h"
#include "base/status.h"

/* How a peer finds a segment, or a part of one (base/pool.h). Plain data of fixed size, sent in an
 * allgather. */
struct rondo_shm_name {
    int32_t mode;           /* not RONDO_SHM_MODE_AUTO */
    int32_t pid, fd;        /* memfd */
    uint32_t life;          /* of the part: differs from that of parts that had its place before */
    uint64_t inode;         /* checked by the opener, with size and owner */
    uint64_t size;          /* of the segment */
    uint64_t offset, bytes; /* the part; 0: the whole segment */
    char path[32]; /* file: below /dev/shm, "/rondo-..."; socket: its address, "@rondo-..."; "": unlinked */
};

/* What a segment is for: the remedy that an error names depends on it. */
enum rondo_shm_use { RONDO_SHM_FOR_BUFFERS, RONDO_SHM_FOR_USER, RONDO_SHM_FOR_CONTROL };

struct rondo_pool_segment;

struct rondo_shm {
    uint8_t *base; /* page aligned, or 2 MiB aligned for large segments with huge pages; NULL: not open */
    size_t size;
    int fd; /* creator: open until close, for peers (memfd, socket) and reserve; -1 otherwise */
    enum rondo_shm_use use; /* set by the creator */
    struct rondo_shm_name name;
    struct rondo_pool_segment *pool; /* where the part lies; NULL: a whole segment */
    size_t reserved;                 /* the taker of a part: bytes that were reserved when it was taken */
    size_t later_begin, later_end;   /* and where those lie that were reserved since; 0, 0: none were */
};

/** Create and map @a size bytes (rounded up to pages), zeroed; nothing is reserved yet. */
rondo_status rondo_shm_create(struct rondo_shm *shm, size_t size, enum rondo_shm_mode mode);
/** The same as a memfd, of @a least bytes where addresses or the sizes of files are too limited for @a size.
 * sparse: little of it is used, so it has no huge pages. */
rondo_status rondo_shm_create_large(struct rondo_shm *shm, size_t size, size_t least, int sparse,
                                    enum rondo_shm_use use);
/** memfd_create for data, which some hosts want said (sysctl vm.memfd_noexec=2). @return -1 with errno */
int rondo_memfd(const char *name, unsigned flags);
/** Reserve the pages of [offset, offset + bytes), of which only the first and the last may be in use already.
 * @return RONDO_SYSTEM_ERROR naming bytes needed and left, the limit and a remedy; nothing more is reserved
 * then. */
rondo_status rondo_shm_reserve(struct rondo_shm *shm, size_t offset, size_t bytes);
/** As the creator: give the pages of [offset, offset + bytes) back, where they are whole. They read as zeros;
 * reserve them before they are written again. */
void rondo_shm_give(struct rondo_shm *shm, size_t offset, size_t bytes);
/** Map a peer's segment after checking inode, size and owner. A failure to open is not logged
 * (rondo_fail_quiet), since the caller may have another way. @return RONDO_REMOTE_ERROR: the peer has closed
 * the part. */
rondo_status rondo_shm_open(struct rondo_shm *shm, const struct rondo_shm_name *name);
/** Map all of the segment that a valid name is in. */
rondo_status rondo_shm_open_segment(struct rondo_shm *shm, const struct rondo_shm_name *name);
/** Offer a memfd over a socket from now on (shm->name changes), for peers that cannot open it through /proc.
 */
rondo_status rondo_shm_serve(struct rondo_shm *shm);
/** Remove the file's name or close the socket; no-op for memfd. Call when all peers have mapped the segment.
 */
void rondo_shm_unlink(struct rondo_shm *shm);
/** Unmap and close. Safe on a zeroed struct. */
void rondo_shm_close(struct rondo_shm *shm);
/** Can this process open a peer's segment? Checked on a peer's record. */
int rondo_shm_can_open(const struct rondo_shm_name *name);
/** As RONDO_SHM_MODE spells it; NULL out of range. */
const char *rondo_shm_mode_name(int mode);

#endif
