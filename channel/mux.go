package channel

import (
	"encoding/binary"
	"io"
	"log"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// window is how much of a stream's data may be on its way, in bytes, and so
// what an unread stream costs each side.
const window = 256 << 10

// MaxStreams is how many streams a session holds at once. With window it
// bounds what a guest can make the host keep: 32 MiB, and as much again in
// slack of the buffers.
const MaxStreams = 128

// closeTimeout is how long a closed stream waits for the other side's close
// before it is dropped.
const closeTimeout = 30 * time.Second

// never is longer than any machine is paused: neither side may take silence
// for failure.
const never = 100 * 365 * 24 * time.Hour

func muxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          MaxStreams,
		EnableKeepAlive:        false,
		KeepAliveInterval:      never, // checked by yamux though not used
		ConnectionWriteTimeout: never,
		StreamOpenTimeout:      0,
		StreamCloseTimeout:     closeTimeout,
		MaxStreamWindowSize:    window,
		Logger:                 log.New(io.Discard, "", 0),
	}
}

// framer turns what yamux writes into data frames. yamux writes a header and
// its data apart; they travel in one frame. What only begins a stream travels with
// the next frame: the call that it is opened for, or the answer to that.
type framer struct {
	epoch uint64
	write func([]byte) error // one frame
	held  []byte             // headers that wait for what follows
	body  bool               // the last of them is one whose data follows
	buf   []byte
}

func (f *framer) Write(p []byte) (int, error) {
	if !f.body && len(p) == muxHead && waits(p) && len(f.held) < maxHeld {
		f.held = append(f.held, p...)
		f.body = p[1] == muxData
		return len(p), nil
	}
	f.body = false
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), frame.MaxPayload-len(f.held))
		f.buf = frame.Append(f.buf[:0], frame.Data, f.epoch, f.held, p[:n])
		f.held = f.held[:0]
		if err := f.write(f.buf); err != nil {
			return 0, err
		}
		p = p[n:]
	}
	return total, nil
}

// waits says that something follows a header: its data, or, where it only begins a stream or
// says that it has begun, what that is for.
func waits(head []byte) bool {
	flags, length := binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[8:])
	switch head[1] {
	case muxData:
		return length > 0
	case muxWindow:
		return (flags == muxSYN || flags == muxACK) && length == 0
	}
	return false
}
