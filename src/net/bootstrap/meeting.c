/* The creator's part of meetings: one listener and one thread a process, whatever the number of meetings. */
#include "net/bootstrap/meeting.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/wait.h"
#include "net/bootstrap/meeting_conn.h"
#include "net/bootstrap/siblings.h"

enum {
    MOST_RANKS = 1 << 24,
    TICK_MS = 1000,    /* while there are connections */
    SIBLINGS_MS = 500, /* between looks at the job's processes, while ranks are missing */
    FULL_MS = 10,      /* until the next look for free descriptors */
    MOST_FAILED = 64,  /* meetings that are remembered */
    MOST_KEPT = 256    /* connections that are kept until rank 0 has the table */
};

struct meeting {
    struct meeting *next;
    struct rondo_meeting_id id;
    int nranks, here, local; /* nranks 0: nobody has registered yet; local: those of this process */
    uint8_t *addrs;          /* RONDO_ADDR_BYTES of each rank; all zeros: not registered */
    struct rondo_hub *hub;   /* all ranks are here, and of this process */
    int unpolled;            /* ranks of this process that have not fetched the outcome */
    int complete, untold;    /* untold: rank 0 has yet to be sent the table */
    int tells;               /* the table is on its way */
    const char *failed;      /* why a rank gave up; NULL: none did. Then there are no addrs */
    char *text;              /* of failed, unless there was no memory for it */
    uint64_t nth;            /* of those that have failed */
};

/* All under the lock, except that the thread alone touches the connections. */
static struct {
    pthread_mutex_t lock;
    pid_t pid; /* whose listener and thread these are; 0: none */
    pthread_t thread;
    int listener, wake, stop;
    int complained, nkept; /* of too few descriptors; connections that are kept: the thread's */
    int nuntold;           /* meetings that are untold */
    uint64_t nfailed;
    unsigned ended, seen; /* meetings that are complete or have failed; how many of them the thread knows */
    struct rondo_siblings siblings; /* the thread's, once it runs */
    int64_t looked_ns;
    uint8_t addr[RONDO_ADDR_BYTES];
    uint64_t serial;
    struct meeting *meetings;
    struct rondo_meet_conn *conns;
} root = { .lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1, .wake = -1 };

int rondo_meeting_is_mine(const struct rondo_meeting_id *id)
{
    int mine;
    pthread_mutex_lock(&root.lock);
    mine = root.pid == getpid() && id->pid == root.pid && memcmp(id->addr, root.addr, sizeof(root.addr)) == 0;
    pthread_mutex_unlock(&root.lock);
    return mine;
}

/* ---- meetings, with the lock ---- */

static struct meeting *find(uint64_t name, uint64_t serial)
{
    struct meeting *m = root.meetings;
    while (m != NULL && (m->id.name != name || m->id.serial != serial)) {
        m = m->next;
    }
    return m;
}

static void forget(struct meeting *gone)
{
    struct meeting **at = &root.meetings;
    while (*at != gone) {
        at = &(*at)->next;
    }
    *at = gone->next;
    if (gone->hub != NULL) {
        rondo_hub_release(gone->hub);
    }
    rondo_free(gone->addrs);
    free(gone->text);
    rondo_free(gone);
}

/* Has rank 0 the table, if it comes from here? */
static int has_met(const struct meeting *m) { return m->complete && !m->untold && !m->tells; }

static void forget_done(struct meeting *m)
{
    if (m->unpolled == 0 && has_met(m) && m->failed == NULL) {
        forget(m);
    }
}

static int is_here(const struct meeting *m, int rank)
{
    static const uint8_t none[RONDO_ADDR_BYTES];
    return memcmp(m->addrs + (size_t)rank * RONDO_ADDR_BYTES, none, sizeof(none)) != 0;
}

static rondo_status used(int rank)
{
    return rondo_fail_quiet(RONDO_INVALID_USAGE,
                            "rank %d calls with a unique id that was used already, or whose communicator "
                            "could not be created: make a new id for each communicator",
                            rank);
}

