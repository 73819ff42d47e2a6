// Package progress keeps how far a process's standard streams have been passed on, in open files that outlive the
// process that passes them on. The next one continues there, and neither loses nor repeats a byte, wherever a kill has
// hit.
//
// A system call that moves bytes cannot store at the same time how many it has moved. So bytes go through a pipe of the
// stream's own (the stage) by splice(2), which takes bytes from the stage exactly if it passes them on. So the number of
// bytes in the stage shows how many were passed on. Each stream has two numbers in memory:
//
//	offset, 0   The stage has bytes from offset on, or none. No byte of it was passed on.
//	offset, n   The stage had n bytes from offset on. Those that are gone were passed on.
//
// A stream that splice does not support goes without the stage. A kill may then repeat one write or lose one read.
package progress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// The layout of the memory. The pairs of numbers have eight bytes each, most significant byte first. The ring holds the
// last bytes of stdin, the byte at offset n in place n modulo Ring.
const (
	pairSize   = 16
	ringOffset = 4096
	memorySize = ringOffset + Ring
)

// Ring is the number of bytes of stdin that are kept.
const Ring = 128 << 10

// StageSize bounds the bytes in a stage. A host may give its users smaller pipes.
const StageSize = 32 << 10

// Stream is a standard stream.
type Stream int

// The streams.
const (
	Stdin Stream = iota
	Stdout
	Stderr
	streams
)

// Count is the number of files of a Set.
const Count = 1 + 2*int(streams)

var (
	// errInvalid is returned by Open for files that Create has not made.
	errInvalid = errors.New("not the files of a process's progress")
	// ErrNoSplice is returned by Output.Pass for a file that splice does not support.
	ErrNoSplice = errors.New("the file does not support splice")
)

// Set is the files of one process: the memory, and for each stream the stage's end to read and its end to write.
type Set [Count]*os.File

// Create returns the files for a new process. The caller closes them.
func Create() (*Set, error) {
	s := &Set{}
	if err := s.create(); err != nil {
		s.Close()
		return nil, fmt.Errorf("create the files of a process's progress: %w", err)
	}
	return s, nil
}

func (s *Set) create() (err error) {
	if s[0], err = memfd.Create("bulkhead-progress"); err != nil {
		return err
	}
	if err := errors.Join(s[0].Truncate(memorySize), memfd.Seal(s[0], memfd.Fixed)); err != nil {
		return err
	}
	for i := 1; i < Count; i += 2 {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return fmt.Errorf("pipe: %w", err)
		}
		s[i], s[i+1] = os.NewFile(uintptr(fds[0]), "stage"), os.NewFile(uintptr(fds[1]), "stage")
		// A larger one counts against the user's limit, and a smaller one works too.
		_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, StageSize)
	}
	return nil
}

// Duplicate returns further descriptors of the files.
func (s *Set) Duplicate() (*Set, error) {
	again := &Set{}
	for i, f := range s {
		var fd int
		var err error
		ctlErr := control(f, func(old int) { fd, err = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 3) })
		if err := errors.Join(ctlErr, err); err != nil {
			again.Close()
			return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
		}
		again[i] = os.NewFile(uintptr(fd), f.Name())
	}
	return again, nil
}

// Close closes the files.
func (s *Set) Close() {
	for _, f := range s {
		if f != nil {
			f.Close()
		}
	}
}

// Record is the content of a Set. Open returns it, and Close closes it. The streams are independent: each may be used
// by a goroutine of its own.
type Record struct {
	set            *Set
	input          *Input
	stdout, stderr *Output
}

// Open checks the files and takes them over, also on an error. Another process may have written anything into them: the
// offsets are from 0 to 1<<62, and no other fact about them is certain.
func Open(s *Set) (*Record, error) {
	if s == nil {
		return nil, errInvalid
	}
	r := &Record{set: s}
	err := s.check()
	if err == nil {
		r.input, err = openInput(stage{s, Stdin})
	}
	if err == nil {
		r.stdout, err = openOutput(stage{s, Stdout})
	}
	if err == nil {
		r.stderr, err = openOutput(stage{s, Stderr})
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open the files of a process's progress: %w", err)
	}
	return r, nil
}

// Input returns the progress of stdin.
func (r *Record) Input() *Input { return r.input }

