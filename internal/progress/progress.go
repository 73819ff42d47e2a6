// Package progress keeps in a file in memory how far the standard streams of a process have been passed on. The file
// outlives the process that passes them on, so that the next one continues there.
//
// The file holds three numbers of eight bytes, most significant byte first: the offsets of stdout, of stderr and of
// stdin. At ringOffset follow the last bytes of stdin, the byte at offset n in place n modulo Ring.
package progress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// Ring is the number of bytes of stdin that a file keeps.
const Ring = 128 << 10

const (
	ringOffset = 4096
	fileSize   = ringOffset + Ring
	inputAt    = 16
)

// Stream is an output of a process.
type Stream int

// The streams.
const (
	Stdout Stream = 0
	Stderr Stream = 1
)

// ErrInvalid is returned for a file that Create has not made.
var ErrInvalid = errors.New("not a file of a process's progress")

// Create returns a file for a new process. The caller closes it.
func Create() (*os.File, error) {
	f, err := memfd.Create("bulkhead-progress")
	if err != nil {
		return nil, err
	}
	err = f.Truncate(fileSize)
	if err == nil {
		err = memfd.Seal(f, memfd.Fixed)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create a file of progress: %w", err)
	}
	return f, nil
}

// Record is the content of a file. The methods for different streams are safe for concurrent use, as is Close.
type Record struct {
	f     *os.File
	input int64 // offset of stdin
}

// Open checks the file and takes it over, also on an error. Its writer may have been hostile. So the numbers
// are from 0 to 1<<62, and no other fact about them is certain.
func Open(f *os.File) (*Record, error) {
	r := &Record{f: f}
	err := check(f)
	if err == nil {
		r.input, err = r.number(inputAt)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open a file of progress: %w", err)
	}
	return r, nil
}

// check accepts only memory that cannot shrink and can be written.
func check(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var seals, flags int
	var sealErr, flagErr error
	err = raw.Control(func(fd uintptr) {
		seals, sealErr = unix.FcntlInt(fd, unix.F_GET_SEALS, 0)
		flags, flagErr = unix.FcntlInt(fd, unix.F_GETFL, 0)
	})
	if err := errors.Join(err, flagErr); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if sealErr != nil || seals&memfd.Fixed != memfd.Fixed || flags&unix.O_ACCMODE != unix.O_RDWR || info.Size() != fileSize {
		return ErrInvalid
	}
	return nil
}

// Output returns the offset of the first byte of an output that has not been passed on.
func (r *Record) Output(s Stream) (int64, error) { return r.number(8 * int64(s)) }

// SetOutput stores the offset of an output.
func (r *Record) SetOutput(s Stream, offset int64) error { return r.setNumber(8*int64(s), offset) }

// Input returns the offset of stdin, and the last bytes before it, at most Ring.
func (r *Record) Input() (offset int64, last []byte, err error) {
	last = make([]byte, min(r.input, Ring))
	for done := 0; done < len(last); {
		at := (r.input - int64(len(last)-done)) % Ring
		n := min(int64(len(last)-done), Ring-at)
		if _, err := r.f.ReadAt(last[done:done+int(n)], ringOffset+at); err != nil {
			return 0, nil, fmt.Errorf("read the last bytes of stdin: %w", err)
		}
		done += int(n)
	}
	return r.input, last, nil
}

// AddInput stores bytes that were read from stdin, at most Ring.
func (r *Record) AddInput(data []byte) error {
	next := r.input + int64(len(data))
	for at := r.input; at < next; {
		n := min(next-at, Ring-at%Ring)
		if _, err := r.f.WriteAt(data[:n], ringOffset+at%Ring); err != nil {
			return fmt.Errorf("store bytes of stdin: %w", err)
		}
		data, at = data[n:], at+n
	}
	if err := r.setNumber(inputAt, next); err != nil {
		return err
	}
	r.input = next
	return nil
}

// Close closes the file.
func (r *Record) Close() error { return r.f.Close() }

func (r *Record) number(at int64) (int64, error) {
	var b [8]byte
	if _, err := r.f.ReadAt(b[:], at); err != nil {
		return 0, fmt.Errorf("read an offset: %w", err)
	}
	return int64(binary.BigEndian.Uint64(b[:]) &^ (3 << 62)), nil
}

func (r *Record) setNumber(at, n int64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	if _, err := r.f.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("store an offset: %w", err)
	}
	return nil
}
