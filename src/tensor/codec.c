/* Tensor messages to bytes and back. */
#include "tensor/codec.h"

#include <endian.h>
#include <string.h>

enum { HEAD = 12 }; /* type, flags, bytes of the whole message (16 bits), index, epoch */

const char *rondo_tensor_type_name(int type)
{
#define NAME_ROW(ctx, NAME, number, fields) [number] = #NAME,
    static const char *const names[] = { RONDO_TENSOR_MESSAGE_TABLE(NAME_ROW, ) };
#undef NAME_ROW
    return type >= 0 && type < (int)RONDO_COUNTOF(names) ? names[type] : NULL;
}

static unsigned fields_of(int type)
{
#define FIELDS_ROW(ctx, NAME, number, fields) [number] = fields,
    static const uint16_t table[] = { RONDO_TENSOR_MESSAGE_TABLE(FIELDS_ROW, ) };
#undef FIELDS_ROW
    return table[type];
}

/* ---- numbers ---- */

struct out {
    uint8_t *at, *end;
    int full;
};

static void put(struct out *out, const void *data, size_t bytes)
{
    if (out->full || (size_t)(out->end - out->at) < bytes) {
        out->full = 1;
        return;
    }
    if (bytes > 0) {
        memcpy(out->at, data, bytes);
    }
    out->at += bytes;
}

static void put8(struct out *out, unsigned v) { put(out, &(uint8_t){ (uint8_t)v }, 1); }
static void put16(struct out *out, unsigned v) { put(out, &(uint16_t){ htobe16((uint16_t)v) }, 2); }
static void put32(struct out *out, uint32_t v) { put(out, &(uint32_t){ htobe32(v) }, 4); }
static void put64(struct out *out, uint64_t v) { put(out, &(uint64_t){ htobe64(v) }, 8); }

struct in {
    const uint8_t *at, *end;
    int short_of; /* a field was missing */
};

static const uint8_t *take(struct in *in, size_t bytes)
{
    static const uint8_t zeros[8];
    const uint8_t *at = in->at;
    if (in->short_of || (size_t)(in->end - in->at) < bytes) {
        in->short_of = 1;
        return bytes <= sizeof(zeros) ? zeros : NULL;
    }
    in->at += bytes;
    return at;
}

static unsigned take8(struct in *in) { return *take(in, 1); }
static unsigned take16(struct in *in)
{
    uint16_t v;
    memcpy(&v, take(in, 2), 2);
    return be16toh(v);
}
static uint32_t take32(struct in *in)
{
    uint32_t v;
    memcpy(&v, take(in, 4), 4);
    return be32toh(v);
}
static uint64_t take64(struct in *in)
{
    uint64_t v;
    memcpy(&v, take(in, 8), 8);
    return be64toh(v);
}

/* ---- meta-data ---- */

rondo_status rondo_tensor_meta_check(const struct rondo_tensor_meta *meta)
{
    uint64_t bytes;
    if (meta->type < 0 || meta->type >= RONDO_NUM_DTYPES) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%d is not a data type", (int)meta->type);
    }
    if (meta->ndims < 0 || meta->ndims > RONDO_TENSOR_MAX_DIMS) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%d dimensions; a tensor has at most %d", meta->ndims,
                                RONDO_TENSOR_MAX_DIMS);
    }
    bytes = rondo_dtype_size(meta->type);
    for (int i = 0; i < meta->ndims; i++) {
        if (meta->shape[i] < 0) {
            return rondo_fail_quiet(RONDO_REMOTE_ERROR, "dimension %d is negative: %lld", i,
                                    (long long)meta->shape[i]);
        }
        if (__builtin_mul_overflow(bytes, (uint64_t)meta->shape[i], &bytes) || bytes > INT64_MAX) {
            return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                    "the bytes of the shape overflow at dimension %d, which is %lld", i,
                                    (long long)meta->shape[i]);
        }
    }
    if (meta->bytes > INT64_MAX || (meta->dead && meta->bytes != 0) ||
        (!meta->dead && !meta->packed && meta->bytes != bytes)) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%llu bytes%s, but the shape has %llu",
                                (unsigned long long)meta->bytes, meta->dead ? " of a dead tensor" : "",
                                (unsigned long long)bytes);
    }
    return RONDO_SUCCESS;
}

