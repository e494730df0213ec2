#include "tools/options.h"

#include <stdio.h>
#include <string.h>
#include "base/param.h"

static int option_find(const struct tool_options *o, const char *text, size_t length)
{
    for (int i = 0; i < o->n; i++) {
        if (strlen(o->option[i].name) == length && memcmp(o->option[i].name, text, length) == 0) return i;
    }
    return -1;
}

static int unknown(const struct tool_options *o, const char *text)
{
    fprintf(stderr, "%s: unknown option %s", o->program, text);
    for (int i = 0; i < o->n; i++) {
        if (strncmp(o->option[i].name, text, 5) == 0) fprintf(stderr, " (%s?)", o->option[i].name);
    }
    fprintf(stderr, "; %s --help lists all\n", o->program);
    return -1;
}

/* "-" is a file; everything else that starts so is an option. */
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
    if (n < option->least || (equals && option->most == 0)) {
        fprintf(stderr, "%s: usage: %s%s%s: %s\n", o->program, option->name, option->most ? " " : "",
                option->arguments, option->help);
        return -1;
    }
    return 0;
}

int tool_options_parse(const struct tool_options *o, struct tool_given *given, int help, int argc,
                       char **argv)
{
    memset(given, 0, sizeof *given);
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int id = option_find(o, argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i]));
        if (strcmp(argv[i], "-h") == 0) id = help;
        if (id < 0 && is_value(argv[i]) && given->nwords < o->most_words) {
            given->word[given->nwords++] = argv[i];
            continue;
        }
        if (id < 0) return unknown(o, argv[i]);
        if (option_take(o, given, id, equals, argc, argv, &i) != 0) return -1;
    }
    if (!given->given[help] && given->nwords < o->least_words) {
        fprintf(stderr, "usage: %s %s\n", o->program, o->usage);
        return -1;
    }
    return 0;
}

int tool_options_number(const struct tool_options *o, const struct tool_given *given, int option, int least,
                        int most)
{
    int64_t value;
    if (rondo_parse_int(given->value[option][0], &value) != 0 || value < least || value > most) {
        fprintf(stderr, "%s: %s %s: a number from %d to %d was expected\n", o->program,
                o->option[option].name, given->value[option][0], least, most);
        return -1;
    }
    return (int)value;
}

/* Words of the help, from column 28 to 100. */
static void help_wrap(const char *text)
{
    int column = 28;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > 28 && column + 1 + n > 100) {
            printf("\n%28s", "");
            column = 28;
        }
        column += printf("%s%.*s", column > 28 ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

void tool_options_help(const struct tool_options *o)
{
    printf("usage: %s %s\n", o->program, o->usage);
    for (int i = 0; i < o->n; i++) {
        char head[64];
        if (o->option[i].group[0]) printf("\n%s:\n", o->option[i].group);
        snprintf(head, sizeof head, "%s %s", o->option[i].name, o->option[i].arguments);
        printf("  %-25s ", head);
        help_wrap(o->option[i].help);
    }
    printf("\n%s", o->outro);
}
