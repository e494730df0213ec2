#include "topo/xml/xml_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <libxml/xmlerror.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/array.h"
#include "base/mem.h"
#include "base/param.h"
#include "topo/xml/xml.h"

enum { CHUNK = 16384, READ_BYTES = 1 << 16 };

struct walk {
    xmlParserCtxtPtr parser;
    const char *file;
    const struct rondo_xml_visitor *visitor;
    void *arg;
    rondo_status status;
    int stopped, ending;   /* ending: the parser has all bytes */
    int depth, skip_depth; /* skip_depth: depth of the element being skipped, 0: none */
    int64_t elements;
    int doctype_line;                         /* line of an allowed DOCTYPE, 0 none */
    struct rondo_xml_element element;         /* the start tag in progress */
    char values[2 * RONDO_XML_MAX_TAG + 256]; /* values of its attributes */
};

/* ---- libxml2's callbacks ---- */

static int line_now(const struct walk *walk) { return walk->parser ? xmlSAX2GetLineNumber(walk->parser) : 1; }

static void walk_stop(struct walk *walk)
{
    walk->stopped = 1;
    xmlStopParser(walk->parser);
}

static void RONDO_PRINTF(2, 3) walk_fail(struct walk *walk, const char *fmt, ...)
{
    char text[RONDO_ERROR_TEXT];
    va_list args;
    if (walk->stopped) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    walk->status = rondo_fail(RONDO_INVALID_ARGUMENT, "%s:%d: %s", walk->file, line_now(walk), text);
    walk_stop(walk);
}

#define WITHOUT_DTD \
    "; documents with a DTD or entities are not supported: write the values out and remove <!DOCTYPE ...>"

static void on_doctype(void *arg, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    struct walk *walk = arg;
    (void)external, (void)system;
    if (walk->visitor->doctype && name && strcmp((const char *)name, walk->visitor->doctype) == 0) {
        walk->doctype_line = line_now(walk);
    } else {
        walk_fail(walk, "a document type declaration" WITHOUT_DTD);
    }
}

static void on_entity(void *arg, const xmlChar *name, int type, const xmlChar *public, const xmlChar *system,
                      xmlChar *content)
{
    (void)name, (void)type, (void)public, (void)system, (void)content;
    walk_fail(arg, "an entity declaration" WITHOUT_DTD);
}

static void on_unparsed(void *arg, const xmlChar *name, const xmlChar *public, const xmlChar *system,
                        const xmlChar *notation)
{
    (void)name, (void)public, (void)system, (void)notation;
    walk_fail(arg, "an entity declaration" WITHOUT_DTD);
}

static void on_notation(void *arg, const xmlChar *name, const xmlChar *public, const xmlChar *system)
{
    (void)name, (void)public, (void)system;
    walk_fail(arg, "a notation declaration" WITHOUT_DTD);
}

static void on_element_declared(void *arg, const xmlChar *name, int type, xmlElementContentPtr content)
{
    (void)name, (void)type, (void)content;
    walk_fail(arg, "an element declaration" WITHOUT_DTD);
}

static void on_attribute_declared(void *arg, const xmlChar *element, const xmlChar *name, int type, int def,
                                  const xmlChar *value, xmlEnumerationPtr tree)
{
    (void)element, (void)name, (void)type, (void)def, (void)value;
    xmlFreeEnumeration(tree);
    walk_fail(arg, "an attribute declaration" WITHOUT_DTD);
}

#if LIBXML_VERSION >= 21200
static void on_error(void *arg, const xmlError *error)
#else
static void on_error(void *arg, xmlErrorPtr error)
#endif
{
    struct walk *walk = arg;
    if (walk->stopped || !error || error->level < XML_ERR_ERROR) {
        return;
    }
    if (walk->ending && walk->depth > 0) { /* libxml2 words this differently */
        walk_fail(walk, "the file is truncated inside %d open element%s", walk->depth,
                  walk->depth == 1 ? "" : "s");
        return;
    }
    if (error->code == XML_ERR_INVALID_ENCODING || error->code == XML_ERR_INVALID_CHAR) {
        walk_fail(walk, "a byte that is not text; expected UTF-8 or UTF-16");
        return;
    }
    const char *message = error->message ? error->message : "not well-formed";
    int length = (int)strcspn(message, "\r\n");
    walk->status = rondo_fail(
        RONDO_INVALID_ARGUMENT, "%s:%d: not well-formed XML: %.*s; the file may be truncated or damaged",
        walk->file, error->line > 0 ? error->line : 1, length < 200 ? length : 200, message);
    walk_stop(walk);
}

