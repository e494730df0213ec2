/*
 * Pass descriptors of segments over a Unix socket, for processes whose /proc/PID/fd peers cannot open (not
 * dumpable, hidepid, another /proc). Each segment has a listening socket with an abstract address, so nothing
 * is left behind. Connecting is the request, so the server never waits for a client's words. One thread per
 * process, which exists only while a segment is offered, hands descriptors to processes of the same user
 * only. Abstract addresses are visible within the network namespace.
 */
#ifndef RONDO_BASE_SHM_SOCKET_H
#define RONDO_BASE_SHM_SOCKET_H

#include "base/status.h"

/** Offer @a fd, which stays the caller's, at @a address ("@name"; '@' stands for the zero byte of an abstract
 * address). key: identifies the offer in this process. */
rondo_status rondo_shm_offer(int fd, uint64_t key, const char *address);
/** End an offer; the last one ends the thread. No-op for an unknown key, and in a forked child for its
 * parent's. */
void rondo_shm_withdraw(uint64_t key);
/** Receive the descriptor that a process offers at @a address. @return -1 and *why, within @a timeout_ms. */
int rondo_shm_receive(const char *address, int timeout_ms, const char **why);

#endif
