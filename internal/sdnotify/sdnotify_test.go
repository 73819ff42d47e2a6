package sdnotify

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestTell: systemd gets the state, at a path and at an abstract name.
func TestTell(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, address := range []string{filepath.Join(dir, "notify"), "@bulkhead-test" + dir} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		t.Setenv(variable, address)
		s, err := FromEnvironment()
		if _, left := os.LookupEnv(variable); err != nil || left {
			t.Errorf("taken: %v, still there: %v", err, left)
		}
		if err := s.Send(Ready); err != nil {
			t.Error(err)
		}
		if err := l.SetReadDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 64)
		if n, err := l.Read(got); err != nil || string(got[:n]) != Ready {
			t.Errorf("%s: %q, %v", address, got[:n], err)
		}
	}
}

// TestNobody: without systemd nothing is sent. Without a listener it is an error.
func TestNobody(t *testing.T) {
	t.Setenv(variable, "")
	s, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(Ready); err != nil {
		t.Error(err)
	}
	if err := (Socket{"/no/such/socket"}).Send(Ready); err == nil {
		t.Error("no error without a listener")
	}
}

// TestService: a service notifies systemd that it is ready and, when its context ends, that it stops.
func TestService(t *testing.T) {
	address := "@bulkhead-test" + t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv(variable, address)
	ctx, stop := context.WithCancel(t.Context())
	ready, done, err := Service(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, step := range []struct {
		do   func()
		want string
	}{{ready, Ready}, {stop, Stopping}} {
		step.do()
		if err := l.SetReadDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 64)
		if n, err := l.Read(got); err != nil || string(got[:n]) != step.want {
			t.Errorf("got %q, %v; want %q", got[:n], err, step.want)
		}
	}
}
