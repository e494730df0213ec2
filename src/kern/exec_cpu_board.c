/* One-shot, and what else passes over the board of a node. */
#include <string.h>

#include "kern/exec_cpu.h"
#include "kern/reduce.h"

/* Ranks that are threads map the board each at an address of its own: that what is posted there is what others see there is said to the sanitizer here. */
#ifdef __SANITIZE_THREAD__
void __tsan_release(void *address);
void __tsan_acquire(void *address);
static char all_boards;
static void tell_of_post(void) { __tsan_release(&all_boards); }
static void tell_of_look(void) { __tsan_acquire(&all_boards); }
#else
static void tell_of_post(void) {}
static void tell_of_look(void) {}
#endif

uint8_t *rondo_board_begin(struct rondo_board *board)
{
    board->op += board->op == UINT32_MAX ? 3 : 1; /* 0 is what fresh memory holds, and 1 would be of the same bank again */
    return rondo_board_place(board, board->op, board->index) + 8;
}

void rondo_board_post(struct rondo_board *board, uint32_t call_word)
{
    uint64_t *word = (uint64_t *)(void *)rondo_board_place(board, board->op, board->index);
    tell_of_post();
    __atomic_store_n(word, (uint64_t)call_word << 32 | board->op, __ATOMIC_RELEASE);
}

int rondo_board_wait(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow, rondo_status *status)
{
    const struct rondo_board *board = w->board;
    for (; flow->unit < (size_t)board->nranks; flow->unit++) {
        const uint8_t *place = rondo_board_place(board, board->op, (int)flow->unit);
        uint64_t word = __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
        if ((uint32_t)word != board->op) {
            return 0;
        }
        if (RONDO_UNLIKELY((uint32_t)(word >> 32) != w->call_word)) {
            *status = exec->owner->mismatch(exec->owner->arg, -1 - (int)flow->unit, w, (uint32_t)(word >> 32));
            return -1;
        }
        exec->sources[flow->unit] = place + 8;
    }
    tell_of_look();
    return 1;
}

void rondo_post_all(const struct rondo_work *w)
{
    uint8_t *payload = rondo_board_begin(w->board);
    if (w->premul) {
        rondo_premul(payload, w->in, w->len, (rondo_dtype)w->dtype, w->scalar);
    } else {
        memcpy(payload, w->in, w->len * w->elem_bytes);
    }
    rondo_board_post(w->board, w->call_word);
}

int rondo_receive_all(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow, rondo_status *status)
{
    int all = rondo_board_wait(exec, w, flow, status);
    if (all != 1) {
        return all;
    }
    rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce)(w->out, exec->sources, w->board->nranks, w->len);
    if (w->divide) {
        rondo_divide(w->out, w->len, (rondo_dtype)w->dtype, w->board->nranks);
    }
    return 1;
}
