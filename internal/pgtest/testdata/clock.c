/* Sets the time of day of whoever preloads it ahead by the seconds in the file $CLOCK_AHEAD, which is mapped once.
 * Postgres also asks for the time in signal handlers. There a program may neither open files nor allocate memory, as
 * libfaketime does. Clocks that measure durations stay as they are. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void map(void) {
	int fd = open(getenv("CLOCK_AHEAD"), O_RDONLY);
	void *at = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort();
	ahead = at;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, clock, t);
	if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		t->tv_sec += *ahead;
	return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}
