package wire

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A request that changes nothing may be asked twice. One that a server has not answered before its end is asked of the next
// one: an error would have the kernel forget a name, and with it what a container has mounted there.

const (
	maxKept  = 32  // requests: others are lost with their server
	keptSize = 512 // bytes: a name's longest lookup, and more
	maxAgain = 8   // times that one is asked again: it may be what ends the servers
)

// question is a request that waits for its reply.
type question struct {
	unique uint64
	kept   int  // the place of its copy, from 1 on; 0 is none
	again  int  // of how many servers that have ended it was asked
	due    bool // it is to be asked of this session's
	lookup bool // it is of a name
}

// copies are requests. Those with a length are in use.
type copies [maxKept]struct {
	n int
	b [keptSize]byte
}

// keep copies a request that may be asked again, and returns the place of the copy, 0 for none.
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

// drop gives a place up.
func (c *copies) drop(place int) {
	if place > 0 {
		c[place-1].n = 0
	}
}

// getAttrHandle is the flag of a request for attributes that names an open file, which ends with its server.
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

// repeat has a request that a former server was asked be asked of this session's, or answers it with an error.
func (g *guest) repeat(q question) error {
	g.mu.Lock()
	if q.kept == 0 || q.again == maxAgain {
		g.copies.drop(q.kept)
		g.mu.Unlock()
		return g.answer(reply(nil, q.unique, unix.EIO))
	}
	q.due = true
	g.asked = append(g.asked, q)
	g.hurry()
	g.mu.Unlock()
	return nil
}

// settle has the kernel keep a name that the next server cannot look up, since it does not know the directory yet: the error is the
// one for which the kernel looks the name up once more, later, and forgets nothing.
func (q question) settle(reply []byte) {
	if q.again > 0 && q.lookup && unix.Errno(-int32(codeOf(reply))) == unix.ESTALE {
		binary.NativeEndian.PutUint32(reply[4:], negative(unix.ENOMEM))
	}
}
