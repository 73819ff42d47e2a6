package stream_test

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestServeOutlastsAShortage: a client that connects while there are no free descriptors is served when there are. The
// test changes the limit of the whole process, so it is not parallel.
func TestServeOutlastsAShortage(t *testing.T) {
	s, address := serve(t)
	token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(context.Context, *net.UnixConn) {}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 128
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	var taken []*os.File
	free := func() {
		for _, f := range taken {
			f.Close()
		}
		taken = nil
	}
	defer free()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		taken = append(taken, f)
	}
	if len(taken) == 0 {
		t.Fatal("the process has too many descriptors open for this test")
	}
	taken[0].Close() // the client's
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	waiting, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	time.Sleep(10 * time.Millisecond) // during which it cannot be accepted
	free()
	conn, err := stream.Dial(ctx, address, token)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
