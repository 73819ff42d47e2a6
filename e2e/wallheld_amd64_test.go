package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// holding returns the kinds of files that the process's descriptors lead to, with the descriptors.
func (in *injected) holding() map[string][]int {
	held := map[string][]int{}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", in.pid))
	for _, link := range links {
		to, err := os.Readlink(link)
		info, statErr := os.Lstat(link)
		if err != nil || statErr != nil {
			continue
		}
		mode := map[bool]string{true: "read and write", false: "read"}[info.Mode()&0o200 != 0]
		if info.Mode()&0o400 == 0 {
			mode = "write"
		}
		var fd int
		_, _ = fmt.Sscan(filepath.Base(link), &fd)
		kind := fmt.Sprintf("%s: %s", kindOf(to), mode)
		held[kind] = append(held[kind], fd)
	}
	return held
}

// descriptors returns the descriptors of a kind in numerical order. An empty kind means all.
func (in *injected) descriptors(kind string) (fds []int) {
	for what, some := range in.holding() {
		if strings.HasPrefix(what, kind) {
			fds = append(fds, some...)
		}
	}
	slices.Sort(fds)
	return fds
}

// kindOf names a descriptor's file without the parts that differ between pods.
func kindOf(link string) string {
	link = strings.TrimSuffix(link, " (deleted)")
	switch name, _, _ := strings.Cut(link, ":["); {
	case strings.HasPrefix(link, "anon_inode:"):
		return strings.Trim(strings.TrimPrefix(link, "anon_inode:"), "[]")
	case strings.HasPrefix(link, "/memfd:"):
		return strings.TrimPrefix(link, "/memfd:")
	case name != link:
		return name
	case link == os.DevNull:
		return link
	default:
		return filepath.Base(link)
	}
}

// held returns the actions on the descriptors that the process holds.
func (p prey) held() []action {
	// one tries all descriptors of a kind until one works. Otherwise the first one's answer counts.
	one := func(kind string, number int, args ...any) func(*injected) int64 {
		return func(in *injected) int64 {
			first := -int64(unix.EBADF)
			for i, fd := range in.descriptors(kind) {
				if result := in.call(number, append([]any{fd}, args...)...); i == 0 || result >= 0 || result == killed {
					first = result
				}
				if first >= 0 || first == killed {
					break
				}
			}
			return first
		}
	}
	again := func(kind string, flags int) func(*injected) int64 {
		return func(in *injected) int64 {
			for _, fd := range in.descriptors(kind) {
				return open(fmt.Sprintf("/proc/self/fd/%d", fd), flags)(in)
			}
			return -int64(unix.EBADF)
		}
	}
	engine := append([]byte{unix.AF_UNIX, 0}, p.engineSocket+"\x00"...)
	return []action{
		{"write to its scratch disk", one("scratch.img", unix.SYS_PWRITE64, "x", 0, 0), "the disk is the pod's"},
		{"write to an image's disk", one("disk.erofs", unix.SYS_PWRITE64, "x", 1, 0), ""},
		{"open that again, to write", again("disk.erofs", unix.O_RDWR), ""},
		{"write to the template's memory", one("bulkhead-template", unix.SYS_PWRITE64, "x", 1, 0), ""},
		{"shrink that", one("bulkhead-template", unix.SYS_FTRUNCATE, 0), ""},
		{"change the owner of what it holds", one("", unix.SYS_FCHOWN, 0, 0), ""},
		{"change the mode of what it holds", one("scratch.img", unix.SYS_FCHMOD, 0o4755), ""},
		{"type into a terminal that it holds (TIOCSTI)", one("", unix.SYS_IOCTL, unix.TIOCSTI, "x"), ""},
		{"make a network card (TUNSETIFF)", one("", unix.SYS_IOCTL, unix.TUNSETIFF, make([]byte, 40)), ""},
		{"change flags of a file system (FS_IOC_SETFLAGS)", one("scratch.img", unix.SYS_IOCTL, unix.FS_IOC_SETFLAGS, words(0x10)), ""},
		{"freeze a file system (FIFREEZE)", one("", unix.SYS_IOCTL, 0xc0045877, 0), ""},
		{"share blocks of a file (FICLONE)", one("", unix.SYS_IOCTL, 0x40049409, 0), ""},
		{"connect a socket that it holds", one("socket", unix.SYS_CONNECT, engine, len(engine)), ""},
		{"a pidfd of a socket's other end (SO_PEERPIDFD)",
			one("socket", unix.SYS_GETSOCKOPT, unix.SOL_SOCKET, unix.SO_PEERPIDFD, words(0), words(4)), ""},
	}
}
