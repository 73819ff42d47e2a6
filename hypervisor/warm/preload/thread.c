// Creating the parked threads again in the child.
#include "warm.h"

#include <errno.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#define AT_RSEQ_ALIGN 28
#endif

// warm_clone creates a thread that calls warm_revive(t) on the given stack.
long warm_clone(unsigned long flags, void *stack, int *parent_tid, int *child_tid, uintptr_t block, const struct thread *t);
__asm__(".text\n.hidden warm_clone\n.globl warm_clone\nwarm_clone:\n"
	" mov %rcx,%r10\n mov $56,%eax\n syscall\n test %rax,%rax\n jz 1f\n ret\n"
	"1: xor %ebp,%ebp\n mov %r9,%rdi\n call warm_revive\n hlt\n");

// rseq_size returns the size of each thread's area that glibc has registered: at least 32 bytes, or the kernel's size
// if that is larger and glibc uses it.
static uint32_t rseq_size(void) {
	if (__rseq_size <= 32) return 32;
	unsigned long size = getauxval(AT_RSEQ_FEATURE_SIZE), align = getauxval(AT_RSEQ_ALIGN);
	return align ? (uint32_t)((size + align - 1) / align * align) : __rseq_size;
}

static _Atomic int lost; // errno of a thread that could not be restored

// warm_revive runs in the new thread. It registers with the kernel what its original had registered, and returns from
// the signal that had parked the original. That restores the registers, signal mask and alternate stack too.
HIDDEN __attribute__((noreturn, used)) void warm_revive(const struct thread *t) {
	if (syscall(SYS_set_robust_list, t->robust, t->robust_size)) lost = errno;
	if (__rseq_size && syscall(SYS_rseq, t->block + (uintptr_t)__rseq_offset, rseq_size(), 0, RSEQ_SIG)) lost = errno;
	prctl(PR_SET_NAME, t->name);
	parking.parked++;
	futex_wake(&parking.parked);
	// No thread may run until all exist.
	while (parking.order != GO) futex_wait(&parking.order, FORK, 1000);
	__asm__ volatile("mov %0,%%rsp\n mov $15,%%eax\n syscall\n" : : "r"(t->frame) : "memory");
	__builtin_unreachable();
}

// revive_all creates every thread but me. It returns when each is ready and waits for the order to go: 0, or -errno.
int revive_all(const struct thread *me) {
	const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	int n = parking.taken, made = 1;
	if (syscall(SYS_set_robust_list, me->robust, me->robust_size)) return -errno;
	parking.parked = 1; // the calling thread
	for (int i = 0; i < n; i++) {
		const struct thread *t = &parking.thread[i];
		if (t == me) continue;
		int *id = (int *)(t->block + (uintptr_t)tid_offset);
		// The stack below the signal frame is unused: it was the handler's own, and no thread of the child returns to
		// it.
		void *stack = (void *)(((uintptr_t)t->frame - 256) & ~(uintptr_t)15);
		long r = warm_clone(flags, stack, id, id, t->block, t);
		if (r < 0) return (int)r;
		made++;
	}
	for (int p; (p = parking.parked) < made;) futex_wait(&parking.parked, p, 1000);
	return -lost;
}
