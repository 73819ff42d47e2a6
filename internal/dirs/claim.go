package dirs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// ErrElsewhere is matched by Claim's error if the instance's pods have their sockets below another state directory. An
// engine with this directory would take them for dead.
var ErrElsewhere = errors.New("its pods are below another state directory")

// place is the state directory that an instance's engine last used. A path alone may mean different directories in
// different sessions, for example /tmp with systemd's PrivateTmp.
type place struct {
	State  string `json:"state"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Boot   string `json:"boot"`
}

func (r Roots) placePath(instance string) string { return filepath.Join(r.Data, instance+".state") }
func (r Roots) claimPath(instance string) string { return filepath.Join(r.Data, instance+".lock") }

// Claim makes State the only state directory that an engine of the instance uses with Data, until the lock is released.
// If another engine has Data, it waits until ctx ends; the error then matches ErrElsewhere or flock.ErrLocked. Both
// directories must exist.
func (r Roots) Claim(ctx context.Context, instance string) (*flock.Lock, error) {
	here, err := placeOf(r.State)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", r.Data, err)
	}
	lock, err := flock.Acquire(ctx, r.claimPath(instance))
	last, readErr := r.lastPlace(instance)
	switch {
	case errors.Is(err, flock.ErrLocked) && readErr == nil && last != here:
		return nil, fmt.Errorf("%w: %w", r.elsewhere(last), err)
	case err != nil:
		return nil, err
	case readErr != nil:
		return nil, errors.Join(readErr, lock.Unlock())
	case last != here && r.podsAt(last, instance):
		return nil, errors.Join(r.elsewhere(last), lock.Unlock())
	}
	if err := atomicfile.WriteJSON(r.placePath(instance), here, 0o600, atomicfile.Volatile); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

func (r Roots) elsewhere(last place) error {
	return fmt.Errorf("%s: %w, %s (set BULKHEAD_STATE=%s, or BULKHEAD_DATA to another directory)",
		r.Data, ErrElsewhere, last.State, last.State)
}

// withLastState returns r with the state directory where the instance's engine runs or has left pods, if this process
// can reach it.
func (r Roots) withLastState(instance string) Roots {
	last, err := r.lastPlace(instance)
	if err != nil || last.State == "" || last.State == r.State {
		return r
	}
	if at, err := placeOf(last.State); err != nil || at != last {
		return r
	}
	lock, err := flock.Try(r.claimPath(instance))
	if err == nil {
		err = lock.Unlock()
	}
	if errors.Is(err, flock.ErrLocked) || r.podsAt(last, instance) {
		r.State = last.State
	}
	return r
}

// podsAt reports whether pods in Data have sockets below a state directory that this process can reach.
func (r Roots) podsAt(p place, instance string) bool {
	if at, err := placeOf(p.State); err != nil || at != p {
		return false
	}
	entries, _ := os.ReadDir(Roots{State: p.State}.Instance(instance)) // an unreadable directory cannot be used
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(r.Sandboxes(), e.Name())); e.IsDir() && err == nil {
			return true
		}
	}
	return false
}

// lastPlace returns the zero place before the first claim.
func (r Roots) lastPlace(instance string) (p place, err error) {
	err = atomicfile.ReadJSON(r.placePath(instance), &p)
	if errors.Is(err, os.ErrNotExist) {
		return place{}, nil
	}
	return p, err
}

// placeOf returns the place of a directory of this user, in this boot.
func placeOf(dir string) (place, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return place{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return place{}, fmt.Errorf("%s: %w", dir, ErrForeign)
	}
	boot, err := procid.BootID()
	return place{State: dir, Device: st.Dev, Inode: st.Ino, Boot: boot}, err
}
