/* Stores from creation to destruction, for api.c. */
#ifndef RONDO_TENSOR_LIFE_H
#define RONDO_TENSOR_LIFE_H

#include "tensor/store.h"

/** Create this rank's end. The caller has entered the communicator, and tells the other ranks how it went.
 * number: of the communicator's stores, the same on all ranks. */
rondo_status rondo_tensor_core_create(struct rondo_ctx *ctx, uint32_t number,
                                      const rondo_tensor_config *config, struct rondo_tensor_core **core);
/** Free an end that no user has got, because another rank has none. Calls nobody. */
void rondo_tensor_core_discard(struct rondo_tensor_core *core);
/** Wait for all ranks, serving them, then free. Calls the communicator. @return the communicator's error. */
rondo_status rondo_tensor_core_destroy(struct rondo_tensor_core *core);

#endif
