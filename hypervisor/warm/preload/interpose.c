// Two functions of libraries that behave differently in a parent.
#include "warm.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

HIDDEN int warming(void);

const void *qemu_filter;

#define EXPORTED __attribute__((visibility("default")))

// madvise keeps the guest's memory for the children: QEMU marks it as not to be forked.
EXPORTED int madvise(void *at, size_t size, int advice) {
	if (advice == MADV_DONTFORK && warming()) return 0;
	return (int)syscall(SYS_madvise, at, size, advice);
}

// seccomp_load keeps QEMU's filter for the children instead of installing it: the filter forbids calls that a parent
// needs. On failure QEMU reports the error and ends.
EXPORTED int seccomp_load(void *context) {
	static struct sock_fprog filter;
	int (*load)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "seccomp_load");
	int (*export)(void *, int) = (int (*)(void *, int))dlsym(RTLD_NEXT, "seccomp_export_bpf");
	if (!load || !export) return -ENOSYS;
	if (!warming()) return load(context);
	int fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0) return -errno;
	int err = export(context, fd);
	off_t size = lseek(fd, 0, SEEK_END);
	if (!err && (size <= 0 || (size_t)size % sizeof(struct sock_filter) || (size_t)size / sizeof(struct sock_filter) > BPF_MAXINSNS))
		err = -EINVAL;
	if (!err) {
		void *code = mmap(0, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (code == MAP_FAILED) err = -errno;
		else filter = (struct sock_fprog){(unsigned short)((size_t)size / sizeof(struct sock_filter)), code};
	}
	close(fd);
	if (!err) qemu_filter = &filter;
	return err;
}
