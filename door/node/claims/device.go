package claims

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// devices has each device be looked at and formatted by one pod at a time: a second one that had seen it blank would format what
// the first one has written by then. Its methods may be called at once.
type devices struct {
	read func(path string) (string, error) // signature

	mu   sync.Mutex
	held map[device]chan struct{} // closed when it is free
}

// device tells one from another that has the same path or several.
type device struct{ of, number uint64 }

func identify(path string) (device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return device{}, fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return device{number: st.Rdev}, nil
	}
	return device{st.Dev, st.Ino}, nil
}

// look returns the signature of a device, which is the caller's until free. A device that does not answer is waited for beside
// the caller, who has an error when ctx ends; there is one such wait for each device.
func (d *devices) look(ctx context.Context, path string) (found string, free func(), err error) {
	type result struct {
		found string
		free  func()
		err   error
	}
	done := make(chan result)
	go func() {
		var r result
		if r.free, r.err = d.hold(ctx, path); r.err == nil {
			if r.found, r.err = d.read(path); r.err != nil {
				r.free()
			}
		}
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
		return r.found, r.free, r.err
	case <-ctx.Done():
		return "", nil, fmt.Errorf("%s does not answer: %w", path, context.Cause(ctx))
	}
}

// hold waits until a device is nobody's, and has it be the caller's until free.
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
			return nil, fmt.Errorf("%s is another pod's for now: %w", path, context.Cause(ctx))
		}
	}
}
