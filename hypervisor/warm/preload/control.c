// The control thread reads requests and answers them. When the other end of its socket is closed, the parent ends.
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// The number of times that a parent is frozen until all of its threads are quiet, a millisecond apart. QEMU's
// housekeeping threads wake up now and then.
#define TRIES 200
// The time that a child may take to be ready, in milliseconds.
#define READY 10000

static int control = -1;
static pthread_t control_thread;

// The child reads these from its copy of the memory.
static struct request request;
static struct fds given;
static int ready[2];

// say sends an answer. It returns 0, or -1 if the other end is closed.
static int say(const struct answer *a) {
	ssize_t n;
	while ((n = send(control, a, sizeof *a, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
	return n < 0 ? -1 : 0;
}

// message is the child's report to its parent, with the error if it failed.
struct message {
	int32_t error;
	char text[TEXT];
};

// child runs in the child, in the main thread's handler, while it is alone.
void child(const struct thread *me) {
	struct message m = {0, ""};
	// The child reports itself first: whatever happens to its parent, the caller can kill and reap it.
	struct answer first = {.version = VERSION, .pid = getpid(), .error = EINPROGRESS};
	if (say(&first)) _exit(99);
	close(control);
	close(ready[0]);
	control = -1;
	if (vm_name && request.name[0]) memcpy(vm_name, request.name, strlen(vm_name));
	m.error = own_descriptors(&request, &given, ready[1], m.text);
	if (!m.error) m.error = confine(&request, &given, m.text);
	if (!m.error && (m.error = revive_all(me))) set(m.text, TEXT, "make the threads again");
	ssize_t n = write(ready[1], &m, sizeof m);
	// The child goes on when the caller knows its pid. If that fails or the parent dies before, it exits: nothing would
	// end it later. Signals wait meanwhile, since the handler blocks all.
	char go;
	if (m.error || n != sizeof m || read(ready[1], &go, 1) != 1) _exit(99);
	close(ready[1]);
	parking.order = GO;
	futex_wake(&parking.order);
}

// stood waits until a child is ready or has reported its error.
static int stood(char text[TEXT]) {
	struct message m;
	struct pollfd p = {ready[0], POLLIN, 0};
	int n;
	while ((n = poll(&p, 1, READY)) < 0 && errno == EINTR) {}
	if (n == 0) errno = ETIMEDOUT;
	if (n <= 0) return failed(text, "wait for the child");
	errno = ECHILD;
	if (read(ready[0], &m, sizeof m) != sizeof m) return failed(text, "wait for the child: it died");
	set(text, TEXT, m.text);
	return m.error;
}

// fork_all freezes, forks and thaws. It returns 0 or -errno.
static int fork_all(struct answer *a) {
	int n = 0;
	int64_t began = 0;
	for (a->tries = 1;; a->tries++) {
		began = now_us();
		n = freeze(a->text);
		if (n < 0 || !parking.busy) break;
		thaw();
		errno = EBUSY;
		if (a->tries == TRIES) return failed(a->text, "find the threads quiet");
		usleep(1000);
	}
	if (n < 0) {
		thaw();
		return n;
	}
	a->threads = (uint32_t)n;
	int64_t frozen = now_us();
	parking.order = FORK;
	futex_wake(&parking.order);
	while (!parking.forked) futex_wait(&parking.forked, 0, 1000);
	int64_t forked = now_us();
	a->freeze_us = (uint32_t)(frozen - began);
	a->fork_us = (uint32_t)(forked - frozen);
	thaw();
	if (parking.forked > 0) {
		a->pid = parking.forked;
		return 0;
	}
	errno = -parking.forked;
	return failed(a->text, "fork");
}

// serve creates a child and answers.
static void serve(struct answer *a) {
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ready)) {
		a->error = -failed(a->text, "make a pair of sockets");
		say(a);
		return;
	}
	int err = fork_all(a);
	close(ready[1]);
	if (!err) {
		int64_t began = now_us();
		err = stood(a->text);
		a->ready_us = (uint32_t)(now_us() - began);
	}
	a->error = -err;
	if (say(a) == 0 && !err) (void)!send(ready[0], "", 1, MSG_NOSIGNAL);
	close(ready[0]);
}

// sort stores a request's descriptors in the fields of given.
static int sort(const int *fd, int n, char text[TEXT]) {
	const struct request *r = &request;
	int at = 0;
	memset(&given, -1, sizeof given);
	uint32_t rest = r->flags & DESCRIPTORS;
	errno = EINVAL;
	if (r->version != VERSION || r->flags & ~(uint32_t)(DESCRIPTORS | ALONE)) return failed(text, "read the request: another version");
	if (r->files > MAX_FILES || r->groups > MAX_GROUPS || (int)r->files + (int)r->groups + __builtin_popcount(rest) != n)
		return failed(text, "read the request: its descriptors");
	if (r->name[NAME - 1] || (r->name[0] && (!vm_name || strlen(r->name) != strlen(vm_name))))
		return failed(text, "read the request: a name of another length");
	for (uint32_t i = 0; i < r->files; i++) {
		// The parent must use the number already, so that no descriptor of the request has it: that one would be lost
		// when the file replaces it.
		int free = fcntl(r->number[i], F_GETFD) < 0 || r->number[i] == control;
		for (int k = 0; k < n; k++) free |= fd[k] == r->number[i];
		errno = EBADF;
		if (free) return failed(text, "read the request: a file in the place of none");
		given.file[i] = fd[at++];
	}
	for (uint32_t i = 0; i < r->groups; i++) given.group[i] = fd[at++];
	if (rest & USERNS) given.userns = fd[at++];
	if (rest & NETNS) given.netns = fd[at++];
	if (rest & LANDLOCK) given.landlock = fd[at++];
	if (rest & FILTER) given.filter = fd[at++];
	return 0;
}

// receive reads one request. It returns 1, 0 for the end, or -errno if the request is invalid.
static int receive(int *fd, int *n, char text[TEXT]) {
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} room;
	struct iovec v = {&request, sizeof request};
	// Not all of the space, which is rounded up and holds one more than fd: the kernel closes the descriptors beyond
	// it.
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = CMSG_LEN(MAX_FDS * sizeof(int))};
	ssize_t size;
	*n = 0;
	while ((size = recvmsg(control, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {}
	if (size <= 0) return 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
			*n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			if (*n > MAX_FDS) _exit(98); // no kernel does that
			memcpy(fd, CMSG_DATA(h), (size_t)*n * sizeof(int));
		}
	errno = EINVAL;
	if (size != sizeof request || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return failed(text, "read the request");
	int err = sort(fd, *n, text);
	return err ? err : 1;
}

// found is set when the control thread does not need the main thread any more.
static _Atomic int found;

static void *run(void *main_block) {
	struct answer first = {.version = VERSION};
	prctl(PR_SET_NAME, "warm");
	if ((first.error = -find_tid(main_block, first.text))) {
		say(&first);
		_exit(98);
	}
	found = 1;
	futex_wake(&found);
	for (;;) {
		struct answer a = {.version = VERSION};
		int fd[MAX_FDS], n, r = receive(fd, &n, a.text);
		if (r == 0) _exit(0);
		if (r > 0) serve(&a);
		else {
			a.error = -r;
			say(&a);
		}
		for (int i = 0; i < n; i++) close(fd[i]);
	}
}

// find_name finds the VM's name among the arguments.
char *vm_name;
static void find_name(int argc, char **argv) {
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "-name") == 0) vm_name = argv[i + 1];
}

// begin is called before main. Without BULKHEAD_FORK_FD the library does nothing.
__attribute__((constructor)) static void begin(int argc, char **argv, char **envp) {
	(void)envp;
	const char *number = getenv("BULKHEAD_FORK_FD");
	if (!number) return;
	struct answer a = {.version = VERSION};
	control = atoi(number);
	unsetenv("BULKHEAD_FORK_FD");
	unsetenv("LD_PRELOAD");
	find_name(argc, argv);
	// The control socket is the parent's last descriptor. Later ones were left open by the starter's own parent.
	if (fcntl(control, F_SETFD, FD_CLOEXEC) || syscall(SYS_close_range, control + 1, ~0U, 0)) _exit(98);
	int err = park_setup(a.text);
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!err && (errno = pthread_create(&control_thread, 0, run, (void *)pthread_self()))) err = failed(a.text, "make the control thread");
	pthread_sigmask(SIG_SETMASK, &old, 0);
	// A main thread that goes on may end, and then its block is not valid any more.
	while (!err && !found) futex_wait(&found, 0, 1000);
	if (!err) return;
	a.error = -err;
	say(&a);
	_exit(98);
}

// warming reports whether this process is a parent.
HIDDEN int warming(void) { return control >= 0; }
