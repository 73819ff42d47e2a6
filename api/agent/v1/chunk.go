package agentv1

import (
	"encoding/binary"
	"io"
)

// MaxChunk is the maximum length of a chunk's data, in bytes.
const MaxChunk = 32 << 10

// WriteChunk writes data in chunks of at most MaxChunk. Empty data writes an empty chunk, which ends the stream. A
// connection that ends without one was cut.
func WriteChunk(w io.Writer, data []byte) error {
	frame := make([]byte, 4+min(len(data), MaxChunk))
	for first := true; first || len(data) > 0; first = false {
		n := copy(frame[4:], data)
		binary.BigEndian.PutUint32(frame[:4], uint32(n))
		if _, err := w.Write(frame[:4+n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ReadChunk reads one chunk into buf, which must have MaxChunk bytes, and returns the filled part. It returns
// io.EOF for the empty chunk and io.ErrUnexpectedEOF if the connection ends without it.
func ReadChunk(r io.Reader, buf []byte) ([]byte, error) {
	n, err := readLength(r, MaxChunk)
	if err != nil {
		return nil, unexpected(err)
	}
	if n == 0 {
		return nil, io.EOF
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return nil, unexpected(err)
	}
	return buf[:n], nil
}

// WriteAck acknowledges the bytes of a stream up to offset.
func WriteAck(w io.Writer, offset int64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(offset))
	_, err := w.Write(b[:])
	return err
}

// ReadAck reads the offset from WriteAck.
func ReadAck(r io.Reader) (int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])), nil
}
