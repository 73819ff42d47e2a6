package channel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// Hello is the message that each side sends at the start of a session.
type Hello struct {
	Version int    `json:"version"`         // of the protocol in the streams
	Build   string `json:"build,omitempty"` // of the program, for users
}

const maxHello = 4 << 10

func (h Hello) encode() ([]byte, error) {
	b, err := json.Marshal(h)
	if err == nil && len(b) > maxHello {
		err = fmt.Errorf("hello of %d bytes: too large", len(b))
	}
	return b, err
}

func decodeHello(b []byte) (h Hello, err error) {
	if len(b) > maxHello {
		return h, fmt.Errorf("hello of %d bytes: too large", len(b))
	}
	err = json.Unmarshal(b, &h)
	return h, err
}

// newEpoch returns a random epoch, which is never 0. Package crypto/rand would make the agent a quarter larger.
func newEpoch() (uint64, error) {
	var b [8]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return 0, fmt.Errorf("draw an epoch: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]) | 1, nil
}

// The first hello is in the guest's socket before the guest runs. A repetition is needed only if half a frame of an
// earlier host has swallowed it. Under emulation a repetition costs a guest as much as its answer, so a slow guest gets
// none.
const (
	firstRetry = time.Second
	lastRetry  = 2 * time.Second
)

// greet sends the hello of an epoch until it is answered, or until aborted returns true and the connection's deadline
// is moved.
func greet(conn net.Conn, d *frame.Decoder, epoch uint64, own Hello, resume bool, aborted func() bool) (Hello, error) {
	body, err := own.encode()
	if err != nil {
		return Hello{}, fmt.Errorf("encode hello: %w", err)
	}
	hello := frame.Append(nil, frame.Hello, epoch, body)
	// The guest may wait for the rest of a partial frame of an earlier host. As many zeros as the longest frame
	// complete it.
	padded := append(make([]byte, frame.Max), hello...)
	out := hello
	if resume {
		out = padded
	}
	for retry := firstRetry; !aborted(); retry = min(2*retry, lastRetry) {
		conn.SetDeadline(time.Now().Add(retry))
		if aborted() {
			break // aborted before the deadline was moved
		}
		if _, err := conn.Write(out); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return Hello{}, fmt.Errorf("send hello: %w", err)
		}
		answer, err := d.Seek(epoch)
		if err == nil {
			conn.SetDeadline(time.Time{})
			peer, err := decodeHello(answer.Payload)
			if err != nil {
				return Hello{}, fmt.Errorf("%w: its hello: %w", ErrGuest, err)
			}
			return peer, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return Hello{}, fmt.Errorf("await the guest's hello: %w", err)
		}
		out = padded
	}
	return Hello{}, os.ErrDeadlineExceeded
}
