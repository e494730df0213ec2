/* rondo-doctor: what the ranks of a job do, and what keeps them. It looks at this host through src/observe,
 * asks the ranks of others, and has itself run where none answers. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "net/control/look.h"
#include "observe/observe.h"
#include "tools/tool.h"

static const char program[] = "rondo-doctor";

enum { AT_ONCE = 64, SAMPLE_MS = 200, SILENT_S = 60, SILENT_STACKS_S = 600, AGENT_WORDS = 32 };

enum option {
    ALL,
    HOSTS,
    AGENT,
    WAIT,
    HERE,
    ANY_HOST,
    SLOW,
    SAMPLE,
    STACKS,
    NO_STACK,
    JSON,
    FLIGHT,
    SVG,
    OUTPUT,
    COLLECT,
    HELP,
    VERSION,
    NUM_OPTIONS
};

static const struct tool_option options[NUM_OPTIONS] = {
    [ALL] = { "--all", "", 0, 0, "What to look at", "all ranks of this user on this host" },
    [HOSTS] = { "--hosts", "LIST", 1, 1, "",
                "also look on these hosts, \"n1,n2\"; default: those of a Slurm job" },
    [AGENT] = { "--agent", "CMD", 1, 1, "",
                "how to start itself where no rank answers: CMD HOST COMMAND...; default: in a Slurm job "
                "srun --overlap, else ssh" },
    [WAIT] = { "--wait", "SECONDS", 1, 1, "",
               "how long such a host may say nothing (60; with --stacks 600)" },
    [HERE] = { "--here", "", 0, 0, "", "look on this host only" },
    [ANY_HOST] = { "--any-host", "", 0, 0, "", "also show ranks of containers that have another host name" },
    [SLOW] = { "--slow", "SECONDS", 1, 1, "", "how long a wait is a finding (1)" },
    [SAMPLE] = { "--sample", "MS", 1, 1, "", "how long to watch what the ranks use of a core (200)" },
    [STACKS] = { "--stacks", "", 0, 0, "",
                 "the stack of every rank (gdb or eu-stack, which stop it for a moment)" },
    [NO_STACK] = { "--no-stack", "", 0, 0, "", "no stacks; default: of up to 4 ranks that others wait for" },
    [JSON] = { "--json", "", 0, 0, "How to show it", "everything as JSON" },
    [FLIGHT] = { "--flight", "", 0, 0, "",
                 "the calls as JSON of PyTorch's flight recorder, an object a rank" },
    [SVG] = { "--svg", "", 0, 0, "", "a picture of ranks by time" },
    [OUTPUT] = { "--output", "FILE", 1, 1, "", "write there instead of standard output" },
    [COLLECT] = { "--collect", "", 0, 0, "", "what it writes to itself from another host" },
    [HELP] = { "--help", "", 0, 0, "", "show this help and exit" },
    [VERSION] = { "--version", "", 0, 0, "", "show the library's version and exit" },
};

static const struct tool_options table = {
    .program = program,
    .usage =
        "JOB|PID|--all [OPTION...]\n"
        "\n"
        "Show what the ranks of a job do: for each communicator who is in which call, who waits for whom\n"
        "and since when, who is dead, stopped or always last. The first line is the verdict. PID is a "
        "rank's\n"
        "process or its launcher (mpirun); JOB is a job of Slurm, or what mpirun calls its job. A number is\n"
        "a process if there are ranks below it, else a job.",
    .outro =
        "\n"
        "It reads shared memory and /proc, and needs no help of the ranks: they may be stopped. Only the\n"
        "user who started the job, and root, may look. Ranks of other hosts are asked over the control\n"
        "plane, whose threads answer while the ranks hang.\n"
        "\n"
        "Exit status:\n"
        "  0  nobody waits\n"
        "  1  a finding: the first line says which\n"
        "  2  wrong usage\n"
        "  3  no rank was found, or a host could not be asked\n",
    .option = options,
    .n = NUM_OPTIONS,
    .most_words = 1,
    .help = HELP,
    .version = VERSION,
};

/* What to look at. */
struct target {
    const char *job;
    char number[24]; /* of a task of a Slurm array: what job points to */
    int *pids;       /* NULL: all */
    int npids, capacity;
};

/* ---- processes below a launcher ---- */