// Output returns the progress of stdout or stderr.
func (r *Record) Output(s Stream) *Output {
	if s == Stderr {
		return r.stderr
	}
	return r.stdout
}

// Close closes the files.
func (r *Record) Close() { r.set.Close() }

// check accepts only memory of the right size that cannot shrink, and pipes that do not block.
func (s *Set) check() error {
	for i, f := range s {
		if f == nil {
			return errInvalid
		}
		var seals, flags int
		var st unix.Stat_t
		var sealErr, err error
		ctlErr := control(f, func(fd int) {
			seals, sealErr = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
			flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			err = errors.Join(err, unix.Fstat(fd, &st))
		})
		if err := errors.Join(ctlErr, err); err != nil {
			return err
		}
		access := flags & unix.O_ACCMODE
		switch {
		case i == 0 && (sealErr != nil || seals&memfd.Fixed != memfd.Fixed || access != unix.O_RDWR || st.Size != memorySize),
			i > 0 && (st.Mode&unix.S_IFMT != unix.S_IFIFO || flags&unix.O_NONBLOCK == 0),
			i > 0 && access != [2]int{unix.O_WRONLY, unix.O_RDONLY}[i%2]:
			return errInvalid
		}
	}
	return nil
}

// control calls f with the descriptor, and changes no flag of the file.
func control(file *os.File, f func(fd int)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// stage is the stage of a stream, with its numbers.
type stage struct {
	set    *Set
	stream Stream
}

func (s stage) out() *os.File { return s.set[1+2*s.stream] }
func (s stage) in() *os.File  { return s.set[2+2*s.stream] }

// load reads the numbers: of the first byte that was not passed on, and of the bytes in the stage.
func (s stage) load() (offset, staged int64, err error) {
	var b [pairSize]byte
	if _, err := s.set[0].ReadAt(b[:], pairSize*int64(s.stream)); err != nil {
		return 0, 0, fmt.Errorf("read an offset: %w", err)
	}
	const mask = 1<<62 - 1
	offset, n := int64(binary.BigEndian.Uint64(b[:])&mask), int64(binary.BigEndian.Uint64(b[8:])&mask)
	if staged, err = s.length(); err != nil {
		return 0, 0, err
	}
	switch {
	case n == 0 && staged > 0: // the kill came before the stage was noted
		return offset, staged, s.store(offset, staged)
	case staged > n:
		return 0, 0, fmt.Errorf("%w: %d bytes are in a stage of %d", errInvalid, staged, n)
	}
	return offset + n - staged, staged, nil
}

// length returns the number of bytes in the stage.
func (s stage) length() (int64, error) {
	var n int
	var err error
	ctlErr := control(s.out(), func(fd int) { n, err = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	if err := errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("read the length of a stage: %w", err)
	}
	return int64(n), nil
}

// expect returns an error unless the stage has so many bytes. Otherwise a caller would wait for the wrong file.
func (s stage) expect(want int64) error {
	n, err := s.length()
	if err == nil && n != want {
		err = fmt.Errorf("%w: %d bytes are in a stage, not %d", errInvalid, n, want)
	}
	return err
}

// store stores the numbers.
func (s stage) store(offset, n int64) error {
	var b [pairSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(offset))
	binary.BigEndian.PutUint64(b[8:], uint64(n))
	if _, err := s.set[0].WriteAt(b[:], pairSize*int64(s.stream)); err != nil {
		return fmt.Errorf("store an offset: %w", err)
	}
	return nil
}

// drop discards the bytes in the stage.
func (s stage) drop() error {
	b := make([]byte, 4096)
	for {
		var n int
		var err error
		ctlErr := control(s.out(), func(fd int) { n, err = unix.Read(fd, b) })
		switch {
		case errors.Is(err, unix.EAGAIN), n == 0 && err == nil && ctlErr == nil:
			return nil
		case err != nil, ctlErr != nil:
			return fmt.Errorf("clear a stage: %w", errors.Join(ctlErr, err))
		}
	}
}

// splice moves bytes between two descriptors, one of them of a stage.
func splice(from int, fromAt *int64, to int, toAt *int64, n int) (int, error) {
	moved, err := unix.Splice(from, fromAt, to, toAt, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	if errors.Is(err, unix.EINVAL) {
		err = ErrNoSplice
	}
	return int(max(moved, 0)), err
}
