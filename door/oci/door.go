package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Options configure a Door.
type Options struct {
	// Root is the directory of the containers' records; empty selects the user's own. Containers of different roots do
	// not see one another.
	Root string
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Strict refuses every setting that is otherwise ignored.
	Strict bool
	// SystemdCgroup reads cgroup paths as SLICE:PREFIX:NAME.
	SystemdCgroup bool
}

// Door runs containers. Its methods are safe for concurrent use, also by several processes.
type Door struct {
	o Options
}

// The errors of a Door, in runc's words, which clients read. A container that does not run counts as not found, as
// clients of containerd expect after the end of a process.
var (
	ErrExists     = errdefs.ErrAlreadyExists.WithMessage("container with given ID already exists")
	ErrNotExist   = errdefs.ErrNotFound.WithMessage("container does not exist")
	ErrNotRunning = errdefs.ErrNotFound.WithMessage("container not running")
)

// letters are the characters of a container's id.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-."

// checkID refuses an id that runc refuses, or that cannot be the name of a directory.
func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("container id cannot be empty")
	case strings.Trim(id, letters) != "" || id == "." || id == ".." || len(id) > 200:
		return fmt.Errorf("invalid container ID format: %.80q", id)
	}
	return nil
}

// New returns a Door.
func New(o Options) (*Door, error) {
	if o.Root == "" {
		roots, err := dirs.Default(dirs.Run)
		if err != nil {
			return nil, err
		}
		o.Root = filepath.Join(roots.State, "oci")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	o.Root = root
	return &Door{o}, nil
}

// ensureRoot makes the directory of the containers' records. Pods' users pass through the directory of the user's state,
// so that one has the mode that the engine gives it.
func (d *Door) ensureRoot() error {
	roots, err := dirs.Default(dirs.Run)
	if err != nil {
		return err
	}
	if strings.HasPrefix(d.o.Root, roots.State+"/") {
		if err := dirs.Ensure(roots.State, 0o711); err != nil {
			return err
		}
	}
	return os.MkdirAll(d.o.Root, 0o700)
}

// lockWait bounds the wait for another call about the same container.
const lockWait = time.Minute

// lock locks a container. Its directory must exist.
func (d *Door) lock(ctx context.Context, id string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	l, err := flock.Acquire(ctx, filepath.Join(d.o.Root, id, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("lock container %s: %w", id, err)
	}
	return func() { _ = l.Unlock() }, nil
}

// locked locks a container and returns its record.
func (d *Door) locked(ctx context.Context, id string) (r *record, unlock func(), err error) {
	if unlock, err = d.lock(ctx, id); err != nil {
		return nil, nil, err
	}
	if r, err = d.read(id); err != nil {
		unlock()
		return nil, nil, err
	}
	return r, unlock, nil
}

// alive reports whether a surrogate still runs.
func alive(id procid.ID) bool { return id.PID != 0 && id.Alive() }
