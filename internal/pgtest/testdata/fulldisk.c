/* Makes a disk full for whoever preloads it: writes that would make a file grow fail with ENOSPC while
 * the file $FULL_DISK.<part> exists, for each <part> that the path of the file to grow contains, such as
 * "base" for .../base/.... Writing over what a file has already still works, as on a real disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *const parts[] = {"base", "pg_wal"};

/* full says whether the file's part of the disk has no room for it to end at the given offset. */
static int full(int fd, off_t end) {
	const char *flag = getenv("FULL_DISK");
	char link[32], path[PATH_MAX], name[PATH_MAX + 16], within[32];
	struct stat st;
	ssize_t n;
	if (!flag || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || end <= st.st_size)
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if ((n = readlink(link, path, sizeof path - 1)) < 0)
		return 0;
	path[n] = 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		snprintf(within, sizeof within, "/%s/", parts[i]);
		snprintf(name, sizeof name, "%s.%s", flag, parts[i]);
		if (strstr(path, within) && access(name, F_OK) == 0)
			return 1;
	}
	return 0;
}

static off_t total(const struct iovec *v, int n) {
	off_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += v[i].iov_len;
	return sum;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(fd, end) do { if (full(fd, end)) { errno = ENOSPC; return -1; } } while (0)

ssize_t write(int fd, const void *buf, size_t n) {
	off_t at = lseek(fd, 0, SEEK_CUR);
	if (at >= 0)
		REFUSE(fd, at + (off_t)n);
	return REAL(write)(fd, buf, n);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at) {
	REFUSE(fd, at + (off_t)n);
	return REAL(pwrite)(fd, buf, n, at);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at) {
	REFUSE(fd, at + (off_t)n);
	return REAL(pwrite64)(fd, buf, n, at);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) {
	REFUSE(fd, at + total(v, n));
	return REAL(pwritev)(fd, v, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) {
	REFUSE(fd, at + total(v, n));
	return REAL(pwritev64)(fd, v, n, at);
}

ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags) {
	REFUSE(fd, at + total(v, n));
	return REAL(pwritev2)(fd, v, n, at, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off64_t at, int flags) {
	REFUSE(fd, at + total(v, n));
	return REAL(pwritev64v2)(fd, v, n, at, flags);
}

int ftruncate(int fd, off_t end) {
	REFUSE(fd, end);
	return REAL(ftruncate)(fd, end);
}

int ftruncate64(int fd, off64_t end) {
	REFUSE(fd, end);
	return REAL(ftruncate64)(fd, end);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
	REFUSE(fd, at + n);
	return REAL(fallocate)(fd, mode, at, n);
}

int fallocate64(int fd, int mode, off64_t at, off64_t n) {
	REFUSE(fd, at + n);
	return REAL(fallocate64)(fd, mode, at, n);
}

/* These return the error instead of setting it. */
int posix_fallocate(int fd, off_t at, off_t n) {
	return full(fd, at + n) ? ENOSPC : REAL(posix_fallocate)(fd, at, n);
}

int posix_fallocate64(int fd, off64_t at, off64_t n) {
	return full(fd, at + n) ? ENOSPC : REAL(posix_fallocate64)(fd, at, n);
}
