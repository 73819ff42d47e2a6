// A program like QEMU in what matters to the library: threads that wait in each kind of
// system call, and a main thread that polls. It listens on descriptor 3, reads a word a
// line from who connects, and answers a line.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LISTENER 3
enum { FUTEX, POLLER, READER, WAITER, SLEEPER, WORKERS };

struct worker {
	const char *name;
	void *(*run)(void *);
	pthread_t thread;
	_Atomic int steps, tid, opened;
	const char *_Atomic wrong; // what is wrong with the thread
};

static _Thread_local struct worker *self;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER, strict, robust;
static pthread_cond_t kicked = PTHREAD_COND_INITIALIZER;
static pthread_t mortal_thread;
static int kicks, polled, blocked, hold, end, counter, pair[2], signals;
static _Atomic int taken, quit;
static char path[256]; // that each worker tries to open
static sigset_t usr1, usr2;

static int die(const char *what) {
	perror(what);
	exit(1);
}

// check does what only a whole thread can do, and returns what was wrong.
static const char *check(struct worker *w) {
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	char *head = 0, *block = (char *)pthread_self();
	size_t size = 0;
	errno = 0;
	if (self != w) return "thread-local storage";
	if (pthread_mutex_lock(&strict)) return "a mutex that checks its owner: lock";
	if (pthread_mutex_lock(&strict) != EDEADLK) return "a mutex that checks its owner: lock it twice";
	if (strict.__data.__owner != gettid()) return "a mutex that checks its owner: owner";
	if (pthread_mutex_unlock(&strict)) return "a mutex that checks its owner: unlock";
	if (pthread_kill(w->thread, 0)) return "pthread_kill";
	int whole = !syscall(SYS_get_robust_list, 0, &head, &size) && size && head >= block && head <= block + 4096;
	if (!whole && errno != EPERM) return "robust list"; // a confined one may not ask
	if (__rseq_size && (sched_getcpu() < 0 || area->cpu_id >= 1U << 20)) return "rseq: no processor";
	if (__rseq_size && (syscall(SYS_rseq, area, 32, 0, RSEQ_SIG) != -1 || errno != EBUSY)) return "rseq: not registered";
	return 0;
}

static void step(void) {
	struct worker *w = self;
	int fd = path[0] ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	w->opened = fd < 0 ? errno : 0;
	if (fd >= 0) close(fd);
	w->tid = gettid();
	w->wrong = check(w);
	w->steps++;
}

static void drain(int fd) {
	uint64_t n;
	while (read(fd, &n, sizeof n) < 0)
		if (errno != EINTR) die("read");
}

static void *futex(void *w) {
	self = w;
	pthread_mutex_lock(&lock);
	for (int seen = 0;;) { // what came before it began, it does first
		while (kicks == seen) pthread_cond_wait(&kicked, &lock);
		seen = kicks;
		step();
	}
	return w;
}

static void *poller(void *w) {
	self = w;
	for (;;) {
		struct pollfd p = {polled, POLLIN, 0};
		struct timespec t = {100, 0};
		if (ppoll(&p, 1, &t, 0) <= 0) continue;
		drain(polled);
		step();
	}
	return w;
}

static void *reader(void *w) {
	self = w;
	for (;;) {
		drain(blocked);
		step();
	}
	return w;
}

static void *waiter(void *w) {
	self = w;
	for (int n;;)
		if (sigwait(&usr2, &n) == 0) step();
	return w;
}

static void *sleeper(void *w) {
	self = w;
	for (;;) {
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_nsec += 20000000;
		if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0) == EINTR) {}
		step();
	}
	return w;
}

static struct worker workers[WORKERS] = {
	[FUTEX] = {.name = "futex", .run = futex},
	[POLLER] = {.name = "poller", .run = poller},
	[READER] = {.name = "reader", .run = reader},
	[WAITER] = {.name = "waiter", .run = waiter},
	[SLEEPER] = {.name = "sleeper", .run = sleeper},
};

// holder waits with a mutex that it gives back later.
static void *holder(void *ready) {
	pthread_mutex_lock(&held);
	*(_Atomic int *)ready = 1;
	drain(hold);
	pthread_mutex_unlock(&held);
	for (;;) pause();
	return ready;
}

// taker waits for that mutex.
static void *taker(void *unused) {
	pthread_mutex_lock(&held);
	taken = 1;
	pthread_mutex_unlock(&held);
	for (;;) pause();
	return unused;
}

// mortal ends with a robust mutex.
static void *mortal(void *unused) {
	drain(end);
	pthread_mutex_lock(&robust);
	return unused;
}

static void *busy(void *unused) {
	while (!quit) {}
	return unused;
}

static void *idle(void *unused) {
	for (;;) pause();
	return unused;
}

static pthread_t begin(const char *name, void *(*run)(void *), void *arg) {
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 256 << 10);
	if ((errno = pthread_create(&t, &a, run, arg))) die("make a thread");
	pthread_setname_np(t, name);
	return t;
}

static void kick(int fd) {
	uint64_t one = 1;
	if (write(fd, &one, sizeof one) != sizeof one) die("write");
}

static void moment(void) {
	struct timespec t = {0, 1000000};
	nanosleep(&t, 0);
}

