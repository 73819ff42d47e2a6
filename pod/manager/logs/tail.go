package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// tailBlock is how many bytes of a log are read at once, backwards.
const tailBlock = 64 << 10

// headerSize is more than the size of a line's time, stream and tag.
const headerSize = 64

// tailOffset returns the offset of the last n lines of output in a log of size bytes. A split line (tag P) counts once.
// It reads backwards in blocks, only as far as needed. If split lines of both streams are mixed, the first parts of one
// may be before the offset.
func tailOffset(f io.ReaderAt, size, n int64) (int64, error) {
	t := tailer{f: f, left: n, end: -1}
	buf := make([]byte, min(size, tailBlock))
	for at := size; at > 0; {
		from := max(0, at-tailBlock)
		block := buf[:at-from]
		if _, err := f.ReadAt(block, from); err != nil {
			return 0, fmt.Errorf("read the log backwards: %w", err)
		}
		for i := bytes.LastIndexByte(block, '\n'); i >= 0; i = bytes.LastIndexByte(block[:i], '\n') {
			newline := from + int64(i)
			if done, err := t.line(newline + 1); done || err != nil {
				return t.end + 1, err
			}
			t.end = newline
		}
		at = from
	}
	if done, err := t.line(0); done || err != nil {
		return t.end + 1, err
	}
	return 0, nil
}

// tailer counts lines from the last to the first.
type tailer struct {
	f     io.ReaderAt
	left  int64 // lines that are still wanted
	end   int64 // of the current line; less than 0 before the first
	begun bool  // a line has been checked
}

// line counts the line from start to t.end, and reports whether it is beyond the limit. An unfinished line does not
// count.
func (t *tailer) line(start int64) (done bool, err error) {
	if t.end < 0 {
		return false, nil
	}
	tag, err := t.tag(start)
	if err != nil {
		return false, err
	}
	// The last line counts even if its end is missing.
	counts := tag == 'F' || tag == 'P' && !t.begun
	t.begun = t.begun || tag != 0
	if !counts {
		return false, nil
	}
	if t.left <= 0 {
		return true, nil
	}
	t.left--
	return false, nil
}

// tag returns the tag of the line at start: P, F, or 0 for other text.
func (t *tailer) tag(start int64) (byte, error) {
	var header [headerSize]byte
	n, err := t.f.ReadAt(header[:], start)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read the log backwards: %w", err)
	}
	line, _, _ := bytes.Cut(header[:n], []byte{'\n'})
	fields := bytes.SplitN(line, []byte{' '}, 4)
	if len(fields) == 4 && (bytes.HasPrefix(fields[2], []byte{'P'}) || bytes.HasPrefix(fields[2], []byte{'F'})) {
		return fields[2][0], nil
	}
	return 0, nil
}
