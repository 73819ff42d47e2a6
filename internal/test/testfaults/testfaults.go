// Package testfaults stops processes at the points of package fault, for tests of crashes.
package testfaults

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// Faults is the socket where the programs report their points. Each point is answered at once, except for the armed
// one.
type Faults struct {
	// Path is the value for BULKHEAD_FAULTS.
	Path string

	mu   sync.Mutex
	want func(fault.Hit) bool
	hit  chan Stop
	seen map[string]bool // all points that were reported
}

// Stop is a process that waits at a point.
type Stop struct {
	fault.Hit
	conn net.Conn
}

// Release lets the process go on, if it still runs.
func (s Stop) Release() { goOn(s.conn) }

func goOn(conn net.Conn) { _, _ = conn.Write([]byte{0}) }

// Listen creates the socket. It is closed when the test ends.
func Listen(t *testing.T, path string) *Faults {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // shims run as users of their own
		t.Fatal(err)
	}
	f := &Faults{Path: path, seen: map[string]bool{}}
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

func (f *Faults) serve(conn net.Conn) {
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

// point handles one point that a process has reported over conn.
func (f *Faults) point(h fault.Hit, conn net.Conn) {
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
	hit <- Stop{h, conn}
}

// Arm stops the next process at a point that want accepts.
func (f *Faults) Arm(want func(fault.Hit) bool) <-chan Stop {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.hit = want, make(chan Stop, 1)
	return f.hit
}

// Disarm lets all processes go on.
func (f *Faults) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want = nil
	select {
	case s := <-f.hit:
		s.Release()
	default:
	}
}
