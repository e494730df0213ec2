/* The events of a simulation in order of time; those of one time in the order in which they were made. */
#ifndef RONDO_SIM_EVENT_QUEUE_H
#define RONDO_SIM_EVENT_QUEUE_H

#include <stdint.h>
#include <stdlib.h>

struct event {
    int64_t at_ns;
    uint64_t number;
    int rank;
    void *what;
};

/* A binary heap. Zeroed: empty. */
struct event_queue {
    struct event *event;
    size_t n, capacity;
    uint64_t number;
};

static inline int event_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static inline void event_push(struct event_queue *queue, int64_t at_ns, int rank, void *what)
{
    struct event event = { at_ns, queue->number++, rank, what };
    size_t at = queue->n++;
    if (queue->n > queue->capacity) {
        queue->capacity = queue->capacity ? 2 * queue->capacity : 1024;
        queue->event = realloc(queue->event, sizeof(event) * queue->capacity);
        if (queue->event == NULL) {
            abort();
        }
    }
    while (at > 0 && event_before(&event, &queue->event[(at - 1) / 2])) {
        queue->event[at] = queue->event[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->event[at] = event;
}

/* @return 0: there is none. */
static inline int event_pop(struct event_queue *queue, struct event *first)
{
    if (queue->n == 0) {
        return 0;
    }
    *first = queue->event[0];
    struct event last = queue->event[--queue->n];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < queue->n) {
        child += child + 1 < queue->n && event_before(&queue->event[child + 1], &queue->event[child]);
        if (!event_before(&queue->event[child], &last)) {
            break;
        }
        queue->event[at] = queue->event[child];
        at = child;
    }
    queue->event[at] = last;
    return 1;
}

static inline void event_free(struct event_queue *queue) { free(queue->event); }

#endif