static int parent_of(int pid)
{
    char path[32], text[512], *at;
    FILE *file;
    size_t n;
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) return 0;
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    at = strrchr(text, ')');
    return at != NULL && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static int is_below(int pid, int ancestor)
{
    for (int depth = 0; pid > 0 && depth < 64; depth++, pid = parent_of(pid)) {
        if (pid == ancestor) return 1;
    }
    return 0;
}

static rondo_status add_descendants(struct target *target, int ancestor)
{
    DIR *proc = opendir("/proc");
    struct dirent *file;
    rondo_status status = RONDO_SUCCESS;
    while (proc != NULL && status == RONDO_SUCCESS && (file = readdir(proc)) != NULL) {
        int pid = isdigit((unsigned char)file->d_name[0]) ? atoi(file->d_name) : 0;
        if (pid > 0 && is_below(pid, ancestor)) {
            status = RONDO_ARRAY_GROW(target->pids, target->npids, target->capacity, "processes");
            if (status == RONDO_SUCCESS) target->pids[target->npids++] = pid;
        }
    }
    if (proc != NULL) closedir(proc);
    return status;
}

/* A number may be a process, or a job. */
static rondo_status target_find(struct target *target, const char *word)
{
    int64_t pid;
    if (rondo_parse_int(word, &pid) == 0 && pid > 0 && pid <= INT32_MAX) {
        RONDO_TRY(add_descendants(target, (int)pid));
    }
    target->job = target->npids == 0 ? word : NULL;
    return RONDO_SUCCESS;
}

/* ---- words of a shell ---- */

/* An agent such as ssh has a shell read what it starts, and a job's name comes from a process that another
 * user may own. So a name crosses with all but these characters as %XX. */
static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

static void name_escape(char *to, size_t size, const char *name)
{
    size_t n = 0;
    for (; *name != '\0' && n + 4 <= size; name++) {
        if (strchr(plain, *name) != NULL) {
            to[n++] = *name;
        } else {
            n += (size_t)snprintf(to + n, size - n, "%%%02x", (unsigned char)*name);
        }
    }
    to[n] = '\0';
}

/* In place. */
static void name_unescape(char *name)
{
    char *to = name;
    for (unsigned code; *name != '\0'; to++) {
        int is_code = name[0] == '%' && isxdigit((unsigned char)name[1]) &&
                      isxdigit((unsigned char)name[2]) && sscanf(name + 1, "%2x", &code) == 1;
        *to = is_code ? (char)code : *name;
        name += is_code ? 3 : 1;
    }
    *to = '\0';
}

/* A name or an address, with a user's name before it or a zone behind it: no option, and nothing to a
 * shell. */
static int is_host(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr(plain, name[i]) == NULL && strchr(":@%", name[i]) == NULL) return 0;
    }
    return length > 0 && name[0] != '-';
}

/* ---- other hosts ---- */

struct host {
    char name[RONDO_HOST_LEN];
    pid_t child;
    int out;       /* of the child; -1: not started, or at its end */
    int is_silent; /* it was given up */
    int64_t heard_ns;
    char *bytes; /* of the output so far */
    size_t n, room;
};

/* Those to start this program on. */
struct hosts {
    int n, capacity;
    struct host *host;
    rondo_status status;
};

/* Run a command with its output in a pipe. */
static pid_t start(const char *const argv[], int *out)
{
    int pipes[2];
    pid_t child;
    if (pipe2(pipes, O_CLOEXEC) != 0) return -1;
    child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, 0);
        dup2(pipes[1], 1);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    if (child < 0) {
        close(pipes[0]);
        return -1;
    }
    *out = pipes[0];
    return child;
}

/* Wait for the child's end; kill it if it comes later than so. */
static int ended_well(pid_t child, int64_t end_ns)
{
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) <= 0) {
        if (ended < 0 && errno != EINTR) return 0;
        if (ended == 0 && rondo_now_ns() > end_ns) (void)kill(child, SIGKILL);
        if (ended == 0) (void)poll(NULL, 0, 1);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void add_host(struct hosts *hosts, const char *name, size_t length)
{
    if (length >= RONDO_HOST_LEN) {
        fprintf(stderr, "%s: host %.*s.. is left out: no name has more than %d characters\n", program, 20,
                name, RONDO_HOST_LEN - 1);
    } else if (length > 0 && !is_host(name, length)) {
        fprintf(stderr, "%s: a host is left out: its name has characters that no host's name has\n", program);
    } else if (length > 0 && hosts->status == RONDO_SUCCESS) {
        hosts->status = RONDO_ARRAY_GROW(hosts->host, hosts->n, hosts->capacity, "hosts");
        if (hosts->status == RONDO_SUCCESS) {
            struct host *host = &hosts->host[hosts->n++];
            *host = (struct host){ .out = -1 };
            memcpy(host->name, name, length);
        }
    }
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const struct host *)x)->name, ((const struct host *)y)->name);
}

