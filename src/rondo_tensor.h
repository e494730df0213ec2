/*
 * Rondo: named tensors. A rank publishes a tensor under a key and a step and goes on; other ranks pull it by
 * key and step, without knowing its size. The content goes straight into the puller's memory.
 *
 *     producer                                        consumer
 *     rondo_tensor_publish(store, "w", 7, &t, 1, 0)    rondo_tensor got = RONDO_TENSOR_INIT;
 *     ... computes, and is served meanwhile ...        rondo_tensor_pull(store, "w", 0, 7, 0, &got, 0)
 *
 * What holds for every function below:
 *  - Keys are strings of 1 to RONDO_TENSOR_MAX_KEY bytes. Steps are numbers that the program chooses; a key
 *    has one tensor a step. Sizes are in bytes, times in milliseconds; a time of RONDO_CONFIG_DEFAULT is that
 *    of the store, 0 is no limit.
 *  - Any thread may use a store at any time, except to destroy it. A forked child may not use it.
 *  - A store serves pulls of other ranks from a thread of its own, so that a publisher may compute, or wait
 *    for something else. Threads that wait make progress themselves. Callbacks (rondo_tensor_ops) run in any
 *    of these threads, on any current GPU; they must not call a store, and must not wait for other ranks.
 *    Other threads may use the store meanwhile, and have unpack and release of other tensors called; but pack
 *    is called once at a time.
 *  - Either order works: a pull may come before the tensor is published.
 *  - A pull completes when the content has landed in the consumer's memory; a publication completes when all
 *    pulls that it was for have landed.
 *  - An error leaves output arguments untouched, and rondo_last_error(NULL) says cause, rank, host and
 *    remedy.
 *  - When the communicator ends, by an error, an abort or its destruction, every operation of its stores ends
 *    with an error, but for rondo_tensor_store_destroy. A call that returns it returns when nobody reads the
 *    data of publications any more.
 */
#ifndef RONDO_TENSOR_H
#define RONDO_TENSOR_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_TENSOR_MAX_KEY 512 /**< bytes of a key, without the terminating 0 */
#define RONDO_TENSOR_MAX_DIMS 8
#define RONDO_TENSOR_ANY (-1)          /**< as peer of a pull: whichever rank announced the key */
#define RONDO_TENSOR_LATEST UINT64_MAX /**< as step of a pull: the highest step that is published */
#define RONDO_TENSOR_UNTIL_RETIRED 0u  /**< as number of pulls of a publication */
#define RONDO_TENSOR_MAX_STEP (UINT64_MAX - 1)

/** The tensors that the ranks of a communicator publish. Each rank has its own end of it. */
typedef struct rondo_tensor_store rondo_tensor_store;
/** A pull or publication under way. It ends with rondo_tensor_wait, or with a test that says so. */
typedef struct rondo_tensor_request rondo_tensor_request;

/** What a tensor that is not plain memory does. NULL members are not called. */
typedef struct rondo_tensor_ops {
    size_t size; /**< sizeof(rondo_tensor_ops) */
    /** Publisher: write the packed form of the tensor, exactly its `bytes`, to @a out. An error, and its
     * rondo_last_error, reaches whoever pulls. */
    rondo_status (*pack)(void *arg, void *out, size_t bytes);
    /** Consumer: take the packed form, which is valid during the call. Then the pull's `data` and `bytes`
     * stay as they were. */
    rondo_status (*unpack)(void *arg, const void *in, size_t bytes);
    /** Publisher: the publication has ended, and the store does not use `data` again. Called once, and not if
     * publishing failed. */
    void (*release)(void *arg, void *data);
} rondo_tensor_ops;

/** Memory of a tensor. Publisher and puller choose it independently. A tensor in memory of a GPU (cuMemAlloc,
 * cudaMalloc, rondo_mem_alloc_device) must be complete when it is published: synchronise its stream before.
 * When a pull has ended, work that is enqueued then sees the tensor. Over verbs, NICs that can read and write
 * the GPU's memory do so (RONDO_TENSOR_GPUDIRECT); else, and with checksums, the store copies it through the
 * host. */