static rondo_status check_register(struct meeting *m, int rank, int nranks)
{
    if (m->failed != NULL) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s", m->failed);
    }
    if (rank < 0 || rank >= nranks || nranks > MOST_RANKS) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "rank %d of %d ranks: ranks are 0 to nranks - 1",
                                rank, nranks);
    }
    if (m->nranks != 0 && m->nranks != nranks) {
        return rondo_fail_quiet(
            RONDO_INVALID_USAGE,
            "rank %d creates a communicator of %d ranks where others with the same unique id "
            "create one of %d: make one id for each communicator",
            rank, nranks, m->nranks);
    }
    if (m->complete) {
        return used(rank);
    }
    if (m->nranks == 0) {
        RONDO_TRY(rondo_calloc(&m->addrs, (size_t)nranks, RONDO_ADDR_BYTES, "the addresses of ranks"));
        m->nranks = nranks;
    }
    if (is_here(m, rank)) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE,
                                "two callers are rank %d of the communicator of %d ranks: give each its own "
                                "rank, and make one unique id for each communicator",
                                rank, nranks);
    }
    return RONDO_SUCCESS;
}

static void wake_thread(void)
{
    uint64_t one = 1;
    ssize_t n = write(root.wake, &one, sizeof(one));
    (void)n; /* full: it is awake already */
}

/* All have registered: threads of this process meet in a hub, others get the table from rank 0, which the
 * thread sends it to. */
static rondo_status complete(struct meeting *m)
{
    m->complete = 1;
    m->unpolled = m->local;
    root.ended++;
    if (m->local == m->nranks) {
        return rondo_hub_create(m->nranks, &m->hub);
    }
    m->untold = 1;
    root.nuntold++;
    wake_thread();
    return RONDO_SUCCESS;
}

static rondo_status add(struct meeting *m, int rank, int nranks, const uint8_t *addr, int is_local)
{
    rondo_status status;
    RONDO_TRY(check_register(m, rank, nranks));
    memcpy(m->addrs + (size_t)rank * RONDO_ADDR_BYTES, addr, RONDO_ADDR_BYTES);
    m->local += is_local;
    if (++m->here < nranks) {
        if (m->here == 1) {
            wake_thread(); /* it looks at the job's processes from now on */
        }
        return RONDO_SUCCESS;
    }
    status = complete(m);
    if (status != RONDO_SUCCESS) {
        m->text = strdup(rondo_error_text());
        m->failed = m->text != NULL ? m->text : "the ranks cannot meet: no memory";
    }
    return status;
}

static rondo_status register_call(uint64_t name, uint64_t serial, int rank, int nranks, const uint8_t *addr,
                                  int is_local)
{
    struct meeting *m;
    rondo_status status;
    pthread_mutex_lock(&root.lock);
    m = find(name, serial);
    status = m != NULL ? add(m, rank, nranks, addr, is_local) : used(rank);
    pthread_mutex_unlock(&root.lock);
    return status;
}

rondo_status rondo_meeting_register(const struct rondo_meeting_id *id, int rank, int nranks,
                                    const uint8_t addr[RONDO_ADDR_BYTES])
{
    rondo_status status = register_call(id->name, id->serial, rank, nranks, addr, 1);
    return status == RONDO_SUCCESS ? status : rondo_fail_aloud(status);
}

rondo_status rondo_meeting_poll(const struct rondo_meeting_id *id, struct rondo_hub **hub)
{
    struct meeting *m;
    rondo_status status = RONDO_IN_PROGRESS;
    *hub = NULL;
    pthread_mutex_lock(&root.lock);
    m = find(id->name, id->serial);
    if (m == NULL) {
        status = rondo_fail_quiet(RONDO_INTERNAL_ERROR, "a meeting is gone before its ranks have met");
    } else if (m->failed != NULL) {
        status = rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s", m->failed);
    } else if (m->complete) {
        status = RONDO_SUCCESS;
        *hub = m->hub;
        if (m->hub != NULL) {
            rondo_hub_retain(m->hub);
        }
        m->unpolled--;
        forget_done(m);
    }
    pthread_mutex_unlock(&root.lock);
    return status;
}