int rondo_tensor_meta_same(const struct rondo_tensor_meta *a, const struct rondo_tensor_meta *b)
{
    return a->type == b->type && a->dead == b->dead && a->packed == b->packed && a->ndims == b->ndims &&
           a->bytes == b->bytes && memcmp(a->shape, b->shape, (size_t)a->ndims * sizeof(a->shape[0])) == 0;
}

static rondo_status outside(const rondo_tensor_slice *slice, const char *what, uint64_t have)
{
    return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "%llu %s from %llu on were asked for, but it has %llu",
                            (unsigned long long)slice->count, what, (unsigned long long)slice->first,
                            (unsigned long long)have);
}

rondo_status rondo_tensor_meta_slice(const struct rondo_tensor_meta *whole, const rondo_tensor_slice *slice,
                                     struct rondo_tensor_meta *part, uint64_t *offset)
{
    uint64_t rows = whole->ndims > 0 ? (uint64_t)whole->shape[0] : 1;
    struct rondo_tensor_meta result = *whole;
    *offset = 0;
    if (slice->part == RONDO_TENSOR_ALL || whole->dead) {
        *part = result;
        return RONDO_SUCCESS;
    }
    if (whole->packed) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "a slice was asked for, but it is packed as a whole");
    }
    if (slice->part == RONDO_TENSOR_BYTES) {
        if (slice->first > whole->bytes || slice->count > whole->bytes - slice->first) {
            return outside(slice, "bytes", whole->bytes);
        }
        result = (struct rondo_tensor_meta){ .type = RONDO_UINT8, .ndims = 1, .bytes = slice->count };
        result.shape[0] = (int64_t)slice->count;
        *offset = slice->first;
    } else {
        if (slice->first > rows || slice->count > rows - slice->first) {
            return outside(slice, "rows", rows);
        }
        uint64_t row = rows > 0 ? whole->bytes / rows : 0;
        result.ndims = whole->ndims > 0 ? whole->ndims : 1;
        result.shape[0] = (int64_t)slice->count;
        result.bytes = slice->count * row;
        *offset = slice->first * row;
    }
    *part = result;
    return RONDO_SUCCESS;
}

static void put_meta(struct out *out, const struct rondo_tensor_meta *meta)
{
    put8(out, meta->dead != 0);
    put8(out, meta->packed != 0);
    put8(out, (unsigned)meta->type);
    put8(out, (unsigned)meta->ndims);
    put64(out, meta->bytes);
    for (int i = 0; i < meta->ndims; i++) {
        put64(out, (uint64_t)meta->shape[i]);
    }
}

static void take_meta(struct in *in, struct rondo_tensor_meta *meta)
{
    unsigned dead = take8(in), packed = take8(in), ndims;
    meta->dead = (int)dead;
    meta->packed = (int)packed;
    meta->type = (rondo_dtype)take8(in);
    ndims = take8(in);
    meta->ndims = (int)ndims;
    meta->bytes = take64(in);
    for (unsigned i = 0; i < ndims && i < RONDO_TENSOR_MAX_DIMS; i++) {
        meta->shape[i] = (int64_t)take64(in);
    }
}

/* ---- messages ---- */

size_t rondo_tensor_encode(const struct rondo_tensor_message *m, uint8_t *out_bytes, size_t room)
{
    unsigned fields = fields_of((int)m->type);
    struct out out = { out_bytes, out_bytes + room, 0 };
    size_t bytes, text = rondo_min_size(m->text_bytes, RONDO_TENSOR_MAX_TEXT);
    uint8_t *length = out_bytes + 2;
    put8(&out, m->type);
    put8(&out, m->flags);
    put16(&out, 0);
    put32(&out, m->index);
    put32(&out, m->epoch);
    if (fields & RONDO_TENSOR_F_STEP) {
        put64(&out, m->step);
    }
    if (fields & RONDO_TENSOR_F_SLICE) {
        put8(&out, m->slice.part);
        put64(&out, m->slice.first);
        put64(&out, m->slice.count);
    }
    if (fields & RONDO_TENSOR_F_PLACE) {
        put64(&out, m->address);
        for (int i = 0; i < RONDO_TENSOR_PORTS; i++) {
            put32(&out, m->rkey[i]);
        }
    }
    if (fields & RONDO_TENSOR_F_META) {
        put_meta(&out, &m->meta);
    }
    if (fields & RONDO_TENSOR_F_CHECKSUM) {
        put64(&out, m->checksum);
    }
    if (fields & RONDO_TENSOR_F_STATUS) {
        put32(&out, (uint32_t)m->status);
        put16(&out, (unsigned)text);
        put(&out, m->text, text);
    }
    if (fields & RONDO_TENSOR_F_RANK) {
        put32(&out, (uint32_t)m->rank);
    }
    if (fields & RONDO_TENSOR_F_NUMBER) {
        put32(&out, m->number);
    }
    if (fields & RONDO_TENSOR_F_COUNT) {
        put32(&out, m->count);
    }
    if (fields & RONDO_TENSOR_F_NAME) {
        put16(&out, (unsigned)m->name_bytes);
        put(&out, m->name, m->name_bytes);
    }
    bytes = (size_t)(out.at - out_bytes);
    if (out.full || bytes > RONDO_TENSOR_MAX_MESSAGE) {
        return 0;
    }
    memcpy(length, &(uint16_t){ htobe16((uint16_t)bytes) }, 2);
    return bytes;
}

