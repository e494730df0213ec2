#include "base/param.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"

enum {
    VALUE_MAX = 4096,   /* bytes of a value, terminated */
    FILE_MAX = 1 << 20, /* bytes of a configuration file */
    NAME_SHOWN = 64,    /* bytes of a foreign name or value in a message */
    ORIGIN_TEXT = 64,
};

enum kind { KIND_INT, KIND_SIZE, KIND_BOOL, KIND_ENUM, KIND_LIST, KIND_TIME };

struct row {
    const char *section, *name, *aliases, *type, *def, *range, *help;
    enum kind kind;
    int agree;
    size_t offset;
};

/* "near/0,any,nic/1" of a macro of values. */
#define SPELLING(constant, spelling) "," spelling
#define SPELLINGS(tag, ...) __VA_ARGS__
#define RANGE_ENUM(values) &(values(SPELLINGS, SPELLING))[1]
#define RANGE_INT(range) range
#define RANGE_SIZE(range) range
#define RANGE_BOOL(range) range
#define RANGE_LIST(range) range
#define RANGE_TIME(range) range

#define PARAM_ROW(section, field, TYPE, NAME, aliases, def, range, agree, help) \
    { section, NAME,                                                            \
      aliases, #TYPE,                                                           \
      def,     RANGE_##TYPE(range),                                             \
      help,    KIND_##TYPE,                                                     \
      agree,   offsetof(struct rondo_params, field) },
#define PARAM_SECTION(X, ctx, rows, title) rows(X, title)
static const struct row rows[RONDO_NUM_PARAMS] = { RONDO_PARAM_SECTIONS(PARAM_SECTION, PARAM_ROW, ) };

#define IGNORED_ROW(ctx, NAME, reason) { NAME, reason },
static const struct {
    const char *name, *reason;
} ignored_rows[RONDO_NUM_PARAMS_IGNORED] = { RONDO_PARAM_IGNORED_TABLE(IGNORED_ROW, ) };

/* A line NAME=value of a file; name and value point into the file's text. */
struct entry {
    const char *name, *value;
    int line;
};

struct source {
    const char *label; /* for the origin: "~/.rondo.conf" */
    char *text;
    struct entry *entries;
    size_t nentries;
    char problem[256]; /* why it could not be read; "": it was read, or does not exist */
};

enum state { STATE_NONE, STATE_LOADED, STATE_DONE };

/* Recursive: during the first init the log reads its own parameters through rondo_params(). */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint64_t agree_hash; /* atomic: tests reload */
static int state; /* enum state; STATE_DONE is stored with release, and the data below no longer changes */
static struct rondo_params params;
static struct {
    char *value; /* NULL: the default */
    char origin[ORIGIN_TEXT];
} current[RONDO_NUM_PARAMS];
static char ignored_origin[RONDO_NUM_PARAMS_IGNORED][ORIGIN_TEXT];
static rondo_status first_status;
static char first_error[RONDO_ERROR_TEXT];

/* ---- values ---- */

/* values: "near/0,any,nic/1", where near and 0 are the value 0. */
static int parse_enum(const char *values, const char *text, int *value)
{
    size_t length = strlen(text), n;
    for (int i = 0;; i += *values == ',', values++) {
        n = strcspn(values, ",/");
        if (n == length && strncasecmp(values, text, n) == 0) {
            *value = i;
            return 0;
        }
        values += n;
        if (*values == '\0') {
            return -1;
        }
    }
}

static int parse_number(enum kind kind, const char *text, int64_t *value)
{
    return kind == KIND_INT    ? rondo_parse_int(text, value)
           : kind == KIND_SIZE ? rondo_parse_size(text, value)
                               : rondo_parse_time(text, value);
}

/* The numbers of a row's range. *automatic: "auto" is allowed, too. */
static const char *numbers_of(const struct row *row, int *automatic)
{
    static const char name[] = "auto,";
    *automatic = strncmp(row->range, name, sizeof name - 1) == 0;
    return row->range + (*automatic ? sizeof name - 1 : 0);
}

static int range_parse(const char *range, enum kind kind, int64_t *min, int64_t *max)
{
    const char *dots = strstr(range, "..");
    char low[32];
    snprintf(low, sizeof low, "%.*s", (int)(dots - range), range);
    return parse_number(kind, low, min) == 0 && parse_number(kind, dots + 2, max) == 0;
}

static int in_range(const char *range, enum kind kind, int64_t value)
{
    int64_t min, max;
    return range_parse(range, kind, &min, &max) && min <= value && value <= max;
}

