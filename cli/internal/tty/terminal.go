// Package tty handles terminals: their abilities, raw mode, sizes and signals.
package tty

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Colours reports whether w is a terminal that may show colours (no-color.org).
func Colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// Width returns the columns of a terminal, 0 for any other stream.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// IsTerminal reports whether stream is a file that is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
