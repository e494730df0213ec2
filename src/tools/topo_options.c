#include "tools/topo_options.h"

#include <stdio.h>
#include <string.h>
#include "base/param.h"

static const struct {
    const char *name, *arguments;
    int least, most;
    const char *group, *help;
} table[] = {
#define ROW_(ctx, NAME, name, arguments, least, most, group, help) { name, arguments, least, most, group, help },
    TOPO_OPTION_TABLE(ROW_, )
#undef ROW_
};

static int option_find(const char *text, size_t length)
{
    for (int i = 0; i < TOPO_NUM_OPTIONS; i++) {
        if (strlen(table[i].name) == length && memcmp(table[i].name, text, length) == 0) return i;
    }
    return -1;
}

static int unknown(const char *program, const char *text)
{
    fprintf(stderr, "%s: unknown option %s", program, text);
    for (int i = 0; i < TOPO_NUM_OPTIONS; i++) {
        if (strncmp(table[i].name, text, 5) == 0) fprintf(stderr, " (%s?)", table[i].name);
    }
    fprintf(stderr, "; %s --help lists all\n", program);
    return -1;
}

/* "-" is a file; everything else that starts so is an option. */
static int is_value(const char *text) { return text[0] != '-' || text[1] == '\0'; }

int topo_options_parse(struct topo_given *given, const char *program, int argc, char **argv)
{
    memset(given, 0, sizeof *given);
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int id = option_find(argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i])), n = 0;
        if (strcmp(argv[i], "-h") == 0) id = TOPO_HELP;
        if (id < 0) return unknown(program, argv[i]);
        if (given->given[id]++) {
            fprintf(stderr, "%s: %s is given twice\n", program, table[id].name);
            return -1;
        }
        if (equals && table[id].most > 0) given->value[id][n++] = equals + 1;
        while (n < table[id].most && i + 1 < argc && is_value(argv[i + 1])) given->value[id][n++] = argv[++i];
        if (n < table[id].least || (equals && table[id].most == 0)) {
            fprintf(stderr, "%s: usage: %s%s%s: %s\n", program, table[id].name, table[id].most ? " " : "", table[id].arguments,
                    table[id].help);
            return -1;
        }
    }
    return 0;
}

int topo_option_number(const struct topo_given *given, enum topo_option option, const char *program, int least, int most)
{
    int64_t value;
    if (rondo_parse_int(given->value[option][0], &value) != 0 || value < least || value > most) {
        fprintf(stderr, "%s: %s %s: a number from %d to %d was expected\n", program, table[option].name, given->value[option][0], least,
                most);
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

void topo_options_help(const char *program)
{
    printf("usage: %s [OPTION]...\n"
           "  Shows a machine as Rondo sees it: NUMA nodes, GPUs, network ports, the paths between them, and the rings and trees laid over "
           "them.\n",
           program);
    for (int i = 0; i < TOPO_NUM_OPTIONS; i++) {
        char head[64];
        if (table[i].group[0]) printf("\n%s:\n", table[i].group);
        snprintf(head, sizeof head, "%s %s", table[i].name, table[i].arguments);
        printf("  %-25s ", head);
        help_wrap(table[i].help);
    }
    printf("\nExit status: 0; 1 failure, or --compare found differences; 2 wrong use, a file that cannot be read, a list that is not one.\n"
           "Under mpirun or srun the first process of each node reports; rondo-topo-mpi reports once for all nodes that are alike.\n"
           "Examples:\n"
           "  rondo-topo                                  this machine\n"
           "  rondo-topo --file dgx.xml --nodes 4         channels of a job on four such machines\n"
           "  rondo-topo --why GPU0 mlx5_3                why this path\n"
           "  rondo-topo --html topo.html                 a page to click through\n");
}