/* @return 1: it has failed, and why */
static int failure_of(uint64_t name, uint64_t serial, rondo_round_text why)
{
    struct meeting *m;
    pthread_mutex_lock(&root.lock);
    m = find(name, serial);
    snprintf(why, sizeof(rondo_round_text), "%s", m != NULL && m->failed != NULL ? m->failed : "");
    pthread_mutex_unlock(&root.lock);
    return why[0] != '\0';
}

rondo_status rondo_meeting_look(const struct rondo_meeting_id *id)
{
    rondo_round_text why;
    int has = failure_of(id->name, id->serial, why);
    return has ? rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s", why) : RONDO_SUCCESS;
}

static int list_missing(uint64_t name, uint64_t serial, int32_t *ranks, int max)
{
    struct meeting *m;
    int n = 0;
    pthread_mutex_lock(&root.lock);
    m = find(name, serial);
    for (int r = 0; m != NULL && m->failed == NULL && r < m->nranks && n < max; r++) {
        if (!is_here(m, r) || (r == 0 && m->complete && !has_met(m))) {
            ranks[n++] = r;
        }
    }
    pthread_mutex_unlock(&root.lock);
    return n;
}

void rondo_meeting_missing(const struct rondo_meeting_id *id, int *ranks, int max, int *n)
{
    *n = list_missing(id->name, id->serial, ranks, max);
}

/* Those that failed last are kept, for late ranks. */
static void forget_oldest_failed(void)
{
    struct meeting *oldest = NULL;
    int n = 0;
    for (struct meeting *m = root.meetings; m != NULL; m = m->next) {
        n += m->failed != NULL;
        oldest = m->failed != NULL && (oldest == NULL || m->nth < oldest->nth) ? m : oldest;
    }
    if (n > MOST_FAILED) {
        forget(oldest);
    }
}

/* With the lock. */
static void fail(struct meeting *m, const char *text)
{
    if (m != NULL && m->failed == NULL) {
        m->nth = ++root.nfailed;
        rondo_free(m->addrs);
        m->addrs = NULL;
        m->text = text[0] != '\0' ? strdup(text) : NULL;
        m->failed = m->text != NULL ? m->text : "a rank has given up";
        root.nuntold -= m->untold;
        m->untold = 0;
        root.ended++;
        forget_oldest_failed();
        wake_thread();
    }
}

void rondo_meeting_fail(uint64_t name, uint64_t serial, const char *text)
{
    pthread_mutex_lock(&root.lock);
    fail(find(name, serial), text);
    pthread_mutex_unlock(&root.lock);
}

/* ---- the thread ---- */

static const uint64_t *judge(void *arg, const struct rondo_auth_hello *hello)
{
    static uint64_t secret[2]; /* of the last hello; only this thread judges */
    struct meeting *m;
    (void)arg;
    if (hello->server_rank != RONDO_MEET_ROOT) {
        return NULL;
    }
    pthread_mutex_lock(&root.lock);
    m = find(hello->comm_hash, hello->client);
    if (m != NULL) {
        memcpy(secret, m->id.secret, sizeof(secret));
    }
    pthread_mutex_unlock(&root.lock);
    return m != NULL ? secret : NULL;
}

static void refuse(struct rondo_meet_conn *conn, int32_t code, const char *why)
{
    rondo_round_text text = ""; /* all of it is sent */
    snprintf(text, sizeof(text), "%s", why);
    (void)rondo_meet_send(conn, RONDO_MEET_REFUSED, &code, sizeof(code), text, sizeof(text));
}

/* The rank need not listen to the creator any more. */
static void let_go(struct rondo_meet_conn *conn)
{
    root.nkept -= conn->kept;
    conn->kept = 0;
    conn->closes = 1;
    (void)rondo_meet_send(conn, RONDO_MEET_BYE, NULL, 0, NULL, 0);
}

