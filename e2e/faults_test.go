package e2e

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// faults is the socket to which the programs tell their points. Every point is
// answered at once, but for the one that is armed.
type faults struct {
	path string

	mu   sync.Mutex
	want func(fault.Hit) bool
	hit  chan stop
	seen map[string]bool // every point that any process has told
}

// stop is a process that waits at a point.
type stop struct {
	fault.Hit
	conn net.Conn
}

// release lets the process go on, if it still lives.
func (s stop) release() { goOn(s.conn) }

func goOn(conn net.Conn) { _, _ = conn.Write([]byte{0}) }

func listen(t *testing.T, path string) *faults {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // shims run as users of their own
		t.Fatal(err)
	}
	f := &faults{path: path, seen: map[string]bool{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *faults) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		var h fault.Hit
		line, err := r.ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &h) != nil {
			return
		}
		f.point(h, conn)
	}
}

// point deals with one point that a process has told over conn.
func (f *faults) point(h fault.Hit, conn net.Conn) {
	f.mu.Lock()
	f.seen[h.Point] = true
	wanted := f.want != nil && f.want(h)
	hit := f.hit
	if wanted {
		f.want = nil
	}
	f.mu.Unlock()
	if !wanted {
		goOn(conn)
		return
	}
	hit <- stop{h, conn}
}

// arm stops the next process at a point that want accepts.
func (f *faults) arm(want func(fault.Hit) bool) <-chan stop {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.hit = want, make(chan stop, 1)
	return f.hit
}

// disarm lets everything go on.
func (f *faults) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want = nil
	select {
	case s := <-f.hit:
		s.release()
	default:
	}
}
