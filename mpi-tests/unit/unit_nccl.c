/*
 * The NCCL face, as a program written for NCCL uses it: every exported function in legal and illegal ways.
 * Ranks are threads, one thread with a group, or forked processes; no launcher.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nccl_world.h"

/* ---- names, version, errors ---- */

static void test_names(void **state)
{
    int n = 0;
    (void)state;
#define FOUND_(ctx, NAME, kind)                                                          \
    n++;                                                                                 \
    if (dlsym(RTLD_DEFAULT, "nccl" #NAME) == NULL) fail_msg("nccl" #NAME " is missing"); \
    if (dlsym(RTLD_DEFAULT, "pnccl" #NAME) == NULL) fail_msg("pnccl" #NAME " is missing");
    NCCL_FACE_TABLE(FOUND_, )
    assert_non_null(dlsym(RTLD_DEFAULT, "ncclResetDebugInitInternal"));
    assert_int_equal(2 * n + 1, 193); /* as many as NCCL 2.32.3 exports */
}

static void test_version(void **state)
{
    int version = 0;
    (void)state;
    OK(ncclGetVersion(&version));
    assert_int_equal(version, 23007);
    REFUSED(ncclGetVersion(NULL), ncclInvalidArgument, "ncclGetVersion");
    for (int i = -1; i < 12; i++) {
        assert_non_null(ncclGetErrorString((ncclResult_t)i));
    }
    assert_string_equal(ncclGetErrorString(ncclSuccess), "no error");
    ncclResetDebugInit();
    ncclResetDebugInitInternal();
}

/* All functions that are refused: with a sentence that names the function. */
static void test_refused(void **state)
{
    typedef ncclResult_t (*any)(void *, void *, void *, void *, void *, void *);
    (void)state;
#define TRY_FACE(NAME)
#define TRY_DEVICE(NAME) TRY_(NAME)
#define TRY_RMA(NAME) TRY_(NAME)
#define TRY_SUSPEND(NAME) TRY_(NAME)
#define TRY_ENCRYPT(NAME) TRY_(NAME)
#define TRY_(NAME)                                                                                        \
    {                                                                                                     \
        any function;                                                                                     \
        void *symbol = dlsym(RTLD_DEFAULT, "nccl" #NAME);                                                 \
        memcpy(&function, &symbol, sizeof(function));                                                     \
        REFUSED(function(NULL, NULL, NULL, NULL, NULL, NULL), ncclInvalidUsage, "nccl" #NAME ": Rondo "); \
    }
#define TRY_ROW_(ctx, NAME, kind) TRY_##kind(NAME)
    NCCL_FACE_TABLE(TRY_ROW_, )
}

/* ---- settings ---- */

/* A config of a version: what that version's header leaves as padding, and all behind it, holds garbage. */
static void config_of(struct nccl_config_all *to, size_t size, unsigned version)
{
    memset(to, 0xa5, sizeof(*to));
    to->size = size;
    to->magic = 0xcafebeef;
    to->version = version;
#define UNSET_INT(field) to->field = INT_MIN
#define UNSET_TEXT(field) to->field = NULL
#define UNSET_(ctx, field, type, since, ...) \
    if (version >= (since)) UNSET_##type(field);
    NCCL_CONFIG_TABLE(UNSET_, )
}

static ncclResult_t create_with(struct nccl_config_all *config)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclResult_t result;
    OK(ncclGetUniqueId(&id));
    result = ncclCommInitRankConfig(&comm, 1, id, 0, (ncclConfig_t *)config);
    if (result == ncclSuccess) {
        OK(ncclCommDestroy(comm));
    } else {
        assert_null(comm);
    }
    return result;
}

static void test_config(void **state)
{
    static const struct {
        size_t size;
        unsigned version;
    } known[] = { { 24, 21400 }, { 48, 21700 }, { 48, 22500 }, { 72, 22703 },  { 80, 22809 },
                  { 88, 22907 }, { 96, 23003 }, { 96, 23007 }, { 112, 23102 }, { 120, 23203 } };
    struct nccl_config_all config;
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        config_of(&config, known[i].size, known[i].version);
        OK(create_with(&config));
        config.blocking = 7;
        REFUSED(create_with(&config), ncclInvalidArgument, "config.blocking is 7");
        config_of(&config, known[i].size, known[i].version);
        config.maxCTAs = -5; /* not there in the first one */
        assert_int_equal(create_with(&config), i == 0 ? ncclSuccess : ncclInvalidArgument);
    }
    config_of(&config, 72, 22703);
    config.commName = "a name that is longer than those that Rondo keeps";
    config.minCTAs = 2;
    config.maxCTAs = 4;
    config.netName = "Socket";
    OK(create_with(&config));
    config.minCTAs = 5;
    REFUSED(create_with(&config), ncclInvalidArgument, "above config.maxCTAs");
    config_of(&config, 72, 22703);
    config.magic = 1;
    REFUSED(create_with(&config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    config_of(&config, 16, 22703);
    REFUSED(create_with(&config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(sizeof(own), 72);
    OK(create_with((struct nccl_config_all *)memcpy(&config, &own, sizeof(own))));
}

/* ---- collectives ---- */

static void fill(float *data, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        data[i] = (float)(rank * 3 + i % 17);
    }
}

static float sum_of(int n, int i)
{
    float sum = 0;
    for (int r = 0; r < n; r++) {
        sum += (float)(r * 3 + i % 17);
    }
    return sum;
}

static void reductions(struct rank *r)
{
    int n = r->n, wrong = 0;
    float *a = calloc((size_t)(n * COUNT), sizeof(*a)), *b = calloc((size_t)(n * COUNT), sizeof(*b));
    ncclRedOp_t op;
    float factor = (float)(r->rank + 1);
    fill(a, COUNT, r->rank);
    CHECK(ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, r->comm, NULL) == ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        wrong += b[i] != sum_of(n, i);
    }
    CHECK(ncclAllReduce(a, a, COUNT, ncclFloat, ncclMax, r->comm, NULL) == ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        wrong += a[i] != (float)((n - 1) * 3 + i % 17);
    }
    fill(a, COUNT, r->rank);
    CHECK(ncclReduce(a, r->rank == n - 1 ? b : NULL, COUNT, ncclFloat, ncclAvg, n - 1, r->comm, NULL) ==
          ncclSuccess);
    for (int i = 0; r->rank == n - 1 && i < COUNT; i++) {
        wrong += b[i] < sum_of(n, i) / (float)n - 1e-4f || b[i] > sum_of(n, i) / (float)n + 1e-4f;
    }
    for (int s = 0; s < n; s++) {
        fill(a + s * COUNT, COUNT, r->rank);
    }
    CHECK(ncclReduceScatter(a, b, COUNT, ncclFloat, ncclSum, r->comm, NULL) == ncclSuccess);
    CHECK(ncclReduceScatterConfig(a, a + r->rank * COUNT, COUNT, ncclFloat, ncclSum, r->comm, NULL, NULL) ==
          ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        wrong += b[i] != sum_of(n, i) || a[r->rank * COUNT + i] != sum_of(n, i);
    }
    fill(a, COUNT, 0);
    for (int residence = ncclScalarDevice; residence <= ncclScalarHostImmediate; residence++) {
        CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, (ncclScalarResidence_t)residence, r->comm) ==
              ncclSuccess);
        CHECK(ncclAllReduceConfig(a, b, COUNT, ncclFloat, op, r->comm, NULL, NULL) == ncclSuccess);
        CHECK(ncclRedOpDestroy(op, r->comm) == ncclSuccess);
        for (int i = 0; i < COUNT; i++) {
            wrong += b[i] != (float)(i % 17) * (float)(n * (n + 1) / 2);
        }
    }
    CHECK(ncclReduceConfig(a, b, 1, ncclFloat, ncclMin, 0, r->comm, NULL, NULL) == ncclSuccess);
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, r->comm, NULL) == ncclSuccess);
    CHECK(wrong == 0);
    free(a);
    free(b);
}

static void movements(struct rank *r)
{
    int n = r->n, wrong = 0;
    float *a = calloc((size_t)(n * COUNT), sizeof(*a)), *b = calloc((size_t)(n * COUNT), sizeof(*b));
    fill(a, COUNT, r->rank);
    CHECK(ncclBroadcast(a, b, COUNT, ncclFloat, n - 1, r->comm, NULL) == ncclSuccess);
    CHECK(ncclBcast(a, COUNT, ncclFloat, n - 1, r->comm, NULL) == ncclSuccess);
    CHECK(ncclBroadcastConfig(a, a, COUNT, ncclFloat, 0, r->comm, NULL, NULL) == ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        wrong += a[i] != (float)((n - 1) * 3 + i % 17) || b[i] != a[i];
    }
    fill(a, COUNT, r->rank);
    CHECK(ncclAllGather(a, b, COUNT, ncclFloat, r->comm, NULL) == ncclSuccess);
    CHECK(ncclAllGatherConfig(b + r->rank * COUNT, b, COUNT, ncclFloat, r->comm, NULL, NULL) == ncclSuccess);
    CHECK(ncclAlltoAll(b, a, COUNT, ncclFloat, r->comm, NULL) == ncclSuccess);
    CHECK(ncclAlltoAllConfig(b, a, COUNT, ncclFloat, r->comm, NULL, NULL) == ncclSuccess);
    for (int i = 0; i < n * COUNT; i++) { /* everyone has the same, and sends me block `rank` */
        wrong += b[i] != (float)(i / COUNT * 3 + i % COUNT % 17);
        wrong += a[i] != (float)(r->rank * 3 + i % COUNT % 17);
    }
    memset(b, 0, sizeof(*b) * (size_t)(n * COUNT));
    CHECK(ncclGather(a, b, COUNT, ncclFloat, 0, r->comm, NULL) == ncclSuccess);
    CHECK(ncclScatter(b, a, COUNT, ncclFloat, 0, r->comm, NULL) == ncclSuccess);
    CHECK(ncclGatherConfig(a, b, COUNT, ncclFloat, n - 1, r->comm, NULL, NULL) == ncclSuccess);
    CHECK(ncclScatterConfig(b, a, COUNT, ncclFloat, n - 1, r->comm, NULL, NULL) == ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        wrong += a[i] != (float)(r->rank * 3 + i % 17);
    }
    CHECK(wrong == 0);
    free(a);
    free(b);
}

/* A ring of messages in nested groups, one to itself, and a message without a group. */
static void messages(struct rank *r)
{
    int n = r->n, to = (r->rank + 1) % n, from = (r->rank + n - 1) % n, mine = 100 + r->rank, got = -1,
        self = -1;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(&mine, 1, ncclInt, to, r->comm, NULL) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclRecv(&got, 1, ncclInt, from, r->comm, NULL) == ncclSuccess);
    if (n > 1) {
        CHECK(ncclSend(&mine, 1, ncclInt, r->rank, r->comm, NULL) == ncclSuccess);
        CHECK(ncclRecv(&self, 1, ncclInt, r->rank, r->comm, NULL) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(got == 100 + from);
    CHECK(n == 1 || self == mine);
    if (n > 1 && r->rank < 2) {
        CHECK((r->rank == 0 ? ncclSend(&mine, 1, ncclInt, 1, r->comm, NULL)
                            : ncclRecv(&got, 1, ncclInt, 0, r->comm, NULL)) == ncclSuccess);
        CHECK(r->rank == 0 || got == 100);
    }
}

static void test_calls(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        run(n, reductions, NULL);
        run(n, movements, NULL);
        run(n, messages, NULL);
    }
}

/* One thread with all ranks: everything in groups, several calls and communicators in one. */
static void test_one_thread(void **state)
{
    ncclComm_t comms[3], others[3];
    ncclUniqueId id;
    int in[3] = { 1, 2, 3 }, out[3] = { 0 }, in2[3] = { 4, 5, 6 }, out2[9] = { 0 };
    static const int devices[3] = { 0, 1, 2 };
    (void)state;
    OK(ncclCommInitAll(comms, 3, NULL));
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        OK(ncclCommInitRankScalable(&others[r], 3, r, 1, &id, NULL));
    }
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
        OK(ncclAllGather(&in2[r], &out2[3 * r], 1, ncclInt, others[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < 3; r++) {
        int rank, n, device;
        assert_int_equal(out[r], 6);
        assert_int_equal(out2[3 * r + 2], 6);
        OK(ncclCommUserRank(comms[r], &rank));
        OK(ncclCommCount(comms[r], &n));
        OK(ncclCommCuDevice(comms[r], &device));
        assert_true(rank == r && n == 3 && device == -1);
    }
    OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        OK(ncclCommDestroy(others[r]));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < 3; r++) {
        OK(ncclCommDestroy(comms[r]));
    }
    OK(ncclCommInitAll(comms, 2, devices));
    OK(ncclCommDestroy(comms[0]));
    OK(ncclCommDestroy(comms[1]));
    REFUSED(ncclCommInitAll(comms, 0, NULL), ncclInvalidArgument, "ncclCommInitAll");
    REFUSED(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "ncclCommInitAll");
    REFUSED(ncclCommInitAll(comms, 1, (const int[]){ -1 }), ncclInvalidArgument, "device 0 of the list");
}

/* ---- processes ---- */

static void child(const ncclUniqueId *id, int rank, int n)
{
    ncclComm_t comm;
    int64_t mine = rank + 1, sum = 0;
    int ok = ncclCommInitRank(&comm, n, *id, rank) == ncclSuccess &&
             ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, comm, NULL) == ncclSuccess &&
             sum == n * (n + 1) / 2 && ncclCommFinalize(comm) == ncclSuccess &&
             ncclCommDestroy(comm) == ncclSuccess;
    if (!ok) {
        fprintf(stderr, "rank %d: %s\n", rank, ncclGetLastError(NULL));
    }
    _exit(ok ? 0 : 1);
}

/* Processes are ranks, their parent made the ids and is no member; two communicators at once. */
static void test_processes(void **state)
{
    ncclUniqueId id[2];
    pid_t pid[5];
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    /* The one knows the parent's threads in the child, and ends it; the other's allocator stays locked there
     * if the parent's thread was in it. mpi_nccl has processes, too. */
    skip();
#endif
    OK(ncclGetUniqueId(&id[0]));
    OK(ncclGetUniqueId(&id[1]));
    for (int i = 0; i < 5; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            child(&id[i / 3], i % 3, i < 3 ? 3 : 2);
        }
    }
    for (int i = 0; i < 5; i++) {
        int how = -1;
        assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
        assert_int_equal(how, 0);
    }
}

