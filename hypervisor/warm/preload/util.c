// Small helpers. The child calls them while it is alone, so they take no locks and allocate no memory.
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int failed(char text[TEXT], const char *what) {
	int e = errno ? errno : EINVAL;
	set(text, TEXT, what);
	return -e;
}

// set copies a string, cut to the available space.
void set(char *to, size_t size, const char *from) {
	size_t n = strnlen(from, size - 1);
	memcpy(to, from, n);
	to[n] = 0;
}

int64_t now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

long futex_wait(_Atomic int *word, int value, long ms) {
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &t, 0, 0);
}

void futex_wake(_Atomic int *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, MAX_THREADS + 1, 0, 0, 0); }

// decimal writes a number that is not negative, and returns its first digit.
char *decimal(int n, char to[12]) {
	char *p = to + 11;
	*p = 0;
	do *--p = (char)('0' + n % 10); while (n /= 10);
	return p;
}

// read_all reads a file in dir with a number as its name, as a string, cut to the available space. It returns the
// length, or -1.
ssize_t read_all(const char *dir, int number, char *to, size_t size) {
	char path[64], digits[12];
	set(path, sizeof path, dir);
	set(path + strlen(path), sizeof path - strlen(path), decimal(number, digits));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return -1;
	size_t have = 0;
	ssize_t n = 0;
	while (have < size - 1 && (n = read(fd, to + have, size - 1 - have)) > 0) have += (size_t)n;
	int e = errno;
	close(fd);
	errno = e;
	to[have] = 0;
	return n < 0 ? -1 : (ssize_t)have;
}
