/*
 * What ranks tell each other about themselves in the first allgather: a fixed record of plain data, checked
 * on arrival. And the heads of creation's rounds, by which all ranks report the same error.
 */
#ifndef RONDO_NET_PEER_H
#define RONDO_NET_PEER_H

#include "base/cores.h"
#include "base/shm.h"
#include "base/status.h"

enum { RONDO_PEER_MAGIC = 0x72646f70, RONDO_ADDR_BYTES = 28 };

/* Identity of a communicator. */
struct rondo_unique_id {
    uint64_t nonce[2]; /* 128 random bits */
    int32_t root;      /* world rank of the root */
    uint32_t sequence; /* counts the root's communicators */
};

/*
 * Every round's record begins with this head. The sentence of an error does not fit and need not: when a head
 * reports an error, the ranks exchange their sentences in one more round.
 */
struct rondo_round_head {
    uint32_t magic; /* RONDO_PEER_MAGIC */
    int32_t status; /* rondo_status of this rank before the round */
};
typedef char rondo_round_text[RONDO_ERROR_TEXT]; /* the record of that round */

/*
 * The first words between two processes that may run different versions, before any record whose size depends
 * on the version. This layout never changes.
 */
struct rondo_hello {
    uint32_t magic;                 /* RONDO_PEER_MAGIC */
    uint32_t version, record_bytes; /* as in struct rondo_peer */
    uint32_t reserved;
    char host[RONDO_HOST_LEN];
};

struct rondo_peer {
    struct rondo_round_head head;
    uint32_t version, record_bytes; /* RONDO_VERSION_CODE, sizeof(struct rondo_peer) */
    int32_t rank, nranks;
    int32_t pid;
    int32_t device;        /* CUDA device, -1: host memory */
    int32_t shares_gpu;    /* 1: other ranks may use its device too */
    uint64_t host_hash;    /* host name and boot id, or RONDO_HOSTID */
    uint64_t shm_dev;      /* st_dev of /dev/shm; 0: none */
    uint64_t pidns;        /* inode of the pid namespace */
    uint64_t netns;        /* of the network namespace; 0: unknown */
    uint64_t process_hash; /* equal: same process */
    uint64_t param_hash;
    uint8_t gpu_uuid[16];
    char bus_id[20];
    uint32_t gpu_capability; /* 10 * major + minor */
    uint64_t memory;         /* bytes of the host, or of the device */
    /* Zero in the first round; with several nodes filled after round "graphs": struct sockaddr_in or in6 of
     * its control listener and that one's number, and what rondo_netdev_mask says there. */
    uint8_t control_addr[RONDO_ADDR_BYTES];
    uint32_t control_number, netdevs;
    char host[RONDO_HOST_LEN];
    struct rondo_cores cores;
    struct rondo_shm_name probe; /* an empty memfd: can peers open it? */
    struct rondo_unique_id id;   /* set by rank 0 only */
};
/* Rounds at 131,072 ranks carry and keep one record for each rank: 59 MiB. */
_Static_assert(sizeof(struct rondo_peer) == 472, "a peer's record holds only what must travel");
_Static_assert(sizeof(struct rondo_round_head) == 8, "a head holds no text");

/** Fill everything that does not depend on the communicator but rank and nranks. probe: an open segment of
 * this process, or NULL. */
rondo_status rondo_peer_fill(struct rondo_peer *peer, int rank, int nranks, const struct rondo_shm *probe);
/** Same host memory: equal host hash, /dev/shm device and pid namespace. */
int rondo_peer_same_node(const struct rondo_peer *a, const struct rondo_peer *b);
/** Are two ranks, each with a GPU, on the same one? By UUID: slices of a card (MIG) share a bus id. */
int rondo_peer_same_gpu(const struct rondo_peer *a, const struct rondo_peer *b);
/** A new identity; the root is the rank that makes it. */
rondo_status rondo_unique_id_make(struct rondo_unique_id *id, int root_world_rank);

/*
 * The checks give the same status and sentence on all ranks, because all hold the same records; rank 0 logs
 * the sentence, the others only keep it (the rank is rondo_log_rank()).
 */

/** Do all ranks run one version of the library? */
rondo_status rondo_hello_check(const struct rondo_hello *hello, int nranks);
/** Check all records as they arrived (version, sizes, ranks, nranks, ranks on GPUs and on host memory, two
 * ranks on one GPU, parameters). O(n log n). */
rondo_status rondo_peers_check(const struct rondo_peer *peers, int nranks);
/** The first rank whose parameters are not rank 0's, -1: none. Asked before rondo_peers_check by a caller
 * that then compares them by name. */
int rondo_peers_param_differs(const struct rondo_peer *peers, int nranks);
/** Write this thread's error sentence, after "rank R on HOST: " unless it names a rank so itself; cut to the
 * size. */
void rondo_round_text_fill(rondo_round_text text, int rank);
/** Must the ranks exchange sentences before rondo_round_check? 1: the n records, `stride` bytes apart, all
 * begin with a head, and one reports an error. */
int rondo_round_failed(const void *records, size_t stride, int nranks);
/**
 * Find the error of a round in the heads of its records.
 * @param texts  each rank's sentence ("": the rank only reports an error of another one); NULL: not exchanged
 * @return the status of the lowest rank that has an error and a sentence, else of the lowest that has an
 * error. The sentence becomes this thread's.
 */
rondo_status rondo_round_check(const void *records, size_t stride, int nranks, const rondo_round_text *texts);

/** All parameters that ranks must agree on, as lines NAME=value. @return bytes of the whole text without its
 * end; the text is cut, and ended, at @a size. */
size_t rondo_params_pack(char *text, size_t size);
/** Compare rank 0's text with that of @a rank on @a host (both terminated). The sentence names parameter,
 * both values and both ranks; the same on all ranks. */
rondo_status rondo_params_compare(const char *root_text, const char *text, int rank, const char *host);

#endif