/* A rank has registered. Its connection is kept for as long as others are missing: its end is the rank's. */
static void accepted(struct rondo_meet_conn *conn)
{
    (void)rondo_meet_send(conn, RONDO_MEET_ACCEPTED, NULL, 0, NULL, 0);
    if (root.nkept >= MOST_KEPT) {
        let_go(conn);
        return;
    }
    conn->kept = 1;
    root.nkept++;
}

/* What has become of the meeting of a rank that has registered? */
static void tell(struct rondo_meet_conn *conn)
{
    const struct rondo_auth_hello *hello = &conn->hello;
    const struct meeting *m;
    rondo_round_text why;
    int met;
    pthread_mutex_lock(&root.lock);
    m = find(hello->comm_hash, hello->client);
    met = m == NULL || has_met(m);
    pthread_mutex_unlock(&root.lock);
    if (failure_of(hello->comm_hash, hello->client, why)) {
        refuse(conn, RONDO_REMOTE_ERROR, why);
        let_go(conn);
    } else if (met) {
        let_go(conn);
    }
}

/* The connection by which rank 0 gets the table has ended, or need not be waited for. */
static void table_ended(const struct rondo_meet_conn *conn)
{
    struct meeting *m;
    pthread_mutex_lock(&root.lock);
    m = find(conn->hello.comm_hash, conn->hello.client);
    if (m != NULL) {
        m->tells = 0;
        root.ended++;
        wake_thread();
        if (m->failed == NULL && (conn->finishes != 2 || conn->error != 0)) {
            char addr[RONDO_SOCKET_ADDR_TEXT];
            rondo_round_text text;
            rondo_meet_text(addr, m->addrs);
            errno = conn->error != 0 ? conn->error : ECONNRESET;
            snprintf(text, sizeof(text),
                     "rank 0 (%s) has exited, or cannot be reached by the process that made the unique id, "
                     "pid %d on %s (%m): check RONDO_SOCKET_IFNAME",
                     addr, m->id.pid, m->id.host);
            fail(m, text);
        }
        forget_done(m);
    }
    pthread_mutex_unlock(&root.lock);
}

/* The connection of a rank has ended. */
static void lost(const struct rondo_meet_conn *conn)
{
    const struct rondo_auth_hello *hello = &conn->hello;
    char addr[RONDO_SOCKET_ADDR_TEXT];
    rondo_round_text text;
    struct meeting *m;
    pthread_mutex_lock(&root.lock);
    m = find(hello->comm_hash, hello->client);
    if (m != NULL && m->failed == NULL && !m->complete && conn->rank >= 0 && conn->rank < m->nranks) {
        rondo_meet_text(addr, m->addrs + (size_t)conn->rank * RONDO_ADDR_BYTES);
        snprintf(text, sizeof(text), "rank %d of %d (%s) has exited before all ranks had come", conn->rank,
                 m->nranks, addr);
        fail(m, text);
    }
    pthread_mutex_unlock(&root.lock);
}

/* Are ranks missing, and the ranks the processes of this job? Then one that ends is missed for ever. */
static int is_of_job(const struct meeting *m)
{
    return m->nranks > 0 && m->nranks == root.siblings.ntasks && m->local <= 1 && !m->complete &&
           m->failed == NULL;
}

