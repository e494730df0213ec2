/* Fuzz graph files for nodes with and without GPUs, alone and among other nodes. Graphs that are accepted fit
 * the node, and stay the same when they are written and read again. */
#include <libxml/xmlerror.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "topo/xml/xml.h"

enum { NRANKS = 3, NTOPOS = 4 };

static const char gpus[] =
    "<system version='1'><cpu numaid='0' arch='x86_64' vendor='AuthenticAMD' familyid='1' modelid='1'>"
    "<pci busid='01:00.0' class='0x03' link_speed='16 GT/s'><gpu dev='0' sm='80'/></pci>"
    "<pci busid='02:00.0' class='0x03' link_speed='16 GT/s'><gpu dev='1' sm='80'/></pci>"
    "<pci busid='03:00.0' class='0x03' link_speed='16 GT/s'><gpu dev='5' sm='80'/></pci>"
    "<nic><net name='a' dev='0'/><net name='b' dev='1'/></nic></cpu></system>";
static const char cores[] = "<system version='1'><cpu numaid='0' arch='x86_64' vendor='AuthenticAMD' "
                            "familyid='1' modelid='1' affinity='f'>"
                            "<nic><net name='a' dev='0'/><net name='b' dev='1'/></nic></cpu></system>";

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static struct rondo_topo **topos_make(void)
{
    static struct rondo_machine machines[2];
    static struct rondo_topo *topos[NTOPOS];
    require(rondo_machine_parse(&machines[0], gpus, sizeof gpus - 1, "gpus") == RONDO_SUCCESS);
    require(rondo_machine_parse(&machines[1], cores, sizeof cores - 1, "cores") == RONDO_SUCCESS);
    for (int i = 0; i < NTOPOS; i++) {
        struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
        struct rondo_topo_rank ranks[NRANKS];
        options.nnodes = 1 + i / 2;
        for (int r = 0; r < NRANKS; r++) {
            ranks[r] = (struct rondo_topo_rank){ .rank = r, .busid = i % 2 ? -1 : (int64_t)(r + 1) << 12 };
        }
        require(rondo_topo_create(&topos[i], &machines[i % 2], ranks, NRANKS, &options) == RONDO_SUCCESS);
    }
    return topos;
}

static void graphs_release(struct rondo_graph *graphs)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
}

static void round_trip(const struct rondo_graph *graphs, const struct rondo_topo *topo)
{
    struct rondo_graph back[RONDO_NUM_GRAPHS];
    char *text, *again;
    require(rondo_graphs_text(graphs, topo, &text) == RONDO_SUCCESS);
    require(rondo_graphs_parse(back, topo, text, strlen(text), "written") == RONDO_SUCCESS);
    require(rondo_graphs_text(back, topo, &again) == RONDO_SUCCESS && strcmp(text, again) == 0);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        size_t n = (size_t)graphs[id].nchannels * (size_t)graphs[id].ndevs;
        require(back[id].nchannels == graphs[id].nchannels &&
                (n == 0 || memcmp(back[id].order, graphs[id].order, 2 * n) == 0));
        if (graphs[id].nchannels) {
            (void)rondo_graph_check(topo, &graphs[id]); /* a file may claim more than the node has */
        }
    }
    graphs_release(back);
    free(text);
    free(again);
}

/* libxml2 must print nothing itself, because Rondo words all errors. */
static void printed(void *arg, const char *fmt, ...)
{
    (void)arg, (void)fmt;
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct rondo_topo **topos;
    rondo_log_mask = RONDO_LOG_NONE;
    xmlSetGenericErrorFunc(NULL, printed);
    topos = topos ? topos : topos_make();
    for (int i = 0; i < NTOPOS; i++) {
        struct rondo_graph graphs[RONDO_NUM_GRAPHS];
        if (rondo_graphs_parse(graphs, topos[i], (const char *)data, bytes, "fuzz") == RONDO_SUCCESS) {
            round_trip(graphs, topos[i]);
        }
        graphs_release(graphs);
    }
    return 0;
}
