package wire

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// The goroutine that reads the host's messages never writes to the port in a session. The host may not read then: it
// may itself wait until one of its answers is read. Instead the goroutine queues its messages as due. The goroutine of
// requests sends them before the kernel's next request, or a separate goroutine sends them at once.

// maxDue bounds the due notes, in bytes. Notes beyond it are dropped.
const maxDue = 1 << 10

// due holds the due messages.
type due struct {
	any   atomic.Bool   // set if something may be due; set with guest.mu held
	wake  chan struct{} // holds one value
	notes []byte        // frames of this session; guarded by guest.mu
	// guest.write guards the messages being written.
	writing []byte
	request [frame.Head + keptSize + frame.Tail]byte
}

// enqueue queues a frame of this session.
func (g *guest) enqueue(k frame.Kind, epoch uint64, payload ...byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.due.notes)+frame.Head+len(payload)+frame.Tail <= maxDue {
		g.due.notes = frame.Append(g.due.notes, k, epoch, payload)
	}
	g.wakeSender()
}

// wakeSender wakes the sender of due messages. The caller holds mu.
func (g *guest) wakeSender() {
	g.due.any.Store(true)
	select {
	case g.due.wake <- struct{}{}:
	default: // the sender is about to run
	}
}

// sendDue sends due messages until done is closed.
func (g *guest) sendDue(done <-chan struct{}) error {
	for {
		select {
		case <-g.due.wake:
		case <-done:
			return nil
		}
		g.write.Lock()
		err := g.flushDue()
		g.write.Unlock()
		if err != nil {
			return err
		}
	}
}

// flushDue sends due messages. The caller holds write.
func (g *guest) flushDue() error {
	for g.due.any.Load() {
		n, epoch := g.nextDue()
		if len(g.due.writing) > 0 {
			if _, err := g.port.Write(g.due.writing); err != nil {
				return fmt.Errorf("write to the host: %w", err)
			}
		}
		if n > 0 {
			if err := g.sendLocked(g.due.request[:], n, epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextDue takes the due notes, and the first due request, of n bytes. The caller holds write.
func (g *guest) nextDue() (n int, epoch uint64) {
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

// dropDue drops the messages that are due to a former server. The caller holds mu.
func (g *guest) dropDue() {
	g.due.notes = g.due.notes[:0]
	g.due.any.Store(false)
}
