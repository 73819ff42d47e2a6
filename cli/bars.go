package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// bars draws a line with a bar for each blob of a pull, redrawn in place. On
// anything but a terminal it says only what is done. It is used by one
// goroutine.
type bars struct {
	w     io.Writer
	live  bool
	quiet bool
	order []string
	blobs map[string]api.Progress
	drawn int // lines on the screen
}

func newBars(w io.Writer, quiet bool) *bars {
	return &bars{w: w, live: isTerminal(w) && !quiet, quiet: quiet, blobs: map[string]api.Progress{}}
}

func (b *bars) update(p api.Progress) {
	key := p.Image + p.Blob
	old, known := b.blobs[key]
	if !known {
		b.order = append(b.order, key)
	}
	b.blobs[key] = p
	switch {
	case b.live:
		b.clear()
		b.draw()
	case !b.quiet && p.State == "done" && old.State != "done":
		fmt.Fprintf(b.w, "%s %s %s\n", p.State, label(p), size(p.Done))
	}
}

// clear takes the bars off the screen, for other output.
func (b *bars) clear() {
	if b.drawn > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
}

// close leaves the screen without bars; further updates begin anew.
func (b *bars) close() {
	b.clear()
	b.order, b.blobs = nil, map[string]api.Progress{}
}

func (b *bars) draw() {
	width, height := 80, 24
	if f, ok := b.w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width, height = w, h
		}
	}
	order := b.order[max(0, len(b.order)-(height-2)):]
	for _, key := range order {
		fmt.Fprintln(b.w, bar(b.blobs[key], width))
	}
	b.drawn = len(order)
}

// bar fits one blob's progress into width columns.
func bar(p api.Progress, width int) string {
	left := fmt.Sprintf("%-14s ", label(p))
	right := fmt.Sprintf(" %8s  %s", size(p.Done), p.State)
	if p.Total > 0 {
		right = fmt.Sprintf(" %8s / %-8s %s", size(p.Done), size(p.Total), p.State)
	}
	room := width - len(left) - len(right) - 3
	if room < 4 || p.Total <= 0 {
		return clip(left+right, width-1)
	}
	full := int(int64(room) * min(p.Done, p.Total) / p.Total)
	return left + "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "]" + right
}

func clip(s string, width int) string { return s[:min(len(s), max(0, width))] }

func label(p api.Progress) string {
	if p.Blob == "" {
		return clip(p.Image, 40)
	}
	return short(strings.TrimPrefix(p.Blob, "sha256:"))
}
