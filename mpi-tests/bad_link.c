/*
 * bad_link: a cable between two network devices that loses, duplicates and delays frames, for kernels without
 * netem (tc). It forwards frames as they are, including those that the kernel has not yet segmented; losing
 * one of these loses many packets. It ends on SIGTERM and prints what it did.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MAX = 128 << 10, BACKLOG = 64, DEVICES = 2, HOLD_MS = 3 };

struct end {
    int fd;
    uint8_t held[FRAME_MAX]; /* a frame held back until others have overtaken it; 0 bytes: none */
    size_t held_bytes;
    double held_until;
};

static struct {
    double lose, twice, hold; /* shares of all frames */
    uint64_t random;
    unsigned long frames, lost, doubled, held;
} o = { .random = 88172645463325252ull };

static volatile sig_atomic_t ended;
static void end_by_signal(int signal)
{
    (void)signal;
    ended = 1;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int happens(double share)
{
    o.random ^= o.random << 13;
    o.random ^= o.random >> 7;
    o.random ^= o.random << 17;
    return (double)(o.random >> 11) < share * 9007199254740992.0;
}

static int die(const char *what)
{
    fprintf(stderr, "bad_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Open a socket that receives all frames of a device, with their pending offloads (checksums,
 * segmentation). */
static int device_open(const char *name)
{
    int yes = 1, fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sockaddr_ll addr = { .sll_family = AF_PACKET,
                                .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = (int)if_nametoindex(name) };
    struct packet_mreq all = { .mr_ifindex = addr.sll_ifindex, .mr_type = PACKET_MR_PROMISC };
    if (fd < 0 || addr.sll_ifindex == 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof(yes)) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) != 0 ||
        bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        die(name);
    }
    return fd;
}

/* A frame that the device refuses is lost, as on a cable. */
static void pass_on(int fd, const uint8_t *frame, size_t bytes)
{
    o.frames++;
    o.lost += send(fd, frame, bytes, MSG_DONTWAIT) < 0;
}

static void release(struct end *from, int to)
{
    if (from->held_bytes > 0) {
        pass_on(to, from->held, from->held_bytes);
        from->held_bytes = 0;
    }
}

static void carry(struct end *from, int to)
{
    static uint8_t frame[FRAME_MAX];
    for (int i = 0; i < BACKLOG; i++) {
        ssize_t bytes = recv(from->fd, frame, sizeof(frame), MSG_DONTWAIT);
        if (bytes <= (ssize_t)sizeof(struct virtio_net_hdr)) {
            return;
        }
        if (happens(o.lose)) {
            o.lost++;
            continue;
        }
        if (from->held_bytes == 0 && happens(o.hold)) {
            memcpy(from->held, frame, (size_t)bytes);
            from->held_bytes = (size_t)bytes;
            from->held_until = now_ms() + HOLD_MS;
            o.held++;
            continue;
        }
        pass_on(to, frame, (size_t)bytes);
        if (happens(o.twice)) {
            pass_on(to, frame, (size_t)bytes);
            o.doubled++;
        }
    }
}

static int share(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end) / 100;
    return end != text && *end == '\0' && *value >= 0 && *value <= 1;
}

static int parse(int argc, char **argv)
{
    static const struct option rows[] = { { "loss", 1, NULL, 'l' },
                                          { "duplicate", 1, NULL, 'd' },
                                          { "reorder", 1, NULL, 'r' },
                                          { NULL, 0, NULL, 0 } };
    int opt, ok = 1;
    while ((opt = getopt_long(argc, argv, "", rows, NULL)) != -1) {
        ok &= opt == 'l'   ? share(optarg, &o.lose)
              : opt == 'd' ? share(optarg, &o.twice)
              : opt == 'r' ? share(optarg, &o.hold)
                           : 0;
    }
    return ok && optind + DEVICES == argc;
}

int main(int argc, char **argv)
{
    static struct end end[DEVICES];
    struct pollfd polls[DEVICES];
    struct sigaction action = { .sa_handler = end_by_signal };
    if (!parse(argc, argv)) {
        fprintf(stderr,
                "usage: bad_link [--loss PERCENT] [--duplicate PERCENT] [--reorder PERCENT] DEVICE DEVICE\n");
        return 2;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    for (int i = 0; i < DEVICES; i++) {
        end[i].fd = device_open(argv[optind + i]);
        polls[i] = (struct pollfd){ .fd = end[i].fd, .events = POLLIN };
    }
    printf("bad_link: between %s and %s\n", argv[optind], argv[optind + 1]);
    fflush(stdout);
    while (!ended) {
        poll(polls, DEVICES, end[0].held_bytes > 0 || end[1].held_bytes > 0 ? 1 : 1000);
        for (int i = 0; i < DEVICES; i++) {
            carry(&end[i], end[!i].fd);
            if (now_ms() >= end[i].held_until) {
                release(&end[i], end[!i].fd);
            }
        }
    }
    printf("bad_link: %lu frames, %lu lost, %lu duplicated, %lu overtaken\n", o.frames, o.lost, o.doubled,
           o.held);
    return 0;
}
