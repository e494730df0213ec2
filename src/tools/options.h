/* Options of a command line. One table drives the parser, --help, the messages about wrong options, and,
 * through
 * --help, the man pages and completions (scripts/make-man). Uses no other part of Rondo. */
#ifndef RONDO_TOOLS_OPTIONS_H
#define RONDO_TOOLS_OPTIONS_H

enum { TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_MAX_OPTIONS = 48, TOOL_MAX_WORDS = 256 };

struct tool_option {
    const char *name; /* "--file", or with a letter "-b, --minbytes" */
    const char *arguments;
    int least, most;   /* number of arguments; most is 2 at the most */
    const char *group; /* heading to print before this option; "": none */
    const char *help;
};

struct tool_options {
    const char *program;
    const char *usage; /* printed after the program's name */
    const char *outro; /* printed after the options */
    const struct tool_option *option;
    int n;
    int most_words;    /* arguments that belong to no option; TOOL_MAX_WORDS at the most */
    int help, version; /* indices of the options --help and --version; version -1: the program has none */
    int last_wins;     /* an option given again replaces the first, as with getopt(3); 0: it is an error */
};

/* The options on the command line and their arguments; NULL where an argument was left out. */
struct tool_given {
    int given[TOOL_MAX_OPTIONS], nwords;
    const char *value[TOOL_MAX_OPTIONS][2], *word[TOOL_MAX_WORDS];
};

/** A table of tool_option from rows X(ctx, NAME, name, arguments, least, most, group, help). */
#define TOOL_OPTION_ROW(ctx, NAME, name, arguments, least, most, group, help) \
    { name, arguments, least, most, group, help },

/**
 * Parse the command line. A letter's value may follow without a space (-b8), a long option's after '=', and a
 * long option may be shortened as long as only one begins so.
 * @param quiet  report nothing; for ranks other than the first
 * @return 0, or -1 after a message on stderr
 */
int tool_options_parse(const struct tool_options *options, struct tool_given *given, int argc, char **argv,
                       int quiet);
/** Print what --help prints. */
void tool_options_help(const struct tool_options *options);
/** Parse the command line, and answer --help and --version. A wrong option is reported on stderr.
 * @return -1 to go on, else the exit status of the program. */
int tool_options_begin(const struct tool_options *options, struct tool_given *given, int argc, char **argv);
/** The number given to `option`. @return the number, or -1 after a message that it is not in the range. */
int tool_options_number(const struct tool_options *options, const struct tool_given *given, int option,
                        int least, int most);

#endif
