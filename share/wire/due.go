package wire

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// The goroutine that reads what the host says never writes to the port in a session. The host may not read then: it may
// itself wait until an answer of its own is read. What that goroutine has to say is due. The goroutine of requests says it
// before the kernel's next request, or one that does nothing else says it at once.

// maxDue bounds the notes that are due, in bytes. A host that asks for more of them is not told more.
const maxDue = 1 << 10

// due is what is due.
type due struct {
	any   atomic.Bool   // there may be something; set with guest.mu held
	wake  chan struct{} // has room for one
	notes []byte        // frames of this session; guest.mu's
	// What is being written is guest.write's.
	writing []byte
	request [frame.Head + keptSize + frame.Tail]byte
}

// owe has a frame of this session be sent soon.
func (g *guest) owe(k frame.Kind, epoch uint64, payload ...byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.due.notes)+frame.Head+len(payload)+frame.Tail <= maxDue {
		g.due.notes = frame.Append(g.due.notes, k, epoch, payload)
	}
	g.hurry()
}

// hurry has what is due be said. The caller holds mu.
func (g *guest) hurry() {
	g.due.any.Store(true)
	select {
	case g.due.wake <- struct{}{}:
	default: // it is about to be
	}
}

// sayDue says what is due until done is closed.
func (g *guest) sayDue(done <-chan struct{}) error {
	for {
		select {
		case <-g.due.wake:
		case <-done:
			return nil
		}
		g.write.Lock()
		err := g.pay()
		g.write.Unlock()
		if err != nil {
			return err
		}
	}
}

// pay writes what is due. The caller holds write.
func (g *guest) pay() error {
	for g.due.any.Load() {
		n, epoch := g.takeDue()
		if len(g.due.writing) > 0 {
			if _, err := g.port.Write(g.due.writing); err != nil {
				return fmt.Errorf("write to the host: %w", err)
			}
		}
		if n > 0 {
			if err := g.put(g.due.request[:], n, epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeDue takes the notes that are due, and the first request, of n bytes. The caller holds write.
func (g *guest) takeDue() (n int, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due.writing = append(g.due.writing[:0], g.due.notes...)
	g.due.notes = g.due.notes[:0]
	at := slices.IndexFunc(g.asked, func(q question) bool { return q.due })
	if at < 0 {
		g.due.any.Store(false)
		return 0, g.epoch
	}
	q := &g.asked[at]
	q.due = false
	q.again++
	one := &g.copies[q.kept-1]
	return copy(g.due.request[frame.Head:], one.b[:one.n]), g.epoch
}

// forgive forgets what is due to a former server. The caller holds mu.
func (g *guest) forgive() {
	g.due.notes = g.due.notes[:0]
	g.due.any.Store(false)
}
