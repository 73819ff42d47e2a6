// The parts of memory that a template's file does not hold become the process's own memory.
//
// A VM's memory is a private mapping of the file. A write to a page of a hole would allocate two pages: the kernel
// first adds a page of zeros to the file, which stays as long as the file does, and then copies it. Both count for the
// pod's cgroup. A guest that fills its memory would far exceed the cgroup's limit.
#include "warm.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum {
	LEAST_MAPPING = 32 << 20, // a smaller mapping is not a guest's memory
	LEAST_HOLE = 256 << 10,   // a smaller hole is not worth a separate mapping
	MOST_HOLES = 4096,
};

static void *map(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
	return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
}

// take_holes replaces the holes in a private mapping of a file that is not written any more. New memory has zeros like
// the holes. A hole that cannot be replaced stays.
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
