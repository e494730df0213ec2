/*
 * A copy of one content by both ends: the receiver opens a share, and each end takes pieces of it until none
 * is left, the receiver from the front and the publisher from the back, so that memory which is used again
 * stays in the caches of the same core. The share lies in the receiver's inbox (wire_shm.c); the publisher
 * writes its pieces to the receiver's place by process_vm_writev.
 *
 *     receiver                              publisher, while it waits for something
 *     open(number, place)
 *     take, copy, take, copy, ..            take, write, finish, take, ..
 *     take says that none is left           take says so, too
 *     wait until the publisher has
 *     finished what it has taken; close
 *
 * A content's number is in the word that pieces are taken from. So a publisher that comes late takes nothing
 * of the next content, and `place` is that of the content as long as taking succeeds. Numbers come again, but
 * far fewer contents than numbers are under way.
 */
#ifndef RONDO_TENSOR_SHARE_H
#define RONDO_TENSOR_SHARE_H

#include <stddef.h>
#include <stdint.h>

/* Larger contents are not shared. */
#define RONDO_TENSOR_SHARE_MOST ((uint64_t)0xfffff0 * 4096)

struct rondo_tensor_share {
    uint64_t word;     /* atomic: the number, the pages taken from the front, and those from the back */
    uint64_t place;    /* atomic; an address of the receiver */
    uint64_t finished; /* atomic: bytes that the publisher is done with */
    uint32_t failed;   /* atomic: it could not write some of them */
};

/** Receiver: let both ends take pieces of a content. */
void rondo_tensor_share_open(struct rondo_tensor_share *share, uint16_t number, void *place);
/** Receiver: nothing can be taken. So must a share begin, and end. */
void rondo_tensor_share_close(struct rondo_tensor_share *share);
/** The number of the content that is open, or was last. */
uint16_t rondo_tensor_share_number(const struct rondo_tensor_share *share);
/** Take a piece of a content of this many bytes. @return its bytes; 0: nothing is left, or the content is not
 * open. *from: where it begins; *place: the receiver's address of that. */
size_t rondo_tensor_share_take(struct rondo_tensor_share *share, uint16_t number, size_t bytes, int from_back,
                               size_t *from, uint64_t *place);
/** Publisher: it is done with a piece. failed: without success. */
void rondo_tensor_share_finish(struct rondo_tensor_share *share, size_t bytes, int failed);

/* How fast contents of a class can be copied: by the receiver alone, and by both. Help is none if the
 * publisher's core has other work, or is far: what was faster lately decides. */
struct rondo_tensor_pace {
    uint64_t ns_per_mib[2];          /* 0: not known */
    uint32_t first, left, try_after; /* contents: of the first ones; until the slower way is tried; between */
};

/** Shall both ends copy the next content? Sometimes it is the way that was slower, which is tried again. */
int rondo_tensor_pace_both(struct rondo_tensor_pace *pace);
/** A content of at least 1 KiB was copied in this time. */
void rondo_tensor_pace_note(struct rondo_tensor_pace *pace, int both, size_t bytes, int64_t ns);

#endif
