// What a template's memory file does not hold becomes the process's own memory.
//
// A machine's memory is a private mapping of the file. A page of a hole that is written to would come to be
// twice: the kernel first puts one of zeros into the file, for as long as the file is there, and copies that. Both
// count for the cgroup of the pod, which a guest that fills its memory would exceed by far.
#include "warm.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum {
	LEAST_MAPPING = 32 << 20, // a smaller mapping is none of a guest's memory
	LEAST_HOLE = 256 << 10,   // a smaller hole is not worth a mapping of the kernel's
	MOST_HOLES = 4096,
};

static void *map(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
	return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
}

// take_holes replaces the holes of a private mapping of a file that nobody writes to any more, which hold zeros as
// new memory does. A hole that cannot be replaced stays as it was.
static void take_holes(char *at, size_t size, int prot, int fd, off_t offset) {
	struct stat file;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode) || offset >= file.st_size) return;
	off_t end = (off_t)size < file.st_size - offset ? offset + (off_t)size : file.st_size;
	off_t data = offset;
	for (int i = 0; i < MOST_HOLES && data < end; i++) {
		off_t hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || hole >= end) return;
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0 && errno != ENXIO) return;
		if (data < 0 || data > end) data = end;
		if (data - hole < LEAST_HOLE) continue;
		(void)map(at + (hole - offset), (size_t)(data - hole), prot, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
}

EXPORTED void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
	void *got = map(at, size, prot, flags, fd, offset);
	if (got != MAP_FAILED && fd >= 0 && size >= LEAST_MAPPING && (flags & MAP_TYPE) == MAP_PRIVATE && (prot & PROT_WRITE)) {
		int before = errno;
		take_holes(got, size, prot, fd, offset);
		errno = before;
	}
	return got;
}
