package server

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// A reader reads requests and answers the quick ones itself, one after the other: handing a request to another thread
// takes longer than most answers. A quick request may still take long on a slow disk of the host. Then another reader
// takes over, and the former ends with its answer.

// overdue is the longest time of a reader for one request before another takes over; the shortest is half of it.
const overdue = 50 * time.Millisecond

var errLost = errors.New("a reader has ended without a reason")

// turns counts the readers' turns: state is odd while the reader answers, and each change adds one.
type turns struct {
	state atomic.Uint64
	// asleep is set while the watcher sleeps, and wake wakes it.
	asleep atomic.Bool
	wake   chan struct{}
}

// begin is called before the reader's answer.
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

// end is called after it. It returns false if another reader has taken over.
func (t *turns) end(turn uint64) bool { return t.state.CompareAndSwap(turn, turn+1) }

// read answers requests until the port ends or another reader has taken over. The caller has taken a slot for it.
func (a *answerer) read() {
	err, overtaken := errLost, false
	defer func() {
		<-a.slots
		if !overtaken {
			select {
			case a.ended <- err:
			default: // another reader ended first
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
			a.start(request, size)
			continue
		}
		// Copied, because the next reader overwrites the buffer of this request.
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

// slow reports whether a request waits for other requests or for a disk.
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

// watch starts another reader when one is overdue, until done. It needs no timer while there are no requests.
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

// takeOver starts another reader, if there is a free slot and the overdue one is still busy.
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
