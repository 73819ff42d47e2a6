package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// maxSmall bounds files that are read whole: indexes, manifests, configurations.
const maxSmall = 4 << 20

// files are the files of an image.
type files interface {
	// open opens a regular file and returns its size, which may be false. Error: os.ErrNotExist.
	open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// directory is an image in a directory. Links cannot lead out of it.
type directory struct{ *os.Root }

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	// Opening a pipe without a writer would block.
	f, err := d.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	size, err := regular(f)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// regular returns the size of a regular file, and refuses other types.
func regular(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %s is not a regular file", ErrFormat, f.Name())
	}
	return info.Size(), nil
}

// archive is an image in a tar file. Its members are read in place.
type archive struct {
	file    *os.File
	members map[string]convert.Member
}

// newArchive indexes f, which it closes. It copies a compressed archive to a nameless file in dir, of at most limit
// bytes.
func newArchive(ctx context.Context, g *hostcgroup.Group, f *os.File, dir string, limit int64) (*archive, error) {
	spare, err := os.CreateTemp(dir, "archive-*")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := os.Remove(spare.Name()); err != nil {
		return nil, errors.Join(err, f.Close(), spare.Close())
	}
	members, copied, err := convert.Index(ctx, g, f, spare, limit)
	if err != nil {
		return nil, errors.Join(err, f.Close(), spare.Close())
	}
	if copied {
		f, spare = spare, f
	}
	a := &archive{file: f, members: map[string]convert.Member{}}
	for _, m := range members {
		a.members[m.Name] = m // as in tar, the last one counts
	}
	return a, spare.Close()
}

// maxLinks bounds a chain of links between members.
const maxLinks = 8

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	m, ok := a.members[name]
	for range maxLinks {
		if !ok || m.Link == "" {
			break
		}
		m, ok = a.members[m.Link]
	}
	if !ok || m.Link != "" {
		return nil, 0, fmt.Errorf("%.255s in the archive: %w", name, os.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(a.file, m.Offset, m.Size)), m.Size, nil
}

func (a *archive) Close() error { return a.file.Close() }

// small reads a whole file of at most maxSmall bytes.
func small(f files, name string) ([]byte, error) {
	in, _, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxSmall+1))
	if err != nil {
		return nil, fmt.Errorf("read %.255s: %w", name, err)
	}
	if len(data) > maxSmall {
		return nil, fmt.Errorf("%w: %.255s has more than %d bytes", ErrFormat, name, maxSmall)
	}
	return data, nil
}
