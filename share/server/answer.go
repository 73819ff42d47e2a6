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

// What is answered at once is bounded: requests in number, those that move much data more so,
// since each has two buffers of its size.
const (
	atOnce      = 96
	atOnceLarge = 16
	// largest is the size of a request, and of its answer, that is not large: a page with
	// the head of either.
	largest = 8 << 10
	waiters = 32 // for locks, of atOnce
	// background is how many requests the guest's kernel sends ahead of answers.
	background = 12
)

// answerer answers requests: the reader those that are quick, the others in a goroutine each.
type answerer struct {
	host  *wire.Host
	fuse  *protocol.Wire
	slots chan struct{}
	large chan struct{}
	// again looks for directories that are shared since, when a file is not known.
	again func() bool
	turns turns
	ended chan error // by the last reader
	wg    sync.WaitGroup
}

// answer answers until the machine closes the port, which is nil. When it returns, no request is
// answered any more.
func answer(host *wire.Host, files fuse.RawFileSystem) error {
	a := &answerer{
		host: host, slots: make(chan struct{}, atOnce), large: make(chan struct{}, atOnceLarge),
		fuse:  protocol.New(files, protocol.Options{MaxWrite: wire.MaxData, Background: background}),
		again: func() bool { return false },
		turns: turns{wake: make(chan struct{}, 1)}, ended: make(chan error, 1),
	}
	if r, ok := files.(*roots); ok {
		a.again = r.again
	}
	done := make(chan struct{})
	defer a.wg.Wait()
	defer close(done)
	a.slots <- struct{}{}
	a.wg.Go(a.read)
	a.wg.Go(func() { a.watch(done) })
	a.wg.Go(func() { _ = host.Mend(done) })
	if err := <-a.ended; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// take copies a request and has it answered, when there is room for another one.
func (a *answerer) take(request []byte, size int) {
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

// answer answers one request. An error of the port's is the reader's to see.
func (a *answerer) answer(request, reply []byte) {
	if n := a.reply(request, reply); n > 0 && !wire.Silent(request) {
		_ = a.host.Reply(reply[:n])
	}
}

// reply writes the answer to a request and returns its length. One about a file that is not known is answered once more if
// there are directories that were not known either.
func (a *answerer) reply(request, reply []byte) int {
	n := a.fuse.Answer(request, reply)
	if n == protocol.OutHeader && unix.Errno(-int32(binary.NativeEndian.Uint32(reply[4:]))) == unix.ESTALE && a.again() {
		n = a.fuse.Answer(request, reply)
	}
	return n
}

// The requests whose answer is as long as they say, and where they say it.
const (
	opRead, opReaddir, opReaddirPlus = 15, 28, 44
	opGetXattr, opListXattr          = 22, 23
	readSize, xattrSize              = 40 + 16, 40
)

// replySize is the room for the answer. What a request claims beyond all bounds has no room.
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