void rondo_tensor_encode_count(uint8_t *run, size_t bytes, uint32_t count)
{
    memcpy(run + bytes - sizeof(count), &(uint32_t){ htobe32(count) }, sizeof(count)); /* its last field */
}

static rondo_status bad(int type, const char *what, unsigned long long value)
{
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a tensor message (%s) has %s %llu",
                            rondo_tensor_type_name(type), what, value);
}

static rondo_status check_fields(const struct rondo_tensor_message *m, unsigned fields)
{
    if ((m->flags & ~(unsigned)RONDO_TENSOR_ALL_FLAGS) != 0) {
        return bad((int)m->type, "unknown flags", m->flags);
    }
    if (m->index > RONDO_TENSOR_LAST_INDEX) {
        return bad((int)m->type, "the reserved request index", m->index);
    }
    if ((fields & RONDO_TENSOR_F_STEP) && m->step == RONDO_TENSOR_LATEST &&
        (m->type == RONDO_TENSOR_META_DATA_RESPONSE || m->type == RONDO_TENSOR_TENSOR_RE_REQUEST)) {
        return bad((int)m->type, "the reserved step", m->step);
    }
    if ((fields & RONDO_TENSOR_F_SLICE) && (unsigned)m->slice.part > RONDO_TENSOR_ROWS) {
        return bad((int)m->type, "an unknown kind of slice", (unsigned)m->slice.part);
    }
    if (fields & RONDO_TENSOR_F_META) {
        if (m->meta.dead > 1 || m->meta.packed > 1) {
            return bad((int)m->type, "a flag of its meta-data that is",
                       (unsigned)(m->meta.dead | m->meta.packed));
        }
        RONDO_TRY(rondo_tensor_meta_check(&m->meta));
    }
    if ((fields & RONDO_TENSOR_F_STATUS) &&
        (m->status <= RONDO_SUCCESS || m->status >= RONDO_NUM_STATUSES || m->status == RONDO_IN_PROGRESS)) {
        return bad((int)m->type, "a status that is no error:", (unsigned)m->status);
    }
    if ((fields & RONDO_TENSOR_F_STATUS) && m->text_bytes > RONDO_TENSOR_MAX_TEXT) {
        return bad((int)m->type, "a text of", m->text_bytes);
    }
    if ((fields & RONDO_TENSOR_F_NUMBER) && m->number >= RONDO_TENSOR_NUMBERS) {
        return bad((int)m->type, "the number", m->number);
    }
    if ((fields & RONDO_TENSOR_F_COUNT) &&
        (m->count == 0 || m->count > RONDO_TENSOR_NUMBERS - m->number ||
         m->count > RONDO_TENSOR_IMM_FRAME - rondo_min_size(m->index, RONDO_TENSOR_IMM_FRAME))) {
        return bad((int)m->type, "the count", m->count);
    }
    if ((fields & RONDO_TENSOR_F_NAME) && (m->name_bytes == 0 || m->name_bytes > RONDO_TENSOR_MAX_KEY ||
                                           (m->name != NULL && memchr(m->name, 0, m->name_bytes) != NULL))) {
        return bad((int)m->type, "a key that contains 0 or whose bytes are", m->name_bytes);
    }
    return RONDO_SUCCESS;
}

