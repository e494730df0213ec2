/* Net plugins of every version, compiled from mock_net_plugin.c ($CC), for the tests of the plugin device. */
#ifndef RONDO_TEST_NETDEV_PLUGIN_WORLD_H
#define RONDO_TEST_NETDEV_PLUGIN_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mock_net_plugin.h"
#include "netdev_pair.h"
#include "says.h"

enum { OLDEST = 8, NEWEST = 12, MIB = 1 << 20 };

static const struct rondo_net_device *const net = &rondo_netdev_plugin;
static char folder[] = "/tmp/rondo-plugin-XXXXXX";

static inline const char *path_of(int version)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/libnccl-net-v%d.so", folder, version);
    return path;
}

static int have_compiler;

static inline int make_plugins(void **state)
{
    const char *cc = getenv("CC"), *srcdir = getenv("srcdir");
    char command[2 * PATH_MAX];
    (void)state;
    cc = cc != NULL && cc[0] ? cc : "cc";
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", cc);
    have_compiler = system(command) == 0;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (int version = OLDEST - 1; have_compiler && version <= NEWEST; version++) {
        snprintf(command, sizeof command,
                 "%s -shared -fPIC -DVERSION=%d -o %s %s/mpi-tests/unit/mock_net_plugin.c", cc, version,
                 path_of(version), srcdir != NULL ? srcdir : ".");
        if (system(command) != 0) {
            return -1;
        }
    }
    return 0;
}

static inline int remove_plugins(void **state)
{
    (void)state;
    for (int version = OLDEST - 1; version <= NEWEST; version++) {
        unlink(path_of(version));
    }
    return rmdir(folder);
}

static inline void need_compiler(void)
{
    if (!have_compiler) {
        print_message("skipped: no C compiler ($CC)\n");
        skip();
    }
}

/* Open the device with another plugin, behaving as `MOCK_NET` says. */
static inline rondo_status use(const char *plugin, const char *behaviour, int *n, char *why, size_t bytes)
{
    net->finalize();
    assert_int_equal(setenv("MOCK_NET", behaviour, 1), 0);
    set_param("RONDO_NET_PLUGIN", plugin);
    return net->init(n, why, bytes);
}

static inline void use_version(int version, const char *behaviour)
{
    int n;
    assert_int_equal(use(path_of(version), behaviour, &n, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(n, 2);
}

/* See what the open plugin counted. @return a handle that keeps it loaded. */
static inline void *look(int version, struct mock_net **seen)
{
    void *library = dlopen(path_of(version), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *seen = dlsym(library, "mock_net");
    assert_non_null(*seen);
    return library;
}

/* Finalize the device and check that nothing is left. */
static inline void leave(void *library, struct mock_net *seen)
{
    int version = seen->version, contexts = version >= 11 ? seen->inits : 0;
    net->finalize();
    assert_string_equal(seen->text, "");
    assert_int_equal(seen->bad, 0);
    assert_int_equal(seen->comms + seen->listeners + seen->regions + seen->requests, 0);
    assert_int_equal(seen->finals, contexts);
    dlclose(library);
    assert_null(dlopen(path_of(version), RTLD_NOW | RTLD_NOLOAD));
}

#endif