/* Store a text as the row's value. @return 0, or -1 if it is not a valid value; then nothing is stored. */
static int row_store(const struct row *row, const char *text)
{
    void *field = (char *)&params + row->offset;
    int64_t number = RONDO_PARAM_AUTO;
    int automatic;
    const char *range = numbers_of(row, &automatic);
    switch (row->kind) {
    case KIND_LIST: memcpy(field, &text, sizeof text); return 0;
    case KIND_BOOL: return rondo_parse_bool(text, field);
    case KIND_ENUM: return parse_enum(row->range, text, field);
    default:
        if (!(automatic && strcasecmp(text, "auto") == 0) &&
            (parse_number(row->kind, text, &number) != 0 || !in_range(range, row->kind, number))) {
            return -1;
        }
        memcpy(field, &number, sizeof number);
        return 0;
    }
}

static void row_allowed(const struct row *row, char *text, size_t size)
{
    int automatic;
    const char *range = numbers_of(row, &automatic), *or_auto = automatic ? ", or auto" : "";
    switch (row->kind) {
    case KIND_INT: snprintf(text, size, "a whole number in %s%s", range, or_auto); break;
    case KIND_SIZE: snprintf(text, size, "a size in %s, such as 65536, 64K or 1G%s", range, or_auto); break;
    case KIND_TIME:
        snprintf(text, size, "a time in %s, such as 500ms, 30s or 2m (a bare number is in seconds)%s", range,
                 or_auto);
        break;
    case KIND_BOOL: snprintf(text, size, "0 or 1 (no/yes, false/true, off/on)"); break;
    case KIND_ENUM: snprintf(text, size, "one of %s", row->range); break;
    case KIND_LIST: snprintf(text, size, "a text shorter than %d bytes", VALUE_MAX); break;
    }
}

/* Make foreign text short and printable for a message. */
static const char *shown(char buffer[NAME_SHOWN], const char *text)
{
    size_t i;
    for (i = 0; text[i] && i < NAME_SHOWN - 1; i++) {
        buffer[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
    }
    if (text[i]) {
        memcpy(buffer + i - 3, "...", 3);
    }
    buffer[i] = '\0';
    return buffer;
}

static void error_keep(rondo_status status, const char *fmt, ...) RONDO_PRINTF(2, 3);
static void error_keep(rondo_status status, const char *fmt, ...)
{
    va_list args;
    if (first_status != RONDO_SUCCESS) {
        return;
    }
    first_status = status;
    va_start(args, fmt);
    vsnprintf(first_error, sizeof first_error, fmt, args);
    va_end(args);
}

/* ---- files ---- */

/* The i-th name of a row: RONDO_NAME, then its aliases. @return 0 if there is none. */
static int row_name(const struct row *row, int i, char name[NAME_SHOWN])
{
    const char *alias = row->aliases;
    if (i == 0) {
        snprintf(name, NAME_SHOWN, "RONDO_%s", row->name);
        return 1;
    }
    while (--i > 0 && *alias) {
        alias += strcspn(alias, ",");
        alias += *alias == ',';
    }
    snprintf(name, NAME_SHOWN, "%.*s", (int)strcspn(alias, ","), alias);
    return name[0] != '\0';
}

static char *file_read(struct source *source, const char *path)
{
    struct stat st;
    char *text = NULL;
    ssize_t got;
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* or a FIFO would block */
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR) {
            snprintf(source->problem, sizeof source->problem, "cannot read %s: %m; it is ignored",
                     source->label);
        }
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
        snprintf(source->problem, sizeof source->problem,
                 "%s is not a regular file of at most %d bytes; it is ignored", source->label, FILE_MAX);
    } else if ((text = malloc((size_t)st.st_size + 1)) == NULL) {
        error_keep(RONDO_SYSTEM_ERROR, "no memory to read %s on host %s", source->label, rondo_log_host());
    } else {
        while (used < (size_t)st.st_size && (got = read(fd, text + used, (size_t)st.st_size - used)) > 0) {
            used += (size_t)got;
        }
        text[used] = '\0';
        if (memchr(text, '\0', used)) {
            error_keep(RONDO_INVALID_ARGUMENT,
                       "%s on host %s is not a text file: it contains a NUL byte; write lines NAME=value",
                       source->label, rondo_log_host());
        }
    }
    close(fd);
    return text;
}

static char *trim(char *text)
{
    size_t n;
    text += strspn(text, " \t\r");
    n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1])) {
        text[--n] = '\0';
    }
    return text;
}

