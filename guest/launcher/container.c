// The file systems of a new container, as crun makes them.
#include "launcher.h"

#include <linux/keyctl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/stat.h>

enum {
	PROPAGATION = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE,
	TYPE = 0170000, // of a file, in its mode
	DIRECTORY = 0040000,
	REGULAR = 0100000,
	CHARACTERS = 0020000, // a device
	DETACH = 2, // MNT_DETACH
	NULL_MAJOR = 1,
	NULL_MINOR = 3,
};

static int root; // the container's root directory

// A mount becomes read-only last, because it may need new mount points.
static struct {
	int fd;
	uint64_t flags;
} later[MAX_MOUNTS + 1];
static int pending;

// named returns the path of a descriptor in the VM's /proc.
static const char *named(int fd) {
	static char path[32] = "/proc/self/fd/";
	char digits[12];
	int n = 0, at = 14;
	do {
		digits[n++] = (char)('0' + fd % 10);
		fd /= 10;
	} while (fd);
	while (n) {
		path[at++] = digits[--n];
	}
	path[at] = 0;
	return path;
}

// resolve opens a place in the root. No link leads out of the root.
static long resolve(const char *path, uint64_t flags, uint64_t limits) {
	struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags, .resolve = RESOLVE_IN_ROOT | limits};
	long fd = -EAGAIN;
	for (int tries = 0; fd == -EAGAIN && tries < 100; tries++) {
		fd = CALL(__NR_openat2, root, path, &how, sizeof how, 0);
	}
	return fd;
}

// information returns the type of a descriptor's file.
static long information(long fd, struct statx *info) {
	return fd < 0 ? fd : CALL(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, info);
}

// make opens a place in the root, and makes the missing directories and the file of it.
static long make(const char *path, int directory, uint32_t mode) {
	long fd = resolve(path, 0, 0);
	if (fd != -ENOENT) {
		return fd;
	}
	static char part[MAX_PATH];
	size_t n = length(path), at = 0;
	if (n >= MAX_PATH) {
		return -ENAMETOOLONG;
	}
	memcpy(part, path, n + 1);
	long parent = CALL(__NR_dup, root, 0, 0, 0, 0);
	while (parent >= 0) {
		while (part[at] == '/') {
			at++;
		}
		if (!part[at]) {
			return parent;
		}
		size_t end = at;
		while (part[end] && part[end] != '/') {
			end++;
		}
		if (end == at + 2 && part[at] == '.' && part[at + 1] == '.') {
			return -EINVAL;
		}
		char next = part[end];
		part[end] = 0;
		if (!next && !directory) {
			fd = CALL(__NR_mknodat, parent, part + at, REGULAR | 0700, 0, 0);
			if (!fd || fd == -EEXIST) {
				struct statx info;
				fd = CALL(__NR_openat, parent, part + at, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, 0);
				if (!information(fd, &info) && (info.stx_mode & TYPE) != REGULAR) {
					fd = -ELOOP; // a link, which may lead out
				}
			}
		} else {
			long err = CALL(__NR_mkdirat, parent, part + at, mode, 0, 0);
			fd = err && err != -EEXIST ? err : resolve(part, 0, 0);
		}
		CALL(__NR_close, parent, 0, 0, 0, 0);
		if (fd < 0 || (!next && !directory)) {
			return fd;
		}
		parent = fd;
		part[end] = next;
		at = end;
	}
	return parent;
}

