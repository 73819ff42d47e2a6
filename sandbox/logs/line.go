package logs

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timestamp has a fixed width, unlike time.RFC3339Nano.
const timestamp = "2006-01-02T15:04:05.000000000Z07:00"

// write logs the lines that data completes, with end also the incomplete rest, and then records the new length. If it
// fails, the log is unchanged.
func (w *Writer) write(s Stream, data []byte, end bool) error {
	if w.records == nil {
		return ErrClosed
	}
	if w.log == nil {
		return ErrNoLog
	}
	rest := append(w.pending[s][:len(w.pending[s]):len(w.pending[s])], data...)
	all := int64(len(rest))
	w.buf = w.buf[:0]
	now := w.now().UTC()
	for len(rest) > 0 {
		n := bytes.IndexByte(rest[:min(len(rest), MaxLine+1)], '\n')
		switch {
		case n >= 0:
			w.line(now, s, 'F', rest[:n])
			rest = rest[n+1:]
			continue
		case len(rest) > MaxLine:
			w.line(now, s, 'P', rest[:MaxLine])
			rest = rest[MaxLine:]
			continue
		case end:
			w.line(now, s, 'P', rest) // tagged P, because it has no newline
			rest = nil
		}
		break
	}
	if len(w.buf) > 0 {
		if err := w.append(s, all-int64(len(rest))); err != nil {
			return err
		}
	}
	w.pending[s] = append(w.pending[s][:0:0], rest...)
	return nil
}

func (w *Writer) line(now time.Time, s Stream, tag byte, text []byte) {
	w.buf = now.AppendFormat(w.buf, timestamp)
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, s.String()...)
	w.buf = append(w.buf, ' ', tag, ' ')
	w.buf = append(w.buf, text...)
	w.buf = append(w.buf, '\n')
}

// append writes the buffer at the log's end and records that n more bytes of the stream are logged. If either fails,
// the log is unchanged.
func (w *Writer) append(s Stream, n int64) error {
	if w.limit > 0 && w.rec.length > 0 && w.rec.length+int64(len(w.buf)) > w.limit {
		return fmt.Errorf("%w: %d bytes", ErrFull, w.rec.length)
	}
	next := w.rec
	next.logged[s] += n
	next.length += int64(len(w.buf))
	err := writeAt(w.log, w.buf, w.rec.length)
	if err == nil {
		err = w.commit(next)
	}
	if err != nil {
		if cut := w.log.Truncate(w.rec.length); cut != nil {
			return fmt.Errorf("write the log: %w (and %w)", err, cut)
		}
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// writeAt is os.File.WriteAt, but also works for a file opened for appending, which os refuses. The opener of the log
// chooses its flags.
func writeAt(f *os.File, data []byte, offset int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(int(f.Fd()), data, offset)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("pwrite", err)
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}
