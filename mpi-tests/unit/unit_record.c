/* Tests of the flight recorder, its reader and the diagnosis (src/observe). */
#include "control_world.h"
#include "in_child.h"

#include "base/mem.h"
#include "kern/exec.h"
#include "observe/observe.h"

enum { RANKS = 3, CALLS = 300, SCENE_RANKS = RONDO_MOST_FINDINGS + 8 };

static struct rondo_call call_at(uint64_t seq)
{
    return (struct rondo_call){ .seq = seq,
                                .count = seq * 3,
                                .word = (uint32_t)seq * 5,
                                .op = RONDO_SUM,
                                .root = -1,
                                .coll = RONDO_COLL_ALL_REDUCE,
                                .dtype = RONDO_FLOAT32 };
}

static void look(struct rondo_seen *seen, int pid)
{
    struct rondo_observe_request request = { .pids = &pid, .npids = 1 };
    memset(seen, 0, sizeof(*seen));
    assert_int_equal(rondo_observe(seen, &request), RONDO_SUCCESS);
}

/* ---- records ---- */

static void the_last_256_calls_are_on_record_with_their_times(void **state)
{
    struct world world;
    struct rondo_seen seen;
    const struct rondo_seen_rank *r;
    (void)state;
    world_open(&world, RANKS);
    for (uint64_t seq = 1; seq <= CALLS; seq++) {
        struct rondo_call call = call_at(seq);
        rondo_control_call_begin(world.control[1], &call);
        if (seq % 2) {
            rondo_control_call_end(world.control[1], seq);
        } else if (seq < CALLS) {
            rondo_control_call_end_timed(world.control[1], seq);
        }
    }
    look(&seen, getpid());
    assert_int_equal(seen.ncomms, 1);
    assert_int_equal(seen.comms[0].n, RANKS);
    assert_string_equal(seen.comms[0].name, "test");
    assert_int_equal(seen.comms[0].ranks[0].ncalls, 0);
    r = &seen.comms[0].ranks[1];
    assert_int_equal(r->ncalls, RONDO_RECORD_CALLS);
    assert_int_equal(r->begun, CALLS);
    assert_int_equal(seen.processes[r->process].pid, getpid());
    for (int i = 0; i < r->ncalls; i++) {
        const struct rondo_seen_call *call = &r->calls[i];
        uint64_t seq = CALLS - RONDO_RECORD_CALLS + 1 + (uint64_t)i;
        assert_int_equal(call->seq, seq);
        assert_int_equal(call->count, seq * 3);
        assert_int_equal(call->word, (uint32_t)seq * 5);
        assert_int_equal(call->state, seq < CALLS ? 2 : 1);
        assert_true(call->begin_ns > 0 && seen.now_ns - call->begin_ns < DEADLINE_NS);
        assert_true(i == 0 || call->begin_ns >= call[-1].begin_ns);
        assert_true(seq % 2 || seq == CALLS ? call->end_ns == 0 : call->end_ns >= call->begin_ns);
    }
    rondo_seen_release(&seen);
    world_close(&world);
}

static void a_waiting_rank_shows_peer_channel_and_step(void **state)
{
    struct world world;
    struct rondo_seen seen;
    struct rondo_call call = call_at(1);
    struct rondo_blocked blocked = {
        .peer = 2, .channel = 4, .proto = RONDO_PROTO_SIMPLE, .what = RONDO_BLOCKED_DATA, .step = 17
    };
    struct rondo_seen_rank *r;
    (void)state;
    world_open(&world, RANKS);
    rondo_control_call_begin(world.control[0], &call);
    rondo_control_waiting(world.control[0], &blocked, 1, "data from rank 2");
    look(&seen, getpid());
    r = &seen.comms[0].ranks[0];
    assert_int_equal(r->waits, 1);
    assert_int_equal(r->nlanes, 1);
    assert_memory_equal(&r->lane[0], &blocked, sizeof(blocked));
    assert_string_equal(r->text, "data from rank 2");
    assert_true(seen.now_ns >= r->since_ns);
    rondo_seen_release(&seen);
    rondo_control_call_end_timed(world.control[0], 1); /* what it waited for is out of date now */
    look(&seen, getpid());
    assert_int_equal(seen.comms[0].ranks[0].waits, 0);
    rondo_seen_release(&seen);
    world_close(&world);
}

