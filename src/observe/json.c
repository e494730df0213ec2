/* The report as JSON, and the calls in the form of PyTorch's flight recorder. Contract: observe.h. */
#include <stdlib.h>
#include <string.h>

#include "coll/algo.h"
#include "observe/observe.h"

static void string(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at >= 0x7f) { /* names are bytes; JSON wants Unicode */
            fprintf(out, "\\u%04x", *at);
        } else {
            putc(*at, out);
        }
    }
    putc('"', out);
}

static void field(FILE *out, const char *name, const char *text)
{
    fprintf(out, ", \"%s\": ", name);
    string(out, text);
}

static const char *coll_name(const struct rondo_seen_call *call)
{
    const char *name = rondo_coll_name((enum rondo_coll)call->coll);
    return name != NULL ? name : "unknown";
}

static const char *type_name(const struct rondo_seen_call *call)
{
    const char *name = rondo_dtype_name((rondo_dtype)call->dtype);
    return name != NULL ? name : "unknown";
}

static void call_json(FILE *out, const struct rondo_seen_call *call)
{
    const char *op = rondo_coll_reduces((enum rondo_coll)call->coll) ? rondo_op_name((rondo_op)call->op)
                                                                     : NULL;
    fprintf(out, "{\"seq\": %llu, \"operation\": \"%s\", \"count\": %llu, \"type\": \"%s\"",
            (unsigned long long)call->seq, coll_name(call), (unsigned long long)call->count, type_name(call));
    if (op != NULL) {
        field(out, "op", op);
    }
    if (rondo_coll_name((enum rondo_coll)call->coll) != NULL &&
        rondo_coll_has_root((enum rondo_coll)call->coll)) {
        fprintf(out, ", \"%s\": %d",
                call->coll == RONDO_COLL_SEND || call->coll == RONDO_COLL_RECV ? "peer" : "root", call->root);
    }
    fprintf(out, ", \"state\": \"%s\", \"word\": \"%08x\", \"begin_ns\": %lld, \"end_ns\": %lld}",
            call->state == 2 ? "done" : "open", call->word, (long long)call->begin_ns,
            (long long)call->end_ns);
}

static void calls_json(FILE *out, const char *name, const struct rondo_seen_call *calls, int n)
{
    fprintf(out, ",\n       \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        fprintf(out, "%s\n        ", i > 0 ? "," : "");
        call_json(out, &calls[i]);
    }
    fprintf(out, "]");
}

static void lane_json(FILE *out, const struct rondo_blocked *b)
{
    static const char *const what[RONDO_NUM_BLOCKED] = { "nothing", "data", "credit", "message",
                                                         "connection" };
    const char *proto = rondo_proto_name((enum rondo_proto)b->proto);
    fprintf(out, "{\"peer\": %d, \"what\": \"%s\", \"channel\": %u, \"protocol\": \"%s\", \"step\": %llu}",
            b->peer, b->what < RONDO_NUM_BLOCKED ? what[b->what] : "?", (unsigned)b->channel,
            proto != NULL ? proto : "", (unsigned long long)b->step);
}

static void process_json(FILE *out, const struct rondo_seen_process *p)
{
    char state[2] = { p->state, '\0' };
    fprintf(out, "{\"pid\": %d", p->pid);
    field(out, "host", p->host);
    field(out, "job", p->job);
    field(out, "state", p->state == 0 ? "dead" : state);
    field(out, "command", p->command);
    field(out, "syscall", p->syscall);
    field(out, "wchan", p->wchan);
    field(out, "stack", p->stack);
    if (p->sampled) {
        fprintf(out, ", \"percent\": %d", p->percent);
    }
    fprintf(out, ", \"swapped\": %llu}", (unsigned long long)p->swapped);
}

