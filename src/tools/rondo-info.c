/* rondo-info: show the library and every parameter, with its value and where the value comes from. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "base/param.h"
#include "kern/reduce.h"

static const char usage[] =
    "usage: rondo-info [NAME...]\n"
    "       rondo-info --conf|--markdown|--version\n"
    "\n"
    "Show the version, the host and all parameters, or only the named ones (RONDO_TIMEOUT, TIMEOUT and\n"
    "NCCL_BUFFSIZE are all valid names).\n"
    "\n"
    "A value comes from the environment, else from ~/.rondo.conf, else from /etc/rondo.conf (lines\n"
    "NAME=value), else it is the default.\n"
    "\n"
    "  --conf      print a configuration file with every parameter as a comment\n"
    "  --markdown  print all parameters as the page docs/parameters.md, without values\n"
    "  --version   show the library's version and exit\n"
    "  -h, --help  show this help and exit\n"
    "\n"
    "Exit status:\n"
    "  0  success\n"
    "  1  a parameter has an invalid value\n"
    "  2  wrong usage\n";

static int is_alias(const char *aliases, const char *name)
{
    size_t length = strlen(name);
    while (*aliases) {
        size_t n = strcspn(aliases, ",");
        if (n == length && strncasecmp(aliases, name, n) == 0) {
            return 1;
        }
        aliases += n + (aliases[n] == ',');
    }
    return 0;
}

/* @return the id of the parameter, or -1. */
static int param_find(const char *name)
{
    const char *bare = strncasecmp(name, "RONDO_", 6) == 0 ? name + 6 : name;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        struct rondo_param_info info;
        rondo_param_get_info(id, &info);
        if (strcasecmp(info.name, bare) == 0 || is_alias(info.aliases, name)) {
            return id;
        }
    }
    return -1;
}

static const char *type_text(const char *type)
{
    static const char *const texts[][2] = { { "INT", "whole number" }, { "SIZE", "size (K M G)" },
                                            { "BOOL", "0 or 1" },      { "ENUM", "one of" },
                                            { "LIST", "text" },        { "TIME", "time (ns us ms s m)" } };
    for (size_t i = 0; i < RONDO_COUNTOF(texts); i++) {
        if (strcmp(texts[i][0], type) == 0) {
            return texts[i][1];
        }
    }
    return type;
}

static const char *or_dash(const char *text) { return text[0] ? text : "-"; }

enum { COLUMNS = 100 };

/* Print a text in lines of COLUMNS: `first` begins the first one, `next` the others. */
static void wrapped_print(const char *first, const char *text, const char *next)
{
    int indent = (int)strlen(first), column = indent;
    fputs(first, stdout);
    while (*text) {
        int n = (int)strcspn(text, " "), begins = column == indent;
        if (!begins && column + 1 + n > COLUMNS) {
            printf("\n%s", next);
            column = indent;
            begins = 1;
        }
        printf("%s%.*s", begins ? "" : " ", n, text);
        column += !begins + n;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void param_print(int id)
{
    struct rondo_param_info info;
    char name[64];
    rondo_param_get_info(id, &info);
    snprintf(name, sizeof name, "RONDO_%s", info.name);
    printf("%-22s %-22s %-22s %s\n", name, or_dash(info.value), or_dash(info.def), info.origin);
    wrapped_print("    ", info.help, "    ");
    printf("    %s%s%s%s%s%s\n", type_text(info.type), info.range[0] ? " " : "", info.range,
           info.aliases[0] ? "; also " : "", info.aliases, info.agree ? "; must be equal on all ranks" : "");
}

static void markdown_param_print(int id)
{
    struct rondo_param_info info;
    char text[2048], def[64];
    rondo_param_get_info(id, &info);
    snprintf(def, sizeof def, info.def[0] ? "`%s`" : "empty", info.def);
    snprintf(text, sizeof text, "`RONDO_%s` (%s%s%s; default %s%s%s%s): %s", info.name, type_text(info.type),
             info.range[0] ? " " : "", info.range, def, info.aliases[0] ? "; also " : "", info.aliases,
             info.agree ? "; equal on all ranks" : "", info.help);
    wrapped_print("- ", text, "  ");
}

static void markdown_print(void)
{
    const char *section = "";
    printf(
        "# Parameters\n\n"
        "`rondo-info --markdown` makes this page from `src/base/param.def`. `rondo-info` shows the values "
        "in\n"
        "use and where they come from. Set a parameter in the environment, or on a line `NAME=value` of\n"
        "`~/.rondo.conf` or `/etc/rondo.conf`; the environment comes first. Rondo also accepts NCCL's names\n"
        "(after \"also\"). Values joined by / are the same. \"Equal on all ranks\": creating a communicator\n"
        "fails if ranks differ.\n");
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        struct rondo_param_info info;
        rondo_param_get_info(id, &info);
        if (strcmp(info.section, section) != 0) {
            printf("\n## %s\n\n", info.section);
            section = info.section;
        }
        markdown_param_print(id);
    }
    printf("\n## Accepted without effect\n\n"
           "These names of NCCL, with `RONDO_` or `NCCL_` in front, change nothing.\n\n");
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) {
        struct rondo_param_ignored ignored;
        char text[256];
        rondo_param_get_ignored(i, &ignored);
        snprintf(text, sizeof text, "`%s`: %s", ignored.name, ignored.reason);
        wrapped_print("- ", text, "  ");
    }
}