static void source_parse(struct source *source)
{
    size_t lines = 1;
    int number = 0;
    char *next;
    for (char *at = source->text; *at; at++) {
        lines += *at == '\n';
    }
    source->entries = calloc(lines, sizeof *source->entries);
    if (!source->entries) {
        error_keep(RONDO_SYSTEM_ERROR, "no memory to read %s on host %s", source->label, rondo_log_host());
        return;
    }
    for (char *line = source->text; line; line = next) {
        char buffer[NAME_SHOWN], *equals;
        next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        number++;
        line = trim(line);
        if (*line == '#' || *line == '\0') {
            continue;
        }
        equals = strchr(line, '=');
        if (!equals) {
            error_keep(RONDO_INVALID_ARGUMENT,
                       "%s:%d on host %s: \"%s\" is not a line NAME=value; # starts a comment", source->label,
                       number, rondo_log_host(), shown(buffer, line));
            continue;
        }
        *equals = '\0';
        source->entries[source->nentries++] = (struct entry){ trim(line), trim(equals + 1), number };
    }
}

static void source_load(struct source *source, const char *label, const char *path)
{
    source->label = label;
    source->text = file_read(source, path);
    if (source->text) {
        source_parse(source);
    }
}

static void source_free(struct source *source)
{
    free(source->text);
    free(source->entries);
}

/* In files the prefix RONDO_ is optional. */
static int same_name(const char *given, const char *name)
{
    return strcmp(given, name) == 0 || (strncmp(name, "RONDO_", 6) == 0 && strcmp(given, name + 6) == 0);
}

/* As in a shell script, the last line wins. */
static const struct entry *source_find(const struct source *source, const char *name)
{
    for (size_t i = source->nentries; i-- > 0;) {
        if (same_name(source->entries[i].name, name)) {
            return &source->entries[i];
        }
    }
    return NULL;
}

/* ---- loading ---- */

struct found {
    char name[NAME_SHOWN]; /* the spelling that was found */
    const char *text;
    char origin[ORIGIN_TEXT]; /* without the name */
};

static int row_find(const struct row *row, const struct source *sources, size_t nsources, struct found *found)
{
    for (int i = 0; row_name(row, i, found->name); i++) {
        found->text = secure_getenv(found->name);
        if (found->text) {
            snprintf(found->origin, sizeof found->origin, "environment");
            return 1;
        }
    }
    for (size_t s = 0; s < nsources; s++) {
        for (int i = 0; row_name(row, i, found->name); i++) {
            const struct entry *entry = source_find(&sources[s], found->name);
            if (entry) {
                found->text = entry->value;
                snprintf(found->origin, sizeof found->origin, "%s:%d", sources[s].label, entry->line);
                return 1;
            }
        }
    }
    return 0;
}

/* NCCL takes the default for a value that it cannot use, and numbers like 0x68. */
static int is_nccls(const struct found *found) { return strncmp(found->name, "NCCL_", 5) == 0; }
static uint8_t left_alone[RONDO_NUM_PARAMS]; /* a value that NCCL may know has no effect */

static int store_nccls(const struct row *row, const char *text)
{
    char decimal[32], *end;
    int saved = errno;
    errno = 0;
    long long value = strtoll(text, &end, 16);
    int is_number = strncasecmp(text, "0x", 2) == 0 && *end == '\0' && errno == 0;
    errno = saved;
    snprintf(decimal, sizeof decimal, "%lld", value);
    return is_number ? row_store(row, decimal) : -1;
}

static void left_alone_warn(const struct source *sources, size_t nsources)
{
    char value[NAME_SHOWN], allowed[128];
    struct found found;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        if (left_alone[id] && row_find(&rows[id], sources, nsources, &found)) {
            row_allowed(&rows[id], allowed, sizeof allowed);
            RONDO_WARN("%s=\"%s\" (%s, host %s) means nothing to Rondo, which takes the default: known is %s",
                       found.name, shown(value, found.text), found.origin, rondo_log_host(), allowed);
        }
    }
}

