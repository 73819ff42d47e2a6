package channel

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrGuest is matched by the error of a session that ended because the guest broke the protocol.
var ErrGuest = errors.New("the guest broke the channel's protocol")

// yamux's header: version 1 | type 1 | flags 2 | stream 4 | length 4.
const (
	muxHead   = 12
	muxData   = 0
	muxWindow = 1
	muxPing   = 2
	muxAway   = 3
	muxSYN    = 1
	muxACK    = 2
)

// guard checks the guest's yamux bytes before yamux parses them. It refuses what an agent never sends: a new stream, a
// ping (yamux answers each in a goroutine), and more data than a window.
type guard struct {
	head [muxHead]byte
	have int // bytes of head
	skip int // remaining bytes of its data
}

// check checks the next bytes of the stream.
func (g *guard) check(b []byte) error {
	for len(b) > 0 {
		if g.skip > 0 {
			n := min(g.skip, len(b))
			g.skip -= n
			b = b[n:]
			continue
		}
		n := copy(g.head[g.have:], b)
		g.have += n
		b = b[n:]
		if g.have < muxHead {
			return nil
		}
		g.have = 0
		if err := g.header(); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) header() error {
	version, typ := g.head[0], g.head[1]
	flags := binary.BigEndian.Uint16(g.head[2:])
	length := binary.BigEndian.Uint32(g.head[8:])
	switch {
	case version != 0 || typ > muxAway:
		return fmt.Errorf("%w: version %d, type %d", ErrGuest, version, typ)
	case typ == muxPing:
		return fmt.Errorf("%w: it sent a ping", ErrGuest)
	case flags&muxSYN != 0:
		return fmt.Errorf("%w: it opened a stream", ErrGuest)
	case typ == muxData && length > window:
		return fmt.Errorf("%w: it sent %d bytes at once", ErrGuest, length)
	}
	if typ == muxData {
		g.skip = int(length)
	}
	return nil
}
