/* Calls in words. */
#ifndef RONDO_OBSERVE_CALL_TEXT_H
#define RONDO_OBSERVE_CALL_TEXT_H

#include "coll/algo.h"
#include "net/control/control.h"

/** Has a call counts per rank? */
int rondo_call_has_counts(enum rondo_coll coll);
/** Format a call: "all_reduce #17 (count 8, f32, sum)". */
void rondo_call_text(const struct rondo_call *call, char *text, size_t size);
/** Format a message, after "rank 3 waits in ": "a send of 8 f32 to rank 2". */
void rondo_message_text(const struct rondo_message *message, char *text, size_t size);

#endif
