/*
 * A fake NVML with four GPUs, which unit_topo_detect compiles and opens. GPUs 0 and 1 are on two NVSwitches,
 * GPU 2 on hidden ones; 1 and 3 are linked directly; 0 and 1 have chip-to-chip links; 0 and 2 have no P2P.
 * Some links of GPU 3 do not count: to a missing GPU, to one that reports them as down, switched off, without
 * P2P. FAKE_NVML: "no driver", or the number of GPUs that this container sees.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char busid[32];
};

struct field {
    unsigned id, scope;
    long long when, latency_us;
    int type, status;
    unsigned long long value;
};

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_DRIVER = 9, GPUS = 4, LINKS = 18 };
enum { GPU = 0, SWITCH = 2, UNKNOWN = 255 };

static const unsigned bus[GPUS] = { 0x17, 0x2a, 0x3d, 0x63 };
static int open_count;

static int present(void)
{
    const char *text = getenv("FAKE_NVML");
    return text ? atoi(text) : GPUS;
}

static int index_of(const void *device) { return (int)((const unsigned *)device - bus); }

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    const char *text = getenv("FAKE_NVML");
    open_count++;
    return text && strcmp(text, "no driver") == 0 ? NO_DRIVER : OK;
}

int nvmlShutdown(void);
int nvmlShutdown(void) { return open_count-- > 0 ? OK : INVALID; }

int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)present();
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, const void **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, const void **device)
{
    *device = &bus[i];
    return i < GPUS ? OK : INVALID;
}

static int pci_of(struct pci *pci, unsigned b)
{
    memset(pci, 0, sizeof *pci);
    pci->bus = b;
    pci->ids = 0x233010deu;
    snprintf(pci->busid, sizeof pci->busid, "00000000:%02X:00.0", b);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(const void *device, struct pci *pci);
int nvmlDeviceGetPciInfo_v3(const void *device, struct pci *pci)
{
    return pci_of(pci, bus[index_of(device)]);
}

int nvmlDeviceGetUUID(const void *device, char *text, unsigned size);
int nvmlDeviceGetUUID(const void *device, char *text, unsigned size)
{
    snprintf(text, size, "GPU-00112233-4455-6677-8899-aabbccddee%02x", index_of(device));
    return OK;
}

int nvmlDeviceGetName(const void *device, char *text, unsigned size);
int nvmlDeviceGetName(const void *device, char *text, unsigned size)
{
    snprintf(text, size, "Fake <%d>", index_of(device));
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(const void *device, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(const void *device, int *major, int *minor)
{
    *major = device ? 9 : 0;
    *minor = 0;
    return OK;
}

/* Find the other end of a link by its bus, 0: hidden. @return 0 if there is no link. */
static int other_end(int gpu, unsigned link, unsigned *b, int *type)
{
    *type = SWITCH;
    *b = link < 6 ? 0xc7 : 0xc8;
    if (gpu == 2) {
        *b = 0;
        return link < 12;
    }
    if (gpu < 2 && link < 12) {
        return 1;
    }
    *type = GPU;
    *b = bus[3];
    if (gpu == 1) {
        return link < 16;
    }
    *b = link < 4 ? bus[1] : link == 4 ? 0x99 : link == 5 ? bus[0] : bus[1];
    return gpu == 3 && link < 8;
}

int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *active)
{
    unsigned b;
    int type, gpu = index_of(device);
    *active = link < LINKS && other_end(gpu, link, &b, &type) && !(gpu == 3 && link == 6);
    return link < LINKS ? OK : INVALID;
}

int nvmlDeviceGetNvLinkCapability(const void *device, unsigned link, int capability, unsigned *yes);
int nvmlDeviceGetNvLinkCapability(const void *device, unsigned link, int capability, unsigned *yes)
{
    *yes = capability == 0 && !(index_of(device) == 3 && link == 7);
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void *device, unsigned link, struct pci *pci);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void *device, unsigned link, struct pci *pci)
{
    unsigned b;
    int type;
    other_end(index_of(device), link, &b, &type);
    pci_of(pci, b);
    if (b == 0) {
        snprintf(pci->busid, sizeof pci->busid, "FFFFFFFF:FFFF:FF.0");
    }
    return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const void *device, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemoteDeviceType(const void *device, unsigned link, int *type)
{
    unsigned b;
    other_end(index_of(device), link, &b, type);
    *type = *type == SWITCH && index_of(device) == 2 ? UNKNOWN : *type;
    return OK;
}

int nvmlDeviceGetP2PStatus(const void *a, const void *b, int act, int *state);
int nvmlDeviceGetP2PStatus(const void *a, const void *b, int act, int *state)
{
    int pair = index_of(a) * GPUS + index_of(b);
    *state = act == 1 && (pair == 2 || pair == 8) ? 4 : 0;
    return OK;
}

int nvmlDeviceGetFieldValues(const void *device, int n, struct field *field);
int nvmlDeviceGetFieldValues(const void *device, int n, struct field *field)
{
    int gpu = index_of(device);
    for (int i = 0; i < n; i++) {
        field[i].type = 1;
        field[i].status = gpu < 2 ? OK : NOT_SUPPORTED;
        field[i].value = field[i].id == 170   ? 10
                         : field[i].id == 171 ? !(gpu == 1 && field[i].scope == 9)
                         : field[i].id == 172 ? 44712
                                              : 0;
    }
    return OK;
}
