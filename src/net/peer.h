/*
 * How ranks introduce themselves: the record that each one sends in the first allgather, and the checks
 * of all records. Also the heads of creation's records, by which all ranks report the same error.
 */
#ifndef RONDO_NET_PEER_H
#define RONDO_NET_PEER_H

#include "base/cores.h"
#include "base/intern.h"
#include "base/shm.h"
#include "base/status.h"

enum { RONDO_PEER_MAGIC = 0x72646f70, RONDO_ADDR_BYTES = 28 };

/* Identity of a communicator. */
struct rondo_unique_id {
    uint64_t nonce[2]; /* the secret: 128 random bits, which only MPI carries (net/auth.h) */
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
 * The first message between two processes that may run different versions of Rondo, before any record whose
 * size depends on the version. Its layout never changes.
 */
struct rondo_hello {
    uint32_t magic;                 /* RONDO_PEER_MAGIC */
    uint32_t version, record_bytes; /* as in struct rondo_peer */
    int32_t pid;
    char host[RONDO_HOST_LEN];
    uint64_t host_hash, pidns; /* as in struct rondo_peer */
    uint64_t start;            /* rondo_process_start */
};

/* An empty segment of the rank's process: peers try whether they can open its memfds. inode 0: none. */
struct rondo_peer_probe {
    uint64_t inode, size;
    int32_t fd;
    uint32_t reserved;
};

struct rondo_peer {
    struct rondo_round_head head;
    uint32_t version, record_bytes; /* RONDO_VERSION_CODE, sizeof(struct rondo_peer) */
    int32_t rank, nranks;
    int32_t pid;
    int32_t device;        /* CUDA device; -1: host memory */
    int32_t shares_gpu;    /* 1: other ranks may use the same device */
    uint64_t host_hash;    /* host name and boot id, or RONDO_HOSTID */
    uint64_t shm_dev;      /* st_dev of /dev/shm; 0: none */
    uint64_t pidns;        /* inode of the pid namespace */
    uint64_t netns;        /* inode of the network namespace; 0: unknown */
    uint64_t process_hash; /* equal: same process */
    uint64_t param_hash;
    uint8_t gpu_uuid[16];
    char bus_id[20];
    uint32_t gpu_capability; /* 10 * major + minor */
    uint64_t memory;         /* bytes of host memory, or of the device's */
    /* Zero in the first round. With several nodes, round "graphs" fills them: address (struct sockaddr_in or
     * in6) and number of the process's control listener, and its rondo_netdev_mask. */
    uint8_t control_addr[RONDO_ADDR_BYTES];
    uint32_t control_number, netdevs;
    const char *host;                /* its name, and the cores: ranks of a node share what is equal */
    const struct rondo_cores *cores; /* NULL: none is known */
    struct rondo_peer_probe probe;
    struct rondo_unique_id id; /* set by rank 0 only; a child's has no nonce (net/bootstrap/bootstrap.h) */
};
/* Each rank keeps the records of all ranks: 30 MiB at 131,072 ranks. They travel packed (peer_wire.h). */
_Static_assert(sizeof(struct rondo_peer) == 240, "a peer's record holds only what all ranks must know");

/* What a record points to, until rondo_peer_keep: as long as a process or a host's name could make it. */
struct rondo_peer_parts {
    char host[RONDO_HOST_LEN];
    struct rondo_cores cores;
};
_Static_assert(sizeof(struct rondo_round_head) == 8, "a head holds no text");

/** Fill all fields. */
void rondo_hello_fill(struct rondo_hello *hello);
/** Fill rank, nranks and all that does not depend on the communicator.
 * @param parts  what the record points to
 * @param probe  an open segment of this process; NULL: none */
rondo_status rondo_peer_fill(struct rondo_peer *peer, struct rondo_peer_parts *parts, int rank, int nranks,
                             const struct rondo_shm *probe);
/** Let the record point to copies in a table (base/intern.h) that has each host's name and core set once. */
rondo_status rondo_peer_keep(struct rondo_peer *peer, struct rondo_intern *table);
/** Can this process open memfds of the peer's process? */
int rondo_peer_can_open(const struct rondo_peer *peer);
/** Do two ranks share host memory? Host hash, /dev/shm device and pid namespace are equal. */
int rondo_peer_same_node(const struct rondo_peer *a, const struct rondo_peer *b);
/** Do two ranks have the same GPU? UUIDs tell, because MIG slices of a GPU share its bus id. */
int rondo_peer_same_gpu(const struct rondo_peer *a, const struct rondo_peer *b);
/** Make a new identity, on the root, to be sent to all ranks.
 * @param secret  the nonce that all ranks know already, so that it need not travel; NULL: make one */
rondo_status rondo_unique_id_make(struct rondo_unique_id *id, int root_world_rank, const uint64_t *secret);
/** The public name of a communicator: equal on all ranks, and does not reveal the nonce. */
uint64_t rondo_unique_id_hash(const struct rondo_unique_id *id);

/*
 * All ranks hold the same records, so the checks give the same status and sentence on each. The rank whose
 * rondo_log_rank() is 0 logs the sentence, the others only keep it.
 */

/** Do all ranks run one version of the library? */
rondo_status rondo_hello_check(const struct rondo_hello *hello, int nranks);
/** Check all records: versions and sizes, ranks and nranks, GPUs on all ranks or on none, one rank a GPU,
 * equal parameters. O(n log n). */
rondo_status rondo_peers_check(const struct rondo_peer *peers, int nranks);
/** @return the first rank whose parameters differ from rank 0's; -1: none. The caller then compares them by
 * name, before it calls rondo_peers_check. */
int rondo_peers_param_differs(const struct rondo_peer *peers, int nranks);

/** Write this thread's error sentence, cut to the size. "rank R on HOST: " comes first unless the sentence
 * begins that way itself. */
void rondo_round_text_fill(rondo_round_text text, int rank);
/** Must the ranks exchange sentences before rondo_round_check? True if all records, @a stride bytes apart,
 * begin with a head and one reports an error. */
int rondo_round_failed(const void *records, size_t stride, int nranks);
/**
 * Find the error of a round in the heads of its records.
 * @param texts  each rank's sentence ("": the rank only reports an error of another one); NULL: not exchanged
 * @return the status of the lowest rank that has an error and a sentence, else of the lowest that has an
 * error; RONDO_REMOTE_ERROR and RONDO_TIMEOUT count only where no rank has another error with a sentence. The
 * sentence becomes this thread's.
 */
rondo_status rondo_round_check(const void *records, size_t stride, int nranks, const rondo_round_text *texts);

/*
 * The same by a reduction: not all heads, but one reason that all ranks agree on. First verdicts are reduced;
 * only if one is an error, reasons follow.
 */
struct rondo_round_verdict {
    struct rondo_round_head head;
    int32_t rank;
    uint32_t has_text; /* 0: the rank only reports an error of another one */
};
struct rondo_round_reason {
    struct rondo_round_verdict verdict;
    rondo_round_text text;
};
int rondo_round_verdict_failed(const struct rondo_round_verdict *verdict);
/** Keep what rondo_round_check would find of two verdicts, or reasons. */
void rondo_round_merge_verdicts(void *into, const void *from);
void rondo_round_merge_reasons(void *into, const void *from);
/** @return the status of the reason; its sentence becomes this thread's. */
rondo_status rondo_round_reason_check(const struct rondo_round_reason *reason);

/** Write the parameters that ranks must agree on, as lines NAME=value; cut and terminated at @a size.
 * @return the length of the whole text. */
size_t rondo_params_pack(char *text, size_t size);
/** Compare rank 0's text with that of @a rank on @a host (both terminated). The error names the parameter,
 * both values and both ranks. */
rondo_status rondo_params_compare(const char *root_text, const char *text, int rank, const char *host);

#endif
