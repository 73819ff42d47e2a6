// The layout of requests and reports, and functions for all files of the launcher.
#pragma once

#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __x86_64__
#error "the launcher needs the system calls of this architecture"
#endif

enum {
	VERSION = 2,
	MAX_MESSAGE = 128 << 10,
	MAX_STRINGS = 4096, // arguments and variables
	MAX_LIMITS = 16,
	MAX_FILTER = 4096, // BPF_MAXINSNS
	MAX_MOUNTS = 1024, // with masked and read-only paths
	MAX_NODES = 1024,
	MAX_PATH = 4096,
	MAX_JOINED = 3, // namespaces: pid, ipc and uts
	LAST_CAPABILITY = 63,
	// Flags of a request.
	NO_NEW_PRIVS = 1,
	CREATE = 2, // a container
	READ_ONLY = 4,
	DEVICES = 8, // make the usual devices and links in /dev
};

// The descriptors of a message, in this order. JOINED is the first of up to MAX_JOINED namespaces of a new container.
enum descriptor { STDIN, STDOUT, STDERR, CGROUP, REPORTS, FIRST, START = FIRST, JOINED };

// limit is an argument of setrlimit(2).
struct limit {
	uint64_t resource, soft, hard;
};

// node is a device of a new container.
struct node {
	uint32_t mode, device, uid, gid;
};

// request is followed by limits, instructions of the seccomp filter, flags of mounts (64 bits each), nodes, groups, and
// strings with their zero bytes: the directory, the arguments and the environment. A new container has more strings: its
// root, host name, domain name and keyring; each mount's source, target, type and data; each node's directory and name;
// the masked paths, and the read-only paths.
struct request {
	uint32_t version, size; // bytes of the whole message
	uint32_t uid, gid, umask, flags;
	uint32_t namespaces; // to join, or to make for a container
	uint32_t filter_flags;
	uint64_t bounding, permitted, effective, inheritable, ambient;
	uint32_t limits, filter, groups, args, env, strings; // numbers; strings are bytes
	uint32_t mounts, nodes, masked, closed;              // numbers; closed are the read-only paths
};

// The steps of reports. The value of RUNNING is the process's id, and the others' value is an errno.
enum step {
	RUNNING = 1, // the process executes its program next, or waits for the start of its container
	BAD_CGROUP = 16,
	BAD_NAMESPACES,
	BAD_SESSION,
	BAD_FORK,
	BAD_STREAMS,
	BAD_LIMIT,
	BAD_FILTER,
	BAD_GROUPS,
	BAD_OWNER,
	BAD_CAPABILITIES,
	BAD_USER,
	BAD_PRIVILEGES,
	BAD_DIRECTORY, // cannot enter it
	NOT_FOUND,     // no such program
	NOT_OPENED,    // the program cannot be executed
	BAD_ROOT,
	BAD_MOUNT,
	BAD_DEVICE,
	BAD_PATH, // to be masked or read-only
	BAD_NAME,
};

struct report {
	uint32_t step;
	int32_t value;
};

static inline long call(long n, long a, long b, long c, long d, long e) {
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0; // the offset of mmap(2)
	long result;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}

#define CALL(n, a, b, c, d, e) call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

void *memset(void *to, int value, size_t n);
void *memcpy(void *restrict to, const void *restrict from, size_t n);

static inline size_t length(const char *s) {
	size_t n = 0;
	while (s[n]) {
		n++;
	}
	return n;
}

__attribute__((noreturn)) static inline void quit(int status) {
	for (;;) {
		CALL(__NR_exit_group, status, 0, 0, 0, 0);
	}
}

extern int reports; // the request's pipe
extern int *id;     // of the new process, for the agent; in memory that it shares with the process that clones it

void report(enum step step, long value);
// need ends this process if a call has failed.
void need(long result, enum step step);

// process is the rest of the new process until its program, within the container's namespaces and cgroup.
__attribute__((noreturn)) void process(const struct request *r, const int fds[]);

// contain makes the file systems of a new container, which become those of this process. strings are the container's.
void contain(const struct request *r, const uint64_t *mounts, const struct node *nodes, const char *cwd, char *strings);