/* Keep each host once, and none that has answered. */
static void keep_hosts(struct hosts *hosts, const struct rondo_seen *seen)
{
    struct host key = { .out = -1 };
    int n = 0;
    if (hosts->n == 0) return;
    qsort(hosts->host, (size_t)hosts->n, sizeof(*hosts->host), by_name);
    for (int i = 0; i < hosts->n; i++) {
        if (n == 0 || by_name(&hosts->host[i], &hosts->host[n - 1]) != 0) hosts->host[n++] = hosts->host[i];
    }
    hosts->n = n;
    for (int i = -1; i < seen->nprocesses; i++) {
        struct host *answered;
        snprintf(key.name, sizeof(key.name), "%s", i < 0 ? rondo_log_host() : seen->processes[i].host);
        answered = bsearch(&key, hosts->host, (size_t)hosts->n, sizeof(*hosts->host), by_name);
        if (answered != NULL) answered->out = 0; /* not to be asked */
    }
    n = 0;
    for (int i = 0; i < hosts->n; i++) {
        if (hosts->host[i].out < 0) hosts->host[n++] = hosts->host[i];
    }
    hosts->n = n;
}

static void add_hosts(struct hosts *hosts, const char *list)
{
    while (*list != '\0') {
        size_t n = strcspn(list, ", \n");
        add_host(hosts, list, n);
        list += n + (list[n] != '\0');
    }
}

static void add_silent_host(const char *host, void *hosts) { add_host(hosts, host, strlen(host)); }

/* The words of --agent. */
struct agent {
    char *text; /* owned: it has an end behind each word */
    const char *word[AGENT_WORDS];
    int n;
};

static rondo_status agent_split(struct agent *agent, const char *given)
{
    char *save = NULL;
    agent->text = strdup(given != NULL ? given : "ssh -o BatchMode=yes -o ConnectTimeout=5");
    if (agent->text == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "out of memory");
    }
    for (char *w = strtok_r(agent->text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        if (agent->n == AGENT_WORDS) {
            return rondo_fail(RONDO_INVALID_ARGUMENT, "--agent has more than %d words", AGENT_WORDS);
        }
        agent->word[agent->n++] = w;
    }
    return RONDO_SUCCESS;
}

/* The command that runs this program on another host. */
static void host_start(struct host *host, const struct tool_given *given, const struct agent *agent,
                       const char *job, int is_slurm, const char *self)
{
    const char *argv[AGENT_WORDS + 16];
    char node[RONDO_HOST_LEN + 16], in_job[96], name[3 * RONDO_RECORD_JOB];
    int n = 0, slurm = given->value[AGENT][0] == NULL && is_slurm;
    if (slurm) {
        snprintf(node, sizeof(node), "--nodelist=%s", host->name);
        snprintf(in_job, sizeof(in_job), "--jobid=%s", job);
        argv[n++] = "srun", argv[n++] = "--overlap", argv[n++] = in_job, argv[n++] = node;
        argv[n++] = "--nodes=1", argv[n++] = "--ntasks=1", argv[n++] = "--quiet";
    } else {
        for (int i = 0; i < agent->n; i++) argv[n++] = agent->word[i];
        argv[n++] = host->name;
    }
    argv[n++] = self, argv[n++] = "--collect";
    if (given->given[NO_STACK]) argv[n++] = "--no-stack";
    if (given->given[STACKS]) argv[n++] = "--stacks";
    if (given->given[ANY_HOST]) argv[n++] = "--any-host";
    if (given->given[SLOW]) argv[n++] = "--slow", argv[n++] = given->value[SLOW][0];
    if (given->given[SAMPLE]) argv[n++] = "--sample", argv[n++] = given->value[SAMPLE][0];
    if (job != NULL) name_escape(name, sizeof(name), job);
    argv[n++] = job != NULL ? name : "--all";
    argv[n] = NULL;
    host->child = start(argv, &host->out);
    host->heard_ns = rondo_now_ns();
}

static void host_close(struct host *host)
{
    close(host->out);
    host->out = -1;
}