static void rank_json(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_rank *r,
                      const struct rondo_lateness *late)
{
    static const char *const life[] = { "none", "attached", "alive", "left" };
    fprintf(out, "{\"rank\": %d, \"life\": \"%s\", \"begun\": %llu, \"done\": %llu,\n       \"process\": ",
            r->rank, life[r->life & 3], (unsigned long long)r->begun, (unsigned long long)r->done);
    process_json(out, &seen->processes[r->process]);
    if (r->waits) {
        fprintf(out, ",\n       \"waits\": {\"since_ns\": %lld", (long long)r->since_ns);
        field(out, "text", r->text);
        fprintf(out, ", \"lanes\": [");
        for (uint32_t i = 0; i < r->nlanes; i++) {
            fprintf(out, "%s", i > 0 ? ", " : "");
            lane_json(out, &r->lane[i]);
        }
        fprintf(out, "]}");
    }
    if (late != NULL && late->ncalls > 0) {
        fprintf(out,
                ",\n       \"arrival\": {\"calls\": %d, \"last\": %d, \"median_ns\": %lld, \"decades\": [",
                late->ncalls, late->nlast, (long long)late->median_ns);
        for (int b = 0; b < RONDO_LATE_BINS; b++) {
            fprintf(out, "%s%d", b > 0 ? ", " : "", late->bin[b]);
        }
        fprintf(out, "]}");
    }
    calls_json(out, "calls", r->calls, r->ncalls);
    calls_json(out, "messages", r->messages, r->nmessages);
    fprintf(out, "}");
}

static void comm_json(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_comm *comm)
{
    struct rondo_lateness *late = NULL;
    if (comm->n > 1) {
        late = calloc((size_t)comm->n, sizeof(*late));
        if (late != NULL && rondo_lateness_of(comm, late) != RONDO_SUCCESS) {
            free(late);
            late = NULL;
        }
    }
    fprintf(out, "{\"hash\": \"%016llx\", \"ranks\": %d, \"nodes\": %d, \"seen\": %d",
            (unsigned long long)comm->hash, comm->nranks, comm->nnodes, comm->n);
    field(out, "name", comm->name);
    if (comm->reason != RONDO_SUCCESS) {
        field(out, "ended", comm->reason_text);
    }
    fprintf(out, ",\n     \"members\": [");
    for (int i = 0; i < comm->n; i++) {
        fprintf(out, "%s\n      ", i > 0 ? "," : "");
        rank_json(out, seen, &comm->ranks[i], late != NULL ? &late[i] : NULL);
    }
    fprintf(out, "]}");
    free(late);
}

void rondo_seen_json(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis)
{
    fprintf(out, "{\"version\": %d, \"now_ns\": %lld,\n \"findings\": [", RONDO_RECORD_VERSION,
            (long long)seen->now_ns);
    for (int i = 0; i < diagnosis->n; i++) {
        const struct rondo_finding *f = &diagnosis->finding[i];
        fprintf(out,
                "%s\n    {\"kind\": \"%s\", \"rank\": %d, \"other\": %d, \"waiting\": %d, \"since_ns\": %lld",
                i > 0 ? "," : "", rondo_finding_name(f->kind), f->rank, f->other, f->waiting,
                (long long)f->since_ns);
        if (f->comm >= 0) {
            field(out, "communicator", seen->comms[f->comm].name);
        }
        field(out, "text", f->text);
        fprintf(out, "}");
    }
    fprintf(out, "],\n \"communicators\": [");
    for (int c = 0; c < seen->ncomms; c++) {
        fprintf(out, "%s\n    ", c > 0 ? "," : "");
        comm_json(out, seen, &seen->comms[c]);
    }
    fprintf(out, "]}\n");
}

/* ---- PyTorch's flight recorder ---- */

/* PyTorch's names of types. */
static const char *torch_type(const struct rondo_seen_call *call)
{
    static const struct {
        rondo_dtype type;
        const char *name;
    } names[] = { { RONDO_INT8, "Char" },
                  { RONDO_UINT8, "Byte" },
                  { RONDO_INT32, "Int" },
                  { RONDO_INT64, "Long" },
                  { RONDO_FLOAT16, "Half" },
                  { RONDO_FLOAT32, "Float" },
                  { RONDO_FLOAT64, "Double" },
                  { RONDO_BFLOAT16, "BFloat16" },
                  { RONDO_INT16, "Short" },
                  { RONDO_UINT32, "UInt32" },
                  { RONDO_UINT64, "UInt64" },
                  { RONDO_UINT16, "UInt16" },
                  { RONDO_BOOL8, "Bool" },
                  { RONDO_FLOAT8E4M3, "Float8_e4m3fn" },
                  { RONDO_FLOAT8E5M2, "Float8_e5m2" } };
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (names[i].type == (rondo_dtype)call->dtype) {
            return names[i].name;
        }
    }
    return type_name(call);
}