static void take_fields(struct in *in, struct rondo_tensor_message *m, unsigned fields)
{
    if (fields & RONDO_TENSOR_F_STEP) {
        m->step = take64(in);
    }
    if (fields & RONDO_TENSOR_F_SLICE) {
        m->slice.part = (enum rondo_tensor_part)take8(in);
        m->slice.first = take64(in);
        m->slice.count = take64(in);
    }
    if (fields & RONDO_TENSOR_F_PLACE) {
        m->address = take64(in);
        for (int i = 0; i < RONDO_TENSOR_PORTS; i++) {
            m->rkey[i] = take32(in);
        }
    }
    if (fields & RONDO_TENSOR_F_META) {
        take_meta(in, &m->meta);
    }
    if (fields & RONDO_TENSOR_F_CHECKSUM) {
        m->checksum = take64(in);
    }
    if (fields & RONDO_TENSOR_F_STATUS) {
        m->status = (rondo_status)take32(in);
        m->text_bytes = take16(in);
        m->text = (const char *)take(in, m->text_bytes);
    }
    if (fields & RONDO_TENSOR_F_RANK) {
        m->rank = (int32_t)take32(in);
    }
    if (fields & RONDO_TENSOR_F_NUMBER) {
        m->number = take32(in);
    }
    if (fields & RONDO_TENSOR_F_COUNT) {
        m->count = take32(in);
    }
    if (fields & RONDO_TENSOR_F_NAME) {
        m->name_bytes = take16(in);
        m->name = (const char *)take(in, m->name_bytes);
    }
}

rondo_status rondo_tensor_decode(const uint8_t *bytes_in, size_t bytes, struct rondo_tensor_message *message,
                                 size_t *used)
{
    struct in in = { bytes_in, bytes_in + bytes, 0 };
    struct rondo_tensor_message m;
    unsigned fields, length;
    memset(&m, 0, sizeof(m));
    unsigned type = take8(&in);
    m.flags = take8(&in);
    length = take16(&in);
    m.index = take32(&in);
    m.epoch = take32(&in);
    if (in.short_of || length < HEAD || length > bytes || length > RONDO_TENSOR_MAX_MESSAGE) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a tensor message of %u bytes in %zu", length, bytes);
    }
    if (rondo_tensor_type_name((int)type) == NULL) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a tensor message of the unknown type %u", type);
    }
    m.type = (enum rondo_tensor_type)type;
    fields = fields_of((int)type);
    in.end = bytes_in + length;
    take_fields(&in, &m, fields);
    RONDO_TRY(check_fields(&m, fields));
    if (in.short_of || in.at != in.end) {
        return bad((int)type, in.short_of ? "fields beyond its bytes:" : "fewer fields than bytes:", length);
    }
    *message = m;
    *used = length;
    return RONDO_SUCCESS;
}

/* ---- message buffers ---- */

void rondo_tensor_batch_encode(uint8_t out_bytes[RONDO_TENSOR_BATCH_HEAD], unsigned version, size_t bytes,
                               uint32_t sequence)
{
    struct out out = { out_bytes, out_bytes + RONDO_TENSOR_BATCH_HEAD, 0 };
    put32(&out, RONDO_TENSOR_WIRE_MAGIC);
    put16(&out, version);
    put16(&out, 0);
    put32(&out, (uint32_t)bytes);
    put32(&out, sequence);
}

rondo_status rondo_tensor_batch_decode(const uint8_t *bytes_in, size_t bytes, unsigned version,
                                       uint32_t sequence, size_t *end)
{
    struct in in = { bytes_in, bytes_in + bytes, 0 };
    uint32_t magic = take32(&in), theirs = take16(&in), reserved = take16(&in), length = take32(&in),
             number = take32(&in);
    if (in.short_of || magic != RONDO_TENSOR_WIRE_MAGIC || reserved != 0) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a message buffer of %zu bytes that begins with %08x",
                                bytes, magic);
    }
    if (theirs != version) {
        return rondo_fail_quiet(
            RONDO_REMOTE_ERROR,
            "a message buffer of version %u of the tensor protocol, and not of version %u", theirs, version);
    }
    if (length < RONDO_TENSOR_BATCH_HEAD || length > bytes) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a message buffer that says it has %u bytes, in %zu",
                                length, bytes);
    }
    if (number != sequence) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "message buffer %u, expected %u", number, sequence);
    }
    *end = length;
    return RONDO_SUCCESS;
}
