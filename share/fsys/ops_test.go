package fsys_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sys/unix"
)

// op is one operation, which is run on both sides.
type op struct {
	text string
	run  func(*side) string
}

// generator creates operations from a seed.
type generator struct {
	*rand.Rand
	// shared are files that other operations may shorten meanwhile. They must not be mapped.
	shared bool
}

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) name() string {
	if g.IntN(60) == 0 {
		return strings.Repeat("n", pick(g, 255, 256))
	}
	return pick(g, "a", "b", "c", "d", "e")
}

// place is mostly shallow, so that operations meet.
func (g generator) place() place {
	name := g.name()
	for g.IntN(3) == 0 {
		name += "/" + g.name()
	}
	if g.IntN(8) == 0 {
		return place{g.slot(), name}
	}
	return place{-1, name}
}

func (g generator) slot() int { return g.IntN(slots) }

func (g generator) flags() int {
	flags := pick(g, unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR)
	for _, flag := range []int{unix.O_CREAT, unix.O_EXCL, unix.O_TRUNC, unix.O_APPEND, unix.O_NOFOLLOW, unix.O_DIRECTORY, unix.O_SYNC} {
		odds := 6
		if flag == unix.O_CREAT {
			odds = 2
		}
		if g.IntN(odds) == 0 {
			flags |= flag
		}
	}
	if flags&unix.O_CREAT != 0 {
		flags &^= unix.O_DIRECTORY // the kernel's own answer changed over time
	}
	return flags | unix.O_NONBLOCK | unix.O_CLOEXEC
}

func (g generator) mode() uint32 {
	return pick[uint32](g, 0o600, 0o644, 0o666, 0o755, 0o777, 0o400, 0o000, 0o2755, 0o4755, 0o1777, uint32(g.IntN(0o10000)))
}

func (g generator) offset() int64 {
	return pick(g, 0, 1, int64(g.IntN(100)), 4095, 4096, int64(g.IntN(1<<16)), int64(g.IntN(1<<20)))
}

// next returns the next operation, by one of three users.
func (g generator) next() op {
	uid, gid := 0, 0
	switch g.IntN(6) {
	case 0:
		uid, gid = 1000, 1000
	case 1:
		uid, gid = 1001, 1000
	}
	kinds := []func() op{
		g.open, g.open, g.open, g.open, g.read, g.read, g.write, g.write, g.write, g.append, g.append, g.mapped,
		g.stat, g.stat, g.mkdir, g.mkdir, g.remove,
		g.remove, g.rename, g.rename, g.link, g.symlink, g.chmod, g.chown, g.truncate, g.times, g.list, g.xattr, g.allocate, g.seek, g.copy,
		g.sync, g.mknod, g.tmpfile, g.flock, g.lock, g.close, g.access,
	}
	if g.shared {
		kinds[11] = g.copy
	}
	o := pick(g, kinds...)()
	run := o.run
	return op{fmt.Sprintf("%d: %s", uid, o.text), func(s *side) string {
		return as(uid, gid, func() string { return run(s) })
	}}
}

func (g generator) open() op {
	p, slot, flags, mode := g.place(), g.slot(), g.flags(), g.mode()
	return op{fmt.Sprintf("open %v %#o %o in %d", p, flags, mode, slot), func(s *side) string {
		dir, name := s.at(p)
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != nil {
			return outcome(err)
		}
		s.setFD(slot, fd)
		return s.fstat(slot)
	}}
}

func (g generator) close() op {
	slot := g.slot()
	return op{fmt.Sprintf("close %d", slot), func(s *side) string {
		s.setFD(slot, -1)
		return ""
	}}
}

func (g generator) tmpfile() op {
	p, slot, mode, to := g.place(), g.slot(), g.mode(), g.place()
	return op{fmt.Sprintf("tmpfile %v %o in %d, as %v", p, mode, slot, to), func(s *side) string {
		dir, name := s.at(p)
		fd, err := unix.Openat(dir, name, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
		if err != nil {
			return outcome(err)
		}
		s.setFD(slot, fd)
		_, err = unix.Write(fd, []byte("temporary"))
		before := outcome(err) + s.fstat(slot)
		dir, name = s.at(to)
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), dir, name, unix.AT_SYMLINK_FOLLOW)
		return before + outcome(err) + s.fstat(slot) + s.lstat(to)
	}}
}

func (g generator) stat() op {
	p, slot := g.place(), g.slot()
	if g.IntN(3) == 0 {
		return op{fmt.Sprintf("fstat %d", slot), func(s *side) string { return s.fstat(slot) }}
	}
	return op{fmt.Sprintf("lstat %v", p), func(s *side) string {
		buf := make([]byte, 100)
		dir, name := s.at(p)
		n, err := unix.Readlinkat(dir, name, buf)
		return s.lstat(p) + outcome(err, string(buf[:max(n, 0)]))
	}}
}

func (g generator) access() op {
	p, mode := g.place(), uint32(g.IntN(8))
	return op{fmt.Sprintf("access %v %o", p, mode), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Faccessat(dir, name, mode, 0))
	}}
}

func (g generator) list() op {
	slot := g.slot()
	return op{fmt.Sprintf("list %d", slot), func(s *side) string {
		all, err := entries(s.fds[slot])
		return outcome(err, all)
	}}
}