static void flight_name(FILE *out, const struct rondo_seen_call *call, int rank)
{
    if (call->coll == RONDO_COLL_SEND) {
        fprintf(out, "nccl:send %d->%d", rank, call->root);
    } else if (call->coll == RONDO_COLL_RECV) {
        fprintf(out, "nccl:recv %d<-%d", rank, call->root);
    } else {
        fprintf(out, "nccl:%s", coll_name(call));
    }
}

static void flight_entry(FILE *out, const struct rondo_seen_comm *comm, const struct rondo_seen_rank *r,
                         const struct rondo_seen_call *call, int is_p2p, unsigned long long id)
{
    fprintf(out, "{\"record_id\": %llu, \"pg_id\": 0, \"process_group\": [\"%016llx\", ", id,
            (unsigned long long)comm->hash);
    string(out, comm->name);
    fprintf(out,
            "], \"collective_seq_id\": %llu, \"p2p_seq_id\": %llu, \"op_id\": %llu, \"profiling_name\": \"",
            is_p2p ? 0ULL : (unsigned long long)call->seq, is_p2p ? (unsigned long long)call->seq : 0ULL,
            (unsigned long long)call->seq);
    flight_name(out, call, r->rank);
    fprintf(out,
            "\", \"time_created_ns\": %lld, \"input_sizes\": [[%llu]], \"input_dtypes\": [\"%s\"], "
            "\"output_sizes\": [[%llu]], \"output_dtypes\": [\"%s\"], \"state\": \"%s\", "
            "\"time_discovered_started_ns\": %lld, \"time_discovered_completed_ns\": ",
            (long long)call->begin_ns, (unsigned long long)call->count, torch_type(call),
            (unsigned long long)call->count, torch_type(call), call->state == 2 ? "completed" : "started",
            (long long)call->begin_ns);
    if (call->end_ns != 0) {
        /* From integers: a program's locale may have a decimal comma. */
        long long ns = call->end_ns > call->begin_ns ? (long long)(call->end_ns - call->begin_ns) : 0;
        fprintf(out, "%lld, \"duration_ms\": %lld.%06lld", (long long)call->end_ns, ns / 1000000,
                ns % 1000000);
    } else {
        fprintf(out, "null");
    }
    fprintf(out, ", \"retired\": %s, \"timeout_ms\": 0, \"is_p2p\": %s, \"frames\": []}",
            call->state == 2 ? "true" : "false", is_p2p ? "true" : "false");
}

void rondo_seen_flight_of(FILE *out, const struct rondo_seen_comm *comm, const struct rondo_seen_rank *r)
{
    unsigned long long id = 0;
    int i = 0, m = 0;
    fprintf(out,
            "{\"version\": \"2.4\", \"rank\": %d, \"pg_config\": {\"0\": {\"name\": \"%016llx\", \"desc\": ",
            r->rank, (unsigned long long)comm->hash);
    string(out, comm->name);
    fprintf(out, ", \"ranks\": \"[");
    for (int k = 0; k < comm->nranks; k++) {
        fprintf(out, "%s%d", k > 0 ? ", " : "", k);
    }
    fprintf(out,
            "]\"}}, \"pg_status\": {\"0\": {\"last_enqueued_collective\": %llu, \"last_started_collective\": "
            "%llu, "
            "\"last_completed_collective\": %llu}},\n  \"entries\": [",
            (unsigned long long)r->begun, (unsigned long long)r->begun, (unsigned long long)r->done);
    while (i < r->ncalls || m < r->nmessages) { /* in the order of time */
        int p2p = i == r->ncalls || (m < r->nmessages && r->messages[m].begin_ns < r->calls[i].begin_ns);
        fprintf(out, "%s\n   ", id > 0 ? "," : "");
        flight_entry(out, comm, r, p2p ? &r->messages[m++] : &r->calls[i++], p2p, id);
        id++;
    }
    fprintf(out, "]}");
}

void rondo_seen_flight(FILE *out, const struct rondo_seen *seen)
{
    int n = 0;
    fprintf(out, "[");
    for (int c = 0; c < seen->ncomms; c++) {
        for (int r = 0; r < seen->comms[c].n; r++) {
            fprintf(out, "%s\n ", n++ > 0 ? "," : "");
            rondo_seen_flight_of(out, &seen->comms[c], &seen->comms[c].ranks[r]);
        }
    }
    fprintf(out, "]\n");
}