/* libxml2 passes five pointers per attribute: name, prefix, namespace, first byte of the value, end of the
 * value. */
static int attrs_fill(struct walk *walk, int n, const xmlChar **attr)
{
    struct rondo_xml_element *element = &walk->element;
    size_t at = 0;
    element->nattrs = 0;
    for (int i = 0; i < n; i++, attr += 5) {
        size_t bytes = (size_t)(attr[4] - attr[3]);
        if (bytes >= sizeof walk->values - at) {
            walk_fail(walk, "the attributes of <%s> have more than %d bytes", element->name,
                      RONDO_XML_MAX_TAG);
            return 0;
        }
        if (attr[1]) {
            continue; /* in a namespace: not ours */
        }
        memcpy(walk->values + at, attr[3], bytes);
        walk->values[at + bytes] = '\0';
        element->attr[element->nattrs++] = (struct rondo_xml_attr){ (const char *)attr[0],
                                                                    walk->values + at };
        at += bytes + 1;
    }
    return 1;
}

static int limits_hold(struct walk *walk, int nattrs)
{
    if (nattrs > RONDO_XML_MAX_ATTRS) { /* namespaces cost as much, so they count */
        walk_fail(walk, "an element has %d attributes; at most %d are supported", nattrs,
                  RONDO_XML_MAX_ATTRS);
        return 0;
    }
    if (walk->depth > RONDO_XML_MAX_DEPTH) {
        walk_fail(walk, "elements nested deeper than the limit of %d", RONDO_XML_MAX_DEPTH);
        return 0;
    }
    if (walk->elements > walk->visitor->max_elements) {
        walk_fail(walk, "more than the limit of %d elements", walk->visitor->max_elements);
        return 0;
    }
    return 1;
}

static void on_start(void *arg, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int nspaces,
                     const xmlChar **spaces, int nattrs, int ndefaults, const xmlChar **attrs)
{
    struct walk *walk = arg;
    (void)prefix, (void)uri, (void)spaces, (void)ndefaults;
    walk->depth++;
    walk->elements++;
    if (walk->stopped || !limits_hold(walk, nattrs + nspaces) || walk->skip_depth) {
        return;
    }
    walk->element.name = (const char *)name;
    walk->element.file = walk->file;
    walk->element.line = line_now(walk);
    walk->element.depth = walk->depth;
    if (walk->depth == 1 && walk->doctype_line && strcmp(walk->element.name, walk->visitor->doctype) != 0) {
        walk_fail(walk, "a document type declaration above <%.64s>" WITHOUT_DTD, walk->element.name);
        return;
    }
    if (!attrs_fill(walk, nattrs, attrs)) {
        return;
    }
    enum rondo_xml_next next = RONDO_XML_GO;
    walk->status = walk->visitor->start(walk->arg, &walk->element, &next);
    if (walk->status != RONDO_SUCCESS || next == RONDO_XML_STOP) {
        walk_stop(walk);
    } else if (next == RONDO_XML_SKIP) {
        walk->skip_depth = walk->depth;
    }
}

static void on_end(void *arg, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    struct walk *walk = arg;
    (void)name, (void)prefix, (void)uri;
    if (walk->stopped) {
        return;
    }
    if (walk->skip_depth == 0 && walk->visitor->end) {
        walk->status = walk->visitor->end(walk->arg, walk->depth, line_now(walk));
        if (walk->status != RONDO_SUCCESS) {
            walk_stop(walk);
        }
    }
    if (walk->skip_depth == walk->depth) {
        walk->skip_depth = 0;
    }
    walk->depth--;
}

