/* Which algorithms and protocols the parameters allow for which collective. */
#include "tuner/tuner.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/param.h"
#include "base/status.h"

enum { WORD_BYTES = 64 };

/* The words that a parameter accepts. */
struct grammar {
    const char *param, *what;
    int n; /* words, bits of a mask */
    const char *(*name)(int i);
    int (*find)(const char *name);
    const char *const *nccl_only; /* words of NCCL that are ignored; NULL terminated */
};

static const char *algo_name(int i) { return rondo_algo_name((enum rondo_algo)i); }
static const char *proto_name(int i) { return rondo_proto_name((enum rondo_proto)i); }
static const char *coll_name(int i) { return rondo_coll_name((enum rondo_coll)i); }

static const char *const nccl_algos[] = {
    "collnet", "collnetdirect", "collnet_direct", "collnetchain", "collnet_chain",
    "nvls",    "nvlstree",      "nvls_tree",      "pat",          NULL
};
static const char *const nccl_protos[] = { NULL };
static const struct grammar algo_grammar = { "RONDO_ALGO", "an algorithm",       RONDO_NUM_ALGOS,
                                             algo_name,    rondo_algo_from_name, nccl_algos };
static const struct grammar proto_grammar = { "RONDO_PROTO", "a protocol",          RONDO_NUM_PROTOS,
                                              proto_name,    rondo_proto_from_name, nccl_protos };

static rondo_status bad_word(const struct grammar *g, const char *text, const char *word, const char *what,
                             int n, const char *(*name)(int i))
{
    char names[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", name(i));
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT,
                      "%s: \"%s\" in \"%.96s\" is not %s; allowed: %s. Write one list for all collectives "
                      "(\"a,b\", or \"^a\" for all but a), then lists for single ones (\"broadcast:a\"), "
                      "separated by ';'",
                      g->param, word, text, what, names);
}

/* Copy [begin, end) without surrounding blanks. A word that does not fit matches no name, even cut. */
static void copy_word(char word[WORD_BYTES], const char *begin, const char *end)
{
    while (begin < end && (*begin == ' ' || *begin == '\t')) {
        begin++;
    }
    while (begin < end && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    snprintf(word, WORD_BYTES, "%.*s", (int)(end - begin < WORD_BYTES ? end - begin : WORD_BYTES), begin);
}

static int only_nccl_has(const struct grammar *g, const char *word)
{
    for (int i = 0; g->nccl_only[i] != NULL; i++) {
        if (strcasecmp(g->nccl_only[i], word) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Parse one list, [at, end). */
static rondo_status parse_list(const struct grammar *g, const char *text, const char *at, const char *end,
                               uint32_t *mask)
{
    uint32_t all = (1u << g->n) - 1, named = 0;
    char word[WORD_BYTES];
    int exclude;
    copy_word(word, at, end);
    exclude = word[0] == '^';
    if (exclude) {
        at = memchr(at, '^', (size_t)(end - at));
        at++;
    }
    for (const char *next;; at = next + 1) {
        int i;
        next = memchr(at, ',', (size_t)(end - at));
        copy_word(word, at, next != NULL ? next : end);
        i = g->find(word);
        if (i >= 0) {
            named |= 1u << i;
        } else if (!only_nccl_has(g, word)) {
            return bad_word(g, text, word, g->what, g->n, g->name);
        }
        if (next == NULL) {
            break;
        }
    }
    if (named == 0 && !exclude) {
        RONDO_INFO(RONDO_SUBSYS_ENV | RONDO_SUBSYS_TUNING,
                   "%s=\"%s\" has a list with only NCCL's algorithms, so it restricts nothing", g->param,
                   text);
    }
    *mask = exclude || named == 0 ? all & ~named : named;
    return RONDO_SUCCESS;
}

/* @return a mask of the algorithms that carry a collective. */
static uint32_t algos_of(enum rondo_coll coll)
{
    uint32_t algos = 0;
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        algos |= (uint32_t)(rondo_schedule_find(coll, (enum rondo_algo)a) != NULL) << a;
    }
    return algos;
}

static rondo_status parse(const struct grammar *g, const char *text, uint32_t mask[RONDO_NUM_COLLS])
{
    char word[WORD_BYTES];
    int nlists = 0;
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        mask[c] = (1u << g->n) - 1;
    }
    for (const char *at = text, *end; at != NULL && *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        const char *colon;
        end = at + strcspn(at, ";");
        copy_word(word, at, end);
        colon = memchr(at, ':', (size_t)(end - at));
        if (word[0] == '\0') {
            continue;
        }
        if (colon != NULL) {
            int coll;
            copy_word(word, at, colon);
            coll = rondo_coll_from_name(word);
            if (coll < 0) {
                return bad_word(g, text, word, "a collective", RONDO_NUM_COLLS, coll_name);
            }
            RONDO_TRY(parse_list(g, text, colon + 1, end, &mask[coll]));
        } else if (nlists == 0) {
            uint32_t general;
            RONDO_TRY(parse_list(g, text, at, end, &general));
            for (int c = 0; c < RONDO_NUM_COLLS; c++) {
                enum rondo_coll as = rondo_coll_scheduled_as((enum rondo_coll)c);
                int applies = as != RONDO_COLL_SEND && as != RONDO_COLL_RECV &&
                              (g != &algo_grammar || (general & algos_of(as)) != 0);
                mask[c] = applies ? general : mask[c];
            }
        } else {
            return bad_word(g, text, word, "a list for one collective; only the first list may apply to all",
                            RONDO_NUM_COLLS, coll_name);
        }
        nlists++;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_allowed_parse(struct rondo_allowed *allowed, const char *algo, const char *proto)
{
    uint32_t algos[RONDO_NUM_COLLS], protos[RONDO_NUM_COLLS];
    RONDO_TRY(parse(&algo_grammar, algo, algos));
    RONDO_TRY(parse(&proto_grammar, proto, protos));
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
            allowed->protos[c][a] = (uint8_t)((algos[c] >> a & 1) != 0 ? protos[c] : 0);
        }
    }
    return RONDO_SUCCESS;
}

void rondo_allowed_rank_order(struct rondo_allowed *allowed)
{
    for (int c = 0; c < RONDO_NUM_COLLS; c++) {
        for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
            if (rondo_coll_reduces((enum rondo_coll)c) && !rondo_algo_in_rank_order((enum rondo_algo)a)) {
                allowed->protos[c][a] = 0;
            }
        }
    }
}

int rondo_tune_is_strict(void) { return rondo_params()->determinism == RONDO_DETERMINISM_STRICT; }

int rondo_allowed_all(const struct rondo_allowed *allowed)
{
    struct rondo_allowed all;
    return rondo_allowed_parse(&all, NULL, NULL) == RONDO_SUCCESS && memcmp(allowed, &all, sizeof(all)) == 0;
}

rondo_status rondo_tune_allowed(struct rondo_allowed *allowed)
{
    const struct rondo_params *params = rondo_params();
    RONDO_TRY(rondo_allowed_parse(allowed, params->algo, params->proto));
    for (int c = 0; !params->direct && c < RONDO_NUM_COLLS; c++) {
        for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
            allowed->protos[c][a] = rondo_algo_medium((uint32_t)a) == RONDO_MEDIUM_DIRECT
                                        ? 0
                                        : allowed->protos[c][a];
        }
    }
    if (rondo_tune_is_strict()) {
        rondo_allowed_rank_order(allowed);
    }
    return RONDO_SUCCESS;
}
