/* Preloaded into a process, this counts the calls that change files, and spoils one of them.

   Only calls on regular files and directories count, without the standard streams, and nothing before fault_arm is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, FAIL, TORN, SHORT, FULL }; /* as in faults.py */

static int kind, error, log_fd;
static long position;
static atomic_long count = -1; /* not armed */
static atomic_int full;        /* the disk, from the spoiled call on */

void fault_arm(int new_kind, long new_position, int new_error, int new_log) {
    kind = new_kind, position = new_position, error = new_error, log_fd = new_log;
    count = 0;
}

static int on_disk(int fd) {
    struct stat state;
    int saved = errno, known = fstat(fd, &state) == 0;
    errno = saved;
    return known && (S_ISREG(state.st_mode) || S_ISDIR(state.st_mode)) && fd > 2 && fd != log_fd;
}

/* What happens to a call: 0 nothing, -1 it fails (errno is set), 1 half of it is done. */
static int spoiled(const char *name, int grows, int can_be_halved) {
    if (count < 0) return 0;
    long now = ++count;
    if (kind == COUNT) {
        char line[64];
        size_t length = strlen(name);
        memcpy(line, name, length);
        line[length] = '\n';
        syscall(SYS_write, log_fd, line, length + 1);
        return 0;
    }
    if (now != position) {
        if (!full || !grows) return 0;
        errno = ENOSPC;
        return -1;
    }
    if (kind == KILL || (kind == TORN && !can_be_halved)) syscall(SYS_kill, getpid(), SIGKILL);
    if (kind == FULL || error == ENOSPC) full = 1;
    if (kind == FAIL || !can_be_halved) {
        errno = kind == FAIL ? error : ENOSPC;
        return -1;
    }
    return 1;
}

static void killed_when_torn(void) {
    if (kind == TORN) syscall(SYS_kill, getpid(), SIGKILL);
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* A call that moves `size` bytes: with half of them when it is to be halved. */
#define MOVES(type, name, fd, size, parameters, whole, half)                                        \
    type name parameters {                                                                          \
        int what = on_disk(fd) && (size) > 0 ? spoiled(#name, 1, (size) > 1) : 0;                       \
        if (what < 0) return -1;                                                                    \
        if (what == 0) return REAL(name) whole;                                                     \
        type done = REAL(name) half;                                                                \
        killed_when_torn();                                                                         \
        return done;                                                                                \
    }

MOVES(ssize_t, write, fd, size, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2))

MOVES(ssize_t, pwrite, fd, size, (int fd, const void *data, size_t size, off_t at),
         (fd, data, size, at), (fd, data, size / 2, at))
MOVES(ssize_t, pwrite64, fd, size, (int fd, const void *data, size_t size, off64_t at),
         (fd, data, size, at), (fd, data, size / 2, at))
MOVES(ssize_t, copy_file_range, to, size,
      (int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags),
      (from, from_at, to, to_at, size, flags), (from, from_at, to, to_at, size / 2, flags))
MOVES(ssize_t, sendfile, to, size, (int to, int from, off_t *at, size_t size), (to, from, at, size),
      (to, from, at, size / 2))
MOVES(ssize_t, sendfile64, to, size, (int to, int from, off64_t *at, size_t size), (to, from, at, size),
      (to, from, at, size / 2))

/* Of several pieces the first ones are written, and of a single one its first half. */
#define PIECES(name, parameters, whole, half)                                                       \
    ssize_t name parameters {                                                                       \
        struct iovec first = {pieces->iov_base, pieces->iov_len / 2};                               \
        const struct iovec *some = number > 1 ? pieces : &first;                                    \
        int some_number = number > 1 ? number / 2 : 1;                                              \
        int what = on_disk(fd) ? spoiled(#name, 1, 1) : 0;                                          \
        if (what < 0) return -1;                                                                    \
        if (what == 0) return REAL(name) whole;                                                     \
        ssize_t done = REAL(name) half;                                                             \
        killed_when_torn();                                                                         \
        return done;                                                                                \
    }

PIECES(writev, (int fd, const struct iovec *pieces, int number), (fd, pieces, number), (fd, some, some_number))
PIECES(pwritev, (int fd, const struct iovec *pieces, int number, off_t at), (fd, pieces, number, at),
       (fd, some, some_number, at))
PIECES(pwritev64, (int fd, const struct iovec *pieces, int number, off64_t at), (fd, pieces, number, at),
       (fd, some, some_number, at))

/* Calls that are done or not. */
#define CHANGES(name, counts, grows, parameters, arguments)                                         \
    int name parameters { return (counts) && spoiled(#name, grows, 0) ? -1 : REAL(name) arguments; }

CHANGES(ftruncate, on_disk(fd), 0, (int fd, off_t size), (fd, size))
CHANGES(ftruncate64, on_disk(fd), 0, (int fd, off64_t size), (fd, size))
CHANGES(truncate, 1, 0, (const char *path, off_t size), (path, size))
CHANGES(truncate64, 1, 0, (const char *path, off64_t size), (path, size))
CHANGES(fallocate, on_disk(fd), 1, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
CHANGES(fallocate64, on_disk(fd), 1, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
CHANGES(fsync, on_disk(fd), 0, (int fd), (fd))
CHANGES(fdatasync, on_disk(fd), 0, (int fd), (fd))
CHANGES(rename, 1, 0, (const char *from, const char *to), (from, to))
CHANGES(renameat, 1, 0, (int a, const char *from, int b, const char *to), (a, from, b, to))
CHANGES(renameat2, 1, 0, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
CHANGES(link, 1, 1, (const char *from, const char *to), (from, to))
CHANGES(linkat, 1, 1, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
CHANGES(symlink, 1, 1, (const char *from, const char *to), (from, to))
CHANGES(unlink, 1, 0, (const char *path), (path))
CHANGES(unlinkat, 1, 0, (int folder, const char *path, int flags), (folder, path, flags))
CHANGES(mkdir, 1, 1, (const char *path, mode_t mode), (path, mode))
CHANGES(mkdirat, 1, 1, (int folder, const char *path, mode_t mode), (folder, path, mode))
CHANGES(chmod, 1, 0, (const char *path, mode_t mode), (path, mode))
CHANGES(fchmod, on_disk(fd), 0, (int fd, mode_t mode), (fd, mode))
CHANGES(fchmodat, 1, 0, (int folder, const char *path, mode_t mode, int flags), (folder, path, mode, flags))

/* The memory file systems and devices that libraries open count as well: they are few. */
#define OPENS(name, fixed, arguments)                                                               \
    int name fixed {                                                                                \
        va_list more;                                                                               \
        va_start(more, flags);                                                                      \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                     \
        va_end(more);                                                                               \
        return flags & (O_CREAT | O_TRUNC) && spoiled(#name, 1, 0) ? -1 : REAL(name) arguments;     \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENS(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
