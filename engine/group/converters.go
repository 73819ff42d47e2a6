package group

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// convertersName is the cgroup's name among the pods' cgroups. Their names, the ids, are longer.
const convertersName = "converters"

// converters is the cgroup of all image converters of an instance. It is created with the first converter and
// removed with the last one.
type converters struct {
	host    *hostcgroup.Host
	journal journal.Journal
	log     *slog.Logger
	logged  sync.Once

	mu    sync.Mutex
	users int
	group *hostcgroup.Group // nil if it could not be created
}

// Converters implements image.Group. Without a cgroup, converters run in the engine's; this is logged once.
func (g *Groups) Converters(ctx context.Context, memory int64) (_ *hostcgroup.Group, leave func()) {
	c := &g.converters
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	if c.group == nil {
		if err := c.create(ctx, memory); err != nil {
			c.logged.Do(func() {
				c.log.Warn("converters of images have no cgroup: only each one's own memory is limited", "reason", err)
			})
		}
	}
	return c.group, sync.OnceFunc(c.release)
}

// create journals and creates the cgroup.
func (c *converters) create(ctx context.Context, memory int64) (err error) {
	if s := c.host.Support(); !s.Has("memory") {
		return errors.New(s.Missing)
	}
	undo := undoArgs{Dirs: c.host.Dirs(convertersName), Below: true}
	if _, err := c.journal.Before(ctx, Undo, undo, atomicfile.Volatile); err != nil {
		return err
	}
	c.group, err = c.host.Create(convertersName, hostcgroup.Limits{Memory: memory})
	return err
}

func (c *converters) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	c.group = nil
	if err := c.removeGroups(context.Background()); err != nil {
		c.log.Warn("remove the cgroup of converters; it will be retried", "error", err)
	}
}

// reap ends the cgroup of a killed engine.
func (c *converters) reap(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 0 {
		return nil
	}
	return c.removeGroups(ctx)
}

// removeGroups ends the cgroups that the journal names. The lock is held.
func (c *converters) removeGroups(ctx context.Context) error {
	if err := c.journal.Undo(ctx, journal.Handlers{Undo: Destroy}); err != nil {
		return err
	}
	return c.journal.Remove(ctx)
}
