/* rondo-info: show the library, its build, the devices of this host, and every parameter with its value and
 * where the value comes from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/log.h"
#include "base/param.h"
#include "base/status.h"
#include "kern/reduce.h"
#include "tools/info/build_text.h"
#include "tools/info/info.h"
#include "tools/options.h"

static const char program[] = "rondo-info";

/* X(ctx, NAME, "-d, --option", arguments, least, most, "group", "help") */
#define INFO_OPTION_TABLE(X, ctx)                                                                          \
    X(ctx, CHANGED, "-c, --changed", "", 0, 0, "Show (default: the version, the host and all parameters)", \
      "only the parameters that are set, and where")                                                       \
    X(ctx, DEVICES, "-d, --devices", "", 0, 0, "",                                                         \
      "the GPUs, net devices, interfaces and ports of this host, and why those that are not used are not") \
    X(ctx, BUILD, "-b, --build", "", 0, 0, "", "how this build was configured")                            \
    X(ctx, JSON, "-j, --json", "", 0, 0, "Formats", "print JSON (described in src/tools/JSON.md)")         \
    X(ctx, CONF, "--conf", "", 0, 0, "", "print a configuration file with every parameter as a comment")   \
    X(ctx, MARKDOWN, "--markdown", "", 0, 0, "",                                                           \
      "print all parameters as the page docs/parameters.md, without "                                      \
      "values")                                                                                            \
    X(ctx, HELP, "-h, --help", "", 0, 0, "Other", "show this help and exit")                               \
    X(ctx, VERSION, "--version", "", 0, 0, "", "show the library's version and exit")

#define INFO_OPTION_ID(ctx, NAME, ...) INFO_##NAME,
enum info_option { INFO_OPTION_TABLE(INFO_OPTION_ID, ) INFO_NUM_OPTIONS };
#undef INFO_OPTION_ID
static const struct tool_option table[] = { INFO_OPTION_TABLE(TOOL_OPTION_ROW, ) };

static const struct tool_options options = {
    .program = program,
    .usage =
        "[OPTION]... [NAME...]\n"
        "\n"
        "Show the version, the host and all parameters, or only the named ones (RONDO_TIMEOUT, TIMEOUT and\n"
        "NCCL_BUFFSIZE are all valid names).\n"
        "\n"
        "A value comes from the environment, else from ~/.rondo.conf, else from /etc/rondo.conf (lines\n"
        "NAME=value), else it is the default.",
    .outro = "Exit status:\n"
             "  0  success\n"
             "  1  a parameter has an invalid value, or the devices cannot be found\n"
             "  2  wrong usage\n",
    .option = table,
    .n = INFO_NUM_OPTIONS,
    .most_words = TOOL_MAX_WORDS,
    .help = INFO_HELP,
    .version = INFO_VERSION,
};

/* ---- text ---- */

enum { LEAST_COLUMNS = 40, COLUMNS = 100 };

int info_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return COLUMNS;
    }
    return size.ws_col < LEAST_COLUMNS ? LEAST_COLUMNS : size.ws_col;
}

void info_wrap(const char *first, const char *text, const char *next, int width)
{
    int indent = (int)strlen(next), column = (int)strlen(first), begins = 1;
    fputs(first, stdout);
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!begins && column + 1 + n > width) {
            printf("\n%s", next);
            column = indent;
            begins = 1;
        }
        printf("%s%.*s", begins ? "" : " ", n, text);
        column += !begins + n;
        begins = 0;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

void info_json_text(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            printf("\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            printf("\\u%04x", *c); /* reading other bytes as Latin-1 is always valid */
        } else {
            putchar(*c);
        }
    }
    putchar('"');
}

static void head_print(void)
{
    int version = 0;
    rondo_get_version(&version);
    printf("Rondo %d.%d.%d on host %s, reductions by %s\n", version / 10000, version / 100 % 100,
           version % 100, rondo_log_host(), rondo_reduce_isa());
}

/* ---- what is asked for ---- */

