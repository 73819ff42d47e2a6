package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// printer writes containers' output: as it is when there is one container,
// line by line under a coloured name when there are several.
type printer struct {
	out, err io.Writer
	colour   bool
	names    map[string]int // "pod/container" -> order of appearance
	pods     map[string]bool
	partial  map[string][]byte // an unfinished line of each stream
}

func newPrinter(out, err io.Writer) *printer {
	return &printer{
		out: out, err: err, colour: colours(out),
		names: map[string]int{}, pods: map[string]bool{}, partial: map[string][]byte{},
	}
}

func (p *printer) add(pod string, containers []string) {
	p.pods[pod] = true
	for _, c := range containers {
		if key := pod + "/" + c; p.names[key] == 0 {
			p.names[key] = len(p.names) + 1
		}
	}
}

func (p *printer) print(l api.Log) error {
	w := p.out
	if l.Stream == "stderr" {
		w = p.err
	}
	if len(p.names) <= 1 {
		_, err := w.Write(l.Data)
		return err
	}
	key := l.Pod + "/" + l.Container
	data := append(p.partial[key+l.Stream], l.Data...)
	for {
		line, rest, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			p.partial[key+l.Stream] = append([]byte(nil), data...)
			return nil
		}
		if _, err := fmt.Fprintf(w, "%s%s\n", p.prefix(l), line); err != nil {
			return err
		}
		data = rest
	}
}

// flush ends what is unfinished: the last line of an output may lack its end.
func (p *printer) flush() {
	for key, data := range p.partial {
		if len(data) > 0 {
			fmt.Fprintf(p.out, "%s\n", data)
		}
		delete(p.partial, key)
	}
}

// palette are the ANSI colours that are legible on dark and light grounds.
var palette = []int{36, 33, 35, 32, 34, 31}

func (p *printer) prefix(l api.Log) string {
	name := l.Container
	if len(p.pods) > 1 {
		name = l.Pod + "/" + l.Container
	}
	if !p.colour {
		return name + " | "
	}
	return fmt.Sprintf("\x1b[%dm%s |\x1b[0m ", palette[p.names[l.Pod+"/"+l.Container]%len(palette)], name)
}
