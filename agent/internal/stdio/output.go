// Package stdio buffers a process's output until the host has it, and feeds its stdin.
package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Limit bounds the buffered bytes of a stream; beyond it the process blocks.
const Limit = 256 << 10

// ErrReplaced is returned by Next when a newer Reader has replaced this one, and by Write and SendEOF of a replaced
// writer.
var ErrReplaced = errors.New("replaced by a newer client")

// Output is one stream of a process. Its methods are safe for concurrent use.
type Output struct {
	from   io.Closer // the source
	mu     sync.Mutex
	cond   *sync.Cond
	buf    []byte // ring; its size is a power of two
	base   int64  // offset of the first byte kept
	end    int64  // offset after the last
	over   bool   // the stream has ended
	ending bool   // the process of a terminal has ended
	closed bool   // closed by Close
	unread bool   // closed by NoReader
	reader *Reader
}

// NewOutput buffers the output of r until r ends, then closes r. Closing r must unblock a Read.
func NewOutput(r io.ReadCloser) *Output {
	o := &Output{from: r}
	o.cond = sync.NewCond(&o.mu)
	go o.run(r)
	return o
}

func (o *Output) run(r io.ReadCloser) {
	defer r.Close()
	var chunk [4 << 10]byte
	for again := true; ; {
		o.mu.Lock()
		o.hurry(r)
		o.mu.Unlock()
		n, err := r.Read(chunk[:])
		if n > 0 && !o.append(chunk[:n]) {
			return
		}
		// The kernel may report a terminal's end although output was written meanwhile, and a deadline may expire while
		// no goroutine ran. So read once more.
		if (errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded)) && again {
			again = false
			continue
		}
		if err != nil {
			o.mu.Lock()
			o.over = true
			o.cond.Broadcast()
			o.mu.Unlock()
			return
		}
	}
}

// silence is the time without output after which the terminal of an ended process is hung up.
const silence = 300 * time.Millisecond

// Hangup reads a terminal to its end and then closes it, even if children of its process still have it open. The
// process's own output is not lost.
func (o *Output) Hangup() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.hurry(o.from)
}

// hurry bounds the next Read of a terminal after Hangup. The caller holds mu.
func (o *Output) hurry(from io.Closer) {
	if r, ok := from.(interface{ SetReadDeadline(time.Time) error }); ok && o.ending {
		_ = r.SetReadDeadline(time.Now().Add(silence)) // fails if it is closed
	}
}

// append appends to the buffer and waits for room. It returns false if the stream was closed.
func (o *Output) append(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 {
		for o.end-o.base == Limit && !o.closed && !o.unread {
			o.cond.Wait()
		}
		if o.closed || o.unread {
			return false
		}
		n := min(len(p), Limit-int(o.end-o.base))
		o.grow(int(o.end-o.base) + n)
		for i := 0; i < n; {
			i += copy(o.buf[(o.end+int64(i))&int64(len(o.buf)-1):], p[i:n])
		}
		o.end += int64(n)
		p = p[n:]
		o.cond.Broadcast()
	}
	return true
}

// grow grows the ring to at least need bytes.
func (o *Output) grow(need int) {
	if need <= len(o.buf) {
		return
	}
	size := max(len(o.buf), 4<<10)
	for size < need {
		size *= 2
	}
	buf := make([]byte, size)
	for at := o.base; at < o.end; {
		part := o.at(at)
		for i := 0; i < len(part); {
			i += copy(buf[(at+int64(i))&int64(size-1):], part[i:])
		}
		at += int64(len(part))
	}
	o.buf = buf
}

// at returns the longest contiguous part from an offset on.
func (o *Output) at(offset int64) []byte {
	i := int(offset & int64(len(o.buf)-1))
	return o.buf[i:min(len(o.buf), i+int(o.end-offset))]
}

func (o *Output) ack(offset int64) {
	if offset <= o.base {
		return
	}
	o.base = min(offset, o.end)
	if o.base == o.end && len(o.buf) > 16<<10 {
		o.buf = nil
	}
	o.cond.Broadcast()
}

// Close discards the buffer and ends the reader and the writes of the process, also in children that survive it.
func (o *Output) Close() {
	o.mu.Lock()
	o.closed = true
	o.buf = nil
	o.cond.Broadcast()
	o.mu.Unlock()
	_ = o.from.Close() // fails if run was quicker
}

// NoReader closes the source, so that the process's writes fail, and discards the buffer. Readers get io.EOF.
func (o *Output) NoReader() {
	o.mu.Lock()
	o.unread = true
	o.base, o.buf = o.end, nil
	o.cond.Broadcast()
	o.mu.Unlock()
	_ = o.from.Close() // fails if run was quicker
}

// Reader reads an Output from some offset on.
type Reader struct {
	o    *Output
	next int64
}

// Reader starts at offset, or at the first buffered byte if that is later, and drops the bytes before offset. It
// replaces an earlier reader.
func (o *Output) Reader(offset int64) *Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ack(offset)
	r := &Reader{o: o, next: o.base}
	o.reader = r
	o.cond.Broadcast()
	return r
}

// Offset returns the offset of the next byte.
func (r *Reader) Offset() int64 { return r.next }

// Ack drops the bytes before offset.
func (r *Reader) Ack(offset int64) {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	if r.o.reader == r {
		r.o.ack(min(offset, r.next))
	}
}

// Next waits for bytes and copies them into p. It returns io.EOF after the last byte, ErrReplaced, or the context's
// error.
func (r *Reader) Next(ctx context.Context, p []byte) (int, error) {
	o := r.o
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.cond.Broadcast()
	})
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case o.closed:
			return 0, io.ErrClosedPipe
		case o.reader != r:
			return 0, ErrReplaced
		case o.unread:
			return 0, io.EOF
		case r.next < o.end:
			n := copy(p, o.at(r.next))
			r.next += int64(n)
			return n, nil
		case o.over:
			return 0, io.EOF
		}
		o.cond.Wait()
	}
}