/* Look whether a process of this host has ended before it came. @return whether there is one to wait for */
static int look_at_siblings(int64_t now)
{
    const struct rondo_sibling *ended = NULL;
    int wanted = 0;
    pthread_mutex_lock(&root.lock);
    for (const struct meeting *m = root.meetings; m != NULL; m = m->next) {
        wanted |= is_of_job(m);
    }
    pthread_mutex_unlock(&root.lock);
    if (wanted && now - root.looked_ns >= SIBLINGS_MS * INT64_C(1000000)) {
        root.looked_ns = now;
        ended = rondo_siblings_ended(&root.siblings);
    }
    if (ended != NULL) {
        rondo_round_text text;
        snprintf(
            text, sizeof(text),
            "process %d of the job's %d (pid %d on %s) has exited before all ranks had come; see its own "
            "output for the cause",
            ended->task, root.siblings.ntasks, ended->pid, rondo_log_host());
        pthread_mutex_lock(&root.lock);
        for (struct meeting *m = root.meetings; m != NULL; m = m->next) {
            if (is_of_job(m)) {
                fail(m, text);
            }
        }
        pthread_mutex_unlock(&root.lock);
    }
    return wanted;
}

static void answer(struct rondo_meet_conn *conn, const struct rondo_meet_head *head, const void *data)
{
    const struct rondo_auth_hello *hello = &conn->hello;
    struct rondo_meet_register mine;
    rondo_round_text text;
    int32_t ranks[RONDO_MEETING_NAMES];
    rondo_status status = RONDO_INTERNAL_ERROR;
    if (head->kind == RONDO_MEET_REGISTER && head->bytes == sizeof(mine)) {
        memcpy(&mine, data, sizeof(mine));
        status = register_call(hello->comm_hash, hello->client, mine.rank, mine.nranks, mine.addr, 0);
        if (status == RONDO_SUCCESS) {
            accepted(conn);
        } else {
            refuse(conn, status, rondo_error_text());
        }
    } else if (head->kind == RONDO_MEET_WHO && failure_of(hello->comm_hash, hello->client, text)) {
        refuse(conn, RONDO_REMOTE_ERROR, text);
    } else if (head->kind == RONDO_MEET_WHO) {
        int n = list_missing(hello->comm_hash, hello->client, ranks, RONDO_MEETING_NAMES);
        (void)rondo_meet_send(conn, RONDO_MEET_MISSING, ranks, sizeof(*ranks) * (size_t)n, NULL, 0);
    } else if (head->kind == RONDO_MEET_FAILED && head->bytes == sizeof(text)) {
        memcpy(text, data, sizeof(text));
        text[sizeof(text) - 1] = '\0';
        rondo_meeting_fail(hello->comm_hash, hello->client, text);
    } else {
        rondo_meet_end(conn, EPROTO);
    }
}

/* news: a meeting has ended. @return 0: the connection is to be freed */
static int serve(struct rondo_meet_conn *conn, int64_t now, int news)
{
    struct rondo_meet_head head;
    const void *data;
    if (conn->kept && !conn->ready && !news) {
        return 1;
    }
    rondo_meet_move(conn, 1, judge, NULL);
    while (!conn->calls && (data = rondo_meet_next(conn, &head)) != NULL) {
        answer(conn, &head, data);
    }
    if (conn->calls && conn->state == RONDO_MEET_ENDED) {
        table_ended(conn);
    } else if (conn->kept && conn->state == RONDO_MEET_ENDED) {
        root.nkept--;
        lost(conn);
    } else if (conn->kept) {
        tell(conn);
        conn->since_ns = now;
    } else if (!conn->calls && now - conn->since_ns > rondo_meet_silent_ns) {
        rondo_meet_end(conn, ETIMEDOUT); /* rank 0, which this end calls, may be busy elsewhere for long */
    }
    return conn->state != RONDO_MEET_ENDED;
}

static void complain(rondo_status status)
{
    if (!root.complained) {
        root.complained = 1;
        rondo_fail_aloud(status);
    }
}

/* Send rank 0 the table. */
static rondo_status table_send(const struct meeting *m)
{
    struct rondo_meet_conn *conn;
    rondo_status status;
    RONDO_TRY(rondo_meet_connect(&m->id, m->addrs, RONDO_MEET_ROOT, 0, 0, &conn));
    status = rondo_meet_send(conn, RONDO_MEET_TABLE, m->addrs, (size_t)m->nranks * RONDO_ADDR_BYTES, NULL, 0);
    if (status != RONDO_SUCCESS) {
        rondo_meet_free(conn);
        return status;
    }
    conn->finishes = 1;
    conn->next = root.conns;
    root.conns = conn;
    return RONDO_SUCCESS;
}

