package fsystest

import (
	"encoding/json"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
	"github.com/bulkhead-project/bulkhead/share/fsys/wire"
)

// serve runs the server's process: descriptor 3 is /dev/fuse, and a byte is written to 4 when the roots exist.
func serve(text string) error {
	var s Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	fs, err := New(s)
	if err != nil {
		return err
	}
	defer fs.Close()
	if _, err := unix.Write(4, []byte{0}); err != nil {
		return err
	}
	answer(3, wire.New(fs, wire.Options{MaxWrite: maxWrite, ACL: s.Options.ACL}))
	return nil
}

// New returns the file system of a Spec, in this process and not mounted.
func New(s Spec) (*fsys.FS, error) {
	fs, err := fsys.New(s.Options)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Roots {
		fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: r.Path, Err: err}
		}
		r.Dir = os.NewFile(uintptr(fd), r.Path)
		if err := fs.Add(r.Root); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

// answer answers the requests from fd until the file system is unmounted.
func answer(fd int, w *wire.Wire) {
	var all sync.WaitGroup
	defer all.Wait()
	type pair [2][maxWrite + wire.Overhead]byte
	buffers := sync.Pool{New: func() any { return new(pair) }}
	for {
		b := buffers.Get().(*pair)
		n, err := unix.Read(fd, b[0][:])
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil {
			return
		}
		all.Go(func() {
			if n := w.Answer(b[0][:n], b[1][:]); n > 0 {
				_, _ = unix.Write(fd, b[1][:n])
			}
			buffers.Put(b)
		})
	}
}
