package fsys_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// side is one of two directories with the same operations: the mounted one, and one of the host.
type side struct {
	top string
	fds [slots]int
}

// slots is of descriptors that operations share.
const slots = 6

func newSide(top string) *side {
	s := &side{top: top}
	for i := range s.fds {
		s.fds[i] = -1
	}
	return s
}

func (s *side) close() {
	for i := range s.fds {
		s.setFD(i, -1)
	}
}

func (s *side) setFD(slot, fd int) {
	if s.fds[slot] >= 0 {
		_ = unix.Close(s.fds[slot])
	}
	s.fds[slot] = fd
}

// place is a name, in the directory of a slot or, if that is -1, in the top.
type place struct {
	slot int
	name string
}

func (p place) String() string {
	if p.slot < 0 {
		return p.name
	}
	return fmt.Sprintf("[%d]/%s", p.slot, p.name)
}

// at is the descriptor and the name for system calls.
func (s *side) at(p place) (int, string) {
	if p.slot < 0 {
		return unix.AT_FDCWD, s.top + "/" + p.name
	}
	return s.fds[p.slot], p.name
}

// as runs do as a user without privileges, unless uid is 0.
func as(uid, gid int, do func() string) string {
	if uid == 0 && gid == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Setfsgid(gid)
	_ = unix.Setfsuid(uid)
	defer func() {
		_ = unix.Setfsuid(0)
		_ = unix.Setfsgid(0)
	}()
	return do()
}

// outcome returns the result of an operation: an error, or its value.
func outcome(err error, values ...any) string {
	if err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) {
			return unix.ErrnoName(errno)
		}
		return err.Error()
	}
	return strings.TrimSpace(fmt.Sprintln(values...))
}

// state returns the attributes of a file that must be the same on both sides.
func state(st *unix.Stat_t) string {
	size := st.Size
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0 // a directory's is its history
	}
	return fmt.Sprintf("mode %o links %d owner %d:%d size %d rdev %d", st.Mode, st.Nlink, st.Uid, st.Gid, size, st.Rdev)
}

func (s *side) lstat(p place) string {
	var st unix.Stat_t
	fd, name := s.at(p)
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return outcome(err, state(&st))
}

func (s *side) fstat(slot int) string {
	var st unix.Stat_t
	err := unix.Fstat(s.fds[slot], &st)
	return outcome(err, state(&st))
}

// entries returns the names and types of a directory's entries.
func entries(fd int) (string, error) {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return "", err
	}
	var all []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			slices.Sort(all)
			return strings.Join(all, " "), err
		}
		for rest := buf[:n]; len(rest) > 0; {
			size := int(rest[16]) | int(rest[17])<<8
			name, _, _ := strings.Cut(string(rest[19:size]), "\x00")
			all = append(all, fmt.Sprintf("%s/%d", name, rest[18]))
			rest = rest[size:]
		}
	}
}

// contents is a sum over a file's data.
func contents(fd int) (string, error) {
	sum, total := crc32.NewIEEE(), 0
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Pread(fd, buf, int64(total))
		if err != nil || n <= 0 {
			return fmt.Sprintf("%d bytes, sum %x", total, sum.Sum32()), err
		}
		_, _ = sum.Write(buf[:n])
		total += n
	}
}