enum rondo_tensor_memory { RONDO_TENSOR_HOST, RONDO_TENSOR_CUDA };

/**
 * A tensor: elements of one type, row after row. To publish one, fill in all that is known; `shape` may stay
 * empty (ndims 0), then it is one row of bytes / size of the type. To pull one, `data` NULL asks for memory
 * of the store, which the caller frees with rondo_tensor_free; else it is a place of `bytes` bytes. With
 * RONDO_TENSOR_CUDA data is memory of one GPU, NULL of the calling thread's current one. A pull sets data,
 * bytes, type, ndims, shape, dead, packed, step and peer; one with ops->unpack leaves data and bytes.
 */
typedef struct rondo_tensor {
    void *data;
    size_t bytes;
    rondo_dtype type;
    int ndims;
    int64_t shape[RONDO_TENSOR_MAX_DIMS];
    int dead;      /**< 1: the step has no value for this key (as in a branch not taken); bytes is 0 */
    int packed;    /**< set by a pull: the content is what ops->pack wrote */
    int memory;    /**< enum rondo_tensor_memory: where data is; of a pull, where the tensor shall be */
    int peer;      /**< set by a pull: who published it */
    uint64_t step; /**< set by a pull: the step that came, also for RONDO_TENSOR_LATEST */
    const rondo_tensor_ops *ops; /**< NULL: plain memory. Must live as long as the publication or pull */
    void *arg;                   /**< of ops */
} rondo_tensor;
#define RONDO_TENSOR_INIT                                          \
    {                                                              \
        NULL, 0, RONDO_UINT8, 0, { 0 }, 0, 0, 0, -1, 0, NULL, NULL \
    }

enum rondo_tensor_part { RONDO_TENSOR_ALL, RONDO_TENSOR_BYTES, RONDO_TENSOR_ROWS };
/** The part of a tensor that is pulled: `count` bytes or rows (indices of the first dimension) from `first`
 * on. A part of bytes arrives as RONDO_UINT8; a part of rows has the shape of the rows. */
typedef struct rondo_tensor_slice {
    enum rondo_tensor_part part;
    uint64_t first, count;
} rondo_tensor_slice;

/** One of the pulls of rondo_tensor_pull_many, as the arguments of rondo_tensor_pull. */
typedef struct rondo_tensor_item {
    const char *key;
    int peer;
    uint64_t step;
    rondo_tensor_slice slice;
    rondo_tensor *tensor;
    rondo_status status; /**< set: how it ended; RONDO_IN_PROGRESS until then */
} rondo_tensor_item;

/** Settings of a store. Fill it with RONDO_TENSOR_CONFIG_INIT; later versions may add fields at the end. */
typedef struct rondo_tensor_config {
    size_t size;        /**< sizeof(rondo_tensor_config) at compile time */
    int64_t timeout_ms; /**< deadline of waits; 0: none; RONDO_CONFIG_DEFAULT: RONDO_TENSOR_TIMEOUT */
    size_t arena_bytes; /**< least size of what rondo_tensor_alloc takes from the system at once; 0:
                             RONDO_TENSOR_ARENA */
    int checksum;       /**< 1: check every content that this rank pulls; RONDO_CONFIG_DEFAULT:
                             RONDO_TENSOR_CHECKSUM */
    int thread;         /**< 0: no thread, others are served only while this rank is in a call of the store */
} rondo_tensor_config;
#define RONDO_TENSOR_CONFIG_INIT                                                      \
    {                                                                                 \
        sizeof(rondo_tensor_config), RONDO_CONFIG_DEFAULT, 0, RONDO_CONFIG_DEFAULT, 1 \
    }