/* ---- ids ---- */

static void test_ids(void **state)
{
    ncclUniqueId id, wrong;
    ncclComm_t comm = NULL, again = (ncclComm_t)1;
    (void)state;
    REFUSED(ncclGetUniqueId(NULL), ncclInvalidArgument, "ncclGetUniqueId");
    OK(ncclGetUniqueId(&id));
    wrong = id;
    wrong.internal[40] ^= 1;
    REFUSED(ncclCommInitRank(&comm, 1, wrong, 0), ncclInvalidArgument, "not a unique id");
    REFUSED(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "ncclCommInitRank");
    REFUSED(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "ranks");
    REFUSED(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank 2 of 2");
    REFUSED(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument, "rank -1");
    REFUSED(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL), ncclInvalidArgument, "Scalable");
    REFUSED(ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL), ncclInvalidArgument, "Scalable");
    OK(ncclCommInitRank(&comm, 1, id, 0));
    REFUSED(ncclCommInitRank(&again, 1, id, 0), ncclInvalidUsage, "used already");
    assert_null(again);
    OK(ncclCommGetUniqueId(comm, &id));
    REFUSED(ncclCommGetUniqueId(comm, NULL), ncclInvalidArgument, "ncclCommGetUniqueId");
    OK(ncclCommDestroy(comm));
    assert_int_equal(ncclCommGetUniqueId(comm, &id), ncclInvalidArgument);
}

