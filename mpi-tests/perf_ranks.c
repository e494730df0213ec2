/* Where the ranks of *_perf run, and what they hold. */
#include "perf.h"

#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "holdings.h"

/* ---- where ---- */

/* Copy what fits. */
static void put(char *text, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(text, from, n);
    text[n] = '\0';
}

/* The name of the processor: of x86 from the kernel, else the architecture. */
static void processor_name(char *text, size_t size)
{
    struct utsname names;
    char line[256], *colon;
    FILE *file = fopen("/proc/cpuinfo", "r");
    text[0] = '\0';
    while (file != NULL && text[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "model name", strlen("model name")) == 0 && (colon = strchr(line, ':')) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            put(text, size, colon + strspn(colon, ": "));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (text[0] == '\0') {
        put(text, size, uname(&names) == 0 ? names.machine : "CPU");
    }
}

/* The cores that this process may use, as "0-3,8", and the first of them. */
static void core_list(struct perf_rank *me)
{
    cpu_set_t *set = NULL;
    size_t bytes = 0, used = 0;
    int n;
    for (n = CPU_SETSIZE; set == NULL && n <= 1 << 20; n *= 2) { /* EINVAL: the kernel has more cores */
        bytes = CPU_ALLOC_SIZE((size_t)n);
        set = CPU_ALLOC((size_t)n);
        if (set != NULL && sched_getaffinity(0, bytes, set) != 0) {
            CPU_FREE(set);
            set = NULL;
        }
    }
    me->core = -1;
    for (int first = 0, last; set != NULL && first < n / 2; first = last + 1) {
        last = first;
        if (!CPU_ISSET_S((size_t)first, bytes, set)) {
            continue;
        }
        while (last + 1 < n / 2 && CPU_ISSET_S((size_t)last + 1, bytes, set)) {
            last++;
        }
        me->core = me->core < 0 ? first : me->core;
        if (used < sizeof(me->cores)) {
            used += (size_t)snprintf(me->cores + used, sizeof(me->cores) - used,
                                     last > first ? "%s%d-%d" : "%s%d", used > 0 ? "," : "", first, last);
        }
    }
    if (used >= sizeof(me->cores)) { /* too many pieces */
        memcpy(me->cores + sizeof(me->cores) - 4, "...", 4);
    }
    if (set != NULL) {
        CPU_FREE(set);
    }
}

struct perf_rank *perf_ranks_gather(void)
{
    struct perf_rank me = { .pid = (int)getpid() }, *all = NULL;
    if (gethostname(me.host, sizeof(me.host) - 1) != 0) {
        snprintf(me.host, sizeof(me.host), "unknown");
    }
    core_list(&me);
    processor_name(me.device, sizeof(me.device));
    if (test.rank == 0) {
        all = (struct perf_rank *)(void *)perf_buffer((size_t)test.nranks * sizeof(*all));
    }
    MPI_Gather(&me, sizeof(me), MPI_BYTE, all, sizeof(me), MPI_BYTE, 0, MPI_COMM_WORLD);
    return all;
}

/* ---- how much ---- */

static void print_bytes(const char *what, double bytes)
{
    static const char *const units[] = { "B", "KB", "MB", "GB" };
    int unit = 0;
    for (; unit < 3 && bytes >= 1024; unit++) {
        bytes /= 1024;
    }
    printf("%s %.*f %s ", what,
           bytes < 10 && unit > 0    ? 2
           : bytes < 100 && unit > 0 ? 1
                                     : 0,
           bytes, units[unit]);
}

void perf_memory_report(const struct perf *perf)
{
    double now = rollup_bytes("Pss"), mine[3], most[3];
    for (int i = 0; i < 3; i++) {
        double grown = (i < 2 ? perf->held[i + 1] : now) - perf->held[i];
        mine[i] = grown > 0 ? grown : 0;
    }
    MPI_Reduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (test.rank != 0) {
        return;
    }
    if (now < 0) {
        printf("# Memory usage         : unknown, because the kernel has no /proc/self/smaps_rollup\n");
        return;
    }
    printf("# Memory usage         : ");
    print_bytes("Init", most[0]);
    print_bytes("| Buffers", most[1]);
    print_bytes("| Collectives", most[2]);
    print_bytes("| Total ", most[0] + most[1] + most[2]);
    printf("\n");
}
