package channel

import (
	"io"
	"sync"
)

// maxHeld is how much of what is to be written waits for more, in bytes.
const maxHeld = 16 << 10

// outbox is the way to the guest's port. Each write to that interrupts an emulated
// machine for longer than hundreds of bytes take, so the frames of one moment are
// written together: those that were added before a goroutine of the outbox's own runs.
type outbox struct {
	port io.Writer
	wake chan struct{}
	done chan struct{}

	writing sync.Mutex // to port; of spare
	spare   []byte

	mu   sync.Mutex // of what follows; held for no wait
	held []byte
	err  error
}

func newOutbox(port io.Writer) *outbox {
	o := &outbox{port: port, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		for range o.wake {
			_ = o.flush() // which add tells
		}
	}()
	return o
}

// add takes a copy of a frame. While much is held it waits for the port. The error is that of
// a write before.
func (o *outbox) add(b []byte) error {
	o.mu.Lock()
	o.held = append(o.held, b...)
	much, err := len(o.held) >= maxHeld, o.err
	o.mu.Unlock()
	if err != nil || much {
		return o.flush()
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// flush writes what is held.
func (o *outbox) flush() error {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.mu.Lock()
	b, err := o.held, o.err
	o.held = o.spare[:0]
	o.mu.Unlock()
	o.spare = b
	if err != nil || len(b) == 0 {
		return err
	}
	if _, err = o.port.Write(b); err != nil {
		o.mu.Lock()
		o.err = err
		o.mu.Unlock()
	}
	return err
}

// close is called when nothing is added any more.
func (o *outbox) close() {
	close(o.wake)
	<-o.done
}
