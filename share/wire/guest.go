package wire

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// Forward passes the messages of the guest's kernel on to the server at the port, and the answers back, while both
// files work. Both are blocking: fuse is of /dev/fuse and belongs to a mount. disk has large answers (ring.go), or is
// nil. It returns io.EOF when the mount is gone.
//
// In a session Forward allocates nothing: the process can run without a collector.
func Forward(port, fuse io.ReadWriter, disk io.ReaderAt) error {
	g := &guest{port: port, fuse: fuse, ring: reader{disk: disk}}
	g.begun.L = &g.mu
	g.due.wake = make(chan struct{}, 1)
	g.due.notes, g.due.writing = make([]byte, 0, maxDue), make([]byte, 0, maxDue)
	done, ends := make(chan struct{}), make(chan error, 3)
	defer close(done)
	go func() { ends <- g.requests() }()
	go func() { ends <- g.replies() }()
	go func() { ends <- g.sendDue(done) }()
	// The others may wait in the kernel, and end with the process.
	return <-ends
}

type guest struct {
	port, fuse io.ReadWriter

	mu    sync.Mutex // guards the following fields
	begun sync.Cond  // signals a new session
	epoch uint64     // of the session, 0 for none
	// asked are the requests that wait for their replies: few at a time.
	asked  []question
	copies copies
	// locked are the files, in order, for which the session was asked for POSIX locks.
	locked []uint64
	init   []byte // the kernel's FUSE_INIT
	// again is the number of that request while it is being repeated.
	again uint64

	write sync.Mutex     // guards writes to the port
	short [minReply]byte // a reply by the forwarder itself
	ring  reader
	due   due
}

// requests reads the kernel's requests.
func (g *guest) requests() error {
	runtime.LockOSThread()
	patient()
	buf := make([]byte, frame.Head+MaxMessage+frame.Tail)
	for {
		n, err := g.fuse.Read(buf[frame.Head : frame.Head+MaxMessage])
		switch {
		case errors.Is(err, unix.ENODEV):
			return io.EOF
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOENT):
			continue // an interrupted request
		case err != nil:
			return fmt.Errorf("read the kernel's requests: %w", err)
		case n < minRequest:
			continue
		}
		if err := g.request(buf, n); err != nil {
			return err
		}
	}
}

// patient keeps a request without a waiter from interrupting its process: this thread reads it when that process waits.
// Requests with a waiter are not delayed, since this thread has slept longest.
func patient() {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}, 0) // on failure it is only slower
}

// request answers the message of n bytes in buf, behind a frame's head, or passes it on.
func (g *guest) request(buf []byte, n int) error {
	request := buf[frame.Head : frame.Head+n]
	unique, op := uniqueOf(request), codeOf(request)
	g.mu.Lock()
	errno, known := g.local(request)
	if known {
		g.mu.Unlock()
		return g.answer(reply(g.short[:0], unique, errno))
	}
	epoch := g.ask(request, op)
	g.mu.Unlock()
	if err := g.send(buf, n, epoch); err != nil || !repliesAtOnce(op) {
		return err
	}
	return g.answer(reply(g.short[:0], unique, 0))
}

// ask waits for a session, and records the request. The caller holds mu.
func (g *guest) ask(request []byte, op uint32) (epoch uint64) {
	for g.epoch == 0 {
		g.begun.Wait()
	}
	switch {
	case op == opInit:
		g.init = append([]byte(nil), request...)
	case repliesAtOnce(op):
		silence(request)
	}
	if !Silent(request) {
		g.asked = append(g.asked, question{unique: uniqueOf(request), kept: g.copies.keep(request), lookup: op == opLookup})
	}
	return g.epoch
}

// send writes the message of n bytes in buf, behind a frame's head. It sends the buffer itself: the marks of each frame
// temporarily overwrite the bytes around it.
func (g *guest) send(buf []byte, n int, epoch uint64) error {
	g.write.Lock()
	defer g.write.Unlock()
	if err := g.flushDue(); err != nil {
		return err
	}
	return g.sendLocked(buf, n, epoch)
}

// sendLocked is like send for a caller that holds write.
func (g *guest) sendLocked(buf []byte, n int, epoch uint64) error {
	g.ring.addReadCount(buf[frame.Head:])
	for at := 0; at < n; at += frame.MaxPayload {
		size := min(n-at, frame.MaxPayload)
		part := buf[at : at+frame.Head+size+frame.Tail]
		next := [frame.Tail]byte(part[frame.Head+size:])
		frame.Enclose(part, frame.Data, epoch)
		if _, err := g.port.Write(part); err != nil {
			return fmt.Errorf("write to the host: %w", err)
		}
		copy(part[frame.Head+size:], next[:])
	}
	return nil
}

