/*
 * XML from outside, read piece by piece: elements with their attributes are handed to a visitor, nothing is
 * kept. Documents with a DTD or entities are refused (a visitor may allow a bare <!DOCTYPE name ...>, which
 * is then ignored); nothing is loaded from anywhere. UTF-8, or UTF-16 by its first bytes, whatever is
 * declared. Bounded: bytes, depth, elements, bytes of one tag, attributes of one element.
 */
#ifndef RONDO_TOPO_XML_XML_READ_H
#define RONDO_TOPO_XML_XML_READ_H

#include "base/status.h"

enum {
    RONDO_XML_MAX_DEPTH = 64, /* elements inside each other */
    RONDO_XML_MAX_ATTRS = 64,
    RONDO_XML_MAX_TAG = 65536 /* bytes of a tag or comment */
};

struct rondo_xml_attr {
    const char *name, *value;
};

struct rondo_xml_element {
    const char *name; /* without a prefix */
    const char *file;
    int line;
    int depth; /* the root: 1 */
    int nattrs;
    struct rondo_xml_attr attr[RONDO_XML_MAX_ATTRS];
};

enum rondo_xml_next {
    RONDO_XML_GO,
    RONDO_XML_SKIP /* this element's subtree */,
    RONDO_XML_STOP /* the walk ends with success */
};

struct rondo_xml_visitor {
    /* *next is RONDO_XML_GO before. The element's texts live until the call returns. */
    rondo_status (*start)(void *arg, const struct rondo_xml_element *element, enum rondo_xml_next *next);
    rondo_status (*end)(void *arg, int depth, int line); /* of elements that were not skipped; may be NULL */
    const char *doctype;                                 /* allowed in <!DOCTYPE doctype ...>; NULL: none */
    int32_t max_elements;                                /* also counts those in skipped subtrees */
};

/** A whole document. Errors name file and line. */
rondo_status rondo_xml_walk(const char *text, size_t bytes, const char *file,
                            const struct rondo_xml_visitor *visitor, void *arg);
/** A file as a whole; *text is allocated, rondo_free it. At most RONDO_XML_MAX_BYTES; regular files and
 * pipes. */
rondo_status rondo_xml_load(const char *file, char **text, size_t *bytes);
/** Write a file under a temporary name, then rename it. What is there and no regular file (/dev/stdout) is
 * written to directly. */
rondo_status rondo_xml_store(const char *file, const char *text, size_t bytes);

/** Value of an attribute, NULL: not there. */
const char *rondo_xml_attr(const struct rondo_xml_element *element, const char *name);
/** An integer, decimal or 0x...; an attribute that is not there leaves *value, or fails when @a required. */
rondo_status rondo_xml_int(const struct rondo_xml_element *element, const char *name, int required,
                           int32_t min, int32_t max, int32_t *value);
/** A decimal fraction ("2.4") in thousandths, the rest rounded. As rondo_xml_int; min and max in thousandths.
 */
rondo_status rondo_xml_thousandths(const struct rondo_xml_element *element, const char *name, int required,
                                   int32_t min, int32_t max, int32_t *value);
/** "FILE:LINE: <element attribute="value">: sentence"; @a attribute NULL: the element as such. @return
 * RONDO_INVALID_ARGUMENT. */
rondo_status rondo_xml_fail(const struct rondo_xml_element *element, const char *attribute, const char *fmt,
                            ...) RONDO_PRINTF(3, 4);

#endif