static void ignored_print(int i)
{
    struct rondo_param_ignored ignored;
    rondo_param_get_ignored(i, &ignored);
    printf("RONDO_%-35s %s\n    %s; also NCCL_%s\n", ignored.name,
           ignored.origin[0] ? ignored.origin : "not set", ignored.reason, ignored.name);
}

static void ignored_all_print(void)
{
    printf("\naccepted, but without effect\n");
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) {
        ignored_print(i);
    }
}

/* A file for /etc/rondo.conf or ~/.rondo.conf. */
static void conf_print(void)
{
    const char *section = "";
    printf("# Parameters of Rondo, for /etc/rondo.conf or ~/.rondo.conf. The environment (RONDO_NAME=value) "
           "comes\n# before ~/.rondo.conf, and that before /etc/rondo.conf. Each line below is a default.\n");
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        struct rondo_param_info info;
        rondo_param_get_info(id, &info);
        if (strcmp(info.section, section) != 0) {
            printf("\n# ---- %s ----\n", info.section);
            section = info.section;
        }
        printf("\n");
        wrapped_print("# ", info.help, "# ");
        printf("# (%s%s%s)\n#%s=%s\n", type_text(info.type), info.range[0] ? " " : "", info.range, info.name,
               info.def);
    }
}

static void heading_print(void)
{
    printf("%-22s %-22s %-22s %s\n", "parameter", "value", "default", "origin");
}

static int named_print(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (param_find(argv[i]) < 0 && rondo_param_find_ignored(argv[i]) < 0) {
            fprintf(stderr, "rondo-info: unknown parameter %s; 'rondo-info' lists all\n", argv[i]);
            return 2;
        }
    }
    heading_print();
    for (int i = 1; i < argc; i++) {
        int id = param_find(argv[i]);
        if (id >= 0) {
            param_print(id);
        } else {
            ignored_print(rondo_param_find_ignored(argv[i]));
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int version = 0, code = 0;
    rondo_status status;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        markdown_print();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--conf") == 0) {
        conf_print();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        rondo_get_version(&version);
        printf("rondo-info %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
        return 0;
    }
    if (argc > 1 && argv[1][0] == '-') {
        fprintf(stderr, "rondo-info: unknown option %s; try 'rondo-info --help'\n", argv[1]);
        return 2;
    }
    status = rondo_param_init();
    if (argc > 1) {
        code = named_print(argc, argv);
    } else {
        rondo_get_version(&version);
        printf("Rondo %d.%d.%d on host %s, reductions by %s\n\n", version / 10000, version / 100 % 100,
               version % 100, rondo_log_host(), rondo_reduce_isa());
        heading_print();
        for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
            param_print(id);
        }
        ignored_all_print();
    }
    /* The library has already warned of the value. */
    if (status != RONDO_SUCCESS && !rondo_log_shows_warnings()) {
        printf("\ninvalid value: %s\n", rondo_error_text());
    }
    return code ? code : status != RONDO_SUCCESS;
}
