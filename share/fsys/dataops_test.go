package fsys_test

import (
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"
)

func (g generator) data() []byte {
	b := make([]byte, pick(g, 0, 1, g.IntN(100), 4096, 5000, g.IntN(1<<16), 200_000))
	c := byte(g.IntN(256))
	for i := range b {
		b[i] = c + byte(i>>8)
	}
	return b
}

func (g generator) read() op {
	slot, offset, size := g.slot(), g.offset(), pick(g, 0, 1, 100, 4096, 300_000)
	return op{fmt.Sprintf("read %d from %d, %d", slot, offset, size), func(s *side) string {
		buf := make([]byte, size)
		n, err := unix.Pread(s.fds[slot], buf, offset)
		return outcome(err, n, crc32.ChecksumIEEE(buf[:max(n, 0)]))
	}}
}

func (g generator) write() op {
	slot, offset, data := g.slot(), g.offset(), g.data()
	return op{fmt.Sprintf("write %d at %d, %d", slot, offset, len(data)), func(s *side) string {
		n, err := unix.Pwrite(s.fds[slot], data, offset)
		return outcome(err, n) + s.fstat(slot)
	}}
}

func (g generator) append() op {
	slot, data := g.slot(), g.data()
	return op{fmt.Sprintf("write %d at its position, %d", slot, len(data)), func(s *side) string {
		n, err := unix.Write(s.fds[slot], data)
		return outcome(err, n) + s.fstat(slot)
	}}
}

// mapped writes a byte through a shared mapping, and reads through a private one.
func (g generator) mapped() op {
	slot, at, c := g.slot(), g.IntN(8192), byte(g.IntN(256))
	return op{fmt.Sprintf("map %d, %d = %d", slot, at, c), func(s *side) string {
		var st unix.Stat_t
		if err := unix.Fstat(s.fds[slot], &st); err != nil || st.Size <= int64(at) || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return "nothing to map"
		}
		shared, err := unix.Mmap(s.fds[slot], 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return outcome(err)
		}
		shared[at] = c
		synced := unix.Msync(shared, unix.MS_SYNC)
		_ = unix.Munmap(shared)
		private, err := unix.Mmap(s.fds[slot], 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if err != nil {
			return outcome(err)
		}
		private[0]++
		text := outcome(synced, private[at], private[0])
		_ = unix.Munmap(private)
		return text
	}}
}

func (g generator) truncate() op {
	p, slot, size := g.place(), g.slot(), g.offset()
	if g.IntN(2) == 0 {
		return op{fmt.Sprintf("ftruncate %d to %d", slot, size), func(s *side) string {
			return outcome(unix.Ftruncate(s.fds[slot], size)) + s.fstat(slot)
		}}
	}
	p.slot = -1
	return op{fmt.Sprintf("truncate %v to %d", p, size), func(s *side) string {
		_, path := s.at(p)
		return outcome(unix.Truncate(path, size)) + s.lstat(p)
	}}
}

func (g generator) allocate() op {
	slot, offset, length := g.slot(), g.offset(), g.offset()
	mode := pick[uint32](g, 0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE)
	return op{fmt.Sprintf("fallocate %d %x from %d, %d", slot, mode, offset, length), func(s *side) string {
		err := unix.Fallocate(s.fds[slot], mode, offset, length)
		sum, read := contents(s.fds[slot])
		return outcome(err) + s.fstat(slot) + outcome(read, sum)
	}}
}

func (g generator) seek() op {
	slot, offset, whence := g.slot(), g.offset(), pick(g, unix.SEEK_DATA, unix.SEEK_HOLE, unix.SEEK_SET, unix.SEEK_END)
	return op{fmt.Sprintf("seek %d %d %d", slot, offset, whence), func(s *side) string {
		var st unix.Stat_t
		if unix.Fstat(s.fds[slot], &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return "a directory's positions are its own"
		}
		n, err := unix.Seek(s.fds[slot], offset, whence)
		if (whence == unix.SEEK_DATA || whence == unix.SEEK_HOLE) && offset < st.Size && (err == unix.ENXIO || offset <= n && n <= st.Size) {
			_, _ = unix.Seek(s.fds[slot], 0, unix.SEEK_SET)
			return "a hole is where the disk likes it"
		}
		return outcome(err, n)
	}}
}

func (g generator) copy() op {
	from, to, in, out, n := g.slot(), g.slot(), g.offset(), g.offset(), g.IntN(1<<17)
	return op{fmt.Sprintf("copy_file_range %d at %d to %d at %d, %d", from, in, to, out, n), func(s *side) string {
		in, out := in, out
		n, err := unix.CopyFileRange(s.fds[from], &in, s.fds[to], &out, n, 0)
		sum, read := contents(s.fds[to])
		return outcome(err, n) + outcome(read, sum)
	}}
}

func (g generator) sync() op {
	slot := g.slot()
	return op{fmt.Sprintf("fsync %d", slot), func(s *side) string {
		return outcome(unix.Fsync(s.fds[slot])) + outcome(unix.Fdatasync(s.fds[slot]))
	}}
}

func (g generator) flock() op {
	slot, how := g.slot(), pick(g, unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_UN)
	return op{fmt.Sprintf("flock %d %d", slot, how), func(s *side) string {
		return outcome(unix.Flock(s.fds[slot], how|unix.LOCK_NB))
	}}
}

// lock uses locks of open files, which conflict within one process.
func (g generator) lock() op {
	slot, typ, start, length := g.slot(), pick[int16](g, unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK), g.offset(), g.offset()
	cmd := pick(g, unix.F_OFD_SETLK, unix.F_OFD_SETLK, unix.F_OFD_GETLK)
	return op{fmt.Sprintf("lock %d %d %d from %d, %d", slot, cmd, typ, start, length), func(s *side) string {
		l := unix.Flock_t{Type: typ, Start: start, Len: length}
		err := unix.FcntlFlock(uintptr(s.fds[slot]), cmd, &l)
		return outcome(err, l.Type, l.Start, l.Len)
	}}
}
