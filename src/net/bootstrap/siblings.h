/*
 * The processes that the same launcher started on this host, found by their environment: has one ended? A
 * rank that dies before it has said anything is known in no other way.
 */
#ifndef RONDO_NET_BOOTSTRAP_SIBLINGS_H
#define RONDO_NET_BOOTSTRAP_SIBLINGS_H

#include "base/process.h"
#include "base/status.h"

struct rondo_sibling {
    int task, pid; /* task: its number in the job; pid: the launcher's child */
    uint64_t start;
    int here; /* found in the last look */
};
struct rondo_siblings {
    const struct rondo_launcher_names *names; /* NULL: no launcher is known */
    char *job[2];                             /* its values of names->job */
    int ntasks, task;                         /* of the job; this process's number */
    int launcher;                             /* whose children the tasks are, on this host */
    struct rondo_sibling *list;
    int n, capacity;
};

/** Read this process's environment, and find the others. */
void rondo_siblings_open(struct rondo_siblings *siblings);
/** Look again, in any thread. @return one that was there and has ended, as have all with its number; NULL: none */
const struct rondo_sibling *rondo_siblings_ended(struct rondo_siblings *siblings);
void rondo_siblings_close(struct rondo_siblings *siblings);

#endif
