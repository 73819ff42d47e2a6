// Launcher starts processes in containers for the agent, and containers, in a fraction of the time that the OCI runtime
// needs. It stays ready, so an exec costs two forks and no start of a program. It needs no C library: the whole program is
// some kilobytes.
//
// The agent starts it once, with a SOCK_SEQPACKET socket as descriptor 3. A message is a struct request with its arrays
// and strings, and carries the descriptors of enum descriptor. The launcher never answers on the socket. It or one of its
// children writes one struct report to the request's pipe: the new process's id, or the step that has failed. After an
// invalid message, or if the children are killed, the pipe closes without a report. The launcher ends with its socket.
// A new process runs its program only after its report, so never after the agent has closed the pipe.
//
//     exec:      launcher --clone into the cgroup--> helper --setns, setsid, clone--> process --execve--> program
//     container: launcher --clone into the cgroup and new namespaces--> process --mounts, start--> program
//
// A container that joins a namespace needs the helper too. The helper and the process are children of the agent, because
// of CLONE_PARENT. The agent reaps both. The order of the steps is crun's, so that a seccomp filter and a container's files
// have the same effect with both. A container's process waits for a byte on its pipe START before it runs its program.
//
// Safety. The agent trusts nothing in a container, and neither does this program:
//   - The launcher itself uses no path. It reads only the agent's socket, which no child keeps.
//   - The process of a new container uses paths of the agent for the sources of mounts. It resolves paths in the container's
//     root so that no link leads out of the root. It opens only descriptors that name a place, and the null device.
//   - Before a process enters its directory and looks for its program, it closes all descriptors but its streams, and its
//     ends of its own pipe and of the pipe START, which close on exec. It follows no link of /proc to the directory.
//   - It opens no other file, so it reads nothing that a container wrote.
//   - No process of a container may read or trace a child before its exec: it is not dumpable. A process with
//     CAP_SYS_PTRACE in the VM's own user namespace could, and such a process has the whole VM anyway.
//   - The program is a sealed file in memory. So a container that reaches it through /proc/PID/exe cannot change it.
#include "launcher.h"

#include <linux/close_range.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/sched.h>

enum { CONTROL = 3 }; // the agent's socket

static _Alignas(8) char message[MAX_MESSAGE]; // a received request
int reports;
int *id;

// The compiler may call these.
void *memset(void *to, int value, size_t n) {
	for (size_t i = 0; i < n; i++) {
		((volatile char *)to)[i] = (char)value;
	}
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
	for (size_t i = 0; i < n; i++) {
		((volatile char *)to)[i] = ((const char *)from)[i];
	}
	return to;
}

void report(enum step step, long value) {
	struct report r = {step, (int32_t)value};
	CALL(__NR_write, reports, &r, sizeof r, 0, 0);
}

void need(long result, enum step step) {
	if (result < 0) {
		report(step, -result);
		quit(1);
	}
}

// duplicate forks a child of this process's parent.
static long duplicate(uint64_t flags, int cgroup) {
	struct clone_args args = {.flags = CLONE_PARENT | flags, .cgroup = (unsigned)cgroup, .parent_tid = (uintptr_t)id};
	return CALL(__NR_clone3, &args, sizeof args, 0, 0, 0);
}

// handle sets the handler of a signal: the default one, 0, or 1 to ignore the signal.
static void handle(int signal, long handler) {
	struct {
		long handler, flags, restorer, mask;
	} action = {handler, 0, 0, 0};
	CALL(__NR_rt_sigaction, signal, &action, 0, sizeof action.mask, 0);
}

