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
	// maxRoom is the space for a disk of the largest size and its uncompressed layers.
	maxRoom = 2 * slot.Size
	// reserve is left free on the store's file system.
	reserve = 64 << 20
	// makeRoom is the advice for ErrNoSpace.
	makeRoom = "remove images with bulkhead image rm"
	// copyRoom is the space for the decompressed copy of most archives.
	copyRoom = 8 << 30
	// roomWait bounds the wait for other pulls to free space.
	roomWait = time.Hour
)

// rooms shares the space on a store's file system among the pulls of this process. Each pull gets a promise before it
// writes, and all promises together leave the reserve free. Written bytes count twice until the pull ends, as used and
// as promised: pulls wait earlier than necessary, and never use too much. A pull that waits holds no promise, so all
// waits end. Of other processes' pulls it knows only the bytes written so far.
type rooms struct {
	free func() (int64, error)
	turn chan struct{} // holds one value while a pull waits for space, or has all of it
	// ended holds a value if a promise has ended since the turn's holder looked.
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

// promise is a part of the space. end returns it, and is idempotent.
type promise struct {
	bytes int64
	end   func()
}

// reserve promises want bytes. It waits for them while other pulls have promises. It promises less only if no other pull
// has any, because there is no more space then.
func (r *rooms) reserve(ctx context.Context, want int64) (promise, error) {
	leave, err := r.await(ctx, func(left int64) bool { return left >= want })
	if err != nil {
		return promise{}, err
	}
	defer leave()
	return r.promise(want, func() {})
}

// reserveAll waits until all other promises have ended, and promises as much of want as there is. It is the only promise
// until it ends.
func (r *rooms) reserveAll(ctx context.Context, want int64) (promise, error) {
	leave, err := r.await(ctx, func(int64) bool { return false })
	if err != nil {
		return promise{}, err
	}
	p, err := r.promise(want, leave)
	if err != nil {
		leave()
	}
	return p, err
}

// spend calls use, which writes an unknown number of bytes: at most want or, if that is too little (ErrNoSpace), all
// free space once no other pull has a promise. Bytes that use has written and kept stay used.
func (r *rooms) spend(ctx context.Context, want int64, use func(limit int64) error) error {
	p, err := r.reserve(ctx, want)
	if err != nil {
		return err
	}
	err = use(p.bytes)
	p.end()
	if !errors.Is(err, ErrNoSpace) {
		return err
	}
	all, allErr := r.reserveAll(ctx, maxRoom)
	if allErr != nil {
		return err
	}
	defer all.end()
	if all.bytes <= p.bytes {
		return err
	}
	return use(all.bytes)
}

// await waits for its turn, and then until there is enough space or no other promise.
func (r *rooms) await(ctx context.Context, enough func(left int64) bool) (leave func(), err error) {
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

// left returns the bytes that are neither used nor promised, and the number of promises.
func (r *rooms) left() (bytes int64, promises int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := r.free()
	return max(0, free-reserve-r.promised), r.promises, err
}

// promise is called by the holder of the turn.
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

// freeOn returns the bytes that this user may still write on dir's file system.
func freeOn(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("stat the file system of %s: %w", dir, err)
	}
	return int64(min(fs.Bavail, 1<<40)) * fs.Bsize, nil
}

const (
	// converterMemory is the most memory of a converter, in bytes (image/worker).
	converterMemory = 2 << 30
	// mostConverters is the most concurrent converters on a large host.
	mostConverters = 8
	// converterWait bounds the wait for other converters.
	converterWait = 30 * time.Minute
	// converterRetry is the interval of checks for a free lock: flock(2) has no event.
	converterRetry = 50 * time.Millisecond
	// layersWait is the longest wait of a converter for layers, before others may run in its place.
	layersWait = 20 * time.Second
)

// Group returns a cgroup for converters, which may use so much memory together. It exists until leave is called. It is
// nil if there is none; Group has reported the reason then.
type Group func(ctx context.Context, memory int64) (g *hostcgroup.Group, leave func())

// ConvertIn sets the cgroup of this process's converters. Call it before the first conversion.
func (s *Store) ConvertIn(g Group) { s.converters.group = g }

// converterSlots bounds the concurrent converters of all processes that share a store. They use at most half of the
// host's memory; one may always run. Each holds the lock of a file. The converters of a process share a cgroup with the
// memory for that many, at most half of the host's.
type converterSlots struct {
	dir    string
	most   int
	memory int64 // the cgroup's, in bytes
	group  Group
	wait   time.Duration // layersWait
	turn   chan struct{} // held by the caller of this process that waits for a free lock
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

// run waits for a free converter and calls use, which runs it in the cgroup g.
func (c *converterSlots) run(ctx context.Context, use func(g *hostcgroup.Group) error) error {
	done, err := c.acquire(ctx)
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

// runSoon is like run for layers that are still being fetched. If they take too long, it cancels use, and calls it
// again when all have been fetched.
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
	case <-ctx.Done(): // the fetches end then
	}
	return c.run(ctx, func(g *hostcgroup.Group) error { return use(ctx, g) })
}

// errLate cancels a converter that waited too long for its layers.
var errLate = fmt.Errorf("the layers were not fetched within %v", layersWait)

// acquire waits until another converter may run, in the order of the calls. It may run until done is called.
func (c *converterSlots) acquire(ctx context.Context) (done func(), err error) {
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
				return func() { _ = l.Unlock() }, nil // the descriptor is closed, which releases the lock
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