/** What this rank's end of a store has done since its creation. */
typedef struct rondo_tensor_stats {
    size_t size;                                       /**< in: sizeof(rondo_tensor_stats) */
    uint64_t requests, re_requests, meta_data, errors; /**< messages sent, by type */
    uint64_t other_messages; /**< cancellations, deliveries, and looking for RONDO_TENSOR_ANY */
    uint64_t message_writes; /**< writes of the message buffer: one carries as many messages as fit */
    uint64_t acks;           /**< acknowledgements sent */
    uint64_t contents;       /**< contents sent */
    uint64_t content_bytes;
    uint64_t pulled, pulled_bytes; /**< tensors that arrived here */
    uint64_t dropped;              /**< contents that arrived for a pull that had ended, or an older epoch */
    uint64_t staged_bytes;         /**< bytes that a CPU copied besides the transfer itself */
    uint64_t cloned_bytes;         /**< of these, copies of tensors whose publication ended during a pull */
    uint64_t arenas;               /**< pieces of memory that rondo_tensor_alloc holds */
    uint64_t registrations;        /**< of memory with network devices */
    uint64_t connections;
    uint64_t arenas_made;  /**< pieces of memory that rondo_tensor_alloc has taken from the system so far */
    uint64_t direct;       /**< contents sent that a network device wrote from where they lay, by RDMA */
    uint64_t helped_bytes; /**< bytes that this rank, as publisher, wrote to places of ranks of the node: its
                              part of a copy that both make while it waits */
    uint64_t framed;       /**< contents sent that shared a write by RDMA, or could have */
} rondo_tensor_stats;

/* ---- stores ---- */

/**
 * Create a store over all ranks of a communicator of host memory. Collective: all ranks create the same
 * stores in the same order. @a config NULL: the defaults. The communicator must outlive the store. Neither
 * this nor rondo_tensor_store_destroy between rondo_group_start and rondo_group_end.
 */
rondo_status rondo_tensor_store_create(rondo_comm *comm, const rondo_tensor_config *config,
                                       rondo_tensor_store **store);
/**
 * Collective: the store serves others until all ranks have called it, then ends all publications, cancels
 * pulls under way, and frees the store with the memory of rondo_tensor_alloc and its unfinished requests.
 * After an error of the communicator it waits for nobody, and returns that error; after its abort or
 * destruction, RONDO_SUCCESS. It waits for others as long
 * as the communicator's calls do (RONDO_TIMEOUT). While they pull from this rank, its time does not run, for
 * one content up to ten times that limit; the time of ranks that nobody pulls from runs.
 */
rondo_status rondo_tensor_store_destroy(rondo_tensor_store *store);
/** Store what this rank's end has done, up to the size that @a stats has in its first field. */
rondo_status rondo_tensor_store_stats(rondo_tensor_store *store, rondo_tensor_stats *stats);

/* ---- publishing ---- */

/**
 * Publish a tensor for @a pulls pulls, or until its step is retired. Never waits. The tensor's data must stay
 * valid and unchanged until the publication has ended: when it was pulled so often, when its step is retired,
 * or when the epoch or the store ends. ops->release says so. `tensor` itself and the key are copied.
 * @param request  NULL, or out: completes when all pulls have landed, or the step is retired
 * @return RONDO_INVALID_USAGE: the key has a tensor at this step, or the step was retired.
 */
rondo_status rondo_tensor_publish(rondo_tensor_store *store, const char *key, uint64_t step,
                                  const rondo_tensor *tensor, uint64_t pulls, rondo_tensor_request **request);
/** The same, and tell the ranks that pull from RONDO_TENSOR_ANY that this rank has the key: one message to
 * one rank, at the first announcement of a key. A key that several ranks announce is found at the last one.
 *  */
rondo_status rondo_tensor_announce(rondo_tensor_store *store, const char *key, uint64_t step,
                                   const rondo_tensor *tensor, uint64_t pulls,
                                   rondo_tensor_request **request);
