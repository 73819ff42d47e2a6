// Package tty knows terminals: what they can do, their raw mode, their sizes and signals.
package tty

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Colours says whether w is a terminal that may be coloured (no-color.org).
func Colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// Width is the number of columns of a terminal, 0 for anything else.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// IsTerminal looks at a file of any use; what is no file is no terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
