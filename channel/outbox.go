package channel

import (
	"io"
	"sync"
)

// maxHeld bounds the bytes that wait to be written together.
const maxHeld = 16 << 10

// outbox writes to the guest's port. Each write interrupts an emulated VM for longer than hundreds of bytes take. So it
// writes frames together that were added before its goroutine runs.
type outbox struct {
	port io.Writer
	wake chan struct{}
	done chan struct{}

	writing sync.Mutex // held while writing; guards spare
	spare   []byte

	mu   sync.Mutex // guards the following; never held while waiting
	held []byte
	err  error
}

func newOutbox(port io.Writer) *outbox {
	o := &outbox{port: port, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		for range o.wake {
			_ = o.flush() // add returns the error
		}
	}()
	return o
}

// add copies a frame into the outbox. If much is held, it waits for the port. It returns the error of an earlier write.
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

// flush writes the held frames.
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

// close stops the outbox. No frame may be added afterwards.
func (o *outbox) close() {
	close(o.wake)
	<-o.done
}
