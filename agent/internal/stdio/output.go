// Package stdio keeps what a process writes until the host has it, and feeds
// its stdin.
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

// Limit is how many bytes of a stream are kept; then the process blocks.
const Limit = 256 << 10

// ErrReplaced is returned by Next when a newer Reader took over.
var ErrReplaced = errors.New("replaced by a newer client")

// Output is one stream of a process. Its methods may be called at once.
type Output struct {
	from   io.Closer // what it reads
	mu     sync.Mutex
	cond   *sync.Cond
	buf    []byte // ring; its size is a power of two
	base   int64  // offset of the first byte kept
	end    int64  // offset after the last
	over   bool   // nothing more will come
	ending bool   // its process has ended, and it is a terminal
	closed bool   // nobody wants it any more
	reader *Reader
}

// NewOutput keeps what r gives until r ends, then closes r. A Close of r must end
// a Read under way.
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
		if n > 0 && !o.put(chunk[:n]) {
			return
		}
		// The kernel may find a terminal empty, and then left by all, and say so, although
		// somebody has written in between; and time may have passed by while nobody
		// looked. What there is, is there for who asks once more.
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

// silence is for how long nothing may come from a terminal whose process has ended,
// before it is hung up.
const silence = 300 * time.Millisecond

// Hangup has a terminal be read to its end, and be closed then, also when children of its
// process still have it. What the process wrote is not lost.
func (o *Output) Hangup() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.hurry(o.from)
}

// hurry bounds the next Read of a terminal that is hung up. It is called with mu held.
func (o *Output) hurry(from io.Closer) {
	if r, ok := from.(interface{ SetReadDeadline(time.Time) error }); ok && o.ending {
		_ = r.SetReadDeadline(time.Now().Add(silence)) // fails where it is closed
	}
}

// put waits for room. It is false when the stream was closed.
func (o *Output) put(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 {
		for o.end-o.base == Limit && !o.closed {
			o.cond.Wait()
		}
		if o.closed {
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

// grow makes the ring hold need bytes.
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

// at is the longest continuous part from an offset on.
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

// Close throws away what is kept and ends reader and process's writes, also those
// of a child of the process that lives on.
func (o *Output) Close() {
	o.mu.Lock()
	o.closed = true
	o.buf = nil
	o.cond.Broadcast()
	o.mu.Unlock()
	_ = o.from.Close() // fails where run was quicker
}

// Reader reads an Output from some offset on.
type Reader struct {
	o    *Output
	next int64
}

// Reader begins at offset, or at the first byte kept if that is later; what
// lies before offset is forgotten. It ends the reader before it.
func (o *Output) Reader(offset int64) *Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ack(offset)
	r := &Reader{o: o, next: o.base}
	o.reader = r
	o.cond.Broadcast()
	return r
}

// Offset is where the next byte is.
func (r *Reader) Offset() int64 { return r.next }

// Ack forgets what lies before offset.
func (r *Reader) Ack(offset int64) {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	if r.o.reader == r {
		r.o.ack(min(offset, r.next))
	}
}

// Next waits for bytes and copies them into p. It returns io.EOF after the
// last, ErrReplaced, or the context's error.
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
