// Launcher starts processes in containers for the agent, in a fraction of the time that the OCI runtime needs. It stays
// ready, so an exec costs two forks and no start of a program. It needs no C library: the whole program is some kilobytes.
//
// The agent starts it once, with a SOCK_SEQPACKET socket as descriptor 3. A message is a struct request with its arrays
// and strings, and carries the descriptors of enum descriptor. The launcher never answers on the socket. It or one of its
// children writes one struct report to the request's pipe: the new process's id, or the step that has failed. After an
// invalid message, or if the children are killed, the pipe closes without a report. The launcher ends with its socket.
// A new process runs its program only after its report, so never after the agent has closed the pipe.
//
//     launcher --clone into the cgroup--> helper --setns, setsid, clone--> process --execve--> program
//
// The helper and the process are children of the agent, because of CLONE_PARENT. The agent reaps both. The order of the
// steps is crun's, so that a seccomp filter and a container's files have the same effect with both.
//
// Safety. The agent trusts nothing in a container, and neither does this program:
//   - The launcher itself uses no path. It reads only the agent's socket, which no child keeps.
//   - A child uses a path only inside the container's namespaces, and only to enter a directory and to execute a program.
//     It never opens a file, so it reads nothing that a container wrote.
//   - A child keeps only the process's streams and the write end of its own pipe, which closes on exec.
//   - No process of a container may read or trace a child before its exec: it is not dumpable. A process with
//     CAP_SYS_PTRACE in the VM's own user namespace could, and such a process has the whole VM anyway.
//   - The program is a sealed file in memory. So a container that reaches it through /proc/PID/exe cannot change it.
#include <asm/unistd.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/filter.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/socket.h>
#include <linux/stat.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __x86_64__
#error "the launcher needs the system calls of this architecture"
#endif

enum {
	CONTROL = 3, // the agent's socket
	VERSION = 1,
	MAX_MESSAGE = 128 << 10,
	MAX_STRINGS = 4096, // arguments and variables
	MAX_LIMITS = 16,
	MAX_FILTER = 4096, // BPF_MAXINSNS
	MAX_PATH = 4096,
	NO_NEW_PRIVS = 1,   // a flag of a request
	LAST_CAPABILITY = 63,
};

// The descriptors of a message, in this order.
enum descriptor { STDIN, STDOUT, STDERR, FIRST, CGROUP, REPORTS, DESCRIPTORS };

// limit is an argument of setrlimit(2).
struct limit {
	uint64_t resource, soft, hard;
};

// request is followed by limits, instructions of the seccomp filter, groups, and strings: the directory, the arguments
// and the environment, each with its zero byte.
struct request {
	uint32_t version, size; // bytes of the whole message
	uint32_t uid, gid, umask, flags, namespaces, filter_flags;
	uint64_t bounding, permitted, effective, inheritable, ambient;
	uint32_t limits, filter, groups, args, env, strings; // numbers; strings are bytes
};

// The steps of reports. The value of RUNNING is the process's id, and the others' value is an errno.
enum step {
	RUNNING = 1, // the process executes its program next
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
};

struct report {
	uint32_t step;
	int32_t value;
};

// message is a received request, and words are the pointers to a process's arguments and environment.
static _Alignas(8) char message[MAX_MESSAGE];
static char *words[MAX_STRINGS + 2];
static int reports; // the request's pipe
static int *id;     // of the new process, for the agent; in memory that the helper and the process share