static void messages_are_on_record_apart(void **state)
{
    struct world world;
    struct rondo_seen seen;
    struct rondo_call message = {
        .seq = 1, .count = 8, .root = 2, .coll = RONDO_COLL_SEND, .dtype = RONDO_INT8
    };
    struct rondo_seen_rank *r;
    (void)state;
    world_open(&world, RANKS);
    rondo_control_message_begin(world.control[1], &message);
    look(&seen, getpid());
    r = &seen.comms[0].ranks[1];
    assert_int_equal(r->nmessages, 1);
    assert_int_equal(r->message_open, 1);
    assert_int_equal(r->message.root, 2);
    rondo_seen_release(&seen);
    rondo_control_message_end(world.control[1], 1);
    look(&seen, getpid());
    assert_int_equal(seen.comms[0].ranks[1].message_open, 0);
    assert_int_equal(seen.comms[0].ranks[1].messages[0].state, 2);
    rondo_seen_release(&seen);
    world_close(&world);
}

/* Open a world. @return the descriptors of the process before it, once what stays has been made. */
static int world_open_counted(struct world *world)
{
    int before;
    world_open(world, 2);
    world_close(world);
    before = count_fds();
    world_open(world, 2);
    return before;
}

static void nothing_is_held_after_the_last_communicator(void **state)
{
    struct world world;
    int before = world_open_counted(&world);
    (void)state;
    assert_true(count_fds() > before);
    world_close(&world);
    assert_int_equal(count_fds(), before);
}

/* The rank that made the segment ends first: the other's descriptor stays. */
static void ranks_of_a_process_may_end_in_any_order(void **state)
{
    struct world world;
    struct rondo_seen seen;
    int before = world_open_counted(&world);
    (void)state;
    rondo_control_close(world.control[0]);
    look(&seen, getpid());
    assert_int_equal(seen.ncomms, 1);
    assert_int_equal(seen.comms[0].ranks[seen.comms[0].n - 1].rank, 1);
    rondo_seen_release(&seen);
    rondo_control_close(world.control[1]);
    assert_int_equal(count_fds(), before);
}

/* ---- the leader dies, another process still has the segment ---- */

struct two {
    struct world world;
    int name[2], ready[2], hold[2]; /* pipes */
};

static void leader(struct two *t)
{
    struct rondo_control_config config = world_config(&t->world, 0);
    struct rondo_shm_name name;
    struct rondo_call call = call_at(1);
    char byte;
    if (rondo_control_create(&t->world.control[0], &config, &name) == RONDO_SUCCESS &&
        write(t->name[1], &name, sizeof(name)) == sizeof(name) && read(t->ready[0], &byte, 1) == 1 &&
        rondo_control_start(t->world.control[0]) == RONDO_SUCCESS) {
        rondo_control_call_begin(t->world.control[0], &call);
        _exit(0); /* as a crash: it closes nothing */
    }
    _exit(1);
}

static void member(struct two *t)
{
    struct rondo_control_config config = world_config(&t->world, 1);
    struct rondo_shm_name name;
    char byte;
    if (read(t->name[0], &name, sizeof(name)) == sizeof(name) &&
        rondo_control_attach(&t->world.control[1], &config, &name) == RONDO_SUCCESS &&
        rondo_control_start(t->world.control[1]) == RONDO_SUCCESS && write(t->ready[1], "", 1) == 1) {
        (void)!read(t->hold[0], &byte, 1); /* until the test ends */
    }
    _exit(0);
}

static void a_dead_leaders_calls_are_read_through_another_rank(void **state)
{
    struct two t;
    struct rondo_seen seen = { 0 };
    struct rondo_diagnosis diagnosis;
    pid_t first, second;
    int status;
    (void)state;
    memset(&t, 0, sizeof(t));
    world_init(&t.world, 2, 1);
    assert_true(pipe(t.name) == 0 && pipe(t.ready) == 0 && pipe(t.hold) == 0);
    fflush(NULL);
    if ((first = fork()) == 0) {
        leader(&t);
    }
    if ((second = fork()) == 0) {
        close(t.hold[1]);
        member(&t);
    }
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_int_equal(status, 0);
    WAIT_FOR((look(&seen, second), seen.ncomms == 1 && seen.comms[0].n == 2) ||
             (rondo_seen_release(&seen), 0));
    assert_int_equal(seen.ncomms, 1);
    assert_int_equal(seen.comms[0].n, 2);
    assert_int_equal(seen.processes[seen.comms[0].ranks[0].process].state, 0);
    assert_int_equal(seen.comms[0].ranks[0].calls[0].seq, 1);
    rondo_diagnose(&seen, 0, &diagnosis);
    assert_int_equal(diagnosis.finding[0].kind, RONDO_FINDING_DEAD);
    assert_int_equal(diagnosis.finding[0].rank, 0);
    assert_non_null(strstr(diagnosis.finding[0].text, "has died in all_reduce #1"));
    rondo_seen_release(&seen);
    close(t.hold[1]);
    assert_int_equal(waitpid(second, &status, 0), second);
    for (int i = 0; i < 2; i++) {
        close(t.name[i]);
        close(t.ready[i]);
    }
    close(t.hold[0]);
}

