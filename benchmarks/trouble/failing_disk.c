/* Between a process and the kernel: writes and syncs of a file named data.mdb fail with EIO from the n-th on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long left = -1; /* calls until one fails; below zero: none does */
static int lasting = 0;

void fail_disk(long calls, int from_then_on) {
    left = calls;
    lasting = from_then_on;
}

static int fails(int fd) {
    char link[64], path[PATH_MAX];
    if (left < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    if (length < 8 || memcmp(path + length - 8, "data.mdb", 8) != 0)
        return 0;
    if (left > 0 && --left > 0)
        return 0;
    if (!lasting)
        left = -1;
    errno = EIO;
    return 1;
}

#define BETWEEN(result, name, parameters, arguments)                                                                  \
    result name parameters {                                                                                           \
        static result(*kernel) parameters;                                                                             \
        if (fails(fd))                                                                                                 \
            return -1;                                                                                                 \
        if (!kernel)                                                                                                   \
            kernel = (result(*) parameters)dlsym(RTLD_NEXT, #name);                                                    \
        return kernel arguments;                                                                                       \
    }

BETWEEN(ssize_t, write, (int fd, const void *data, size_t count), (fd, data, count))
BETWEEN(ssize_t, pwrite, (int fd, const void *data, size_t count, off_t at), (fd, data, count, at))
BETWEEN(ssize_t, pwrite64, (int fd, const void *data, size_t count, off64_t at), (fd, data, count, at))
BETWEEN(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
BETWEEN(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
BETWEEN(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
BETWEEN(int, fsync, (int fd), (fd))
BETWEEN(int, fdatasync, (int fd), (fd))