/* Read what its output has. */
static void host_hear(struct host *host)
{
    ssize_t n = -1;
    if (host->n == host->room) {
        size_t room = host->room > 0 ? 2 * host->room : (size_t)1 << 16;
        char *more = realloc(host->bytes, room);
        host->bytes = more != NULL ? more : host->bytes;
        host->room = more != NULL ? room : host->room;
    }
    if (host->n < host->room) n = read(host->out, host->bytes + host->n, host->room - host->n);
    if (n > 0) {
        host->n += (size_t)n;
        host->heard_ns = rondo_now_ns();
    } else if (n == 0 || errno != EINTR) {
        host_close(host);
    }
}

/* Read the outputs of hosts that were started, until all are at their ends or have said nothing for long. */
static void hosts_hear(struct host *host, int n, int64_t silent_ns)
{
    struct pollfd fds[AT_ONCE];
    for (int open = 1; open > 0;) {
        open = 0;
        for (int i = 0; i < n; i++) {
            if (host[i].out >= 0 && rondo_now_ns() - host[i].heard_ns > silent_ns) {
                host[i].is_silent = 1;
                (void)kill(host[i].child, SIGKILL);
                host_close(&host[i]);
            }
            fds[i] = (struct pollfd){ .fd = host[i].out, .events = POLLIN };
            open += host[i].out >= 0;
        }
        if (open > 0) (void)poll(fds, (nfds_t)n, 200);
        for (int i = 0; i < n; i++) {
            if (host[i].out >= 0 && fds[i].revents != 0) host_hear(&host[i]);
        }
    }
}

/* What a command of Slurm prints: its controller may not answer. @return a text to free; NULL: none */
static char *ask_slurm(const char *command)
{
    const char *argv[] = { "sh", "-c", command, NULL };
    struct host asked = { .out = -1, .heard_ns = rondo_now_ns() };
    char *text = NULL;
    asked.child = start(argv, &asked.out);
    if (asked.child > 0) {
        hosts_hear(&asked, 1, SILENT_S * INT64_C(1000000000));
        if (ended_well(asked.child, rondo_now_ns() + INT64_C(1000000000)) && asked.n > 0) {
            text = strndup(asked.bytes, asked.n);
        }
    }
    free(asked.bytes);
    return text;
}

static void add_slurm_hosts(struct hosts *hosts, const char *job)
{
    char command[160];
    char *list;
    snprintf(
        command, sizeof(command),
        "scontrol show hostnames \"$(squeue --noheader --jobs=%s --format=%%N 2>/dev/null)\" 2>/dev/null",
        job);
    list = ask_slurm(command);
    if (list != NULL) add_hosts(hosts, list);
    free(list);
}

/* A task of an array of jobs, "12345_7", is a job with a number of its own, and its ranks know that one. */
static void array_task_find(struct target *target)
{
    char command[96], *id;
    const char *job = target->job;
    size_t n = job != NULL ? strspn(job, "0123456789") : 0;
    if (n == 0 || job[n] != '_' || job[n + 1 + strspn(job + n + 1, "0123456789")] != '\0' ||
        strlen(job) > 40) {
        return;
    }
    snprintf(command, sizeof(command), "squeue --noheader --jobs=%s --format=%%A 2>/dev/null", job);
    id = ask_slurm(command);
    if (id != NULL && (n = strspn(id, "0123456789")) > 0 && n < sizeof(target->number)) {
        memcpy(target->number, id, n);
        target->job = target->number;
    }
    free(id);
}

static int host_read(struct host *host, int64_t silent_ns, struct rondo_seen *seen)
{
    int well = host->child > 0 && ended_well(host->child, host->heard_ns + silent_ns);
    FILE *in = well && host->n > 0 ? fmemopen(host->bytes, host->n, "r") : NULL;
    rondo_status status = in != NULL ? rondo_seen_read(in, seen) : RONDO_SYSTEM_ERROR;
    if (in != NULL) fclose(in);
    free(host->bytes);
    if (status != RONDO_SUCCESS) {
        fprintf(stderr, "%s: could not look on host %s%s; its ranks are missing below\n", program, host->name,
                host->is_silent ? ", which said nothing for as long as --wait says" : "");
    }
    return status == RONDO_SUCCESS;
}

