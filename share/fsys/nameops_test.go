package fsys_test

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func (g generator) mkdir() op {
	p, mode := g.place(), g.mode()
	return op{fmt.Sprintf("mkdir %v %o", p, mode), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Mkdirat(dir, name, mode)) + s.lstat(p)
	}}
}

func (g generator) mknod() op {
	p, mode := g.place(), g.mode()|pick[uint32](g, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG)
	return op{fmt.Sprintf("mknod %v %o", p, mode), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Mknodat(dir, name, mode, 0)) + s.lstat(p)
	}}
}

func (g generator) remove() op {
	p, flags := g.place(), pick(g, 0, 0, unix.AT_REMOVEDIR)
	return op{fmt.Sprintf("remove %v %x", p, flags), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Unlinkat(dir, name, flags)) + s.lstat(p)
	}}
}

func (g generator) rename() op {
	from, to, flags := g.place(), g.place(), pick[uint](g, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE)
	return op{fmt.Sprintf("rename %v %v %x", from, to, flags), func(s *side) string {
		d1, n1 := s.at(from)
		d2, n2 := s.at(to)
		return outcome(unix.Renameat2(d1, n1, d2, n2, flags)) + s.lstat(from) + s.lstat(to)
	}}
}

func (g generator) link() op {
	from, to := g.place(), g.place()
	return op{fmt.Sprintf("link %v %v", from, to), func(s *side) string {
		d1, n1 := s.at(from)
		d2, n2 := s.at(to)
		return outcome(unix.Linkat(d1, n1, d2, n2, 0)) + s.lstat(from) + s.lstat(to)
	}}
}

func (g generator) symlink() op {
	p, target := g.place(), pick(g, "a", "b", "../c", "d/e", "nowhere", "./a/../b", strings.Repeat("x", 4095), "")
	return op{fmt.Sprintf("symlink %v to %.20s", p, target), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Symlinkat(target, dir, name)) + s.lstat(p)
	}}
}

func (g generator) chmod() op {
	p, slot, mode := g.place(), g.slot(), g.mode()
	if g.IntN(2) == 0 {
		return op{fmt.Sprintf("fchmod %d %o", slot, mode), func(s *side) string {
			return outcome(unix.Fchmod(s.fds[slot], mode)) + s.fstat(slot)
		}}
	}
	return op{fmt.Sprintf("chmod %v %o", p, mode), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Fchmodat(dir, name, mode, 0)) + s.lstat(p)
	}}
}

func (g generator) chown() op {
	p, slot, uid, gid := g.place(), g.slot(), pick(g, -1, 0, 1000, 1001), pick(g, -1, 0, 1000)
	if uid < 0 && gid < 0 {
		uid = 0 // the kernel does not ask FUSE to change nothing, though that drops bits of the mode
	}
	if g.IntN(2) == 0 {
		return op{fmt.Sprintf("fchown %d %d:%d", slot, uid, gid), func(s *side) string {
			return outcome(unix.Fchown(s.fds[slot], uid, gid)) + s.fstat(slot)
		}}
	}
	return op{fmt.Sprintf("lchown %v %d:%d", p, uid, gid), func(s *side) string {
		dir, name := s.at(p)
		return outcome(unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)) + s.lstat(p)
	}}
}

// times sets times, to those that only change when they are set.
func (g generator) times() op {
	p, flags := g.place(), pick(g, 0, unix.AT_SYMLINK_NOFOLLOW)
	set := make([]unix.Timespec, 2)
	for i := range set {
		set[i] = pick(g, unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Sec: 1e9, Nsec: 123456789}, unix.Timespec{Sec: -5, Nsec: 999999999})
	}
	return op{fmt.Sprintf("utimensat %v %v %x", p, set, flags), func(s *side) string {
		dir, name := s.at(p)
		if err := unix.UtimesNanoAt(dir, name, set, flags); err != nil {
			return outcome(err)
		}
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, flags)
		got := []unix.Timespec{st.Atim, st.Mtim}
		for i := range set {
			if set[i].Nsec == unix.UTIME_OMIT {
				got[i] = unix.Timespec{}
			}
		}
		return outcome(err, got)
	}}
}

func (g generator) xattr() op {
	p, name := g.place(), pick(g, "user.a", "user.b", "user."+strings.Repeat("x", 250), "user.")
	value := []byte(strings.Repeat("v", pick(g, 0, 1, 100, 1000)))
	flags := pick(g, 0, unix.XATTR_CREATE, unix.XATTR_REPLACE)
	set := g.IntN(2) == 0
	p.slot = -1
	return op{fmt.Sprintf("xattr %v %.10s %d %d %v", p, name, len(value), flags, set), func(s *side) string {
		_, path := s.at(p)
		var err error
		if set {
			err = unix.Lsetxattr(path, name, value, flags)
		} else {
			err = unix.Lremovexattr(path, name)
		}
		buf := make([]byte, 2000)
		n, got := unix.Lgetxattr(path, name, buf)
		m, list := unix.Llistxattr(path, buf[1000:])
		return outcome(err) + outcome(got, n) + outcome(list, m, string(buf[1000:1000+max(m, 0)]))
	}}
}
