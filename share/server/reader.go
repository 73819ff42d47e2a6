package server

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// A reader reads requests and answers the quick ones itself, one after the other: to hand each
// to another thread takes longer than most answers do. A request may take long all the same, where a
// disk of the host is slow. Then another reader takes over, and the former ends with its answer.

// overdue is how long a reader may be with one request before another takes over, and half of it the least.
const overdue = 50 * time.Millisecond

var errLost = errors.New("a reader has ended without a reason")

// turns tells who reads: it is odd while the reader answers, and each change is a step of one.
type turns struct {
	state atomic.Uint64
	// asleep tells that nobody watches, and wake that somebody should.
	asleep atomic.Bool
	wake   chan struct{}
}

// begin is before the reader's answer.
func (t *turns) begin() (turn uint64) {
	turn = t.state.Add(1)
	if t.asleep.Load() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
	return turn
}

// end is after it. Another reads now if it is false.
func (t *turns) end(turn uint64) bool { return t.state.CompareAndSwap(turn, turn+1) }

// read answers requests until the port ends or another reader has taken over. The caller has
// taken a slot for it.
func (a *answerer) read() {
	err, overtaken := errLost, false
	defer func() {
		<-a.slots
		if !overtaken {
			select {
			case a.ended <- err:
			default: // another end has come first
			}
		}
	}()
	var buf [2 * largest]byte
	for {
		var request []byte
		if request, err = a.host.Next(); err != nil {
			return
		}
		size := replySize(request)
		if len(request) > largest || size > largest || slow(request) {
			a.take(request, size)
			continue
		}
		// The next reader's requests lie where this one does.
		request = buf[:copy(buf[:largest], request)]
		err = errLost // if the answer ends this goroutine
		turn := a.turns.begin()
		a.answer(request, buf[largest:largest+size])
		if !a.turns.end(turn) {
			overtaken = true
			return
		}
	}
}

// slow tells of requests that wait for others, or for a disk.
func slow(request []byte) bool {
	switch binary.NativeEndian.Uint32(request[4:]) {
	case opFsync, opFsyncDir, opSetLockWait, opFallocate, opCopyFileRange:
		return true
	}
	return false
}

const (
	opFsync, opFsyncDir, opSetLockWait, opFallocate, opCopyFileRange = 20, 30, 33, 43, 47
)

// watch starts another reader when one is overdue, until done. While nothing is asked it waits
// without a timer.
func (a *answerer) watch(done <-chan struct{}) {
	tick := time.NewTicker(overdue)
	defer tick.Stop()
	last := a.turns.state.Load()
	for {
		select {
		case <-tick.C:
		case <-done:
			return
		}
		now := a.turns.state.Load()
		if now != last {
			last = now
			continue
		}
		if now%2 == 1 {
			a.takeOver(now)
			continue
		}
		a.turns.asleep.Store(true)
		if a.turns.state.Load() == now {
			tick.Stop()
			select {
			case <-a.turns.wake:
			case <-done:
				return
			}
			tick.Reset(overdue)
		}
		a.turns.asleep.Store(false)
	}
}

// takeOver starts another reader, if there is room for one and the overdue one is still at it.
func (a *answerer) takeOver(turn uint64) {
	select {
	case a.slots <- struct{}{}:
	default:
		return
	}
	if !a.turns.end(turn) {
		<-a.slots
		return
	}
	a.wg.Go(a.read)
}
