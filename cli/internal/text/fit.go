package text

import (
	"strings"
	"unicode/utf8"
)

// Clip cuts s to width columns.
func Clip(s string, width int) string {
	r := []rune(s)
	return string(r[:min(len(r), max(0, width))])
}

// Fold breaks text between words into lines of width columns, each after the first indented. If less than 20
// columns are left, it breaks nothing.
func Fold(text string, width, indent int) string {
	room := width - indent
	if room < 20 {
		return text
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// Dash returns s, or - if s is empty.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Pad clips or pads text to width columns, with blanks at the end.
func Pad(text string, width int) string {
	text = Clip(text, width)
	return text + strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text))
}

// PadLeft is Pad with blanks at the beginning.
func PadLeft(text string, width int) string {
	text = Clip(text, width)
	return strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text)) + text
}
