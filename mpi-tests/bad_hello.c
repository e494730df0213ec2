/*
 * bad_hello COUNT HASH ADDRESS PORT: send greetings that are correct except for what strangers do not know.
 * They pose as ranks 0 and 1 of the communicator with that hash, alternately for the control plane and the
 * socket device; the ids of processes and comms, and the proof that follows, are random. A port may only
 * close the connection, or stay silent if nobody accepts at the moment. Exit status 1: there was an answer,
 * or no connection.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/control/control_wire.h"
#include "net/socket/socket.h"

enum { PATIENCE_MS = 100, RANKS = 2 };

static int connect_to(const char *address, const char *port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
                    connect(fd, (struct sockaddr *)&to, sizeof to) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static ssize_t greet(int fd, uint64_t hash, int i)
{
    int to = i % (RANKS + 1);
    struct {
        struct rondo_auth_hello hello;
        uint8_t proof[RONDO_AUTH_PROOF];
    } said;
    if (getrandom(&said, sizeof said, 0) < 0) {
        return -1;
    }
    said.hello.magic = to < RANKS ? RONDO_WIRE_HELLO_MAGIC : RONDO_SOCKET_MAGIC;
    said.hello.version = to < RANKS ? RONDO_WIRE_VERSION : RONDO_SOCKET_VERSION;
    said.hello.comm_hash = to < RANKS ? hash : 0;
    said.hello.client_rank = 1 - to;
    said.hello.server_rank = to;
    return send(fd, &said, sizeof said, MSG_NOSIGNAL);
}

/* @return the bytes received before the end of the connection. */
static ssize_t answer(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    char byte;
    return poll(&look, 1, PATIENCE_MS) == 1 ? recv(fd, &byte, 1, 0) : 0;
}

int main(int argc, char **argv)
{
    int answered = 0, connected = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: bad_hello COUNT HASH ADDRESS PORT\n");
        return 2;
    }
    for (int i = 0; i < atoi(argv[1]); i++) {
        int fd = connect_to(argv[3], argv[4]);
        if (fd >= 0) {
            connected++;
            answered += greet(fd, strtoull(argv[2], NULL, 16), i) > 0 && answer(fd) > 0;
            close(fd);
        }
    }
    printf("bad_hello: %d connections to %s:%s, %d answers\n", connected, argv[3], argv[4], answered);
    return answered > 0 || connected == 0;
}