/* Another run of this program: the variable is read once. */
static int comm_id(void)
{
    ncclUniqueId id;
    return ncclGetUniqueId(&id) == ncclSuccess && ncclGetUniqueId(&id) == ncclSuccess ? 0 : 1;
}

static void test_comm_id(void **state)
{
    char exe[500] = "", command[600], text[4000];
    FILE *said;
    (void)state;
    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    for (int set = 0; set < 2; set++) {
        snprintf(command, sizeof(command), "%s '%s' comm_id 2>&1", set ? "NCCL_COMM_ID=node1:4000" : "", exe);
        said = popen(command, "r");
        assert_non_null(said);
        text[fread(text, 1, sizeof(text) - 1, said)] = '\0';
        assert_int_equal(pclose(said), 0);
        char *first = strstr(text, "NCCL_COMM_ID (");
        assert_int_equal(first != NULL, set);
        assert_true(first == NULL || strstr(first + 1, "NCCL_COMM_ID (") == NULL);
    }
}

/* ---- memory and windows ---- */

static void windows(struct rank *r)
{
    void *memory = NULL, *handle = NULL, *back = NULL;
    ncclWindow_t win = NULL;
    uint64_t bytes = 1;
    CHECK(ncclMemAlloc(&memory, 3 * 4096) == ncclSuccess);
    memset(memory, r->rank, 3 * 4096);
    char *aligned = (char *)(((uintptr_t)memory + 4095) & ~(uintptr_t)4095);
    CHECK(ncclCommRegister(r->comm, memory, 8192, &handle) == ncclSuccess);
    CHECK(ncclCommDeregister(r->comm, handle) == ncclSuccess);
    CHECK(ncclCommDeregister(r->comm, &bytes) == ncclInvalidArgument);
    CHECK(ncclCommDeregister(r->comm, NULL) == ncclSuccess);
    CHECK(ncclCommDeregister(NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclCommRegister(r->comm, memory, 8192, NULL) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, aligned, 4096, &win, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    CHECK(ncclWinGetUserPtr(r->comm, win, &back) == ncclSuccess && back == aligned);
    CHECK(ncclWinGetUserPtr(r->comm, win, NULL) == ncclInvalidArgument);
    CHECK(ncclWinGetUserPtr(NULL, win, &back) == ncclInvalidArgument);
    CHECK(ncclAllReduce(aligned, aligned, 1024, ncclInt, ncclMax, r->comm, NULL) == ncclSuccess);
    CHECK(aligned[0] == r->n - 1);
    CHECK(ncclCommWindowDeregister(r->comm, win) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(r->comm, win) == ncclInvalidArgument);
    CHECK(ncclCommWindowDeregister(r->comm, NULL) == ncclSuccess);
    CHECK(ncclCommWindowRegister(r->comm, aligned + 8, 4096, &win, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, aligned, 4096, &win, 64) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, aligned, 4096, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, aligned, 4096, &win, 0) == ncclSuccess); /* destroy ends it */
    CHECK(ncclCommMemStats(r->comm, NCCL_MEM_TOTAL, &bytes) == ncclSuccess);
    CHECK((bytes > 0) == (r->n > 1));
    CHECK(ncclCommMemStats(r->comm, NCCL_MEM_SUSPENDED, &bytes) == ncclSuccess && bytes == 0);
    CHECK(ncclCommMemStats(r->comm, 9, &bytes) == ncclInvalidArgument);
    CHECK(ncclCommMemStats(r->comm, 0, NULL) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(r->comm) == ncclSuccess);
    CHECK(ncclWinGetUserPtr(r->comm, win, &back) == ncclInvalidArgument);
    r->comm = NULL;
    CHECK(ncclMemFree(memory) == ncclSuccess);
}

static void test_memory(void **state)
{
    (void)state;
    run(1, windows, NULL);
    run(3, windows, NULL);
    OK(ncclMemFree(NULL));
    REFUSED(ncclMemAlloc(NULL, 8), ncclInvalidArgument, "ncclMemAlloc");
    int local;
    assert_int_equal(ncclMemFree(&local), ncclInvalidArgument);
}

/* ---- queries, teams, estimates ---- */

static void queries(struct rank *r)
{
    struct {
        ncclCommProperties_t known;
        char later[64];
    } properties;
    ncclTeam_t team;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    int mine = 1, sum = 0;
    memset(&properties, 0x5a, sizeof(properties));
    properties.known.size = sizeof(properties.known);
    properties.known.magic = 0xcafebeef;
    CHECK(ncclCommQueryProperties(r->comm, &properties.known) == ncclSuccess);
    CHECK(properties.known.rank == r->rank && properties.known.nRanks == r->n);
    CHECK(properties.known.cudaDev == -1 && !properties.known.deviceApiSupport);
    CHECK(!properties.known.hostRmaSupport && properties.later[0] == 0x5a);
    properties.known.magic = 0;
    CHECK(ncclCommQueryProperties(r->comm, &properties.known) == ncclInvalidArgument);
    CHECK(ncclCommQueryProperties(r->comm, NULL) == ncclInvalidArgument);
    team = ncclTeamWorld(r->comm);
    CHECK(team.nRanks == r->n && team.rank == r->rank && team.stride == 1);
    for (int i = -1; i <= r->n; i++) {
        CHECK(ncclTeamRankToWorld(r->comm, team, i) == (i < r->n ? i : -1));
    }
    CHECK(ncclTeamRankToLsa(r->comm, team, r->rank) == 0);
    CHECK(ncclTeamLsa(r->comm).nRanks == 1 && ncclTeamRail(r->comm).nRanks == 1);
    CHECK(ncclTeamCft(r->comm).nRanks == 1 && ncclTeamCftMultimem(r->comm).nRanks == 1);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclSuccess);
    CHECK(ncclSend(&mine, 1, ncclInt, (r->rank + 1) % r->n, r->comm, NULL) == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess);
    CHECK(sum == 0 && (r->n == 1 || (info.estimatedTime > 0 && info.estimatedTime < 1e7f)));
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    CHECK(ncclGroupStart() == ncclSuccess);
    info.magic = 0;
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclSuccess && sum == r->n);
}

