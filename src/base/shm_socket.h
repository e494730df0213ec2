/*
 * Descriptors of segments passed over a Unix socket, for processes whose /proc/PID/fd is closed to their
 * peers (not dumpable, hidepid, a foreign /proc). Each segment has a listening socket with an abstract
 * address, so nothing is left behind; to connect to it is the request, so nobody waits for a client's words.
 * One thread a process, which exists only while a segment is offered, hands the descriptor to processes of
 * the same user and to nobody else. Abstract addresses reach as far as the network namespace.
 */
#ifndef RONDO_BASE_SHM_SOCKET_H
#define RONDO_BASE_SHM_SOCKET_H

#include "base/status.h"

/** Offer @a fd, which stays the caller's, at @a address ("@name", the '@' stands for the zero byte of an
 * abstract address). key: names the offer in this process. */
rondo_status rondo_shm_offer(int fd, uint64_t key, const char *address);
/** End an offer; the last one ends the thread. No-op for a key that is not offered, and in a forked child for
 * its parent's. */
void rondo_shm_withdraw(uint64_t key);
/** The descriptor that another process, or this one, offers at @a address. @return -1 and *why, within @a
 * timeout_ms. */
int rondo_shm_receive(const char *address, int timeout_ms, const char **why);

#endif
