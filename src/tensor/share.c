/* A copy by both ends: share.h. */
#include "tensor/share.h"

#include "base/mem.h"

enum {
    PAGE = 4096,
    LEAST_PAGES = 8, /* of a piece: a call of the kernel costs about as much as the copy of a page */
    MOST_PAGES = 64, /* so that the wait for the other end's last piece is short */
    ALL_PAGES = 0xffffff,
    FIRST = 6,      /* contents are copied in the two ways by turns */
    TRY_AFTER = 16, /* so many contents, the way that was slower is tried again; after twice as many, if it */
    TRY_LATEST = 256 /* is slower again, up to this */
};

static uint64_t word_of(uint16_t number, uint32_t front)
{
    return (uint64_t)number << 48 | (uint64_t)front << 24;
}

uint16_t rondo_tensor_share_number(const struct rondo_tensor_share *share)
{
    return (uint16_t)(__atomic_load_n(&share->word, __ATOMIC_ACQUIRE) >> 48);
}

void rondo_tensor_share_open(struct rondo_tensor_share *share, uint16_t number, void *place)
{
    __atomic_store_n(&share->place, (uintptr_t)place, __ATOMIC_RELAXED);
    __atomic_store_n(&share->finished, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&share->failed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&share->word, word_of(number, 0), __ATOMIC_RELEASE);
}

void rondo_tensor_share_close(struct rondo_tensor_share *share)
{
    uint16_t number = rondo_tensor_share_number(share);
    __atomic_store_n(&share->word, word_of(number, ALL_PAGES), __ATOMIC_RELEASE);
}

size_t rondo_tensor_share_take(struct rondo_tensor_share *share, uint16_t number, size_t bytes, int from_back,
                               size_t *from, uint64_t *place)
{
    uint64_t word = __atomic_load_n(&share->word, __ATOMIC_ACQUIRE),
             pages = bytes / PAGE + (bytes % PAGE > 0), front, back, n;
    do {
        front = word >> 24 & ALL_PAGES;
        back = word & ALL_PAGES;
        if (word >> 48 != number || front + back >= pages) {
            return 0;
        }
        *place = __atomic_load_n(&share->place, __ATOMIC_RELAXED);
        n = (pages - front - back) / 3; /* ever less, so that both end at the same time */
        n = n < LEAST_PAGES ? LEAST_PAGES : n > MOST_PAGES ? MOST_PAGES : n;
        n = n > pages - front - back ? pages - front - back : n;
    } while (!__atomic_compare_exchange_n(&share->word, &word, word + (from_back ? n : n << 24), 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    *from = (size_t)(from_back ? pages - back - n : front) * PAGE;
    *place += *from;
    return rondo_min_size((size_t)n * PAGE, bytes - *from);
}

void rondo_tensor_share_finish(struct rondo_tensor_share *share, size_t bytes, int failed)
{
    if (failed) {
        __atomic_store_n(&share->failed, 1, __ATOMIC_RELAXED);
    }
    __atomic_add_fetch(&share->finished, bytes, __ATOMIC_RELEASE);
}

static int both_are_faster(const struct rondo_tensor_pace *pace)
{
    return pace->ns_per_mib[1] <= pace->ns_per_mib[0];
}

int rondo_tensor_pace_both(struct rondo_tensor_pace *pace)
{
    if (pace->first < FIRST) {
        pace->try_after = pace->left = TRY_AFTER;
        return pace->first++ % 2 == 0;
    }
    if (pace->left > 0) {
        pace->left--;
        return both_are_faster(pace);
    }
    pace->try_after = pace->try_after < TRY_LATEST ? 2 * pace->try_after : TRY_LATEST;
    pace->left = pace->try_after;
    return !both_are_faster(pace);
}

void rondo_tensor_pace_note(struct rondo_tensor_pace *pace, int both, size_t bytes, int64_t ns)
{
    uint64_t old = pace->ns_per_mib[both], now = (uint64_t)ns * 1024 / (bytes / 1024) + 1;
    int before = both_are_faster(pace);
    if (old > 0 && now > old) { /* a slow copy may have been interrupted; a fast one says what is possible */
        now = (3 * old + rondo_min_size(now, 4 * old)) / 4;
    }
    pace->ns_per_mib[both] = now;
    if (both_are_faster(pace) != before) {
        pace->try_after = pace->left = TRY_AFTER;
    }
}
