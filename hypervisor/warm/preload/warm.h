// A library that is preloaded into a stock QEMU and forks it on request, all of
// its threads with it. The process that is forked is the parent, its copies are the
// children; each child becomes one pod's machine.
//
// How: the control thread (control.c), which QEMU knows nothing of, reads a request.
// It parks every other thread in a signal handler (freeze.c). The main thread then
// forks inside its handler. A forked process has one thread; the child makes the
// others again (thread.c): each is a new thread on the copied stack, with the copied
// thread block, and returns from the copied signal frame. Before that, and while it
// is alone, the child makes new descriptors of those that must not be shared
// (descriptors.c), and takes its privileges away (confine.c).
//
// Why that is sound: a thread is copied only if the signal has interrupted it in a
// system call that blocks. So no lock of the process is held by a thread that runs,
// and the C library's and QEMU's own data are at rest. What a lock remembers of its
// owner is a thread's id, which is another one in the child; a thread that waits owns
// none that it would give back by its id but those that it takes after it woke.
//
// It is made for x86-64 and glibc, and says so when it is built for anything else.
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
	MAX_FILES = 16,       // that a request gives the child by number
	MAX_GROUPS = 8,       // cgroups that a request puts the child into
	MAX_OPEN = 4096,      // descriptors of a parent; one more is an error
	MAX_FDS = MAX_FILES + MAX_GROUPS + 5,
	NAME = 80,            // of a machine, the end included
	TEXT = 160,           // of an error, the end included
};

// What a request brings beside its files and cgroups, in the order of its descriptors.
enum { USERNS = 1, NETNS = 2, LANDLOCK = 4, FILTER = 8, DESCRIPTORS = USERNS | NETNS | LANDLOCK | FILTER };
// A flag without a descriptor: a network namespace of the child's own, in which there is nothing.
enum { ALONE = 16 };

// request is one packet of the control socket; its descriptors come with it: the
// files, the cgroups' lists of processes or threads, and one for each flag that has one.
struct request {
	uint32_t version, flags;
	int32_t uid, gid;     // -1: as the parent
	uint64_t file_size;   // RLIMIT_FSIZE; 0: as the parent
	uint32_t files, groups;
	int32_t number[MAX_FILES]; // the child's descriptors that the files become
	char name[NAME];      // takes the place of the parent's, of the same length
};

// answer is a packet that answers a request. The first is the child's, with the error
// EINPROGRESS and its pid; after the last, its parent's, without an error, it goes on. With
// another error and a pid whoever asked has to end and to reap the child. A child whose
// parent ends before the last answer ends as well. One that ends before the first is still
// in its parent's process group.
struct answer {
	uint32_t version;
	int32_t pid, error;   // errno, or 0
	uint32_t threads, tries, freeze_us, fork_us, ready_us;
	char text[TEXT];      // what failed
};

// fds are a request's descriptors, -1 where it has none.
struct fds {
	int file[MAX_FILES], group[MAX_GROUPS];
	int userns, netns, landlock, filter;
};

// thread is one that is parked: all that its copy is made of.
struct thread {
	pid_t tid;
	ucontext_t *frame;    // what it returns to
	uintptr_t block;      // its thread block (%fs)
	void *robust;
	size_t robust_size;
	char name[16];
};

// parking is where the handler is told what to do and tells what it has done.
struct parking {
	_Atomic int taken;    // places in thread
	_Atomic int parked;   // of them, those that wait
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
extern HIDDEN char *machine_name;      // in the argument list

// freeze.c
HIDDEN int park_setup(char text[TEXT]);
HIDDEN int find_tid(const char *main_block, char text[TEXT]);
HIDDEN int freeze(char text[TEXT]); // how many threads are parked and quiet, or -errno
HIDDEN void thaw(void);

// thread.c
HIDDEN int revive_all(const struct thread *me);

// descriptors.c
HIDDEN int own_descriptors(const struct request *r, const struct fds *f, int keep, char text[TEXT]);

// confine.c
HIDDEN int confine(const struct request *r, const struct fds *f, char text[TEXT]);

// control.c
HIDDEN void child(const struct thread *me); // returns when the child stands, or does not return

// util.c
HIDDEN int failed(char text[TEXT], const char *what); // -errno
HIDDEN void set(char *to, size_t size, const char *from);
HIDDEN int64_t now_us(void);
HIDDEN long futex_wait(_Atomic int *word, int value, long ms);
HIDDEN void futex_wake(_Atomic int *word);
HIDDEN ssize_t read_all(const char *dir, int number, char *to, size_t size);
HIDDEN char *decimal(int n, char to[12]);

#endif
