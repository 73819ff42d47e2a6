package logs

import (
	"bytes"
	"time"
)

// maxLine bounds a line of a log in bytes: runtimes split lines at 16 KiB.
const maxLine = 64 << 10

// Line is a piece of a container's output: a line with its end, or a part of a line that the runtime has split.
type Line struct {
	Stream string // stdout or stderr
	Time   time.Time
	Data   []byte
}

// parse reads a line of the CRI's log format: time, stream, P (partial) or F (full), text. It rejects other lines.
func parse(line []byte) (Line, bool) {
	parts := bytes.SplitN(line, []byte{' '}, 4)
	if len(parts) != 4 {
		return Line{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil {
		return Line{}, false
	}
	text := bytes.Clone(bytes.TrimSuffix(parts[3], []byte{'\n'}))
	if !bytes.HasPrefix(parts[2], []byte{'P'}) {
		text = append(text, '\n')
	}
	return Line{Stream: string(parts[1]), Time: at, Data: text}, true
}
