// Package pacedlog keeps a log readable and small, even if a guest, a shim or a client provokes many lines. Repeated
// lines are counted, and written with their count later.
package pacedlog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A line is written as long as its bucket has tokens: burst at once, and perSecond more each second.
const (
	burst     = 20
	perSecond = 0.5
)

// window is the delay until dropped lines are reported, with the next line of any kind.
const window = 10 * time.Second

// most is the most kinds of lines with a bucket of their own. Further ones share a bucket.
const most = 4096

// subjects are the attributes that distinguish lines with the same message. Guests control none of them.
var subjects = map[string]bool{"pod": true, "container": true, "sandbox": true, "method": true, "id": true}

// Handler is a slog.Handler in front of another one.
type Handler struct {
	next    slog.Handler
	subject string // the subjects among the attributes that it adds to each line
	lines   *lines
}

// New returns a Handler in front of next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, lines: &lines{kinds: map[string]*kind{}, now: time.Now}}
}

// lines are the buckets, by the kind of a line.
type lines struct {
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*kind
	swept time.Time
}

// kind is one kind of lines.
type kind struct {
	bucket *rate.Limiter
	last   time.Time
	left   int         // number of dropped lines
	record slog.Record // the last of them
	next   slog.Handler
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var subject strings.Builder
	subject.WriteString(h.subject)
	for _, a := range attrs {
		add(&subject, a)
	}
	return &Handler{next: h.next.WithAttrs(attrs), subject: subject.String(), lines: h.lines}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), subject: h.subject, lines: h.lines}
}

func add(to *strings.Builder, a slog.Attr) {
	if subjects[a.Key] {
		to.WriteString("\x00" + a.Key + "=" + a.Value.String())
	}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	var key strings.Builder
	key.WriteString(r.Level.String() + " " + r.Message + h.subject)
	r.Attrs(func(a slog.Attr) bool { add(&key, a); return true })
	write, due := h.lines.allow(key.String(), r, h.next)
	for _, k := range due {
		if err := k.next.Handle(ctx, k.record); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// allow reports whether a line is written, and returns the lines that are due with counts of dropped ones.
func (l *lines) allow(key string, r slog.Record, next slog.Handler) (write bool, due []kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	k := l.kinds[key]
	if k == nil {
		if len(l.kinds) >= most {
			key = ""
			k = l.kinds[key]
		}
		if k == nil {
			k = &kind{bucket: rate.NewLimiter(perSecond, burst)}
			l.kinds[key] = k
		}
	}
	k.last = now
	if write = k.bucket.AllowN(now, 1); !write {
		k.left++
		k.record, k.next = r.Clone(), next
	}
	if now.Sub(l.swept) < window {
		return write, nil
	}
	l.swept = now
	for key, k := range l.kinds {
		if k.left > 0 {
			k.record.AddAttrs(slog.Int("more", k.left), slog.String("in", "the last "+window.String()))
			due = append(due, *k)
			k.left = 0
		} else if now.Sub(k.last) > burst/perSecond*time.Second {
			delete(l.kinds, key)
		}
	}
	return write, due
}