static int is(const char *a, const char *b) {
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static long mount(const char *source, const char *target, const char *type, uint64_t flags, const char *data) {
	return CALL(__NR_mount, source, target, type, flags, data);
}

// attach mounts at an open place. It closes the place. path is the place in the root.
static void attach(long place, const char *path, const char *source, const char *type, uint64_t flags, const char *data, enum step step) {
	need(place, step);
	long mounted = 0;
	if (flags & MS_BIND) { // never resolve its place again: another container may have changed it
		uint64_t how = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (flags & MS_REC ? AT_RECURSIVE : 0);
		mounted = CALL(__NR_open_tree, AT_FDCWD, source, how, 0, 0);
		need(mounted, step);
		need(CALL(__NR_move_mount, mounted, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH), step);
	} else {
		need(mount(source, named((int)place), type, flags & ~(uint64_t)(PROPAGATION | MS_RDONLY), data), step);
	}
	CALL(__NR_close, place, 0, 0, 0, 0);
	if (!mounted) {
		if (!(flags & (PROPAGATION | MS_RDONLY))) {
			return;
		}
		mounted = resolve(path, 0, 0);
		need(mounted, step);
	}
	if (flags & PROPAGATION) {
		need(mount(0, named((int)mounted), 0, flags & (MS_REC | PROPAGATION), 0), step);
	}
	uint64_t change = MS_REMOUNT | MS_BIND | (flags & ~(uint64_t)(PROPAGATION | MS_REC));
	if (flags & MS_RDONLY) {
		later[pending].fd = (int)mounted;
		later[pending++].flags = change;
		return;
	}
	if (flags & MS_BIND) {
		need(mount(0, named((int)mounted), 0, change, 0), step);
	}
	CALL(__NR_close, mounted, 0, 0, 0, 0);
}

// deep reports whether a path has more than one name.
static int deep(const char *path) {
	while (*path == '/') {
		path++;
	}
	while (*path && *path != '/') {
		path++;
	}
	return *path;
}

// place opens the target of a mount, and makes it if it is missing.
static long place(const char *target, const char *type, const char *source, uint64_t flags) {
	struct statx info;
	if (is(type, "proc") || is(type, "sysfs")) { // on a directory of the image, which is not a link
		long fd = resolve(target, O_DIRECTORY, RESOLVE_NO_SYMLINKS);
		return fd == -ENOENT && !deep(target) ? make(target, 1, 0755) : fd;
	}
	if (!(flags & MS_BIND)) {
		return make(target, 1, 01755);
	}
	long err = CALL(__NR_statx, AT_FDCWD, source, 0, STATX_TYPE, &info);
	if (err) {
		return err;
	}
	int directory = (info.stx_mode & TYPE) == DIRECTORY;
	return make(target, directory, directory ? 01755 : 0755);
}

// device makes a device, unless the name exists.
static void device(const char *directory, const char *name, struct node n) {
	long parent = is(directory, "dev") ? resolve(directory, O_DIRECTORY, 0) : make(directory, 1, 0755);
	need(parent, BAD_DEVICE);
	long err = CALL(__NR_mknodat, parent, name, n.mode, n.device, 0);
	if (!err && (n.uid || n.gid)) { // own the file that was made, if it is still there
		struct statx info;
		long fd = CALL(__NR_openat, parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, 0);
		need(information(fd, &info), BAD_DEVICE);
		need((info.stx_mode & TYPE) == (n.mode & TYPE) ? 0 : -EBUSY, BAD_DEVICE);
		need(CALL(__NR_fchownat, fd, "", n.uid, n.gid, AT_EMPTY_PATH), BAD_DEVICE);
		CALL(__NR_close, fd, 0, 0, 0, 0);
	}
	need(err == -EEXIST ? 0 : err, BAD_DEVICE);
	CALL(__NR_close, parent, 0, 0, 0, 0);
}

// devices makes the devices and the links that every container has.
static void devices(void) {
	static const struct {
		const char *name;
		uint32_t device; // the major number times 256, and the minor
	} usual[] = {{"null", 0x103}, {"zero", 0x105}, {"full", 0x107}, {"tty", 0x500}, {"random", 0x108}, {"urandom", 0x109}};
	static const struct {
		const char *name, *target;
	} links[] = {{"fd", "/proc/self/fd"},         {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
	             {"stderr", "/proc/self/fd/2"}, {"core", "/proc/kcore"},      {"ptmx", "pts/ptmx"}};
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
		device("dev", usual[i].name, (struct node){CHARACTERS | 0666, usual[i].device, 0, 0});
	}
	long dev = resolve("dev", O_DIRECTORY, 0);
	need(dev, BAD_DEVICE);
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		long err = CALL(__NR_symlinkat, links[i].target, dev, links[i].name, 0, 0);
		if (err == -EEXIST && is(links[i].name, "ptmx")) { // it must be the container's own
			err = CALL(__NR_unlinkat, dev, "ptmx", 0, 0, 0);
			err = err ? err : CALL(__NR_symlinkat, links[i].target, dev, "ptmx", 0, 0);
		}
		need(err == -EEXIST ? 0 : err, BAD_DEVICE);
	}
	CALL(__NR_close, dev, 0, 0, 0, 0);
}

// mask hides a path, if it exists.
static void mask(const char *path) {
	struct statx info;
	long fd = resolve(path, 0, 0);
	if (fd == -ENOENT || fd == -EACCES) {
		return;
	}
	need(information(fd, &info), BAD_PATH);
	if ((info.stx_mode & TYPE) == DIRECTORY) {
		attach(fd, path, "tmpfs", "tmpfs", MS_RDONLY, "size=0k", BAD_PATH);
	} else {
		attach(fd, path, "/dev/null", 0, MS_BIND | MS_RDONLY, 0, BAD_PATH);
	}
}

