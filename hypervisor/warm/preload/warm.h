// A library that is preloaded into a stock QEMU and forks it on request, including all of its threads. The process that
// is forked is the parent, its copies are the children. Each child becomes one pod's VM.
//
// How: the control thread (control.c), which QEMU does not know, reads a request. It parks every other thread in a
// signal handler (freeze.c). The main thread then forks inside its handler. A forked process has one thread, so the
// child creates the others again (thread.c): each is a new thread on the copied stack, with the copied thread block,
// and returns from the copied signal frame. Before that, while it is alone, the child replaces the descriptors that
// must not be shared (descriptors.c) and reduces its privileges (confine.c).
//
// Why that is sound: a thread is copied only if the signal has interrupted it in a blocking system call. So no running
// thread holds a lock of the process, and the data of the C library and of QEMU are at rest. A lock stores its owner's
// thread id, which differs in the child; but a waiting thread owns no lock that it releases by its id, except locks
// that it takes after it wakes.
//
// The code is for x86-64 and glibc. Building it for anything else fails with an error.
#ifndef WARM_H
#define WARM_H

#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucontext.h>

#if !defined(__x86_64__) || !defined(__GLIBC__)
#error "made for glibc on x86-64"
#endif

#define HIDDEN __attribute__((visibility("hidden")))

enum {
	VERSION = 1,
	MAX_THREADS = 256,    // of a parent; one more is an error
	MAX_FILES = 16,       // of a request, given to the child by number
	MAX_GROUPS = 8,       // of a request, joined by the child
	MAX_OPEN = 4096,      // descriptors of a parent; one more is an error
	MAX_FDS = MAX_FILES + MAX_GROUPS + 5,
	NAME = 80,            // of a VM, with the terminating zero
	TEXT = 160,           // of an error, with the terminating zero
};

// The parts of a request beside its files and cgroups, in the order of its descriptors.
enum { USERNS = 1, NETNS = 2, LANDLOCK = 4, FILTER = 8, DESCRIPTORS = USERNS | NETNS | LANDLOCK | FILTER };
// A flag without a descriptor: a new, empty network namespace for the child.
enum { ALONE = 16 };

// request is one packet of the control socket. Its descriptors come with it: the files, the cgroups' lists of processes
// or threads, and one for each flag that has one.
struct request {
	uint32_t version, flags;
	int32_t uid, gid;     // -1: the parent's
	uint64_t file_size;   // RLIMIT_FSIZE; 0: the parent's
	uint32_t files, groups;
	int32_t number[MAX_FILES]; // the child's descriptors that the files become
	char name[NAME];      // replaces the parent's name, of the same length
};

// answer is a packet that answers a request. The first answer is the child's, with its pid and the error EINPROGRESS.
// The last is the parent's; without an error, the child goes on after it. With another error and a pid, the caller must
// kill and reap the child. A child ends if its parent ends before the last answer. If the parent ends before the first
// answer, the child is still in its parent's process group.
struct answer {
	uint32_t version;
	int32_t pid, error;   // errno, or 0
	uint32_t threads, tries, freeze_us, fork_us, ready_us;
	char text[TEXT];      // what failed
};

// fds are a request's descriptors, -1 for absent ones.
struct fds {
	int file[MAX_FILES], group[MAX_GROUPS];
	int userns, netns, landlock, filter;
};

// thread is a parked thread, with the data for its copy.
struct thread {
	pid_t tid;
	ucontext_t *frame;    // the frame that it returns to
	uintptr_t block;      // its thread block (%fs)
	void *robust;
	size_t robust_size;
	char name[16];
};

// parking has the orders to the handler and its reports.
struct parking {
	_Atomic int taken;    // places in thread
	_Atomic int parked;   // of them, the waiting threads
	_Atomic int busy;     // of them, those that were not quiet
	_Atomic int inside;   // threads in the handler
	_Atomic int order;    // one of the below
	_Atomic int forked;   // the child's pid, or -errno; 0 before
	struct thread thread[MAX_THREADS];
};
enum { GO, PARK, FORK };

extern HIDDEN struct parking parking;
extern HIDDEN int tid_offset;         // of the thread's id in its thread block
extern HIDDEN const void *qemu_filter; // a struct sock_fprog, nil before QEMU has made it
extern HIDDEN char *vm_name;           // in the argument list

// freeze.c
HIDDEN int park_setup(char text[TEXT]);
HIDDEN int find_tid(const char *main_block, char text[TEXT]);
HIDDEN int freeze(char text[TEXT]); // returns the number of parked threads, or -errno
HIDDEN void thaw(void);

// thread.c
HIDDEN int revive_all(const struct thread *me);

// descriptors.c
HIDDEN int own_descriptors(const struct request *r, const struct fds *f, int keep, char text[TEXT]);

// confine.c
HIDDEN int confine(const struct request *r, const struct fds *f, char text[TEXT]);

// control.c
HIDDEN void child(const struct thread *me); // returns when the child is ready, or does not return

// util.c
HIDDEN int failed(char text[TEXT], const char *what); // -errno
HIDDEN void set(char *to, size_t size, const char *from);
HIDDEN int64_t now_us(void);
HIDDEN long futex_wait(_Atomic int *word, int value, long ms);
HIDDEN void futex_wake(_Atomic int *word);
HIDDEN ssize_t read_all(const char *dir, int number, char *to, size_t size);
HIDDEN char *decimal(int n, char to[12]);

#endif
