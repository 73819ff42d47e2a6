package wire

import "fmt"

// assembly assembles a message from the payloads of frames.
type assembly struct {
	buf  []byte
	want int // the message's length, 0 before its first frame
}

// add appends a payload. It returns the message when it is complete, and nil before. The message is valid until the
// next call. An error means an invalid message. It allocates only as much as has arrived.
func (a *assembly) add(payload []byte, least int) ([]byte, error) {
	if a.want == 0 {
		if len(payload) < least {
			return nil, fmt.Errorf("message starts with %d bytes", len(payload))
		}
		a.want = lengthOf(payload)
		if a.want < least || a.want > MaxMessage {
			return nil, fmt.Errorf("message of %d bytes", a.want)
		}
		if a.want == len(payload) {
			a.want = 0
			return payload, nil
		}
		a.buf = a.buf[:0]
	}
	a.buf = append(a.buf, payload...)
	switch {
	case len(a.buf) > a.want:
		return nil, fmt.Errorf("%d bytes for a message of %d", len(a.buf), a.want)
	case len(a.buf) < a.want:
		return nil, nil
	}
	a.want = 0
	return a.buf, nil
}

// reset drops an incomplete message.
func (a *assembly) reset() { a.want = 0 }
