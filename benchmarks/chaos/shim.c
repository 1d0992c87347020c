/* Faults of disk and clock, preloaded into the driver alone (not into what it starts).

   CHAOS_FILES=PREFIX      the files concerned: those whose path begins like that
   CHAOS_CALL=write|sync   which calls are counted: writes and truncations, or fsyncs
   CHAOS_AT=N              from 1: the call at which it happens
   CHAOS_DO=kill|torn|eio|full|readonly|slow
       kill: SIGKILL before the call; torn: half of it is written, then SIGKILL; eio: this call fails;
       full, readonly: this one and all later writes fail; slow: each call takes CHAOS_DELAY more ms
   CHAOS_HIT=FILE          is made when it happens
   CHAOS_REPORT=FILE       how many writes and fsyncs there were is written to it at the end
   CHAOS_JUMP=SECONDS      the time of day jumps by so much, CHAOS_AFTER ms after the start */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { WRITES, SYNCS };
static const char *prefix, *action;
static int counted, delay_ms;
static long at, jump, after_ms;
static const char *report, *hit;
static atomic_long counts[2];
static atomic_int broken; /* no write succeeds any more */
static struct timespec began;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int now(clockid_t clock, struct timespec *to) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    return real(clock, to);
}

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? strdup(value) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
    prefix = setting("CHAOS_FILES", "");
    action = setting("CHAOS_DO", "");
    counted = strcmp(setting("CHAOS_CALL", "write"), "sync") ? WRITES : SYNCS;
    at = atol(setting("CHAOS_AT", "0"));
    delay_ms = atoi(setting("CHAOS_DELAY", "0"));
    jump = atol(setting("CHAOS_JUMP", "0"));
    after_ms = atol(setting("CHAOS_AFTER", "0"));
    report = setting("CHAOS_REPORT", "");
    hit = setting("CHAOS_HIT", "");
    now(CLOCK_MONOTONIC, &began);
    unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void end(void) {
    FILE *file = *report ? fopen(report, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld %ld\n", atomic_load(&counts[WRITES]), atomic_load(&counts[SYNCS]));
    fclose(file);
}

/* Say that it happens. A system call of its own: `open` is one of ours. */
static void tell(void) {
    if (*hit) close(syscall(SYS_openat, AT_FDCWD, hit, O_CREAT | O_WRONLY, 0600));
}

static int concerns(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!*prefix || length < 0) return 0;
    path[length] = 0;
    return !strncmp(path, prefix, strlen(prefix));
}

/* 0: make the call. -1: fail with errno. 1: make half of it, and die. */
static int disturb(int file, int kind) {
    int saved = errno, found = 0;
    if (*action && concerns(file)) {
        long number = atomic_fetch_add(&counts[kind], 1) + 1;
        if (kind == counted) {
            if (!strcmp(action, "slow")) {
                if (number == 1) tell();
                usleep(1000 * delay_ms);
            } else if (number == at) {
                tell();
                if (!strcmp(action, "kill")) raise(SIGKILL);
                else if (!strcmp(action, "torn")) found = 1;
                else if (!strcmp(action, "eio")) found = -1;
                else atomic_store(&broken, 1);
            }
        }
        if (atomic_load(&broken) && kind == WRITES) found = -1;
    }
    errno = found < 0 ? (strcmp(action, "full") ? EIO : ENOSPC) : saved;
    return found;
}

#define DISTURB(file, kind, half) \
    switch (disturb(file, kind)) { \
    case -1: return -1; \
    case 1: half; raise(SIGKILL); \
    }

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    DISTURB(file, WRITES, real(file, data, size / 2))
    return real(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    DISTURB(file, WRITES, real(file, data, size / 2, place))
    return real(file, data, size, place);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    DISTURB(file, WRITES, real(file, data, size / 2, place))
    return real(file, data, size, place);
}

int ftruncate(int file, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    DISTURB(file, WRITES, (void)0)
    return real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    DISTURB(file, WRITES, (void)0)
    return real(file, size);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    DISTURB(file, SYNCS, (void)0)
    return real(file);
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    DISTURB(file, SYNCS, (void)0)
    return real(file);
}

/* A disk that became read-only refuses to open files for writing. */
static int refuses(int where, const char *path, int flags) {
    char whole[4096];
    if (strcmp(action, "readonly") || !atomic_load(&broken) || !(flags & (O_WRONLY | O_RDWR))) return 0;
    (void)where;
    if (!realpath(path, whole) && path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
    if (strncmp(whole, prefix, strlen(prefix))) return 0;
    errno = EROFS;
    return 1;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return refuses(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int clock_gettime(clockid_t clock, struct timespec *to) {
    int failed = now(clock, to);
    if (!failed && jump && clock == CLOCK_REALTIME) {
        struct timespec here;
        now(CLOCK_MONOTONIC, &here);
        long passed = (here.tv_sec - began.tv_sec) * 1000 + (here.tv_nsec - began.tv_nsec) / 1000000;
        if (passed >= after_ms) {
            static atomic_int told;
            if (!atomic_exchange(&told, 1)) tell();
            to->tv_sec += jump;
        }
    }
    return failed;
}

time_t time(time_t *to) {
    struct timespec here;
    clock_gettime(CLOCK_REALTIME, &here);
    if (to) *to = here.tv_sec;
    return here.tv_sec;
}

int gettimeofday(struct timeval *to, void *zone) {
    struct timespec here;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &here);
    to->tv_sec = here.tv_sec;
    to->tv_usec = here.tv_nsec / 1000;
    return 0;
}
