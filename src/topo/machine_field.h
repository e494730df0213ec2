/* The fields of each kind of item, as one table that reader, writer, checks, hash and diff share. A field
 * is named after its attribute in topology files. */
#ifndef RONDO_TOPO_MACHINE_FIELD_H
#define RONDO_TOPO_MACHINE_FIELD_H

#include "topo/machine.h"

enum rondo_field_type {
    RONDO_FIELD_INT,    /* decimal */
    RONDO_FIELD_HEX,    /* with or without 0x */
    RONDO_FIELD_BUSID,  /* address of a device */
    RONDO_FIELD_TARGET, /* address of a device, or RONDO_BUSID_HIDDEN */
    RONDO_FIELD_NAME,   /* printable ASCII without quotes, & and angle brackets: needs no escaping in XML */
    RONDO_FIELD_CORES,  /* 32-bit hexadecimal words, highest first; writes only as many as NCCL reads */
    RONDO_FIELD_CORES_HIGH, /* the remaining words of the same member */
    RONDO_FIELD_SPEED,      /* "16 GT/s" */
    RONDO_FIELD_ARCH,
    RONDO_FIELD_VENDOR,
    RONDO_FIELD_REAL,
    RONDO_FIELD_UUID,
};

enum rondo_field_flag {
    RONDO_FIELD_REQUIRED = 1,
    RONDO_FIELD_IDENTITY =
        2, /* identifies one of many equal machines (guid, uuid, rank): not part of hash and diff */
    RONDO_FIELD_OPTIONAL = 4, /* written only if known, that is different from `unknown` below */
};

struct rondo_field {
    const char *name;
    uint8_t kind, type, flags, bytes; /* bytes: size of the member */
    uint16_t offset;
    int64_t unknown;
    int64_t min, max; /* for numbers */
};

enum { RONDO_FIELD_TEXT = 320 }; /* enough for the text of any field */

/** @return the fields of a kind in file order; *n gets their number. */
const struct rondo_field *rondo_fields(enum rondo_item_kind kind, int *n);
/** Write a field's value as files have it into text[RONDO_FIELD_TEXT]. @return text. */
const char *rondo_field_text(const struct rondo_field *field, const struct rondo_item *item, char *text);
/** Set a field from text. @return NULL, or what was expected, written to expected[RONDO_FIELD_TEXT]. */
const char *rondo_field_parse(const struct rondo_field *field, struct rondo_item *item, const char *text,
                              char *expected);
/** Check the range of a field's value. @return as rondo_field_parse. */
const char *rondo_field_check(const struct rondo_field *field, const struct rondo_item *item, char *expected);
int rondo_field_known(const struct rondo_field *field, const struct rondo_item *item);
uint64_t rondo_field_hash(const struct rondo_field *field, const struct rondo_item *item, uint64_t seed);

#endif
