/* The report as text, and the words that the other forms share. Contract: observe.h. */
#include <string.h>

#include "base/mem.h"
#include "coll/algo.h"
#include "observe/call_text.h"
#include "observe/observe.h"

void rondo_seen_call_text(const struct rondo_seen_call *seen, char *text, size_t size)
{
    if (seen->coll == RONDO_COLL_SEND || seen->coll == RONDO_COLL_RECV) {
        struct rondo_message message = { .count = seen->count,
                                         .peer = seen->root,
                                         .is_send = seen->coll == RONDO_COLL_SEND,
                                         .dtype = seen->dtype };
        rondo_message_text(&message, text, size);
        return;
    }
    struct rondo_call call = { .seq = seen->seq,
                               .count = seen->count,
                               .op = seen->op,
                               .root = seen->root,
                               .coll = seen->coll,
                               .dtype = seen->dtype };
    rondo_call_text(&call, text, size);
}

char *rondo_seen_ranks_text(const int *ranks, int n, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < n && at + 1 < size;) {
        int end = i;
        while (end + 1 < n && ranks[end + 1] == ranks[end] + 1) {
            end++;
        }
        at += (size_t)(end == i ? snprintf(text + at, size - at, "%s%d", i > 0 ? "," : "", ranks[i])
                                : snprintf(text + at, size - at, "%s%d-%d", i > 0 ? "," : "", ranks[i],
                                           ranks[end]));
        i = end + 1;
    }
    return text;
}

char *rondo_seen_time_text(int64_t ns, char text[16])
{
    double v = ns < 0 ? 0 : (double)ns;
    if (v < 1e3) {
        snprintf(text, 16, "%.0f ns", v);
    } else if (v < 1e6) {
        snprintf(text, 16, "%.3g us", v * 1e-3);
    } else if (v < 1e9) {
        snprintf(text, 16, "%.3g ms", v * 1e-6);
    } else if (v < 600e9) {
        snprintf(text, 16, "%.3g s", v * 1e-9);
    } else {
        snprintf(text, 16, "%.0f min", v / 60e9);
    }
    return text;
}

/* ---- one line a group of ranks that do the same ---- */

/* What a rank does, without what differs from rank to rank in the same state. */
static void doing_text(const struct rondo_seen *seen, const struct rondo_seen_rank *r, char *text,
                       size_t size)
{
    const struct rondo_seen_process *p = &seen->processes[r->process];
    const struct rondo_seen_call *last = r->ncalls > 0 ? &r->calls[r->ncalls - 1] : NULL;
    char call[128] = "", state[96] = "";
    int in = last != NULL && last->state == 1 && last->seq == r->begun;
    if (r->message_open && !in) {
        rondo_seen_call_text(&r->message, call, sizeof(call));
    } else if (last != NULL) {
        rondo_seen_call_text(last, call, sizeof(call));
    }
    if (r->life == 3) {
        snprintf(state, sizeof(state), ", has destroyed the communicator");
    } else if (p->state == 0) {
        snprintf(state, sizeof(state), ", DEAD");
    } else if (p->state == 'T' || p->state == 't') {
        snprintf(state, sizeof(state), ", STOPPED (state %c)", p->state);
    }
    snprintf(text, size, "%s%s%s",
             in                ? "in "
             : r->message_open ? "in "
             : call[0] != '\0' ? "outside, last "
                               : "outside, no collective so far",
             call, state);
}

/* "waits for data from rank 3 (channel 0, simple, step 17) since 31 s" */
static void waits_text(const struct rondo_seen *seen, const struct rondo_seen_rank *r, char *text,
                       size_t size)
{
    char since[16];
    size_t at;
    if (!r->waits) {
        text[0] = '\0';
        return;
    }
    at = (size_t)snprintf(text, size, ", waits for %s since %s", r->text,
                          rondo_seen_time_text(seen->now_ns - r->since_ns, since));
    for (uint32_t i = 1; i < r->nlanes && at < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "; also rank %d (channel %u, step %llu)",
                               r->lane[i].peer, (unsigned)r->lane[i].channel,
                               (unsigned long long)r->lane[i].step);
    }
}

