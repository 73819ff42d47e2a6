package wire

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A request that changes nothing may be repeated. If a server ends before it has answered one, the next server gets it.
// An error would make the kernel forget a name, and with it a container's mounts there.

const (
	maxKept  = 32  // requests: others are lost with their server
	keptSize = 512 // bytes: a name's longest lookup, and more
	maxAgain = 8   // repetitions: the request may be what ends the servers
)

// question is a request that waits for its reply.
type question struct {
	unique uint64
	kept   int  // the number of its copy, from 1 on; 0 means none
	again  int  // the number of servers that have ended with it
	due    bool // to be sent in this session
	lookup bool // looks up a name
}

// copies are copies of requests. Those with a length are in use.
type copies [maxKept]struct {
	n int
	b [keptSize]byte
}

// keep copies a request that may be repeated, and returns the number of the copy, 0 for none.
func (c *copies) keep(request []byte) int {
	if len(request) > keptSize || !repeatable(request) {
		return 0
	}
	for i := range c {
		if one := &c[i]; one.n == 0 {
			one.n = copy(one.b[:], request)
			return i + 1
		}
	}
	return 0
}

// drop frees a copy.
func (c *copies) drop(place int) {
	if place > 0 {
		c[place-1].n = 0
	}
}

// getAttrHandle is the flag of a request for attributes that names an open file. Open files end with their server.
const getAttrHandle = 1

func repeatable(request []byte) bool {
	switch codeOf(request) {
	case opLookup, opReadLink, opStatFS:
		return true
	case opGetAttr:
		return len(request) >= minRequest+4 && binary.NativeEndian.Uint32(request[minRequest:])&getAttrHandle == 0
	}
	return false
}

// repeat queues a request of a former server for this session, or answers it with an error.
func (g *guest) repeat(q question) error {
	g.mu.Lock()
	if q.kept == 0 || q.again == maxAgain {
		g.copies.drop(q.kept)
		g.mu.Unlock()
		return g.answer(reply(nil, q.unique, unix.EIO))
	}
	q.due = true
	g.asked = append(g.asked, q)
	g.wakeSender()
	g.mu.Unlock()
	return nil
}

// hideStale changes the error ESTALE of a repeated look-up: the next server may not know the directory yet. With ENOMEM
// the kernel looks the name up again later, and forgets nothing.
func (q question) hideStale(reply []byte) {
	if q.again > 0 && q.lookup && unix.Errno(-int32(codeOf(reply))) == unix.ESTALE {
		binary.NativeEndian.PutUint32(reply[4:], negative(unix.ENOMEM))
	}
}
