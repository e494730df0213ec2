/* The two halves of fake_verbs.h: objects that programs create (fake_verbs.c), and the network that moves
 * their data (fake_verbs_net.c). */
#ifndef RONDO_UNIT_FAKE_VERBS_IMPL_H
#define RONDO_UNIT_FAKE_VERBS_IMPL_H

#include "fake_verbs.h"

#include <errno.h>
#include <pthread.h>

enum { FAKE_OBJECTS = 512, FAKE_MAX_CQE = 1024, FAKE_MAX_RECV = 256 };

struct fake_mr {
    struct ibv_mr ibv;
    int access;
};

struct fake_cq {
    struct ibv_cq ibv;
    struct ibv_wc wc[FAKE_MAX_CQE];
    uint32_t sent[FAKE_MAX_CQE]; /* how many sends of the queue pair are over with it */
    int n;
};

struct fake_qp {
    struct ibv_qp ibv;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    uint64_t recv[FAKE_MAX_RECV];
    int nrecv;
    uint32_t posted, retired;
};

extern struct fake_mr *fake_mrs[FAKE_OBJECTS];
extern struct fake_qp *fake_qps[FAKE_OBJECTS];

/* Serializes ranks that are threads; recursive, since calls nest. */
extern pthread_mutex_t fake_verbs_lock;

static inline int fake_verbs_enter(void) { return pthread_mutex_lock(&fake_verbs_lock); }
static inline void fake_verbs_leave(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&fake_verbs_lock);
}
#define FAKE_ALONE() __attribute__((cleanup(fake_verbs_leave), unused)) const int alone_ = fake_verbs_enter()

/** Count a call. @return 1: it must fail, with errno set. */
static inline int fake_verb_fails(enum fake_verb call)
{
    fake.calls[call]++;
    if (fake.called != NULL) {
        fake.called(call);
    }
    if (fake.fail_in[call] > 0 && --fake.fail_in[call] == 0) {
        errno = fake.fail_errno;
        return 1;
    }
    return 0;
}

/* The data path of an open NIC. */
int fake_poll_cq(struct ibv_cq *ibv, int most, struct ibv_wc *wc);
int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
