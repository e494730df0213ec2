#include "net/peer_wire.h"

#include <string.h>

enum {
    HAS_PROBE = 1,
    HAS_GPU = 2,
    HAS_ID = 4,
    SHARES_GPU = 8,
    HOST_LEAST = 23, /* bytes of the host's name that cores do not take */
    CORES_LEAST = 5, /* bytes of one range */
    CORES_RANGES = 0,
    CORES_BITS = 1,
    MAX_RANGES = RONDO_MAX_CORES / 2
};

/* A place in a record. bad: what was read is not there, or what was written did not fit. */
struct cursor {
    uint8_t *at, *end;
    int bad;
};

static size_t room(const struct cursor *c) { return (size_t)(c->end - c->at); }

/* ---- writing ---- */

static void put(struct cursor *c, const void *data, size_t bytes)
{
    if (bytes > room(c)) {
        c->bad = 1;
        return;
    }
    memcpy(c->at, data, bytes);
    c->at += bytes;
}

/* Seven bits a byte, the lowest first; the highest bit says that more follow. */
static void put_number(struct cursor *c, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(c, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

/* Small negative numbers are short, too. */
static void put_signed(struct cursor *c, int32_t value)
{
    put_number(c, (uint64_t)(((uint32_t)value << 1) ^ (value < 0 ? UINT32_MAX : 0)));
}

static void put_text(struct cursor *c, const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    put_number(c, length);
    put(c, text, length);
}

static int has_core(const struct rondo_cores *cores, int core)
{
    return (int)(cores->bits[core / 64] >> (core % 64) & 1);
}

struct range {
    int begin, end;
};

static int list_ranges(const struct rondo_cores *cores, struct range *range)
{
    int n = 0;
    for (int core = 0; core < RONDO_MAX_CORES; core++) {
        if (!has_core(cores, core)) {
            continue;
        }
        if (n > 0 && range[n - 1].end == core) {
            range[n - 1].end++;
        } else {
            range[n++] = (struct range){ core, core + 1 };
        }
    }
    return n;
}

static void put_ranges(struct cursor *c, const struct range *range, int n)
{
    int last = 0;
    put_number(c, (uint64_t)n << 1 | CORES_RANGES);
    for (int i = 0; i < n; i++) {
        put_number(c, (uint64_t)(range[i].begin - last));
        put_number(c, (uint64_t)(range[i].end - range[i].begin));
        last = range[i].end;
    }
}

/* The bytes of the set from its first core's to its last one's. */
static void put_bits(struct cursor *c, const struct rondo_cores *cores, int first, int last)
{
    int from = first / 8, n = last / 8 - from + 1;
    put_number(c, (uint64_t)n << 1 | CORES_BITS);
    put_number(c, (uint64_t)from);
    for (int i = from; i < from + n; i++) {
        uint8_t byte = (uint8_t)(cores->bits[i / 8] >> (i % 8 * 8));
        put(c, &byte, 1);
    }
}

/* Join the two ranges that are nearest to each other. */
static int fill_gap(struct range *range, int n)
{
    int best = 1;
    for (int i = 2; i < n; i++) {
        best = range[i].begin - range[i - 1].end < range[best].begin - range[best - 1].end ? i : best;
    }
    range[best - 1].end = range[best].end;
    memmove(&range[best], &range[best + 1], sizeof(*range) * (size_t)(n - best - 1));
    return n - 1;
}

/* Write the set into at most `most` bytes. */
static void put_cores(struct cursor *c, const struct rondo_cores *cores, size_t most)
{
    uint8_t bytes[2][sizeof(struct rondo_peer_wire)];
    struct range range[MAX_RANGES];
    int n = list_ranges(cores, range);
    most = most < sizeof(bytes[0]) ? most : sizeof(bytes[0]);
    struct cursor bits = { bytes[0], bytes[0] + most, n == 0 }, ranges = { bytes[1], bytes[1] + most, 0 };
    if (n > 0) {
        put_bits(&bits, cores, range[0].begin, range[n - 1].end - 1);
    }
    put_ranges(&ranges, range, n);
    while (bits.bad && ranges.bad && n > 1) {
        n = fill_gap(range, n);
        ranges = (struct cursor){ bytes[1], bytes[1] + most, 0 };
        put_ranges(&ranges, range, n);
    }
    const struct cursor *best = bits.bad || (!ranges.bad && room(&ranges) >= room(&bits)) ? &ranges : &bits;
    put(c, best == &bits ? bytes[0] : bytes[1], most - room(best));
}

static int is_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0 && *at == 0) {
        at++;
        bytes--;
    }
    return bytes == 0;
}

