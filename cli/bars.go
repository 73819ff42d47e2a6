package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// redraw is the least time between two drawings of the bars.
const redraw = 50 * time.Millisecond

// bars draws a line with a bar for each blob of a pull, redrawn in place, each
// image's under its name. On anything but a terminal it says only what is
// done. It is used by one goroutine.
type bars struct {
	w     io.Writer
	live  bool
	quiet bool
	order []string // of images
	pulls map[string]*pull
	step  string // what is being waited for
	drawn int    // lines on the screen
	last  time.Time
}

// pull is what is known of one image's blobs.
type pull struct {
	order []string
	blobs map[string]api.Progress
}

func newBars(w io.Writer, quiet bool) *bars {
	return &bars{w: w, live: isTerminal(w) && !quiet, quiet: quiet, pulls: map[string]*pull{}}
}

func (b *bars) update(p api.Progress) {
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
		fmt.Fprintf(b.w, "%s: %s %s %s\n", p.Image, p.State, label(p.Blob), size(p.Done))
	}
}

// say tells what is being waited for until the bars are closed; where nobody
// sits and waits, nothing.
func (b *bars) say(step string) {
	if b.live {
		b.step = step
		b.draw()
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
	b.order, b.pulls, b.step = nil, map[string]*pull{}, ""
}

// draw writes all lines at once over the ones before, so that nothing flickers.
func (b *bars) draw() {
	width, height := 80, 24
	if f, ok := b.w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width, height = w, h
		}
	}
	var lines []string
	for _, image := range b.order {
		lines = append(lines, clip(image, width-1))
		for _, blob := range b.pulls[image].order {
			lines = append(lines, bar(b.pulls[image].blobs[blob], width))
		}
	}
	if b.step != "" {
		lines = append(lines, clip(b.step+" …", width-1))
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
	_, _ = b.w.Write(out.Bytes()) // a terminal that is gone is nobody to tell
	b.drawn, b.last = len(lines), time.Now()
}

// widest is the most columns that a bar itself takes.
const widest = 50

// bar fits one blob's progress into width columns.
func bar(p api.Progress, width int) string {
	left := fmt.Sprintf("  %-12s ", label(p.Blob))
	right := fmt.Sprintf(" %8s", size(p.Done))
	if p.Total > 0 {
		right = fmt.Sprintf(" %8s / %-8s", size(p.Done), size(p.Total))
	}
	if p.State == "done" {
		right += " done"
	}
	room := min(width-len(left)-len(" 1.23 MB  / 1.23 MB  done")-3, widest)
	if room < 4 || p.Total <= 0 {
		return clip(left+right, width-1)
	}
	full := int(int64(room) * max(0, min(p.Done, p.Total)) / p.Total)
	return clip(left+"["+strings.Repeat("=", full)+strings.Repeat(" ", room-full)+"]"+right, width-1)
}

// clip cuts s to so many columns.
func clip(s string, width int) string {
	r := []rune(s)
	return string(r[:min(len(r), max(0, width))])
}

// label is what a blob is called on the screen: the first digits of its digest.
func label(blob string) string {
	_, digits, ok := strings.Cut(blob, ":")
	if !ok {
		digits = blob
	}
	return short(digits)
}
