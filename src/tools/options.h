/* Options of a tool: one table, from which parser, help and errors come. */
#ifndef RONDO_TOOLS_OPTIONS_H
#define RONDO_TOOLS_OPTIONS_H

enum { TOOL_MAX_OPTIONS = 32 };

struct tool_option {
    const char *name, *arguments;
    int least, most; /* arguments, at most two */
    const char *group, *help;
};

struct tool_options {
    const char *program, *usage, *outro; /* usage: after the program's name; outro: behind the options */
    const struct tool_option *option;
    int n, least_words, most_words; /* options; words that are no option's, at most two */
};

/* Which options were given, and their arguments; NULL: left out. */
struct tool_given {
    int given[TOOL_MAX_OPTIONS], nwords;
    const char *value[TOOL_MAX_OPTIONS][2], *word[2];
};

/** @return 0, or -1 after a message on stderr that names what is wrong. help: the option that is also "-h";
 * words are not counted when it is given. */
int tool_options_parse(const struct tool_options *options, struct tool_given *given, int help, int argc,
                       char **argv);
void tool_options_help(const struct tool_options *options);
/** A number in a range, or -1 after a message on stderr. */
int tool_options_number(const struct tool_options *options, const struct tool_given *given, int option,
                        int least, int most);

#endif
