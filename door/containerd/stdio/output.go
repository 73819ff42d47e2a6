package stdio

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// listen is the time for the client to open its end of an output. Containerd's clients do so before they create a process.
const listen = 10 * time.Second

// openOutput opens an output. It waits for the client's end of a fifo: the output of a process that ends at once would be
// lost otherwise. The fifo is then open for reading as well. So the process waits while its client is away, instead of
// dying by SIGPIPE.
func openOutput(ctx context.Context, stream, path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("open %s: %w", stream, &os.PathError{Op: "stat", Path: path, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return open(stream, path, unix.O_WRONLY|unix.O_APPEND)
	}
	opened := openWaiting(stream, path, unix.O_WRONLY)
	timer := time.NewTimer(listen)
	defer timer.Stop()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, r.err
		}
		defer r.file.Close()
		return open(stream, path, unix.O_RDWR)
	case <-ctx.Done():
	case <-timer.C:
	}
	f, err := open(stream, path, unix.O_RDWR) // also ends the waiting
	if err != nil {
		return nil, err
	}
	if r := <-opened; r.err == nil {
		r.file.Close()
	}
	if ctx.Err() != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", stream, ctx.Err())
	}
	return f, nil
}

// opening is the result of an open that has waited for the other end.
type opening struct {
	file *os.File
	err  error
}

// openWaiting opens a fifo for one direction, which waits for its other end.
func openWaiting(stream, path string, flags int) <-chan opening {
	opened := make(chan opening, 1)
	go func() {
		f, err := open(stream, path, flags)
		opened <- opening{f, err}
	}()
	return opened
}
