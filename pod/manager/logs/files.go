package logs

import (
	"errors"
	"fmt"
	"io"
	"os"

	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// open opens a log and its older file, oldest first, as far as they exist.
func open(path string) (files []*os.File, err error) {
	for _, path := range []string{podlogs.Older(path), path} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("read the log: %w", err)
		}
		files = append(files, f)
	}
	if len(files) == 2 && sameFile(files[0], files[1]) { // renamed in between
		files[1].Close()
		files = files[:1]
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}

// joined reads files as one, up to their sizes at the beginning.
type joined struct {
	files []*os.File
	sizes []int64
	size  int64
}

func join(files []*os.File) (joined, error) {
	j := joined{files: files}
	for _, f := range files {
		info, err := f.Stat()
		if err != nil {
			return joined{}, err
		}
		j.sizes = append(j.sizes, info.Size())
		j.size += info.Size()
	}
	return j, nil
}

// from closes the files before the offset at, and returns the others. The first of them is positioned at the offset.
func (j joined) from(at int64) ([]*os.File, error) {
	files, sizes := j.files, j.sizes
	for len(files) > 1 && at >= sizes[0] {
		at -= sizes[0]
		files[0].Close()
		files, sizes = files[1:], sizes[1:]
	}
	_, err := files[0].Seek(at, io.SeekStart)
	return files, err
}

// ReadAt implements io.ReaderAt.
func (j joined) ReadAt(p []byte, at int64) (n int, err error) {
	for i, f := range j.files {
		if at >= j.sizes[i] {
			at -= j.sizes[i]
			continue
		}
		piece := p[n:min(int64(len(p)), int64(n)+j.sizes[i]-at)]
		read, err := f.ReadAt(piece, at)
		if n += read; read < len(piece) {
			return n, err
		}
		at = 0
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}