/* The seconds of an option, in ns. @return -1: it has none, which is reported. */
static int64_t seconds_of(const struct tool_given *given, enum option option, double least, double otherwise)
{
    const char *text = given->value[option][0];
    char *end;
    double seconds = text != NULL ? strtod(text, &end) : otherwise;
    if (text != NULL && (end == text || *end != '\0' || !(seconds >= least && seconds < 1e9))) {
        fprintf(stderr, "%s: %s %s: expected a number of seconds, at least %g and below 1e9\n", program,
                options[option].name, text, least);
        return -1;
    }
    return (int64_t)(seconds * 1e9);
}

static int64_t silent_of(const struct tool_given *given)
{
    return seconds_of(given, WAIT, 0.001, given->given[STACKS] ? SILENT_STACKS_S : SILENT_S);
}

static int64_t slow_of(const struct tool_given *given) { return seconds_of(given, SLOW, 0, 1); }

/* Some at a time. @return the number of hosts that answered */
static int hosts_read(struct hosts *hosts, const struct tool_given *given, const char *job, int is_slurm,
                      struct rondo_seen *seen)
{
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct agent agent = { 0 };
    int64_t silent_ns = silent_of(given);
    int answered = 0;
    if (hosts->status == RONDO_SUCCESS) hosts->status = agent_split(&agent, given->value[AGENT][0]);
    self[length > 0 ? length : 0] = '\0';
    for (int first = 0; hosts->status == RONDO_SUCCESS && first < hosts->n; first += AT_ONCE) {
        int end = first + AT_ONCE < hosts->n ? first + AT_ONCE : hosts->n;
        for (int i = first; i < end; i++) host_start(&hosts->host[i], given, &agent, job, is_slurm, self);
        hosts_hear(&hosts->host[first], end - first, silent_ns);
        for (int i = first; i < end; i++) answered += host_read(&hosts->host[i], silent_ns, seen);
    }
    free(agent.text);
    return answered;
}

/* ---- stacks ---- */

/* What to look at, here and there. */
static struct rondo_look look_of(const struct tool_given *given, int sample_ms)
{
    return (struct rondo_look){ .sample_ms = sample_ms,
                                .all = given->given[ALL],
                                .stacks = given->given[STACKS] };
}

/* ---- the whole ---- */

static FILE *output_open(const struct tool_given *given)
{
    const char *name = given->value[OUTPUT][0];
    FILE *out = stdout;
    int fd;
    if (name != NULL && strcmp(name, "-") != 0) {
        fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0600); /* what a user's job does is his affair */
        out = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (out == NULL) fprintf(stderr, "%s: cannot write %s: %s\n", program, name, strerror(errno));
    }
    return out;
}

static int show(const struct rondo_seen *seen, const struct tool_given *given)
{
    struct rondo_diagnosis d;
    FILE *out = output_open(given);
    int failed;
    if (out == NULL) return TOOL_USAGE;
    rondo_diagnose(seen, slow_of(given), &d);
    if (given->given[JSON]) {
        rondo_seen_json(out, seen, &d);
    } else if (given->given[FLIGHT]) {
        rondo_seen_flight(out, seen);
    } else if (given->given[SVG]) {
        rondo_seen_svg(out, seen, &d);
    } else {
        rondo_seen_text(out, seen, &d);
    }
    failed = fflush(out) != 0 || ferror(out);
    if (out != stdout) failed |= fclose(out) != 0;
    if (failed) {
        fprintf(stderr, "%s: cannot write the report: %s\n", program, strerror(errno));
        return TOOL_USAGE;
    }
    if (seen->ncomms == 0) return 3;
    return d.finding[0].kind == RONDO_FINDING_NOTHING ? 0 : TOOL_FAILED;
}

/* The job of the ranks that were seen, if it is one of Slurm. */
static const char *job_of(const struct rondo_seen *seen, const struct target *target)
{
    if (target->job != NULL) return target->job;
    return target->pids != NULL && seen->nprocesses > 0 && seen->processes[0].job[0] != '\0'
               ? seen->processes[0].job
               : NULL;
}

/* On a host without ranks of the job, only its form can tell. It becomes a word of a shell's command. */
static int is_slurm_job(const struct rondo_seen *seen, const char *job)
{
    return job != NULL && job[0] != '\0' && job[strspn(job, "0123456789_")] == '\0' &&
           (seen->nprocesses == 0 || seen->processes[0].slurm);
}

