/*
 * A streaming reader for untrusted XML: hands elements with their attributes to a visitor and keeps nothing.
 * Rejects documents with a DTD or entities (a visitor may allow a bare <!DOCTYPE name ...>, which is then
 * ignored) and loads nothing else. Decodes UTF-8, or UTF-16 if the first bytes say so, whatever the
 * declaration says. Bounds bytes, depth, elements, bytes per tag and attributes per element.
 */
#ifndef RONDO_TOPO_XML_XML_READ_H
#define RONDO_TOPO_XML_XML_READ_H

#include "base/status.h"

enum {
    RONDO_XML_MAX_DEPTH = 64, /* nesting of elements */
    RONDO_XML_MAX_ATTRS = 64,
    RONDO_XML_MAX_TAG = 65536 /* bytes per tag or comment */
};

struct rondo_xml_attr {
    const char *name, *value;
};

struct rondo_xml_element {
    const char *name; /* without prefix */
    const char *file;
    int line;
    int depth; /* 1 for the root */
    int nattrs;
    struct rondo_xml_attr attr[RONDO_XML_MAX_ATTRS];
};

enum rondo_xml_next {
    RONDO_XML_GO,
    RONDO_XML_SKIP /* skip this element's subtree */,
    RONDO_XML_STOP /* end the walk with success */
};

struct rondo_xml_visitor {
    /* Called with *next RONDO_XML_GO. The element's strings are valid until it returns. */
    rondo_status (*start)(void *arg, const struct rondo_xml_element *element, enum rondo_xml_next *next);
    rondo_status (*end)(void *arg, int depth, int line); /* for elements that were not skipped; may be NULL */
    const char *doctype;                                 /* allowed in <!DOCTYPE doctype ...>; NULL: none */
    int32_t max_elements;                                /* includes those in skipped subtrees */
};

/** Walk a whole document. Errors name file and line. */
rondo_status rondo_xml_walk(const char *text, size_t bytes, const char *file,
                            const struct rondo_xml_visitor *visitor, void *arg);
/** Read a whole file, regular or a pipe, of at most RONDO_XML_MAX_BYTES. Free *text with rondo_free. */
rondo_status rondo_xml_load(const char *file, char **text, size_t *bytes);
/** Write a file under a temporary name, then rename it. Writes directly to an existing file that is not
 * regular (/dev/stdout). */
rondo_status rondo_xml_store(const char *file, const char *text, size_t bytes);

/** @return the value of an attribute, NULL if there is none. */
const char *rondo_xml_attr(const struct rondo_xml_element *element, const char *name);
/** Read an integer attribute, decimal or 0x... If it is missing, fails when @a required and else leaves
 * *value. */
rondo_status rondo_xml_int(const struct rondo_xml_element *element, const char *name, int required,
                           int32_t min, int32_t max, int32_t *value);
/** Read a decimal fraction ("2.4") in thousandths, rounded; min and max are in thousandths too. Otherwise
 * like rondo_xml_int. */
rondo_status rondo_xml_thousandths(const struct rondo_xml_element *element, const char *name, int required,
                                   int32_t min, int32_t max, int32_t *value);
/** Fail with "FILE:LINE: <element attribute="value">: sentence"; @a attribute NULL: about the element
 * itself. @return RONDO_INVALID_ARGUMENT. */
rondo_status rondo_xml_fail(const struct rondo_xml_element *element, const char *attribute, const char *fmt,
                            ...) RONDO_PRINTF(3, 4);

#endif
