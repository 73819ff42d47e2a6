// Reducing the child's privileges while it has one thread. The other threads inherit them.
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

static int join_groups(const struct request *r, const struct fds *f, char text[TEXT]) {
	for (uint32_t i = 0; i < r->groups; i++) {
		if (write(f->group[i], "0", 1) != 1) return failed(text, "join a cgroup");
		close(f->group[i]);
	}
	return 0;
}

static int join_namespaces(const struct request *r, const struct fds *f, char text[TEXT]) {
	// The user namespace comes first: it gives the right to join the other.
	if (f->userns >= 0 && (setns(f->userns, CLONE_NEWUSER) || close(f->userns))) return failed(text, "join the user namespace");
	if (f->netns >= 0 && (setns(f->netns, CLONE_NEWNET) || close(f->netns))) return failed(text, "join the network namespace");
	if (r->flags & ALONE && unshare(CLONE_NEWNET)) return failed(text, "make a network namespace");
	return 0;
}

// become changes the user and group ids and drops every capability. The raw calls change one thread, and the child has
// only one.
static int become(const struct request *r, char text[TEXT]) {
	if (r->gid >= 0 && (syscall(SYS_setgroups, 0, 0) || syscall(SYS_setresgid, r->gid, r->gid, r->gid)))
		return failed(text, "take the group");
	if (r->uid >= 0 && syscall(SYS_setresuid, r->uid, r->uid, r->uid)) return failed(text, "take the user");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed(text, "set no_new_privs");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)) return failed(text, "clear the ambient capabilities");
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
	if (syscall(SYS_capset, &header, none)) return failed(text, "drop the capabilities");
	// Unlike exec, a change of user makes a process unreadable for its own user. But the VM's owner, which has the same
	// user, reads its descriptors.
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) return failed(text, "let the VM's owner read it");
	return 0;
}

// own_sockets calls listen in the child: a client that connects sees the user that has called listen last.
static int own_sockets(const struct request *r, char text[TEXT]) {
	for (uint32_t i = 0; i < r->files; i++) {
		int listens = 0;
		socklen_t size = sizeof listens;
		if (getsockopt(r->number[i], SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens) continue;
		if (listen(r->number[i], SOMAXCONN)) return failed(text, "listen");
	}
	return 0;
}

static int install(const struct sock_fprog *p, char text[TEXT]) {
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, p)) return failed(text, "install a filter of system calls");
	return 0;
}

// install_file installs the filter of the request.
static int install_file(int fd, char text[TEXT]) {
	static struct sock_filter code[BPF_MAXINSNS];
	ssize_t n = pread(fd, code, sizeof code, 0);
	if (n < 0) return failed(text, "read the filter");
	errno = EINVAL;
	if (n == 0 || (size_t)n % sizeof *code) return failed(text, "read the filter");
	close(fd);
	struct sock_fprog p = {(unsigned short)((size_t)n / sizeof *code), code};
	return install(&p, text);
}

int confine(const struct request *r, const struct fds *f, char text[TEXT]) {
	int err;
	if ((err = join_groups(r, f, text)) || (err = join_namespaces(r, f, text))) return err;
	if (r->file_size) {
		struct rlimit l = {r->file_size, r->file_size};
		if (setrlimit(RLIMIT_FSIZE, &l)) return failed(text, "limit the size of files");
	}
	struct rlimit none = {0, 0}; // a dump would contain the pod's memory
	if (setrlimit(RLIMIT_CORE, &none)) return failed(text, "allow no core dumps");
	if (setsid() < 0) return failed(text, "begin a session");
	if ((err = become(r, text)) || (err = own_sockets(r, text))) return err;
	if (f->landlock >= 0 && (syscall(SYS_landlock_restrict_self, f->landlock, 0) || close(f->landlock)))
		return failed(text, "enter the landlock");
	// QEMU's own filter, which the parent has built but not installed.
	if (qemu_filter && (err = install(qemu_filter, text))) return err;
	return f->filter >= 0 ? install_file(f->filter, text) : 0;
}
