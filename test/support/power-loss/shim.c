// A disk that forgets. Preloaded into a process (LD_PRELOAD), it keeps for every file under DLO_POWER_DIR a shadow in
// DLO_POWER_SHADOW that holds only what was fsynced: each write marks a dirty range, fsync and fdatasync copy the dirty
// ranges. A power cut is then SIGKILL plus "take the shadows". Names in the shadow folder are the file's path below
// DLO_POWER_DIR with '/' written as '%'. Unlink and rename count as durable at once; a new file as durable when it is
// first synced. The real fsync is left out: the page cache outlives the process, and the tests stay fast.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FDS 4096
#define MAX_RANGES 4096
#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

typedef struct { off_t from, to; } Range;
// One per file (by shadow path), shared by all its descriptors.
typedef struct File {
  char shadow[PATH_MAX];
  Range ranges[MAX_RANGES];
  int count;
  int truncated;
  struct File *next;
} File;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static File *files;
static File *by_fd[MAX_FDS];
static char dir[PATH_MAX], shadows[PATH_MAX];
static size_t dir_length;

__attribute__((constructor)) static void start(void) {
  const char *d = getenv("DLO_POWER_DIR"), *s = getenv("DLO_POWER_SHADOW");
  if (!d || !s || !realpath(d, dir)) { dir[0] = 0; return; }
  snprintf(shadows, sizeof shadows, "%s", s);
  dir_length = strlen(dir);
}

// The shadow's path of a file below the watched folder; 0 when it is not below it or is shared memory (rebuilt at start).
static int shadow_of(const char *path, char *out) {
  if (!dir[0]) return 0;
  char full[PATH_MAX], folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  const char *name = slash ? slash + 1 : path;
  if (slash) *slash = 0;
  char real_folder[PATH_MAX];
  if (!realpath(slash ? (folder[0] ? folder : "/") : ".", real_folder)) return 0;
  if (snprintf(full, sizeof full, "%s/%s", real_folder, name) >= (int)sizeof full) return 0;
  if (strncmp(full, dir, dir_length) != 0 || full[dir_length] != '/') return 0;
  size_t length = strlen(full);
  if (length > 4 && strcmp(full + length - 4, "-shm") == 0) return 0;
  int used = snprintf(out, PATH_MAX, "%s/", shadows);
  for (const char *p = full + dir_length + 1; *p && used < PATH_MAX - 1; p++) out[used++] = *p == '/' ? '%' : *p;
  out[used] = 0;
  return 1;
}

static File *file_for(const char *shadow) {
  for (File *f = files; f; f = f->next) if (strcmp(f->shadow, shadow) == 0) return f;
  File *f = calloc(1, sizeof *f);
  snprintf(f->shadow, sizeof f->shadow, "%s", shadow);
  f->next = files;
  files = f;
  return f;
}

static void opened(int fd, const char *path, int flags) {
  if (fd < 0 || fd >= MAX_FDS) return;
  char shadow[PATH_MAX];
  pthread_mutex_lock(&lock);
  by_fd[fd] = shadow_of(path, shadow) ? file_for(shadow) : NULL;
  if (by_fd[fd] && (flags & O_TRUNC)) by_fd[fd]->truncated = 1;
  pthread_mutex_unlock(&lock);
}

static void wrote(int fd, off_t from, ssize_t bytes) {
  if (bytes <= 0 || fd < 0 || fd >= MAX_FDS || !by_fd[fd]) return;
  pthread_mutex_lock(&lock);
  File *f = by_fd[fd];
  if (f->count > 0 && f->ranges[f->count - 1].to == from) f->ranges[f->count - 1].to = from + bytes;
  else if (f->count < MAX_RANGES) f->ranges[f->count++] = (Range){from, from + bytes};
  else { // too many: one range that covers all
    Range all = {from, from + bytes};
    for (int i = 0; i < f->count; i++) {
      if (f->ranges[i].from < all.from) all.from = f->ranges[i].from;
      if (f->ranges[i].to > all.to) all.to = f->ranges[i].to;
    }
    f->ranges[0] = all;
    f->count = 1;
  }
  pthread_mutex_unlock(&lock);
}