static void row_load(int id, const struct source *sources, size_t nsources)
{
    const struct row *row = &rows[id];
    char value[NAME_SHOWN], allowed[128], *copy = NULL;
    struct found found;

    free(current[id].value);
    current[id].value = NULL;
    left_alone[id] = 0;
    snprintf(current[id].origin, ORIGIN_TEXT, "default");
    row_store(row, row->def);
    if (!row_find(row, sources, nsources, &found)) {
        return;
    }
    if (found.text[0] != '\0') { /* an empty value is the default */
        if (strlen(found.text) < VALUE_MAX) {
            copy = strdup(found.text);
            if (!copy) {
                error_keep(RONDO_SYSTEM_ERROR, "no memory for the parameters on host %s", rondo_log_host());
                return;
            }
        }
        if (!copy || (row_store(row, copy) != 0 && !(is_nccls(&found) && store_nccls(row, copy) == 0))) {
            left_alone[id] = is_nccls(&found);
            if (left_alone[id]) {
                free(copy);
                row_store(row, row->def);
                return;
            }
            row_allowed(row, allowed, sizeof allowed);
            error_keep(RONDO_INVALID_ARGUMENT, "%s=\"%s\" (%s, host %s) is not allowed: it must be %s",
                       found.name, shown(value, found.text), found.origin, rondo_log_host(), allowed);
            free(copy);
            return;
        }
        current[id].value = copy;
    }
    if (strcmp(found.origin, "environment") == 0) {
        snprintf(current[id].origin, ORIGIN_TEXT, "environment %.50s", found.name);
    } else {
        snprintf(current[id].origin, ORIGIN_TEXT, "%s", found.origin);
    }
}

/* ---- names without effect ---- */

static int least(int a, int b) { return a < b ? a : b; }

static size_t prefix_of(const char *name)
{
    return strncmp(name, "RONDO_", 6) == 0 ? 6 : strncmp(name, "NCCL_", 5) == 0 ? 5 : 0;
}

int rondo_param_find_ignored(const char *name)
{
    const char *bare = name + prefix_of(name);
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) {
        const char *row = ignored_rows[i].name;
        size_t n = strcspn(row, "*");
        if (strncmp(bare, row, n) == 0 && (row[n] == '*' || bare[n] == '\0')) {
            return i;
        }
    }
    return -1;
}

/* Names that are set and have no effect: what fits of them. */
struct unfollowed {
    char text[512];
    size_t used;
    int more;
};

static void unfollowed_add(struct unfollowed *list, const char *name)
{
    size_t room = sizeof list->text - list->used;
    int n = snprintf(list->text + list->used, room, "%s%.60s", list->used > 0 ? ", " : "", name);
    if ((size_t)n < room) {
        list->used += (size_t)n;
    } else {
        list->text[list->used] = '\0';
        list->more++;
    }
}

static void unfollowed_log(const struct unfollowed *list)
{
    char more[32] = "";
    if (list->more > 0) {
        snprintf(more, sizeof more, " and %d more", list->more);
    }
    if (list->used > 0) {
        RONDO_INFO(RONDO_SUBSYS_ENV,
                   "set, but without effect in Rondo: %s%s; rondo-info lists those that Rondo knows",
                   list->text, more);
    }
}

/* Note a name without effect. origin: file and line, or NULL: the environment. @return 0 if it is not one. */
static int ignored_note(const char *name, const char *origin, struct unfollowed *list)
{
    int i = origin || prefix_of(name) > 0 ? rondo_param_find_ignored(name) : -1;
    if (i < 0) {
        return 0;
    }
    snprintf(ignored_origin[i], ORIGIN_TEXT, "%s%.50s", origin ? "" : "environment ", origin ? origin : name);
    unfollowed_add(list, name);
    return 1;
}

/* ---- unknown names ---- */

/* Levenshtein distance of two texts shorter than NAME_SHOWN. */
static int edit_distance(const char *a, const char *b)
{
    int above[NAME_SHOWN], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) {
        above[j] = j;
    }
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = above[0];
        above[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = diagonal + (toupper((unsigned char)a[i - 1]) != b[j - 1]);
            diagonal = above[j];
            above[j] = least(replaced, 1 + least(above[j], above[j - 1]));
        }
    }
    return above[n];
}

static int is_known(const char *given, int in_file)
{
    char name[NAME_SHOWN];
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        for (int i = 0; row_name(&rows[id], i, name); i++) {
            if (in_file ? same_name(given, name) : strcmp(given, name) == 0) {
                return 1;
            }
        }
    }
    return 0;
}