static uint8_t flags_of(const struct rondo_peer *peer)
{
    int has_gpu = !is_zero(peer->gpu_uuid, sizeof(peer->gpu_uuid)) || peer->bus_id[0] || peer->gpu_capability;
    return (uint8_t)((peer->probe.inode != 0 ? HAS_PROBE : 0) | (has_gpu ? HAS_GPU : 0) |
                     (is_zero(&peer->id, sizeof(peer->id)) ? 0 : HAS_ID) |
                     (peer->shares_gpu ? SHARES_GPU : 0));
}

int rondo_peer_pack(struct rondo_peer_wire *wire, const struct rondo_peer *peer)
{
    const uint64_t hash[] = { peer->host_hash, peer->shm_dev, peer->pidns, peer->netns };
    uint8_t flags = flags_of(peer);
    struct cursor c = { wire->bytes, wire->bytes + sizeof(wire->bytes), 0 };
    memset(wire, 0, sizeof(*wire));
    wire->head = peer->head;
    put(&c, &peer->version, sizeof(peer->version));
    put(&c, &peer->record_bytes, sizeof(peer->record_bytes));
    put(&c, &flags, 1);
    put_signed(&c, peer->rank);
    put_signed(&c, peer->nranks);
    put_signed(&c, peer->pid);
    put_signed(&c, peer->device);
    put(&c, &hash[0], sizeof(hash[0]));
    for (size_t i = 1; i < RONDO_COUNTOF(hash); i++) {
        put_number(&c, hash[i]);
    }
    put(&c, &peer->process_hash, sizeof(peer->process_hash));
    put(&c, &peer->param_hash, sizeof(peer->param_hash));
    put_number(&c, peer->memory);
    if (flags & HAS_PROBE) {
        put_number(&c, peer->probe.inode);
        put_number(&c, peer->probe.size);
        put_signed(&c, peer->probe.fd);
    }
    if (flags & HAS_GPU) {
        put(&c, peer->gpu_uuid, sizeof(peer->gpu_uuid));
        put_text(&c, peer->bus_id, sizeof(peer->bus_id));
        put_number(&c, peer->gpu_capability);
    }
    if (flags & HAS_ID) {
        put(&c, &peer->id.nonce, sizeof(peer->id.nonce));
        put_signed(&c, peer->id.root);
        put_number(&c, peer->id.sequence);
    }
    size_t host = strnlen(peer->host, RONDO_HOST_LEN - 1), least = host < HOST_LEAST ? host : HOST_LEAST;
    put_cores(&c, peer->cores, room(&c) > least + 1 + CORES_LEAST ? room(&c) - least - 1 : CORES_LEAST);
    put_text(&c, peer->host, host < room(&c) ? host : room(&c) > 0 ? room(&c) - 1 : 0);
    return !c.bad;
}

/* ---- reading ---- */

static void get(struct cursor *c, void *data, size_t bytes)
{
    if (bytes > room(c)) {
        c->bad = 1;
        c->at = c->end;
        return;
    }
    memcpy(data, c->at, bytes);
    c->at += bytes;
}

static uint64_t get_number(struct cursor *c)
{
    uint64_t value = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte & 0x80; shift += 7) {
        byte = 0;
        get(c, &byte, 1);
        if (shift >= 64 || (shift == 63 && (byte & 0x7e))) {
            c->bad = 1;
            return 0;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
    }
    return value;
}

static uint32_t get_u32(struct cursor *c)
{
    uint64_t value = get_number(c);
    c->bad |= value > UINT32_MAX;
    return (uint32_t)value;
}

static int32_t get_signed(struct cursor *c)
{
    uint32_t value = get_u32(c);
    return (int32_t)((value >> 1) ^ (value & 1 ? UINT32_MAX : 0));
}

