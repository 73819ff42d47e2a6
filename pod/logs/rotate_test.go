package logs

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logCRI is a runtime with one container and its log.
type logCRI struct {
	internalapi.RuntimeService
	path     string
	state    runtimeapi.ContainerState
	reopened int
}

func (l *logCRI) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: l.path, State: l.state}}, nil
}

func (l *logCRI) ReopenContainerLog(context.Context, string) error {
	l.reopened++
	return os.WriteFile(l.path, nil, 0o600)
}

func TestRotate(t *testing.T) {
	const running = runtimeapi.ContainerState_CONTAINER_RUNNING
	cri := &logCRI{path: filepath.Join(t.TempDir(), "0.log"), state: running}
	fresh := func() *Rotator {
		return &Rotator{Runtime: cri, Current: func() []string { return []string{"id"} }, Logger: slog.New(slog.DiscardHandler)}
	}
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	o := fresh()
	look := func(fast bool, reopened int, log, older int64) {
		t.Helper()
		if got := o.checkAll(t.Context()); got != fast || cri.reopened != reopened || size(cri.path) != log || size(Older(cri.path)) != older {
			t.Errorf("fast %t, reopened %d, log of %d, older of %d", got, cri.reopened, size(cri.path), size(Older(cri.path)))
		}
	}
	grow := func(n int64) {
		t.Helper()
		f, err := os.OpenFile(cri.path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = f.Truncate(n) // without disk space
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look(false, 0, -1, -1) // there is no log yet
	grow(1)
	look(false, 0, 1, -1)
	grow(Bound - 1)
	look(true, 0, Bound-1, -1)
	look(false, 0, Bound-1, -1)
	grow(Bound)
	look(true, 1, 0, Bound)
	look(false, 1, 0, Bound)
	grow(2 * Bound)
	look(true, 2, 0, 2*Bound) // the earlier file is lost
	// An engine was killed between the two steps, or before the second's end.
	o = fresh()
	look(true, 3, 0, 2*Bound)
	if err := os.Remove(cri.path); err != nil {
		t.Fatal(err)
	}
	look(true, 4, 0, 2*Bound)
	grow(3 * Bound)
	cri.state = runtimeapi.ContainerState_CONTAINER_EXITED
	look(false, 4, 3*Bound, 2*Bound)
}

// TestRotateUnread: a log with an unfinished reader is not rotated, and is checked often.
func TestRotateUnread(t *testing.T) {
	t.Parallel()
	cri := &logCRI{path: filepath.Join(t.TempDir(), "0.log"), state: runtimeapi.ContainerState_CONTAINER_RUNNING}
	unread := true
	o := &Rotator{
		Runtime: cri, Current: func() []string { return []string{"id"} }, Logger: slog.New(slog.DiscardHandler),
		Unread: func(path string) bool { return unread && path == cri.path },
	}
	f, err := os.Create(cri.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(Bound); err != nil { // without disk space
		t.Fatal(err)
	}
	for range 2 {
		if soon := o.checkAll(t.Context()); !soon || cri.reopened != 0 {
			t.Errorf("soon again %v, rotated %d times", soon, cri.reopened)
		}
	}
	unread = false
	if soon := o.checkAll(t.Context()); !soon || cri.reopened != 1 {
		t.Errorf("soon again %v, rotated %d times", soon, cri.reopened)
	}
}
