#include "tools/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rondo.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 100 };

/* ---- parsing ---- */

struct parse {
    const struct tool_options *o;
    struct tool_given *given;
    int argc, at, quiet;
    char **argv;
};

/* "-b, --minbytes": the part that begins with two dashes. */
static const char *long_name(const struct tool_option *option)
{
    return option->name[1] == '-' ? option->name : option->name + strlen("-b, ");
}

static char letter(const struct tool_option *option)
{
    return option->name[1] == '-' ? '\0' : option->name[1];
}

static int by_letter(const struct tool_options *o, char wanted)
{
    for (int i = 0; i < o->n; i++) {
        if (letter(&o->option[i]) == wanted) return i;
    }
    return -1;
}

/* The option with this long name, else the only one that begins so, else -1. */
static int by_name(const struct tool_options *o, const char *text, size_t length)
{
    int found = -1, n = 0;
    for (int i = 0; i < o->n; i++) {
        const char *name = long_name(&o->option[i]);
        if (strncmp(name, text, length) != 0) continue;
        if (name[length] == '\0') return i;
        found = i;
        n++;
    }
    return n == 1 && length > strlen("--") ? found : -1;
}

static int reject(const struct parse *p, const char *text)
{
    const struct tool_options *o = p->o;
    if (p->quiet) return -1;
    if (text[0] != '-') {
        fprintf(stderr, "%s: unexpected argument '%s'; try '%s --help'\n", o->program, text, o->program);
        return -1;
    }
    fprintf(stderr, "%s: unknown option %s", o->program, text);
    for (int i = 0; i < o->n; i++) {
        if (text[1] == '-' && strncmp(long_name(&o->option[i]), text, 5) == 0)
            fprintf(stderr, " (did you mean %s?)", long_name(&o->option[i]));
    }
    fprintf(stderr, "; try '%s --help'\n", o->program);
    return -1;
}

/* "-" names standard output, and "-1" is a number; everything else that starts with a dash is an option. */
static int is_value(const char *text)
{
    return text[0] != '-' || text[1] == '\0' || (text[1] >= '0' && text[1] <= '9');
}

/* value: the one that is part of the option's own word; NULL: none */
static int take(struct parse *p, int id, const char *value)
{
    const struct tool_option *option = &p->o->option[id];
    const char **values = p->given->value[id], *wrong = NULL;
    int n = 0;
    if (p->given->given[id]++ && !p->o->last_wins) {
        wrong = "is given twice";
    } else if (value && option->most == 0) {
        wrong = "takes no argument";
    } else {
        values[0] = values[1] = NULL;
        if (value) values[n++] = value;
        while (n < option->most && p->at + 1 < p->argc && is_value(p->argv[p->at + 1]))
            values[n++] = p->argv[++p->at];
        if (n >= option->least) return 0;
    }
    if (!p->quiet && wrong)
        fprintf(stderr, "%s: %s %s\n", p->o->program, long_name(option), wrong);
    else if (!p->quiet)
        fprintf(stderr, "%s: %s needs %s: %s\n", p->o->program, long_name(option), option->arguments,
                option->help);
    return -1;
}

/* One word of letters: "-b8", "-b", "-v". */
static int take_letters(struct parse *p, const char *word)
{
    for (const char *at = word + 1; *at; at++) {
        int id = by_letter(p->o, *at);
        if (id < 0) return reject(p, word);
        if (p->o->option[id].most > 0) return take(p, id, at[1] ? at + 1 : NULL);
        if (take(p, id, NULL) != 0) return -1;
    }
    return 0;
}

int tool_options_parse(const struct tool_options *o, struct tool_given *given, int argc, char **argv,
                       int quiet)
{
    struct parse p = { .o = o, .given = given, .argc = argc, .argv = argv, .quiet = quiet };
    memset(given, 0, sizeof *given);
    for (p.at = 1; p.at < argc; p.at++) {
        const char *word = argv[p.at], *equals = strchr(word, '=');
        int failed;
        if (is_value(word)) {
            if (given->nwords == o->most_words) return reject(&p, word);
            given->word[given->nwords++] = word;
            continue;
        }
        if (word[1] != '-') {
            failed = take_letters(&p, word);
        } else {
            int id = by_name(o, word, equals ? (size_t)(equals - word) : strlen(word));
            failed = id < 0 ? reject(&p, word) : take(&p, id, equals ? equals + 1 : NULL);
        }
        if (failed) return -1;
    }
    return 0;
}

int tool_options_number(const struct tool_options *o, const struct tool_given *given, int option, int least,
                        int most)
{
    const char *text = given->value[option][0];
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end || value < least || value > most) {
        fprintf(stderr, "%s: %s '%s': expected a number from %d to %d\n", o->program,
                long_name(&o->option[option]), text, least, most);
        return -1;
    }
    return (int)value;
}

/* ---- help ---- */

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

void tool_options_help(const struct tool_options *o)
{
    printf("usage: %s %s\n", o->program, o->usage);
    for (int i = 0; i < o->n; i++) {
        const struct tool_option *option = &o->option[i];
        char head[64];
        if (option->group[0]) printf("\n%s:\n", option->group);
        snprintf(head, sizeof head, "%s%s%s", option->name, option->arguments[0] ? " " : "",
                 option->arguments);
        if (strlen(head) > HELP_COLUMN - 4)
            printf("  %s\n%*s", head, HELP_COLUMN, "");
        else
            printf("  %-*s", HELP_COLUMN - 2, head);
        help_wrap(option->help);
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
    if (tool_options_parse(o, given, argc, argv, 0) != 0) return TOOL_USAGE;
    if (given->given[o->help]) {
        tool_options_help(o);
        return 0;
    }
    if (o->version >= 0 && given->given[o->version]) {
        version_print(o->program);
        return 0;
    }
    return -1;
}