static void rank_line(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_rank *r)
{
    const struct rondo_seen_process *p = &seen->processes[r->process];
    char doing[256], waits[320];
    doing_text(seen, r, doing, sizeof(doing));
    waits_text(seen, r, waits, sizeof(waits));
    fprintf(out, "    rank %d, pid %d on %s: %s%s", r->rank, p->pid, p->host, doing, waits);
    if (p->sampled && p->state != 0) {
        fprintf(out, ", %d %% of a core", p->percent);
    }
    if (p->state != 0 && p->state != 'R' && p->syscall[0] != '\0') {
        fprintf(out, ", in %s", p->syscall);
    }
    if (p->swapped > 0) {
        fprintf(out, ", %.1f MiB swapped", (double)p->swapped / (1 << 20));
    }
    fprintf(out, "\n");
    for (const char *at = p->stack; *at != '\0';) {
        int n = (int)strcspn(at, "\n");
        fprintf(out, "        %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

/* ---- mismatched calls side by side ---- */

/* The ranks that make one call under a number, a line for each of its variants. */
static void variants_print(FILE *out, const struct rondo_seen_comm *comm, uint64_t seq)
{
    int *ranks;
    char list[160], text[128];
    if (RONDO_NEW_ARRAY(ranks, comm->n, "ranks") != RONDO_SUCCESS) {
        return;
    }
    for (int i = 0; i < comm->n; i++) {
        const struct rondo_seen_call *call = rondo_seen_call_of(&comm->ranks[i], seq);
        int n = 0, first = 1;
        for (int j = 0; call != NULL && j < comm->n; j++) {
            const struct rondo_seen_call *other = rondo_seen_call_of(&comm->ranks[j], seq);
            if (other != NULL && other->word == call->word) {
                first &= j >= i;
                ranks[n++] = comm->ranks[j].rank;
            }
        }
        if (n > 0 && first) {
            rondo_seen_call_text(call, text, sizeof(text));
            fprintf(out, "    %-40s ranks %s\n", text, rondo_seen_ranks_text(ranks, n, list, sizeof(list)));
        }
    }
    rondo_free(ranks);
}

/* @return the first number under which ranks make different calls; 0: none */
static uint64_t first_difference(const struct rondo_seen_comm *comm)
{
    uint64_t first = 0;
    for (int i = 1; i < comm->n; i++) {
        for (int k = 0; k < comm->ranks[i].ncalls; k++) {
            const struct rondo_seen_call *call = &comm->ranks[i].calls[k],
                                         *other = rondo_seen_call_of(&comm->ranks[0], call->seq);
            if (other != NULL && other->word != call->word && (first == 0 || call->seq < first)) {
                first = call->seq;
            }
        }
    }
    return first;
}

/* ---- who is always last ---- */

static void lateness_print(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_comm *comm)
{
    static const char *const bins[RONDO_LATE_BINS] = { "<1us",  "<10us", "<100us", "<1ms",
                                                       "<10ms", "<0.1s", "<1s",    "more" };
    struct rondo_lateness *late;
    (void)seen;
    if (comm->n < 2 || RONDO_NEW_ARRAY(late, comm->n, "lateness") != RONDO_SUCCESS) {
        return;
    }
    if (rondo_lateness_of(comm, late) == RONDO_SUCCESS && late[0].ncalls > 0) {
        fprintf(out, "    arrival after the first rank, in the last %d calls that all have made:\n      rank",
                late[0].ncalls);
        for (int b = 0; b < RONDO_LATE_BINS; b++) {
            fprintf(out, "%8s", bins[b]);
        }
        fprintf(out, "%8s%12s\n", "last", "median");
        for (int i = 0; i < comm->n; i++) {
            char text[16];
            fprintf(out, "%10d", comm->ranks[i].rank);
            for (int b = 0; b < RONDO_LATE_BINS; b++) {
                fprintf(out, "%8d", late[i].bin[b]);
            }
            fprintf(out, "%8d%12s\n", late[i].nlast, rondo_seen_time_text(late[i].median_ns, text));
        }
    }
    rondo_free(late);
}

/* ---- the report ---- */

static int is_notable(const struct rondo_seen *seen, const struct rondo_seen_comm *comm,
                      const struct rondo_diagnosis *diagnosis, const struct rondo_seen_rank *r)
{
    for (int i = 0; i < diagnosis->n; i++) {
        const struct rondo_finding *f = &diagnosis->finding[i];
        if (f->comm >= 0 && &seen->comms[f->comm] == comm && (f->rank == r->rank || f->other == r->rank)) {
            return 1;
        }
    }
    return 0;
}

/* Ranks in the same state share a line, unless a finding names them. */
static void comm_print(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_comm *comm,
                       const struct rondo_diagnosis *diagnosis)
{
    enum { FEW = 16 };
    char a[256], b[256], list[160];
    int *ranks;
    uint64_t differs = first_difference(comm);
    fprintf(out, "\ncommunicator \"%s\" %016llx: %d of %d ranks seen\n", comm->name,
            (unsigned long long)comm->hash, comm->n, comm->nranks);
    if (comm->reason != RONDO_SUCCESS) {
        fprintf(out, "    ended: %s\n", comm->reason_text);
    }
    if (differs != 0) {
        variants_print(out, comm, differs);
    }
    if (RONDO_NEW_ARRAY(ranks, comm->n + 1, "ranks") != RONDO_SUCCESS) {
        return;
    }
    for (int i = 0; i < comm->n; i++) {
        int n = 0, first = 1;
        if (comm->n <= FEW || is_notable(seen, comm, diagnosis, &comm->ranks[i])) {
            rank_line(out, seen, &comm->ranks[i]);
            continue;
        }
        doing_text(seen, &comm->ranks[i], a, sizeof(a));
        for (int j = 0; j < comm->n; j++) {
            if (!is_notable(seen, comm, diagnosis, &comm->ranks[j])) {
                doing_text(seen, &comm->ranks[j], b, sizeof(b));
                if (strcmp(a, b) == 0) {
                    first &= j >= i;
                    ranks[n++] = comm->ranks[j].rank;
                }
            }
        }
        if (first) {
            fprintf(out, "    ranks %s: %s\n", rondo_seen_ranks_text(ranks, n, list, sizeof(list)), a);
        }
    }
    rondo_free(ranks);
    lateness_print(out, seen, comm);
}

void rondo_seen_text(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis)
{
    fprintf(out, "%s\n", diagnosis->finding[0].text);
    for (int i = 1; i < diagnosis->n; i++) {
        fprintf(out, "also: %s\n", diagnosis->finding[i].text);
    }
    for (int c = 0; c < seen->ncomms; c++) {
        comm_print(out, seen, &seen->comms[c], diagnosis);
    }
    if (seen->nforbidden > 0) {
        fprintf(out, "\n%d %s could not be read: run as their user\n", seen->nforbidden,
                seen->nforbidden == 1 ? "process" : "processes");
    }
}