static const xmlSAXHandler handler = {
    .initialized = XML_SAX2_MAGIC,
    .internalSubset = on_doctype,
    .entityDecl = on_entity,
    .unparsedEntityDecl = on_unparsed,
    .notationDecl = on_notation,
    .elementDecl = on_element_declared,
    .attributeDecl = on_attribute_declared,
    .startElementNs = on_start,
    .endElementNs = on_end,
    .serror = on_error,
};

/* ---- encodings ---- */

/* libxml2 gets UTF-8 only and is told to ignore declared encodings: it would pass them to iconv, which
 * loads a module for each and reports failures on stderr. */
struct utf8 {
    const char *text;
    size_t bytes;
    char *owned; /* the UTF-8 made from UTF-16 */
};

static size_t utf8_put(char *out, uint32_t c)
{
    static const uint8_t mark[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i > 1; i--, c >>= 6) {
        out[i - 1] = (char)(0x80 | (c & 0x3f));
    }
    out[0] = (char)(n == 1 ? c : mark[n] | c);
    return n;
}

/* @return 0 if the text is not UTF-16. */
static int utf16_convert(const char *text, size_t bytes, int big, struct utf8 *utf8)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    uint32_t high = 0;
    for (; end - at >= 2; at += 2) {
        uint32_t unit = big ? (uint32_t)at[0] << 8 | at[1] : (uint32_t)at[1] << 8 | at[0];
        int is_high = unit >> 10 == 0x36, is_low = unit >> 10 == 0x37;
        if (is_low != (high != 0) || unit == 0) {
            return 0;
        }
        if (!is_high) {
            uint32_t c = is_low ? 0x10000 + ((high & 0x3ff) << 10 | (unit & 0x3ff)) : unit;
            utf8->bytes += utf8_put(utf8->owned + utf8->bytes, c);
        }
        high = is_high ? unit : 0;
    }
    return at == end && !high;
}

static rondo_status utf8_make(struct utf8 *utf8, const char *text, size_t bytes, const char *file)
{
    *utf8 = (struct utf8){ text, bytes, NULL };
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        utf8->text += 3;
        utf8->bytes -= 3;
    }
    int mark = bytes >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
    int little = bytes >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "<\0", 2) == 0);
    int big = bytes >= 2 && (memcmp(text, "\xfe\xff", 2) == 0 || memcmp(text, "\0<", 2) == 0);
    if (little || big) {
        utf8->bytes = 0;
        RONDO_TRY(rondo_calloc(&utf8->owned, bytes / 2 * 3 + 1, 1, "the text of a file"));
        if (!utf16_convert(text + 2 * mark, bytes - 2 * (size_t)mark, big, utf8)) {
            rondo_free(utf8->owned);
            return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: damaged or truncated UTF-16", file);
        }
        utf8->text = utf8->owned;
    }
    /* Without NULs and with this first byte, libxml2 has nothing to guess. */
    if (utf8->bytes == 0 || memchr(utf8->text, '\0', utf8->bytes) || !strchr("< \t\r\n", utf8->text[0])) {
        rondo_free(utf8->owned);
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "%s:1: not XML; expected UTF-8 or UTF-16 text that starts with <, without NUL bytes", file);
    }
    return RONDO_SUCCESS;
}

/* ---- the walk ---- */

/* Feed in pieces: what the parser cannot use yet is a tag or comment in progress, whose length must be
 * bounded because its attribute checks are quadratic. */
static void feed(struct walk *walk, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes && !walk->stopped;) {
        size_t piece = rondo_min_size(CHUNK, bytes - at);
        at += piece;
        xmlParseChunk(walk->parser, text + at - piece, (int)piece, 0);
        const xmlParserInput *input = walk->parser->input;
        if (!walk->stopped && input && input->end - input->cur > RONDO_XML_MAX_TAG) {
            walk_fail(walk, "a tag or comment exceeds the limit of %d bytes", RONDO_XML_MAX_TAG);
        }
    }
    walk->ending = 1;
    if (!walk->stopped) {
        xmlParseChunk(walk->parser, NULL, 0, 1);
    }
    if (!walk->stopped && !walk->parser->wellFormed) {
        walk_fail(walk, "not well-formed XML; the file may be truncated or damaged");
    }
}

