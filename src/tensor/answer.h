/* What publish.c, answer.c and home.c share. The store's lock is held. */
#ifndef RONDO_TENSOR_ANSWER_H
#define RONDO_TENSOR_ANSWER_H

#include "tensor/store.h"

/* ---- publish.c ---- */

struct rondo_tensor_key *rondo_tensor_key_find(const struct rondo_tensor_core *core, const char *text,
                                               size_t bytes);
rondo_status rondo_tensor_key_get(struct rondo_tensor_core *core, const char *text, size_t bytes,
                                  struct rondo_tensor_key **key);
/** Free a key that has nothing. */
void rondo_tensor_key_settle(struct rondo_tensor_core *core, struct rondo_tensor_key *key);
/** @return the publication that a pull of this step gets; NULL: none yet. */
struct rondo_tensor_pub *rondo_tensor_pub_match(const struct rondo_tensor_key *key, uint64_t step);
/** End or free a publication that has nothing left to do. */
void rondo_tensor_pub_settle(struct rondo_tensor_core *core, struct rondo_tensor_pub *pub);
int rondo_tensor_is_retired(const struct rondo_tensor_core *core, uint64_t step);

/* ---- answer.c ---- */

/** Answer those that wait for this step of a key, or for its latest, oldest first, as far as there are
 * publications. Writes nothing, so that no connection breaks meanwhile. @return 1: there were some. */
int rondo_tensor_serve_waiting(struct rondo_tensor_core *core, struct rondo_tensor_key *key, uint64_t step);
/** Refuse those that wait for a retired step; drop: forget all that wait. */
void rondo_tensor_end_waiting(struct rondo_tensor_core *core, struct rondo_tensor_key *key, int drop);
/** Clone for the responses of publications that have ended; drop: forget them, except what is with a wire. */
void rondo_tensor_responses_leave(struct rondo_tensor_conn *conn, int drop);

/* ---- home.c ---- */

/** Tell the key's home that this rank has it, once. */
rondo_status rondo_tensor_announce_key(struct rondo_tensor_core *core, struct rondo_tensor_key *key);
/** Forget a question of a connection, if there is one. */
void rondo_tensor_locate_forget(struct rondo_tensor_conn *conn, uint32_t index);
void rondo_tensor_locates_drop(struct rondo_tensor_conn *conn);

#endif
