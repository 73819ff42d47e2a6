// The new process's user, limits, directory and program.
#include "launcher.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/stat.h>

enum { KEPT = 3 }; // the first of the two descriptors that a process keeps besides its streams

static char *words[MAX_STRINGS + 2]; // pointers to the arguments and the environment

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

// enter changes the directory. The last links of /proc would lead out of the container, so none is followed.
static long enter(const char *directory) {
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	long fd = CALL(__NR_openat2, AT_FDCWD, directory, &how, sizeof how, 0);
	if (fd < 0) {
		return fd;
	}
	long err = CALL(__NR_fchdir, fd, 0, 0, 0, 0);
	CALL(__NR_close, fd, 0, 0, 0, 0);
	return err;
}

// drop closes every descriptor but the streams, REPORTS and START: a path in the container must not lead through one, for
// example through /proc/self/fd, and some are directories of the VM.
static void drop(const struct request *r, int start) {
	int kept = KEPT; // all received descriptors have higher numbers
	need(CALL(__NR_dup3, reports, kept, O_CLOEXEC, 0, 0), BAD_STREAMS);
	reports = kept++;
	if (r->flags & CREATE) {
		need(CALL(__NR_dup3, start, kept++, O_CLOEXEC, 0, 0), BAD_STREAMS);
	}
	need(CALL(__NR_close_range, kept, ~0u, 0, 0, 0), BAD_STREAMS);
}

// wait waits for the byte that starts a container. Without it, the container is removed.
static void wait(void) {
	char byte;
	long n;
	do {
		n = CALL(__NR_read, KEPT + 1, &byte, 1, 0, 0);
	} while (n == -EINTR);
	if (n != 1) {
		quit(1);
	}
}

void process(const struct request *r, const int fds[]) {
	const struct limit *limits = (const struct limit *)(r + 1);
	const uint64_t *instructions = (const uint64_t *)(limits + r->limits), *mounts = instructions + r->filter;
	const struct node *nodes = (const struct node *)(mounts + r->mounts);
	const uint32_t *groups = (const uint32_t *)(nodes + r->nodes);
	char *text = (char *)(uintptr_t)(groups + r->groups), *directory = text, **env = words + r->args + 1;
	for (uint32_t i = 0; i < r->args + r->env; i++) {
		text += length(text) + 1;
		words[i < r->args ? i : i + 1] = text; // a null pointer is between them
	}

	for (int i = 0; i < 3; i++) {
		need(CALL(__NR_dup2, fds[i], i, 0, 0, 0), BAD_STREAMS);
	}
	if (r->flags & CREATE) {
		contain(r, mounts, nodes, directory, text + length(text) + 1);
	}
	drop(r, fds[START]);
	int entered = !enter(directory); // otherwise try again as the process's user
	static char path[MAX_PATH];
	long found = find(path, directory, words[0], env);
	if (found == -ENOENT) {
		need(found, NOT_FOUND);
	}
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
		need(enter(directory), BAD_DIRECTORY);
	}
	CALL(__NR_umask, r->umask, 0, 0, 0, 0);
	if (r->flags & CREATE) {
		report(RUNNING, *id);
		wait();
	}
	if (r->flags & NO_NEW_PRIVS) {
		filter(r, instructions);
	}
	if (!(r->flags & CREATE)) {
		report(RUNNING, *id);
	}
	failed(path, CALL(__NR_execve, path, words, env, 0, 0));
}