/* ---- bytes from another host ---- */

/* @return what rondo_seen_write writes, of *size bytes, to be freed */
static char *write_seen(const struct rondo_seen *seen, size_t *size)
{
    char *bytes = NULL;
    FILE *out = open_memstream(&bytes, size);
    assert_int_equal(rondo_seen_write(out, seen), RONDO_SUCCESS);
    fclose(out);
    return bytes;
}

static rondo_status read_seen(char *bytes, size_t size, struct rondo_seen *seen)
{
    FILE *in = fmemopen(bytes, size, "r");
    rondo_status status = rondo_seen_read(in, seen);
    fclose(in);
    return status;
}

static int look_at_root(void *pid)
{
    struct rondo_observe_request request = { .pids = pid, .npids = 1 };
    struct rondo_seen seen = { 0 };
    if (become_nobody() != 0) return SKIPPED;
    return rondo_observe(&seen, &request) != RONDO_SUCCESS || seen.nforbidden != 1 || seen.nprocesses != 0;
}

static void processes_of_other_users_are_counted(void **state)
{
    int pid = (int)getpid(), code = in_child(look_at_root, &pid);
    (void)state;
    if (code == SKIPPED) skip();
    assert_int_equal(code, 0);
}

static void what_was_seen_travels(void **state)
{
    struct world world;
    struct rondo_seen seen, got = { 0 };
    char *written;
    size_t size;
    (void)state;
    world_open(&world, RANKS);
    for (uint64_t seq = 1; seq <= 10; seq++) {
        struct rondo_call call = call_at(seq);
        rondo_control_call_begin(world.control[2], &call);
    }
    look(&seen, getpid());
    written = write_seen(&seen, &size);
    assert_int_equal(read_seen(written, size, &got), RONDO_SUCCESS);
    assert_int_equal(got.ncomms, 1);
    assert_int_equal(got.comms[0].n, RANKS);
    assert_memory_equal(got.comms[0].ranks[2].calls, seen.comms[0].ranks[2].calls,
                        sizeof(struct rondo_seen_call) * 10);
    rondo_seen_release(&got);
    for (size_t cut = 0; cut < size; cut += size / 37 + 1) { /* no part of it is taken for the whole */
        assert_int_not_equal(read_seen(written, cut > 0 ? cut : 1, &got), RONDO_SUCCESS);
        rondo_seen_release(&got);
    }
    free(written);
    seen.comms[0].ranks[1].begun = UINT64_MAX; /* no rank has made so many calls */
    written = write_seen(&seen, &size);
    assert_int_not_equal(read_seen(written, size, &got), RONDO_SUCCESS);
    rondo_seen_release(&got);
    free(written);
    rondo_seen_release(&seen);
    world_close(&world);
}

/* Whoever reads would count up to it. */
static void a_number_of_calls_that_is_none_is_left_out(void **state)
{
    struct world world;
    struct rondo_seen seen;
    struct rondo_call call = call_at(UINT64_MAX);
    (void)state;
    world_open(&world, RANKS);
    rondo_control_call_begin(world.control[1], &call);
    look(&seen, getpid());
    assert_int_equal(seen.ncomms, 1);
    assert_int_equal(seen.comms[0].n, RANKS - 1);
    rondo_seen_release(&seen);
    world_close(&world);
}

/* ---- diagnosis ---- */

/* Ranks of one communicator, each a process, all in call `begun`. */
struct scene {
    struct rondo_seen seen;
    struct rondo_seen_comm comms[2];
    struct rondo_seen_rank ranks[2][SCENE_RANKS];
    struct rondo_seen_process processes[SCENE_RANKS];
    struct rondo_seen_call calls[2][SCENE_RANKS][8];
};

static const int64_t now_ns = INT64_C(1000000000000), second_ns = 1000000000;

