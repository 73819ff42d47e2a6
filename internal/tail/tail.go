// Package tail reads the end of what a process has written, which tells why it ended.
package tail

import (
	"os"
	"strings"
)

// Most is how many bytes File returns at most.
const Most = 4 << 10

// File is the end of a log, as UTF-8; empty for one that cannot be read.
func File(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, Most)
	n, _ := f.ReadAt(buf, max(0, info.Size()-Most)) // a short read is what there is
	return strings.ToValidUTF8(string(buf[:n]), "?")
}

// Line is the last line of text that is not empty, without space around it.
func Line(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
