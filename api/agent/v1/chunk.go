package agentv1

import (
	"encoding/binary"
	"io"
)

// MaxChunk is the most bytes of data in one chunk.
const MaxChunk = 32 << 10

// WriteChunk writes the data of a stream in chunks of at most MaxChunk. An
// empty chunk says that the stream ends here; a connection that ends without
// one was cut.
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

// ReadChunk reads one chunk into buf, which holds MaxChunk bytes, and returns
// the part that was filled. It returns io.EOF for the empty chunk and
// io.ErrUnexpectedEOF when the connection ends without it.
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

// WriteAck writes how many bytes of a stream have been dealt with.
func WriteAck(w io.Writer, offset int64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(offset))
	_, err := w.Write(b[:])
	return err
}

// ReadAck reads what WriteAck wrote.
func ReadAck(r io.Reader) (int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])), nil
}
