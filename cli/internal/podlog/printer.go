// Package podlog prints containers' output.
package podlog

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Printer writes the output of containers: unchanged for one container, and line by line after a coloured name for
// several. It is not safe for concurrent use.
type Printer struct {
	out, err io.Writer
	colour   bool
	Several  bool           // more pods may follow, so each line has its pod's name
	Bare     bool           // no name before a line
	Full     bool           // kubectl's long name before each line
	Stamps   bool           // the time before each line
	names    map[source]int // order of appearance, from 1
	pods     map[string]bool
	partial  map[output]*unfinished
	width    int // of the longest name
}

// unfinished is a line without its end so far, and the time of its beginning.
type unfinished struct {
	bytes.Buffer
	at time.Time
}

// source identifies a container, and output one of its two streams.
type (
	source struct{ pod, container string }
	output struct {
		source
		name string
	}
)

// New returns a printer without containers. Add adds them.
func New(out, err io.Writer) *Printer {
	return &Printer{
		out: out, err: err, colour: tty.Colours(out),
		names: map[source]int{}, pods: map[string]bool{}, partial: map[output]*unfinished{},
	}
}

// Add registers the containers of a pod. It must be called before Print for their output.
func (p *Printer) Add(pod string, containers []string) {
	p.pods[pod] = true
	for _, c := range containers {
		if key := (source{pod, c}); p.names[key] == 0 {
			p.names[key] = len(p.names) + 1
		}
	}
	p.width = 0
	for key := range p.names {
		p.width = max(p.width, len(p.name(key)))
	}
}

// single reports whether all output comes from one container.
func (p *Printer) single() bool { return len(p.names) <= 1 && !p.Several }

// MaxLine bounds the kept bytes of a line that does not end.
const MaxLine = 64 << 10

// Print writes a piece of output, or keeps it until its line is complete.
func (p *Printer) Print(l api.Log) error {
	s := output{source{l.Pod, l.Container}, l.Stream}
	if !p.Stamps && !p.Full && (p.Bare || p.single()) {
		_, err := p.writer(s).Write(l.Data)
		return err
	}
	line := p.partial[s]
	if line == nil {
		line = &unfinished{}
		p.partial[s] = line
	}
	for part := range bytes.Lines(l.Data) {
		if line.Len() == 0 {
			line.at = l.Time
		}
		line.Write(part)
		if part[len(part)-1] == '\n' || line.Len() > MaxLine {
			if err := p.line(s, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// line writes a line and clears it.
func (p *Printer) line(s output, line *unfinished) error {
	at := ""
	if p.Stamps {
		at = line.at.UTC().Format(stampFormat) + " "
	}
	_, err := fmt.Fprintf(p.writer(s), "%s%s%s\n", p.prefix(s.source), at, bytes.TrimSuffix(line.Bytes(), []byte{'\n'}))
	line.Reset()
	return err
}

func (p *Printer) writer(s output) io.Writer {
	if s.name == "stderr" {
		return p.err
	}
	return p.out
}

// Flush writes unfinished lines. The last line of an output may lack its newline.
func (p *Printer) Flush() {
	order := func(a, b output) int {
		return cmp.Or(cmp.Compare(p.names[a.source], p.names[b.source]), strings.Compare(a.name, b.name))
	}
	for _, s := range slices.SortedFunc(maps.Keys(p.partial), order) {
		if line := p.partial[s]; line.Len() > 0 {
			_ = p.line(s, line) // a failed write has no remedy
		}
	}
}

// palette has ANSI colours that are legible on dark and light backgrounds.
var palette = []int{36, 33, 35, 32, 34, 31}

func (p *Printer) name(s source) string {
	if p.Several || len(p.pods) > 1 {
		return s.pod + "/" + s.container
	}
	return s.container
}

// stampFormat has a fixed width, unlike time.RFC3339Nano.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

func (p *Printer) prefix(s source) string {
	name := fmt.Sprintf("%-*s |", p.width, p.name(s))
	switch {
	case p.Full:
		name = fmt.Sprintf("[pod/%s/%s]", s.pod, s.container)
	case p.Bare || p.single():
		return ""
	}
	if p.colour {
		name = fmt.Sprintf("\x1b[%dm%s\x1b[0m", palette[(p.names[s]+len(palette)-1)%len(palette)], name)
	}
	return name + " "
}