/** Publish that there will be no tensor: pulls of it, until the step is retired, end with this error. @a text
 * is copied, cut to 400 bytes. */
rondo_status rondo_tensor_publish_error(rondo_tensor_store *store, const char *key, uint64_t step,
                                        rondo_status status, const char *text);
/**
 * End this rank's publications of all steps up to @a step. Later pulls of them are errors. Pulls that wait
 * for their content get it: what is not on its way yet is cloned, what is on its way is waited for.
 */
rondo_status rondo_tensor_retire(rondo_tensor_store *store, uint64_t step);
/**
 * Begin a new epoch on this rank: end all publications, cancel all pulls, forget what was retired. For going
 * back to a checkpoint. All ranks begin the same epochs; a rank that is ahead waits for the others, and what
 * comes from an older epoch is dropped.
 */
rondo_status rondo_tensor_next_epoch(rondo_tensor_store *store);

/* ---- pulling ---- */

/**
 * Pull a tensor, or a slice of it (NULL: all). See struct rondo_tensor for what @a tensor says; it must live
 * until the pull has ended. The rank itself may be the peer.
 * @param request  out: the pull under way; NULL: return when it has ended
 * @return with NULL: RONDO_TIMEOUT (nothing was published; the sentence names key, step and peer),
 * RONDO_INVALID_ARGUMENT (the place is too small, or the slice is outside), or the publisher's error.
 */
rondo_status rondo_tensor_pull(rondo_tensor_store *store, const char *key, int peer, uint64_t step,
                               const rondo_tensor_slice *slice, rondo_tensor *tensor,
                               rondo_tensor_request **request);
/** Pull many tensors; requests to one rank travel together. The items must live until the pull has ended. If
 * some fail, the others arrive all the same; the pull's error is that of the first one that failed. */
rondo_status rondo_tensor_pull_many(rondo_tensor_store *store, rondo_tensor_item *items, size_t n,
                                    rondo_tensor_request **request);

/** Wait for a request and free it. At the deadline it is cancelled: RONDO_TIMEOUT. On return nobody touches
 * the memory of a pull any more; a publication that was cancelled stays published, and its data must stay.
 * timeout_ms 0: no deadline (rondo_tensor_test looks without waiting); RONDO_CONFIG_DEFAULT: the store's. */
rondo_status rondo_tensor_wait(rondo_tensor_request *request, int64_t timeout_ms);
/** Make progress. *done 1: the request is freed, and its error, if any, returned. */
rondo_status rondo_tensor_test(rondo_tensor_request *request, int *done);
/** Give a request up, and return at once; its wait ends soon, and returns RONDO_INVALID_USAGE unless it was
 * done before. A publication's tensor stays published. */
rondo_status rondo_tensor_cancel(rondo_tensor_request *request);

/** rondo_tensor_publish for one pull. */
rondo_status rondo_tensor_send(rondo_tensor_store *store, const char *key, uint64_t step,
                               const rondo_tensor *tensor, rondo_tensor_request **request);
/** rondo_tensor_pull of all of a tensor. */
rondo_status rondo_tensor_recv(rondo_tensor_store *store, const char *key, int peer, uint64_t step,
                               rondo_tensor *tensor, rondo_tensor_request **request);

/* ---- memory ---- */

/**
 * Allocate memory from the store's arenas: ranks of the node map it and network devices register it once, and
 * not for each tensor. Aligned to 64 bytes, not zeroed; belongs to the store. Other memory works as well:
 * registered for the communicator (rondo_comm_register) its registration is kept, else each transfer over a
 * network device registers it.
 */
rondo_status rondo_tensor_alloc(rondo_tensor_store *store, size_t bytes, void **data);
/** Free what rondo_tensor_alloc or a pull gave, or NULL. */
rondo_status rondo_tensor_free(rondo_tensor_store *store, void *data);

#ifdef __cplusplus
}
#endif
#endif
