package process

import (
	"encoding/binary"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// event returns an inotify event with a name of length bytes.
func event(mask uint32, name string, length int) []byte {
	b := make([]byte, unix.SizeofInotifyEvent+length)
	binary.NativeEndian.PutUint32(b[4:], mask)
	binary.NativeEndian.PutUint32(b[12:], uint32(length))
	copy(b[unix.SizeofInotifyEvent:], name)
	return b
}

func TestIsRemoval(t *testing.T) {
	lock, other := event(unix.IN_DELETE, layout.Lock, 16), event(unix.IN_DELETE, layout.API, 16)
	for name, row := range map[string]struct {
		events []byte
		want   bool
	}{
		"nothing":                   {nil, false},
		"the lock":                  {lock, true},
		"a name without padding":    {event(unix.IN_DELETE, layout.Lock, len(layout.Lock)), true},
		"another file":              {other, false},
		"the lock after another":    {slices.Concat(other, lock), true},
		"the lock, made":            {event(unix.IN_CREATE, layout.Lock, 16), false},
		"the directory, moved":      {event(unix.IN_MOVE_SELF, "", 0), true},
		"an overflow":               {event(unix.IN_Q_OVERFLOW, "", 0), false},
		"an overflow, and the lock": {slices.Concat(event(unix.IN_Q_OVERFLOW, "", 0), lock), true},
		"a cut name":                {lock[:len(lock)-1], false},
		"a cut head":                {lock[:unix.SizeofInotifyEvent-1], false},
	} {
		if got := isRemoval(row.events); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWatchNothing: a directory that cannot be watched is an error that names it, and does not end the shim.
func TestWatchNothing(t *testing.T) {
	var log strings.Builder
	s := &shim{
		m: bootstrap.Message{StateDir: filepath.Join(t.TempDir(), "none")}, ended: make(chan string, 1),
		log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	if err := s.watch(); err == nil || !strings.Contains(err.Error(), "watch "+s.m.StateDir) {
		t.Error(err)
	}
	s.requestEnd(asked)
	s.requestEnd(removed)
	if why := s.wait(t.Context()); why != asked {
		t.Errorf("the shim ends because of %s", why)
	}
}