static void add_call(struct scene *s, int c, int rank, uint32_t word, uint8_t state)
{
    struct rondo_seen_rank *r = &s->ranks[c][rank];
    r->calls[r->ncalls++] = (struct rondo_seen_call){ .seq = ++r->begun,
                                                      .word = word,
                                                      .count = word,
                                                      .coll = RONDO_COLL_ALL_REDUCE,
                                                      .dtype = RONDO_FLOAT32,
                                                      .state = state,
                                                      .begin_ns = now_ns - 10 * second_ns };
    r->done += state == 2;
}

static void scene_begin(struct scene *s, int ncomms, int n)
{
    memset(s, 0, sizeof(*s));
    s->seen = (struct rondo_seen){
        .now_ns = now_ns, .ncomms = ncomms, .nprocesses = n, .comms = s->comms, .processes = s->processes
    };
    for (int c = 0; c < ncomms; c++) {
        s->comms[c] = (struct rondo_seen_comm){
            .hash = (uint64_t)c + 1, .nranks = n, .nnodes = 1, .n = n, .ranks = s->ranks[c]
        };
        snprintf(s->comms[c].name, sizeof(s->comms[c].name), "c%d", c);
        for (int r = 0; r < n; r++) {
            s->ranks[c][r] =
                (struct rondo_seen_rank){ .rank = r, .process = r, .life = 2, .calls = s->calls[c][r] };
        }
    }
    for (int r = 0; r < n; r++) {
        s->processes[r].pid = 100 + r;
        s->processes[r].state = 'S';
        snprintf(s->processes[r].host, sizeof(s->processes[r].host), "h");
    }
}

static struct rondo_finding verdict(struct scene *s)
{
    static struct rondo_diagnosis diagnosis;
    rondo_diagnose(&s->seen, second_ns, &diagnosis);
    return diagnosis.finding[0];
}

static void the_rank_without_the_call_is_named(void **state)
{
    struct scene s;
    struct rondo_finding f;
    (void)state;
    scene_begin(&s, 1, 4);
    for (int r = 0; r < 4; r++) {
        add_call(&s, 0, r, 1, 2);
    }
    assert_int_equal(verdict(&s).kind, RONDO_FINDING_NOTHING);
    for (int r = 0; r < 3; r++) {
        add_call(&s, 0, r, 2, 1);
    }
    snprintf(s.processes[3].stack, sizeof(s.processes[3].stack), "poll\nopal_progress\nPMPI_Barrier\nmain\n");
    f = verdict(&s);
    assert_int_equal(f.kind, RONDO_FINDING_MISSING);
    assert_int_equal(f.rank, 3);
    assert_int_equal(f.waiting, 3);
    assert_non_null(strstr(f.text, "rank 3 (pid 103 on h) has not called all_reduce #2"));
    assert_non_null(strstr(f.text, "3 ranks wait for it since 10 s"));
    assert_non_null(strstr(f.text, "it is in MPI_Barrier"));
}

static void the_minority_is_the_odd_one(void **state)
{
    struct scene s;
    struct rondo_finding f;
    (void)state;
    scene_begin(&s, 1, 4);
    for (int r = 0; r < 4; r++) {
        add_call(&s, 0, r, r == 0 ? 7 : 9, 1);
    }
    f = verdict(&s);
    assert_int_equal(f.kind, RONDO_FINDING_MISMATCH);
    assert_int_equal(f.rank, 0);
    assert_non_null(strstr(f.text, "count 7"));
    assert_non_null(strstr(f.text, "3 other ranks"));
}

static void communicators_in_different_orders_are_a_cycle(void **state)
{
    struct scene s;
    (void)state;
    scene_begin(&s, 2, 2);
    add_call(&s, 0, 0, 1, 1);
    add_call(&s, 1, 1, 1, 1);
    assert_int_equal(verdict(&s).kind, RONDO_FINDING_ORDER);
}

static void a_stopped_rank_explains_the_wait(void **state)
{
    struct scene s;
    struct rondo_finding f;
    (void)state;
    scene_begin(&s, 1, 3);
    for (int r = 0; r < 3; r++) {
        add_call(&s, 0, r, 1, 1);
    }
    s.processes[1].state = 'T';
    f = verdict(&s);
    assert_int_equal(f.kind, RONDO_FINDING_STOPPED);
    assert_int_equal(f.rank, 1);
    assert_int_equal(f.waiting, 2);
}

static void the_chain_of_waits_is_followed_to_its_end(void **state)
{
    struct scene s;
    struct rondo_finding f;
    (void)state;
    scene_begin(&s, 1, 3);
    for (int r = 0; r < 3; r++) {
        add_call(&s, 0, r, 1, 1);
        s.ranks[0][r].waits = r < 2;
        s.ranks[0][r].nlanes = 1;
        s.ranks[0][r].lane[0] = (struct rondo_blocked){ .peer = r + 1, .what = RONDO_BLOCKED_DATA };
    }
    f = verdict(&s);
    assert_int_equal(f.kind, RONDO_FINDING_STUCK);
    assert_int_equal(f.rank, 2);
}

