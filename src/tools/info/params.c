/* rondo-info: the parameters, as text, as a page, as a configuration file and as JSON. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "tools/info/info.h"

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

int info_param_find(const char *name)
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

enum { PAGE_COLUMNS = 100 };

static const char *or_dash(const char *text) { return text[0] ? text : "-"; }

void info_param_heading(void) { printf("%-22s %-22s %-22s %s\n", "parameter", "value", "default", "origin"); }

void info_param_print(enum rondo_param_id id)
{
    struct rondo_param_info info;
    char name[64], text[2048];
    rondo_param_get_info(id, &info);
    snprintf(name, sizeof name, "RONDO_%s", info.name);
    printf("%-22s %-22s %-22s %s\n", name, or_dash(info.value), or_dash(info.def), info.origin);
    info_wrap("    ", info.help, "    ", info_width());
    snprintf(text, sizeof text, "%s%s%s%s%s%s", type_text(info.type), info.range[0] ? " " : "", info.range,
             info.aliases[0] ? "; also " : "", info.aliases,
             info.agree ? "; must be equal on all ranks" : "");
    info_wrap("    ", text, "    ", info_width());
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
    info_wrap("- ", text, "  ", PAGE_COLUMNS);
}

void info_markdown(void)
{
    const char *section = "";
    printf(
        "# Parameters\n\n"
        "`rondo-info --markdown` makes this page from `src/base/param.def`. `rondo-info` shows the values "
        "in\n"
        "use and where they come from. Set a parameter in the environment, or on a line `NAME=value` of\n"
        "`~/.rondo.conf` or `/etc/rondo.conf`; the environment comes first. Rondo also accepts NCCL's names\n"
        "(after \"also\"). Values joined by / are the same. \"Equal on all ranks\": creating a communicator\n"
        "fails if ranks differ. A value that is not allowed is an error; under NCCL's name it is a warning, "
        "and\n"
        "the default is taken.\n");
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
        info_wrap("- ", text, "  ", PAGE_COLUMNS);
    }
}

void info_ignored_print(int i)
{
    struct rondo_param_ignored ignored;
    rondo_param_get_ignored(i, &ignored);
    printf("RONDO_%-35s %s\n    %s; also NCCL_%s\n", ignored.name,
           ignored.origin[0] ? ignored.origin : "not set", ignored.reason, ignored.name);
}

void info_conf(void)
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
        info_wrap("# ", info.help, "# ", PAGE_COLUMNS);
        printf("# (%s%s%s)\n#%s=%s\n", type_text(info.type), info.range[0] ? " " : "", info.range, info.name,
               info.def);
    }
}

int info_param_changed(enum rondo_param_id id)
{
    struct rondo_param_info info;
    rondo_param_get_info(id, &info);
    return strcmp(info.origin, "default") != 0;
}

static void field_json(const char *name, const char *text, const char *after)
{
    printf("\"%s\": ", name);
    info_json_text(text);
    fputs(after, stdout);
}

static void param_json(enum rondo_param_id id)
{
    struct rondo_param_info info;
    rondo_param_get_info(id, &info);
    printf("    {");
    field_json("name", info.name, ", ");
    field_json("value", info.value, ", ");
    field_json("default", info.def, ", ");
    field_json("origin", info.origin, ", ");
    field_json("type", info.type, ", ");
    field_json("range", info.range, ", ");
    field_json("aliases", info.aliases, ", ");
    field_json("section", info.section, ", ");
    printf("\"equal_on_all_ranks\": %s, ", info.agree ? "true" : "false");
    field_json("help", info.help, "}");
}

void info_params_json(int only_changed)
{
    const char *separator = "";
    printf("  \"parameters\": [");
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        if (!only_changed || info_param_changed((enum rondo_param_id)id)) {
            printf("%s\n", separator);
            param_json((enum rondo_param_id)id);
            separator = ",";
        }
    }
    printf("\n  ],\n  \"without_effect\": [");
    separator = "";
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) {
        struct rondo_param_ignored ignored;
        rondo_param_get_ignored(i, &ignored);
        if (ignored.origin[0]) {
            printf("%s\n    {", separator);
            field_json("name", ignored.name, ", ");
            field_json("origin", ignored.origin, ", ");
            field_json("reason", ignored.reason, "}");
            separator = ",";
        }
    }
    printf("\n  ]");
}