// protect makes a path read-only, if it exists.
static void protect(const char *path) {
	long fd = resolve(path, 0, 0);
	if (fd == -ENOENT || fd == -EACCES) {
		return;
	}
	need(fd, BAD_PATH);
	char source[32];
	const char *name = named((int)fd);
	memcpy(source, name, length(name) + 1);
	attach(fd, path, source, 0, MS_BIND | MS_PRIVATE | MS_RDONLY | MS_REC, 0, BAD_PATH);
}

static int is_null(long fd) {
	struct statx info;
	return !information(fd, &info) && (info.stx_mode & TYPE) == CHARACTERS && info.stx_rdev_major == NULL_MAJOR &&
	       info.stx_rdev_minor == NULL_MINOR;
}

// replace_null replaces the VM's null device among the streams by the container's.
static void replace_null(void) {
	long fd = resolve("dev/null", O_NOFOLLOW, 0), null = -ENODEV;
	need(fd, BAD_STREAMS);
	if (is_null(fd)) {
		null = CALL(__NR_openat, AT_FDCWD, named((int)fd), O_RDWR | O_CLOEXEC, 0, 0);
	}
	need(null, BAD_STREAMS);
	for (int i = 0; i < 3; i++) {
		if (is_null(i)) {
			need(CALL(__NR_dup2, null, i, 0, 0, 0), BAD_STREAMS);
		}
	}
}

// enter makes the root the root of this process, and drops the VM's.
static void enter(void) {
	need(CALL(__NR_fchdir, root, 0, 0, 0, 0), BAD_ROOT);
	need(CALL(__NR_pivot_root, ".", ".", 0, 0, 0), BAD_ROOT);
	need(CALL(__NR_umount2, ".", DETACH, 0, 0, 0), BAD_ROOT);
	need(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0), BAD_ROOT); // it has the last word, as with crun
	need(CALL(__NR_chdir, "/", 0, 0, 0, 0), BAD_ROOT);
}

static char *next(char **strings) {
	char *s = *strings;
	*strings += length(s) + 1;
	return s;
}

void contain(const struct request *r, const uint64_t *mounts, const struct node *nodes, const char *cwd, char *strings) {
	const char *at = next(&strings), *host = next(&strings), *domain = next(&strings), *keyring = next(&strings);
	need(CALL(__NR_setsid, 0, 0, 0, 0, 0), BAD_SESSION);
	long err = CALL(__NR_keyctl, KEYCTL_JOIN_SESSION_KEYRING, keyring, 0, 0, 0);
	need(err == -ENOSYS ? 0 : err, BAD_SESSION);
	CALL(__NR_umask, 0, 0, 0, 0, 0);
	need(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0), BAD_ROOT);
	need(mount(at, at, 0, MS_BIND | MS_REC, 0), BAD_ROOT);
	need(mount(0, at, 0, MS_REMOUNT | MS_BIND, 0), BAD_ROOT);
	long fd = CALL(__NR_openat, AT_FDCWD, at, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0);
	need(fd, BAD_ROOT);
	root = (int)fd;
	if (r->flags & READ_ONLY) {
		later[pending].fd = root;
		later[pending++].flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
	}
	if (r->namespaces & CLONE_NEWCGROUP) { // now that this process is in its cgroup
		need(CALL(__NR_unshare, CLONE_NEWCGROUP, 0, 0, 0, 0), BAD_NAMESPACES);
	}
	for (uint32_t i = 0; i < r->mounts; i++) {
		const char *source = next(&strings), *target = next(&strings), *type = next(&strings), *data = next(&strings);
		attach(place(target, type, source, mounts[i]), target, source, type, mounts[i], data, BAD_MOUNT);
	}
	for (uint32_t i = 0; i < r->nodes; i++) {
		const char *directory = next(&strings), *name = next(&strings);
		device(directory, name, nodes[i]);
	}
	if (r->flags & DEVICES) {
		devices();
	}
	fd = make(cwd, 1, 0755); // it may fail later, when the process enters it
	if (fd >= 0) {
		CALL(__NR_close, fd, 0, 0, 0, 0);
	}
	for (uint32_t i = 0; i < r->masked; i++) {
		mask(next(&strings));
	}
	for (uint32_t i = 0; i < r->closed; i++) {
		protect(next(&strings));
	}
	while (pending) {
		pending--;
		need(mount(0, named(later[pending].fd), 0, later[pending].flags, 0), BAD_MOUNT);
	}
	replace_null();
	enter();
	if (*host) {
		need(CALL(__NR_sethostname, host, length(host), 0, 0, 0), BAD_NAME);
	}
	if (*domain) {
		need(CALL(__NR_setdomainname, domain, length(domain), 0, 0, 0), BAD_NAME);
	}
}
