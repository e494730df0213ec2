#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 100 };

/* ---- options ---- */

static int option_find(const struct tool_options *o, const char *text, size_t length)
{
    for (int i = 0; i < o->n; i++) {
        if (strlen(o->option[i].name) == length && memcmp(o->option[i].name, text, length) == 0) return i;
    }
    return -1;
}

static int reject(const struct tool_options *o, const char *text)
{
    if (text[0] != '-') {
        fprintf(stderr, "%s: unexpected argument '%s'; try '%s --help'\n", o->program, text, o->program);
        return -1;
    }
    fprintf(stderr, "%s: unknown option %s", o->program, text);
    for (int i = 0; i < o->n; i++) {
        if (strncmp(o->option[i].name, text, 5) == 0)
            fprintf(stderr, " (did you mean %s?)", o->option[i].name);
    }
    fprintf(stderr, "; try '%s --help'\n", o->program);
    return -1;
}

/* "-" names standard output; everything else that starts with a dash is an option. */
static int is_value(const char *text) { return text[0] != '-' || text[1] == '\0'; }

static int option_take(const struct tool_options *o, struct tool_given *given, int id, const char *equals,
                       int argc, char **argv, int *at)
{
    const struct tool_option *option = &o->option[id];
    int n = 0;
    if (given->given[id]++) {
        fprintf(stderr, "%s: %s is given twice\n", o->program, option->name);
        return -1;
    }
    if (equals && option->most > 0) given->value[id][n++] = equals + 1;
    while (n < option->most && *at + 1 < argc && is_value(argv[*at + 1])) given->value[id][n++] = argv[++*at];
    if (equals && option->most == 0) {
        fprintf(stderr, "%s: %s takes no argument\n", o->program, option->name);
        return -1;
    }
    if (n < option->least) {
        fprintf(stderr, "%s: %s needs %s: %s\n", o->program, option->name, option->arguments, option->help);
        return -1;
    }
    return 0;
}

static int options_parse(const struct tool_options *o, struct tool_given *given, int argc, char **argv)
{
    memset(given, 0, sizeof *given);
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int id = option_find(o, argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i]));
        if (strcmp(argv[i], "-h") == 0) id = o->help;
        if (id < 0 && is_value(argv[i]) && given->nwords < o->most_words) {
            given->word[given->nwords++] = argv[i];
            continue;
        }
        if (id < 0) return reject(o, argv[i]);
        if (option_take(o, given, id, equals, argc, argv, &i) != 0) return -1;
    }
    return 0;
}

/* Print the words of a help text in columns HELP_COLUMN to HELP_WIDTH. */
static void help_wrap(const char *text)
{
    int column = HELP_COLUMN;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += printf("%s%.*s", column > HELP_COLUMN ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void help_print(const struct tool_options *o)
{
    printf("usage: %s %s\n", o->program, o->usage);
    for (int i = 0; i < o->n; i++) {
        char head[64];
        if (o->option[i].group[0]) printf("\n%s:\n", o->option[i].group);
        snprintf(head, sizeof head, "%s%s %s", i == o->help ? "-h, " : "", o->option[i].name,
                 o->option[i].arguments);
        int columns = printf("  %-*s ", HELP_COLUMN - 3, head);
        if (columns > HELP_COLUMN) printf("\n%*s", HELP_COLUMN, "");
        help_wrap(o->option[i].help);
    }
    printf("\n%s", o->outro);
}

static void version_print(const char *program)
{
    int version = 0;
    rondo_get_version(&version);
    printf("%s %d.%d.%d\n", program, version / 10000, version / 100 % 100, version % 100);
}

int tool_options_begin(const struct tool_options *o, struct tool_given *given, int argc, char **argv)
{
    if (options_parse(o, given, argc, argv) != 0) return TOOL_USAGE;
    if (given->given[o->help]) {
        help_print(o);
        return 0;
    }
    if (given->given[o->version]) {
        version_print(o->program);
        return 0;
    }
    return -1;
}

int tool_options_number(const struct tool_options *o, const struct tool_given *given, int option, int least,
                        int most)
{
    int64_t value;
    const char *text = given->value[option][0];
    if (rondo_parse_int(text, &value) != 0 || value < least || value > most) {
        fprintf(stderr, "%s: %s '%s': expected a number from %d to %d\n", o->program, o->option[option].name,
                text, least, most);
        return -1;
    }
    return (int)value;
}

/* ---- start and errors ---- */

int tool_params_begin(const char *program)
{
    if (rondo_param_init() != RONDO_SUCCESS) /* The library has already warned of the value. */
        return rondo_log_shows_warnings() ? TOOL_USAGE : tool_fail(program, TOOL_USAGE);
    if (!getenv("RONDO_DEBUG") && !getenv("NCCL_DEBUG")) rondo_log_mask = RONDO_LOG_NONE;
    return -1;
}

int tool_fail(const char *program, int code)
{
    fprintf(stderr, "%s: %s\n", program, rondo_error_text()[0] ? rondo_error_text() : "failed");
    return code;
}