static void warn_unknown(const char *given, const char *origin)
{
    char shortened[NAME_SHOWN], name[NAME_SHOWN], nearest[NAME_SHOWN] = "";
    int best = NAME_SHOWN;
    shown(shortened, given);
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        int distance;
        row_name(&rows[id], 0, name);
        distance = least(edit_distance(shortened, name), edit_distance(shortened, name + 6));
        if (distance < best) {
            best = distance;
            memcpy(nearest, name, sizeof nearest);
        }
    }
    if (best <= 1 + (int)strlen(shortened) / 4) {
        RONDO_WARN("%s (%s) is not a parameter and is ignored; did you mean %s?", shortened, origin, nearest);
    } else {
        RONDO_WARN("%s (%s) is not a parameter and is ignored; rondo-info lists all", shortened, origin);
    }
}

static void check_variable(const char *name, struct unfollowed *list)
{
    if (ignored_note(name, NULL, list) || is_known(name, 0)) {
        return;
    }
    if (strncmp(name, "NCCL_", 5) == 0) { /* of a later NCCL, or of its build */
        unfollowed_add(list, name);
    } else if (strncmp(name, "RONDO_", 6) == 0 && strncmp(name, "RONDO_TEST_", 11) != 0) {
        warn_unknown(name, "environment");
    }
}

static void warn_all_unknown(const struct source *sources, size_t nsources)
{
    char origin[ORIGIN_TEXT];
    struct unfollowed list = { .used = 0 };
    memset(ignored_origin, 0, sizeof ignored_origin);
    for (char **variable = environ; variable && *variable; variable++) {
        char name[2 * NAME_SHOWN];
        if (prefix_of(*variable) > 0) {
            snprintf(name, sizeof name, "%.*s",
                     (int)least((int)strcspn(*variable, "="), (int)sizeof name - 1), *variable);
            check_variable(name, &list);
        }
    }
    for (size_t s = 0; s < nsources; s++) {
        if (sources[s].problem[0]) {
            RONDO_WARN("%s", sources[s].problem);
        }
        for (size_t i = 0; i < sources[s].nentries; i++) {
            snprintf(origin, sizeof origin, "%s:%d", sources[s].label, sources[s].entries[i].line);
            if (!ignored_note(sources[s].entries[i].name, origin, &list) &&
                !is_known(sources[s].entries[i].name, 1)) {
                warn_unknown(sources[s].entries[i].name, origin);
            }
        }
    }
    unfollowed_log(&list);
}

/* ---- what all ranks must agree on ---- */

static uint64_t hash_agreed(void)
{
    uint64_t hash = 0;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        const struct row *row = &rows[id];
        const void *field = (const char *)&params + row->offset;
        const char *text;
        if (!row->agree) {
            continue;
        }
        hash = rondo_hash(row->name, strlen(row->name), hash);
        if (row->kind == KIND_LIST) {
            memcpy(&text, field, sizeof text);
            hash = rondo_hash(text, strlen(text), hash);
        } else {
            hash = rondo_hash(
                field, row->kind == KIND_BOOL || row->kind == KIND_ENUM ? sizeof(int) : sizeof(int64_t),
                hash);
        }
    }
    return hash;
}

/* ---- public ---- */

/* Called with the lock held. Parameters first, then the log they configure, then problems with them. */
static void load_all(void)
{
    struct source sources[2] = { { 0 }, { 0 } };
    const char *home = secure_getenv("HOME");
    char path[VALUE_MAX];

    first_status = RONDO_SUCCESS;
    if (home && home[0] == '/' && snprintf(path, sizeof path, "%s/.rondo.conf", home) < (int)sizeof path) {
        source_load(&sources[0], "~/.rondo.conf", path);
    }
    source_load(&sources[1], "/etc/rondo.conf", "/etc/rondo.conf");
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        row_load(id, sources, RONDO_COUNTOF(sources));
    }
    __atomic_store_n(&agree_hash, hash_agreed(), __ATOMIC_RELAXED);
    __atomic_store_n(&state, STATE_LOADED, __ATOMIC_RELAXED);
    rondo_log_init();
    if (first_status != RONDO_SUCCESS) {
        RONDO_WARN("%s", first_error);
    }
    left_alone_warn(sources, RONDO_COUNTOF(sources));
    warn_all_unknown(sources, RONDO_COUNTOF(sources));
    source_free(&sources[0]);
    source_free(&sources[1]);
    __atomic_store_n(&state, STATE_DONE, __ATOMIC_RELEASE);
}

static void ensure_loaded(void)
{
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_DONE) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (state == STATE_NONE) {
        load_all();
    }
    pthread_mutex_unlock(&lock);
}

rondo_status rondo_param_init(void)
{
    ensure_loaded();
    return first_status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_quiet(first_status, "%s", first_error);
}

rondo_status rondo_param_reload(void)
{
    pthread_mutex_lock(&lock);
    load_all();
    pthread_mutex_unlock(&lock);
    return rondo_param_init();
}