/* Out of descriptors: ranks that come, and tables, need them more. */
static void keep_none(rondo_status status)
{
    complain(status);
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        if (conn->kept) {
            let_go(conn);
        }
    }
}

/* Out of descriptors, try again when connections have ended. */
static void send_tables(void)
{
    pthread_mutex_lock(&root.lock);
    for (struct meeting *m = root.meetings; m != NULL && root.nuntold > 0; m = m->next) {
        rondo_status status = m->untold ? table_send(m) : RONDO_SUCCESS;
        if (status != RONDO_SUCCESS) {
            keep_none(status);
        } else if (m->untold) {
            m->untold = 0;
            m->tells = 1;
            root.nuntold--;
        }
    }
    pthread_mutex_unlock(&root.lock);
}

/* Out of descriptors, connections wait in the kernel until others have ended. */
static void accept_all(void)
{
    struct rondo_meet_conn *conn;
    rondo_status status;
    while ((status = rondo_meet_accept(root.listener, sizeof(rondo_round_text), &conn)) == RONDO_SUCCESS &&
           conn != NULL) {
        conn->next = root.conns;
        root.conns = conn;
    }
    if (status != RONDO_SUCCESS) {
        keep_none(status);
        poll(NULL, 0, FULL_MS);
    }
}

/* *news: a meeting has ended; *untold: tables are still to be sent. @return 1: the thread must end. */
static int look_at_meetings(int *news, int *untold)
{
    int stop;
    pthread_mutex_lock(&root.lock);
    *news = root.seen != root.ended;
    root.seen = root.ended;
    *untold = root.nuntold > 0;
    stop = root.stop;
    pthread_mutex_unlock(&root.lock);
    return stop;
}

static void serve_all(int news)
{
    int64_t now = rondo_now_ns();
    for (struct rondo_meet_conn **at = &root.conns; *at != NULL;) {
        struct rondo_meet_conn *conn = *at;
        if (serve(conn, now, news)) {
            at = &conn->next;
        } else {
            *at = conn->next;
            rondo_meet_free(conn);
        }
    }
}

/* Wait until a connection or another thread has something, for at most so long (0: as connections need).
 * Without memory for the list, look again soon. */
static void wait_for_work(struct pollfd **polls, int *capacity, int most_ms)
{
    int n = 0, grown = 1;
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        n++;
    }
    if (n + 2 > *capacity) {
        struct pollfd *more = realloc(*polls, sizeof(**polls) * (size_t)(2 * n + 16));
        grown = more != NULL;
        if (grown) {
            *polls = more;
            *capacity = 2 * n + 16;
        }
    }
    if (!grown) {
        poll(NULL, 0, 10);
        for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
            conn->ready = 1; /* perhaps */
        }
        return;
    }
    (*polls)[0] = (struct pollfd){ .fd = root.wake, .events = POLLIN };
    (*polls)[1] = (struct pollfd){ .fd = root.listener, .events = POLLIN };
    n = 2;
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        (*polls)[n++] = (struct pollfd){ .fd = conn->fd, .events = rondo_meet_events(conn) };
    }
    poll(*polls, (nfds_t)n, most_ms > 0 ? most_ms : n > 2 ? TICK_MS : -1);
    n = 2;
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        conn->ready = (*polls)[n++].revents != 0;
    }
    if ((*polls)[0].revents & POLLIN) {
        uint64_t count;
        ssize_t got = read(root.wake, &count, sizeof(count));
        (void)got;
    }
}

static void *thread_main(void *arg)
{
    struct pollfd *polls = NULL;
    int capacity = 0, news, untold;
    (void)arg;
    while (!look_at_meetings(&news, &untold)) {
        if (untold) {
            send_tables();
        }
        accept_all();
        serve_all(news);
        int watches = look_at_siblings(rondo_now_ns());
        wait_for_work(&polls, &capacity, untold ? FULL_MS : watches ? SIBLINGS_MS : 0);
    }
    free(polls);
    return NULL;
}

