package server

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	protocol "github.com/bulkhead-project/bulkhead/share/fsys/wire"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// The bounds of concurrent requests. Requests with much data have a lower bound, since each has two buffers of its
// size.
const (
	atOnce      = 96
	atOnceLarge = 16
	// largest is the largest size of a small request, and of its answer: a page and the header.
	largest = 8 << 10
	waiters = 32 // for locks, of atOnce
	// background is the most requests that the guest's kernel sends ahead of answers.
	background = 12
)

// answerer answers requests: the reader answers quick ones, and goroutines the others.
type answerer struct {
	host  *wire.Host
	fuse  *protocol.Wire
	slots chan struct{}
	large chan struct{}
	// again looks for new directories, when a file is unknown.
	again func() bool
	turns turns
	ended chan error // sent by the last reader
	wg    sync.WaitGroup
}

// answer answers until the VM closes the port, and then returns nil. When it returns, no request is being answered.
func answer(host *wire.Host, files fuse.RawFileSystem) error {
	a := &answerer{
		host: host, slots: make(chan struct{}, atOnce), large: make(chan struct{}, atOnceLarge),
		fuse:  protocol.New(files, protocol.Options{MaxWrite: wire.MaxData, Background: background}),
		again: func() bool { return false },
		turns: turns{wake: make(chan struct{}, 1)}, ended: make(chan error, 1),
	}
	if r, ok := files.(*roots); ok {
		a.again = r.rescan
	}
	done := make(chan struct{})
	defer a.wg.Wait()
	defer close(done)
	a.slots <- struct{}{}
	a.wg.Go(a.read)
	a.wg.Go(func() { a.watch(done) })
	a.wg.Go(func() { _ = host.Resend(done) })
	if err := <-a.ended; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// start copies a request and answers it in a goroutine, when the bounds allow another one.
func (a *answerer) start(request []byte, size int) {
	many := len(request) > largest || size > largest
	a.slots <- struct{}{}
	if many {
		a.large <- struct{}{}
	}
	own := append(make([]byte, 0, len(request)), request...)
	a.wg.Go(func() {
		defer func() { <-a.slots }()
		if many {
			defer func() { <-a.large }()
		}
		room := a.host.Room(size)
		if n := a.reply(own, room.Buf); n > 0 && !wire.Silent(own) {
			_ = a.host.Send(room, n)
			return
		}
		a.host.Drop(room)
	})
}

// answer answers one request. The reader handles errors of the port.
func (a *answerer) answer(request, reply []byte) {
	if n := a.reply(request, reply); n > 0 && !wire.Silent(request) {
		_ = a.host.Reply(reply[:n])
	}
}

// reply writes the answer to a request and returns its length. If a file is unknown, it looks for new directories. If
// there are any, it answers again.
func (a *answerer) reply(request, reply []byte) int {
	n := a.fuse.Answer(request, reply)
	if n == protocol.OutHeader && unix.Errno(-int32(binary.NativeEndian.Uint32(reply[4:]))) == unix.ESTALE && a.again() {
		n = a.fuse.Answer(request, reply)
	}
	return n
}

// The requests that contain the length of their answer, and the offsets of that length.
const (
	opRead, opReaddir, opReaddirPlus = 15, 28, 44
	opGetXattr, opListXattr          = 22, 23
	readSize, xattrSize              = 40 + 16, 40
)

// replySize returns the space for the answer. A length beyond all bounds is cut.
func replySize(request []byte) int {
	at := 0
	switch binary.NativeEndian.Uint32(request[4:]) {
	case opRead, opReaddir, opReaddirPlus:
		at = readSize
	case opGetXattr, opListXattr:
		at = xattrSize
	}
	if at == 0 || len(request) < at+4 {
		return largest // a link's target is the longest of the others
	}
	return protocol.Overhead + int(min(binary.NativeEndian.Uint32(request[at:]), wire.MaxData))
}