const struct rondo_params *rondo_params(void)
{
    ensure_loaded();
    return &params;
}

int64_t rondo_param_buffer_bytes(enum rondo_proto proto, int gpus)
{
    const struct rondo_params *p = rondo_params();
    const struct {
        int64_t said;
        int kib[2];
    } buffers[RONDO_NUM_PROTOS] = {
        [RONDO_PROTO_SIMPLE] = { p->buffsize, { RONDO_PARAM_SIMPLE_HOST, RONDO_PARAM_SIMPLE_GPU } },
        [RONDO_PROTO_LL] = { p->ll_buffsize, { RONDO_PARAM_LL_HOST, RONDO_PARAM_LL_GPU } },
        [RONDO_PROTO_LL128] = { p->ll128_buffsize, { RONDO_PARAM_LL128_HOST, RONDO_PARAM_LL128_GPU } }
    };
    return buffers[proto].said != RONDO_PARAM_AUTO ? buffers[proto].said
                                                   : (int64_t)buffers[proto].kib[gpus != 0] << 10;
}

int rondo_param_max_channels(int most, int gpus)
{
    int64_t n = rondo_params()->max_nchannels, least = rondo_params()->min_nchannels;
    n = n != RONDO_PARAM_AUTO ? n : gpus ? RONDO_MAX_CHANNELS : RONDO_PARAM_CHANNELS_HOST;
    n = most > 0 && most < n ? most : n;
    return (int)(n < least ? least : n);
}

const char *rondo_param_file_label(const char *file, char label[RONDO_FILE_LABEL])
{
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        const char *text = NULL;
        if (rows[id].kind == KIND_LIST) {
            memcpy(&text, (const char *)&params + rows[id].offset, sizeof text);
        }
        if (text == file && file != NULL) {
            snprintf(label, RONDO_FILE_LABEL, "RONDO_%s=%s", rows[id].name, file);
            return label;
        }
    }
    return file;
}

/* Could the value be lower? */
static int can_lower(enum rondo_param_id id, int64_t now)
{
    int automatic;
    int64_t min = now, max;
    return range_parse(numbers_of(&rows[id], &automatic), rows[id].kind, &min, &max) && now > min;
}

const char *rondo_param_lower_buffers(int gpus, char text[RONDO_LOWER_TEXT])
{
    const struct {
        enum rondo_param_id id;
        int lowers;
    } list[] = {
        { RONDO_PARAM_buffsize,
          can_lower(RONDO_PARAM_buffsize, rondo_param_buffer_bytes(RONDO_PROTO_SIMPLE, gpus)) },
        { RONDO_PARAM_ll_buffsize,
          can_lower(RONDO_PARAM_ll_buffsize, rondo_param_buffer_bytes(RONDO_PROTO_LL, gpus)) },
        { RONDO_PARAM_ll128_buffsize,
          can_lower(RONDO_PARAM_ll128_buffsize, rondo_param_buffer_bytes(RONDO_PROTO_LL128, gpus)) },
        { RONDO_PARAM_max_nchannels, rondo_param_max_channels(0, gpus) > rondo_params()->min_nchannels },
    };
    size_t used = 0;
    for (size_t i = 0; i < RONDO_COUNTOF(list) && used < RONDO_LOWER_TEXT; i++) {
        used += list[i].lowers ? (size_t)snprintf(text + used, RONDO_LOWER_TEXT - used, "%sRONDO_%s",
                                                  used == 0 ? "lower " : " or ", rows[list[i].id].name)
                               : 0;
    }
    return used > 0 ? text : "use fewer ranks on this host";
}

void rondo_param_get_info(enum rondo_param_id id, struct rondo_param_info *info)
{
    const struct row *row = &rows[id];
    ensure_loaded();
    *info = (struct rondo_param_info){ row->section,       row->name,
                                       row->aliases,       row->type,
                                       row->def,           row->range,
                                       row->help,          current[id].value ? current[id].value : row->def,
                                       current[id].origin, row->agree };
}

void rondo_param_get_ignored(int i, struct rondo_param_ignored *ignored)
{
    ensure_loaded();
    *ignored = (struct rondo_param_ignored){ ignored_rows[i].name, ignored_rows[i].reason,
                                             ignored_origin[i] };
}

uint64_t rondo_param_agree_hash(void)
{
    ensure_loaded();
    return __atomic_load_n(&agree_hash, __ATOMIC_RELAXED);
}