// work has each worker go a step further, and tells of them.
static void work(char *to, size_t size) {
	int before[WORKERS];
	for (int i = 0; i < WORKERS; i++) before[i] = workers[i].steps;
	pthread_mutex_lock(&lock);
	kicks++;
	pthread_cond_broadcast(&kicked);
	pthread_mutex_unlock(&lock);
	kick(polled);
	kick(blocked);
	int e = pthread_kill(workers[WAITER].thread, SIGUSR2), at = 0;
	for (int i = 0; i < WORKERS; i++) {
		for (int n = 0; workers[i].steps == before[i] && n < 20000; n++) moment();
		const char *wrong = workers[i].steps == before[i] ? "does not go on" : workers[i].wrong;
		if (e) wrong = "pthread_kill";
		at += snprintf(to + at, size - (size_t)at, "%s %d %d %s;", workers[i].name, workers[i].tid, workers[i].opened, wrong ? wrong : "ok");
	}
}

static const char *release(void) {
	if (pthread_mutex_trylock(&held) != EBUSY) return "nobody holds it";
	kick(hold);
	for (int n = 0; !taken && n < 20000; n++) moment();
	if (!taken) return "who waited for it does not get it";
	if (pthread_mutex_lock(&held) || pthread_mutex_unlock(&held)) return "it cannot be taken again";
	return "ok";
}

static const char *bury(void) {
	kick(end);
	if (pthread_join(mortal_thread, 0)) return "join";
	if (pthread_mutex_lock(&robust) != EOWNERDEAD) return "its robust list";
	if (pthread_mutex_consistent(&robust) || pthread_mutex_unlock(&robust)) return "the mutex";
	return "ok";
}

static void serve(const char *word, char *to, size_t size) {
	uint64_t n = 0;
	char c;
	ssize_t r;
	if (strncmp(word, "open ", 5) == 0) snprintf(path, sizeof path, "%s", word + 5);
	if (strcmp(word, "work") == 0 || path[0]) work(to, size);
	else if (strcmp(word, "release") == 0) snprintf(to, size, "%s", release());
	else if (strcmp(word, "bury") == 0) snprintf(to, size, "%s", bury());
	else if (strcmp(word, "signals") == 0) snprintf(to, size, "%d", signals);
	else if (strcmp(word, "count") == 0) r = read(counter, &n, sizeof n), snprintf(to, size, "%d", r < 0 ? -errno : (int)n);
	else if (strcmp(word, "peer") == 0) r = recv(pair[0], &c, 1, MSG_DONTWAIT), snprintf(to, size, "%d", r < 0 ? -errno : (int)r);
	else if (strcmp(word, "quiet") == 0) snprintf(to, size, "%s", quit++ ? "again" : "ok");
	else snprintf(to, size, "what?");
	path[0] = 0;
}

// talk answers one word: 0 at the end of the connection.
static int talk(int conn) {
	char word[sizeof path], line[2000] = "";
	ssize_t n = read(conn, word, sizeof word - 1);
	if (n <= 0) return n < 0 && errno == EINTR;
	word[n - 1] = 0;
	serve(word, line, sizeof line - 1);
	strcat(line, "\n");
	return write(conn, line, strlen(line)) > 0;
}

static void loop(int sigs) {
	for (int conn = -1;;) {
		struct pollfd p[] = {{sigs, POLLIN, 0}, {conn < 0 ? LISTENER : conn, POLLIN, 0}};
		if (poll(p, 2, -1) < 0) continue;
		struct signalfd_siginfo info;
		if (p[0].revents && read(sigs, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1) signals++;
		if (!p[1].revents) continue;
		if (conn < 0) conn = accept4(LISTENER, 0, 0, SOCK_CLOEXEC);
		else if (!talk(conn)) close(conn), conn = -1;
	}
}

static void *loop_beside(void *sigs) {
	loop(*(int *)sigs);
	return sigs;
}

// prepare makes the mutexes and descriptors.
static void prepare(void) {
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&strict, &a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_NORMAL);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &a);
	polled = eventfd(0, EFD_CLOEXEC);
	blocked = eventfd(0, EFD_CLOEXEC);
	hold = eventfd(0, EFD_CLOEXEC);
	end = eventfd(0, EFD_CLOEXEC);
	counter = eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK);
	if (counter < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("prepare");
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &usr1, 0);
	pthread_sigmask(SIG_BLOCK, &usr2, 0);
}

// more is what a test has the program do beside.
static void more(const char *word) {
	int n = 0;
	if (strcmp(word, "busy") == 0) begin("busy", busy, 0);
	if (sscanf(word, "threads=%d", &n) == 1)
		while (n-- > 0) begin("idle", idle, 0);
	int empty = strcmp(word, "empty-epoll") == 0;
	if (empty || strcmp(word, "epoll") == 0) {
		struct epoll_event e = {.events = EPOLLIN};
		int fd = epoll_create1(EPOLL_CLOEXEC);
		if (fd < 0 || (!empty && epoll_ctl(fd, EPOLL_CTL_ADD, polled, &e))) die("epoll");
	}
	if (strcmp(word, "listener") == 0) {
		sa_family_t any = AF_UNIX; // a name that the kernel chooses
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, 1)) die("listen");
	}
}

int main(int argc, char **argv) {
	prepare();
	static int sigs;
	sigs = signalfd(-1, &usr1, SFD_CLOEXEC | SFD_NONBLOCK);
	if (sigs < 0) die("signalfd");
	for (int i = 0; i < WORKERS; i++) workers[i].thread = begin(workers[i].name, workers[i].run, &workers[i]);
	_Atomic int holds = 0;
	begin("holder", holder, &holds);
	while (!holds) moment();
	begin("taker", taker, 0);
	mortal_thread = begin("mortal", mortal, 0);
	for (int i = 1; i < argc; i++) more(argv[i]);
	if (argc > 1 && strcmp(argv[1], "headless") == 0) {
		begin("loop", loop_beside, &sigs);
		pthread_exit(0);
	}
	loop(sigs);
}