/* Once, before threads can race for it. */
static pthread_once_t libxml2_once = PTHREAD_ONCE_INIT;
static void libxml2_init(void) { xmlInitParser(); }

rondo_status rondo_xml_walk(const char *text, size_t bytes, const char *file,
                            const struct rondo_xml_visitor *visitor, void *arg)
{
    struct walk *walk = NULL;
    struct utf8 utf8;
    rondo_status status;
    if (bytes == 0 || bytes > RONDO_XML_MAX_BYTES) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: %zu bytes, expected XML of 1 to %d bytes", file, bytes,
                          RONDO_XML_MAX_BYTES);
    }
    pthread_once(&libxml2_once, libxml2_init);
    RONDO_TRY(utf8_make(&utf8, text, bytes, file));
    RONDO_TRY_GOTO(RONDO_NEW(walk, "an XML reader"), out);
    *walk = (struct walk){ .file = file, .visitor = visitor, .arg = arg };
    xmlSAXHandler sax = handler; /* copied by libxml2 */
    walk->parser = xmlCreatePushParserCtxt(&sax, walk, NULL, 0, NULL);
    if (!walk->parser) {
        status = rondo_fail(RONDO_SYSTEM_ERROR, "%s: no memory for libxml2's parser", file);
        goto out;
    }
    xmlCtxtUseOptions(walk->parser, XML_PARSE_NONET | XML_PARSE_IGNORE_ENC);
    feed(walk, utf8.text, utf8.bytes);
    status = walk->status;
    xmlFreeDoc(walk->parser->myDoc); /* libxml2 creates one when it sees entities */
    walk->parser->myDoc = NULL;
    xmlFreeParserCtxt(walk->parser);
out:
    rondo_free(walk);
    rondo_free(utf8.owned);
    return status;
}

const char *rondo_xml_attr(const struct rondo_xml_element *element, const char *name)
{
    for (int i = 0; i < element->nattrs; i++) {
        if (strcmp(element->attr[i].name, name) == 0) {
            return element->attr[i].value;
        }
    }
    return NULL;
}

rondo_status rondo_xml_fail(const struct rondo_xml_element *element, const char *attribute, const char *fmt,
                            ...)
{
    char text[RONDO_ERROR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *value = attribute ? rondo_xml_attr(element, attribute) : NULL;
    if (value) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s:%d: <%.64s %s=\"%.64s\">: %s", element->file,
                          element->line, element->name, attribute, value, text);
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s:%d: <%.64s>: %s", element->file, element->line,
                      element->name, text);
}

/* *text NULL: missing and not required. */
static rondo_status attr_get(const struct rondo_xml_element *element, const char *name, int required,
                             const char **text)
{
    *text = rondo_xml_attr(element, name);
    return *text || !required ? RONDO_SUCCESS
                              : rondo_xml_fail(element, NULL, "the attribute %s is missing", name);
}

rondo_status rondo_xml_int(const struct rondo_xml_element *element, const char *name, int required,
                           int32_t min, int32_t max, int32_t *value)
{
    const char *text;
    char *end;
    RONDO_TRY(attr_get(element, name, required, &text));
    if (!text) {
        return RONDO_SUCCESS;
    }
    errno = 0;
    long long number = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    if (errno || end == text || *end || number < min || number > max) {
        return rondo_xml_fail(element, name, "expected an integer from %d to %d", min, max);
    }
    *value = (int32_t)number;
    return RONDO_SUCCESS;
}

