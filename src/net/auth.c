/* Proofs and derived values by libsodium's HMAC-SHA-256, which needs no initialisation and keeps no state. */
#include "net/auth.h"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <string.h>

#include "base/mem.h"

_Static_assert((int)RONDO_AUTH_PROOF == (int)crypto_auth_hmacsha256_BYTES, "a proof is a whole HMAC");

enum { LABEL = 16 };

/* The label has a fixed length, so that no label and data look like another label and data. */
static void hmac_begin(crypto_auth_hmacsha256_state *state, const uint64_t secret[2], const char *label)
{
    uint8_t padded[LABEL] = { 0 };
    memcpy(padded, label, rondo_min_size(strlen(label), LABEL));
    crypto_auth_hmacsha256_init(state, (const unsigned char *)secret, 2 * sizeof(secret[0]));
    crypto_auth_hmacsha256_update(state, padded, sizeof(padded));
}

static void hmac_end(crypto_auth_hmacsha256_state *state, uint8_t out[RONDO_AUTH_PROOF])
{
    crypto_auth_hmacsha256_final(state, out);
    sodium_memzero(state, sizeof(*state));
}

static void proof_of(const uint64_t secret[2], const char *role, const struct rondo_auth_hello *hello,
                     const uint8_t nonce[RONDO_AUTH_NONCE], uint8_t proof[RONDO_AUTH_PROOF])
{
    crypto_auth_hmacsha256_state state;
    hmac_begin(&state, secret, role);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)hello, sizeof(*hello));
    crypto_auth_hmacsha256_update(&state, nonce, RONDO_AUTH_NONCE);
    hmac_end(&state, proof);
}

static int proof_is(const uint64_t secret[2], const char *role, const struct rondo_auth_hello *hello,
                    const uint8_t nonce[RONDO_AUTH_NONCE], const uint8_t proof[RONDO_AUTH_PROOF])
{
    uint8_t right[RONDO_AUTH_PROOF];
    proof_of(secret, role, hello, nonce, right);
    return sodium_memcmp(right, proof, sizeof(right)) == 0;
}

static const char client[] = "rondo client", server[] = "rondo server";

rondo_status rondo_auth_nonce(uint8_t nonce[RONDO_AUTH_NONCE])
{
    return rondo_random(nonce, RONDO_AUTH_NONCE);
}

rondo_status rondo_auth_answer(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                               struct rondo_auth_welcome *welcome)
{
    *welcome = (struct rondo_auth_welcome){ .magic = hello->magic, .version = hello->version };
    RONDO_TRY(rondo_auth_nonce(welcome->nonce));
    proof_of(secret, server, hello, welcome->nonce, welcome->proof);
    return RONDO_SUCCESS;
}

int rondo_auth_prove(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                     const struct rondo_auth_welcome *welcome, uint8_t proof[RONDO_AUTH_PROOF])
{
    if (welcome->magic != hello->magic || welcome->version != hello->version ||
        !proof_is(secret, server, hello, welcome->nonce, welcome->proof)) {
        return 0;
    }
    proof_of(secret, client, hello, welcome->nonce, proof);
    return 1;
}

int rondo_auth_proved(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                      const struct rondo_auth_welcome *welcome, const uint8_t proof[RONDO_AUTH_PROOF])
{
    return proof_is(secret, client, hello, welcome->nonce, proof);
}

void rondo_auth_derive(const uint64_t secret[2], const char *label, const void *data, size_t bytes, void *out,
                       size_t size)
{
    crypto_auth_hmacsha256_state state;
    uint8_t all[RONDO_AUTH_PROOF];
    hmac_begin(&state, secret, label);
    crypto_auth_hmacsha256_update(&state, data, bytes);
    hmac_end(&state, all);
    memcpy(out, all, rondo_min_size(size, sizeof(all)));
}
