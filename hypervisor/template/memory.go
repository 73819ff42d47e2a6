package template

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

const (
	pageSize  = 4 << 10
	chunkSize = 1 << 20
)

var (
	zeroPage   [pageSize]byte
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// walk calls visit for every run of pages of f that are not zero. It does not read holes. The last page may be short.
func walk(f *os.File, size int64, visit func(offset int64, run []byte) error) error {
	buf := make([]byte, chunkSize)
	for at := int64(0); at < size; {
		start, end, err := data(f, at, size)
		if err != nil {
			return err
		}
		for at = start; at < end; {
			n, err := f.ReadAt(buf[:min(chunkSize, end-at)], at)
			if n == 0 && err != nil {
				if errors.Is(err, io.EOF) {
					err = damaged("%s ends at %d", f.Name(), at)
				}
				return err
			}
			if err := runs(buf[:n], at, visit); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

// data finds the next part of f, starting at at, that is not a hole.
func data(f *os.File, at, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err == nil {
		end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return min(start, size), min(end, size), nil
}

func runs(b []byte, offset int64, visit func(int64, []byte) error) error {
	start := -1
	for i := 0; i < len(b); i += pageSize {
		page := b[i:min(i+pageSize, len(b))]
		zero := bytes.Equal(page, zeroPage[:len(page)])
		if !zero && start < 0 {
			start = i
		}
		if zero && start >= 0 {
			if err := visit(offset+int64(start), b[start:i]); err != nil {
				return err
			}
			start = -1
		}
	}
	if start >= 0 {
		return visit(offset+int64(start), b[start:])
	}
	return nil
}

// summer sums pages with their offsets, so that a page that moved counts as damage.
type summer struct{ sum uint32 }

func (s *summer) add(offset int64, run []byte) {
	var place [8]byte
	for i := 0; i < len(run); i += pageSize {
		binary.LittleEndian.PutUint64(place[:], uint64(offset)+uint64(i))
		s.sum = crc32.Update(s.sum, castagnoli, place[:])
		s.sum = crc32.Update(s.sum, castagnoli, run[i:min(i+pageSize, len(run))])
	}
}

func checksum(f *os.File, size int64) (uint32, error) {
	var s summer
	err := walk(f, size, func(offset int64, run []byte) error {
		s.add(offset, run)
		return nil
	})
	return s.sum, err
}

// seal copies f into a sealed memfd, without holes and zero pages.
func seal(f *os.File, want Content) (*os.File, error) {
	out, err := memfd.Create("bulkhead-template")
	if err != nil {
		return nil, fmt.Errorf("copy the template's memory: %w", err)
	}
	var s summer
	err = out.Truncate(want.Size)
	if err == nil {
		err = walk(f, want.Size, func(offset int64, run []byte) error {
			s.add(offset, run)
			_, err := out.WriteAt(run, offset)
			return err
		})
	}
	if err == nil && s.sum != want.Sum {
		err = damaged("the memory's sum is %08x instead of %08x", s.sum, want.Sum)
	}
	if err == nil {
		err = memfd.Seal(out, memfd.Constant)
	}
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("copy the template's memory: %w", err)
	}
	return out, nil
}