static void synced(int fd) {
  if (fd < 0 || fd >= MAX_FDS || !by_fd[fd]) return;
  static int (*real_open)(const char *, int, ...);
  if (!real_open) real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
  pthread_mutex_lock(&lock);
  File *f = by_fd[fd];
  static char buffer[1 << 16];
  int out = real_open(f->shadow, O_WRONLY | O_CREAT, 0600);
  struct stat st;
  if (out >= 0 && fstat(fd, &st) == 0) {
    ssize_t (*real_pwrite)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    ssize_t (*real_pread)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    int (*real_truncate)(int, off_t) = dlsym(RTLD_NEXT, "ftruncate64");
    for (int i = 0; i < f->count; i++) {
      for (off_t at = f->ranges[i].from; at < f->ranges[i].to;) {
        size_t want = f->ranges[i].to - at > (off_t)sizeof buffer ? sizeof buffer : (size_t)(f->ranges[i].to - at);
        ssize_t got = real_pread(fd, buffer, want, at);
        if (got <= 0) break;
        real_pwrite(out, buffer, got, at);
        at += got;
      }
    }
    real_truncate(out, st.st_size);
    f->count = 0;
    f->truncated = 0;
  }
  if (out >= 0) close(out);
  pthread_mutex_unlock(&lock);
}

static int mode_of(int flags, va_list rest) { return (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0; }

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    va_list rest; va_start(rest, flags); int mode = mode_of(flags, rest); va_end(rest); \
    int fd = real(path, flags, mode); \
    opened(fd, path, flags); \
    return fd; \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int at, const char *path, int flags, ...) { \
    REAL(int, #name, int, const char *, int, ...); \
    va_list rest; va_start(rest, flags); int mode = mode_of(flags, rest); va_end(rest); \
    int fd = real(at, path, flags, mode); \
    if (at == AT_FDCWD || path[0] == '/') opened(fd, path, flags); \
    return fd; \
  }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
  REAL(int, "close", int);
  if (fd >= 0 && fd < MAX_FDS) by_fd[fd] = NULL;
  return real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  int watched = fd >= 0 && fd < MAX_FDS && by_fd[fd];
  off_t at = watched ? lseek(fd, 0, (fcntl(fd, F_GETFL) & O_APPEND) ? SEEK_END : SEEK_CUR) : 0;
  ssize_t n = real(fd, data, size);
  if (watched) wrote(fd, at, n);
  return n;
}

#define PWRITE(name) \
  ssize_t name(int fd, const void *data, size_t size, off_t at) { \
    REAL(ssize_t, #name, int, const void *, size_t, off_t); \
    ssize_t n = real(fd, data, size, at); \
    wrote(fd, at, n); \
    return n; \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name) \
  int name(int fd, off_t size) { \
    REAL(int, #name, int, off_t); \
    int r = real(fd, size); \
    if (r == 0 && fd >= 0 && fd < MAX_FDS && by_fd[fd]) by_fd[fd]->truncated = 1; \
    return r; \
  }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int fsync(int fd) {
  REAL(int, "fsync", int);
  if (fd >= 0 && fd < MAX_FDS && by_fd[fd]) { synced(fd); return 0; }
  return real(fd);
}

int fdatasync(int fd) {
  REAL(int, "fdatasync", int);
  if (fd >= 0 && fd < MAX_FDS && by_fd[fd]) { synced(fd); return 0; }
  return real(fd);
}

int unlink(const char *path) {
  REAL(int, "unlink", const char *);
  char shadow[PATH_MAX];
  int r = real(path);
  if (r == 0 && shadow_of(path, shadow)) real(shadow);
  return r;
}

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  char a[PATH_MAX], b[PATH_MAX];
  int r = real(from, to);
  if (r == 0 && shadow_of(from, a) && shadow_of(to, b)) real(a, b);
  return r;
}

// A second name for a file: durable at once, with what the first one has durable.
int link(const char *from, const char *to) {
  REAL(int, "link", const char *, const char *);
  char a[PATH_MAX], b[PATH_MAX];
  int r = real(from, to);
  if (r == 0 && shadow_of(from, a) && shadow_of(to, b)) real(a, b);
  return r;
}