/* ---- begin and end ---- */

static void free_conns(struct rondo_meet_conn **list)
{
    while (*list != NULL) {
        struct rondo_meet_conn *conn = *list;
        *list = conn->next;
        rondo_meet_free(conn);
    }
}

/* This process exits. Ranks whose table is written do not need it. */
static void let_go_all(void)
{
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        if (conn->finishes == 2 && conn->state != RONDO_MEET_ENDED) {
            table_ended(conn);
        }
    }
    for (struct rondo_meet_conn *conn = root.conns; conn != NULL; conn = conn->next) {
        if (conn->kept) {
            tell(conn);
        }
    }
}

static void drop_all(void)
{
    free_conns(&root.conns);
    while (root.meetings != NULL) {
        forget(root.meetings);
    }
    rondo_siblings_close(&root.siblings);
    if (root.listener >= 0) {
        close(root.listener);
        close(root.wake);
    }
    root.listener = root.wake = -1;
    root.pid = 0;
}

static void before_fork(void) { pthread_mutex_lock(&root.lock); }
static void after_fork(void) { pthread_mutex_unlock(&root.lock); }
/* The thread is the parent's, and so are the meetings. The connections' memory may be in use by it. */
static void in_child(void)
{
    pthread_mutex_init(&root.lock, NULL);
    root.conns = NULL;
    root.nkept = root.nuntold = 0;
    if (root.listener >= 0) {
        close(root.listener);
        close(root.wake);
    }
    root.listener = root.wake = -1;
    root.meetings = NULL;
    root.pid = 0;
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static rondo_status begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    rondo_status status;
    pthread_once(&once, watch_forks);
    RONDO_TRY(rondo_meet_listen(&root.listener, root.addr));
    root.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    root.stop = 0;
    rondo_siblings_open(&root.siblings);
    status = root.wake >= 0 ? rondo_thread_start(&root.thread, "rondo-meet", thread_main, NULL)
                            : rondo_fail_quiet(RONDO_SYSTEM_ERROR, "no descriptor for an event (%m)");
    if (status != RONDO_SUCCESS) {
        close(root.listener);
        if (root.wake >= 0) {
            close(root.wake);
        }
        root.listener = root.wake = -1;
        rondo_siblings_close(&root.siblings);
        return rondo_fail_aloud(status);
    }
    root.pid = getpid();
    return RONDO_SUCCESS;
}

__attribute__((destructor)) static void end(void)
{
    int runs;
    pthread_mutex_lock(&root.lock);
    runs = root.pid != 0 && root.pid == getpid();
    if (runs) {
        root.stop = 1;
        wake_thread();
    }
    pthread_mutex_unlock(&root.lock);
    if (runs) {
        pthread_join(root.thread, NULL);
        let_go_all();
        drop_all();
    }
}

static rondo_status create_call(struct rondo_meeting_id *id)
{
    struct meeting *m;
    RONDO_TRY(root.pid == getpid() ? RONDO_SUCCESS : begin());
    RONDO_TRY(RONDO_NEW(m, "a meeting of ranks"));
    m->id.serial = ++root.serial;
    memcpy(m->id.addr, root.addr, sizeof(m->id.addr));
    rondo_status status = rondo_meeting_name(&m->id);
    if (status != RONDO_SUCCESS) {
        rondo_free(m);
        return status;
    }
    m->next = root.meetings;
    root.meetings = m;
    *id = m->id;
    return RONDO_SUCCESS;
}

rondo_status rondo_meeting_create(struct rondo_meeting_id *id)
{
    rondo_status status;
    RONDO_TRY(rondo_param_init());
    pthread_mutex_lock(&root.lock);
    status = create_call(id);
    pthread_mutex_unlock(&root.lock);
    return status;
}