static int named_print(const struct tool_given *given)
{
    for (int i = 0; i < given->nwords; i++) {
        if (info_param_find(given->word[i]) < 0 && rondo_param_find_ignored(given->word[i]) < 0) {
            fprintf(stderr, "%s: unknown parameter %s; '%s' lists all\n", program, given->word[i], program);
            return TOOL_USAGE;
        }
    }
    info_param_heading();
    for (int i = 0; i < given->nwords; i++) {
        int id = info_param_find(given->word[i]);
        if (id >= 0) {
            info_param_print((enum rondo_param_id)id);
        } else {
            info_ignored_print(rondo_param_find_ignored(given->word[i]));
        }
    }
    return 0;
}

static void all_print(void)
{
    putchar('\n');
    info_param_heading();
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) info_param_print((enum rondo_param_id)id);
    printf("\naccepted, but without effect\n");
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) info_ignored_print(i);
}

static void changed_print(void)
{
    int n = 0;
    for (int id = 0; id < RONDO_NUM_PARAMS; id++) {
        if (!info_param_changed((enum rondo_param_id)id)) continue;
        if (n++ == 0) info_param_heading();
        info_param_print((enum rondo_param_id)id);
    }
    for (int i = 0; i < RONDO_NUM_PARAMS_IGNORED; i++) {
        struct rondo_param_ignored ignored;
        rondo_param_get_ignored(i, &ignored);
        if (ignored.origin[0]) {
            n++;
            info_ignored_print(i);
        }
    }
    if (n == 0) printf("no parameter is set: all have their defaults\n");
}

static void build_json(void)
{
    const char *at = RONDO_BUILD_TEXT, *separator = "";
    printf(",\n  \"build\": [");
    while (*at) {
        char line[4096];
        int n = (int)strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", n, at + strspn(at, " "));
        line[strcspn(line, "\n")] = '\0';
        printf("%s\n    ", separator);
        info_json_text(line);
        separator = ",";
        at += n + (at[n] == '\n');
    }
    printf("\n  ]");
}

static int json_print(const struct tool_given *given)
{
    int version = 0, code = 0;
    rondo_get_version(&version);
    printf("{\n  \"version\": \"%d.%d.%d\",\n  \"host\": ", version / 10000, version / 100 % 100,
           version % 100);
    info_json_text(rondo_log_host());
    printf(",\n  \"reductions\": ");
    info_json_text(rondo_reduce_isa());
    printf(",\n");
    info_params_json(given->given[INFO_CHANGED]);
    if (given->given[INFO_BUILD]) build_json();
    if (given->given[INFO_DEVICES]) code = info_devices(1);
    printf("\n}\n");
    return code;
}

static int text_print(const struct tool_given *given)
{
    int code = 0;
    if (given->nwords > 0) return named_print(given);
    head_print();
    if (given->given[INFO_BUILD]) fputs(RONDO_BUILD_TEXT, stdout);
    if (given->given[INFO_DEVICES]) code = info_devices(0);
    if (given->given[INFO_CHANGED]) {
        changed_print();
    } else if (!given->given[INFO_BUILD] && !given->given[INFO_DEVICES]) {
        all_print();
    }
    return code;
}

static int one_of(const struct tool_given *given)
{
    int shows = given->given[INFO_CHANGED] || given->given[INFO_DEVICES] || given->given[INFO_BUILD],
        pages = given->given[INFO_CONF] + given->given[INFO_MARKDOWN];
    if (pages + (given->given[INFO_JSON] || shows) > 1 ||
        (given->nwords > 0 && (pages || shows || given->given[INFO_JSON]))) {
        fprintf(stderr, "%s: these options do not go together; try '%s --help'\n", program, program);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct tool_given given;
    int code = tool_options_begin(&options, &given, argc, argv);
    rondo_status status;
    if (code >= 0) return code;
    if (!one_of(&given)) return TOOL_USAGE;
    if (given.given[INFO_MARKDOWN] || given.given[INFO_CONF]) {
        if (given.given[INFO_MARKDOWN])
            info_markdown();
        else
            info_conf();
        return 0;
    }
    status = rondo_param_init();
    code = given.given[INFO_JSON] ? json_print(&given) : text_print(&given);
    /* The library has already warned of the value. */
    if (status != RONDO_SUCCESS && !rondo_log_shows_warnings()) {
        FILE *out = given.given[INFO_JSON] ? stderr : stdout;
        fprintf(out, "\ninvalid value: %s\n", rondo_error_text());
    }
    return code ? code : status != RONDO_SUCCESS;
}
