/* What is known of each kind of item, as one table: the reader, the writer, the checks, the hash and the
 * differences go over it. A field's name is its attribute in topology files. */
#ifndef RONDO_TOPO_MACHINE_FIELD_H
#define RONDO_TOPO_MACHINE_FIELD_H

#include "topo/machine.h"

enum rondo_field_type {
    RONDO_FIELD_INT,    /* decimal */
    RONDO_FIELD_HEX,    /* with or without 0x */
    RONDO_FIELD_BUSID,  /* address of a device */
    RONDO_FIELD_TARGET, /* the same, or the hidden one */
    RONDO_FIELD_NAME,   /* printable ASCII without quotes, & and angle brackets: it stands in XML as it is */
    RONDO_FIELD_CORES,  /* 32-bit hexadecimal words, highest first; when written only as many as NCCL reads */
    RONDO_FIELD_CORES_HIGH, /* the others, of the same member */
    RONDO_FIELD_SPEED,      /* "16 GT/s" */
    RONDO_FIELD_ARCH,
    RONDO_FIELD_VENDOR,
    RONDO_FIELD_REAL,
    RONDO_FIELD_UUID,
};

enum rondo_field_flag {
    RONDO_FIELD_REQUIRED = 1,
    RONDO_FIELD_IDENTITY =
        2, /* tells equal machines apart (guid, uuid, rank): neither in the hash nor a difference */
    RONDO_FIELD_OPTIONAL = 4, /* written only when known: not `unknown` below */
};

struct rondo_field {
    const char *name;
    uint8_t kind, type, flags, bytes; /* bytes: of the member */
    uint16_t offset;
    int64_t unknown;
    int64_t min, max; /* of numbers */
};

enum { RONDO_FIELD_TEXT = 320 }; /* bytes that the text of any field needs */

/** Fields of a kind in the order of files. @return how many in *n. */
const struct rondo_field *rondo_fields(enum rondo_item_kind kind, int *n);
/** The value as files have it. @return text, of RONDO_FIELD_TEXT bytes. */
const char *rondo_field_text(const struct rondo_field *field, const struct rondo_item *item, char *text);
/** Set the field from a text. @return NULL, or what was expected, in @a expected of RONDO_FIELD_TEXT bytes.
 */
const char *rondo_field_parse(const struct rondo_field *field, struct rondo_item *item, const char *text,
                              char *expected);
/** Is the value in range? As rondo_field_parse. */
const char *rondo_field_check(const struct rondo_field *field, const struct rondo_item *item, char *expected);
int rondo_field_known(const struct rondo_field *field, const struct rondo_item *item);
uint64_t rondo_field_hash(const struct rondo_field *field, const struct rondo_item *item, uint64_t seed);

#endif
