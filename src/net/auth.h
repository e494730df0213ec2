/*
 * How the two ends of a connection prove to each other that they know their communicator's secret: a
 * challenge and a response each way. The secret itself crosses a network only in MPI's allgather.
 *
 *     client (connects)                                    server (accepts)
 *     hello: purpose, who calls whom, client's nonce  --->
 *                                                     <---  welcome: server's nonce and proof
 *     proof, and its first data at once               --->
 *
 * A proof is HMAC-SHA-256, keyed by the secret, of the prover's role, the hello and the server's nonce. So it
 * is of no use in the other role (a reflected message), on another connection (a replayed one), between other
 * ranks or for another purpose. Before it answers, a server checks that the hello names its own rank and a
 * client that it expects.
 *
 * Peers are authenticated when they connect, and only then: the bytes that follow are neither encrypted nor
 * authenticated.
 *
 * All functions are pure but for the kernel's random numbers: thread-safe, usable in a forked child, no
 * locks, nothing to free.
 */
#ifndef RONDO_NET_AUTH_H
#define RONDO_NET_AUTH_H

#include "base/status.h"

enum { RONDO_AUTH_NONCE = 16, RONDO_AUTH_PROOF = 32 };

/* ---- on the wire ---- */

/* The first bytes on a connection. The caller fills all but the nonce. */
struct rondo_auth_hello {
    uint32_t magic, version; /* of the protocol that uses the connection: its purpose */
    uint64_t comm_hash;      /* 0: the ids of the ends suffice */
    uint64_t client, server; /* ids of the two ends: processes, or comms of a net device */
    int32_t client_rank, server_rank;
    uint32_t index, zero; /* of the connection between these ends */
    uint8_t nonce[RONDO_AUTH_NONCE];
};

/* The answer. */
struct rondo_auth_welcome {
    uint32_t magic, version; /* as in the hello */
    uint8_t nonce[RONDO_AUTH_NONCE];
    uint8_t proof[RONDO_AUTH_PROOF];
};
_Static_assert(sizeof(struct rondo_auth_hello) == 64 && sizeof(struct rondo_auth_welcome) == 56,
               "the wire format is fixed");

/* ---- the handshake ---- */

/** Make a nonce. @return RONDO_SYSTEM_ERROR if the kernel gives no random numbers */
rondo_status rondo_auth_nonce(uint8_t nonce[RONDO_AUTH_NONCE]);
/** The server answers a hello. */
rondo_status rondo_auth_answer(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                               struct rondo_auth_welcome *welcome);
/** Is this the welcome of a server that knows the secret? Then write the client's proof. Takes the same time
 * wherever proofs differ. @return 0: it is not, and proof is unchanged */
int rondo_auth_prove(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                     const struct rondo_auth_welcome *welcome, uint8_t proof[RONDO_AUTH_PROOF]);
/** Does the client that sent this hello know the secret? Takes the same time wherever proofs differ. */
int rondo_auth_proved(const uint64_t secret[2], const struct rondo_auth_hello *hello,
                      const struct rondo_auth_welcome *welcome, const uint8_t proof[RONDO_AUTH_PROOF]);

/* ---- values made of the secret ---- */

/** Write @a size bytes, at most RONDO_AUTH_PROOF, that everyone with the secret can compute and that do not
 * reveal it: HMAC-SHA-256 of the label and the data. Values of different labels are independent. */
void rondo_auth_derive(const uint64_t secret[2], const char *label, const void *data, size_t bytes, void *out,
                       size_t size);

#endif
