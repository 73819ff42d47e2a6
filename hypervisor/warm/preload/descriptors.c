// The child's descriptors. Files that a fork shares but must not share are replaced under the same number.
#include "warm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// put gives fresh the number, and closes fresh.
static int put(int fresh, int number, int flags, char text[TEXT]) {
	if (fresh < 0) return failed(text, "make a descriptor");
	if (dup3(fresh, number, flags & O_CLOEXEC) < 0) return failed(text, "put a descriptor in its place");
	close(fresh);
	return 0;
}

// value returns the number behind a key of a descriptor's information, 0 if there is none.
static uint64_t value(const char *info, const char *key, int base) {
	const char *p = strstr(info, key);
	return p ? strtoull(p + strlen(key), 0, base) : 0;
}

// ours reports whether a descriptor belongs to the request.
static int ours(const struct request *r, const struct fds *f, int n) {
	for (uint32_t i = 0; i < r->files; i++)
		if (f->file[i] == n || r->number[i] == n) return 1;
	for (uint32_t i = 0; i < r->groups; i++)
		if (f->group[i] == n) return 1;
	return n == f->userns || n == f->netns || n == f->landlock || n == f->filter;
}

// renew_socket replaces a connected socket by one with a closed peer, so that QEMU listens again. A listening socket
// that is not replaced would be the parent's, which is an error.
static int renew_socket(int n, char text[TEXT]) {
	int listens = 0, pair[2];
	socklen_t size = sizeof listens;
	if (getsockopt(n, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size)) return failed(text, "ask a socket");
	errno = EBUSY;
	if (listens) return failed(text, "a listening socket that the request does not replace");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) return failed(text, "make a socket");
	close(pair[1]);
	return put(pair[0], n, O_CLOEXEC, text);
}

// harmless reports whether children may share a file without being able to write to each other. It must be open for
// reading only, or sealed like the guest's memory, or not a regular file (/dev/null, a pipe of the parent). A tap is
// never harmless.
static int harmless(int n, char text[TEXT]) {
	struct stat st;
	int flags = fcntl(n, F_GETFL);
	if (flags < 0 || fstat(n, &st)) return failed(text, "ask a file");
	errno = EBUSY;
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, 200)) // /dev/net/tun
		return failed(text, "a network card that the request does not replace");
	if (!S_ISREG(st.st_mode) || (flags & O_ACCMODE) == O_RDONLY) return 0;
	int seals = fcntl(n, F_GET_SEALS);
	if (seals >= 0 && seals & F_SEAL_WRITE) return 0;
	errno = EBUSY;
	return failed(text, "a file for writing that the request does not replace");
}

static int renew(int n, const char *link, char text[TEXT]) {
	static char info[16 << 10]; // the child is alone here
	if (strncmp(link, "socket:", 7) == 0) return renew_socket(n, text);
	if (strncmp(link, "anon_inode:", 11) != 0) return harmless(n, text);
	if (read_all("/proc/self/fdinfo/", n, info, sizeof info) < 0) return failed(text, "read a descriptor's information");
	int flags = (int)value(info, "flags:", 8);
	if (strcmp(link, "anon_inode:[eventfd]") == 0) {
		int kind = (flags & (O_NONBLOCK | O_CLOEXEC)) | (value(info, "eventfd-semaphore:", 10) ? EFD_SEMAPHORE : 0);
		uint64_t count = value(info, "eventfd-count:", 16);
		int fresh = eventfd(0, kind);
		if (fresh >= 0 && count && write(fresh, &count, sizeof count) != sizeof count) return failed(text, "count an event's");
		return put(fresh, n, flags, text);
	}
	if (strcmp(link, "anon_inode:[signalfd]") == 0) {
		uint64_t mask = value(info, "sigmask:", 16);
		return put((int)syscall(SYS_signalfd4, -1, &mask, sizeof mask, flags & (O_NONBLOCK | O_CLOEXEC)), n, flags, text);
	}
	if (strcmp(link, "anon_inode:[eventpoll]") == 0 && !strstr(info, "tfd:"))
		return put(epoll_create1(flags & O_CLOEXEC), n, flags, text);
	errno = ENOTSUP;
	return failed(text, link); // for example an epoll in use, or io_uring
}

// list writes the numbers of all open descriptors except the list's own.
static int list(int *numbers, char text[TEXT]) {
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	if (dir < 0) return failed(text, "list the descriptors");
	char buf[4096] __attribute__((aligned(8)));
	long r;
	while ((r = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < r; at += ((struct dirent64 *)(buf + at))->d_reclen) {
			const char *name = ((struct dirent64 *)(buf + at))->d_name;
			if (name[0] < '0' || name[0] > '9' || atoi(name) == dir) continue;
			if (n == MAX_OPEN) {
				errno = E2BIG;
				return failed(text, "list the descriptors: too many");
			}
			numbers[n++] = atoi(name);
		}
	if (r < 0) return failed(text, "list the descriptors");
	close(dir);
	return n;
}

// own_descriptors replaces the child's shared descriptors, except keep, and puts the request's files in their places.
int own_descriptors(const struct request *r, const struct fds *f, int keep, char text[TEXT]) {
	static int numbers[MAX_OPEN]; // the child is alone here
	int n = list(numbers, text);
	if (n < 0) return n;
	for (int i = 0; i < n; i++) {
		char path[40] = "/proc/self/fd/", digits[12], link[64];
		if (numbers[i] == keep || ours(r, f, numbers[i])) continue;
		strcat(path, decimal(numbers[i], digits));
		ssize_t size = readlink(path, link, sizeof link - 1);
		if (size < 0) return failed(text, "read a descriptor's kind");
		link[size] = 0;
		int err = renew(numbers[i], link, text);
		if (err) return err;
	}
	for (uint32_t i = 0; i < r->files; i++) {
		// QEMU inherits the file, like one that came through exec.
		int err = put(f->file[i], r->number[i], 0, text);
		if (err) return err;
	}
	return 0;
}
