package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// console opens the guest's console log, from its start and following. When
// the log is cut because it is full, it is told again from what was kept.
func (e extension) console(context.Context) (func(context.Context, *net.UnixConn), error) {
	f, err := os.Open(e.o.Console)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	return func(ctx context.Context, conn *net.UnixConn) {
		defer f.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// Nothing is expected from the client but its end.
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, conn)
			cancel()
		}()
		follow(ctx, conn, f)
		conn.Close()
		<-gone
	}, nil
}

// consoleLook is how often a console is looked at for more: a shim may not watch files.
const consoleLook = 200 * time.Millisecond

// follow copies a file that grows until it is deleted, w fails or ctx ends.
func follow(ctx context.Context, w io.Writer, f *os.File) {
	buf := make([]byte, 16<<10)
	look := time.NewTicker(consoleLook)
	defer look.Stop()
	for offset := int64(0); ; {
		n, err := f.ReadAt(buf, offset)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			offset += int64(n)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Nlink == 0 {
			return
		}
		if st.Size < offset {
			offset = 0
			continue
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
