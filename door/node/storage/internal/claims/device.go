package claims

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// devices serialises probing and formatting per device, so that two pods cannot both find it blank and format it. It is
// safe for concurrent use.
type devices struct {
	read func(*os.File) (string, error) // returns the signature of a device

	mu   sync.Mutex
	held map[device]chan struct{} // closed when it is free
}

// device identifies a device, whatever path leads to it.
type device struct{ of, number uint64 }

func identify(path string) (device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return device{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return identity(&st), nil
}

// stillAt returns an error unless path leads to the open device.
func stillAt(path string, dev *os.File) error {
	now, err := identify(path)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if identity(&st) != now {
		return fmt.Errorf("%s has changed to another device", path)
	}
	return nil
}

func identity(st *unix.Stat_t) device {
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return device{number: st.Rdev}
	}
	return device{st.Dev, st.Ino}
}

// probe opens a device and returns its signature. The caller holds the device until it calls free, which closes it. A
// goroutine waits for a device that does not answer; the caller gets an error when ctx ends. Because of the lock, at most
// one goroutine per device is left waiting.
func (d *devices) probe(ctx context.Context, path string) (dev *os.File, found string, free func(), err error) {
	type result struct {
		dev   *os.File
		found string
		free  func()
		err   error
	}
	done := make(chan result)
	go func() {
		var r result
		r.dev, r.found, r.free, r.err = d.open(ctx, path)
		select {
		case done <- r:
		case <-ctx.Done():
			if r.err == nil {
				r.free()
			}
		}
	}()
	select {
	case r := <-done:
		return r.dev, r.found, r.free, r.err
	case <-ctx.Done():
		return nil, "", nil, fmt.Errorf("%s did not answer: %w", path, context.Cause(ctx))
	}
}

// open waits for the lock of the device before it touches it.
func (d *devices) open(ctx context.Context, path string) (dev *os.File, found string, free func(), err error) {
	release, err := d.hold(ctx, path)
	if err != nil {
		return nil, "", nil, err
	}
	if dev, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		release()
		return nil, "", nil, err
	}
	free = func() {
		dev.Close()
		release()
	}
	if err = stillAt(path, dev); err == nil {
		found, err = d.read(dev)
	}
	if err != nil {
		free()
		return nil, "", nil, err
	}
	return dev, found, free, nil
}

// hold waits until no pod holds the device, then holds it until free.
func (d *devices) hold(ctx context.Context, path string) (free func(), err error) {
	one, err := identify(path)
	if err != nil {
		return nil, err
	}
	for {
		d.mu.Lock()
		held := d.held[one]
		if held == nil {
			mine := make(chan struct{})
			d.held[one] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.held, one)
				close(mine)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is in use by another pod: %w", path, context.Cause(ctx))
		}
	}
}
