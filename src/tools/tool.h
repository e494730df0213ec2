/* What every tool shares: options, --help, error messages and exit statuses. */
#ifndef RONDO_TOOLS_TOOL_H
#define RONDO_TOOLS_TOOL_H

enum { TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_MAX_OPTIONS = 32 };

struct tool_option {
    const char *name, *arguments;
    int least, most;   /* number of arguments; most is 2 at the most */
    const char *group; /* heading to print before this option; "": none */
    const char *help;
};

/* One table drives the parser, --help and the messages about wrong options. */
struct tool_options {
    const char *program;
    const char *usage; /* printed after the program's name */
    const char *outro; /* printed after the options */
    const struct tool_option *option;
    int n;
    int most_words;    /* arguments that belong to no option; 2 at the most */
    int help, version; /* indices of the options --help and --version */
};

/* The options on the command line and their arguments; NULL where an argument was left out. */
struct tool_given {
    int given[TOOL_MAX_OPTIONS], nwords;
    const char *value[TOOL_MAX_OPTIONS][2], *word[2];
};

/** Parse the command line, and answer --help and --version. A wrong option is reported on stderr.
 * @return -1 to go on, else the exit status of the program. */
int tool_options_begin(const struct tool_options *options, struct tool_given *given, int argc, char **argv);
/** The number given to `option`. @return the number, or -1 after a message that it is not in the range. */
int tool_options_number(const struct tool_options *options, const struct tool_given *given, int option,
                        int least, int most);

/** Read the parameters. Unless the user asked for a log, silence it: a tool reports an error once, itself.
 * @return -1 to go on, else the exit status of the program after a message. */
int tool_params_begin(const char *program);
/** Print the calling thread's last error on stderr. @return code. */
int tool_fail(const char *program, int code);

#endif