/* size: of the text with its terminator. */
static void get_text(struct cursor *c, char *text, size_t size)
{
    uint64_t length = get_number(c);
    if (length >= size) {
        c->bad = 1;
        return;
    }
    get(c, text, (size_t)length);
}

static void get_range(struct cursor *c, struct rondo_cores *cores, uint64_t begin, uint64_t n)
{
    if (begin > RONDO_MAX_CORES || n > RONDO_MAX_CORES - begin) {
        c->bad = 1;
        return;
    }
    for (uint64_t core = begin; core < begin + n; core++) {
        cores->bits[core / 64] |= (uint64_t)1 << (core % 64);
    }
}

static void get_cores(struct cursor *c, struct rondo_cores *cores)
{
    uint64_t kind = get_number(c), n = kind >> 1, at = 0;
    if (n > RONDO_MAX_CORES) {
        c->bad = 1;
        return;
    }
    if ((kind & 1) == CORES_BITS) {
        at = get_number(c);
        c->bad |= at > sizeof(cores->bits) || n > sizeof(cores->bits) - at;
        for (uint64_t i = at; i < at + n && !c->bad; i++) {
            uint8_t byte = 0;
            get(c, &byte, 1);
            cores->bits[i / 8] |= (uint64_t)byte << (i % 8 * 8);
        }
        return;
    }
    for (uint64_t i = 0; i < n && !c->bad; i++) {
        uint64_t gap = get_number(c), length = get_number(c);
        at = gap > RONDO_MAX_CORES ? gap : at + gap;
        get_range(c, cores, at, length);
        at += length;
    }
}

static void get_rest(struct cursor *c, struct rondo_peer *peer, struct rondo_peer_parts *parts)
{
    uint8_t flags = 0;
    get(c, &flags, 1);
    peer->shares_gpu = (flags & SHARES_GPU) != 0;
    peer->rank = get_signed(c);
    peer->nranks = get_signed(c);
    peer->pid = get_signed(c);
    peer->device = get_signed(c);
    get(c, &peer->host_hash, sizeof(peer->host_hash));
    peer->shm_dev = get_number(c);
    peer->pidns = get_number(c);
    peer->netns = get_number(c);
    get(c, &peer->process_hash, sizeof(peer->process_hash));
    get(c, &peer->param_hash, sizeof(peer->param_hash));
    peer->memory = get_number(c);
    if (flags & HAS_PROBE) {
        peer->probe.inode = get_number(c);
        peer->probe.size = get_number(c);
        peer->probe.fd = get_signed(c);
        c->bad |= peer->probe.inode == 0;
    }
    if (flags & HAS_GPU) {
        get(c, peer->gpu_uuid, sizeof(peer->gpu_uuid));
        get_text(c, peer->bus_id, sizeof(peer->bus_id));
        peer->gpu_capability = get_u32(c);
    }
    if (flags & HAS_ID) {
        get(c, &peer->id.nonce, sizeof(peer->id.nonce));
        peer->id.root = get_signed(c);
        peer->id.sequence = get_u32(c);
    }
    get_cores(c, &parts->cores);
    get_text(c, parts->host, sizeof(parts->host));
}

int rondo_peer_unpack(struct rondo_peer *peer, struct rondo_peer_parts *parts,
                      const struct rondo_peer_wire *wire)
{
    struct rondo_peer_wire copy = *wire;
    struct cursor c = { copy.bytes, copy.bytes + sizeof(copy.bytes), 0 };
    memset(parts, 0, sizeof(*parts));
    *peer = (struct rondo_peer){ .head = copy.head, .host = parts->host, .cores = &parts->cores };
    get(&c, &peer->version, sizeof(peer->version));
    get(&c, &peer->record_bytes, sizeof(peer->record_bytes));
    if (peer->version != RONDO_VERSION_CODE || peer->record_bytes != sizeof(*peer)) {
        return 1;
    }
    get_rest(&c, peer, parts);
    if (c.bad) {
        memset(parts, 0, sizeof(*parts));
        *peer = (struct rondo_peer){ .head = copy.head, .host = parts->host, .cores = &parts->cores };
    }
    return !c.bad;
}
