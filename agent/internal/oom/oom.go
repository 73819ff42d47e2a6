// Package oom watches the containers' cgroups for processes that the kernel's OOM killer kills.
package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
)

// eventsFile is the file of a cgroup that the kernel changes at a kill, and also whenever the cgroup reaches a limit.
const eventsFile = "memory.events"

// pause is the time between two batches of events. A container at its limit causes many.
const pause = 100 * time.Millisecond

// Watch counts the kills. The zero value is ready and watches nothing before Wait is called. Its methods are safe for
// concurrent use.
type Watch struct {
	mu      sync.Mutex
	all     map[string]cgroup.Dir // by container
	events  *os.File              // inotify; nil before the first Wait
	kills   map[string]uint64     // by container, without zeros
	changed chan struct{}         // closed with the next change of kills
}

// Add begins to watch a container's cgroup.
func (w *Watch) Add(container string, dir cgroup.Dir) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[string]cgroup.Dir{}
	}
	w.all[container] = dir
	if w.events == nil {
		return nil
	}
	return w.watch(container, dir)
}

// Remove ends the watch of a container. The kernel itself ends the watch of a removed cgroup.
func (w *Watch) Remove(container string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, container)
	delete(w.kills, container)
}

// Wait waits until the counts differ from known, and returns them.
func (w *Watch) Wait(ctx context.Context, known map[string]uint64) (map[string]uint64, error) {
	for {
		kills, changed, err := w.counts()
		if err != nil {
			return nil, fmt.Errorf("watch for OOM kills: %w", err)
		}
		for id, n := range kills {
			if known[id] != n {
				return kills, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// counts returns the kills, and a channel that is closed with their next change. The first call begins the watch.
func (w *Watch) counts() (map[string]uint64, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil, nil, fmt.Errorf("inotify: %w", err)
		}
		w.events, w.kills, w.changed = os.NewFile(uintptr(fd), "inotify"), map[string]uint64{}, make(chan struct{})
		for id, dir := range w.all {
			if err := w.watch(id, dir); err != nil {
				w.events.Close()
				w.events = nil
				return nil, nil, err
			}
		}
		go w.follow(w.events)
	}
	return maps.Clone(w.kills), w.changed, nil
}

// watch adds a cgroup to a running watch, and counts the kills so far; the caller holds mu.
func (w *Watch) watch(container string, dir cgroup.Dir) error {
	conn, err := w.events.SyscallConn()
	if err != nil {
		return err
	}
	var added error
	err = conn.Control(func(fd uintptr) {
		_, added = unix.InotifyAddWatch(int(fd), filepath.Join(string(dir), eventsFile), unix.IN_MODIFY)
	})
	if err = errors.Join(err, added); err != nil && !errors.Is(err, unix.ENOENT) { // the container may end meanwhile
		return fmt.Errorf("watch container %s: %w", container, err)
	}
	w.count()
	return nil
}

// count reads the counts of all containers, and announces a change; the caller holds mu.
func (w *Watch) count() {
	now := map[string]uint64{}
	for id, dir := range w.all {
		// A removed cgroup keeps its last count until Remove.
		if n := max(dir.OOMKills(), w.kills[id]); n > 0 {
			now[id] = n
		}
	}
	if maps.Equal(now, w.kills) {
		return
	}
	w.kills = now
	close(w.changed)
	w.changed = make(chan struct{})
}

// follow counts after each batch of events.
func (w *Watch) follow(events io.Reader) {
	buf := make([]byte, 64*int(unsafe.Sizeof(unix.InotifyEvent{})))
	for {
		if _, err := events.Read(buf); err != nil {
			return
		}
		w.mu.Lock()
		w.count()
		w.mu.Unlock()
		<-time.After(pause)
	}
}