// share makes the memory of id.
static long share(void) {
	return CALL(__NR_mmap, 0, sizeof *id, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

// leave closes what a child must not have, and lets it end when nobody reads its output.
static void leave(void) {
	CALL(__NR_close, CONTROL, 0, 0, 0, 0);
	handle(13, 0); // SIGPIPE
}

// help is the helper: it joins the namespaces and forks the process.
__attribute__((noreturn)) static void help(const struct request *r, const int fds[], size_t joined) {
	leave();
	uint64_t made = 0;
	if (r->flags & CREATE) {
		made = r->namespaces & ~(uint64_t)CLONE_NEWCGROUP;
		for (size_t i = 0; i < joined; i++) {
			need(CALL(__NR_setns, fds[JOINED + i], 0, 0, 0, 0), BAD_NAMESPACES);
		}
	} else {
		need(CALL(__NR_setns, fds[FIRST], r->namespaces, 0, 0, 0), BAD_NAMESPACES);
		need(CALL(__NR_setsid, 0, 0, 0, 0, 0), BAD_SESSION);
	}
	long shared = share();
	need(shared, BAD_FORK);
	id = (int *)shared;
	long pid = duplicate(CLONE_PARENT_SETTID | made, 0); // the kernel sets the id before the child runs
	if (!pid) {
		process(r, fds);
	}
	need(pid, BAD_FORK);
	quit(0);
}

// launch serves a request with a number of namespaces to join.
static void launch(const struct request *r, const int fds[], size_t joined) {
	reports = fds[REPORTS];
	if (!(r->flags & CREATE) || joined) {
		long pid = duplicate(CLONE_INTO_CGROUP, fds[CGROUP]);
		if (!pid) {
			help(r, fds, joined);
		}
		if (pid < 0) {
			report(BAD_CGROUP, -pid);
		}
		return;
	}
	long shared = share();
	if (shared < 0) {
		report(BAD_FORK, -shared);
		return;
	}
	id = (int *)shared;
	uint64_t made = r->namespaces & ~(uint64_t)CLONE_NEWCGROUP;
	long pid = duplicate(CLONE_INTO_CGROUP | CLONE_PARENT_SETTID | made, fds[CGROUP]);
	if (!pid) {
		leave();
		process(r, fds);
	}
	if (pid < 0) {
		report(BAD_NAMESPACES, -pid);
	}
	CALL(__NR_munmap, id, sizeof *id, 0, 0, 0);
	id = 0;
}

// valid checks the sizes in a message of n bytes, and the number of namespaces to join.
static int valid(const struct request *r, size_t n, size_t joined) {
	if (n < sizeof *r || r->version != VERSION || r->size != n) {
		return 0;
	}
	if (r->limits > MAX_LIMITS || r->filter > MAX_FILTER || r->groups > n || r->strings > n) {
		return 0;
	}
	if (r->args < 1 || r->args > MAX_STRINGS || r->env > MAX_STRINGS - r->args) {
		return 0;
	}
	if (r->mounts > MAX_MOUNTS || r->masked > MAX_MOUNTS || r->closed > MAX_MOUNTS || r->nodes > MAX_NODES ||
	    r->mounts + r->masked + r->closed >= MAX_MOUNTS) {
		return 0;
	}
	size_t arrays = sizeof *r + r->limits * sizeof(struct limit) + r->filter * sizeof(uint64_t) +
	                r->mounts * sizeof(uint64_t) + r->nodes * sizeof(struct node) + r->groups * sizeof(uint32_t);
	if (arrays + r->strings != n) {
		return 0;
	}
	size_t all = 1 + r->args + r->env, more = 4 * r->mounts + 2 * r->nodes + r->masked + r->closed;
	if (r->flags & CREATE) {
		all += 4 + more;
	} else if (more || joined) {
		return 0;
	}
	size_t ends = 0;
	for (size_t i = arrays; i < n; i++) {
		ends += !message[i];
	}
	return r->strings > 0 && !message[n - 1] && ends == all;
}

// The structures of recvmsg(2) with one message of control data.
struct vector {
	void *base;
	size_t size;
};

struct header {
	void *name;
	uint64_t name_size;
	struct vector *vectors;
	size_t vector_count;
	void *control;
	size_t control_size;
	uint64_t flags;
};

struct control {
	size_t size;
	int level, type;
	int fds[JOINED + MAX_JOINED + 1]; // one too many is found out, and the size is a multiple of 8
};

// serve receives a request and serves it.
static void serve(void) {
	struct vector v = {message, sizeof message};
	struct control c = {.size = 0};
	struct header h = {.vectors = &v, .vector_count = 1, .control = &c, .control_size = sizeof c};
	long n = CALL(__NR_recvmsg, CONTROL, &h, 0x40000000, 0, 0); // MSG_CMSG_CLOEXEC
	if (n == -EINTR) {
		return;
	}
	if (n <= 0) { // the agent has gone
		quit(0);
	}
	size_t count = 0;
	size_t begin = offsetof(struct control, fds);
	if (h.control_size >= begin && c.level == 1 && c.type == 1) { // SOL_SOCKET, SCM_RIGHTS
		count = (c.size - begin) / sizeof(int);
	}
	// 0x28 is MSG_CTRUNC and MSG_TRUNC.
	if (!(h.flags & 0x28) && count >= JOINED && count <= JOINED + MAX_JOINED &&
	    valid((const struct request *)message, (size_t)n, count - JOINED)) {
		launch((const struct request *)message, c.fds, count - JOINED);
	}
	memset(message, 0, (size_t)n); // a later child, in another container, must not have it
	CALL(__NR_close_range, CONTROL + 1, ~0u, 0, 0, 0);
}

__attribute__((noreturn)) void run(void) {
	uint64_t none = 0;
	CALL(__NR_rt_sigprocmask, 2, &none, 0, sizeof none, 0); // SIG_SETMASK
	for (int signal = 1; signal <= 64; signal++) {
		handle(signal, signal == 13); // only SIGPIPE is ignored, because the agent may have closed a pipe
	}
	if (CALL(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)) {
		quit(1);
	}
	for (;;) {
		serve();
	}
}

// The kernel starts the program here, with no caller and any stack.
__asm__(".globl _start\n_start: xor %ebp, %ebp\nand $-16, %rsp\ncall run\n");
