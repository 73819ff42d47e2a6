package image

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

const (
	// maxRoom is a disk of the largest size with its layers, compressed by nothing.
	maxRoom = 2 * slot.Size
	// reserve is left free on the store's file system.
	reserve = 64 << 20
	// makeRoom is the advice that goes with ErrNoSpace.
	makeRoom = "remove images with bulkhead image rm"
	// copyRoom is what most archives take that have to be decompressed.
	copyRoom = 8 << 30
	// roomWait bounds the wait for other pulls to give room back.
	roomWait = time.Hour
)

// rooms shares the room on a store's file system among the pulls of this process.
// Each is promised its part before it writes, and all promises together leave the
// reserve. What a pull has written counts as taken and as promised until it ends:
// pulls then wait for each other earlier than they would have to, and never take
// too much. Who waits for room holds no promise, so that all waits end. Of the
// pulls of other processes it knows what they have written, not what they will.
type rooms struct {
	free func() (int64, error)
	turn chan struct{} // holds one value while somebody takes room, or has all of it
	// ended holds a value when a promise has ended since the turn's holder looked.
	ended chan struct{}

	mu       sync.Mutex
	promised int64
	promises int
}

func newRooms(dir string) *rooms {
	return &rooms{
		free: func() (int64, error) { return freeOn(dir) },
		turn: make(chan struct{}, 1), ended: make(chan struct{}, 1),
	}
}

// promise is a part of the room. end gives it back, once or several times.
type promise struct {
	bytes int64
	end   func()
}

// take promises want bytes, for which it waits while others have promises. It
// promises less only where no one else has any: there is no more then.
func (r *rooms) take(ctx context.Context, want int64) (promise, error) {
	leave, err := r.enter(ctx, func(left int64) bool { return left >= want })
	if err != nil {
		return promise{}, err
	}
	defer leave()
	return r.promise(want, func() {})
}

// takeAll promises as much of want as there is when all others have ended. Until
// it ends it is the only promise.
func (r *rooms) takeAll(ctx context.Context, want int64) (promise, error) {
	leave, err := r.enter(ctx, func(int64) bool { return false })
	if err != nil {
		return promise{}, err
	}
	p, err := r.promise(want, leave)
	if err != nil {
		leave()
	}
	return p, err
}

// spend has use write what it does not yet know the size of: at most want bytes,
// or, if it needs more (ErrNoSpace), all that there is once no other pull has a
// promise. What use leaves of what it wrote, it leaves for good.
func (r *rooms) spend(ctx context.Context, want int64, use func(limit int64) error) error {
	p, err := r.take(ctx, want)
	if err != nil {
		return err
	}
	err = use(p.bytes)
	p.end()
	if !errors.Is(err, ErrNoSpace) {
		return err
	}
	all, allErr := r.takeAll(ctx, maxRoom)
	if allErr != nil {
		return err
	}
	defer all.end()
	if all.bytes <= p.bytes {
		return err
	}
	return use(all.bytes)
}

// enter waits for its turn, and then until there is enough or nobody to wait for.
func (r *rooms) enter(ctx context.Context, enough func(left int64) bool) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("wait for room: %w", err)
		}
	}()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-r.turn }
	for {
		left, others, err := r.left()
		if err == nil && (others == 0 || enough(left)) {
			return leave, nil
		}
		if err == nil {
			select {
			case <-r.ended:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		leave()
		return nil, err
	}
}

// left is what is neither taken nor promised, and how many promises there are.
func (r *rooms) left() (bytes int64, promises int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := r.free()
	return max(0, free-reserve-r.promised), r.promises, err
}

// promise is for the holder of the turn.
func (r *rooms) promise(want int64, after func()) (promise, error) {
	left, _, err := r.left()
	if err != nil {
		return promise{}, err
	}
	bytes := min(want, left)
	r.add(bytes, 1)
	return promise{bytes: bytes, end: sync.OnceFunc(func() {
		r.add(-bytes, -1)
		select {
		case r.ended <- struct{}{}:
		default:
		}
		after()
	})}, nil
}

func (r *rooms) add(bytes int64, promises int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promised += bytes
	r.promises += promises
}

// freeOn returns what is free on dir's file system to this user.
func freeOn(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("stat the file system of %s: %w", dir, err)
	}
	return int64(min(fs.Bavail, 1<<40)) * fs.Bsize, nil
}

