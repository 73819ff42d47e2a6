// Parking every thread but the control thread.
#include "warm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc reserves this signal for pthread_cancel: no program can block it, and QEMU cancels no thread.
#define PARKING_SIGNAL 32

// The time for all threads together to park, in microseconds. A thread that blocks uninterruptibly in the kernel is not
// quiet either.
#define PATIENCE 2000000

struct parking parking;
int tid_offset;

// quiet reports whether an interrupted thread was blocked in a system call: it returned EINTR, and the instruction
// before the next one is syscall.
static int quiet(const ucontext_t *u) {
	const greg_t *g = u->uc_mcontext.gregs;
	return g[REG_RAX] == -EINTR && memcmp((const char *)g[REG_RIP] - 2, "\x0f\x05", 2) == 0;
}

// park waits for the order to go. The thread can be copied meanwhile.
static void park(struct thread *t, void *frame) {
	t->tid = (pid_t)syscall(SYS_gettid);
	t->frame = frame;
	__asm__("mov %%fs:0,%0" : "=r"(t->block));
	syscall(SYS_get_robust_list, 0, &t->robust, &t->robust_size);
	prctl(PR_GET_NAME, t->name);
	if (!quiet(frame)) parking.busy++;
	parking.parked++;
	futex_wake(&parking.parked);
	for (int order; (order = parking.order) != GO;) {
		if (order == FORK && t->tid == getpid() && !parking.forked) {
			// The main thread forks, so that it is the leader of the child as well. The child's parent is the parent's
			// parent, the caller, which reaps it.
			int *id = (int *)(t->block + (uintptr_t)tid_offset);
			long r = syscall(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, id, 0);
			if (r == 0) {
				child(t);
				return;
			}
			parking.forked = r < 0 ? -errno : (int)r;
			futex_wake(&parking.forked);
			continue;
		}
		futex_wait(&parking.order, order, 1000);
	}
}

static void handler(int sig, siginfo_t *info, void *frame) {
	(void)sig, (void)info;
	int e = errno;
	parking.inside++; // before the order is read: thaw waits for it
	int place = parking.order == PARK ? parking.taken++ : MAX_THREADS;
	if (place < MAX_THREADS) park(&parking.thread[place], frame); // else too late, or too many
	parking.inside--;
	futex_wake(&parking.inside);
	errno = e;
}

__asm__(".text\n.hidden warm_restore\n.globl warm_restore\nwarm_restore:\n mov $15,%eax\n syscall\n");
extern HIDDEN void warm_restore(void);

// find_tid finds the offset of a thread's id in glibc's thread block. It must not run in the main thread: it looks for
// the offset at which both threads' blocks have their ids.
int find_tid(const char *main_block, char text[TEXT]) {
	const char *block = (const char *)pthread_self();
	pid_t ids[2] = {getpid(), (pid_t)syscall(SYS_gettid)};
	for (int o = 0x80; o < 0x800; o += 4)
		if (memcmp(main_block + o, &ids[0], sizeof *ids) == 0 && memcmp(block + o, &ids[1], sizeof *ids) == 0) {
			tid_offset = o;
			return 0;
		}
	errno = ENOSYS;
	return failed(text, "find the thread's id in its block: another C library");
}

// park_setup installs the handler.
int park_setup(char text[TEXT]) {
	// The kernel's own layout: glibc's sigaction refuses this signal.
	struct {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} action = {handler, SA_SIGINFO | 0x04000000 /* SA_RESTORER */, warm_restore, ~0ULL};
	if (syscall(SYS_rt_sigaction, PARKING_SIGNAL, &action, 0, 8)) return failed(text, "install the parking handler");
	return 0;
}

// known reports whether a thread was signalled to park.
static int known(const pid_t *told, int n, pid_t tid) {
	for (int i = 0; i < n; i++)
		if (told[i] == tid) return 1;
	return 0;
}

// tell signals each thread that was not signalled before to park, and returns their number.
static int tell(pid_t *told, int *n, char text[TEXT]) {
	pid_t control = (pid_t)syscall(SYS_gettid), self = getpid();
	int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fresh = 0;
	if (dir < 0) return failed(text, "list the threads");
	char buf[4096] __attribute__((aligned(8)));
	long r;
	while ((r = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < r; at += ((struct dirent64 *)(buf + at))->d_reclen) {
			pid_t tid = atoi(((struct dirent64 *)(buf + at))->d_name);
			if (tid == 0 || tid == control || known(told, *n, tid)) continue;
			if (*n == MAX_THREADS) {
				close(dir);
				errno = E2BIG;
				return failed(text, "park the threads: too many");
			}
			if (syscall(SYS_tgkill, self, tid, PARKING_SIGNAL)) continue; // it has ended
			told[(*n)++] = tid;
			fresh++;
		}
	int e = errno;
	close(dir);
	errno = e;
	return r < 0 ? failed(text, "list the threads") : fresh;
}

// forget removes threads that have ended before they could park.
static void forget(pid_t *told, int *n) {
	pid_t self = getpid();
	for (int i = 0; i < *n;)
		if (syscall(SYS_tgkill, self, told[i], 0) && errno == ESRCH) told[i] = told[--*n];
		else i++;
}

// freeze parks all threads. After an error the caller must thaw.
int freeze(char text[TEXT]) {
	pid_t told[MAX_THREADS];
	int n = 0, fresh;
	parking.taken = parking.parked = parking.busy = parking.forked = 0;
	parking.order = PARK;
	int64_t until = now_us() + PATIENCE;
	do { // until no new thread is found: a running thread may create one
		if ((fresh = tell(told, &n, text)) < 0) return fresh;
		for (int p; (p = parking.parked) < n;) {
			if (now_us() > until) {
				errno = ETIMEDOUT;
				return failed(text, "park the threads");
			}
			if (futex_wait(&parking.parked, p, 20) && errno == ETIMEDOUT) forget(told, &n);
		}
	} while (fresh);
	return n;
}

void thaw(void) {
	parking.order = GO;
	futex_wake(&parking.order);
	for (int p; (p = parking.inside) != 0;) futex_wait(&parking.inside, p, 1000);
}