static long call(long n, long a, long b, long c, long d, long e) {
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

static size_t length(const char *s) {
	size_t n = 0;
	while (s[n]) {
		n++;
	}
	return n;
}

__attribute__((noreturn)) static void quit(int status) {
	for (;;) {
		CALL(__NR_exit_group, status, 0, 0, 0, 0);
	}
}

static void report(enum step step, long value) {
	struct report r = {step, (int32_t)value};
	CALL(__NR_write, reports, &r, sizeof r, 0, 0);
}

// need ends this process if a call has failed.
static void need(long result, enum step step) {
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

// executable returns 0 if the caller may execute the file, or a negative errno.
static long executable(const char *path) {
	struct statx info;
	long err = CALL(__NR_faccessat2, AT_FDCWD, path, 1, AT_EACCESS, 0); // 1 is X_OK
	if (!err) {
		err = CALL(__NR_statx, AT_FDCWD, path, 0, STATX_TYPE, &info);
	}
	if (!err && (info.stx_mode & 0170000) != 0100000) { // a regular file
		err = -EPERM;
	}
	return err;
}

// join writes "directory/name" to path. It returns 0 if there is no room.
static int join(char path[MAX_PATH], const char *directory, size_t n, const char *name) {
	size_t m = length(name);
	if (n + m + 2 > MAX_PATH) {
		return 0;
	}
	memcpy(path, directory, n);
	path[n] = '/';
	memcpy(path + n + 1, name, m + 1);
	return 1;
}

// find writes the path of a program: a command with a slash, or a file in one of the directories of the variable PATH.
// It returns 0 or a negative errno.
static long find(char path[MAX_PATH], const char *directory, const char *command, char **env) {
	int relative = command[0] == '.';
	for (const char *s = command; *s; s++) {
		relative |= *s == '/';
	}
	if (command[0] == '/' || relative) {
		const char *base = command[0] == '/' ? "" : directory;
		if (!join(path, base, length(base), command[0] == '/' ? command + 1 : command)) {
			return -ENAMETOOLONG;
		}
		return executable(path);
	}
	const char *list = 0;
	for (; *env && !list; env++) {
		const char *v = *env;
		if (v[0] == 'P' && v[1] == 'A' && v[2] == 'T' && v[3] == 'H' && v[4] == '=') {
			list = v + 5;
		}
	}
	long last = -ENOENT;
	while (list) {
		size_t n = 0;
		while (list[n] && list[n] != ':') {
			n++;
		}
		if (join(path, list, n, command)) {
			long err = executable(path);
			if (!err) {
				return 0;
			}
			if (err != -ENOENT) {
				last = err;
			}
		}
		list = list[n] ? list + n + 1 : 0;
	}
	return last;
}

// filter installs the container's seccomp filter. A kernel that lacks one of the flags gets none of them.
static void filter(const struct request *r, const void *instructions) {
	struct sock_fprog program = {(unsigned short)r->filter, (struct sock_filter *)(uintptr_t)instructions};
	if (!r->filter) {
		return;
	}
	long err = CALL(__NR_seccomp, SECCOMP_SET_MODE_FILTER, r->filter_flags, &program, 0, 0);
	if (err == -EINVAL) {
		err = CALL(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program, 0, 0);
	}
	need(err, BAD_FILTER);
}

// become takes the user, the group and the capabilities.
static void become(const struct request *r) {
	for (int c = 0; c <= LAST_CAPABILITY; c++) {
		long err = r->bounding >> c & 1 ? 0 : CALL(__NR_prctl, PR_CAPBSET_DROP, c, 0, 0, 0);
		if (err == -EINVAL) { // the kernel's last one was before
			break;
		}
		need(err, BAD_CAPABILITIES);
	}
	need(CALL(__NR_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0), BAD_CAPABILITIES);
	need(CALL(__NR_setresgid, r->gid, r->gid, r->gid, 0, 0), BAD_USER);
	need(CALL(__NR_setresuid, r->uid, r->uid, r->uid, 0, 0), BAD_USER);
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	for (int i = 0; i < 2; i++) {
		data[i].effective = (uint32_t)(r->effective >> 32 * i);
		data[i].permitted = (uint32_t)(r->permitted >> 32 * i);
		data[i].inheritable = (uint32_t)(r->inheritable >> 32 * i);
	}
	need(CALL(__NR_capset, &header, data, 0, 0, 0), BAD_CAPABILITIES);
	// Like crun, leave out an ambient capability that the process may not have.
	CALL(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int c = 0; c <= LAST_CAPABILITY; c++) {
		if (r->ambient >> c & 1) {
			CALL(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0);
		}
	}
	if (r->flags & NO_NEW_PRIVS) {
		need(CALL(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), BAD_PRIVILEGES);
	}
}

// failed writes to the process's standard error why the kernel does not execute its program.
__attribute__((noreturn)) static void failed(const char *path, long err) {
	const char *why = err == -ENOEXEC  ? ": Exec format error\n"
	                  : err == -ENOENT ? ": its interpreter is missing\n"
	                  : err == -EACCES ? ": Permission denied\n"
	                  : err == -E2BIG  ? ": Argument list too long\n"
	                  : err == -ENOMEM ? ": Cannot allocate memory\n"
	                                   : ": the kernel refuses\n";
	CALL(__NR_write, 2, "exec ", 5, 0, 0);
	CALL(__NR_write, 2, path, length(path), 0, 0);
	CALL(__NR_write, 2, why, length(why), 0, 0);
	quit(1);
}

// process is the rest of the new process until its program, within the container's namespaces and cgroup.
__attribute__((noreturn)) static void process(const struct request *r, const int fds[DESCRIPTORS]) {
	const struct limit *limits = (const struct limit *)(r + 1);
	const uint64_t *instructions = (const uint64_t *)(limits + r->limits);
	const uint32_t *groups = (const uint32_t *)(instructions + r->filter);
	char *text = (char *)(uintptr_t)(groups + r->groups), *directory = text, **env = words + r->args + 1;
	for (uint32_t i = 0; i < r->args + r->env; i++) {
		text += length(text) + 1;
		words[i < r->args ? i : i + 1] = text; // a null pointer is between them
	}

	for (int i = 0; i < 3; i++) {
		need(CALL(__NR_dup2, fds[i], i, 0, 0, 0), BAD_STREAMS);
	}
	int entered = !CALL(__NR_chdir, directory, 0, 0, 0, 0); // otherwise try again as the process's user
	static char path[MAX_PATH];
	long found = find(path, directory, words[0], env);
	if (found == -ENOENT) {
		need(found, NOT_FOUND);
	}
	need(CALL(__NR_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC, 0, 0), BAD_STREAMS);
	for (uint32_t i = 0; i < r->limits; i++) {
		struct {
			uint64_t soft, hard;
		} both = {limits[i].soft, limits[i].hard};
		need(CALL(__NR_setrlimit, limits[i].resource, &both, 0, 0, 0), BAD_LIMIT);
	}
	if (!(r->flags & NO_NEW_PRIVS)) { // the filter needs a privilege then, which the process may lack later
		filter(r, instructions);
	}
	need(CALL(__NR_setgroups, r->groups, groups, 0, 0, 0), BAD_GROUPS);
	for (int i = 0; i < 3; i++) {
		char terminal[64];
		if (CALL(__NR_ioctl, i, 0x5401, terminal, 0, 0)) { // TCGETS
			long err = CALL(__NR_fchown, i, r->uid, r->gid, 0, 0);
			need(err == -EPERM || err == -EROFS || err == -EINVAL ? 0 : err, BAD_OWNER);
		}
	}
	become(r);
	if (found) {
		found = find(path, directory, words[0], env);
		need(found, found == -ENOENT ? NOT_FOUND : NOT_OPENED);
	}
	if (!entered) {
		need(CALL(__NR_chdir, directory, 0, 0, 0, 0), BAD_DIRECTORY);
	}
	if (r->flags & NO_NEW_PRIVS) {
		filter(r, instructions);
	}
	CALL(__NR_umask, r->umask, 0, 0, 0, 0);
	report(RUNNING, *id);
	failed(path, CALL(__NR_execve, path, words, env, 0, 0));
}

// launch serves a request.
static void launch(const struct request *r, const int fds[DESCRIPTORS]) {
	reports = fds[REPORTS];
	long pid = duplicate(CLONE_INTO_CGROUP, fds[CGROUP]);
	if (pid < 0) {
		report(BAD_CGROUP, -pid);
	}
	if (pid) {
		return;
	}
	CALL(__NR_close, CONTROL, 0, 0, 0, 0);
	handle(13, 0); // SIGPIPE
	need(CALL(__NR_setns, fds[FIRST], r->namespaces, 0, 0, 0), BAD_NAMESPACES);
	need(CALL(__NR_setsid, 0, 0, 0, 0, 0), BAD_SESSION);
	long shared = CALL(__NR_mmap, 0, sizeof *id, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	need(shared, BAD_FORK);
	id = (int *)shared;
	pid = duplicate(CLONE_PARENT_SETTID, 0); // the kernel sets the id before the child runs
	if (!pid) {
		process(r, fds);
	}
	need(pid, BAD_FORK);
	quit(0);
}

// valid checks the sizes in a message of n bytes.
static int valid(const struct request *r, size_t n) {
	if (n < sizeof *r || r->version != VERSION || r->size != n) {
		return 0;
	}
	if (r->limits > MAX_LIMITS || r->filter > MAX_FILTER || r->groups > n || r->strings > n) {
		return 0;
	}
	if (r->args < 1 || r->args > MAX_STRINGS || r->env > MAX_STRINGS - r->args) {
		return 0;
	}
	size_t arrays = sizeof *r + r->limits * sizeof(struct limit) + r->filter * sizeof(uint64_t) + r->groups * sizeof(uint32_t);
	if (arrays + r->strings != n) {
		return 0;
	}
	uint32_t ends = 0;
	for (size_t i = arrays; i < n; i++) {
		ends += !message[i];
	}
	return r->strings > 0 && !message[n - 1] && ends == 1 + r->args + r->env;
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
	int fds[DESCRIPTORS + 2]; // one too many is found out, and the size is a multiple of 8
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
	if (!(h.flags & 0x28) && count == DESCRIPTORS && valid((const struct request *)message, (size_t)n)) {
		launch((const struct request *)message, c.fds);
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