const (
	// converterMemory is what a converter may take at most, in bytes (image/worker).
	converterMemory = 2 << 30
	// mostConverters is how many there are at once on a large host.
	mostConverters = 8
	// converterWait bounds the wait for the converters of others.
	converterWait = 30 * time.Minute
	// converterRetry is how often a caller looks for a converter that has ended: flock(2) has no event.
	converterRetry = 50 * time.Millisecond
	// layersWait is how long a converter may wait for layers to be fetched before others may run in its place.
	layersWait = 20 * time.Second
)

// Group is a cgroup for converters, all of which together may take so many bytes of memory, and lasts until leave is
// called. It is nil where there is none, which its maker has said.
type Group func(ctx context.Context, memory int64) (g *hostcgroup.Group, leave func())

// ConvertIn has the converters of this process run in a cgroup. It is called before there is one.
func (s *Store) ConvertIn(g Group) { s.converters.group = g }

// converterSlots bounds how many converters run at once, of all processes that share a store: they take no more
// than half of the host's memory, and one may always run. Each holds the lock of a file. Those of a process share a
// cgroup, which has the memory that so many may take, and no more than half of the host's.
type converterSlots struct {
	dir    string
	most   int
	memory int64 // the cgroup's, in bytes
	group  Group
	wait   time.Duration // layersWait
	turn   chan struct{} // held by the caller of this process that looks for a free lock
}

func newConverters(dir string) *converterSlots {
	c := &converterSlots{
		dir: dir, most: mostConverters, memory: mostConverters * converterMemory, wait: layersWait, turn: make(chan struct{}, 1),
		group: func(context.Context, int64) (*hostcgroup.Group, func()) { return nil, func() {} },
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		half := int64(info.Totalram * uint64(info.Unit) / 2)
		c.most = int(min(max(half/converterMemory, 1), mostConverters))
		c.memory = min(half, int64(c.most)*converterMemory)
	}
	return c
}

// run calls use, which runs a converter in the cgroup g, while another converter may run.
func (c *converterSlots) run(ctx context.Context, use func(g *hostcgroup.Group) error) error {
	done, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	g, leave := c.group(ctx, c.memory)
	defer leave()
	err = use(g)
	if errors.Is(err, convert.ErrMemory) {
		err = fmt.Errorf("%w while unpacking the image: all images together have %d MiB for that (unpack fewer at once, or add memory)",
			err, c.memory>>20)
	}
	return err
}

// runSoon is run for layers that are still being fetched. If they do not come soon, use is ended, and called again
// when all are there.
func (c *converterSlots) runSoon(ctx context.Context, fetched <-chan struct{}, use func(context.Context, *hostcgroup.Group) error) error {
	soon, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := c.run(ctx, func(g *hostcgroup.Group) error {
		defer time.AfterFunc(c.wait, func() {
			select {
			case <-fetched:
			default:
				end(errLate)
			}
		}).Stop()
		return use(soon, g)
	})
	if !errors.Is(err, errLate) {
		return err
	}
	select {
	case <-fetched:
	case <-ctx.Done(): // whoever fetches ends them then
	}
	return c.run(ctx, func(g *hostcgroup.Group) error { return use(ctx, g) })
}

// errLate ends a converter that has waited for its layers.
var errLate = fmt.Errorf("the layers were not fetched within %v", layersWait)

// take waits until another converter may run, in the order of the calls, and until done is called.
func (c *converterSlots) take(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, converterWait)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, c.late(ctx)
	}
	retry := time.NewTicker(converterRetry)
	defer retry.Stop()
	for {
		for i := range c.most {
			l, err := flock.Try(filepath.Join(c.dir, strconv.Itoa(i)))
			if err == nil {
				return func() { _ = l.Unlock() }, nil // its descriptor is closed, and the lock gone with it
			}
			if !errors.Is(err, flock.ErrLocked) {
				return nil, err
			}
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, c.late(ctx)
		}
	}
}

func (c *converterSlots) late(ctx context.Context) error {
	return fmt.Errorf("wait while %d other images are unpacked (memory allows no more at once): %w", c.most, context.Cause(ctx))
}