/* Ends a nested group only, whose calls the outer end makes; a refused one, too. */
static void nested_estimates(struct rank *r)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    int mine = 1, sum = 0;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess && sum == 0);
    CHECK(ncclGroupEnd() == ncclSuccess && sum == r->n);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    info.magic = 0;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

static void test_queries(void **state)
{
    (void)state;
    run(1, queries, NULL);
    run(3, queries, NULL);
    run(1, nested_estimates, NULL);
    run(3, nested_estimates, NULL);
    assert_int_equal(ncclLLA2ACalcSlots(4, 12), 8);
    assert_int_equal(ncclLLA2ACalcSlots(0, 8), 0);
    assert_int_equal(ncclLLA2ACalcSlots(INT_MAX, INT_MAX), -1);
    assert_int_equal(ncclTeamWorld(NULL).nRanks, 0);
}

/* ---- parameters ---- */

static void test_params(void **state)
{
    ncclParamHandle_t *handle = NULL, *flag = NULL;
    const char *text = NULL, **keys = NULL;
    char buffer[64];
    int length = 0, n = 0;
    int64_t wide;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    uint8_t u8;
    (void)state;
    OK(ncclParamBind(&handle, "NCCL_SPIN"));
    OK(ncclParamGetI64(handle, &wide));
    OK(ncclParamGetI32(handle, &i32));
    OK(ncclParamGetI16(handle, &i16));
    OK(ncclParamGetI8(handle, &i8));
    assert_true(wide == -1 && i32 == -1 && i16 == -1 && i8 == -1);
    assert_int_equal(ncclParamGetU64(handle, &u64), ncclInvalidArgument);
    assert_int_equal(ncclParamGetU8(handle, &u8), ncclInvalidArgument);
    OK(ncclParamBind(&flag, "RONDO_NCCL_VERSION"));
    OK(ncclParamGetU64(flag, &u64));
    OK(ncclParamGetU32(flag, &u32));
    OK(ncclParamGetU16(flag, &u16));
    assert_true(u64 == 23007 && u32 == 23007 && u16 == 23007);
    assert_int_equal(ncclParamGetI8(flag, &i8), ncclInvalidArgument);
    OK(ncclParamGetStr(handle, &text));
    assert_string_equal(text, "-1");
    OK(ncclParamGet(handle, buffer, sizeof(buffer), &length));
    assert_string_equal(buffer, "-1");
    assert_int_equal(length, 2);
    assert_int_equal(ncclParamGet(handle, buffer, 2, &length), ncclInvalidArgument);
    OK(ncclParamGetParameter("SPIN", &text, &length));
    assert_string_equal(text, "-1");
    REFUSED(ncclParamGetParameter("NCCL_NO_SUCH", &text, &length), ncclInvalidArgument, "NCCL_NO_SUCH");
    REFUSED(ncclParamBind(&handle, "NO_SUCH"), ncclInvalidArgument, "NO_SUCH");
    REFUSED(ncclParamBind(NULL, "SPIN"), ncclInvalidArgument, "ncclParamBind");
    assert_int_equal(ncclParamBind(&handle, NULL), ncclInvalidArgument);
    assert_int_equal(ncclParamGetI64(handle, NULL), ncclInvalidArgument);
    assert_int_equal(ncclParamGetI64((ncclParamHandle_t *)buffer, &wide), ncclInvalidArgument);
    assert_int_equal(ncclParamGetStr(NULL, &text), ncclInvalidArgument);
    assert_int_equal(ncclParamGetStr(handle, NULL), ncclInvalidArgument);
    assert_int_equal(ncclParamGetParameter(NULL, &text, &length), ncclInvalidArgument);
    OK(ncclParamGetAllParameterKeys(&keys, &n));
    for (int i = 0; i < n; i++) {
        OK(ncclParamGetParameter(keys[i], &text, NULL));
    }
    assert_true(n > 50);
    assert_int_equal(ncclParamGetAllParameterKeys(NULL, &n), ncclInvalidArgument);
    ncclParamDumpAll();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),      cmocka_unit_test(test_version), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_config),     cmocka_unit_test(test_ids),     cmocka_unit_test(test_calls),
        cmocka_unit_test(test_one_thread), cmocka_unit_test(test_memory),  cmocka_unit_test(test_queries),
        cmocka_unit_test(test_params),     cmocka_unit_test(test_comm_id), cmocka_unit_test(test_processes),
    };
    use_host_memory();
    if (argc == 2 && strcmp(argv[1], "comm_id") == 0) {
        return comm_id();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
