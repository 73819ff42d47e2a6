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

// Hello is what each side tells the other when a session begins.
type Hello struct {
	Version int    `json:"version"`         // of the protocol within the streams
	Build   string `json:"build,omitempty"` // of the program, for people
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

// newEpoch draws a session's number, which is never 0. Package crypto/rand
// would make the agent, which needs none of it, a quarter larger.
func newEpoch() (uint64, error) {
	var b [8]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return 0, fmt.Errorf("draw an epoch: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]) | 1, nil
}

// The first hello is in the guest's socket before the guest runs, so a
// repetition is for the cases where it was swallowed by half a frame of a
// former host. It costs a guest under emulation as much as its whole answer, so
// it is not sent to one that may only be slow.
const (
	firstRetry = time.Second
	lastRetry  = 2 * time.Second
)

// greet sends the hello of an epoch until it is answered, or the connection's
// use is ended from outside by abort.
func greet(conn net.Conn, d *frame.Decoder, epoch uint64, own Hello, resume bool, aborted func() bool) (Hello, error) {
	body, err := own.encode()
	if err != nil {
		return Hello{}, fmt.Errorf("encode hello: %w", err)
	}
	hello := frame.Append(nil, frame.Hello, epoch, body)
	// A frame that a former host left in part waits for bytes that will
	// never come. As many zeros as the longest frame end its wait.
	padded := append(make([]byte, frame.Max), hello...)
	out := hello
	if resume {
		out = padded
	}
	for retry := firstRetry; !aborted(); retry = min(2*retry, lastRetry) {
		conn.SetDeadline(time.Now().Add(retry))
		if aborted() {
			break // which came before the deadline was moved
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