/* Digits up to the result's limit; -1: none, or above the limit. */
static int64_t decimal_parse(const char *text, int64_t max)
{
    int64_t value = 0;
    int fraction = -1, digits = 0; /* fraction: digits after the point */
    for (; *text; text++) {
        if (*text == '.' && fraction < 0) {
            fraction = 0;
        } else if (*text < '0' || *text > '9') {
            return -1;
        } else if (fraction < 3) {
            value = 10 * value + *text - '0';
            digits++;
            fraction += fraction >= 0;
        } else if (fraction++ == 3) {
            value += *text >= '5';
        }
        if (value > max) {
            return -1;
        }
    }
    for (fraction = fraction < 0 ? 0 : fraction; fraction < 3; fraction++) {
        value *= 10;
    }
    return digits ? value : -1;
}

rondo_status rondo_xml_thousandths(const struct rondo_xml_element *element, const char *name, int required,
                                   int32_t min, int32_t max, int32_t *value)
{
    const char *text;
    RONDO_TRY(attr_get(element, name, required, &text));
    if (!text) {
        return RONDO_SUCCESS;
    }
    int64_t number = decimal_parse(text, max);
    if (number < min || number > max) {
        return rondo_xml_fail(element, name, "expected a number from %d.%03d to %d.%03d", min / 1000,
                              min % 1000, max / 1000, max % 1000);
    }
    *value = (int32_t)number;
    return RONDO_SUCCESS;
}

/* ---- files ---- */

static rondo_status file_open(const char *file, const char *name, int *fd)
{
    struct stat st;
    *fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (*fd < 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "cannot open %s: %m", name);
    }
    if (fstat(*fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode))) {
        close(*fd);
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s is %s; expected an XML file", name,
                          S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_xml_load(const char *file, char **text, size_t *bytes)
{
    int fd;
    size_t n = 0;
    int capacity = 0;
    char *buffer = NULL, label[RONDO_FILE_LABEL];
    const char *name = rondo_param_file_label(file, label);
    rondo_status status;
    RONDO_TRY(file_open(file, name, &fd));
    for (;;) {
        RONDO_TRY_GOTO(RONDO_ARRAY_RESERVE(buffer, (int)n, (int64_t)n + READ_BYTES, capacity, "a file"), out);
        ssize_t got = read(fd, buffer + n, (size_t)capacity - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            status = rondo_fail(RONDO_SYSTEM_ERROR, "cannot read %s: %m", name);
            goto out;
        }
        n += (size_t)got;
        if (got == 0) {
            break;
        }
        if (n > RONDO_XML_MAX_BYTES) {
            status = rondo_fail(RONDO_INVALID_ARGUMENT, "%s exceeds the limit of %d bytes", name,
                                RONDO_XML_MAX_BYTES);
            goto out;
        }
    }
    *text = buffer;
    *bytes = n;
    buffer = NULL;
out:
    rondo_free(buffer);
    close(fd);
    return status;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = write(fd, text, bytes);
        if (put < 0 && errno != EINTR) {
            return -1;
        }
        text += put > 0 ? put : 0;
        bytes -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

rondo_status rondo_xml_store(const char *file, const char *text, size_t bytes)
{
    struct stat st;
    char name[4096], label[RONDO_FILE_LABEL];
    uint64_t random;
    int direct = stat(file, &st) == 0 && !S_ISREG(st.st_mode);
    RONDO_TRY(rondo_random(&random, sizeof random));
    int length = direct ? snprintf(name, sizeof name, "%s", file)
                        : snprintf(name, sizeof name, "%s.%08" PRIx32, file, (uint32_t)random);
    if (length >= (int)sizeof name) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "the name of the output file %.100s... is too long (%d bytes)",
                          rondo_param_file_label(file, label), length);
    }
    int fd = open(name, direct ? O_WRONLY | O_CLOEXEC | O_NOCTTY : O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                  0666);
    if (fd < 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot write %s: %m", rondo_param_file_label(file, label));
    }
    int bad = write_all(fd, text, bytes);
    int saved = errno;
    if (close(fd) != 0 && !bad) {
        bad = -1;
        saved = errno;
    }
    if (!bad && !direct && rename(name, file) != 0) {
        bad = -1;
        saved = errno;
    }
    if (bad) {
        if (!direct) {
            unlink(name);
        }
        errno = saved;
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot write %s: %m", rondo_param_file_label(file, label));
    }
    return RONDO_SUCCESS;
}
