// Package progress draws the progress of pulls.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// redraw is the minimum time between two drawings of the bars.
const redraw = 50 * time.Millisecond

// Bars draws a line with a bar for each blob of a pull, grouped by image and redrawn in place. Without a terminal
// it prints a line for each finished blob. It is not safe for concurrent use.
type Bars struct {
	w     io.Writer
	live  bool
	quiet bool
	order []string // of images
	pulls map[string]*pull
	step  string // the step being waited for
	drawn int    // lines on the screen
	last  time.Time
}

// pull holds the progress of one image's blobs.
type pull struct {
	order []string
	blobs map[string]api.Progress
}

// New returns bars that are drawn to w. If quiet is set, they print nothing.
func New(w io.Writer, quiet bool) *Bars {
	return &Bars{w: w, live: tty.IsTerminal(w) && !quiet, quiet: quiet, pulls: map[string]*pull{}}
}

// Update records and shows the progress of a blob.
func (b *Bars) Update(p api.Progress) {
	images := b.pulls[p.Image]
	if images == nil {
		images = &pull{blobs: map[string]api.Progress{}}
		b.pulls[p.Image], b.order = images, append(b.order, p.Image)
	}
	old, known := images.blobs[p.Blob]
	if !known {
		images.order = append(images.order, p.Blob)
	}
	images.blobs[p.Blob] = p
	finished := p.State == "done" && old.State != "done"
	switch {
	case b.live && (finished || !known || time.Since(b.last) >= redraw):
		b.draw()
	case !b.live && !b.quiet && finished:
		fmt.Fprintf(b.w, "%s: %s %s %s\n", p.Image, p.State, label(p.Blob), text.Size(p.Done))
	}
}

// SetStep shows the step being waited for, until the bars are closed. Without a terminal it does nothing.
func (b *Bars) SetStep(step string) {
	if b.live {
		b.step = step
		b.draw()
	}
}

// Clear removes the bars from the screen, to make place for other output.
func (b *Bars) Clear() {
	if b.drawn > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
}

// Close removes the bars and forgets all progress. Later updates start with new bars.
func (b *Bars) Close() {
	b.Clear()
	b.order, b.pulls, b.step = nil, map[string]*pull{}, ""
}

// draw writes all lines at once over the previous ones, to avoid flicker.
func (b *Bars) draw() {
	width, height := 80, 24
	if f, ok := b.w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width, height = w, h
		}
	}
	var lines []string
	for _, image := range b.order {
		lines = append(lines, text.Clip(image, width-1))
		for _, blob := range b.pulls[image].order {
			lines = append(lines, bar(b.pulls[image].blobs[blob], width))
		}
	}
	if b.step != "" {
		lines = append(lines, text.Clip(b.step+" …", width-1))
	}
	lines = lines[max(0, len(lines)-max(1, height-2)):]
	var out bytes.Buffer
	if b.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", b.drawn)
	}
	for _, line := range lines {
		out.WriteString(line + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	_, _ = b.w.Write(out.Bytes()) // a closed terminal needs no bars
	b.drawn, b.last = len(lines), time.Now()
}
