package channel

import (
	"encoding/binary"
	"io"
	"log"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// window bounds the unread data of a stream, in bytes, and so its cost on each side.
const window = 256 << 10

// MaxStreams bounds the streams of a session. With window it bounds the data that a guest can make the host keep: 32
// MiB, plus the same again in buffer slack.
const MaxStreams = 128

// closeTimeout bounds the wait of a closed stream for the other side's close.
const closeTimeout = 30 * time.Second

// never exceeds any pause of a VM: neither side may take silence for a failure.
const never = 100 * 365 * 24 * time.Hour

func muxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          MaxStreams,
		EnableKeepAlive:        false,
		KeepAliveInterval:      never, // required by yamux, though unused
		ConnectionWriteTimeout: never,
		StreamOpenTimeout:      0,
		StreamCloseTimeout:     closeTimeout,
		MaxStreamWindowSize:    window,
		Logger:                 log.New(io.Discard, "", 0),
	}
}

// framer packs yamux's output into data frames. yamux writes a header and its data separately; they share one frame. A
// header that only opens or accepts a stream is sent with the next frame: the call for which it is opened, or the
// answer.
type framer struct {
	epoch uint64
	write func([]byte) error // writes one frame
	held  []byte             // headers waiting for the next write
	body  bool               // the last header's data follows
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

// waits reports whether more data follows a header: its own, or that of a newly opened or accepted stream.
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
