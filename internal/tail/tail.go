// Package tail reads the end of a process's output, which often has the reason of its end.
package tail

import (
	"os"
	"strings"
)

// Most is the most bytes that File returns.
const Most = 4 << 10

// File returns the end of a log, as UTF-8; empty if it cannot be read.
func File(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, Most)
	n, _ := f.ReadAt(buf, max(0, info.Size()-Most)) // a short read is enough
	return strings.ToValidUTF8(string(buf[:n]), "?")
}

// Line returns the last line of text that is not empty, without surrounding space.
func Line(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