/* Look at this host. A number that is a process without ranks may still be a job's. */
static rondo_status look_here(struct rondo_seen *seen, struct rondo_observe_request *request,
                              struct target *target, const char *word)
{
    int nforbidden;
    RONDO_TRY(rondo_observe(seen, request));
    if (target->pids == NULL || seen->nprocesses > 0) return RONDO_SUCCESS;
    nforbidden = seen->nforbidden;
    rondo_seen_release(seen);
    *seen = (struct rondo_seen){ 0 };
    request->pids = NULL;
    request->job = target->job = word;
    RONDO_TRY(rondo_observe(seen, request));
    if (seen->nprocesses == 0) seen->nforbidden = nforbidden; /* it was no job */
    return RONDO_SUCCESS;
}

static int look(const struct tool_given *given, struct target *target, int sample_ms)
{
    struct rondo_seen seen = { 0 };
    struct rondo_observe_request request = { .pids = target->pids,
                                             .npids = target->npids,
                                             .job = target->job,
                                             .sample_ms = sample_ms,
                                             .any_host = given->given[ANY_HOST],
                                             .wires = !given->given[HERE] && !given->given[COLLECT] };
    struct rondo_look what = look_of(given, sample_ms);
    struct hosts hosts = { 0 };
    int code = 0, asked = 0, nhere, nasked;
    rondo_status status = look_here(&seen, &request, target, given->nwords > 0 ? given->word[0] : NULL);
    if (status == RONDO_SUCCESS) {
        const char *job = job_of(&seen, target);
        int is_slurm = is_slurm_job(&seen, job);
        nhere = seen.nprocesses;
        if (what.stacks) rondo_seen_stacks(&seen, NULL);
        rondo_observe_nodes(&seen, &what, add_silent_host, &hosts);
        nasked = seen.nprocesses;
        if (given->given[HOSTS]) {
            add_hosts(&hosts, given->value[HOSTS][0]);
        } else if (!given->given[HERE] && !given->given[COLLECT] && is_slurm) {
            add_slurm_hosts(&hosts, job);
        }
        keep_hosts(&hosts, &seen);
        asked = hosts_read(&hosts, given, job, is_slurm, &seen);
        if (!what.stacks && !given->given[NO_STACK]) {
            rondo_seen_stacks_wanted(&seen, nhere, nasked, slow_of(given));
        }
        if (hosts.status != RONDO_SUCCESS) {
            status = hosts.status;
        } else if (given->given[COLLECT]) {
            status = rondo_seen_write(stdout, &seen);
        } else {
            code = show(&seen, given);
        }
    }
    code = status != RONDO_SUCCESS ? tool_fail(program, status == RONDO_INVALID_ARGUMENT ? TOOL_USAGE : 3)
           : code == 0 && asked < hosts.n ? 3
                                          : code;
    rondo_free(hosts.host);
    rondo_seen_release(&seen);
    return code;
}

/* name: room for the job's name. */
static rondo_status target_of(struct target *target, const struct tool_given *given,
                              char name[3 * RONDO_RECORD_JOB])
{
    if (given->nwords == 0) return RONDO_SUCCESS;
    if (given->given[COLLECT]) { /* the word is from host_start: never a process of this host */
        snprintf(name, 3 * RONDO_RECORD_JOB, "%s", given->word[0]);
        name_unescape(name);
        target->job = name;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(target_find(target, given->word[0]));
    array_task_find(target);
    return RONDO_SUCCESS;
}

int main(int argc, char **argv)
{
    struct tool_given given;
    struct target target = { 0 };
    char name[3 * RONDO_RECORD_JOB];
    int sample_ms = SAMPLE_MS, code = tool_options_begin(&table, &given, argc, argv);
    if (code >= 0) return code;
    if ((given.nwords == 0) == !given.given[ALL] ||
        given.given[JSON] + given.given[FLIGHT] + given.given[SVG] > 1) {
        fprintf(stderr,
                "%s: expected a job, a process or --all, and at most one of --json, --flight and --svg; try "
                "'%s --help'\n",
                program, program);
        return TOOL_USAGE;
    }
    if (silent_of(&given) < 0 || slow_of(&given) < 0) {
        return TOOL_USAGE;
    }
    if (given.given[SAMPLE] && (sample_ms = tool_options_number(&table, &given, SAMPLE, 0, 60000)) < 0) {
        return TOOL_USAGE;
    }
    code = tool_params_begin(program);
    if (code >= 0) return code;
    code = target_of(&target, &given, name) == RONDO_SUCCESS ? look(&given, &target, sample_ms)
                                                             : tool_fail(program, 3);
    rondo_free(target.pids);
    return code;
}
