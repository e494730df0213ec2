/* hwloc's XML is looked at before hwloc reads it: hwloc 2 follows pointers that a file lacking some
 * attributes leaves empty, and recurses as deep as the file goes. */
#include "topo/detect/detect_impl.h"

#include <string.h>
#include "topo/xml/xml_read.h"

enum { MAX_INDEX = 65535 };

/* Sets of cores and NUMA nodes: "0xff", "0x1,0xffffffff,,0x3", "0xf...f". */
static rondo_status set_check(const struct rondo_xml_element *element, const char *name)
{
    const char *value = rondo_xml_attr(element, name);
    if (!value || strncmp(value, "0x", 2) != 0 || value[strspn(value, "0123456789abcdefx,.")] != '\0') {
        return rondo_xml_fail(element, value ? name : NULL,
                              "%s is %s; expected hexadecimal words as lstopo writes them", name,
                              value ? "not a set" : "missing");
    }
    return RONDO_SUCCESS;
}

static rondo_status sets_check(const struct rondo_xml_element *element, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        RONDO_TRY(set_check(element, names[i]));
    }
    return RONDO_SUCCESS;
}

static int is_one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static rondo_status object_check(const struct rondo_xml_element *element)
{
    static const char *const setless[] = { "Bridge", "PCIDev", "OSDev", "Misc" }, *const numbered[] = {
        "PU", "NUMANode"
    };
    static const char *const sets[] = { "cpuset", "complete_cpuset", "nodeset", "complete_nodeset" };
    static const char *const root_sets[] = { "allowed_cpuset", "allowed_nodeset" };
    const char *type = rondo_xml_attr(element, "type");
    int32_t index = 0;
    if (!type) {
        return rondo_xml_fail(element, NULL, "type is missing; expected an object as lstopo writes it");
    }
    if (is_one_of(type, setless, RONDO_COUNTOF(setless))) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(sets_check(element, sets, RONDO_COUNTOF(sets)));
    if (element->depth == 2) {
        RONDO_TRY(sets_check(element, root_sets, RONDO_COUNTOF(root_sets)));
    }
    return rondo_xml_int(element, "os_index", is_one_of(type, numbered, RONDO_COUNTOF(numbered)), 0,
                         MAX_INDEX, &index);
}

static rondo_status element_check(void *arg, const struct rondo_xml_element *element,
                                  enum rondo_xml_next *next)
{
    (void)arg, (void)next;
    if (element->depth == 1) {
        const char *version = rondo_xml_attr(element, "version");
        return version && strncmp(version, "2.", 2) == 0
                   ? RONDO_SUCCESS
                   : rondo_xml_fail(
                         element, version ? "version" : NULL,
                         "not of hwloc 2; convert it: lstopo -i FILE --of xml NEWFILE, with hwloc 2");
    }
    return strcmp(element->name, "object") == 0 ? object_check(element) : RONDO_SUCCESS;
}

rondo_status rondo_detect_xml_check(const char *text, size_t bytes, const char *name)
{
    static const struct rondo_xml_visitor visitor = { .start = element_check,
                                                      .doctype = "topology",
                                                      .max_elements = 16 * RONDO_MACHINE_MAX_ITEMS };
    return rondo_xml_walk(text, bytes, name, &visitor, NULL);
}
