/* Fuzz topology files. Machines that are accepted are valid, and stay the same when they are written and read
 * again. */
#include <libxml/xmlerror.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "topo/xml/xml.h"

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void round_trip(const struct rondo_machine *machine)
{
    struct rondo_machine back = { 0 };
    char *text, *again, *differences;
    int n;
    require(rondo_machine_check(machine) == RONDO_SUCCESS);
    require(rondo_machine_text(machine, &text) == RONDO_SUCCESS);
    require(rondo_machine_parse(&back, text, strlen(text), "written") == RONDO_SUCCESS);
    require(rondo_machine_hash(&back) == rondo_machine_hash(machine));
    require(rondo_machine_diff(machine, &back, &differences, &n) == RONDO_SUCCESS && n == 0);
    require(rondo_machine_text(&back, &again) == RONDO_SUCCESS && strcmp(text, again) == 0);
    rondo_machine_release(&back);
    free(text);
    free(again);
    free(differences);
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
    struct rondo_machine machine = { 0 };
    rondo_log_mask = RONDO_LOG_NONE;
    xmlSetGenericErrorFunc(NULL, printed);
    if (memmem(data, bytes, "<topology", 9)) {
        return 0; /* this does not fuzz hwloc's own parser */
    }
    if (rondo_machine_parse(&machine, (const char *)data, bytes, "fuzz") == RONDO_SUCCESS) {
        round_trip(&machine);
    } else {
        require(machine.item == NULL && machine.nitems == 0);
    }
    rondo_machine_release(&machine);
    return 0;
}