/* More than fit: the worst are kept, and each keeps the ranks that it names. */
static void the_worst_findings_make_room(void **state)
{
    static struct scene s;
    static struct rondo_diagnosis diagnosis;
    (void)state;
    scene_begin(&s, 2, SCENE_RANKS);
    for (int r = 0; r < SCENE_RANKS; r++) {
        struct rondo_seen_rank *rank = &s.ranks[0][r];
        rank->message = (struct rondo_seen_call){ .coll = RONDO_COLL_RECV,
                                                  .root = (r + 1) % SCENE_RANKS,
                                                  .state = 1,
                                                  .begin_ns = now_ns - 10 * second_ns };
        rank->message_open = 1;
        add_call(&s, 1, r, r == 5 ? 7 : 9, 1);
    }
    rondo_diagnose(&s.seen, second_ns, &diagnosis);
    assert_int_equal(diagnosis.n, RONDO_MOST_FINDINGS);
    assert_int_equal(diagnosis.finding[0].kind, RONDO_FINDING_MISMATCH);
    assert_int_equal(diagnosis.finding[0].rank, 5);
    assert_int_equal(diagnosis.finding[0].other, 0);
    for (int i = 1; i < diagnosis.n; i++) {
        const struct rondo_finding *f = &diagnosis.finding[i];
        assert_int_equal(f->kind, RONDO_FINDING_MESSAGE);
        assert_int_equal((f->other + 1) % SCENE_RANKS, f->rank);
    }
}

static void every_form_of_the_report_is_well_formed(void **state)
{
    struct scene s;
    struct rondo_diagnosis diagnosis;
    void (*const forms[])(FILE *, const struct rondo_seen *,
                          const struct rondo_diagnosis *) = { rondo_seen_text, rondo_seen_json,
                                                              rondo_seen_svg };
    (void)state;
    scene_begin(&s, 2, 4);
    snprintf(s.comms[0].name, sizeof(s.comms[0].name), "<\"\\\n%%>");
    for (int r = 0; r < 3; r++) {
        add_call(&s, 0, r, 1, 1);
    }
    rondo_diagnose(&s.seen, second_ns, &diagnosis);
    for (size_t i = 0; i <= RONDO_COUNTOF(forms); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        long depth = 0;
        if (i < RONDO_COUNTOF(forms)) {
            forms[i](out, &s.seen, &diagnosis);
        } else {
            rondo_seen_flight(out, &s.seen);
        }
        fclose(out);
        assert_true(size > 100);
        for (size_t at = 0; at < size && (i == 1 || i == 3); at++) { /* braces outside strings match */
            if (text[at] == '"') {
                for (at++; text[at] != '"'; at++) {
                    at += text[at] == '\\';
                    assert_true(at < size && (unsigned char)text[at] >= ' ');
                }
            }
            depth += (text[at] == '{' || text[at] == '[') - (text[at] == '}' || text[at] == ']');
            assert_true(depth >= 0);
        }
        assert_int_equal(depth, 0);
        assert_null(i == 2 ? strstr(text, "<\"") : NULL);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_256_calls_are_on_record_with_their_times),
        cmocka_unit_test(a_waiting_rank_shows_peer_channel_and_step),
        cmocka_unit_test(messages_are_on_record_apart),
        cmocka_unit_test(nothing_is_held_after_the_last_communicator),
        cmocka_unit_test(ranks_of_a_process_may_end_in_any_order),
        cmocka_unit_test(a_dead_leaders_calls_are_read_through_another_rank),
        cmocka_unit_test(processes_of_other_users_are_counted),
        cmocka_unit_test(what_was_seen_travels),
        cmocka_unit_test(a_number_of_calls_that_is_none_is_left_out),
        cmocka_unit_test(the_rank_without_the_call_is_named),
        cmocka_unit_test(the_minority_is_the_odd_one),
        cmocka_unit_test(communicators_in_different_orders_are_a_cycle),
        cmocka_unit_test(a_stopped_rank_explains_the_wait),
        cmocka_unit_test(the_chain_of_waits_is_followed_to_its_end),
        cmocka_unit_test(the_worst_findings_make_room),
        cmocka_unit_test(every_form_of_the_report_is_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
