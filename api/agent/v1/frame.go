package agentv1

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
)

// grow is the increment of a frame's buffer while its bytes arrive. The announced length is untrusted, so memory
// follows the data.
const grow = 32 << 10

// WriteFrame writes v as JSON after its length, in one Write. It fails before the Write if the frame exceeds limit
// bytes.
func WriteFrame(w io.Writer, v any, limit int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > limit {
		return fmt.Errorf("frame of %d bytes is over the limit of %d: %w", len(body), limit, errdefs.ErrInvalidArgument)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadFrame reads a frame of at most limit bytes into v. It returns io.EOF if the stream ends before the frame, and
// io.ErrUnexpectedEOF within it. The error matches errdefs.ErrInvalidArgument if the frame is too long or not JSON.
func ReadFrame(r io.Reader, v any, limit int) error {
	n, err := readLength(r, limit)
	if err != nil {
		return err
	}
	body, err := readN(r, n)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode frame: %w: %s", errdefs.ErrInvalidArgument, quote(err))
	}
	return nil
}

// quote returns the beginning of an error of package json, which may quote all of the input.
func quote(err error) string {
	return (&Error{Message: fmt.Sprintf("%.200s", err.Error())}).bounded().Message
}

// readLength reads the four length bytes of a frame or chunk of at most limit bytes.
func readLength(r io.Reader, limit int) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > uint32(limit) {
		return 0, fmt.Errorf("%d bytes are over the limit of %d: %w", n, limit, errdefs.ErrInvalidArgument)
	}
	return int(n), nil
}

func readN(r io.Reader, n int) ([]byte, error) {
	var body []byte
	for len(body) < n {
		at, step := len(body), min(grow, n-len(body))
		body = append(body, make([]byte, step)...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			return nil, unexpected(err)
		}
	}
	return body, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