// replies reads the host's messages.
func (g *guest) replies() error {
	runtime.LockOSThread()
	d := frame.NewDecoder(g.port, true)
	var in assembly
	for {
		f, err := d.Next()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrNoProgress):
			// No host is connected. Reads return at once until there is one. This write blocks, and so do the kernel's
			// requests from now on.
			d.Reset()
			in.reset()
			g.mu.Lock()
			g.epoch = 0
			g.dropDue()
			g.mu.Unlock()
			if err := g.sendFrame(frame.Ready, 0); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("read the host's answers: %w", err)
		case f.Kind == frame.Hello:
			in.reset()
			if err := g.hello(f); err != nil {
				return err
			}
			continue
		case f.Kind == frame.Note && f.Epoch == g.epoch && f.Epoch != 0:
			if err := g.noted(f.Payload); err != nil {
				return err
			}
			continue
		case f.Kind != frame.Data || f.Epoch != g.epoch || f.Epoch == 0: // only this goroutine changes g.epoch
			continue
		}
		message, err := in.add(f.Payload, minReply)
		if err != nil {
			in.reset()
			continue
		}
		if message != nil && g.wanted(message) {
			if err := g.answer(message); err != nil {
				return err
			}
		}
	}
}

// wanted reports whether the kernel waits for a reply. A reply without a number is a notice.
func (g *guest) wanted(reply []byte) bool {
	unique := uniqueOf(reply)
	g.mu.Lock()
	defer g.mu.Unlock()
	if unique != 0 && unique == g.again {
		g.again = 0
		return false
	}
	at := slices.IndexFunc(g.asked, func(q question) bool { return q.unique == unique })
	if at >= 0 {
		g.asked[at].hideStale(reply)
		g.copies.drop(g.asked[at].kept)
		last := len(g.asked) - 1
		g.asked[at] = g.asked[last]
		g.asked = g.asked[:last]
	}
	return at >= 0 || unique == 0
}

// answer passes a reply to the kernel. The kernel may have dropped the request.
func (g *guest) answer(reply []byte) error {
	_, err := g.fuse.Write(reply)
	if errors.Is(err, unix.ENODEV) {
		return io.EOF
	}
	return nil
}

// hello starts a session. The host only reads until the session has started on both sides.
func (g *guest) hello(f frame.Frame) error {
	if f.Epoch == 0 || len(f.Payload) != 1 || f.Payload[0] != version {
		return nil
	}
	if f.Epoch == g.epoch { // a repetition
		g.enqueue(frame.Answer, f.Epoch, version)
		return nil
	}
	g.mu.Lock()
	g.epoch = 0 // new requests wait for this session
	g.dropDue()
	lost, init := g.asked, g.init
	g.asked, g.locked, g.again = nil, nil, 0
	if init != nil {
		g.again = uniqueOf(init)
		if at := slices.IndexFunc(lost, func(q question) bool { return q.unique == g.again }); at >= 0 { // the kernel still waits for it
			g.asked, g.again = append(g.asked, lost[at]), 0
			lost = slices.Delete(lost, at, at+1)
		}
	}
	g.mu.Unlock()
	g.ring.reset()
	if err := g.sendFrame(frame.Answer, f.Epoch, version); err != nil {
		return err
	}
	if err := g.introduce(init, f.Epoch); err != nil {
		return err
	}
	g.mu.Lock()
	g.epoch = f.Epoch
	g.begun.Broadcast()
	g.mu.Unlock()
	for _, q := range lost {
		if err := g.repeat(q); err != nil {
			return err
		}
	}
	return nil
}

// introduce sends the kernel's FUSE_INIT to a new server.
func (g *guest) introduce(init []byte, epoch uint64) error {
	if init == nil {
		return nil
	}
	buf := append(make([]byte, frame.Head, frame.Head+len(init)+frame.Tail), init...)
	return g.send(append(buf, make([]byte, frame.Tail)...), len(init), epoch)
}

func (g *guest) sendFrame(k frame.Kind, epoch uint64, payload ...byte) error {
	g.write.Lock()
	defer g.write.Unlock()
	if _, err := g.port.Write(frame.Append(nil, k, epoch, payload)); err != nil {
		return fmt.Errorf("write to the host: %w", err)
	}
	return nil
}
